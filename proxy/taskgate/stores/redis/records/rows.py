"""The layout of tasks in Redis: the names of keys, the fields of a row, and the scripts that use
both.

    task:ID                     HASH  the row: head, rev, owner, holder ("" without a lease), until (0 without one),
                                      open ("1" while unfinished), mark (of its last change), sends ("1" if a takeover
                                      may send or resume the call), the keys of its indexes and caps, reference and,
                                      written once, params, kind, outcome and the names of the caller; transitions
                                      (as `codec` packs them) if there are any to statuses that are not terminal
    reference:REFERENCE         TEXT  id of the task with that public reference
    created:STATE:OWNER         ZSET  one list of an owner: time and id in one text, in the order of these
    updated:STATE:OWNER         ZSET  the same by the other time
    all:STATE                   ZSET  ids by their expiry
    open                        ZSET  ids of unfinished tasks by the end of the lease
    unfinished:SHARE            ZSET  ids of unfinished tasks by expiry, for each key that caps count by
    kept:SHARE                  TEXT  bytes of bodies, of a context, of a person and of all
    repeat:NAME                 TEXT  expiry and id of the record of an idempotency key

Earlier releases know no references, transitions and names of callers. They leave these fields as they are, and
the next change by a later release adds the reference. The SHARE of all tasks has every unfinished one.
Each key outlives its content by BACKSTOP, in case no gateway is left to purge it. Times are
microseconds since 1970. A digest replaces each name that hosts or operators choose; ids are used as
they are. The other modules of this folder read and write the rows.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Final

from taskgate.domain.limits import Cap
from taskgate.domain.listing import STATES, TaskState
from taskgate.domain.record import Lease, Outcome, OwnerKey, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.spans import RawJson
from taskgate.stores.capacity import record_size, stored_size
from taskgate.stores.codec import (
    MICROSECOND,
    pack_caller,
    pack_head,
    pack_outcome,
    pack_text,
    pack_time,
    unpack_head,
    unpack_outcome,
    unpack_text,
    unpack_time,
    with_bodies,
)
from taskgate.stores.redis.client import Script, Value
from taskgate.stores.redis.options import digest

BACKSTOP: Final = 7 * 24 * 3600 * 1000
"""Milliseconds that a key outlives its content."""

TIME_WIDTH: Final = 18
"""Characters of a time in a position of a list."""

HEAD: Final = ("head", "owner", "holder", "until", "expires", "caller")
WHOLE: Final = (*HEAD, "params", "kind", "outcome")

_NO_LEASE: Final = 0
_TEXTS: Final = resources.files(__package__)


def _script(name: str) -> Script:
    return Script("".join((_TEXTS / f"{part}.lua").read_text(encoding="utf-8") for part in ("tasks", name)))


INSERT: Final = _script("insert")
SWAP: Final = _script("swap")
RENEW: Final = _script("renew")
LAPSED: Final = _script("lapsed")
PURGE: Final = _script("purge")
PAGE: Final = _script("page")
FIELDS: Final = _script("fields")
NEWEST: Final = _script("newest")
RESTORE: Final = _script("restore")
WITHDRAW: Final = _script("withdraw")
COUNT: Final = _script("count")
SCAN: Final = _script("scan")


@lru_cache(maxsize=1024)
def owner_name(owner: OwnerKey) -> str:
    """The digest of an owner."""
    return digest(*owner)


def repeat_name(owner: OwnerKey, key: str) -> str:
    """The digest of an owner's idempotency key."""
    return digest(*owner, key)


def state_name(state: TaskState) -> str:
    """The name of a state in keys."""
    return _STATE_NAMES[state]


def time_text(moment: int) -> bytes:
    """A time as text that sorts in the same order."""
    return b"%018d" % moment


