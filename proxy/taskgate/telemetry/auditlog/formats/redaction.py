"""The removal of secrets from texts of peers: `scrubbed`. Pure.

Texts are cut, and lose ids of tasks and sessions, and tokens. Characters that do not print are marked.
"""

import re
from functools import lru_cache
from typing import Any, Final

MAX_NAME: Final = 128
"""Characters kept of a name, an id or a version."""
MAX_SENTENCE: Final = 256
"""Characters kept of a sentence."""
WITHHELD: Final = "[withheld]"
"""Replaces a text that looks like a task id, a session id or a token."""

_WORD: Final = r"[A-Za-z0-9_-]"
_MIN_SECRET: Final = 20
_SUSPECT: Final = re.compile(rf"{_WORD}{{32}}|eyJ")
_SECRET: Final = re.compile(
    # Ids made by taskgate; not the 32 digits of a UUID, and not a name of 32 letters;
    rf"(?<!{_WORD})(?={_WORD}*[a-z])(?={_WORD}*[A-Z])(?={_WORD}*(?:[0-9]|[A-Z]{{2}})){_WORD}{{32}}(?!{_WORD})"
    # and JWTs.
    rf"|eyJ{_WORD}+\.eyJ{_WORD}+(?:\.{_WORD}*)?"
)


def scrubbed(value: Any, most: int = MAX_NAME) -> str | None:
    """As `printable`, without ids and tokens: hosts put those into reasons and names."""
    if isinstance(value, str) and len(value) >= _MIN_SECRET:
        # A search takes longer in long words, and the line does not show text far behind the cut.
        value = value[: 4 * most]
        if _SUSPECT.search(value):
            value = _SECRET.sub(WITHHELD, value)
    return printable(value, most)


def printable(value: Any, most: int = MAX_NAME) -> str | None:
    """A text with an escape for each character that does not print, cut to `most`; None for other values.

    An escape is that of JSON, such as `\\u001b`. Texts that differ stay different: if a text has such an
    escape of its own, or needs one, its backslashes are doubled.
    """
    if not isinstance(value, str):
        return None
    cut = value[:most]
    if not cut.isprintable() or ("\\" in cut and _ESCAPE.search(cut)):
        return _marked(value, most)
    return cut if cut == value else f"{cut}…"


def _marked(value: str, most: int) -> str:
    """The text with escapes; none of them is cut."""
    found, left = list[str](), most
    for each in value:
        mark = _mark(each)
        left -= len(mark)
        if left < 0:
            return "".join([*found, "…"])
        found.append(mark)
    return "".join(found)


def _mark(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_ESCAPE: Final = re.compile(r"\\(?:\\|u[0-9a-f]{4})")
"""What an escape looks like."""

scrubbed_cached: Final = lru_cache(maxsize=1024)(scrubbed)
"""`scrubbed`, cached: for texts that repeat with most requests, such as tool names."""
