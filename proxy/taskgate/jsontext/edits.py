"""Changing a JSON text where it stands: an amendment is a splice, every other byte stays as it came.

An edit is `(start, end, replacement)`, places counted in the text that it is made for.
"""

import re
from collections.abc import Container
from functools import cache
from typing import Any

import orjson

from taskgate.jsontext.spans import Members, RawJson, skip_space


def splice(text: str, edits: list[tuple[int, int, str]]) -> str:
    """`text` with each `(start, end, replacement)` applied; the edits must not overlap."""
    pieces: list[str] = []
    at = 0
    for start, end, replacement in sorted(edits):
        assert start >= at, "two edits overlap"
        pieces += (text[at:start], replacement)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def removals(found: Members, names: Container[str]) -> list[tuple[int, int, str]]:
    """The edits that cut the named members, of those there are, out of the object whose members are `found`.

    With an insertion into the same object they go together only where another member stays.
    """
    edits: list[tuple[int, int, str]] = []
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
    """The edit that puts a new first member into the object that `object_text` is; the key must not be there yet."""
    at = object_text.index("{") + 1
    comma = "" if object_text[skip_space(object_text, at)] == "}" else ","
    return at, at, f"{dump(key)}:{value}{comma}"


def may_have_key(text: RawJson, key: str) -> bool:
    """Whether any object in a JSON text can have that key, which is of letters and underscores, however it is written.

    Says no for certain without reading the text; it is as quick as a search for a word.
    """
    return f'"{key}"' in text or ("\\u" in text and _written_as(key).search(text) is not None)


@cache
def _written_as(key: str) -> re.Pattern[str]:
    """Each letter stands for itself, or is escaped by its number, in small or large letters."""
    written = ""
    for letter in key:
        number = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
        written += rf"(?:{letter}|\\u{number})"
    return re.compile(f'"{written}"')


def dump(value: Any) -> RawJson:
    """A value of ours as JSON text."""
    return orjson.dumps(value).decode()
