"""The commands of an operator beside `serve`, with their options: `CLIENT_COMMANDS`.

As in `commands`, each loads the module that does its work when it is called.
"""

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from taskgate.cli.help import HelpfulCommand, HelpfulGroup, config_option, find_file

if TYPE_CHECKING:
    from taskgate.cli.remote.client import AdminClient

_API_SECONDS: Final = 30.0
"""How long a request to the API may take."""


class _Seconds(click.FloatRange):
    """A number of seconds. `nan` and `inf` are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises click.BadParameter."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


def _read_text(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """A text that can be sent. The bytes of a command line may be of another encoding than UTF-8."""
    try:
        (given or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("must be UTF-8.") from None
    return given


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
    type=_Seconds(min=0.1, max=300),
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
@click.option(
    "--from",
    "hosts_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of a host with its servers, such as .mcp.json: all of them become upstreams.",
)
@click.option("--auth", metavar="none|issuer=URL", help="Without authentication, or with tokens of that issuer.")
@click.option("--store", metavar="sqlite|URL", help="SQLite, or the redis:// URL of Redis or Valkey.")
@click.option("--public-url", metavar="URL", help="URL by which hosts reach taskgate.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the defaults.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init(**options: Any) -> None:
    """Write a configuration with comments to FILE; default taskgate.yaml.

    What no option says is asked on a terminal, in at most four questions. A token of operators, and with
    redis two files of keys, are created beside FILE if they are missing.

    --from reads mcpServers of Claude and Cursor, and servers of VS Code. The new file of the host is
    printed. Values of env and headers become variables, which the gateway needs.
    """
    from taskgate.cli.init import write_configuration

    write_configuration(**options)


@click.group("keys", cls=HelpfulGroup)
def keys() -> None:
    """Make API keys of hosts, and their hashes for the configuration."""


@keys.command("new")
@click.option("--name", metavar="NAME", help="Name of the entry, and its subject.")
def new(name: str | None) -> None:
    """Print a new key, and the entry of the configuration with its hash.

    The key is stored nowhere: give it to the host now.
    """
    from taskgate.cli.keys import print_new_key

    print_new_key(name)


@keys.command("hash")
def hash_of_key() -> None:
    """Read a key from standard input, and print its hash for the configuration."""
    from taskgate.cli.keys import print_hash

    print_hash()


@_command("examples")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--force", is_flag=True, help="Replace files that exist.")
def examples(**options: Any) -> None:
    """Write example configurations, schemas, dashboards and alerts to DIR.

    DIR/demo/server.py is a small MCP server to try taskgate with; it needs the extra `demo`.
    """
    from taskgate.cli.example_files import write_examples

    write_examples(**options)


@_command("call")
@click.argument("upstream", callback=_read_text)
@click.argument("tool", callback=_read_text)
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="An argument; the tool's schema types it.")
@click.option("--args-json", metavar="JSON|@FILE", help="All arguments as a JSON object; --arg adds to them.")
@config_option("Configuration that names UPSTREAM")
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
    "--timeout", metavar="SECONDS", type=_Seconds(min=0.1), help="Cancel the call after so long; default never."
)
@as_json
def call(upstream: str, file: Path | None, **options: Any) -> None:
    """Call a tool through a running gateway, as a host does, and print its result.

    UPSTREAM is a path such as /mcp, a URL, or the name of an upstream in the configuration. A terminal
    shows a progress bar. Ctrl-C cancels the call.
    """
    from taskgate.cli.host.call import call_tool

    # A path or a URL needs no configuration.
    call_tool(upstream, file=file if "/" in upstream else find_file(file), **options)


@_command("doctor")
@admin_url
@config_option("A configuration to check too")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=_Seconds(min=0.1, max=300),
    default=10.0,
    show_default=True,
    help="How long to wait for each answer.",
)
@as_json
def doctor(file: Path | None, **options: Any) -> None:
    """Report what is wrong with a gateway and what to do, then facts for a support request.

    The report has versions, the outcome of `taskgate check`, health, upstreams, and refusals by
    their metrics. It has no secrets, payloads or task ids.
    """
    from taskgate.cli.remote.doctor import print_report

    print_report(file=find_file(file), **options)


# --- with the API of operators --------------------------------------------------------------------------------------

_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
_REFERENCE: Final = re.compile("t_[A-Za-z0-9_-]{22}")
_NAME: Final = re.compile("[a-z0-9][a-z0-9_-]{0,63}")
_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _read_reference(_ctx: click.Context, _parameter: click.Parameter, given: Any) -> Any:
    for each in given if isinstance(given, tuple) else (given,):
        if not _REFERENCE.fullmatch(each):
            raise click.BadParameter(
                "must be a reference such as t_ and 22 characters; `taskgate tasks ls` lists them, and `taskgate "
                "audit ref` prints that of a task id."
            )
    return given


def _read_name(_ctx: click.Context, _parameter: click.Parameter, given: Any) -> Any:
    for each in given if isinstance(given, tuple) else (given,):
        if not _NAME.fullmatch(each):
            raise click.BadParameter("must be the name of an upstream: a-z, 0-9, _ and -.")
    return given


def _read_duration(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    found = None if given is None else _DURATION.fullmatch(given)
    if given is not None and found is None:
        raise click.BadParameter("must be a duration such as 30s, 10m, 2h or 7d.")
    return None if found is None else str(int(found[1]) * _SECONDS[found[2]])


def _with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--admin`, `--token` and `--json`."""
    token = click.option(
        "--token",
        "token_file",
        type=click.Path(path_type=Path),
        envvar="TASKGATE_ADMIN_TOKEN_FILE",
        show_envvar=True,
        help="File with a token of admin.tokens.",
    )
    return admin_url(token(as_json(command)))


