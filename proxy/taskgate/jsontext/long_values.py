"""The end of one JSON value in a long text: `find_end`. It checks the syntax and builds no objects.

orjson reads a document in two steps: it checks the syntax of the whole document, then it builds
objects. A document with something behind it fails between the two, and the error has the position.
That position is the end of the value.
"""

from typing import Final

import orjson

from taskgate.jsontext.depth import brackets, window


class NumberTooLarge(ValueError):
    """A number that no double can represent."""


def find_end(text: str, at: int) -> int:
    """The position after the value that starts at `at`.

    The time grows with the value, not with the text behind it. Pieces of the text are parsed, each
    four times the size of the one before, until one contains the whole value. Values longer than
    4 * `WINDOW` are parsed in windows, so that a thread that does this lets others run. Raises
    ValueError if no value starts there, NumberTooLarge for a number that no double can represent.
    """
    size, rest = FIRST_PIECE, len(text) - at
    while size < rest:
        place = _end_in(text[at : at + size], 0)
        if place is None and size == FIRST_PIECE:
            place = _end_behind_long_strings(text, at)
        if place is not None:
            return at + place
        # The last step takes the rest: a value that fills the text is parsed little more than once.
        size = 4 * size if 16 * size <= rest else rest
        if size > 4 * WINDOW:
            return _end_in_windows(text, at)
    return _end_at_last(text, at, "")


def end_of_long_string(text: str, at: int) -> int | None:
    """The position after the string that starts at `at`; None if it is short, has escapes, or is no
    JSON.

    The place of its quote tells it, which is many times faster than a parser that reads letters.
    """
    return _end_at_quote(text, at, text.find('"', at + 1))


def _end_at_quote(text: str, at: int, quote: int) -> int | None:
    """As `end_of_long_string`; `quote` is the place of the next quote, -1 without one."""
    if quote - at < FIRST_PIECE:
        return None
    # To write a string as JSON is many times faster than to parse it. It grows by each escape: also
    # of a control character, which is no JSON as it stands.
    for start in range(at + 1, quote, WINDOW):
        piece = text[start : min(start + WINDOW, quote)]
        try:
            # The bytes are dropped at once: the next ones take their place.
            size = len(orjson.dumps(piece)) - 2
        except TypeError:
            # A lone surrogate.
            return None
        if size != (len(piece) if piece.isascii() else len(piece.encode())):
            return None
    return quote + 1


def _end_behind_long_strings(text: str, at: int) -> int | None:
    """The length of a value whose first piece ends within a long string; None for any other value.

    The value is parsed with an empty string in place of each long one.
    """
    short, left_out = text[at : at + FIRST_PIECE], 0
    for _ in range(_MAX_LONG_STRINGS):
        marks = short.replace(r"\\", "..").replace(r"\"", "..") if "\\" in short else short
        if marks.count('"') % 2 == 0:
            return None
        quote = marks.rfind('"')
        start = at + left_out + quote
        # Not for the smaller part of a text, which would be parsed once more together with the rest.
        closing = text.find('"', start + 1)
        if len(text) - start > 2 * (closing - start):
            return None
        end = _end_at_quote(text, start, closing)
        if end is None:
            return None
        short = f'{short[:quote]}""{text[end : end + FIRST_PIECE]}'
        left_out += end - start - 2
        place = _end_in(short, 0)
        if place is not None:
            return place + left_out
    return None


def _end_in_windows(text: str, at: int) -> int:
    """The end of a long value: each window is parsed behind the brackets that are open at its
    start.
    """
    opened, lead = bytearray(), ""
    while (cut := _next_cut(text, at)) is not None:
        place = _end_in(lead + text[at:cut], len(lead))
        if place is not None:
            return at + place
        _follow_brackets(text[at:cut].encode("utf-8", "surrogatepass"), opened)
        # The comma is in both windows: in the next one it must follow a value, which `lead` ends
        # with.
        at = cut - 1
        lead = "".join(_OPENED[bracket] for bracket in opened) + "0"
    return _end_at_last(text, at, lead)


def _next_cut(text: str, at: int) -> int | None:
    """The position after the first comma outside of strings that is one window behind `at`.

    `at` is outside of strings. None if there is no such comma, or if too many strings follow one
    another for JSON.
    """
    size = WINDOW + WINDOW // 4 + 1
    while True:
        piece = text[at : at + size]
        if len(piece) <= WINDOW:
            return None
        if "\\" in piece and (r"\"" in piece or r"\\" in piece):
            piece = piece.replace(r"\\", "..").replace(r"\"", "..")
        place, is_inside = WINDOW, piece.count('"', 0, WINDOW) % 2 == 1
        for _ in range(_MAX_STRINGS):
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
        # A long string, which parses fast, or white space.
        size *= 4


def _follow_brackets(piece: bytes, opened: bytearray) -> None:
    """Update the stack of open brackets with a piece whose syntax was checked."""
    left, size = brackets(window(piece, 0, len(piece)))[0], 0
    # Adjacent pairs are removed as long as that is fast.
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
    """The end of the value in a piece, counted from behind its `lead`; None if the piece is too
    short.
    """
    problem, place = _problem_of(piece)
    if problem is not None and problem not in _EXPECTED and (r"\ud" in piece or r"\uD" in piece):
        # orjson refuses lone surrogates, which are JSON. An escape of the same length replaces
        # each, so that all positions stay; an escaped backslash stays one.
        problem, place = _problem_of(piece.replace(r"\ud", r"\u0").replace(r"\uD", r"\u0"))
    if problem is None or problem == _FOLLOWED:
        # The error has the position of what follows, behind white space.
        return len(piece[:place].rstrip(_SPACE)) - lead
    if problem != _CUT:
        raise (NumberTooLarge if problem == _INFINITE else ValueError)(problem)
    return None


def _end_at_last(text: str, at: int, lead: str) -> int:
    """The end of a value that the rest of the text must contain."""
    # A whole document would be built as objects: so something follows it that no value can contain.
    place = _end_in(f"{lead}{text[at:]}\0", len(lead))
    assert place is not None, "a text with this end is wrong, not cut off"
    return at + place


def _problem_of(piece: str) -> tuple[str | None, int]:
    """What is wrong with a document and where; None and its length for a correct one.

    The error is dropped here: it references the document, and its traceback the frames of all
    callers.
    """
    try:
        orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        return error.msg, error.pos
    return None, len(piece)


FIRST_PIECE: Final = 2 * 1024
"""Characters of the first piece that is parsed."""
WINDOW: Final = 256 * 1024
"""Characters of a very long value that are parsed together: at most some milliseconds of work."""
_MAX_LONG_STRINGS: Final = 8
"""Long strings that are passed over before a value is read in another way."""
_MAX_STRINGS: Final = 1024
"""Strings without a comma between them: the keys of deep nests can follow one another like this."""
_OPENED: Final = {ord("["): "[", ord("{"): '{"":'}
"""Text that opens each bracket again, so that a value can follow."""
_FOLLOWED: Final = _problem_of("[] 0")[0]
_CUT: Final = _problem_of("[")[0]
_INFINITE: Final = _problem_of("[1e999]")[0]
_SPACE: Final = " \t\r\n"
_EXPECTED: Final = (_FOLLOWED, _CUT, _INFINITE)
