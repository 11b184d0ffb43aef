"""Released servers, none of them changed, and what is true of each: over what it is spoken to, which tools it has, and
what a call of one comes to. All of it was seen of the servers themselves, without a gateway.

Two kinds: servers that people have, and the server of the table (matrix.py) on one release of an SDK after the other,
over what it is not spoken to there. Nothing of taskgate is known here, nor how the servers are started (`programs`).
Which hosts are before which of them stands at the end.
"""

from dataclasses import dataclass, field
from typing import Any

STDIO, SSE, HTTP = "stdio", "sse", "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call, and what its result must hold."""

    tool: str
    given: dict[str, Any] = field(default_factory=dict)
    told: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """One release. `name` is what the tests call it, `revision` the newest that it speaks.

    `for_some` are tools that it has for hosts which can be asked this or that.
    """

    name: str
    title: str
    revision: str
    transports: tuple[str, ...]
    tools: frozenset[str]
    for_some: frozenset[str] = frozenset()
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSdk:
    """The server of the table on one release; `name` is what `matrix.expected` calls it."""

    name: str
    title: str
    revision: str
    transports: tuple[str, ...]


ON_SDKS = (
    OnSdk(name="1-2-1", title="`mcp` 1.2.1", revision="2024-11-05", transports=(STDIO, SSE)),
    OnSdk(name="1-8-1", title="`mcp` 1.8.1", revision="2024-11-05", transports=(STDIO, SSE)),
    OnSdk(name="1-12-4", title="`mcp` 1.12.4", revision="2025-06-18", transports=(STDIO, SSE)),
    OnSdk(name="1-23-3", title="`mcp` 1.23.3", revision="2025-11-25", transports=(STDIO, SSE)),
    OnSdk(name="1-30-0", title="`mcp` 1.30.0", revision="2025-11-25", transports=(STDIO, SSE, HTTP)),
    OnSdk(name="2-3-0", title="`mcp` 2.3.0", revision="2026-07-28", transports=(STDIO, SSE)),
    OnSdk(name="typescript", title="`@modelcontextprotocol/server` 2.4.0", revision="2026-07-28", transports=(STDIO,)),
)

OFFLINE = "http://nothing.invalid/"
BOOKS = "The books of the third quarter"
"""What the repository that mcp-server-git is asked about was told with its only commit."""

_AN_HOUR_OR_FIVE = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Kolkata"}
_CLOCK = frozenset({"get_current_time", "convert_time"})
_EVERYTHING_OF_2025 = frozenset(
    {
        "echo",
        "add",
        "longRunningOperation",
        "printEnv",
        "sampleLLM",
        "getTinyImage",
        "annotatedMessage",
        "getResourceReference",
    }
)

