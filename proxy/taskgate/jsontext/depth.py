"""Limits on a JSON text, checked before a parser runs: nesting depth, and the number of containers.

A container is an array or an object. The text is scanned in windows: a large text takes the memory
of one window, and other threads run between two.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether containers nest deeper than `limit`.

    Takes linear time on any input. If `body` is no JSON, the answer holds for the part before the
    first syntax error, which is as far as a parser goes.
    """
    if len(body) < _LONG:
        if len(body.translate(None, _NOT_OPENING)) <= limit:
            return False
    elif has_at_most(body, limit):
        return False
    room = limit
    for levels in _levels(body):
        if _reaches_beyond(levels, room):
            return True
        room += len(levels) - 2 * levels.count(b"(")
    return False


def has_too_many_containers(body: bytes) -> bool:
    """Whether there are more containers than `ALWAYS_ALLOWED` and than one per `BYTES_EACH` bytes.

    Brackets in strings do not count.
    """
    limit = max(ALWAYS_ALLOWED, len(body) // BYTES_EACH)
    # Finding a few brackets is faster than counting; counting all of them nearly always decides.
    if has_at_most(body, _FEW) or body.count(b"{") + body.count(b"[") <= limit:
        return False
    return any(count > limit for count in accumulate(levels.count(b"(") for levels in _levels(body)))


def window(body: bytes, at: int, size: int) -> bytes:
    """The bytes from `at` on, with escaped quotes and backslashes replaced by dots.

    `at` must not be inside an escape. The window never ends inside one, so it can be a byte longer
    than `size`. All positions stay. Empty at the end of the body.
    """
    piece = body[at : at + size]
    if b"\\" not in piece:
        return piece
    if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
        piece = body[at : at + size + 1]
    return piece.replace(rb"\\", b"..").replace(rb"\"", b"..")


def brackets(piece: bytes, *, is_inside: bool = False) -> tuple[bytes, bool]:
    """The brackets of a window outside of strings, and whether the window ends inside a string.

    `is_inside` says the same of its start. The bytes need not be JSON.
    """
    # Two adjacent quotes cancel out: what is inside a string and what is outside stays so.
    parts = piece.translate(None, _NO_MARKS).replace(b'""', b"").split(b'"')
    return b"".join(parts[is_inside::2]), is_inside ^ (len(parts) % 2 == 0)


def has_at_most(body: bytes, limit: int) -> bool:
    """Whether there are at most `limit` opening brackets; the search stops at the first excess."""
    for bracket in (b"{", b"["):
        # With few brackets, `find` is many times faster than a pass over every byte.
        at = body.find(bracket)
        while at >= 0:
            limit -= 1
            if limit < 0:
                return False
            at = body.find(bracket, at + 1)
    return True


def _levels(body: bytes) -> Iterator[bytes]:
    """The brackets outside of strings, all as round ones, window by window."""
    at, is_inside = 0, False
    while piece := window(body, at, WINDOW):
        found, is_inside = brackets(piece, is_inside=is_inside)
        yield found.translate(ROUND)
        at += len(piece)


def _reaches_beyond(levels: bytes, limit: int) -> bool:
    # Removing the innermost pairs takes one level off every nest, many times faster than counting.
    # Deep nests side by side shrink slowly this way: those are counted.
    folded, room = levels, limit
    while room and 4 * len(shorter := folded.replace(b"()", b"")) <= 3 * len(folded):
        folded, room = shorter, room - 1
        if len(folded) <= room:
            return False
    steps = memoryview(levels.translate(STEPS)).cast("b")
    return max(accumulate(steps), default=0) > limit


ALWAYS_ALLOWED: Final = 100_000
"""Containers that a message of any size may have."""
BYTES_EACH: Final = 40
"""Bytes per container that a larger message needs."""
WINDOW: Final = 64 * 1024
"""Largest number of bytes that are scanned together."""
ROUND: Final = bytes.maketrans(b"[{]}", b"(())")
"""Translation of both kinds of brackets to round ones."""
STEPS: Final = bytes.maketrans(b"()", b"\x01\xff")
"""Translation of round brackets to signed bytes: +1 level, -1 level."""
_LONG: Final = 8 * 1024
_FEW: Final = 1000
_NOT_OPENING: Final = bytes(sorted(set(range(256)) - set(b"[{")))
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
