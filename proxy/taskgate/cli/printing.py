"""Texts for a terminal: `clean`, `one_line`, `json_text`, `json_line` and `json_as_it_is`.

Names of tools and messages come from servers and hosts. A control character among them could move
the cursor, change the title of a window or hide text. An invisible one makes two names look the
same. None of these functions returns one.
"""

import json
import re
from typing import Any

from taskgate.jsontext.display import CONTROLS, clean, one_line

__all__ = ["clean", "json_as_it_is", "json_line", "json_text", "one_line"]


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
    return CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """A character as JSON writes it in ASCII: in UTF-16, as one or two escapes."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
