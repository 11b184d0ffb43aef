"""Large JSON objects that stay the bytes they are stored as: `LargeJson`, and `JsonChunks` to send.

As a string, a text takes up to four times its bytes, and each splice copies it. So an edit of a
large text is a list of chunks: views of the old bytes, and the new texts between them. Chunks are
sent in windows of one size.
"""

import json
import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any, Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.depth import ROUND, STEPS, WINDOW, brackets, window
from taskgate.jsontext.spans import MAX_MEMBERS, Member, Members, RawJson, Shape


class LargeJson:
    """The bytes of one JSON object. A scan parses its keys alone; a value is parsed where it is asked
    for. Equal if the bytes are equal.
    """

    __slots__ = ("_members", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._members: Members | None = None

    def __len__(self) -> int:
        """The size in bytes."""
        return len(self.body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LargeJson) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]

    @property
    def members(self) -> Members:
        """The members of the object, and those of its `_meta`. The first access scans all bytes.

        Raises ValueError if the bytes are no object, and MalformedMessage if it has a key twice or
        too many keys.
        """
        if self._members is None:
            self._members = read_members(self.body, _META)
        return self._members

    def text(self) -> RawJson:
        """The whole object as a string: for rare cases that may take the memory."""
        return self.body.decode()

    def spliced(self, edits: Sequence[tuple[int, int, str]]) -> "JsonChunks":
        """The text with each `(start, end, replacement)` applied; positions are in bytes."""
        view, pieces, at = memoryview(self.body), list[bytes | memoryview](), 0
        for start, end, replacement in sorted(edits):
            assert start >= at, "two edits overlap"
            pieces += (view[at:start], replacement.encode())
            at = end
        return JsonChunks([*pieces, view[at:]])


class JsonChunks:
    """A JSON text as a sequence of byte chunks."""

    __slots__ = ("_size", "chunks")

    def __init__(self, chunks: Sequence[bytes | memoryview]) -> None:
        self.chunks = chunks
        self._size = sum(map(len, chunks))

    def __len__(self) -> int:
        """The size in bytes."""
        return self._size

    def wrapped(self, head: str, tail: str) -> "JsonChunks":
        """The same text between two others."""
        return JsonChunks([head.encode(), *self.chunks, tail.encode()])

    def windows(self, full: int = WINDOW) -> Iterator[bytes | memoryview]:
        """The bytes in windows of `full` bytes each, except the last. Most are no copies."""
        parts, size = list[bytes | memoryview](), 0
        for chunk in self.chunks:
            at = 0
            while at < len(chunk):
                parts.append(chunk[at : at + full - size])
                at, size = at + len(parts[-1]), size + len(parts[-1])
                if size == full:
                    yield b"".join(parts) if len(parts) > 1 else parts[0]
                    parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def encode(self) -> bytes:
        """All bytes in one object, like `str.encode`."""
        return b"".join(self.chunks)

    def line(self, head: bytes, tail: bytes) -> bytes:
        """All bytes as one line between two others: a line break between tokens becomes a space."""
        # The buffer of a BytesIO is returned without a copy, so the text is in memory once.
        written = BytesIO()
        written.write(head)
        for part in self.windows():
            written.write(bytes(part).translate(_BREAKS))
        written.write(tail)
        return written.getvalue()


MessageText = RawJson | JsonChunks
"""The text of a message to send."""


def to_string(text: MessageText | bytes) -> RawJson:
    """The text as a string, whatever memory that takes."""
    if isinstance(text, str):
        return text
    return (text if isinstance(text, bytes) else text.encode()).decode()


def wrap(head: str, text: MessageText, tail: str) -> MessageText:
    """The same text between two others."""
    return text.wrapped(head, tail) if isinstance(text, JsonChunks) else f"{head}{text}{tail}"


# --- members of a large object ----------------------------------------------------------------------------------------
#
# The bytes were parsed strictly before they were stored, so values are skipped, not checked. Keys
# are still parsed, because a repeated key is an error here.
# `window` returns the next piece of the bytes, of the same length, with escapes replaced by dots.
# So each quote in it begins or ends a string, and `brackets` finds what is outside of strings. A
# value of any size takes the memory of one window, and other threads run between two windows.


class ByteMember(Member):
    """A member of a large object. Its first field, elsewhere the parsed value, is the bytes of the
    whole object; `value` parses its part of them.
    """

    __slots__ = ()

    @property
    def value(self) -> Any:
        body, _, start, end, _ = self
        return json.loads(body[start:end])

    @property
    def is_object(self) -> bool:
        return bool(self[0][self.start] == _OPEN_OBJECT)

    @property
    def is_array(self) -> bool:
        return bool(self[0][self.start] == _OPEN_ARRAY)


