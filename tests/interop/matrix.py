"""The table of released hosts and servers that work together through the gateway, and its page.

`python -m tests.interop.matrix` writes `docs/compatibility.md`, and its short form in `docs/start/hosts.md`, from this
table, and `test_matrix.py` compares it with real hosts. This module does not use taskgate.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.suites import verdicts

from . import refusals
from .released import ON_SDKS, RELEASED, SHELF, TABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
SUMMARY_PAGE = PAGE.parent / "start" / "hosts.md"
BEGIN, END = "<!-- matrix: made by python -m tests.interop.matrix -->", "<!-- end of the matrix -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A host or a server; `name` is what the tests call it, `title` what the page does."""

    name: str
    title: str
    revision: str


HOSTS = (
    Peer(name="python", title="`mcp` 1.30", revision="2025-11-25"),
    Peer(name="sdk", title="`@modelcontextprotocol/sdk` 1.32", revision="2025-11-25"),
    Peer(name="client", title="`@modelcontextprotocol/client` 2.4 with `ext-tasks` 0.2", revision="2025-11-25"),
    Peer(name="fastmcp", title="`fastmcp[tasks]` 3.4", revision="2025-11-25"),
    Peer(
        name="stateless-client", title="`@modelcontextprotocol/client` 2.4 with `ext-tasks` 0.2", revision="2026-07-28"
    ),
    Peer(name="modern-fastmcp", title="`fastmcp[tasks]` 4.1", revision="2026-07-28"),
    Peer(name="pydantic-ai", title="`pydantic-ai-slim[mcp-tasks]` 2.68", revision="2026-07-28"),
    Peer(name="strands", title="`strands-agents` 1.62", revision="2026-07-28"),
    Peer(name="modern-python", title="`mcp` 2.3", revision="2026-07-28"),
    Peer(name="fastmcp-4-2", title="`fastmcp` 4.2", revision="2026-07-28"),
    Peer(name="fastmcp-4-2-legacy", title="`fastmcp` 4.2", revision="2025-11-25"),
    Peer(name="agent-framework", title="`agent-framework-core` 1.23", revision="2026-07-28"),
    Peer(name="agent-framework-legacy", title="`agent-framework-core` 1.23", revision="2025-11-25"),
)

SERVERS = (
    Peer(name="1-8-1", title="`mcp` 1.8.1", revision="2024-11-05"),
    Peer(name="1-9-4", title="`mcp` 1.9.4", revision="2025-03-26"),
    Peer(name="1-12-4", title="`mcp` 1.12.4", revision="2025-06-18"),
    Peer(name="1-23-3", title="`mcp` 1.23.3", revision="2025-11-25"),
    Peer(name="2-3-0-initialized", title="`mcp` 2.3.0, limited to that revision", revision="2025-11-25"),
    Peer(name="2-3-0", title="`mcp` 2.3.0", revision="2026-07-28"),
    Peer(name="typescript", title="`@modelcontextprotocol/server` 2.4.0", revision="2026-07-28"),
)

COLUMNS = {
    "plain_call": "plain call",
    "task": "slow call as a task",
    "elicitation": "elicitation",
    "progress": "progress",
    "error": "protocol error",
    "is_error": "tool error",
    "cancel": "cancel",
    "list": "list of tools",
    "resources": "resources",
    "prompts": "prompts",
}

YES = "yes"
NO_TASKS = "the host makes no tasks"
NO_ELICITATION = "the server's SDK has no elicitation"
NO_SESSION = "the server's SDK has no session with a legacy host"
DIES = "a session of the server's SDK dies of a cancelled call"
NO_CODE = "the host shows the text of an error without its code"
RUNS_ON = "the server was not told"
NO_API = "the host has no API for it"
SKIPS = "the host skips tools that may be tasks"

_NO_API = dict.fromkeys(("elicitation", "progress", "resources"), NO_API)
_OF_TOOLS = ("plain_call", "task", "elicitation", "progress", "error", "is_error", "cancel", "list")
LACKS: dict[str, dict[str, str]] = {
    "pydantic-ai": {"cancel": RUNS_ON},
    "strands": {"error": NO_CODE},
    "modern-python": {"task": NO_TASKS},
    "fastmcp-4-2": {"task": NO_TASKS},
    "fastmcp-4-2-legacy": {"task": NO_TASKS},
    "agent-framework": {"task": NO_TASKS, **_NO_API},
    "agent-framework-legacy": {**_NO_API, **dict.fromkeys(_OF_TOOLS, SKIPS)},
}
"""What hosts lack, with any server and with a direct connection, but for tools that they skip."""


