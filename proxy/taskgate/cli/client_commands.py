"""The commands of an operator beside `serve`, with their options: `CLIENT_COMMANDS`.

As in `commands`, each loads the module that does its work when it is called.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from taskgate.cli.help import HelpfulCommand

_AsCommand = Callable[[Callable[..., Any]], HelpfulCommand]


def _command(name: str) -> _AsCommand:
    return click.command(name, cls=HelpfulCommand)


as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
admin_url: Final = click.option(
    "--admin",
    metavar="URL",
    envvar="TASKGATE_ADMIN_URL",
    default="http://127.0.0.1:9464",
    show_default=True,
    show_envvar=True,
    help="Address of the operators' listener (admin.listen).",
)


@_command("version")
@as_json
def version(**options: Any) -> None:
    """Print the versions of taskgate, Python and aiohttp, and the revisions of the protocol."""
    from taskgate.cli.version import print_version

    print_version(**options)


@_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell."""
    from taskgate.cli.version import print_completion

    print_completion(shell, ctx.find_root().command)


@_command("health")
@admin_url
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=300),
    default=5.0,
    show_default=True,
    help="How long to wait for the answer.",
)
@as_json
def health(**options: Any) -> None:
    """Ask a running gateway whether it is ready, and how its upstreams are.

    An upstream that is down does not make a gateway unready.
    """
    from taskgate.cli.remote.health import print_health

    print_health(**options)


@_command("init")
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path, dir_okay=False), default="taskgate.yaml")
@click.option("--upstream", metavar="URL", help="URL of the MCP server.")
@click.option("--upstream-command", "command", metavar="COMMAND", help="Command of a stdio MCP server.")
@click.option("--auth", metavar="none|issuer=URL", help="Without authentication, or with tokens of that issuer.")
@click.option("--store", metavar="sqlite|URL", help="SQLite, or the redis:// URL of Redis or Valkey.")
@click.option("--public-url", metavar="URL", help="URL by which hosts reach taskgate.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the defaults.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init(**options: Any) -> None:
    """Write a configuration with comments to FILE; default taskgate.yaml.

    What no option says is asked on a terminal, in at most four questions. With redis, two files of
    keys are created beside FILE if they are missing.
    """
    from taskgate.cli.init import write_configuration

    write_configuration(**options)


@_command("call")
@click.argument("upstream")
@click.argument("tool")
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="An argument; the tool's schema types it.")
@click.option("--args-json", metavar="JSON|@FILE", help="All arguments as a JSON object; --arg adds to them.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Configuration that names UPSTREAM.")
@click.option("--url", metavar="URL", help="Address of the gateway for hosts; default http://127.0.0.1:8080.")
@click.option(
    "--token",
    "token_file",
    type=click.Path(path_type=Path),
    envvar="TASKGATE_TOKEN_FILE",
    show_envvar=True,
    help="File with the caller's bearer token.",
)
@click.option("--task", "as_task", is_flag=True, help="Ask for a task, poll it, and fetch its result.")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0.1), help="Cancel the call after so long; default never."
)
@as_json
def call(**options: Any) -> None:
    """Call a tool through a running gateway, as a host does, and print its result.

    UPSTREAM is a path such as /mcp, a URL, or with --config the name of an upstream. A terminal
    shows a progress bar. Ctrl-C cancels the call.
    """
    from taskgate.cli.call import call_tool

    call_tool(**options)


CLIENT_COMMANDS: Final = (version, completion, health, init, call)
"""The commands of this module, which `cli` adds to the program."""
