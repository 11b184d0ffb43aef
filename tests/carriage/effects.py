"""What becomes of an observation on its way through taskgate, and how a run is held against the rows that say so.

A row says what becomes of the observations that its patterns match, by pairing. The first row that is about an
observation counts. A run that shows something else is a surprise, and so is an observation without a row.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

PAIRINGS: Final = ("LL", "LM", "ML", "MM")
"""The eras of host and server."""
TRANSPORTS: Final = ("http", "sse", "stdio")
POLICIES: Final = ("default", "allow", "deny")

AS_IS, REWRITTEN, NOT, ADDED = "as is", "rewritten", "not", "added"
REFUSED, FAILED, RECODED, ANSWERED, OWN = "refused", "failed", "recoded", "answered", "taskgate's"
_CODES: Final = {REFUSED: -32601, FAILED: -32603}
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """What becomes of some observations. `cells` has an effect for each pairing that the row is about.

    `*` in a pattern is any text, `{a,b}` is either. `why` names the reason in the page, where there is need of one.
    """

    about: str
    patterns: tuple[str, ...]
    cells: Mapping[str, str]
    why: str = ""
    policies: tuple[str, ...] = POLICIES
    transports: tuple[str, ...] = TRANSPORTS


@dataclass(frozen=True, slots=True)
class Surprise:
    """An observation of which the table says something else, or nothing."""

    name: str
    row: str
    said: str
    direct: Any
    through: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.said or 'no row'} ({self.row}); direct {self.direct}, through {self.through}"


def row_of(rows: tuple[Row, ...], name: str, pairing: str, policy: str, transport: str) -> Row | None:
    """The row that counts for an observation."""
    for row in rows:
        if pairing in row.cells and policy in row.policies and transport in row.transports and _matches(row, name):
            return row
    return None


def surprises(
    rows: tuple[Row, ...], where: tuple[str, str, str], direct: Mapping[str, Any], through: Mapping[str, Any]
) -> Iterator[tuple[Row | None, Surprise | None]]:
    """For each observation its row, and what is wrong with it; `where` is pairing, policy and transport."""
    for name in sorted({*direct, *through}):
        row = row_of(rows, name, *where)
        before, after = direct.get(name, _ABSENT), through.get(name, _ABSENT)
        said = "" if row is None else row.cells[where[0]]
        if row is not None and _is_so(said, name, before, after):
            yield row, None
        else:
            yield row, Surprise(name, "" if row is None else row.about, said, _shown(before), _shown(after))


def _is_so(effect: str, name: str, before: Any, after: Any) -> bool:
    match effect:
        case "as is":
            return bool(before == after)
        case "rewritten":
            return before is not _ABSENT and after is not _ABSENT and before != after
        case "not":
            return before is not _ABSENT and after is _ABSENT
        case "added":
            return before is _ABSENT and after is not _ABSENT
        case "taskgate's":
            return bool(before != after)
        case "answered":
            # By taskgate alone: the server is not asked.
            return _is_so(NOT if name.startswith("server.") else ADDED, name, before, after)
        case "recoded":
            # Another code in its place, and the server's own in the data.
            return _is_so(ADDED if name.endswith(".upstreamCode") else REWRITTEN, name, before, after)
    if name.endswith(".error.code"):
        return bool(after == _CODES[effect])
    if name.endswith((".error.message", ".status")) or (effect == FAILED and ".error.data" in name):
        return after is not _ABSENT
    return after is _ABSENT


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)[:80]


def _matches(row: Row, name: str) -> bool:
    return any(_pattern(each).fullmatch(name) for each in row.patterns)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    def either(found: re.Match[str]) -> str:
        return f"(?:{'|'.join(found[1].split(','))})"

    return re.compile(re.sub(r"\\\{(.*?)\\\}", either, re.escape(text).replace(r"\*", ".*").replace(r"\,", ",")))