def read_members(body: bytes, shape: Shape) -> Members:
    """The members of the JSON object that `body` starts with, `shape` below it; positions in bytes.

    Raises ValueError if there is no such object, MalformedMessage if a walked object repeats a key
    or has too many members. Other values are only skipped.
    """
    if body[:1] != b"{":
        raise ValueError("no object")
    try:
        found, _ = _walk(body, 0, shape)
    except IndexError:
        raise ValueError("cut off") from None
    return found


def leading_keys(body: bytes, at: int, limit: int) -> tuple[str, ...] | None:
    """The distinct ones of the first `limit` keys of the object that starts at `at`; None for any
    other kind of value.

    Like `first_keys_at`, but values are skipped, not parsed.
    """
    if body[at] != _OPEN_OBJECT:
        return None
    keys = list[str]()
    at = _skip_space(body, at + 1)
    while body[at] != _CLOSE_OBJECT and len(keys) < limit:
        end = _end_of_string(body, at)
        keys.append(json.loads(body[at:end]))
        at = _skip_space(body, _end_of_value(body, _skip_space(body, _skip_space(body, end) + 1)))
        if body[at] == _COMMA:
            at = _skip_space(body, at + 1)
    return tuple(dict.fromkeys(keys))


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
        if key in found or len(found) >= MAX_MEMBERS:
            problem = "has a key twice" if key in found else f"has more than {MAX_MEMBERS} members"
            raise MalformedMessage(f"An object of the message {problem}")
        colon = _skip_space(body, key_end)
        if body[colon] != _COLON:
            raise ValueError("no colon")
        start, inner = _skip_space(body, colon + 1), None
        if key in shape and body[start] == _OPEN_OBJECT:
            inner, end = _walk(body, start, shape[key])
        else:
            end = _end_of_value(body, start)
        found[key] = ByteMember(body, key_at, start, end, inner)
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
        return _end_of_container(body, at)
    word = _WORD(body, at)
    if word is None:
        raise ValueError("no value")
    return word.end()


def _end_of_string(body: bytes, at: int) -> int:
    """The position after the string that starts at `at`."""
    quote = body.find(b'"', at + 1)
    if quote >= 0 and body[quote - 1] != _BACKSLASH:
        # Nearly always: the first quote has no backslash before it.
        return quote + 1
    at, size = at + 1, FIRST_WINDOW
    while piece := window(body, at, size):
        quote = piece.find(b'"')
        if quote >= 0:
            return at + quote + 1
        at, size = at + len(piece), min(4 * size, WINDOW)
    raise ValueError("no end")


def _end_of_container(body: bytes, at: int) -> int:
    """The position after the array or object that starts at `at`."""
    at, depth, is_inside, size = at + 1, 1, False, FIRST_WINDOW
    while piece := window(body, at, size):
        found, ends_inside = brackets(piece, is_inside=is_inside)
        levels = found.translate(ROUND)
        if depth + _lowest(levels) <= 0:
            return at + _end_in(piece, depth, is_inside)
        # Opening brackets less closing ones.
        depth += 2 * levels.count(b"(") - len(levels)
        is_inside = ends_inside
        at, size = at + len(piece), min(4 * size, WINDOW)
    raise ValueError("no end")


def _lowest(levels: bytes) -> int:
    """The lowest depth that a series of brackets reaches, relative to its start: negative if it
    closes more than it opened before.
    """
    # An innermost pair ends at the level where it starts. Removing pairs is much faster than
    # counting.
    for _ in range(_FOLDS):
        levels = levels.replace(b"()", b"")
    return min(accumulate(memoryview(levels.translate(STEPS)).cast("b")), default=0)


def _end_in(piece: bytes, depth: int, is_inside: bool) -> int:
    """The position in a window after the bracket that closes the outermost of `depth` levels."""
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
    assert match is not None, "the pattern also matches an empty text"
    return match.end()


FIRST_WINDOW: Final = 1024
"""Bytes of the first window of a value."""
_FOLDS: Final = 8
_META: Final[Shape] = {"_meta": {}}
_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")
_QUOTE, _COLON, _COMMA, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _BACKSLASH = b'":,{}[\\'
_SPACES: Final = re.compile(rb"[ \t\n\r]*").match
_WORD: Final = re.compile(rb"[-+.0-9a-zA-Z]+").match
_MARKS: Final = re.compile(rb'["\[\]{}]').finditer
