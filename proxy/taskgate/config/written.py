"""Looking into what a file says, whether or not it makes sense.

What lives here: finding sections and values by their keys, and wording what two keys say against each other. What must
not: any key of the configuration. What holds: whatever the tree is made of, nothing raises but KeyError and
StopIteration for a key that no tree has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from taskgate.config.problems import Location, dotted

Contradiction = tuple[Location, str]
_Value = TypeVar("_Value")


def section(written: object, *keys: str) -> Mapping[str, object]:
    """The mapping at `keys`, empty where there is none."""
    for key in keys:
        written = written.get(key) if isinstance(written, Mapping) else None
    return written if isinstance(written, Mapping) else {}


def listed(written: object, *keys: str) -> list[object]:
    """The list at `keys`, empty where there is none."""
    *above, last = keys
    found = section(written, *above).get(last)
    return found if isinstance(found, list) else []


def read(trees: tuple[object, object], keys: tuple[str, ...], reader: Callable[[object], _Value]) -> _Value | None:
    """The value at `keys` in the first tree that has it; None where it is malformed."""
    *above, last = keys
    holder = next(found for tree in trees if last in (found := section(tree, *above)))
    try:
        return reader(holder[last])
    except ValueError:
        return None


def told(
    written: object, usual: object, one: tuple[str, ...], other: tuple[str, ...], words: tuple[str, str]
) -> Contradiction:
    """The contradiction of two keys, told where the file has one of them, with the default of one that it lacks."""
    if one[-1] not in section(written, *one[:-1]):
        one, other, words = other, one, (words[1], words[0])
    lacking = other[-1] not in section(written, *other[:-1])
    hint = f", which is {section(usual, *other[:-1])[other[-1]]} unless given" if lacking else ""
    return one, f"{words[0]} {dotted(other)}{hint}"
