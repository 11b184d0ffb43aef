"""Words of peers as lines may have them: printable, short, and nothing else. Pure."""

import re
from functools import lru_cache
from typing import Any, Final

NAME: Final = 128
"""Letters that are kept of a name, an id or a version."""
TEXT: Final = 256
"""Letters that are kept of what is a sentence."""
WITHHELD: Final = "[withheld]"
"""What stands in the place of what looks like an id of a task or a session, or a token."""

_WORD: Final = r"[A-Za-z0-9_-]"
_SHORTEST: Final = 20
_LONG: Final = re.compile(rf"{_WORD}{{32}}|eyJ")
_GUARDED: Final = re.compile(
    # Ids of ours, but neither the 32 digits of a UUID nor a name of as many letters that somebody thought of;
    rf"(?<!{_WORD})(?={_WORD}*[a-z])(?={_WORD}*[A-Z])(?={_WORD}*(?:[0-9]|[A-Z]{{2}})){_WORD}{{32}}(?!{_WORD})"
    # and tokens that are JWTs.
    rf"|eyJ{_WORD}+\.eyJ{_WORD}+(?:\.{_WORD}*)?"
)


def heard(value: Any, most: int = NAME) -> str | None:
    """As `shown`, for what anybody may have said: hosts put ids into reasons, names and ids of messages of theirs."""
    if isinstance(value, str) and len(value) >= _SHORTEST:
        # What is far behind the cut is not shown, and to look for tokens takes longer the longer a word is.
        value = value[: 4 * most]
        if _LONG.search(value):
            value = _GUARDED.sub(WITHHELD, value)
    return shown(value, most)


def shown(value: Any, most: int = NAME) -> str | None:
    """A text without what does not print, cut to `most` letters; None for what is no text."""
    if not isinstance(value, str):
        return None
    if len(value) > most:
        value = f"{value[:most]}…"
    return value if value.isprintable() else "".join(each for each in value if each.isprintable())


recurring: Final = lru_cache(maxsize=1024)(heard)
"""The same for words that come again with most requests, such as the name of a tool."""
