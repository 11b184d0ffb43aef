"""What is taken out of arguments before they are shown in full: whatever JSONPath (RFC 9535) finds. Pure.

Names of members are found in any case: a secret that is shown costs more than a value that is not.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.selectors import NameSelector

REDACTED: Final = "[redacted]"
"""What stands where something was taken out."""

_ENVIRONMENT: Final = JSONPathEnvironment(strict=True)


class FieldRedaction:
    """Paths, and how to take out what they find."""

    __slots__ = ("_paths",)

    def __init__(self, paths: tuple[JSONPath, ...]) -> None:
        self._paths = paths

    def applied(self, value: Any) -> Any:
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


def parse(paths: Iterable[str]) -> FieldRedaction:
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
            _AnyCase(env=each.env, token=each.token, name=each.name) if type(each) is NameSelector else each
            for each in segment.selectors
        )
    return path


class _AnyCase(NameSelector):
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
