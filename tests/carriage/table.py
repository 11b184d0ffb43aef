"""The page that says what crosses taskgate: `python -m tests.carriage.table` writes `docs/extensions-table.md`.

It shows the rows of `rows.py`, which `test_carriage_table.py` holds against what probe hosts and probe servers see.
Nothing of taskgate is known here.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .effects import PAIRINGS, POLICIES, TRANSPORTS, Row
from .rows import ORDER, ROWS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "extensions-table.md"
REASONS: Final = {
    "own": "taskgate ends the protocol on both sides and speaks for itself here.",
    "hosts": "Hosts reach taskgate over Streamable HTTP, whatever the server's transport is.",
    "AMB-11": "taskgate lists the revisions that it serves, not those of the server.",
    "B-CONV-1": "The legacy era has no such member; taskgate adds it for modern hosts.",
    "B-CONV-4": "A server is told only what its own revision defines.",
    "B-CONV-5": "A modern server is told nothing that its host cannot tell it.",
    "B-CONV-6": "A question of the modern era has no `_meta` of its own.",
    "B-CONV-7": "An answer of the modern era has no `_meta` of its own.",
    "B-CONV-8": "The code means something else in the host's era, or nothing.",
    "B-CONV-9": "The key exists in one era only.",
    "B-CONV-10": "A legacy server asks within a request, a modern one between two.",
    "H-MOD-1": "taskgate writes the headers of each hop.",
    "L-CAP-2": "Tasks are listed only where callers can be told apart.",
    "U-STDIO-4": "On one line of messages, nothing tells which request a message belongs to.",
    "V-CACHE-1": "What a server says of itself may depend on the caller, so it is not cached.",
    "V-CACHE-2": "A shared copy could reach another caller.",
    "V-DISC-3": "The modern era has no such method.",
    "V-ERA-1": "Each side is spoken to in its own revision.",
    "X-EXT-7": "An extension crosses between eras only if both define it.",
    "X-EXT-9": "taskgate reads catalogues with the capabilities of the host that it serves.",
    "X-EXT-20": "No rule derives a method from an identifier.",
    "X-EXT-22": "Only a method of a carried extension may use a new `resultType`.",
    "X-EXT-23": "A notification crosses only if a carried extension lists it.",
    "X-EXT-24": "A filter member crosses only if a carried extension lists it.",
    "X-EXT-25": "taskgate accepts such a notification and drops it.",
    "X-EXT-26": "Hosts only get questions that their revision defines.",
    "X-EXT-27": "The key belongs to one hop.",
    "X-EXT-48": "Each authorizes one hop.",
    "X-EXT-50": "Denied unless the policy names it.",
    "X-EXT-51": "Methods and notifications need the long form.",
    "X-EXT-52": "The policy denies it.",
    "X-EXT-55": "These follow `extensions.default`.",
    "X-UE-7": "A program cannot see its callers, so its policy cannot allow events.",
}
_HEAD: Final = """# What taskgate forwards

This page compares what a host and a server receive through taskgate with a direct connection. Probe
hosts and probe servers of both eras declare and serve everything, known or not.
[extensions.md](extensions.md) explains the policy of an upstream.

`python -m tests.carriage.table` writes this page. `tests/carriage/test_carriage_table.py` tries
every cell.

The columns name the eras of host and server: *legacy* is 2024-11-05 to 2025-11-25, *modern* is
2026-07-28. Between two eras, a host is compared with a host that is connected directly to a server
of the server's era. A server is compared with a server that has a host of the host's era.

| word | meaning |
|---|---|
| as is | arrives unchanged |
| rewritten | arrives with another value |
| not | does not arrive |
| added | arrives, although the other side did not send it |
| taskgate's | taskgate sends its own instead |
| answered | taskgate answers; the other side receives nothing |
| recoded | arrives as an error -32603 with the other side's code in `upstreamCode` |
| refused | taskgate answers with an error -32601; the other side receives nothing |
| failed | an error -32603 replaces the other side's answer |

An empty cell does not apply. If policies differ, a cell has more than one word, and the first is
for *default*:

- *default*: no key `extensions`.
- *allow*: `default: allow`, `io.modelcontextprotocol/events: allow`, and one extension in the long
  form with methods, notifications, filters, result types, and both eras. Over stdio it has no
  events, because taskgate refuses them there.
- *deny*: `ui`, `skills` and `events` are denied.
"""
SPECIAL: Final = "What depends on the server's transport"
_OVER: Final = {
    ("http",): "Streamable HTTP",
    ("sse",): "HTTP+SSE",
    ("stdio",): "stdio",
    ("sse", "stdio"): "HTTP+SSE, stdio",
}


def page() -> str:
    """The whole of the page."""
    sections: dict[str, list[Row]] = {}
    for title, row in placed():
        sections.setdefault(title, []).append(row)
    parts = [f"## {title}\n\n{_lines(rows, over=title == SPECIAL)}\n" for title, rows in sections.items()]
    reasons = "\n".join(f"- {name}: {text}" for name, text in REASONS.items())
    return "\n".join([_HEAD, *parts, f"## Why\n\n{reasons}\n"])


def placed() -> Iterator[tuple[str, Row]]:
    """The rows, each with the title of its section."""
    for title, rows in ORDER:
        yield from ((title, row) for row in rows if row.transports == TRANSPORTS)
    yield from ((SPECIAL, row) for row in ROWS if row.transports != TRANSPORTS)


def _lines(rows: Sequence[Row], *, over: bool) -> str:
    """A table with one line for all rows that are about the same."""
    same: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for row in rows:
        same.setdefault((row.about, row.transports), []).append(row)
    columns = ["what", *(["over"] if over else []), *(_pairing(each) for each in PAIRINGS), "why"]
    lines = [_line(columns), "|---" * len(columns) + "|"]
    for (about, transports), of_one in same.items():
        cells = [_cell([row for row in of_one if each in row.cells], each) for each in PAIRINGS]
        why = ", ".join(dict.fromkeys(row.why for row in of_one if row.why))
        lines.append(_line([about, *([_OVER[transports]] if over else []), *cells, why]))
    return "\n".join(lines)


def _cell(rows: Sequence[Row], pairing: str) -> str:
    """The effect in a pairing, and under which policies there is another."""
    found = {policy: row.cells[pairing] for row in reversed(rows) for policy in row.policies}
    usual = found.get("default", "")
    others = [f"{policy}: {found[policy]}" for policy in POLICIES if found.get(policy, usual) != usual]
    return "; ".join([*([usual] if usual else []), *others])


def _pairing(name: str) -> str:
    eras = {"L": "legacy", "M": "modern"}
    return f"{eras[name[0]]} → {eras[name[1]]}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
