"""How a task lies in Redis: the names of keys, the fields of a row, and the scripts that know both.

    task:ID                     HASH  the row: head, rev, owner, holder ("" for nobody), until (0 for nobody), open ("1"
                                      while unfinished), mark (of its last change), sends ("1" where it may be sent),
                                      what indexes and caps have it under and, written once, params, kind and outcome
    created:STATE:OWNER         ZSET  one list of an owner: time and id in one text, in the order of these
    updated:STATE:OWNER         ZSET  the same by the other time
    all:STATE                   ZSET  ids by their expiry
    open                        ZSET  ids of what is unfinished by the end of the lease
    unfinished:SHARE            ZSET  ids of what is unfinished by expiry, for each thing that caps count by
    kept:SHARE                  TEXT  bytes of bodies, for a context and for all
    repeat:NAME                 TEXT  expiry and id of what stands for a name

Each key outlives what is in it by BACKSTOP, for the case that nobody is left to purge. Times are microseconds since
1970. A digest stands for whatever hosts or operators name; an id is its own. What must not live here: when anything of
it is written or read.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Final

from taskgate.domain.caps import Cap
from taskgate.domain.listing import STATES, TaskState
from taskgate.domain.record import Lease, Outcome, OwnerKey, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.spans import RawJson
from taskgate.stores.capacity import record_size, stored_size
from taskgate.stores.codec import (
    pack_head,
    pack_outcome,
    pack_span,
    pack_text,
    pack_time,
    unpack_outcome,
    unpack_text,
    unpack_time,
    with_bodies,
)
from taskgate.stores.redis.client import Script, Value
from taskgate.stores.redis.keys import digest

BACKSTOP: Final = 7 * 24 * 3600 * 1000
"""Milliseconds."""

TIME_WIDTH: Final = 18
"""Letters of a time in a place of a list."""

HEAD: Final = ("head", "owner", "holder", "until")
WHOLE: Final = (*HEAD, "params", "kind", "outcome")

_NOBODY: Final = 0
_TEXTS: Final = resources.files(__package__)


def _script(name: str) -> Script:
    return Script("".join((_TEXTS / f"{part}.lua").read_text(encoding="utf-8") for part in ("tasks", name)))


INSERT: Final = _script("insert")
SWAP: Final = _script("swap")
RENEW: Final = _script("renew")
LAPSED: Final = _script("lapsed")
PURGE: Final = _script("purge")
PAGE: Final = _script("page")
PICK: Final = _script("pick")
RESTORE: Final = _script("restore")
WITHDRAW: Final = _script("withdraw")
COUNT: Final = _script("count")


@lru_cache(maxsize=1024)
def owner_name(owner: OwnerKey) -> str:
    """What stands for an owner."""
    return digest(*owner)


def repeat_name(owner: OwnerKey, key: str) -> str:
    """What stands for a call that its owner has given a name."""
    return digest(*owner, key)


def state_name(state: TaskState) -> str:
    """What stands for a state."""
    return _STATE_NAMES[state]


def time_text(moment: int) -> bytes:
    """A time as what sorts as it does."""
    return b"%018d" % moment


def inserted(
    root: str,
    mark: str,
    record: TaskRecord,
    caps: tuple[Cap, ...],
    *,
    head: bytes | None = None,
    within: timedelta | None = None,
) -> list[Value]:
    """The arguments of INSERT and, without caps, of RESTORE; `head` if it is packed already.

    After `within` from when the record was made, by the server's time, it is not inserted any more.

    `mark` is what no other change has; whose it is knows of the change without being told.
    """
    shares = _shares(*record.owner, record.tenant, record.call.tool)
    bounds: list[Value] = []
    for cap in caps:
        share = shares[cap.place]
        if share is not None:
            bounds += ("bytes" if cap.bytes else "tasks", share, cap.limit)
    owner, state = owner_name(record.owner), _STATE_NAMES[TaskState(record.status, record.tool_error)]
    is_open, (holder, until) = "" if record.status.is_terminal else "1", _pack_lease(record.lease)
    name = "" if record.repeat_key is None else repeat_name(record.owner, record.repeat_key)
    not_after = 0 if within is None else pack_time(record.created_at + within)
    return [
        *(root, mark, record.id, record.revision, _span(record), owner, state),
        *(_time_text(record.created_at), _time_text(record.updated_at), pack_time(record.expires_at)),
        *(is_open, holder, until, name, record_size(record)),
        *(" ".join(filter(None, shares)), _sends(record), head or pack_head(record), len(bounds) // 3, not_after),
        *bounds,
        *_bodies(record),
    ]


def swapped(root: str, mark: str, record: TaskRecord, expected: int, *, head: bytes) -> list[Value]:
    """The arguments of SWAP."""
    holder, until = _pack_lease(record.lease)
    state = _STATE_NAMES[TaskState(record.status, record.tool_error)]
    is_named, is_open = "" if record.repeat_key is None else "1", "" if record.status.is_terminal else "1"
    size = 0 if record.outcome is None else stored_size(None, record.outcome)
    return [
        *(root, mark, record.id, expected, record.revision, _span(record), state, _time_text(record.updated_at)),
        *(is_open, holder, until, is_named, _sends(record), size, head, *_outcome(record.outcome)),
    ]


def unpack_lease(holder: bytes | None, until: bytes | None) -> Lease | None:
    """The lease that two fields hold. Raises StoreUnavailable where they hold none that anybody wrote."""
    return Lease(holder=unpack_text(holder), until=unpack_moment(until)) if holder else None


def unpack_moment(field: bytes | None) -> datetime:
    """The moment that a field holds. Raises StoreUnavailable where it holds none."""
    try:
        return unpack_time(unpack_number(field))
    except OverflowError as error:
        raise _unreadable() from error


def unpack_number(field: bytes | None) -> int:
    """The number that a field holds. Raises StoreUnavailable where it holds none."""
    try:
        return int(field or b"")
    except ValueError as error:
        raise _unreadable() from error


def _unreadable() -> StoreUnavailable:
    return StoreUnavailable("A stored record cannot be read")


def unpack_bodies(head: TaskRecord, params: bytes | None, kind: bytes | None, outcome: bytes | None) -> TaskRecord:
    """The record with the bodies that its row has."""
    return with_bodies(head, _text(params), None if kind is None else _unpack_outcome(kind, outcome))


_STATE_NAMES: Final = {state: state.status.value + ("!" if state.tool_error else "") for state in STATES}
ALL_STATES: Final = tuple(_STATE_NAMES.values())


@lru_cache(maxsize=1024)
def _shares(context: str, mount: str, tenant: str | None, tool: str) -> tuple[str | None, ...]:
    """What a record has in common with others, in the order of CapScope."""
    return (
        f"context:{digest(context)}",
        None if tenant is None else f"tenant:{digest(tenant)}",
        f"tool:{digest(mount, tool)}",
        f"upstream:{digest(mount)}",
        "everybody",
    )


def _time_text(moment: datetime) -> bytes:
    return time_text(pack_time(moment))


def _bodies(record: TaskRecord) -> Sequence[Value]:
    params = record.call.params
    return (*(() if params is None else ("params", pack_text(params))), *_outcome(record.outcome))


def _outcome(outcome: Outcome | None) -> Sequence[Value]:
    if outcome is None:
        return ()
    kind, body = pack_outcome(outcome)
    return "kind", kind, "outcome", body


def _unpack_outcome(kind: bytes, body: bytes | None) -> Outcome:
    if body is None:
        raise StoreUnavailable("A stored record cannot be read")
    return unpack_outcome(unpack_text(kind), body)


def _text(body: bytes | None) -> RawJson | None:
    return None if body is None else unpack_text(body)


def _sends(record: TaskRecord) -> str:
    return "1" if record.may_go_on else ""


def _span(record: TaskRecord) -> int:
    """For how long the keys of a record have to be there, in milliseconds."""
    return pack_span(record.ttl) // 1000 + BACKSTOP


def _pack_lease(lease: Lease | None) -> tuple[bytes, int]:
    return (b"", _NOBODY) if lease is None else (pack_text(lease.holder), pack_time(lease.until))
