"""Problems of a configuration, and look-ups in its plain values for the rules between keys.

`Problem` and `ConfigurationError` have the wording. A message never quotes a value of the file,
because the value may have come from a secret. Names of keys, variables and secret files may appear.

The rules between keys read the file rather than a model, so that its author sees conflicts together
with what is wrong in single keys. A key that the file lacks has its default. Malformed parts read as
absent, because the models report them. Only `value_at` and `order_conflict` raise: StopIteration for
a key that neither the file nor the defaults have. In them `raw` is always the file's whole tree, or
a part of it, and `defaults` a tree of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pydantic_core import ErrorDetails

from taskgate.config.fields import DurationIn
from taskgate.config.file_watch import FileStamp

Location = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MAX_KEY = 64

_MOST_LISTED = 12
"""The most keys that a message lists."""
_MEANT = {
    **dict.fromkeys(("servers", "mcpServers", "mcp_servers", "backends", "targets"), ("upstreams",)),
    **dict.fromkeys(("type", "kind"), ("backend", "transport", "mode")),
    **dict.fromkeys(("bind", "host", "port"), ("listen",)),
    **dict.fromkeys(("address", "uri", "endpoint"), ("url", "listen")),
    **dict.fromkeys(("cmd", "program", "args"), ("command",)),
    "environment": ("env",),
}
"""The keys for words that other programs have for the same."""

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
    """An unusable configuration. `problems` has all that was found; the text has one per line.

    `files` are those that its references name, as in `References`.
    """

    def __init__(self, problems: Iterable[Problem], files: Mapping[Path, FileStamp] = MappingProxyType({})) -> None:
        self.problems, self.files = tuple(problems), files
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
    """Return the message for an unknown key, with the sibling that its author probably meant.

    Without one it has all siblings, if they are few.
    """
    meant = [each for each in _MEANT.get(key, ()) if each in siblings] or get_close_matches(key, siblings, n=1)
    if meant:
        return f"unknown key (did you mean {meant[0]}?)"
    known = f" (known: {', '.join(sorted(siblings))})" if 0 < len(siblings) <= _MOST_LISTED else ""
    return f"unknown key{known}"


def _quoted(key: str) -> str:
    if len(key) > _MAX_KEY:
        key = f"{key[:_MAX_KEY]}…"
    return key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'


Conflict = tuple[Location, str]
"""The location of a key, and what its value must be, given other keys."""
_Value = TypeVar("_Value")
_ANY_DURATION = DurationIn()


def mapping_at(raw: object, *keys: str) -> Mapping[str, object]:
    """Return the mapping at `keys`, empty where there is none."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, Mapping) else {}


def list_at(raw: object, *keys: str) -> list[object]:
    """Return the list at `keys`, empty where there is none."""
    *above, last = keys
    found = mapping_at(raw, *above).get(last)
    return found if isinstance(found, list) else []


def value_at(trees: tuple[object, object], keys: tuple[str, ...], reader: Callable[[object], _Value]) -> _Value | None:
    """Return the value at `keys` in the first tree that has it, None where it is malformed."""
    *above, last = keys
    holder = next(found for tree in trees if last in (found := mapping_at(tree, *above)))
    try:
        return reader(holder[last])
    except ValueError:
        return None


def duration(value: object) -> timedelta | None:
    """Return the duration that is written, None where it is null, malformed or out of bounds."""
    try:
        return None if value is None else _ANY_DURATION.read(value)
    except ValueError:
        return None


def conflict_between(
    raw: object, defaults: object, one: tuple[str, ...], other: tuple[str, ...], words: tuple[str, str]
) -> Conflict:
    """Return the conflict of two keys at the one that the file has.

    `words` say what `one` must be compared with `other`, and the other way round. Where the file
    has only one of the keys, the message quotes the default of the other.
    """
    if one[-1] not in mapping_at(raw, *one[:-1]):
        one, other, words = other, one, (words[1], words[0])
    is_default = other[-1] not in mapping_at(raw, *other[:-1])
    hint = f", which is {mapping_at(defaults, *other[:-1])[other[-1]]} unless given" if is_default else ""
    return one, f"{words[0]} {dotted(other)}{hint}"


def order_conflict(
    trees: tuple[object, object],
    lower: tuple[str, ...],
    upper: tuple[str, ...],
    bounds: DurationIn = _ANY_DURATION,
) -> Conflict | None:
    """Return the conflict of two durations where the lower one is longer than the upper one.

    None where they are in order, and where one is null, malformed or outside of `bounds`.
    """
    least, most = (value_at(trees, keys, bounds.read) for keys in (lower, upper))
    if least and most and least > most:
        return conflict_between(*trees, lower, upper, ("must be at most", "must be at least"))
    return None