def _client(admin: str, token_file: Path | None) -> "AdminClient":
    """The client of the options. Raises click.UsageError."""
    from taskgate.cli.remote.client import AdminClient, AdminUrlInvalid
    from taskgate.cli.remote.token_file import TokenFileInvalid, read_token

    try:
        token = None if token_file is None else read_token(token_file)
        return AdminClient(admin, timeout=_API_SECONDS, token=token)
    except (AdminUrlInvalid, TokenFileInvalid) as wrong:
        raise click.UsageError(str(wrong)) from None


def _sorted_by(text: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--sort", type=click.Choice(["created", "-created", "updated", "-updated"]), help=text, **more)


@click.group("tasks", cls=HelpfulGroup)
def tasks() -> None:
    """List, show, cancel and watch tasks of a running gateway."""


@tasks.command("ls")
@click.option("--upstream", metavar="NAME", callback=_read_text, help="Tasks of that upstream.")
@click.option("--tool", metavar="NAME", callback=_read_text, help="Tasks of that tool.")
@click.option("--tenant", metavar="NAME", callback=_read_text, help="Tasks of callers of that tenant.")
@click.option("--caller", metavar="NAME", callback=_read_text, help="Tasks of that caller: subject, or c_….")
@click.option("--client", metavar="NAME", callback=_read_text, help="Tasks of callers with that client.")
@click.option("--issuer", metavar="NAME", callback=_read_text, help="Tasks of callers of that issuer.")
@click.option("--status", "statuses", type=click.Choice(_STATUSES), multiple=True, help="Tasks in one of these.")
@click.option("--unfinished", is_flag=True, help="Short for --status working --status input_required.")
@click.option("--failed", is_flag=True, help="Short for --status failed: with errors of tools.")
@click.option("--reference", metavar="PREFIX", callback=_read_text, help="Tasks whose reference begins so, t_….")
@click.option("--older-than", metavar="DURATION", callback=_read_duration, help="Created at least so long ago: 10m.")
@click.option("--younger-than", metavar="DURATION", callback=_read_duration, help="Created at most so long ago.")
@_sorted_by("Order of unfinished tasks; - is newest first, the default.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The most tasks.")
@click.option("-q", "--quiet", is_flag=True, help="Print references alone, one a line.")
@click.option("--watch", is_flag=True, help="Show the list on a screen that follows changes, until q.")
@_with_client
def list_tasks(
    admin: str, token_file: Path | None, limit: int, quiet: bool, watch: bool, as_json: bool, **filters: Any
) -> None:
    """List tasks of all callers, the newest first.

    A terminal shows a table. Otherwise each task is a line with tabs between its cells. TOOK is the time
    until the end, SILENT that since the last change. A task whose tool returned an error is failed, as
    for hosts; JSON has the status and tool_error.
    """
    from taskgate.cli.remote import tasks as work

    if quiet + watch + as_json > 1:
        raise click.UsageError("Give one of -q, --watch and --json.")
    if watch and not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; `taskgate events --kinds task` prints lines.")
    statuses = [*filters.pop("statuses")]
    statuses += ["working", "input_required"] if filters.pop("unfinished") else []
    statuses += ["failed"] if filters.pop("failed") else []
    is_unfinished = bool(statuses) and not {*statuses} - {"working", "input_required"}
    if filters["sort"] not in (None, "-created") and not is_unfinished:
        raise click.UsageError("--sort needs --unfinished: other lists have the newest first.")
    filters["status"] = ",".join(dict.fromkeys(statuses)) or None
    client = _client(admin, token_file)
    if watch:
        work.watch_tasks(client, filters, limit)
    else:
        work.list_tasks(client, filters, limit, "json" if as_json else "references" if quiet else "table")


@tasks.command("show")
@click.argument("reference", callback=_read_reference)
@click.option("--payload", is_flag=True, help="Show arguments, result, questions and answers instead.")
@_with_client
def show_task(reference: str, payload: bool, admin: str, token_file: Path | None, as_json: bool) -> None:
    """Show one task: its statuses with their times, lease, failure and host.

    --payload needs a token of role operator, and admin.payloads. The audit log has each look. With --json, values have
    their own spaces and numbers.
    """
    from taskgate.cli.remote import tasks as work

    show = work.show_payload if payload else work.show_task
    show(_client(admin, token_file), reference, as_json)


_reason = click.option("--reason", metavar="TEXT", callback=_read_text, help="Why; the hosts see it.")


@tasks.command("cancel")
@click.argument("references", metavar="REFERENCE...", nargs=-1, required=True, callback=_read_reference)
@_reason
@_with_client
def cancel_tasks(
    references: tuple[str, ...], reason: str | None, admin: str, token_file: Path | None, as_json: bool
) -> None:
    """Cancel tasks. The hosts see that an operator cancelled them, and the calls end at their servers."""
    from taskgate.cli.remote import tasks as work

    work.cancel_tasks(_client(admin, token_file), references, reason, as_json)


@tasks.command("cancel-many")
@click.option("--upstream", metavar="NAME", callback=_read_text, help="Tasks of that upstream.")
@click.option("--tool", metavar="NAME", callback=_read_text, help="Tasks of that tool.")
@click.option("--tenant", metavar="NAME", callback=_read_text, help="Tasks of callers of that tenant.")
@click.option("--caller", metavar="NAME", callback=_read_text, help="Tasks of that caller: subject, or c_….")
@click.option("--client", metavar="NAME", callback=_read_text, help="Tasks of callers with that client.")
@click.option("--issuer", metavar="NAME", callback=_read_text, help="Tasks of callers of that issuer.")
@click.option("--status", type=click.Choice(["working", "input_required"]), help="Tasks in that status alone.")
@click.option("--reference", metavar="PREFIX", callback=_read_text, help="Tasks whose reference begins so, t_….")
@click.option("--older-than", metavar="DURATION", callback=_read_duration, help="Created at least so long ago: 10m.")
@click.option("--younger-than", metavar="DURATION", callback=_read_duration, help="Created at most so long ago.")
@_reason
@click.option("--dry-run", is_flag=True, help="Print the references of the tasks that match, and cancel none.")
@click.option("--yes", is_flag=True, help="Cancel without a confirmation.")
@_with_client
def cancel_many(
    reason: str | None, admin: str, token_file: Path | None, dry_run: bool, yes: bool, as_json: bool, **filters: Any
) -> None:
    """Cancel all unfinished tasks that match, after a confirmation of their number.

    If other tasks match by then, none is cancelled. At least one filter is needed. One command
    cancels at most 1,000 tasks.
    """
    from taskgate.cli.remote import tasks as work

    for name in ("older_than", "younger_than"):
        filters[name] = None if filters[name] is None else int(filters[name])
    filters["status"] = None if filters["status"] is None else [filters["status"]]
    if all(each is None for each in filters.values()):
        raise click.UsageError("Give at least one filter, such as --upstream NAME.")
    if dry_run:
        work.count_many(_client(admin, token_file), filters, as_json)
    else:
        work.cancel_many(_client(admin, token_file), filters, reason, yes, as_json)


@tasks.command("watch")
@click.argument("reference", callback=_read_reference)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=_Seconds(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    help="How often to ask while the gateway has no room for an event stream.",
)
@_with_client
def watch_task(reference: str, interval: float, admin: str, token_file: Path | None, as_json: bool) -> None:
    """Print a line for each change of a task, until it ends.

    It follows the event stream of the gateway, so a change shows within 2 s.
    With --json a line is a document of the task.
    """
    from taskgate.cli.remote import tasks as work

    work.watch_task(_client(admin, token_file), reference, interval, as_json)


@click.group("upstreams", cls=HelpfulGroup)
def upstreams() -> None:
    """List, show, hold and release the upstreams of a running gateway.

    With several replicas, each command is about the one that answers.
    """


@upstreams.command("ls")
@_with_client
def list_upstreams(admin: str, token_file: Path | None, as_json: bool) -> None:
    """List upstreams with their health and load."""
    from taskgate.cli.remote import upstreams as work

    work.list_upstreams(_client(admin, token_file), as_json)


@upstreams.command("show")
@click.argument("name", callback=_read_name)
@_with_client
def show_upstream(name: str, admin: str, token_file: Path | None, as_json: bool) -> None:
    """Show one upstream."""
    from taskgate.cli.remote import upstreams as work

    work.show_upstream(_client(admin, token_file), name, as_json)


@upstreams.command("hold")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, callback=_read_name)
@_with_client
def hold_upstreams(names: tuple[str, ...], admin: str, token_file: Path | None, as_json: bool) -> None:
    """Refuse new tool calls to upstreams. Running calls go on.

    A hold lasts until a release or the end of the process.
    """
    from taskgate.cli.remote import upstreams as work

    work.change_upstreams(_client(admin, token_file), names, "hold", as_json)


