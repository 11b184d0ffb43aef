"""The record of one task: the only truth about it.

Values are frozen; a change makes a new record with the next revision, and only `domain/machine.py` makes such changes.
A record is a small head, which is all that stores rewrite, and two bodies written once: the parameters of the call and
the outcome. In a record that was read as a head both bodies are None. Knows no wire shape and no store.
"""

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import Peer
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson

_LONGEST_NUMBER: Final = 19
"""Digits: no task is asked more often than can be counted with fewer."""

RequestId = str | int
"""A JSON-RPC id, a string or an integer: never null, a boolean or a fraction."""
TaskId = str
"""192 random bits, base64url without padding."""


class OwnerKey(NamedTuple):
    """Whom a task or a session belongs to. Every look-up names both parts: another context or mount finds nothing."""

    context: str
    mount: str


class TaskStatus(StrEnum):
    """The states of the specification. `failed` means a JSON-RPC error, as the newest revision has it."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the state is absorbing."""
        return self not in (TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED)


class FaultReason(StrEnum):
    """Why a call has no answer of the server: decisions 19."""

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
    """The server answered with a result; `tool_error` is its `isError`.

    A store gives the bytes of a large one.
    """

    result: RawJson | LargeJson
    tool_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """There is an error instead of a result: the server's own, or ours for a call that failed.

    `error` is the text of the JSON-RPC error object, the server's to the byte. A store gives the bytes of a large one.
    """

    error: RawJson | LargeJson
    reason: FaultReason


Outcome = Succeeded | Faulted
"""What a call came to; a cancelled task has none."""


def text_of(outcome: Outcome) -> RawJson | LargeJson:
    """The text of a result or an error."""
    return outcome.result if isinstance(outcome, Succeeded) else outcome.error


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The call a task stands for: the host's own parameters, less what was meant for the gateway.

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

    `claimed_by` is the stream it left on: what the process of that stream is called as a holder, and more after a "/".

    `kept_as` is the id of a task of the host's own, which is its answer for now: the last one is still to come.
    """

    key: str
    method: str
    params: RawJson
    claimed_by: str | None = None
    kept_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCheckpoint:
    """What another process goes on with, which takes the task over, so that the call is not made again.

    `sealed` says what that is, as the gateway seals it: the next round of a call of which its server holds nothing
    until then, or where at its server the call is. `given` are answers to questions of that round that the process
    which runs the call has had, by the keys of the input requests.
    """

    sealed: str
    given: dict[str, RawJson] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Which process runs the call, and until when nobody else may take it over."""

    holder: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task.

    Holds: `tool_error` may be true only when completed; `inputs` are there exactly while input_required; `outcome` is
    there when completed or failed, unless the record is a head; `revision` grows by one with every event;
    `updated_at` moves only with what a host can see, and never back.

    `tenant` is an opaque reference to the caller's, None where they have none. `deadline` is how long the call may run
    once it has left. `reruns` is how many more times the call may be sent after its process was lost. `repeat_key` is a
    digest of what the host named the call by, shown to nobody: the same of the same owner is the same call. It is gone
    where the task ended without its call having left.

    `trace` is the W3C traceparent of the request that made the task, None where that was not traced. `waiting_since` is
    since when it is input_required, None in every other state. `retrieved` is whether its owner was given the outcome.
    `kept` is there while whoever takes the task over can go on with its call although that has left.
    """

    id: TaskId
    owner: OwnerKey
    call: ToolCall
    status: TaskStatus
    status_message: str | None = None
    created_at: datetime
    updated_at: datetime
    ttl: timedelta
    poll_interval: timedelta
    revision: int = 0
    dispatched: bool = False
    inputs: tuple[InputRequest, ...] = ()
    inputs_made: int = 0
    answers: dict[str, RawJson] = field(default_factory=dict)
    tool_error: bool = False
    outcome: Outcome | None = None
    lease: Lease | None = None
    tenant: str | None = None
    deadline: timedelta | None = None
    reruns: int = 0
    repeat_key: str | None = None
    trace: str | None = None
    waiting_since: datetime | None = None
    retrieved: bool = False
    kept: SealedCheckpoint | None = None

    @property
    def next_input_key(self) -> str:
        """The key that the next input request must have: none is ever used twice in a task (M-UPD-4)."""
        return f"input-{self.inputs_made + 1}"

    def was_asked(self, key: str) -> bool:
        """Whether there ever was an input request under that key."""
        prefix, _, number = key.rpartition("-")
        is_number = number.isascii() and number.isdigit() and number[0] != "0" and len(number) < _LONGEST_NUMBER
        return prefix == "input" and is_number and int(number) <= self.inputs_made

    @property
    def may_be_sent(self) -> bool:
        """Whether who takes the task over from a process that is gone may still send its call."""
        return not self.dispatched or self.reruns > 0

    @property
    def may_go_on(self) -> bool:
        """Whether who takes the task over may do anything for its call: send it, or go on with it."""
        return self.may_be_sent or self.kept is not None

    @property
    def expires_at(self) -> datetime:
        """When the record becomes invisible, whatever its state."""
        return self.created_at + self.ttl


# The setters of the slots themselves: what freezes a record is not asked, for the new one is nobody's yet.
_SETTERS: Final[dict[str, Any]] = {each.name: getattr(TaskRecord, each.name).__set__ for each in fields(TaskRecord)}
_PUTS: Final = tuple(_SETTERS.values())
_READ: Final = attrgetter(*_SETTERS)


def altered(record: TaskRecord, **values: Any) -> TaskRecord:
    """The record with other values for some fields.

    As `dataclasses.replace`, which takes several times as long: every event of every task makes a record.
    """
    new = object.__new__(TaskRecord)
    for put, value in zip(_PUTS, _READ(record)):  # noqa: B905 - as many as there are fields, and this is the dear part
        put(new, value)
    for name, value in values.items():
        _SETTERS[name](new, value)
    return new
