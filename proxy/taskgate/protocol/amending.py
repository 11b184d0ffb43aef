"""Changing the members of one object where it stands, and those of its `_meta`, which every hop changes.

Knows no message. What holds: members that are not named stay to the byte.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from taskgate.jsontext.edits import dump, removals, splice
from taskgate.jsontext.spans import Members, RawJson, members, skip_space
from taskgate.protocol import vocabulary
from taskgate.protocol.reading import Edits

OF_HOP: Final = frozenset(
    {
        vocabulary.PROTOCOL_VERSION,
        vocabulary.CLIENT_CAPABILITIES,
        vocabulary.CLIENT_INFO,
        vocabulary.SERVER_INFO,
        vocabulary.LOG_LEVEL,
        vocabulary.SUBSCRIPTION_ID,
        vocabulary.RELATED_TASK,
        vocabulary.IMMEDIATE_RESPONSE,
        vocabulary.IDEMPOTENCY_KEY,
        vocabulary.GATEWAY,
    }
)
"""The keys of `_meta` that concern one hop alone (X-EXT-27): those of one era, and what begins as ours do.

All others cross.
"""


OURS: Final = "io.taskgate/"
"""What keys of `_meta` begin with that are ours: nobody else's cross."""
_NEVER_IN_SESSIONS: Final = frozenset({vocabulary.RELATED_TASK, vocabulary.SUBSCRIPTION_ID})
_NOBODYS: Final = frozenset[str]()
_NOTHING: Final[Mapping[str, RawJson]] = MappingProxyType({})


class ObjectEdit(NamedTuple):
    """What is to become of an object: members put in, new or instead of others, and members taken out.

    The same for its `_meta`, which loses the keys that concern one hop alone and are neither put in nor in `meta_keep`
    (V-META-9, B-CONV-9), unless it `keeps_hop` because both sides are of one era, and whatever begins as ours do; it is
    gone where that leaves nothing.
    """

    put: Mapping[str, RawJson] = _NOTHING
    drop: Collection[str] = ()
    meta_put: Mapping[str, RawJson] = _NOTHING
    meta_drop: Collection[str] = ()
    keeps_hop: bool = False
    meta_keep: Collection[str] = ()


def changed(text: RawJson, change: ObjectEdit) -> RawJson:
    """The object that `text` is, changed. Raises MalformedMessage where it repeats a key, or its `_meta` does."""
    return splice(text, edits_of(members(text, {"_meta": {}}), skip_space(text, 0), change))


def edits_of(found: Members, start: int, change: ObjectEdit) -> Edits:
    """The edits that change the object at `start` whose members are `found`, those of its `_meta` among them."""
    put, drop, meta_put, meta_drop, keeps_hop, meta_keep = change
    if "_meta" in drop:
        return object_edits(found, start, put, drop)
    meta = found.get("_meta")
    inner = None if meta is None else meta.members
    if meta is None or inner is None:
        put = {**put, "_meta": f"{{{written(meta_put)}}}"} if meta_put else put
        return object_edits(found, start, put, (*drop, "_meta"))
    foreign = _NOBODYS if keeps_hop else OF_HOP
    gone = {
        name
        for name in inner
        if (name in foreign and name not in meta_keep) or name in meta_drop or name.startswith(OURS)
    }
    if gone and len(gone) == len(inner) and not meta_put:
        return object_edits(found, start, put, (*drop, "_meta"))
    return object_edits(found, start, put, drop) + object_edits(inner, meta.start, meta_put, gone)


def never_in_sessions(meta: Collection[str]) -> set[str]:
    """The keys of a `_meta` that do not cross between two sides of the legacy era (T23, X-EXT-27).

    Such tasks, and whatever begins as ours do, are the gateway's alone; streams have names in the other era.
    """
    return {name for name in meta if name in _NEVER_IN_SESSIONS or name.startswith(OURS)}


def object_edits(found: Members, start: int, put: Mapping[str, RawJson], drop: Collection[str]) -> Edits:
    """The edits for the members of one object; what is both put and dropped is put."""
    if not put:
        return removals(found, drop)
    there = found.keys()
    if there.isdisjoint(put) and there.isdisjoint(drop):
        # Nearly always: something new in an object that keeps what it has.
        new = written(put)
        return [(start + 1, start + 1, f"{new}," if found else new)]
    replaced = [(found[name].start, found[name].end, text) for name, text in put.items() if name in found]
    cut = removals(found, set(drop) - put.keys())
    new = written({name: text for name, text in put.items() if name not in found})
    if not new:
        return replaced + cut
    stays = any(name in put or name not in drop for name in found)
    return [(start + 1, start + 1, f"{new}," if stays else new), *replaced, *cut]


def written(put: Mapping[str, RawJson]) -> RawJson:
    """Members as text, without braces."""
    return ",".join([_key(name) + text for name, text in put.items()])


@lru_cache(maxsize=256)
def _key(name: str) -> RawJson:
    """A key with its colon; there are few, for only names that the code knows are put."""
    return f"{dump(name)}:"
