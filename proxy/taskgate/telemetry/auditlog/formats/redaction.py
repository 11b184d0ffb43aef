"""The removal of secrets from lines."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.selectors import NameSelector

MAX_NAME: Final = 128
"""Letters that are kept of a name, an id or a version."""
MAX_SENTENCE: Final = 256
"""Letters that are kept of what is a sentence."""
WITHHELD: Final = "[withheld]"
"""What stands in the place of what looks like an id of a task or a session, or a token."""

_WORD: Final = r"[A-Za-z0-9_-]"
_MIN_SECRET: Final = 20
_SUSPECT: Final = re.compile(rf"{_WORD}{{32}}|eyJ")
_SECRET: Final = re.compile(
    # Ids of ours, but neither the 32 digits of a UUID nor a name of as many letters that somebody thought of;
    rf"(?<!{_WORD})(?={_WORD}*[a-z])(?={_WORD}*[A-Z])(?={_WORD}*(?:[0-9]|[A-Z]{{2}})){_WORD}{{32}}(?!{_WORD})"
    # and tokens that are JWTs.
    rf"|eyJ{_WORD}+\.eyJ{_WORD}+(?:\.{_WORD}*)?"
)


def scrubbed(value: Any, most: int = MAX_NAME) -> str | None:
    """As `shown`, for what anybody may have said: hosts put ids into reasons, names and ids of messages of theirs."""
    if isinstance(value, str) and len(value) >= _MIN_SECRET:
        # What is far behind the cut is not shown, and to look for tokens takes longer the longer a word is.
        value = value[: 4 * most]
        if _SUSPECT.search(value):
            value = _SECRET.sub(WITHHELD, value)
    return printable(value, most)


def printable(value: Any, most: int = MAX_NAME) -> str | None:
    """A text without what does not print, cut to `most` letters; None for what is no text."""
    if not isinstance(value, str):
        return None
    if len(value) > most:
        value = f"{value[:most]}…"
    return value if value.isprintable() else "".join(each for each in value if each.isprintable())


scrubbed_cached: Final = lru_cache(maxsize=1024)(scrubbed)
"""The same for words that come again with most requests, such as the name of a tool."""


REDACTED: Final = "[redacted]"
"""What stands where something was taken out."""

_ENVIRONMENT: Final = JSONPathEnvironment(strict=True)


class FieldRedaction:
    """Paths, and how to take out what they find."""

    __slots__ = ("_paths",)

    def __init__(self, paths: tuple[JSONPath, ...]) -> None:
        self._paths = paths

    def apply(self, value: Any) -> Any:
        """The value, changed in place, without what the paths find in it as it was.

        Raises ValueError where that cannot be told, because it is nested too deep.
        """
        try:
            found = [match for path in self._paths for match in path.finditer(value)]
        except (JSONPathError, RecursionError) as error:
            raise ValueError("the paths cannot be followed") from error
        for match in found:
            if match.parent is None:
                return REDACTED
            match.parent.obj[match.parts[-1]] = REDACTED  # type: ignore[index]  # what has children can be set
        return value


def parse_paths(paths: Iterable[str]) -> FieldRedaction:
    """Read the paths. Raises ValueError, with one line for the operator, for what is no JSONPath."""
    return FieldRedaction(tuple(_path(text) for text in paths))


def _path(text: str) -> JSONPath:
    try:
        path = _ENVIRONMENT.compile(text)
    except JSONPathError as error:
        # The text of the error has the path again, over several lines.
        reason = str(error.args[0]).partition("\n")[0]
        raise ValueError(f"{text!r} is no JSONPath: {reason}") from None
    assert isinstance(path, JSONPath), "the strict grammar has one path, and not several"
    for segment in path.segments:
        segment.selectors = tuple(
            _CaseInsensitiveName(env=each.env, token=each.token, name=each.name) if type(each) is NameSelector else each
            for each in segment.selectors
        )
    return path


class _CaseInsensitiveName(NameSelector):
    """Selects the members of an object that have a name, in any case."""

    __slots__ = ()

    def resolve(self, node: JSONPathMatch) -> Iterable[JSONPathMatch]:
        """The members of one node."""
        if isinstance(node.obj, Mapping):
            wanted = self.name.casefold()
            for name, value in node.obj.items():
                if name.casefold() == wanted:
                    match = node.new_child(value, name)
                    node.add_child(match)
                    yield match
