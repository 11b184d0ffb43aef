"""The codec of stored records: task heads, bodies and sessions as bytes, and back.

A head is one JSON array that starts with its schema number. Lease, expiry, bodies and the names of the caller
are stored apart: they change or are written apart from it, or are searched by. Fields that few records
have are in one more array at the end, which other records and those of earlier versions lack. Fields
of a later version are at the end of that array. Parameters, results and errors stay the text in which they came. Times
are microseconds since 1970, spans are microseconds. Pure: no backend is known here. Bytes that
cannot be decoded raise StoreUnavailable.
"""

import codecs
import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import orjson

from taskgate.domain.listing import ListedTask
from taskgate.domain.record import (
    MAX_TRANSITIONS,
    CallerNames,
    Faulted,
    FaultReason,
    InputRequest,
    Lease,
    Outcome,
    OwnerKey,
    SealedCheckpoint,
    Succeeded,
    TaskId,
    TaskRecord,
    TaskStatus,
    ToolCall,
    Transition,
    blank_record,
    draft,
    freeze,
    outcome_text,
)
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson
from taskgate.stores.references import ReferenceOf

MAX_CACHED: Final = 1024
"""The largest head, in bytes, whose listed form is cached."""

LARGE: Final = 64 * 1024
"""Bytes of a body above which it is read off the event loop, and an outcome stays bytes."""

MAX_ID: Final = 256
"""Characters of an id, at most."""

MICROSECOND: Final = timedelta(microseconds=1)

SCHEMA: Final = 1
"""The first element of every head and session; any other number is refused."""


RETRIEVED_IN_HEAD: Final = "$[20][6]"
"""Where a head says that the result was retrieved, as a path of SQLite; not in all heads. See `is_retrieved`."""

_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_PLACE_LENGTH: Final = 19
TRANSITION_LENGTH: Final = 19
"""Characters of a packed transition."""
PACKED_TRANSITIONS: Final = (MAX_TRANSITIONS - 1) * TRANSITION_LENGTH
"""Characters of the packed transitions that a store keeps, at most: without the creation."""


def pack_transition(record: TaskRecord) -> str:
    """Encode the last transition of a record, whose status is not terminal: a letter and the time."""
    return f"{_LETTERS[record.status]}{pack_time(record.updated_at):018d}"