def expected(host: str, server: str, column: str, transport: str = "http") -> str:
    """What the host says of that column: `yes`, or `no: ` and what it or the server lacks."""
    old = server in {"1-2-1", "1-8-1", "1-9-4"}
    lacking = LACKS.get(host, {}).get(column)
    if lacking == SKIPS:
        return f"no: {SKIPS}"
    if column == "elicitation" and old:
        return f"no: {NO_ELICITATION}"
    if (column, server, transport) == ("elicitation", "typescript", "http") and _host(host).revision < "2026-07-28":
        return f"no: {NO_SESSION}"
    if column == "cancel" and old:
        return f"no: {DIES}"
    return f"no: {lacking}" if lacking else YES


REASONS = {
    NO_TASKS: "The host makes no tasks. The call blocks until it ends, as without taskgate.",
    NO_ELICITATION: "The server's SDK cannot ask a user.",
    NO_SESSION: (
        "Over HTTP this SDK gives legacy hosts no session in which it could ask them, with a direct connection either. "
        'With `protocol_version: "2026-07-28"` for that server they can be asked.'
    ),
    DIES: (
        "The task is cancelled, but a session of this SDK ends when one of its calls is cancelled. taskgate then opens "
        "another session. Other calls in the old one fail."
    ),
    NO_CODE: "The host shows its model the error's text, without the code, with a direct connection too.",
    RUNS_ON: (
        "A cancelled call ends the host's wait for its task. The host cancels a plain call, but no task. The task runs "
        "to its end."
    ),
    NO_API: "The host has no API for it.",
    SKIPS: (
        "In a session of 2025-11-25 the host skips every tool whose `taskSupport` is `optional` or `required`. "
        "`tasks.announce: never` leaves the list as the server sends it, and the host has all its tools."
    ),
}
_NOTES = {reason: f"{number}" for number, reason in enumerate(REASONS, start=1)}

_HEAD = """# Hosts and servers that work together

Each cell is a released host with a released server, through taskgate. None of them was changed.
Only the newest server-everything has tasks of its own. Host and server can have different
revisions: taskgate uses the revision of each.

`make suites` writes this page, and `tests/interop/test_matrix.py` tries every
cell. [The last section](#what-a-host-sees-of-a-refusal) shows what hosts do with refusals.

- Of agent runtimes (Pydantic AI, Strands, Agent Framework) the MCP client is tried, without a model.
- *slow call as a task*: the answer is a task before the call has ended, and the host fetches the
  result from it.
- *elicitation*: the server asks the user during a call. The call is a task if the host makes tasks.
- *protocol error*, *tool error*: the answer is a JSON-RPC error, or a result with `isError`.
- *cancel*: the host cancels a running call, and taskgate cancels the server's tool. The call is a
  task if the host makes tasks.

Servers on `mcp` 2.3 and FastMCP 4 elicit between two rounds of a call here. If their tool calls
`ctx.elicit()` in the middle of a round, it works for a host of 2025-11-25, as with a direct
connection. A host of 2026-07-28 needs `protocol_version: "2025-11-25"` for that server.

`call_tool_task` of FastMCP 4 and `use_task=True` of Pydantic AI fail if a call ends within
`tasks.inline_grace`, after the tool ran. With `mode: always` for such tools they work
(`tests/interop/test_tasks_from_code.py`).
"""

_WAYS = {"stdio": "stdio", "sse": "HTTP+SSE", "http": "Streamable HTTP"}

_OTHER_WAYS = """## Servers over stdio and HTTP+SSE

The same server, on these releases, over each transport.
`tests/interop/test_servers_of_every_kind.py` tries each row.
"""

_SHELF = """## Popular servers

These are as npm and PyPI have them. A test lists every tool that the capabilities of the host
allow, and calls one as a task. `test_server_everything.py` calls every tool of server-everything.
`tests/interop/test_questions_of_real_programs.py` tries its questions, notifications and tasks over
each of the three transports.

- Servers on `mcp` 1.27 to 1.30 with `enable_tasks()` stop the tasks of all sessions when one
  session ends, with and without taskgate. Unchanged, they were tried with one session. For several
  sessions, the tests patch the SDK's `TaskSupport` to run once for all
  (`tests/peers/native_tasks_server.py`).
- mcp-server-fetch was asked for a page that it could not fetch, and reported that.
- server-everything 2025.4.8 also has HTTP+SSE, for one connection. It ends with that connection,
  and soon without one.
"""


def _cell(host: Peer, server: Peer, column: str, transport: str = "http") -> str:
    said = expected(host.name, server.name, column, transport)
    return said if said == YES else f"no [{_NOTES[said.removeprefix('no: ')]}]"


