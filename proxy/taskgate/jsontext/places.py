"""Where the members of a large JSON object stand in its bytes: `read_places`. Nothing of the object is made or copied.

The bytes were read strictly before they were stored, so only what tells values apart is looked at here. They are
looked at in windows, each cleared of escapes and then of all but brackets and quotes, so that a value of any size
takes the memory of one window, and other threads get their turn between two.
"""

import json
import re
from itertools import accumulate
from typing import Any, Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.depth import ROUND, STEPS, WINDOW, brackets, window
from taskgate.jsontext.spans import MOST_MEMBERS, Member, Members, Shape


class PlacedMember(Member):
    """A member of which only the place is kept, and the bytes of the whole object in the place of the value."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The value, read anew at each look."""
        body, _, start, end, _ = self
        return json.loads(body[start:end])

    @property
    def is_object(self) -> bool:
        """Whether the bytes begin so."""
        return bool(self[0][self.start] == _OPEN_OBJECT)

    @property
    def is_array(self) -> bool:
        """Whether the bytes begin so."""
        return bool(self[0][self.start] == _OPEN_ARRAY)


def read_places(body: bytes, shape: Shape) -> Members:
    """The members of the JSON object that `body` starts with, `shape` below it; places are counted in bytes.

    Raises ValueError where there is no such object, MalformedMessage where a walked one repeats a key or has too many
    members. Of what is not walked nothing but its end is known.
    """
    if body[:1] != b"{":
        raise ValueError("no object")
    try:
        found, _ = _walk(body, 0, shape)
    except IndexError:
        raise ValueError("cut off") from None
    return found


def _walk(body: bytes, at: int, shape: Shape) -> tuple[Members, int]:
    found: Members = {}
    at = _skip_space(body, at + 1)
    if body[at] == _CLOSE_OBJECT:
        return found, at + 1
    while True:
        if body[at] != _QUOTE:
            raise ValueError("no key")
        key_at, key_end = at, _end_of_string(body, at)
        key = json.loads(body[key_at:key_end])
        if key in found or len(found) >= MOST_MEMBERS:
            said = "has a key twice" if key in found else f"has more than {MOST_MEMBERS} members"
            raise MalformedMessage(f"An object of the message {said}")
        colon = _skip_space(body, key_end)
        if body[colon] != _COLON:
            raise ValueError("no colon")
        start, inner = _skip_space(body, colon + 1), None
        if key in shape and body[start] == _OPEN_OBJECT:
            inner, end = _walk(body, start, shape[key])
        else:
            end = _end_of_value(body, start)
        found[key] = PlacedMember(body, key_at, start, end, inner)
        at = _skip_space(body, end)
        if body[at] == _CLOSE_OBJECT:
            return found, at + 1
        if body[at] != _COMMA:
            raise ValueError("no comma")
        at = _skip_space(body, at + 1)


def _end_of_value(body: bytes, at: int) -> int:
    if body[at] == _QUOTE:
        return _end_of_string(body, at)
    if body[at] in b"{[":
        return _end_of_nest(body, at)
    word = _WORD(body, at)
    if word is None:
        raise ValueError("no value")
    return word.end()


def _end_of_string(body: bytes, at: int) -> int:
    """The place after the string that starts at `at`."""
    at, size = at + 1, FIRST_WINDOW
    while piece := window(body, at, size):
        quote = piece.find(b'"')
        if quote >= 0:
            return at + quote + 1
        at, size = at + len(piece), min(4 * size, WINDOW)
    raise ValueError("no end")


def _end_of_nest(body: bytes, at: int) -> int:
    """The place after the array or object that starts at `at`."""
    at, depth, is_inside, size = at + 1, 1, False, FIRST_WINDOW
    while piece := window(body, at, size):
        found, ends_inside = brackets(piece, is_inside=is_inside)
        levels = found.translate(ROUND)
        if depth + _lowest(levels) <= 0:
            return at + _end_in(piece, depth, is_inside)
        depth += 2 * levels.count(b"(") - len(levels)
        is_inside = ends_inside
        at, size = at + len(piece), min(4 * size, WINDOW)
    raise ValueError("no end")


def _lowest(levels: bytes) -> int:
    """How far the brackets lead below the level where they begin; 0 or more where they do not."""
    # Innermost pairs lead back to where they begin. To fold them away is many times faster than to count.
    for _ in range(_FOLDS):
        levels = levels.replace(b"()", b"")
    return min(accumulate(memoryview(levels.translate(STEPS)).cast("b")), default=0)


def _end_in(piece: bytes, depth: int, is_inside: bool) -> int:
    """The place in a window after the bracket that closes the outermost of `depth`, which is there."""
    marks, end = _MARKS(piece), 0
    while depth:
        mark = next(marks)
        end = mark.end()
        if mark[0] == b'"':
            is_inside = not is_inside
        elif not is_inside:
            depth += 1 if mark[0] in b"{[" else -1
    return end


def _skip_space(body: bytes, at: int) -> int:
    match = _SPACES(body, at)
    assert match is not None, "it matches nothing as well"
    return match.end()


FIRST_WINDOW: Final = 1024
"""Bytes that are looked at before it is known that a value is longer."""
_FOLDS: Final = 8
_QUOTE, _COLON, _COMMA, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY = b'":,{}['
_SPACES: Final = re.compile(rb"[ \t\n\r]*").match
_WORD: Final = re.compile(rb"[-+.0-9a-zA-Z]+").match
_MARKS: Final = re.compile(rb'["\[\]{}]').finditer