def unpack_transitions(packed: str) -> tuple[Transition, ...]:
    """Decode packed transitions. Raises StoreUnavailable if they are damaged."""
    try:
        return tuple(
            Transition(_STATUS_OF_LETTER[packed[at]], unpack_time(int(packed[at + 1 : at + TRANSITION_LENGTH])))
            for at in range(0, len(packed), TRANSITION_LENGTH)
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise StoreUnavailable("A stored record cannot be read") from error


def pack_times(record: TaskRecord) -> tuple[int, int]:
    """When a record was created and updated, in microseconds since 1970."""
    created = pack_time(record.created_at)
    return created, created if record.updated_at == record.created_at else pack_time(record.updated_at)


def pack_head(record: TaskRecord, times: tuple[int, int] | None = None) -> bytes:
    """Encode a record without its lease, expiry, caller, parameters and outcome; `times` are from `pack_times`."""
    call, peer = record.call, record.call.peer
    created, updated = times or pack_times(record)
    fields = [
        SCHEMA,
        record.id,
        record.owner.context,
        record.owner.mount,
        call.tool,
        # The encoder would ask an enumeration for its value, which is a property of Python.
        [peer.revision._value_, peer.capabilities, peer.info],
        call.host_session,
        call.progress_token,
        record.status._value_,
        record.status_message,
        created,
        updated,
        pack_span(record.ttl),
        pack_span(record.poll_interval),
        record.revision,
        # The time is in the place of true: earlier releases take it for that, and write it again.
        record.dispatched if record.dispatched_at is None else pack_time(record.dispatched_at),
        [[asked.key, asked.method, asked.params, asked.claimed_by, asked.deferred_to] for asked in record.inputs]
        if record.inputs
        else [],
        record.inputs_made,
        record.answers,
        record.tool_error,
    ]
    deadline, waits, checkpoint, digest = (
        record.deadline,
        record.waiting_since,
        record.checkpoint,
        record.idempotency_digest,
    )
    has_latest = checkpoint is not None or record.handed_to is not None
    has_late = record.trace is not None or waits is not None or record.retrieved or has_latest
    if has_late or deadline is not None or record.tenant is not None or record.reruns or digest is not None:
        rare: list[Any] = [
            record.tenant,
            None if deadline is None else deadline // MICROSECOND,
            record.reruns,
            digest,
        ]
        if has_late:
            rare += [record.trace, None if waits is None else pack_time(waits), record.retrieved]
        if has_latest:
            rare.append(None if checkpoint is None else [checkpoint.sealed, checkpoint.answers])
        if record.handed_to is not None:
            rare.append(record.handed_to)
        fields.append(rare)
    return _dump(fields)


def unpack_head(
    head: bytes, lease: Lease | None, expires: int | None = None, caller: bytes | None = None
) -> TaskRecord:
    """Decode a head: a record without bodies. `expires` is its packed expiry, which matters to those who read it.

    `caller` is what `pack_caller` made.
    """
    try:
        # Fails too if the expiry is beyond the range of datetime.
        return _unpack_head(head, lease, expires, None if caller is None else _caller(caller))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _unreadable() from error


def unpack_listed(head: bytes, expires: int) -> ListedTask:
    """Decode only the fields of a head that lists show, with its packed expiry.

    Hosts list again and again, and most tasks have not changed: the results of short heads are
    cached.
    """
    try:
        return _cached_listed(head, expires) if len(head) <= MAX_CACHED else _unpack_listed(head, expires)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _unreadable() from error


def is_retrieved(head: bytes) -> bool:
    """Whether the result of a task was retrieved, by its head."""
    return _RETRIEVED(head) is not None


@lru_cache(maxsize=1024)
def pack_caller(caller: CallerNames) -> str:
    """Encode the names of a caller: a JSON array."""
    return json.dumps(caller)


def text_in_head(text: str) -> bytes | None:
    """The bytes that are in each head with this text, or in the names of its caller.

    None if their form depends on the rest.
    """
    is_plain = text.isascii() and text.isprintable() and not _ESCAPED.intersection(text)
    return f'"{text}"'.encode() if is_plain else None


def has_texts(texts: Collection[bytes], head: bytes, caller: bytes) -> bool:
    """Whether a head, or the names of its caller, have each of these texts, which are of `text_in_head`."""
    return all(text in head or text in caller for text in texts)


def as_head(record: TaskRecord) -> TaskRecord:
    """The record without its bodies."""
    if record.call.params is None and record.outcome is None:
        return record
    return with_bodies(record, None, None)


def with_bodies(head: TaskRecord, params: RawJson | None, outcome: Outcome | None) -> TaskRecord:
    """The record with its bodies."""
    new, call = draft(head), head.call
    new.call = ToolCall(call.tool, call.peer, call.host_session, call.progress_token, params)
    new.outcome = outcome
    return freeze(new)


def longer_lease(stored: Lease | None, new: Lease | None) -> Lease | None:
    """The lease after a swap: `new`, unless the same holder meanwhile renewed the stored lease for
    longer.
    """
    if stored is not None and new is not None and stored.holder == new.holder and stored.until > new.until:
        return stored
    return new


def pack_outcome(outcome: Outcome) -> tuple[str, bytes]:
    """Encode an outcome as its kind and its body."""
    if isinstance(outcome, Succeeded):
        return _TOOL_ERROR if outcome.tool_error else _RESULT, pack_text(outcome.result)
    return outcome.reason.value, pack_text(outcome.error)


def unpack_outcome(kind: str, body: bytes) -> Outcome:
    """Decode an outcome from its kind and body; a large one stays bytes."""
    text = LargeJson(body) if len(body) > LARGE and _is_utf8(body) else unpack_text(body)
    if kind in (_RESULT, _TOOL_ERROR):
        return Succeeded(result=text, tool_error=kind == _TOOL_ERROR)
    try:
        return Faulted(error=text, reason=FaultReason(kind))
    except ValueError as error:
        raise _unreadable() from error


def as_stored(outcome: Outcome) -> Outcome:
    """The outcome as a store returns it: a large one as bytes."""
    return unpack_outcome(*pack_outcome(outcome)) if len(outcome_text(outcome)) > LARGE else outcome


def pack_peer(peer: Peer) -> bytes:
    """Encode what one side of a session declared about itself."""
    return _dump([SCHEMA, peer.revision, peer.capabilities, peer.info])


def unpack_peer(text: bytes) -> Peer:
    """Decode the text that `pack_peer` made."""
    try:
        schema, revision, capabilities, info = _load(text)
        _expect_schema(schema)
        return Peer(revision=_REVISIONS[revision], capabilities=capabilities, info=info)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # Deep arrays exceed the recursion limit. Any writer to the store can write them.
        raise _unreadable() from error


def pack_text(text: RawJson | LargeJson) -> bytes:
    """Encode a body; a lone surrogate survives the round trip."""
    return text.body if isinstance(text, LargeJson) else text.encode("utf-8", "surrogatepass")


def unpack_text(body: bytes) -> RawJson:
    """Decode a body."""
    try:
        return body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _unreadable() from error


def unpack_bodies(head: TaskRecord, params: bytes | None, kind: str | None, outcome: bytes | None) -> TaskRecord:
    """The record of a head with its bodies; `outcome` exists if `kind` does. Raises StoreUnavailable
    if a body is damaged."""
    return with_bodies(
        head,
        None if params is None else unpack_text(params),
        None if kind is None or outcome is None else unpack_outcome(kind, outcome),
    )


def pack_name(id: str) -> str | None:
    """An id as the value of a look-up; None, which equals nothing, for one that no store can hold."""
    return id if id.isprintable() else None


def pack_names(names: frozenset[str]) -> bytes:
    """Encode a set of ids as a JSON array."""
    return _dump(list(names))


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Encode numbers as a JSON array."""
    return _dump(list(numbers))


def pack_reference(reference: str) -> int:
    """Encode the first 64 bits of a public reference as a signed number. Raises ValueError for a text that is none."""
    # Twelve characters are nine bytes.
    return int.from_bytes(a2b_base64(reference[2:14].encode().translate(_STANDARD))[:8], "big", signed=True)


def number_function(reference_of: ReferenceOf) -> Callable[[TaskId], int]:
    """Return a function from ids to their packed references. Texts that are too long for an id have 0."""

    def number(id: TaskId) -> int:
        if len(id) > MAX_ID:
            # Hosts name such texts too, and `reference_of` remembers the last ones.
            return 0
        # As `pack_reference`, whose call would take as long as the rest: each task is stored by it.
        digits = reference_of(id)[2:14].encode().translate(_STANDARD)
        return int.from_bytes(a2b_base64(digits)[:8], "big", signed=True)

    return number


def unpack_place(place: str | None) -> int | None:
    """Decode the number behind which a part of a scan starts, 0 for the first.

    None for a text that no part ended with.
    """
    if place is None:
        return 0
    return int(place) if place.isdecimal() and len(place) < _PLACE_LENGTH else None


def pack_time(moment: datetime) -> int:
    """Microseconds since 1970."""
    # Twice as fast as a division of the span.
    span = moment - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


@lru_cache(maxsize=256)
def pack_span(span: timedelta) -> int:
    """A span in microseconds; many tasks share few spans."""
    return span // MICROSECOND


def unpack_time(microseconds: int) -> datetime:
    """The time in UTC."""
    return _EPOCH + timedelta(0, 0, microseconds)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = pack_time(datetime.min.replace(tzinfo=UTC))
_LAST: Final = pack_time(datetime.max.replace(tzinfo=UTC))
_STATUSES: Final = {status.value: status for status in TaskStatus}
_LETTERS: Final = {TaskStatus.WORKING: "w", TaskStatus.INPUT_REQUIRED: "i"}
_STATUS_OF_LETTER: Final = {letter: status for status, letter in _LETTERS.items()}
_REVISIONS: Final = {revision.value: revision for revision in Revision}
_RESULT: Final = "result"
_TOOL_ERROR: Final = "tool_error"
_DEFAULT_RARE: Final[list[Any]] = [None, None, 0, None]
_DEFAULT_LATE: Final[list[Any]] = [None, None, False]
_RETRIEVED: Final = re.compile(rb',\s*true(,\s*null,\s*"[^"]*")?\]\]$').search
"""The end of the head of an ended task that has only rare fields behind `retrieved`. `page.lua` has it, too."""
_ESCAPED: Final = frozenset('"\\')
_SLOW_PATH: Final = b" "
"""Marks output of the standard encoder, which only the standard decoder reads back unchanged."""


def _unpack_head(head: bytes, lease: Lease | None, expires: int | None, caller: CallerNames | None) -> TaskRecord:
    schema, *fields = _load(head)
    _expect_schema(schema)
    (
        task_id, context, mount, tool, (peer_revision, capabilities, info), host_session, progress_token, status,
        status_message, created_at, updated_at, ttl, poll_interval, revision, dispatched, inputs, inputs_made, answers,
        tool_error, *rare,
    ) = fields  # fmt: skip
    ((tenant, deadline, reruns, idempotency_digest, *late),) = rare or (_DEFAULT_RARE,)
    trace, waits, retrieved, *rest = late or _DEFAULT_LATE
    checkpoint, *newest = rest or (None,)
    (handed_to,) = newest or (None,)
    if handed_to is not None and type(handed_to) is not str:
        raise ValueError("a host that is no text")
    # Filled in place: the constructor takes four times as long.
    created = unpack_time(created_at)
    new = blank_record(created, _span(ttl))
    if expires is not None:
        new.expires_at = unpack_time(expires)
    new.id = task_id
    new.owner = _owner(context, mount)
    peer = Peer(_REVISIONS[peer_revision], capabilities, info)
    new.call = ToolCall(tool, peer, host_session, progress_token, None)
    new.status = _STATUSES[status]
    new.status_message = status_message
    new.updated_at = created if updated_at == created_at else unpack_time(updated_at)
    new.poll_interval = _span(poll_interval)
    new.revision = revision
    is_flag = dispatched is True or dispatched is False
    new.dispatched, new.dispatched_at = (dispatched, None) if is_flag else (True, unpack_time(dispatched))
    new.inputs = tuple(_unpack_input(*asked) for asked in inputs) if inputs else ()
    new.inputs_made = inputs_made
    new.answers = answers
    new.tool_error = tool_error
    new.outcome = None
    new.lease = lease
    new.tenant = tenant
    new.deadline = None if deadline is None else _span(deadline)
    new.reruns = reruns
    new.idempotency_digest = idempotency_digest
    new.trace = trace
    new.waiting_since = None if waits is None else unpack_time(waits)
    new.retrieved = retrieved
    new.checkpoint = None if checkpoint is None else _unpack_checkpoint(*checkpoint)
    new.handed_to = handed_to
    new.caller = caller
    return freeze(new)


def _unpack_listed(head: bytes, expires: int) -> ListedTask:
    schema, id, _, _, tool, _, _, _, status, message, created, updated, ttl, poll, *rest = _load(head)
    _expect_schema(schema)
    _, _, _, _, _, tool_error, *rare = rest
    if rare:
        ((_, _, _, _, *late),) = rare
        _, _, _, *_ = late or _DEFAULT_LATE
    # A float has no place among whole microseconds.
    until = created + ttl
    if not (type(until) is type(updated) is int and _FIRST <= created <= until <= _LAST >= updated >= _FIRST):
        raise ValueError("a time out of range")
    spans = _span(ttl), _span(poll)
    return ListedTask(id, tool, _STATUSES[status], message, created, updated, *spans, tool_error, expires)


_cached_listed = lru_cache(maxsize=4096)(_unpack_listed)


@lru_cache(maxsize=256)
def _span(microseconds: int) -> timedelta:
    """A cached span: many tasks share few spans."""
    return timedelta(0, 0, microseconds)


@lru_cache(maxsize=1024)
def _owner(context: str, mount: str) -> OwnerKey:
    """A cached owner: many tasks share few owners."""
    return OwnerKey(context, mount)


@lru_cache(maxsize=1024)
def _caller(text: bytes) -> CallerNames | None:
    """The cached names of a caller: many tasks share few. None for a text without names: no task is hidden for it."""
    try:
        names = json.loads(text)
    except ValueError:
        return None
    if (
        type(names) is not list
        or [type(each) for each in names[:2]] != [str, str]
        or len(names) != len(CallerNames._fields)
    ):
        return None
    return CallerNames(*names) if all(each is None or type(each) is str for each in names[2:]) else None


def _unpack_checkpoint(sealed: str, answers: dict[str, RawJson]) -> SealedCheckpoint:
    return SealedCheckpoint(sealed=sealed, answers=answers)


def _unpack_input(
    key: str, method: str, params: RawJson, claimed_by: str | None, deferred_to: str | None = None
) -> InputRequest:
    return InputRequest(key=key, method=method, params=params, claimed_by=claimed_by, deferred_to=deferred_to)


def _dump(value: Any) -> bytes:
    """JSON that `_load` decodes unchanged, including lone surrogates and integers of any size."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _SLOW_PATH + json.dumps(value).encode()


def _load(text: bytes) -> Any:
    return json.loads(text) if text.startswith(_SLOW_PATH) else orjson.loads(text)


def _is_utf8(body: bytes) -> bool:
    """Whether the body is valid UTF-8, checked in chunks so that no whole string is made."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(body)
    try:
        for at in range(0, len(view), LARGE):
            decoder.decode(view[at : at + LARGE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _expect_schema(number: object) -> None:
    if number != SCHEMA:
        raise StoreUnavailable("A stored record was written by another version of the gateway", unreadable=True)


def _unreadable() -> StoreUnavailable:
    return StoreUnavailable("A stored record cannot be read", unreadable=True)
