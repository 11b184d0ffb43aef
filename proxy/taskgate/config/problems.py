"""Problems of a configuration as values, and their wording: `Problem` and `ConfigurationError`.

A message never quotes a value of the file, because the value may have come from a secret. Names of
keys, variables and secret files may appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MAX_KEY = 64

_MESSAGES = {
    "missing": "is required",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "string_type": "must be text, in quotes where it looks like a number, true or null",
    "string_unicode": "must be Unicode text",
    "string_pattern_mismatch": "must be a name of a-z, 0-9, _ and -, at most 64 long, with a letter or digit first",
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}
"""The message of each type of pydantic's errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to correct, on one line of text whatever the keys of the file are.

    `file` and `line` (from 1) are None for the command line and the environment. `line` is also
    None for a file that cannot be read. `path` is the dotted path of a key, a flag or a variable,
    or empty for the file as a whole.
    """

    file: str | None = None
    line: int | None = None
    path: str = ""
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        text = ": ".join([*filter(None, [place, self.path]), self.message])
        return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class ConfigurationError(Exception):
    """An unusable configuration. `problems` has all that was found; the text has one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(location: Location) -> str:
    """Format a location as `tasks.upgrade[1].mode`; a key that is not a plain word is quoted."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}" for part in location)
    return text.removeprefix(".")


def pydantic_message(error: ErrorDetails) -> str:
    """Return our message for an error of pydantic, else pydantic's own, which quotes no value."""
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        # Python's True and False are true and false in YAML.
        context = {"expected": re.sub(r"\b(?:True|False)\b", lambda found: found[0].lower(), context["expected"])}
    message = _MESSAGES.get(error["type"])
    return error["msg"] if message is None else message.format_map(context)


def unknown_key(key: str, siblings: Sequence[str]) -> str:
    """Return the message for an unknown key, with the sibling that its author probably meant."""
    meant = get_close_matches(key, siblings, n=1)
    return f"unknown key (did you mean {meant[0]}?)" if meant else "unknown key"


def _quoted(key: str) -> str:
    if len(key) > _MAX_KEY:
        key = f"{key[:_MAX_KEY]}…"
    return key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'