RELEASED = (
    Released(
        name="everything-2026-08",
        title="`@modelcontextprotocol/server-everything` 2026.8.31",
        revision="2025-11-25",
        transports=(STDIO, SSE, HTTP),
        tools=frozenset(
            {
                "echo",
                "get-annotated-message",
                "get-env",
                "get-resource-links",
                "get-resource-reference",
                "get-structured-content",
                "get-sum",
                "get-tiny-image",
                "gzip-file-as-resource",
                "simulate-research-query",
                "toggle-simulated-logging",
                "toggle-subscriber-updates",
                "trigger-long-running-operation",
            }
        ),
        for_some=frozenset(
            {
                "get-roots-list",
                "trigger-elicitation-request",
                "trigger-elicitation-request-async",
                "trigger-sampling-request",
                "trigger-sampling-request-async",
                "trigger-url-elicitation",
            }
        ),
        call=Call(tool="get-sum", given={"a": 19, "b": 23}, told="The sum of 19 and 23 is 42."),
    ),
    Released(
        name="everything-2025-08",
        title="`@modelcontextprotocol/server-everything` 2025.8.4",
        revision="2025-11-25",
        transports=(STDIO, SSE, HTTP),
        tools=_EVERYTHING_OF_2025 | {"getResourceLinks", "startElicitation", "structuredContent"},
        for_some=frozenset({"listRoots"}),
        call=Call(tool="add", given={"a": 19, "b": 23}, told="The sum of 19 and 23 is 42."),
    ),
    # Its HTTP+SSE serves one connection and ends with that, and ends by itself where none comes for a while.
    Released(
        name="everything-2025-04",
        title="`@modelcontextprotocol/server-everything` 2025.4.8",
        revision="2024-11-05",
        transports=(STDIO,),
        tools=_EVERYTHING_OF_2025,
        call=Call(tool="add", given={"a": 19, "b": 23}, told="The sum of 19 and 23 is 42."),
    ),
    Released(
        name="time-2026-10",
        title="`mcp-server-time` 2026.10.19",
        revision="2026-07-28",
        transports=(STDIO,),
        tools=_CLOCK,
        call=Call(tool="convert_time", given=_AN_HOUR_OR_FIVE, told='"time_difference": "+5.5h"'),
    ),
    Released(
        name="time-0-6",
        title="`mcp-server-time` 0.6.2",
        revision="2024-11-05",
        transports=(STDIO,),
        tools=_CLOCK,
        call=Call(tool="convert_time", given=_AN_HOUR_OR_FIVE, told='"time_difference": "+5.5h"'),
    ),
    Released(
        name="git-2026-10",
        title="`mcp-server-git` 2026.10.19",
        revision="2026-07-28",
        transports=(STDIO,),
        tools=frozenset(
            {
                "git_add",
                "git_branch",
                "git_checkout",
                "git_commit",
                "git_create_branch",
                "git_diff",
                "git_diff_staged",
                "git_diff_unstaged",
                "git_log",
                "git_reset",
                "git_show",
                "git_status",
            }
        ),
        call=Call(tool="git_log", given={"repo_path": "."}, told=BOOKS),
    ),
    Released(
        name="fetch-2026-10",
        title="`mcp-server-fetch` 2026.10.24",
        revision="2026-07-28",
        transports=(STDIO,),
        tools=frozenset({"fetch"}),
        call=Call(
            tool="fetch",
            given={"url": OFFLINE},
            told=f"Failed to fetch robots.txt {OFFLINE}robots.txt due to a connection issue",
            is_error=True,
        ),
    ),
    Released(
        name="sqlite-2025-04",
        title="`mcp-server-sqlite` 2025.4.25",
        revision="2024-11-05",
        transports=(STDIO,),
        tools=frozenset(
            {"append_insight", "create_table", "describe_table", "list_tables", "read_query", "write_query"}
        ),
        call=Call(tool="read_query", given={"query": "SELECT 19 + 23 AS total"}, told="[{'total': 42}]"),
    ),
)

ERAS = (("python", "sdk"), ("modern-fastmcp", "stateless-client"))
"""Hosts of the table that speak 2025-11-25, and some that speak 2026-07-28."""
HOSTS = tuple(host for era in ERAS for host in era)

_BEFORE_TABLE = {STDIO: ("sdk", "stateless-client"), SSE: ("python", "modern-fastmcp"), HTTP: HOSTS}
# FastMCP waits ten seconds for an answer to its first question, which is the time that programs have to start for it.
_BEFORE_SLOW = {STDIO: ("python", "stateless-client")}

TABLE = [
    (host, each.name, transport)
    for each in ON_SDKS
    for transport in each.transports
    for host in _BEFORE_TABLE[transport]
]
"""Host, server of the table and transport: all that are tried, one of each era at least."""
SHELF = [
    (host, each, transport)
    for each in RELEASED
    for transport in each.transports
    for host in (HOSTS if each.name.startswith("everything") else _BEFORE_SLOW[transport])
]
"""The same of servers that people have; the first three start fast."""
