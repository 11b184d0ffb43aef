"""Limits on a JSON text, checked before a parser runs: nesting depth, and the number of containers.

A container is an array or an object. The text is scanned in windows: a large text takes the memory
of one window, and other threads run between two. The checks only count brackets outside of strings
and parse nothing, so the text may be no JSON at all.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether containers nest deeper than `limit`.

    Takes linear time on any input. False is sure for any text: a parser that stops at the first
    syntax error meets no deeper nest before it. If `body` is no JSON, True may be due to brackets
    after the error.
    """
    # Most texts have no more brackets than `limit`, strings included, and so cannot nest deeper.
    if has_at_most(body, limit):
        return False
    # The levels that may still open; it shrinks and grows with the nesting at the end of each window.
    room = limit
    for levels in _levels(body):
        if _reaches_beyond(levels, room):
            return True
        # Closing less opening brackets.
        room += len(levels) - 2 * levels.count(b"(")
    return False


def has_too_many_containers(body: bytes) -> bool:
    """Whether there are too many containers for a text of that length.

    The limit is one container per `BYTES_EACH` bytes, but never less than `ALWAYS_ALLOWED`. Brackets
    in strings do not count.
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

    `piece` is from `window`, without escaped quotes. `is_inside` is whether it starts inside a
    string. The bytes need not be JSON.
    """
    # With other bytes gone, "" is an empty string, or the end of one and the start of the next. Either way it can
    # go: inside and outside stay the same for the brackets around it. Parts between quotes then alternate.
    parts = piece.translate(None, _NO_MARKS).replace(b'""', b"").split(b'"')
    return b"".join(parts[is_inside::2]), is_inside ^ (len(parts) % 2 == 0)


def has_at_most(body: bytes, limit: int) -> bool:
    """Whether there are at most `limit` opening brackets, those in strings included.

    In a text that is not short, the search stops at the first one beyond the limit.
    """
    for bracket in (b"{", b"["):
        # With few brackets, `find` is many times faster than a pass over every byte.
        at, found = body.find(bracket), 0
        while at >= 0:
            found += 1
            if found == _SEARCHED and len(body) <= _SHORT:
                found += body.count(bracket, at + 1)
                break
            if found > limit:
                return False
            at = body.find(bracket, at + 1)
        limit -= found
        if limit < 0:
            return False
    return True


def _levels(body: bytes) -> Iterator[bytes]:
    """The brackets outside of strings, all as round ones, window by window."""
    at, is_inside = 0, False
    while piece := window(body, at, WINDOW):
        found, is_inside = brackets(piece, is_inside=is_inside)
        yield found.translate(ROUND)
        at += len(piece)


def _reaches_beyond(levels: bytes, limit: int) -> bool:
    """Whether any start of `levels` opens more than `limit` levels that it does not close.

    `levels` are the round brackets of one window, in which closing ones may lack their partner.
    """
    # Removing all innermost pairs takes at most one level off the deepest nest, many times faster than counting. It
    # is repeated while it removes at least a quarter, so that the time stays linear. With no more brackets than
    # levels left, the limit holds.
    folded, room = levels, limit
    while room and 4 * len(shorter := folded.replace(b"()", b"")) <= 3 * len(folded):
        folded, room = shorter, room - 1
        if len(folded) <= room:
            return False
    # The exact answer: the highest sum of the steps +1 and -1, from the untouched brackets.
    steps = memoryview(levels.translate(STEPS)).cast("b")
    return max(accumulate(steps), default=0) > limit


ALWAYS_ALLOWED: Final = 100_000
"""Containers that a message may have, however short it is."""
BYTES_EACH: Final = 40
"""Bytes of a message for each container that it may have, where that allows more."""
WINDOW: Final = 64 * 1024
"""Largest number of bytes that are scanned together."""
ROUND: Final = bytes.maketrans(b"[{]}", b"(())")
"""Translation of both kinds of brackets to round ones."""
STEPS: Final = bytes.maketrans(b"()", b"\x01\xff")
"""Translation of round brackets to signed bytes: +1 level, -1 level."""
_SHORT: Final = 16 * 1024
"""Bytes of a text that one more pass takes little time for."""
_SEARCHED: Final = 16
"""Brackets of a kind that are searched in a short text; the others are counted."""
_FEW: Final = 1000
"""Brackets up to which searching them is faster than counting all."""
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
