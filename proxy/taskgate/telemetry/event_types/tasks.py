"""Events about tasks; see `telemetry.events`, which everybody else takes them from.

Each holds the record as it was when it happened: whose task it is, at which mount, and by which id. A record goes no
further than to who listens, and no listener shows an id.
"""

from dataclasses import dataclass
from datetime import timedelta

from taskgate.domain.record import TaskRecord, TaskStatus


@dataclass(frozen=True, slots=True)
class TaskCreated:
    """A task is durable and acknowledged; `adjustment` says how its TTL differs from what was asked."""

    task: TaskRecord
    adjustment: str | None


@dataclass(frozen=True, slots=True)
class TaskDispatched:
    """A task's call left for the server `waited` after the task was created."""

    task: TaskRecord
    waited: timedelta


@dataclass(frozen=True, slots=True)
class TaskMoved:
    """A task changed its state; `task` is the record after that."""

    task: TaskRecord
    before: TaskStatus


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task ended; `reason` is ok, tool_error, client (cancelled) or a FaultReason.

    `status` is what it ended as: an expired one is failed, though its record was never written so.
    """

    task: TaskRecord
    status: TaskStatus
    reason: str
    age: timedelta
    result_bytes: int | None


@dataclass(frozen=True, slots=True)
class TaskExpired:
    """The time to live of an unfinished task ran out; `phase` is queued, working or input_required."""

    task: TaskRecord
    phase: str


@dataclass(frozen=True, slots=True)
class TaskPurged:
    """A record was removed after its retention; `task.retrieved` tells whether its outcome was ever fetched."""

    task: TaskRecord


@dataclass(frozen=True, slots=True)
class TaskCancelAsked:
    """A host asked for a cancel; `outcome` is propagated or already_terminal."""

    task: TaskRecord
    outcome: str


@dataclass(frozen=True, slots=True)
class TaskRecovered:
    """A task was taken over whose process was gone; `outcome` is failed (it may have run) or retried (it goes on)."""

    task: TaskRecord
    outcome: str


@dataclass(frozen=True, slots=True)
class TaskRetrieved:
    """The outcome of a task was given to its owner; `delay` is since the task ended, None where not for the first time.

    A cancelled task has none, and is never retrieved.
    """

    task: TaskRecord
    delay: timedelta | None


@dataclass(frozen=True, slots=True)
class TaskDenied:
    """A look-up found no task of the caller's.

    `reason` is context_mismatch, not_found, expired or malformed_id; the host is not told which. `task` is what was
    asked for, cut to a length that an id has, and `owner` whose it is where it is somebody's: neither is shown as such.
    """

    mount: str
    method: str
    reason: str
    task: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class InputAsked:
    """A server asks the host of a task; `kind` is elicitation, sampling or roots."""

    task: TaskRecord
    key: str
    kind: str


@dataclass(frozen=True, slots=True)
class InputSettled:
    """That is over; `outcome` is answered, declined, expired (nobody answered in time) or superseded (no more needed).

    `declined` is a refusal in the host's own words: declined or cancelled elicitations, and errors.
    """

    task: TaskRecord
    key: str
    kind: str
    outcome: str


@dataclass(frozen=True, slots=True)
class InputWaited:
    """A task left `input_required`, in which it was for so long."""

    task: TaskRecord
    waited: timedelta


@dataclass(frozen=True, slots=True)
class PollsCounted:
    """A host looked so many times at a task until it saw that it had ended."""

    mount: str
    polls: int


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another process took over what this one held; `kind` is task: its call is given up here."""

    kind: str
