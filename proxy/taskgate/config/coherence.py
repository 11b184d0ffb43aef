"""What each key allows alone and keys together do not.

What lives here: the rules between keys. What must not: the models, which call this. What holds: it reads the file's
words, not a model, so that contradictions are told together with what is wrong in single keys; parts that are
malformed are passed over, because they are complained about elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from taskgate.config.addresses import Listen, read_listen
from taskgate.config.problems import Location, dotted
from taskgate.config.units import read_duration

Contradiction = tuple[Location, str]
_Value = TypeVar("_Value")


def contradictions(written: object, *, usual: object) -> list[Contradiction]:
    """Every contradiction in `written`, with where it is told; a key that it lacks is as in `usual`."""
    return [
        *_shared_listener(written, usual),
        *_shared_paths(written),
        *_unknown_upstreams(written),
        *_disordered_ttl(written, usual),
    ]


def _shared_listener(written: object, usual: object) -> Iterator[Contradiction]:
    ours: Listen | None = _read((written, usual), ("server", "listen"), read_listen)
    theirs: Listen | None = _read((written, usual), ("admin", "listen"), read_listen)
    if ours and theirs and ours.overlaps(theirs):
        words = "must not be" if ours == theirs else "must not take the address and port of"
        yield _told(written, usual, ("server", "listen"), ("admin", "listen"), (words, words))


def _shared_paths(written: object) -> Iterator[Contradiction]:
    owners: dict[str, str] = {}
    for name in _section(written, "upstreams"):
        path = _section(written, "upstreams", name).get("path")
        if isinstance(path, str) and owners.setdefault(path, name) != name:
            yield ("upstreams", name, "path"), f"must not be the path of {dotted(('upstreams', owners[path]))}"


def _unknown_upstreams(written: object) -> Iterator[Contradiction]:
    known = _section(written, "upstreams")
    rules = _section(written, "tasks").get("upgrade")
    for index, rule in enumerate(rules if known and isinstance(rules, list) else []):
        name = _section(rule).get("upstream")
        if isinstance(name, str) and name not in known:
            yield ("tasks", "upgrade", index, "upstream"), "must be the name of an upstream of this file"


def _disordered_ttl(written: object, usual: object) -> Iterator[Contradiction]:
    lengths = {key: _read((written, usual), ("tasks", "ttl", key), read_duration) for key in ("min", "default", "max")}
    for lower, upper in (("min", "max"), ("min", "default"), ("default", "max")):
        least, most = lengths[lower], lengths[upper]
        if least and most and least > most:
            where = ("tasks", "ttl", lower), ("tasks", "ttl", upper)
            yield _told(written, usual, *where, ("must be at most", "must be at least"))
            return


def _told(
    written: object, usual: object, one: tuple[str, ...], other: tuple[str, ...], words: tuple[str, str]
) -> Contradiction:
    """The contradiction of two keys, told where the file has one of them, with the default of one that it lacks."""
    if one[-1] not in _section(written, *one[:-1]):
        one, other, words = other, one, (words[1], words[0])
    hint = "" if other[-1] in _section(written, *other[:-1]) else f", which is {_usual(usual, other)} unless given"
    return one, f"{words[0]} {dotted(other)}{hint}"


def _usual(usual: object, keys: tuple[str, ...]) -> object:
    return _section(usual, *keys[:-1])[keys[-1]]


def _section(written: object, *keys: str) -> Mapping[str, object]:
    """The mapping at `keys`, empty where there is none."""
    for key in keys:
        written = written.get(key) if isinstance(written, Mapping) else None
    return written if isinstance(written, Mapping) else {}


def _read(trees: tuple[object, object], keys: tuple[str, ...], read: Callable[[object], _Value]) -> _Value | None:
    """The value at `keys` in the first tree that has it; None where it is malformed."""
    *above, last = keys
    section = next(found for tree in trees if last in (found := _section(tree, *above)))
    try:
        return read(section[last])
    except ValueError:
        return None
