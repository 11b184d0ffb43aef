"""Look-ups in the plain values of a file, valid or not, for the rules between keys.

The rules read the file rather than a model, so that its author sees conflicts together with what
is wrong in single keys. A key that the file lacks has its default. Malformed parts read as absent,
because the models report them. Only `value_at` and `order_conflict` raise: StopIteration for a key
that neither the file nor the defaults have.

`raw` is always the file's whole tree, or a part of it, and `defaults` a tree of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from taskgate.config.problems import Location, dotted
from taskgate.config.units import DurationIn

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
