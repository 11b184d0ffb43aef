"""How deep a JSON text nests and how many arrays and objects it has, told before any parser has gone into it.

A text is looked at in windows: a large one takes the memory of one, and other threads get their turn between two.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether objects and arrays nest deeper than `limit`.

    Takes linear time on any input. Where `body` is no JSON the answer holds for the part before the first mistake,
    which is as far as a parser goes.
    """
    if len(body) < _LONG:
        if len(body.translate(None, _NOT_OPENING)) <= limit:
            return False
    elif has_no_more_than(body, limit):
        return False
    room = limit
    for levels in _levels(body):
        if _reaches_beyond(levels, room):
            return True
        room += len(levels) - 2 * levels.count(b"(")
    return False


def has_too_many(body: bytes) -> bool:
    """Whether there are more arrays and objects than one for each `BYTES_EACH` bytes, and than `ALWAYS_ALLOWED`.

    What stands in strings does not count.
    """
    most = max(ALWAYS_ALLOWED, len(body) // BYTES_EACH)
    # To find the few there are is faster than to count them; to count all of them is nearly always enough.
    if has_no_more_than(body, _FEW) or body.count(b"{") + body.count(b"[") <= most:
        return False
    return any(count > most for count in accumulate(levels.count(b"(") for levels in _levels(body)))


def window(body: bytes, at: int, size: int) -> bytes:
    """Bytes from `at` on, which is not inside of an escape, with escaped quotes and backslashes made harmless.

    It ends behind an escape and not in it. Each place stays what it was. Empty where the body is over.
    """
    piece = body[at : at + size]
    if b"\\" not in piece:
        return piece
    if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
        piece = body[at : at + size + 1]
    return piece.replace(rb"\\", b"..").replace(rb"\"", b"..")


def brackets(piece: bytes, *, is_inside: bool = False) -> tuple[bytes, bool]:
    """The brackets of a window that stand outside of strings, and whether its end is inside of one; its start may be.

    Nothing else is told apart: what stands there need not be JSON.
    """
    # Two quotes side by side go together: what stands inside a string and what outside stays so.
    parts = piece.translate(None, _NO_MARKS).replace(b'""', b"").split(b'"')
    return b"".join(parts[is_inside::2]), is_inside ^ (len(parts) % 2 == 0)


def has_no_more_than(body: bytes, limit: int) -> bool:
    """Whether there are at most `limit` opening brackets, looking no further than the first too many."""
    for bracket in (b"{", b"["):
        # Where there are few, `find` is many times faster than anything that looks at every byte.
        at = body.find(bracket)
        while at >= 0:
            limit -= 1
            if limit < 0:
                return False
            at = body.find(bracket, at + 1)
    return True


def _levels(body: bytes) -> Iterator[bytes]:
    """The brackets outside strings, as round ones of one kind, window by window."""
    at, is_inside = 0, False
    while piece := window(body, at, WINDOW):
        found, is_inside = brackets(piece, is_inside=is_inside)
        yield found.translate(ROUND)
        at += len(piece)


def _reaches_beyond(levels: bytes, limit: int) -> bool:
    # To fold the innermost pairs away takes one level off every nest, and is many times faster than to count. What
    # folds badly, deep nests side by side, is counted.
    folded, room = levels, limit
    while room and 4 * len(shorter := folded.replace(b"()", b"")) <= 3 * len(folded):
        folded, room = shorter, room - 1
        if len(folded) <= room:
            return False
    steps = memoryview(levels.translate(STEPS)).cast("b")
    return max(accumulate(steps), default=0) > limit


ALWAYS_ALLOWED: Final = 100_000
"""Arrays and objects that a message of any size may have."""
BYTES_EACH: Final = 40
"""Bytes of a larger message for each array and object in it."""
WINDOW: Final = 64 * 1024
"""Bytes that are looked at together, at most."""
ROUND: Final = bytes.maketrans(b"[{]}", b"(())")
"""Brackets of either kind as those of one."""
STEPS: Final = bytes.maketrans(b"()", b"\x01\xff")
"""Those as signed bytes: one level in, one level out."""
_LONG: Final = 8 * 1024
_FEW: Final = 1000
_NOT_OPENING: Final = bytes(sorted(set(range(256)) - set(b"[{")))
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
