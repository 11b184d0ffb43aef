"""Where one JSON value ends in a long text: `end_of`, which checks the syntax of the value and makes no object of it.

orjson reads a whole document in two steps: first a check of all of it, then the objects. A document with something
behind it fails between the two, and the error says where. That place is the end of the value.
"""

from typing import Final

import orjson

from taskgate.jsontext.depth import brackets, window


class NumberTooLarge(ValueError):
    """A number that no double holds."""


def end_of(text: str, at: int) -> int:
    """The place after the value that starts at `at`.

    Takes time that grows with the value and not with what follows: it looks at pieces of the text, each four times the
    size of the one before, until a piece holds the whole value. What is longer than four times `WINDOW` is looked at in
    pieces of that size, so that a thread that does this lets others run. Raises ValueError where no value starts,
    NumberTooLarge for a number that no double holds.
    """
    size, rest = FIRST_PIECE, len(text) - at
    while size < rest:
        place = _end_in(text[at : at + size], 0)
        if place is not None:
            return at + place
        # The last step takes what there is: a value that fills the text is then checked little more than once.
        size = 4 * size if 16 * size <= rest else rest
        if size > 4 * WINDOW:
            return _end_in_windows(text, at)
    return _end_at_last(text, at, "")


def _end_in_windows(text: str, at: int) -> int:
    """The end of a long value: each piece of it is checked behind the brackets that are open where it starts."""
    opened, lead = bytearray(), ""
    while (cut := _next_cut(text, at)) is not None:
        place = _end_in(lead + text[at:cut], len(lead))
        if place is not None:
            return at + place
        _follow(text[at:cut].encode("utf-8", "surrogatepass"), opened)
        # The comma stands in both pieces: in the next one a value is before it, which it must follow.
        at = cut - 1
        lead = "".join(_OPENED[bracket] for bracket in opened) + "0"
    return _end_at_last(text, at, lead)


def _next_cut(text: str, at: int) -> int | None:
    """The place after the first comma outside of strings that is a window behind `at`, which is outside of any.

    None where there is none, and where too many strings follow one another for JSON.
    """
    size = WINDOW + WINDOW // 4 + 1
    while True:
        piece = text[at : at + size]
        if len(piece) <= WINDOW:
            return None
        if "\\" in piece and (r"\"" in piece or r"\\" in piece):
            piece = piece.replace(r"\\", "..").replace(r"\"", "..")
        place, is_inside = WINDOW, piece.count('"', 0, WINDOW) % 2 == 1
        for _ in range(_MOST_STRINGS):
            if is_inside:
                place = piece.find('"', place) + 1
                if not place:
                    break
            comma, quote = piece.find(",", place), piece.find('"', place)
            if 0 <= comma < quote or quote < 0 <= comma:
                return at + comma + 1
            if quote < 0:
                break
            place, is_inside = quote + 1, True
        else:
            return None
        if at + size >= len(text):
            return None
        # A long string, which is checked fast, or white space.
        size *= 4


def _follow(piece: bytes, opened: bytearray) -> None:
    """Bring the brackets that are open up to the end of a piece, which was checked."""
    left, size = brackets(window(piece, 0, len(piece)))[0], 0
    # What closes again at once is folded away while that is fast.
    while size != len(left):
        size = len(left)
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if 4 * len(shorter) > 3 * size:
            break
        left = shorter
    for bracket in left:
        if bracket in _OPENED:
            opened.append(bracket)
        else:
            opened.pop()


def _end_in(piece: str, lead: int) -> int | None:
    """The end of the value in a piece, counted from behind its `lead`; None where the piece ends before it."""
    problem, place = _problem_of(piece)
    if problem is not None and problem not in _EXPECTED and (r"\ud" in piece or r"\uD" in piece):
        # Lone surrogates are JSON though orjson refuses them. Another escape of the same length takes the place of
        # each, so that all places stay; an escaped backslash stays one.
        problem, place = _problem_of(piece.replace(r"\ud", r"\u0").replace(r"\uD", r"\u0"))
    if problem is None or problem == _FOLLOWED:
        # Where something follows is told, and space may stand before it.
        return len(piece[:place].rstrip(_SPACE)) - lead
    if problem != _CUT:
        raise (NumberTooLarge if problem == _INFINITE else ValueError)(problem)
    return None


def _end_at_last(text: str, at: int, lead: str) -> int:
    """The end of a value that the rest of the text must hold."""
    # Of a whole document objects would be made, which nobody wants: so something follows, which no value can hold.
    place = _end_in(f"{lead}{text[at:]}\0", len(lead))
    assert place is not None, "a text that ends so is not cut off but wrong"
    return at + place


def _problem_of(piece: str) -> tuple[str | None, int]:
    """What is wrong with a document and where; None and its end where nothing is.

    The error itself is let go: it has the document, and its traceback the frames of all callers.
    """
    try:
        orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        return error.msg, error.pos
    return None, len(piece)


FIRST_PIECE: Final = 2 * 1024
"""Letters that are looked at before it is known that a value is longer."""
WINDOW: Final = 256 * 1024
"""Letters that are looked at together where a value is very long: at most some milliseconds of work."""
_MOST_STRINGS: Final = 1024
"""Strings without a comma between them: names in deep nests may follow one another so."""
_OPENED: Final = {ord("["): "[", ord("{"): '{"":'}
"""What is written for a bracket that is open, so that a value follows."""
_FOLLOWED: Final = _problem_of("[] 0")[0]
_CUT: Final = _problem_of("[")[0]
_INFINITE: Final = _problem_of("[1e999]")[0]
_SPACE: Final = " \t\r\n"
_EXPECTED: Final = (_FOLLOWED, _CUT, _INFINITE)
