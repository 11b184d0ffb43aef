"""The commands with their options: `main`. What they do is in the other modules of this folder.

Each command imports its module when it is called, and gives it the options by their names. So
`--version`, help and completion in a shell load no part of the gateway, which takes longer than all
that they do.
"""

import gc
from pathlib import Path
from typing import Any, Final

import click

from taskgate import __version__
from taskgate.cli.help import config_option, find_file, needed_file
from taskgate.cli.streams import CommandLine

AnyFile: Final = click.Path(path_type=Path)


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taskgate")
def main() -> None:
    """A gateway that turns blocking MCP tool calls into durable tasks, in front of unmodified
    servers.
    """


@main.command()
@config_option("The configuration")
@click.option("--print", "prints", is_flag=True, help="Print the effective configuration: every key, secrets masked.")
@click.option("--online", is_flag=True, help="Ask servers, issuers and a shared store whether they answer.")
@click.option("--running", "is_running", is_flag=True, help="A gateway runs with this file: its ports are in use.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: Path | None, **options: Any) -> None:
    """Check a configuration, and the files and addresses of this machine that it names.

    Prints what is served, to which callers, the store, the limits and the result. Warnings are
    written to standard error.
    """
    from taskgate.cli.configuration import print_check

    print_check(needed_file(file), **options)


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    from taskgate.cli.configuration import print_schema

    print_schema()


@main.command()
@config_option("The configuration")
@click.option("--upstream", metavar="NAME", required=True, help="Name of an upstream in the file.")
@click.option("--tool", metavar="NAME", required=True, help="Name of the tool.")
@click.option("--token", "token_file", type=AnyFile, help="File that holds the caller's bearer token.")
@click.option(
    "--claims", metavar="NAME=VALUE,...", help="Claims of the caller's token in its place: sub=bob,scope=read."
)
@click.option(
    "--hint", "hints", metavar="NAME=true|false", multiple=True, help="A tool annotation as the server lists it."
)
@click.option("--online", is_flag=True, help="Ask the server which extensions it declares.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(file: Path | None, **options: Any) -> None:
    """Print the rules and limits that apply to a call of a tool, and which extensions are
    forwarded.

    The server is contacted only with --online, and only for its declared capabilities.
    """
    from taskgate.cli.configuration import print_explanation

    print_explanation(needed_file(file), **options)


@main.command()
@click.argument("upstream")
@config_option("The configuration")
@click.option("--token", "token_file", type=AnyFile, help="File that holds the caller's bearer token.")
@click.option("--claims", metavar="NAME=VALUE,...", help="Claims of the caller's token in its place.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=300),
    default=30.0,
    show_default=True,
    help="How long to wait for the list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tools(file: Path | None, **options: Any) -> None:
    """List the tools of the upstream UPSTREAM, and what the rules say of each.

    The server is asked. OWN TASKS is the task support that it declares, MODE and RULE are of
    tasks.upgrade, and ALLOWED is whether the caller may call the tool.
    """
    from taskgate.cli.configuration import print_tools

    print_tools(needed_file(file), **options)


@main.command()
@config_option("The configuration")
def metrics(file: Path | None) -> None:
    """Print all metrics, and the maximum number of series of each under that configuration."""
    from taskgate.cli.configuration import print_metrics

    print_metrics(find_file(file))


@main.group()
def token() -> None:
    """Find out why a token is accepted or refused."""


@token.command()
@config_option("The configuration")
@click.option("--token", "token_file", type=AnyFile, required=True, help="File that holds the bearer token.")
@click.option("--upstream", metavar="NAME", help="Name of an upstream in the file, where there are several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(file: Path | None, **options: Any) -> None:
    """Print what each check of the gateway says of a token: what was expected, and what was found.

    The keys of the issuer are fetched. Neither the token nor its signature is printed.
    """
    from taskgate.cli.configuration import print_token

    print_token(needed_file(file), **options)


@main.group()
def audit() -> None:
    """Verify an audit log, or look something up in it."""


@audit.command()
@click.argument("files", metavar="FILE...", type=AnyFile, nargs=-1, required=True)
@click.option(
    "--checkpoint", "checkpoints", type=AnyFile, multiple=True, help="Output of another sink that holds checkpoints."
)
@click.option(
    "--key", "keys", type=AnyFile, multiple=True, help="File with the key of the log, or a PEM file of its signer."
)
@click.option(
    "--expect-seq",
    "expected",
    metavar="N",
    type=click.IntRange(min=1),
    help="Fail unless the last line has sequence number N or higher.",
)
def verify(**options: Any) -> None:
    """Verify that the lines of a log are complete, in order and unchanged.

    Give all files of one sink, rotated ones too, in any order. Exit status: 0 if no problem was
    found, 1 if a problem was found, 2 if the log could not be verified.
    """
    from taskgate.cli.audit import verify_log

    verify_log(**options)


@audit.command()
@click.argument("task", metavar="TASK_ID")
@click.option("--key", type=AnyFile, required=True, help="File with the key of the log.")
def ref(task: str, key: Path) -> None:
    """Print the reference by which a log names a task id."""
    from taskgate.cli.audit import print_ref

    print_ref(task, key)


@audit.command(name="schema")
def schema_of_lines() -> None:
    """Print the JSON Schema of the lines of a log."""
    from taskgate.cli.audit import print_line_schema

    print_line_schema()


@main.command()
@config_option("The configuration")
@click.option("--upstream", metavar="URL", help="Without --config: URL of the MCP server to serve at /mcp.")
@click.option(
    "--upstream-command",
    "command",
    metavar="COMMAND",
    help="Without --config: command of a stdio MCP server to serve at /mcp.",
)
@click.option("--listen", metavar="HOST:PORT", help="Without --config: address for hosts; default 127.0.0.1:8080.")
@click.option(
    "--admin", metavar="HOST:PORT", help="Without --config: address for health and metrics; default 127.0.0.1:9464."
)
@click.option(
    "--loop",
    type=click.Choice(["auto", "asyncio", "uvloop"]),
    default="auto",
    show_default=True,
    help="The event loop; auto is uvloop where it is installed.",
)
@click.option("--no-watch", is_flag=True, help="Reload the file only on SIGHUP, not when it changes.")
def serve(file: Path | None, upstream: str | None, command: str | None, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT. SIGTERM drains first; a second signal ends the drain.

    SIGHUP, or a change of the file, reloads the configuration. The log names changed keys that need
    a restart. SIGHUP also reopens the files of the audit log.
    """
    if upstream is None and command is None:
        file = find_file(file)
    # Imports make objects that stay: to search them for garbage took a quarter of the start.
    gc.disable()
    from taskgate.cli.serve import serve_until_stopped

    gc.freeze()
    gc.enable()
    serve_until_stopped(file, upstream, command, **options)
