"""What nobody may be told: tokens and ids by their looks, and by its value whatever else tests made or configured.

What mints a secret notes it here. What is judged, and when, stands in `told.py`. Nothing of taskgate is imported: every
test imports this.
"""

import re
from base64 import urlsafe_b64decode

_PUBLIC = r"(?!enterprise-managed-authorization)"
"""The name of an extension, which has as many letters as an id."""
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8}|(?<![A-Za-z0-9_-])" + _PUBLIC + r"[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"
)
"""A token, unless it is within a digest of ours, which has such letters too; an id of a task, a session or a caller."""
_BEFORE = 60  # characters that say where a secret was found
SHORTEST = 8  # what is shorter stands in innocent texts as well

_noted: list[str] = []


def noted(secret: str) -> str:
    """The secret itself, which is known from here on until `forget`. Of a JWT its signature is known, too.

    Raises ValueError for what is too short to be told from other text.
    """
    if len(secret) < SHORTEST:
        raise ValueError(f"a secret of tests has at least {SHORTEST} characters")
    looks_like_jwt = secret.startswith("eyJ") and secret.count(".") == 2
    _noted.append(secret.rpartition(".")[2] or secret if looks_like_jwt else secret)
    return secret


def known() -> int:
    """How many secrets were noted."""
    return len(_noted)


def forget(since: int) -> None:
    """Forget those that were noted after so many."""
    del _noted[since:]


def found_in(text: str) -> list[str]:
    """Every secret of a text, with what stands before it there."""
    places = [match.span() for match in _LOOKS.finditer(text) if not _begins_by_chance(match[0])]
    places += [(text.index(secret), text.index(secret) + len(secret)) for secret in set(_noted) if secret in text]
    return [text[max(0, begin - _BEFORE) : end] for begin, end in sorted(places)]


def _begins_by_chance(word: str) -> bool:
    """Whether a word begins as a token and is none: the header of each is JSON, so it has printable letters alone.

    The key of a caller, which is random, begins so once in 262,144 times.
    """
    return word.startswith("eyJ") and not all(0x20 <= octet < 0x7F for octet in urlsafe_b64decode(word[:8]))
