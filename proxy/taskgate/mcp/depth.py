"""How deep a JSON text nests and how many arrays and objects it has, told before any parser has gone into it."""

from itertools import accumulate
from typing import Final


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether objects and arrays nest deeper than `limit`.

    Takes linear time on any input. Where `body` is no JSON the answer holds for the part before the first mistake,
    which is as far as a parser goes.
    """
    if len(body) < _LONG:
        return len(body.translate(None, _NOT_OPENING)) > limit and _reaches_beyond(_levels(body), limit)
    return not _has_no_more_than(body, limit) and _reaches_beyond(_levels(body), limit)


def has_too_many(body: bytes) -> bool:
    """Whether there are more arrays and objects than one for each `BYTES_EACH` bytes, and than `ALWAYS_ALLOWED`.

    What stands in strings does not count.
    """
    most = max(ALWAYS_ALLOWED, len(body) // BYTES_EACH)
    # To count all is fast, and nearly always enough.
    if body.count(b"{") + body.count(b"[") <= most:
        return False
    pieces = _pieces(body, 4 * most)
    # With so many quotes left, a bracket stands between any two.
    return len(pieces) > 4 * most or sum(map(len, pieces[::2])) > 2 * most


def _has_no_more_than(body: bytes, limit: int) -> bool:
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


def _levels(body: bytes) -> bytes:
    """The brackets outside strings, as round ones of one kind."""
    return b"".join(_pieces(body)[::2])


def _pieces(body: bytes, most: int = -1) -> list[bytes]:
    """The brackets outside and inside of strings in turn, as round ones; cut at `most` quotes, where they are bounded.

    Quotes with nothing between them are left out, so that there is a bracket between any two.
    """
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes side by side go together: what stands inside a string and what outside stays so.
    return body.translate(_ROUND, _NO_MARKS).replace(b'""', b"").split(b'"', most)


def _reaches_beyond(levels: bytes, limit: int) -> bool:
    # To fold the innermost pairs away takes one level off every nest, and is many times faster than to count. What
    # folds badly, deep nests side by side, is counted.
    folded, room = levels, limit
    while room and 4 * len(shorter := folded.replace(b"()", b"")) <= 3 * len(folded):
        folded, room = shorter, room - 1
        if len(folded) <= room:
            return False
    steps = memoryview(levels.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0) > limit


ALWAYS_ALLOWED: Final = 100_000
"""Arrays and objects that a message of any size may have."""
BYTES_EACH: Final = 40
"""Bytes of a larger message for each array and object in it."""
_LONG: Final = 8 * 1024
_ROUND: Final = bytes.maketrans(b"[{]}", b"(())")
_NOT_OPENING: Final = bytes(sorted(set(range(256)) - set(b"[{")))
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_STEPS: Final = bytes.maketrans(b"()", b"\x01\xff")
"""Brackets as signed bytes: one level in, one level out."""
