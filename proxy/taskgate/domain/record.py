"""The record of one task: `TaskRecord`, its full stored state.

Records are frozen; `machine.advance` makes a new one with the next revision. A record has a small
head, which stores rewrite at every change, and two bodies: the parameters of the call and the
outcome. Each body is written once. In a record that was read as a head both bodies are None.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import Peer
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson

_NO_TIME: Final = timedelta()
_MAX_DIGITS: Final = 19
"""Digits that the number of an input key must stay below."""

RequestId = str | int
"""A JSON-RPC id; null, booleans and fractions are refused before."""
TaskId = str
"""192 random bits, base64url without padding."""


class OwnerKey(NamedTuple):
    """The owner of a task or a session: an auth context and a mount.

    Every look-up names both, so another context or mount finds nothing.
    """

    context: str
    mount: str


class TaskStatus(StrEnum):
    """The statuses of the specification.

    `failed` means a JSON-RPC error, as in the newest revision.
    """

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    is_terminal: bool
    """Whether the state is absorbing."""

    # That of an enumeration is a Python function: each task is counted by its status several times.
    __hash__ = str.__hash__

    def __init__(self, value: str) -> None:
        self.is_terminal = value not in ("working", "input_required")


class FaultReason(StrEnum):
    """The reasons why a call has no result of the server."""

    UNREACHABLE = "unreachable"
    CLOSED = "closed"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    REDIRECT = "redirect"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    SESSION_LOST = "session_lost"
    CALL_LOST = "call_lost"
    SHUTDOWN = "shutdown"
    EXPIRED = "expired"
    INTERNAL = "internal"
    QUEUE = "queue"
    JSONRPC_ERROR = "jsonrpc_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """A result of the server; `tool_error` is its `isError`.

    A store returns a large result as bytes.
    """

    result: RawJson | LargeJson
    tool_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """An error instead of a result: the server's own, or the gateway's for a call that failed.

    `error` is the text of the JSON-RPC error object, the server's unchanged. A store returns a
    large error as bytes.
    """

    error: RawJson | LargeJson
    reason: FaultReason


Outcome = Succeeded | Faulted
"""The outcome of a call; a cancelled task has none."""


def outcome_text(outcome: Outcome) -> RawJson | LargeJson:
    """The text of a result or an error."""
    return outcome.result if isinstance(outcome, Succeeded) else outcome.error


class CallerNames(NamedTuple):
    """The names of a caller, for operators: those of its token or its API key.

    `issuer` is the operator's name of the issuer. `client` and `tenant` are None if there is none.
    """

    issuer: str
    subject: str
    client: str | None
    tenant: str | None


class ToolCall(NamedTuple):
    """The call that a task runs: the host's parameters without those for the gateway.

    `progress_token` is the host's. `params` is None in a head.
    """

    tool: str
    peer: Peer
    host_session: str | None
    progress_token: RequestId | None
    params: RawJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """A question of the server to the host; `key` is from `next_input_key`.

    `claimed_by` is the stream that delivers it: the holder name of its process, a "/", and the
    rest. `deferred_to` is the id of a task of the host, which is the answer for now; the final one
    follows.
    """

    key: str
    method: str
    params: RawJson
    claimed_by: str | None = None
    deferred_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCheckpoint:
    """The checkpoint from which a takeover resumes a call, so that the call is not sent again.

    `sealed` is opaque here. It is the next round, if the server stores nothing between rounds, else
    the position of the call at its server. `answers` are the answers to questions of that
    round which the process that runs the call has already received, by key of the input request.
    """

    sealed: str
    answers: dict[str, RawJson] = field(default_factory=dict)


class Lease(NamedTuple):
    """The right of one process to run the call; from `until` on another may take it over."""

    holder: str
    until: datetime


class _NewRecord:
    """A record that is being made: its fields can be set, because it has no other user yet."""

    __slots__ = (
        "__weakref__",
        "answers",
        "call",
        "caller",
        "checkpoint",
        "created_at",
        "deadline",
        "dispatched",
        "dispatched_at",
        "expires_at",
        "handed_to",
        "id",
        "idempotency_digest",
        "inputs",
        "inputs_made",
        "lease",
        "outcome",
        "owner",
        "poll_interval",
        "reruns",
        "retrieved",
        "revision",
        "status",
        "status_message",
        "tenant",
        "tool_error",
        "trace",
        "ttl",
        "updated_at",
        "waiting_since",
    )


@dataclass(init=False, frozen=True, slots=True)
class TaskRecord(_NewRecord):
    """One task.

    Invariants:

    - `tool_error` is true only when completed.
    - `inputs` exist exactly while input_required.
    - `outcome` exists when completed or failed, unless the record is a head.
    - `revision` grows by one with every event.
    - `updated_at` never goes back, and moves only with changes that hosts can see.

    `dispatched` is whether the call was sent, or was about to be. `dispatched_at` is when it first was, if it
    had to wait for a permit; else it was at the creation. `inputs` are the input requests
    that are open, `inputs_made` is how many there ever were. `answers` are the host's answers that
    the server may not have yet, by key of the input request. `lease` is None while no process has
    the right to run the call.

    `tenant` is an opaque reference to the caller's tenant. `deadline` is how long the call may run
    once it was sent. `reruns` is how many more times the call may be sent after its process died.
    `idempotency_digest` is a digest of the host's idempotency key, which no one is shown: equal
    keys of one owner name one call. It is None again if the task ended before its call was sent.

    `ttl` is what was granted at the creation; hosts are shown `with_grown_ttl`. The end replaces it by how long
    the record is kept.

    `trace` is the W3C traceparent of the request that made the task, None if that was not traced.
    `waiting_since` is when it became input_required, None in other states. `retrieved` is whether
    its owner got the outcome. `checkpoint` exists while a takeover can resume a call that was sent.

    `caller` has the names of the caller, and None if it has none, or operators see none. They never change.

    `handed_to` is the reference of the host of a call that may be handed off, if no token tells hosts apart. The
    task is then found by the tools of the gateway alone. None for all other tasks.
    """

    id: TaskId
    owner: OwnerKey
    call: ToolCall
    status: TaskStatus
    status_message: str | None
    created_at: datetime
    updated_at: datetime
    ttl: timedelta
    poll_interval: timedelta
    revision: int
    dispatched: bool
    dispatched_at: datetime | None
    inputs: tuple[InputRequest, ...]
    inputs_made: int
    answers: dict[str, RawJson]
    tool_error: bool
    outcome: Outcome | None
    lease: Lease | None
    tenant: str | None
    deadline: timedelta | None
    reruns: int
    idempotency_digest: str | None
    trace: str | None
    waiting_since: datetime | None
    retrieved: bool
    checkpoint: SealedCheckpoint | None
    handed_to: str | None
    caller: CallerNames | None
    expires_at: datetime
    """When the record becomes invisible. An unfinished task may get so old; its `ttl` grows until then.
    After its end it is `ttl` after `created_at`.
    """

    # A generated constructor of a frozen class sets each field by a call, which takes five times as long.
    def __init__(  # noqa: PLR0913 - the fields
        self,
        *,
        id: TaskId,
        owner: OwnerKey,
        call: ToolCall,
        status: TaskStatus,
        created_at: datetime,
        updated_at: datetime,
        ttl: timedelta,
        poll_interval: timedelta,
        status_message: str | None = None,
        revision: int = 0,
        dispatched: bool = False,
        dispatched_at: datetime | None = None,
        inputs: tuple[InputRequest, ...] = (),
        inputs_made: int = 0,
        answers: dict[str, RawJson] | None = None,
        tool_error: bool = False,
        outcome: Outcome | None = None,
        lease: Lease | None = None,
        tenant: str | None = None,
        deadline: timedelta | None = None,
        reruns: int = 0,
        idempotency_digest: str | None = None,
        trace: str | None = None,
        waiting_since: datetime | None = None,
        retrieved: bool = False,
        checkpoint: SealedCheckpoint | None = None,
        handed_to: str | None = None,
        caller: CallerNames | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        object.__setattr__(self, "__class__", _NewRecord)
        new: Any = self
        new.id = id
        new.owner = owner
        new.call = call
        new.status = status
        new.status_message = status_message
        new.created_at = created_at
        new.updated_at = updated_at
        new.ttl = ttl
        new.poll_interval = poll_interval
        new.revision = revision
        new.dispatched = dispatched
        new.dispatched_at = dispatched_at
        new.inputs = inputs
        new.inputs_made = inputs_made
        new.answers = {} if answers is None else answers
        new.tool_error = tool_error
        new.outcome = outcome
        new.lease = lease
        new.tenant = tenant
        new.deadline = deadline
        new.reruns = reruns
        new.idempotency_digest = idempotency_digest
        new.trace = trace
        new.waiting_since = waiting_since
        new.retrieved = retrieved
        new.checkpoint = checkpoint
        new.handed_to = handed_to
        new.caller = caller
        new.expires_at = created_at + ttl if expires_at is None else expires_at
        # From here on it is frozen.
        new.__class__ = TaskRecord

    @property
    def next_input_key(self) -> str:
        """The key of the next input request; keys of a task are unique (M-UPD-4)."""
        return f"input-{self.inputs_made + 1}"

    def has_asked(self, key: str) -> bool:
        """Whether the task ever had an input request with that key."""
        prefix, _, number = key.rpartition("-")
        is_number = number.isascii() and number.isdigit() and number[0] != "0" and len(number) < _MAX_DIGITS
        return prefix == "input" and is_number and int(number) <= self.inputs_made

    @property
    def is_dispatchable(self) -> bool:
        """Whether a takeover may send the call."""
        return not self.dispatched or self.reruns > 0

    @property
    def is_resumable(self) -> bool:
        """Whether a takeover may send the call or resume it."""
        return self.is_dispatchable or self.checkpoint is not None


class Transition(NamedTuple):
    """A status of a task, and when it began."""

    status: TaskStatus
    time: datetime


MAX_TRANSITIONS: Final = 16
"""Transitions that are known of a task: its creation and the newest."""


def transitions_of(record: TaskRecord, changes: tuple[Transition, ...]) -> tuple[Transition, ...]:
    """The transitions of a record, oldest first; `changes` are those to statuses that are not terminal.

    The creation and the last change of a record are in its head. Of an old record `changes` may be missing.
    """
    status = changes[-1].status if changes else TaskStatus.WORKING
    last = () if record.status is status else (Transition(record.status, record.waiting_since or record.updated_at),)
    newest = (*changes, *last)[1 - MAX_TRANSITIONS :]
    return (Transition(TaskStatus.WORKING, record.created_at), *newest)


def blank_record(created_at: datetime, ttl: timedelta) -> Any:
    """A record that has only its times of expiry; all other fields have to be set before `freeze`."""
    new: Any = _NewRecord()
    new.created_at = created_at
    new.ttl = ttl
    new.expires_at = created_at + ttl
    return new


def draft(record: TaskRecord) -> Any:
    """A copy of the record whose fields can be set until `freeze`."""
    new: Any = _NewRecord()
    new.id = record.id
    new.owner = record.owner
    new.call = record.call
    new.status = record.status
    new.status_message = record.status_message
    new.created_at = record.created_at
    new.updated_at = record.updated_at
    new.ttl = record.ttl
    new.poll_interval = record.poll_interval
    new.revision = record.revision
    new.dispatched = record.dispatched
    new.dispatched_at = record.dispatched_at
    new.inputs = record.inputs
    new.inputs_made = record.inputs_made
    new.answers = record.answers
    new.tool_error = record.tool_error
    new.outcome = record.outcome
    new.lease = record.lease
    new.tenant = record.tenant
    new.deadline = record.deadline
    new.reruns = record.reruns
    new.idempotency_digest = record.idempotency_digest
    new.trace = record.trace
    new.waiting_since = record.waiting_since
    new.retrieved = record.retrieved
    new.checkpoint = record.checkpoint
    new.handed_to = record.handed_to
    new.caller = record.caller
    new.expires_at = record.expires_at
    return new


def freeze(new: Any) -> TaskRecord:
    """The record that a draft has become; the draft is no more."""
    new.__class__ = TaskRecord
    return new  # type: ignore[no-any-return]


def evolve(record: TaskRecord, **values: Any) -> TaskRecord:
    """A copy of the record with other values for some fields.

    It does what `dataclasses.replace` does in a fraction of the time: every event makes a record.
    """
    new = draft(record)
    for name, value in values.items():
        setattr(new, name, value)
    return freeze(new)


def grown_ttl(granted: timedelta, age: timedelta, most: timedelta) -> timedelta:
    """The time to live that hosts are shown of an unfinished task of that age.

    It grows by a half of what was granted, before a quarter of that is left. At `most` the task ends.
    """
    step = granted / 2
    missing = age - granted + granted / 4
    if missing <= _NO_TIME or not step:
        return min(granted, most)
    return min(granted - -missing // step * step, most)


def with_grown_ttl(record: TaskRecord, now: datetime) -> TaskRecord:
    """The record as hosts are shown it at that time; not to be stored."""
    if record.status.is_terminal:
        return record
    ttl = grown_ttl(record.ttl, now - record.created_at, record.expires_at - record.created_at)
    return record if ttl == record.ttl else evolve(record, ttl=ttl)


def kept_ttl(record: TaskRecord, ended_at: datetime, keep: timedelta) -> timedelta:
    """The time to live of a task that ends then: never less than was shown, and `keep` from the end on.

    No result is kept for longer than its task could have run.
    """
    age, most = ended_at - record.created_at, record.expires_at - record.created_at
    return max(grown_ttl(record.ttl, age, most), age + min(keep, most))
