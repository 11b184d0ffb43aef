"""The removal of secrets from arguments: `FieldRedaction`, made by `parse_paths`. Pure.

It removes the values that JSONPaths (RFC 9535) find. It ignores the case of member names: a
disclosed secret costs more than a missing value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.selectors import NameSelector

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