def _table(server: Peer) -> str:
    lines = [f"| host | speaks | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for host in HOSTS:
        cells = " | ".join(_cell(host, server, column) for column in COLUMNS)
        lines.append(f"| {host.title} | {host.revision} | {cells} |")
    return "\n".join(lines)


_EXTENSIONS = """## Extensions

Released packages tried what taskgate [forwards of extensions](extensions.md). Each step had the
same result directly and through taskgate.

- *MCP Apps*: both sides declare them. The host lists tools with their views, reads the views to the
  byte, and calls the tools, plain and as tasks (`tests/interop/test_apps.py`).
- *Skills*: the same checks of `sep-2640-*`, with the same verdicts
  (`tests/interop/test_skills.py`).
- *Events* of a server, with `allow`: the host lists them, subscribes with a challenge, and receives
  one signed event (`tests/interop/test_events_pass.py`).

| extension | server | host |
|---|---|---|
| MCP Apps | `@modelcontextprotocol/server-basic-vanillajs` 2.0, `server-debug` 2.0 | `client` 2.4 with `ext-apps` 2.0 |
| Skills | one of the tests, in both eras | `@modelcontextprotocol/conformance` 0.2.0-alpha.12 |
| Events | `mcp-webhook-events` 0.2 | `@ai-sdk/mcp` 2.0 |

[Another table](extensions-table.md) has what each side receives, directly and through taskgate.
"""


def page() -> str:
    """The whole of `docs/compatibility.md`."""
    sections = [f"## A server on {server.title} ({server.revision})\n\n{_table(server)}\n" for server in SERVERS]
    notes = "\n".join(f"- [{_NOTES[reason]}] {text}" for reason, text in REASONS.items())
    return "\n".join(
        [
            *(_HEAD, *sections, _other_ways(), _shelf(), _EXTENSIONS, f"## Reasons\n\n{notes}\n"),
            *(verdicts.section(), refusals.section()),
        ]
    )


def _other_ways() -> str:
    lines = ["| server | speaks | over | host | what works of the above |", "|---|---|---|---|---|"]
    for host, name, transport in TABLE:
        server = next(each for each in ON_SDKS if each.name == name)
        peer = _host(host)
        done = _short(peer, Peer(name=name, title=server.title, revision=server.revision), transport)
        # HTTP+SSE has no modern era.
        revision = "2025-11-25" if transport == "sse" and server.revision > "2025-11-25" else server.revision
        lines.append(f"| {server.title} | {revision} | {_WAYS[transport]} | {_named(peer)} | {done} |")
    return f"{_OTHER_WAYS}\n{chr(10).join(lines)}\n"


def _shelf() -> str:
    lines = ["| server | speaks | over | tools | hosts |", "|---|---|---|---|---|"]
    for each in RELEASED:
        for transport in each.transports:
            hosts = ", ".join(_named(_host(name)) for name, of, over in SHELF if (of, over) == (each, transport))
            most = len(each.tools) + len(each.for_some)
            tools = f"{len(each.tools)}" if most == len(each.tools) else f"{len(each.tools)} to {most}"
            lines.append(f"| {each.title} | {each.revision} | {_WAYS[transport]} | {tools} | {hosts} |")
    return f"{_SHELF}\n{chr(10).join(lines)}\n"


def _host(name: str) -> Peer:
    return next(each for each in HOSTS if each.name == name)


def _named(host: Peer) -> str:
    return f"{host.title} ({host.revision})"


def summary() -> str:
    """What stands in the page of hosts between the two marks: one cell for each pair, with what it is less than all."""
    lines = [f"| host | speaks | {' | '.join(f'{each.title} ({each.revision})' for each in SERVERS)} |"]
    lines.append("|---" * (len(SERVERS) + 2) + "|")
    for host in HOSTS:
        cells = " | ".join(_short(host, server) for server in SERVERS)
        lines.append(f"| {host.title} | {host.revision} | {cells} |")
    notes = " ".join(f"[{_NOTES[reason]}] {text}" for reason, text in REASONS.items())
    return "\n".join([BEGIN, *lines, "", f"*All* is {', '.join(COLUMNS.values())}. {notes}", END])


def _short(host: Peer, server: Peer, transport: str = "http") -> str:
    said = {name: _cell(host, server, column, transport) for column, name in COLUMNS.items()}
    left_out = [f"{name} {cell.removeprefix('no ')}" for name, cell in said.items() if cell != YES]
    return f"all but {', '.join(left_out)}" if left_out else "all"


def with_summary(text: str) -> str:
    """The page of hosts with the present summary in its place."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{summary()}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SUMMARY_PAGE.write_text(with_summary(SUMMARY_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
