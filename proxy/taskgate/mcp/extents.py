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
        piece = text[at : at + size]
        try:
            orjson.loads(piece)
        except orjson.JSONDecodeError as error:
            problem = error if error.msg in _EXPECTED else _problem_without_surrogates(piece, error)
        else:
            problem = None
        if problem is None or problem.msg == _FOLLOWED:
            # Where something follows is told, and space may stand before it.
            value = piece if problem is None else piece[: problem.pos]
            return at + len(value.rstrip(_SPACE))
        if problem.msg != _CUT or len(piece) == rest:
            raise (NumberTooLarge if problem.msg == _INFINITE else ValueError)(problem.msg)
        # The last step takes what there is: a value that fills the text is then checked little more than once.
        size = 4 * size if 16 * size <= rest else rest


def _problem_without_surrogates(piece: str, problem: orjson.JSONDecodeError) -> orjson.JSONDecodeError | None:
    """What is wrong with a piece besides lone surrogates, which are JSON though orjson refuses them."""
    # Another escape of the same length takes the place of each; an escaped backslash stays one.
    plain = piece.replace(r"\ud", r"\u0").replace(r"\uD", r"\u0")
    if plain == piece:
        return problem
    try:
        orjson.loads(plain)
    except orjson.JSONDecodeError as other:
        return other
    return None


def _message_about(text: str) -> str:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error.msg
    raise AssertionError(text)


FIRST_PIECE: Final = 2 * 1024
"""Letters that are looked at before it is known that a value is longer."""
_FOLLOWED: Final = _message_about("[] 0")
_CUT: Final = _message_about("[")
_INFINITE: Final = _message_about("[1e999]")
_SPACE: Final = " \t\r\n"
_EXPECTED: Final = (_FOLLOWED, _CUT, _INFINITE)