def insert_arguments(
    root: str,
    mark: str,
    record: TaskRecord,
    caps: tuple[Cap, ...],
    *,
    reference: str,
    head: bytes | None = None,
    within: timedelta | None = None,
    subject: str | None = None,
) -> list[Value]:
    """The arguments of INSERT and, without caps, of RESTORE; `head` if it is already encoded.
    `reference` is the public reference, and `subject` the person that the record counts for.

    If `within` has passed since the creation of the record, by the server's time, the insert is
    refused. `mark` is unique to this change; the process that made it ignores its message.
    """
    cap_keys = _cap_keys(*record.owner, subject, record.tenant, record.call.tool)
    bounds: list[Value] = []
    for cap in caps:
        share = cap_keys[cap.place]
        if share is not None:
            bounds += ("bytes" if cap.bytes else "tasks", share, cap.limit)
    owner, state = owner_name(record.owner), _STATE_NAMES[TaskState(record.status, record.tool_error)]
    is_open, (holder, until) = "" if record.status.is_terminal else "1", _pack_lease(record.lease)
    name = "" if record.idempotency_digest is None else repeat_name(record.owner, record.idempotency_digest)
    not_after = 0 if within is None else pack_time(record.created_at + within)
    return [
        *(root, mark, record.id, record.revision, _span(record), owner, state),
        *(_time_text(record.created_at), _time_text(record.updated_at), pack_time(record.expires_at)),
        *(is_open, holder, until, name, record_size(record)),
        *(" ".join(filter(None, cap_keys)), _sends(record), head or pack_head(record), len(bounds) // 3, not_after),
        reference,
        *bounds,
        *(() if record.caller is None else ("caller", pack_caller(record.caller))),
        *_bodies(record),
    ]


def swap_arguments(
    root: str, mark: str, record: TaskRecord, expected: int, *, head: bytes, reference: str
) -> list[Value]:
    """The arguments of SWAP; `expected` is the revision that the row must have. The others as above."""
    holder, until = _pack_lease(record.lease)
    state = _STATE_NAMES[TaskState(record.status, record.tool_error)]
    is_named, is_open = "" if record.idempotency_digest is None else "1", "" if record.status.is_terminal else "1"
    size = 0 if record.outcome is None else stored_size(None, record.outcome)
    return [
        *(root, mark, record.id, expected, record.revision, _span(record), state, _time_text(record.updated_at)),
        *(is_open, holder, until, is_named, _sends(record), size, head, reference, pack_time(record.expires_at)),
        *_outcome(record.outcome),
    ]


def unpack_lease(holder: bytes | None, until: bytes | None) -> Lease | None:
    """Decode a lease from its two fields. Raises StoreUnavailable if they are damaged."""
    return Lease(holder=unpack_text(holder), until=unpack_moment(until)) if holder else None


def unpack_moment(field: bytes | None) -> datetime:
    """Decode a time. Raises StoreUnavailable if the field is damaged."""
    try:
        return unpack_time(unpack_number(field))
    except OverflowError as error:
        raise _unreadable() from error


def unpack_number(field: bytes | None) -> int:
    """Decode a number. Raises StoreUnavailable if the field is damaged."""
    try:
        return int(field or b"")
    except ValueError as error:
        raise _unreadable() from error


def _unreadable() -> StoreUnavailable:
    return StoreUnavailable("A stored record cannot be read", unreadable=True)


def unpack_row_bodies(head: TaskRecord, params: bytes | None, kind: bytes | None, outcome: bytes | None) -> TaskRecord:
    """The record with the bodies of its row."""
    return with_bodies(head, _text(params), None if kind is None else _unpack_outcome(kind, outcome))


def read_head(
    head: bytes | None,
    lease: Lease | None,
    expires: bytes | None,
    params: bytes | None = None,
    caller: bytes | None = None,
) -> TaskRecord | None:
    """Decode one record of many; None if it is unreadable, so that it does not hide the others."""
    try:
        record = None if head is None else unpack_head(head, lease, unpack_number(expires), caller)
        return record if record is None or params is None else with_bodies(record, unpack_text(params), None)
    except StoreUnavailable:
        return None


_STATE_NAMES: Final = {state: state.status.value + ("!" if state.tool_error else "") for state in STATES}
ALL_STATES: Final = tuple(_STATE_NAMES.values())
ALL_UNFINISHED: Final = "unfinished:everybody"
"""The set with the unfinished tasks of all owners, by expiry."""
ALL_TASKS: Final = tuple(f"all:{name}" for name in ALL_STATES)
"""The sets that have all tasks together."""


@lru_cache(maxsize=1024)
def _cap_keys(context: str, mount: str, subject: str | None, tenant: str | None, tool: str) -> tuple[str | None, ...]:
    """The keys that a record counts under, in the order of CapScope."""
    return (
        f"context:{digest(context)}",
        None if subject is None else f"subject:{digest(subject)}",
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
        raise _unreadable()
    return unpack_outcome(unpack_text(kind), body)


def _text(body: bytes | None) -> RawJson | None:
    return None if body is None else unpack_text(body)


def _sends(record: TaskRecord) -> str:
    """The field `sends`: only with it, a takeover reads the parameters of the call too."""
    return "1" if record.is_resumable else ""


def _span(record: TaskRecord) -> int:
    """The lifetime of the keys of a record, in milliseconds."""
    return (record.expires_at - record.created_at) // MICROSECOND // 1000 + BACKSTOP


def _pack_lease(lease: Lease | None) -> tuple[bytes, int]:
    return (b"", _NO_LEASE) if lease is None else (pack_text(lease.holder), pack_time(lease.until))
