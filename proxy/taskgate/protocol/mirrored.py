"""Which arguments of a tool are repeated in headers: what its input schema says, and whether it may say so (H-MOD-5).

Headers themselves are `headers`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from taskgate.protocol.vocabulary import PARAM_ANNOTATION


def mirrored_arguments(schema: object) -> dict[str, tuple[str, ...]]:
    """The arguments that a tool with this input schema wants repeated, in no certain order.

    From the rest of the header's name, as the tool spells it, to the path of names that leads to the argument.
    ValueError, for which a tool is not to be offered at all: a name that no header can have, or that two arguments
    share but for its case; an argument that is no string, integer or boolean; one within an array or an alternative.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for path, annotated in _annotated(schema):
        name = annotated[PARAM_ANNOTATION]
        if path is None:
            raise ValueError("an annotation stands where no name leads")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError("an annotation is no name of a header")
        if annotated.get("type") not in _PRIMITIVE:
            raise ValueError("an annotated argument is not of a primitive type")
        header = name.lower()
        if header in taken:
            raise ValueError("two annotations are the same name")
        taken.add(header)
        found[name] = path
    return found


def _annotated(schema: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every annotated schema within a schema, with its path; None where it is not reached through names alone."""
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        path, within = waiting.pop()
        if isinstance(within, list):
            waiting += [(None, each) for each in within]
        elif isinstance(within, dict):
            if PARAM_ANNOTATION in within:
                # The root is no argument.
                yield path or None, within
            for keyword, value in within.items():
                waiting += _below(path, keyword, value)


def _below(path: tuple[str, ...] | None, keyword: str, value: Any) -> list[tuple[tuple[str, ...] | None, Any]]:
    """The schemas that a keyword holds; arrays of them are left whole."""
    if keyword in _VALUES:
        return []
    if keyword in _NAMED and isinstance(value, dict):
        if path is None or keyword != "properties":
            return [(None, each) for each in value.values()]
        return [((*path, name), each) for name, each in value.items()]
    return [(None, value)]


# Of 1*tchar, as the names of all headers.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRIMITIVE: Final = ("string", "integer", "boolean")
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is no schema but has one under every name."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords that hold no schema."""
