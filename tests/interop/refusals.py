"""The table of what released hosts do with refusals, and its part of `docs/compatibility.md`, which `matrix.py` writes.

`test_refusals.py` compares the table with real hosts. This module does not use taskgate.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A released host; `title` is its name on pages, and `makes_tasks` whether it has tasks."""

    name: str
    title: str
    era: Literal["initialize", "stateless"]
    makes_tasks: bool = True


KINDS = (
    Kind(name="python-1-23", title="`mcp` 1.23", era="initialize"),
    Kind(name="python", title="`mcp` 1.30", era="initialize"),
    Kind(name="python-2-initialize", title="`mcp` 2.3", era="initialize", makes_tasks=False),
    Kind(name="python-2", title="`mcp` 2.3", era="stateless", makes_tasks=False),
    Kind(name="fastmcp-4", title="`fastmcp[tasks]` 4.1", era="stateless"),
    Kind(name="sdk", title="`@modelcontextprotocol/sdk` 1.32", era="initialize"),
    Kind(name="client", title="`@modelcontextprotocol/client` 2.4", era="initialize"),
    Kind(name="client-stateless", title="`@modelcontextprotocol/client` 2.4", era="stateless"),
)

WAYS = {
    "jsonrpc": "a limit, `reject_as: jsonrpc`",
    "tool_error": "a limit, `reject_as: tool_error`",
    "http": "a limit, `reject_as: http`",
    "door": "429 before the message is read",
    "scopes": "403 for missing scopes",
}

DATA = "code and data"
RESULT = "a result with `isError`"
STATUS_AND_BODY = "status, and the body as text"
STATUS = "status"
FAILED = "a failure"
SCOPES = "the missing scopes"
ENDS = "its connection ends"


def expected(kind: Kind, way: str) -> str:
    """What the calling code receives, in the words above. After all but `ENDS`, the next call is answered."""
    if way in ("jsonrpc", "tool_error"):
        return DATA if way == "jsonrpc" else RESULT
    if kind.name in ("python-1-23", "python"):
        return ENDS
    if kind.name in ("python-2-initialize", "python-2", "fastmcp-4"):
        return DATA
    if way == "scopes" and kind.name != "sdk":
        return SCOPES
    return STATUS_AND_BODY


_HEAD = """## What a host sees of a refusal

The table has what the calling code receives when taskgate refuses a call.
`tests/interop/test_refusals.py` tries each cell.

- *code and data*: the code can read `data.reason` and `data.retryAfterMs`.
- *a result with `isError`*: text for models, with the time to retry.
- *its connection ends*: the SDK ends the whole session at the first such status, and the host has
  to connect again. All other hosts continue in the same session.

No SDK here retries by itself. The columns:

- *a limit*: rates, caps, queues, stored bytes, and the penalty for guessed ids, with each
  `limits.reject_as`. A call that requests a task never gets a result. Refusals by
  `authorization.rules`, and of a store that is down, always look like `reject_as: jsonrpc`.
- *429 before the message is read*: for example by a rate with `before_auth`. The error has a null id.
- *403 for missing scopes*: `authorization.rules[].require_scopes`, with the scopes in
  `WWW-Authenticate`.
"""


def section() -> str:
    """The part of the page."""
    lines = [f"| host | speaks | {' | '.join(WAYS.values())} |", "|---" * (len(WAYS) + 2) + "|"]
    for kind in KINDS:
        principal_source = "2025-11-25" if kind.era == "initialize" else "2026-07-28"
        lines.append(f"| {kind.title} | {principal_source} | {' | '.join(expected(kind, way) for way in WAYS)} |")
    table = "\n".join(lines)
    return f"{_HEAD}\n{table}\n"
