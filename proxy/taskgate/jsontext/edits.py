"""Edits of a JSON text in place: an edit is `(start, end, replacement)`, applied by `splice`.

Every byte outside of the edits stays as it is. Positions count in the text before any edit.
"""

from collections.abc import Container
from typing import Any

import orjson

from taskgate.jsontext.spans import Members, RawJson, skip_space

Edits = list[tuple[int, int, str]]


def splice(text: str, edits: Edits) -> str:
    """The text with each edit applied. Edits must not overlap; their order does not matter."""
    if len(edits) == 1:
        # The common case.
        start, end, replacement = edits[0]
        return f"{text[:start]}{replacement}{text[end:]}"
    pieces: list[str] = []
    at = 0
    for start, end, replacement in sorted(edits):
        assert start >= at, "two edits overlap"
        pieces += (text[at:start], replacement)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def splice_range(text: str, begin: int, end: int, edits: Edits) -> str:
    """The text between two positions with the edits in that range. The positions are of the whole
    text.
    """
    if len(edits) == 1 and begin <= edits[0][0] and edits[0][1] <= end:
        # The common case.
        start, stop, by = edits[0]
        return f"{text[begin:start]}{by}{text[stop:end]}"
    inside = [(start - begin, stop - begin, by) for start, stop, by in edits if begin <= start and stop <= end]
    return splice(text[begin:end], inside) if inside else text[begin:end]


def removals(found: Members, names: Container[str]) -> Edits:
    """The edits that remove the named members from the object with the members `found`.

    They combine with an `insertion` into the same object only if another member stays.
    """
    edits: Edits = []
    kept_end = run_start = run_end = None
    for name, member in found.items():
        if name in names:
            run_start, run_end = (member.key_at if run_start is None else run_start), member.end
        elif run_start is not None and run_end is not None:
            edits.append((run_start, member.key_at, "") if kept_end is None else (kept_end, run_end, ""))
            kept_end, run_start, run_end = member.end, None, None
        else:
            kept_end = member.end
    if run_start is not None and run_end is not None:
        edits.append((run_start if kept_end is None else kept_end, run_end, ""))
    return edits


def insertion(object_text: RawJson, key: str, value: RawJson) -> tuple[int, int, str]:
    """The edit that adds a first member to an object. The object must not have the key yet."""
    at = object_text.index("{") + 1
    comma = "" if object_text[skip_space(object_text, at)] == "}" else ","
    return at, at, f"{dump(key)}:{value}{comma}"


def dump(value: Any) -> RawJson:
    """A value that taskgate made, as JSON text."""
    return orjson.dumps(value).decode()
