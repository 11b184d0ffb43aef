"""What is wrong with a configuration, in words for the person who wrote it.

What lives here: the problem as a value, the one exception that carries all of them, dotted paths, and the wording of
what pydantic finds. What must not: reading files, keys of the configuration. What holds: a message never quotes a value
of the file, because it may have come from a secret; names of keys, variables and secret files may appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_KEY = 64

_WORDS = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to mend.

    `file` and `line` (from 1) are None for the command line and the environment, `line` also for a file that cannot be
    read; `path` is the dotted path of a key, a flag or a variable, or empty for the file as a whole. As text it is one
    line, whatever the file's keys hold.
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
    """The configuration cannot be used. `problems` holds all that was found; the text is one of them per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(location: Location) -> str:
    """`tasks.upgrade[1].mode`; a key that is not a plain word stands in quotes."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in location)
    return text.removeprefix(".")


def worded(error: ErrorDetails) -> str:
    """What pydantic found, in our words. pydantic's own sentence, which quotes no value, is left where we have none."""
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        # As YAML has them, not Python.
        context = {"expected": re.sub(r"\b(?:True|False)\b", lambda found: found[0].lower(), context["expected"])}
    words = _WORDS.get(error["type"])
    return error["msg"] if words is None else words.format_map(context)


def unknown_key(key: str, siblings: Sequence[str]) -> str:
    """The message for a key that does not exist, with the sibling it was probably meant to be."""
    meant = get_close_matches(key, siblings, n=1)
    return f"unknown key (did you mean {meant[0]}?)" if meant else "unknown key"


def _shown(key: str) -> str:
    if len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}…"
    return key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'
