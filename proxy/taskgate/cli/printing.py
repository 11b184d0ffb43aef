"""Texts for a terminal: `clean`, `one_line`, `json_text`, `json_line` and `json_as_it_is`.

Names of tools and messages come from servers and hosts. A control character among them could move
the cursor, change the title of a window or hide text. An invisible one makes two names look the
same. None of these functions returns one.
"""

import json
import re
from typing import Any, Final

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff]"
)
"""Controls of C0 and C1 but for tab and line feed, marks of direction, invisible characters, tags and
lone surrogates. Joiners stay, because languages and emoji need them."""
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
    # Line feeds are between tokens alone: those inside strings are escaped already.
    return _escaped(json.dumps(document, ensure_ascii=False, indent=2))


def json_line(document: Any) -> str:
    """A document as JSON in one line, for output with a document in each line."""
    return _escaped(json.dumps(document, ensure_ascii=False))


def json_as_it_is(text: str) -> str:
    """A JSON text with its own spaces and numbers. Control characters in its strings are escaped."""
    # Those between tokens must not be escaped: of controls JSON allows a carriage return there.
    return _escaped(text.replace("\r", " "))


def _escaped(text: str) -> str:
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """A character as JSON writes it in ASCII: in UTF-16, as one or two escapes."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
