"""How deep a JSON text nests, told before any parser has gone down into it."""

from itertools import accumulate
from typing import Final


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether objects and arrays nest deeper than `limit`.

    Takes linear time on any input. Where `body` is no JSON the answer holds for the part before the first mistake,
    which is as far as a parser goes.
    """
    return not _has_no_more_than(body, limit) and _reaches_beyond(_levels(body), limit)


def _has_no_more_than(body: bytes, limit: int) -> bool:
    """Whether there are at most `limit` opening brackets, looking no further in a long body than the first too many."""
    if len(body) < _LONG:
        return len(body.translate(None, _NOT_OPENING)) <= limit
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
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes side by side go together: what stands inside a string and what outside stays so.
    marks = body.translate(_ROUND, _NO_MARKS).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


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


_LONG: Final = 8 * 1024
_ROUND: Final = bytes.maketrans(b"[{]}", b"(())")
_NOT_OPENING: Final = bytes(sorted(set(range(256)) - set(b"[{")))
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_STEPS: Final = bytes.maketrans(b"()", b"\x01\xff")
"""Brackets as signed bytes: one level in, one level out."""
