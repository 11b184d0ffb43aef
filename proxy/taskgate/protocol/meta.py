"""`_meta` and the edits of an object that has one: `ObjectEdit`. Also the trace keys in `_meta`.

A hop is the way between two neighbours: host and gateway, or gateway and server. Some keys of
`_meta` concern one hop alone and do not cross the gateway; all others cross to the byte. Both eras
use `edit_object` on a text, or `edits_for` to combine edits with others. The trace keys are the
same in both eras (SEP-414).
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, dump, removals, splice, splice_range
from taskgate.jsontext.spans import Members, RawJson, members, skip_space
from taskgate.protocol import vocabulary as names
from taskgate.protocol.messages import Params, meta_of, value_of

HOP_KEYS: Final = frozenset(
    {
        names.PROTOCOL_VERSION,
        names.CLIENT_CAPABILITIES,
        names.CLIENT_INFO,
        names.SERVER_INFO,
        names.LOG_LEVEL,
        names.SUBSCRIPTION_ID,
        names.RELATED_TASK,
        names.IMMEDIATE_RESPONSE,
        names.IDEMPOTENCY_KEY,
        names.GATEWAY,
    }
)
"""The keys of `_meta` that concern one hop alone (X-EXT-27): those of one era, and taskgate's own.
"""

OWN_PREFIX: Final = "io.taskgate/"
"""The prefix of taskgate's own keys of `_meta`: such keys from other senders are removed."""

_NEVER_IN_LEGACY: Final = frozenset({names.RELATED_TASK, names.SUBSCRIPTION_ID})
_NO_KEYS: Final = frozenset[str]()
_NOTHING: Final[Mapping[str, RawJson]] = MappingProxyType({})


class ObjectEdit(NamedTuple):
    """A change of an object and its `_meta`. Even one without arguments removes keys of `_meta`.

    `put` adds or replaces members, `drop` removes members; a member in both is put. `meta_put` and
    `meta_drop` do the same in its `_meta`. The `HOP_KEYS` of `_meta` are removed too (V-META-9,
    B-CONV-9), except those in `meta_put` or `meta_keep`. With `keeps_hop`, for two sides of one
    era, all of them stay. Keys with `OWN_PREFIX` are removed unless put. So is a `_meta` that
    loses all members, and one that is no object.
    """

    put: Mapping[str, RawJson] = _NOTHING
    drop: Collection[str] = ()
    meta_put: Mapping[str, RawJson] = _NOTHING
    meta_drop: Collection[str] = ()
    keeps_hop: bool = False
    meta_keep: Collection[str] = ()


def edit_object(text: RawJson, change: ObjectEdit) -> RawJson:
    """The object `text`, changed. Raises MalformedMessage if it repeats a key, or its `_meta`
    does.
    """
    return splice(text, edits_for(members(text, {"_meta": {}}), skip_space(text, 0), change))


def edits_for(found: Members, start: int, change: ObjectEdit) -> Edits:
    """The edits for a change of the object that starts at `start` of a text.

    `found` are its members, read with `_meta` open: positions are those of that text.
    """
    put, drop, meta_put, meta_drop, keeps_hop, meta_keep = change
    if "_meta" in drop:
        return member_edits(found, start, put, drop)
    meta = found.get("_meta")
    inner = None if meta is None else meta.members
    if meta is None or inner is None:
        if not put and not meta_put:
            return removals(found, (*drop, "_meta"))
        put = {**put, "_meta": f"{{{members_text(meta_put)}}}"} if meta_put else put
        return member_edits(found, start, put, (*drop, "_meta"))
    hop_keys = _NO_KEYS if keeps_hop else HOP_KEYS
    gone = {
        name
        for name in inner
        if (name in hop_keys and name not in meta_keep) or name in meta_drop or name.startswith(OWN_PREFIX)
    }
    if gone and len(gone) == len(inner) and not meta_put:
        return member_edits(found, start, put, (*drop, "_meta"))
    return member_edits(found, start, put, drop) + member_edits(inner, meta.start, meta_put, gone)


def legacy_hop_keys(meta: Collection[str]) -> set[str]:
    """The keys of a `_meta` that do not cross between two legacy sides (T23, X-EXT-27).

    Related tasks and taskgate's own keys belong to the gateway; stream names belong to the modern
    era.
    """
    return {name for name in meta if name in _NEVER_IN_LEGACY or name.startswith(OWN_PREFIX)}


