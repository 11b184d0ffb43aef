"""Where one JSON value ends in a long text: `end_of`, which checks the syntax of the value and makes no object of it.

orjson reads a whole document in two steps: first a check of all of it, then the objects. A document with something
behind it fails between the two, and the error says where. That place is the end of the value.
"""

from typing import Final

import orjson


class NumberTooLarge(ValueError):
    """A number that no double holds."""


def end_of(text: str, at: int) -> int:
    """The place after the value that starts at `at`.

    Takes time that grows with the value and not with what follows: it looks at pieces of the text, each four times the
    size of the one before, until a piece holds the whole value. Raises ValueError where no value starts,
    NumberTooLarge for a number that no double holds.
    """
    size, rest = FIRST_PIECE, len(text) - at
    while True:
        # Of a whole document objects would be made, which nobody wants: so something follows, which no value can hold.
        piece = text[at : at + size] if size < rest else f"{text[at:]}\0"
        problem, place = _problem_of(piece)
        if problem is not None and problem not in _EXPECTED and (r"\ud" in piece or r"\uD" in piece):
            # Lone surrogates are JSON though orjson refuses them. Another escape of the same length takes the place of
            # each, so that all places stay; an escaped backslash stays one.
            problem, place = _problem_of(piece.replace(r"\ud", r"\u0").replace(r"\uD", r"\u0"))
        if problem is None or problem == _FOLLOWED:
            # Where something follows is told, and space may stand before it.
            return at + len(piece[:place].rstrip(_SPACE))
        if problem != _CUT or size >= rest:
            raise (NumberTooLarge if problem == _INFINITE else ValueError)(problem)
        # The last step takes what there is: a value that fills the text is then checked little more than once.
        size = 4 * size if 16 * size <= rest else rest


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
_FOLLOWED: Final = _problem_of("[] 0")[0]
_CUT: Final = _problem_of("[")[0]
_INFINITE: Final = _problem_of("[1e999]")[0]
_SPACE: Final = " \t\r\n"
_EXPECTED: Final = (_FOLLOWED, _CUT, _INFINITE)
