"""Texts for a terminal: `clean` and `json_text`.

Names of tools and messages come from servers and hosts. A control character among them could move
the cursor, change the title of a window or hide text. None of these functions returns one.
"""

import json
import re
from typing import Any, Final

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls of C0 and C1 but for tab and line feed, marks of direction, and lone surrogates."""
_LINE_BREAKS: Final = re.compile("[\t\n]")
_REPLACEMENT: Final = "\ufffd"


def clean(text: str) -> str:
    """A text of several lines, with U+FFFD for each control character but tab and line feed."""
    return _CONTROLS.sub(_REPLACEMENT, text)


def one_line(text: str, most: int = 200) -> str:
    """A text in one line of at most `most` characters, cut with an ellipsis."""
    line = _LINE_BREAKS.sub(" ", clean(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def json_text(document: Any) -> str:
    """A document as JSON with two spaces of indentation. Control characters are escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    # Line feeds are between tokens alone: those inside strings are escaped already.
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
