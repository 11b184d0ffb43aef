"""The removal of secrets: `scrubbed` for texts of peers, `FieldRedaction` for arguments. Pure.

Texts are cut, and lose characters that do not print, ids of tasks and sessions, and tokens.
Redaction removes the values that JSONPaths (RFC 9535) find. It ignores the case of member names: a
disclosed secret costs more than a missing value.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.selectors import NameSelector

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
    """A text without characters that do not print, cut to `most`; None for other values."""
    if not isinstance(value, str):
        return None
    if len(value) > most:
        value = f"{value[:most]}…"
    return value if value.isprintable() else "".join(each for each in value if each.isprintable())


scrubbed_cached: Final = lru_cache(maxsize=1024)(scrubbed)
"""`scrubbed`, cached: for texts that repeat with most requests, such as tool names."""


REDACTED: Final = "[redacted]"
"""Replaces a removed value."""

_ENVIRONMENT: Final = JSONPathEnvironment(strict=True)


class FieldRedaction:
    """The removal of the values that its JSONPaths find."""

    __slots__ = ("_paths",)

    def __init__(self, paths: tuple[JSONPath, ...]) -> None:
        self._paths = paths

    def apply(self, value: Any) -> Any:
        """The value, changed in place; the paths are evaluated before the first change.

        Raises ValueError when it is nested too deep to search.
        """
        try:
            found = [match for path in self._paths for match in path.finditer(value)]
        except (JSONPathError, RecursionError) as error:
            raise ValueError("the value is nested too deep for the redaction paths") from error
        for match in found:
            if match.parent is None:
                return REDACTED
            match.parent.obj[match.parts[-1]] = REDACTED  # type: ignore[index]  # what has children can be set
        return value


def parse_paths(paths: Iterable[str]) -> FieldRedaction:
    """Parse JSONPaths. Raises ValueError with a one-line message for an invalid one."""
    return FieldRedaction(tuple(_path(text) for text in paths))


def _path(text: str) -> JSONPath:
    try:
        path = _ENVIRONMENT.compile(text)
    except JSONPathError as error:
        # The full error text repeats the path over several lines.
        reason = str(error.args[0]).partition("\n")[0]
        raise ValueError(f"{text!r} is not a valid JSONPath: {reason}") from None
    assert isinstance(path, JSONPath), "the strict grammar has no compound paths"
    for segment in path.segments:
        segment.selectors = tuple(
            _CaseInsensitiveName(env=each.env, token=each.token, name=each.name) if type(each) is NameSelector else each
            for each in segment.selectors
        )
    return path


class _CaseInsensitiveName(NameSelector):
    """A selector of members of an object by name, ignoring case."""

    __slots__ = ()

    def resolve(self, node: JSONPathMatch) -> Iterable[JSONPathMatch]:
        """The matching members of one node."""
        if isinstance(node.obj, Mapping):
            wanted = self.name.casefold()
            for name, value in node.obj.items():
                if name.casefold() == wanted:
                    match = node.new_child(value, name)
                    node.add_child(match)
                    yield match