def member_edits(found: Members, start: int, put: Mapping[str, RawJson], drop: Collection[str]) -> Edits:
    """The edits for the members of the object at `start`, without the rules for `_meta`.

    `found` are its members. A member that is both put and dropped is put.
    """
    if not put:
        return removals(found, drop)
    present = found.keys()
    if present.isdisjoint(put) and present.isdisjoint(drop):
        # The common case: new members in an object that keeps all it has.
        new = members_text(put)
        return [(start + 1, start + 1, f"{new}," if found else new)]
    replaced = [(found[name].start, found[name].end, text) for name, text in put.items() if name in found]
    removed = removals(found, set(drop) - put.keys())
    new = members_text({name: text for name, text in put.items() if name not in found})
    if not new:
        return replaced + removed
    has_rest = any(name in put or name not in drop for name in found)
    return [(start + 1, start + 1, f"{new}," if has_rest else new), *replaced, *removed]


def members_text(put: Mapping[str, RawJson]) -> RawJson:
    """Members as text, without braces."""
    return ",".join([_key(name) + text for name, text in put.items()])


@lru_cache(maxsize=256)
def _key(name: str) -> RawJson:
    """A key with its colon. There are few: only names from the code are put."""
    return f"{dump(name)}:"


# --- trace keys -------------------------------------------------------------------------------------------------------


class TraceKeys(NamedTuple):
    """The `traceparent` and `tracestate` of a message, as written and not validated."""

    traceparent: str
    tracestate: str | None = None


def read_trace_keys(params: Members) -> TraceKeys | None:
    """The trace keys of a request with these parameters; None without a `traceparent` that is a
    string.
    """
    meta = meta_of(params)
    parent, state = value_of(meta, names.TRACEPARENT), value_of(meta, names.TRACESTATE)
    if not isinstance(parent, str):
        return None
    return TraceKeys(parent, state if isinstance(state, str) else None)


def with_trace_keys(params: Params | None, keys: TraceKeys) -> Params:
    """The parameters with these trace keys instead of the sender's, and without the sender's
    baggage.

    All else stays to the byte. Parameters that are no object or repeat a key stay as they are.
    """
    put = {names.TRACEPARENT: dump(keys.traceparent)}
    if keys.tracestate is not None:
        put[names.TRACESTATE] = dump(keys.tracestate)
    if params is None:
        return Params(f'{{"_meta":{{{members_text(put)}}}}}')
    if not params.head.startswith("{"):
        return params
    if params.tail is None and '"_meta"' not in params.head and "\\u" not in params.head:
        # Without escapes, no key can be `_meta`: the object is not walked.
        return Params(_append_member(params.head, f'"_meta":{{{members_text(put)}}}'))
    try:
        return _traced(params, put)
    except MalformedMessage:
        # A request without a trace is better than one that is refused: its server may be able to
        # read it.
        return params


def _append_member(text: RawJson, member: str) -> RawJson:
    """An object with one more member at its end, so that its first member stays the first."""
    end = len(text) - 1
    comma = "" if skip_space(text, 1) == end else ","
    return f"{text[:end]}{comma}{member}}}"


def _traced(params: Params, put: dict[str, RawJson]) -> Params:
    # A token of one character keeps the position of the sender's token known.
    text = params.with_token(0)
    change = ObjectEdit(meta_put=put, meta_drop=(names.TRACESTATE, names.BAGGAGE), keeps_hop=True)
    edits = edits_for(members(text, {"_meta": {}}), 0, change)
    if params.tail is None:
        return Params(splice_range(text, 0, len(text), edits))
    open_at = len(params.head)
    return Params(splice_range(text, 0, open_at, edits), splice_range(text, open_at + 1, len(text), edits))


def related_task(meta: Members) -> str | None:
    """The task id in the related-task key of this `_meta`; None without a valid key.

    Of a server's message this is the server's id.
    """
    related = value_of(meta, names.RELATED_TASK)
    id_ = related.get("taskId") if isinstance(related, dict) else None
    return id_ if isinstance(id_, str) else None