@upstreams.command("release")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, callback=_read_name)
@_with_client
def release_upstreams(names: tuple[str, ...], admin: str, token_file: Path | None, as_json: bool) -> None:
    """End the hold of upstreams."""
    from taskgate.cli.remote import upstreams as work

    work.change_upstreams(_client(admin, token_file), names, "release", as_json)


@_command("callers")
@click.option("--caller", metavar="NAME", callback=_read_text, help="That caller alone: subject, or c_….")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The most callers.")
@_with_client
def callers(admin: str, token_file: Path | None, caller: str | None, limit: int, as_json: bool) -> None:
    """List what callers use of their limits: rates, calls, tasks, sessions, streams.

    Limits that a caller does not use are in the JSON alone.
    """
    from taskgate.cli.remote.callers import list_callers

    list_callers(_client(admin, token_file), caller, limit, as_json)


@_command("events")
@click.option(
    "--kinds",
    type=click.Choice(["task", "upstream", "refusal"]),
    multiple=True,
    default=("task", "upstream", "refusal"),
    help="Events of one of these alone.",
)
@_with_client
def events(admin: str, token_file: Path | None, kinds: tuple[str, ...], as_json: bool) -> None:
    """Print a line for each event of a running gateway, until Ctrl-C.

    Events are changes of tasks at all replicas, and those of upstreams and refusals at the one that
    answers. With --json a line is a document.
    """
    from taskgate.cli.remote.events import print_events

    print_events(_client(admin, token_file), kinds, as_json)


@_command("top")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=_Seconds(min=0.2, max=3600),
    default=0.5,
    show_default=True,
    help="The shortest time from one state to the next.",
)
@_sorted_by("Order of the tasks; - is newest first.", default="created", show_default=True)
@click.option("--once", is_flag=True, help="Print one snapshot and end.")
@_with_client
def top(admin: str, token_file: Path | None, **options: Any) -> None:
    """Show upstreams and unfinished tasks on a screen, until q or Ctrl-C.

    s sorts by another time: of the creation, or of the last change. It follows the event stream of the
    gateway, so a change shows within 2 s. Without a terminal it prints one snapshot.
    """
    from taskgate.cli.remote.top import show_top

    show_top(_client(admin, token_file), **options)


CLIENT_COMMANDS: Final = (
    version, completion, health, doctor, init, keys, examples, call, tasks, upstreams, callers, events, top,
)  # fmt: skip
"""The commands of this module, which `cli` adds to the program."""
