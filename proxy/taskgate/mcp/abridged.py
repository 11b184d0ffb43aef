"""Reading a large JSON value without keeping what makes it large: files and images as Base64, in one long string.

Nearly all of such a value is one string without escapes. To see that it is one takes a fifth of what a parser takes to
make a copy of it. Knows nothing of messages.
"""

from typing import Any, Final

import orjson

KEPT: Final = 4 * 1024
"""Letters that stay of a string that is cut: far more than anybody looks at."""


def load(text: str, at: int, end: int) -> Any:
    """The value between two places of a text, a long string in it perhaps cut to its first `KEPT` letters.

    ValueError where it is no JSON: to cut a string changes nothing about that.
    """
    return orjson.loads(_abridged(text, at, end) if end - at > LONG else text[at:end])


def _abridged(text: str, at: int, end: int) -> str:
    pieces: list[str] = []
    begin = at
    for _ in range(_MOST_STRINGS):
        # Outside of strings here, as long as no escaped quote was passed.
        opening = text.find('"', at, end)
        closing = text.find('"', opening + 1, end)
        if opening < 0 or closing < 0 or text.find("\\", opening, closing) >= 0:
            break
        if closing - opening > LONG:
            inner = text[opening + 1 : closing]
            # Two quotes more, and nothing was escaped: all of it is plain ASCII.
            if len(orjson.dumps(inner)) != len(inner) + 2:
                break
            pieces.append(text[begin : opening + 1 + KEPT])
            begin = closing
        at = closing + 1
    pieces.append(text[begin:end])
    return "".join(pieces)


LONG: Final = 32 * 1024
"""Letters from which on a string is worth the trouble."""
_MOST_STRINGS: Final = 64
"""Where none of the first strings is long, the value is large in another way."""
