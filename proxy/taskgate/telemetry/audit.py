"""The facts that the gateway reports, and the port it reports them to.

A fact is a small value about something that happened. It holds no argument, result, token, address, session id or task
id. Whoever listens (metrics now) decides what becomes of it. Listeners never raise and never block.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from taskgate.tasks.record import TaskStatus
from taskgate.telemetry.limit_facts import (
    CallJoined,
    CapRefused,
    PollAdvised,
    QueueRefused,
    RateJudged,
    SlotsUsed,
    TaskPolled,
    WouldPromote,
)
from taskgate.telemetry.upstream_facts import (
    CircuitMoved,
    CredentialsGot,
    HealthChecked,
    LateAnswerDropped,
    SessionLost,
    UpstreamAnswered,
    UpstreamBegun,
    UpstreamRetried,
)

__all__ = [
    "Audit", "CallJoined", "CapRefused", "CircuitMoved", "CredentialsGot", "Fact", "HealthChecked",
    "LateAnswerDropped", "PollAdvised", "QueueRefused", "RateJudged", "SessionLost", "SlotsUsed", "TaskPolled",
    "UpstreamAnswered", "UpstreamBegun", "UpstreamRetried", "WouldPromote",
]  # fmt: skip


class HttpAnswered(NamedTuple):
    """The public listener answered; `route` is `mcp` for a mount, else `other`."""

    route: str
    verb: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HttpRefused:
    """Refused before it was JSON-RPC; `reason` is of the closed set of `taskgate_http_rejections_total`."""

    reason: str


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """An event stream began: `side` is downstream or upstream, `kind` is response, get or listen."""

    side: str
    kind: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The counterpart of StreamOpened."""

    side: str
    kind: str


class RpcAnswered(NamedTuple):
    """A request of a host was answered; `error` is None, a JSON-RPC code, or `tool_error`.

    `revision` is the session's, or what a refused message named; None where neither is known.
    """

    mount: str
    method: str
    revision: str | None
    seconds: float
    error: str | None


class ToolCalled(NamedTuple):
    """A `tools/call` was let in or refused; `disposition` is task, direct or rejected.

    `tool` is a name that the server listed, or None.
    """

    mount: str
    tool: str | None
    disposition: str


@dataclass(frozen=True, slots=True)
class TaskCreated:
    """A task is durable and acknowledged; `adjustment` says how its TTL differs from what was asked."""

    mount: str
    ttl: timedelta
    adjustment: str | None


@dataclass(frozen=True, slots=True)
class TaskDispatched:
    """A task's call left for the server `waited` after the task was created."""

    mount: str
    waited: timedelta


@dataclass(frozen=True, slots=True)
class TaskMoved:
    """A task changed its state."""

    mount: str
    before: TaskStatus
    after: TaskStatus


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task ended; `reason` is ok, tool_error, client (cancelled) or a FaultReason."""

    mount: str
    status: TaskStatus
    reason: str
    age: timedelta
    result_bytes: int | None


@dataclass(frozen=True, slots=True)
class TaskExpired:
    """The time to live of an unfinished task ran out; `phase` is working or input_required."""

    mount: str
    phase: str


@dataclass(frozen=True, slots=True)
class TaskPurged:
    """A record was removed after its retention."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class TaskCancelAsked:
    """A host asked for a cancel; `outcome` is propagated or already_terminal."""

    mount: str
    outcome: str


@dataclass(frozen=True, slots=True)
class TaskRecovered:
    """A task of an earlier process was taken over; `outcome` is failed (it may have run) or retried (never sent)."""

    mount: str
    outcome: str


@dataclass(frozen=True, slots=True)
class TaskDenied:
    """A look-up found no task; why is not told apart."""

    mount: str
    method: str


@dataclass(frozen=True, slots=True)
class TokenJudged:
    """A token was accepted, or a request was not for want of a good one.

    `reason` is ok, an AuthReason or jwks_unavailable; `issuer` is the operator's name of it, or `_OTHER`.
    """

    issuer: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeysFetched:
    """An attempt to get an issuer's keys ended; `keys` is how many are usable now.

    `result` is ok, stale (none came, and the last ones serve on) or failed (none came, and there are none).
    """

    issuer: str
    result: str
    keys: int


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """A rule refused an operation, or would have if it were not in shadow."""

    mount: str
    method: str
    shadow: bool


@dataclass(frozen=True, slots=True)
class EnumerationSuspected:
    """A caller looked for so many tasks that it does not have that it may look for none for a while."""

    mount: str


class StoreUsed(NamedTuple):
    """A store did, or failed to do, one operation."""

    operation: str
    seconds: float
    ok: bool


@dataclass(frozen=True, slots=True)
class StoreCounted:
    """What the store holds: tasks by status, and its size in bytes where known."""

    tasks: dict[TaskStatus, int]
    size: int | None


@dataclass(frozen=True, slots=True)
class CallsRunning:
    """How many upstream calls of tasks this process holds for one mount now."""

    mount: str
    count: int


@dataclass(frozen=True, slots=True)
class ConfigReloaded:
    """A configuration was read again; `result` is success, invalid, unchanged or needs_restart.

    `fingerprint` is a number of 48 bits that is the same for the same effective configuration.
    """

    result: str
    fingerprint: int


Fact = (
    HttpAnswered
    | HttpRefused
    | StreamOpened
    | StreamEnded
    | RpcAnswered
    | UpstreamAnswered
    | ToolCalled
    | TaskCreated
    | TaskDispatched
    | TaskMoved
    | TaskFinished
    | TaskExpired
    | TaskPurged
    | TaskCancelAsked
    | TaskRecovered
    | TaskDenied
    | TokenJudged
    | KeysFetched
    | CredentialsGot
    | AccessRefused
    | EnumerationSuspected
    | LateAnswerDropped
    | SessionLost
    | StoreUsed
    | StoreCounted
    | CallsRunning
    | RateJudged
    | CapRefused
    | WouldPromote
    | CallJoined
    | SlotsUsed
    | QueueRefused
    | TaskPolled
    | PollAdvised
    | UpstreamBegun
    | UpstreamRetried
    | CircuitMoved
    | HealthChecked
    | ConfigReloaded
)


class Audit(Protocol):
    """Where facts go."""

    def record(self, fact: Fact) -> None:
        """Take note of a fact. Never raises, never waits."""
        ...
