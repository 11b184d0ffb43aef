"""Texts of other parties as people and models may read them: `clean`, `one_line`, `quoted`. Pure.

Names of tools and messages come from servers and hosts. A control character among them could move
the cursor, change the title of a window or hide text. An invisible one makes two names look the
same. No function here returns one.
"""

import re
from typing import Final

CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff]"
)
"""Controls of C0 and C1 but for tab and line feed, marks of direction, invisible characters, tags and
lone surrogates. Joiners stay, because languages and emoji need them."""
_LINE_BREAKS: Final = re.compile("[\t\n]")
_REPLACEMENT: Final = "\ufffd"


def clean(text: str) -> str:
    """A text of several lines, with U+FFFD for each control character but tab and line feed."""
    return CONTROLS.sub(_REPLACEMENT, text)


def one_line(text: str, most: int = 200) -> str:
    """A text in one line of at most `most` characters, cut with an ellipsis."""
    line = _LINE_BREAKS.sub(" ", clean(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def quoted(text: str) -> str:
    """A text of another party as one short line between quotation marks, which it cannot end."""
    return f'"{one_line(text).replace(chr(34), chr(39))}"'
