"""The events that the gateway reports, and the port it reports them to.

An event is a small value about something that happened. It holds no token, address or session id, and no argument or
result but where it has the record of a task. Whose request it is of tells the `request_context`. Whoever listens
(metrics and the audit log) decides what becomes of it. Listeners never raise and never block.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry.event_types.limits import (
    CallJoined,
    CapRefused,
    PollAdvised,
    QueueRefused,
    RateJudged,
    RatesFellBack,
    SlotsUsed,
    TaskPolled,
    WouldPromote,
)
from taskgate.telemetry.event_types.security import (
    AccessRefused,
    KeysFetched,
    OperatorAsked,
    SuspicionRaised,
    TokenJudged,
)
from taskgate.telemetry.event_types.tasks import (
    InputAsked,
    InputSettled,
    InputWaited,
    LeaseLost,
    PollsCounted,
    TaskCancelAsked,
    TaskCreated,
    TaskDenied,
    TaskDispatched,
    TaskExpired,
    TaskFinished,
    TaskMoved,
    TaskPurged,
    TaskRecovered,
    TaskRetrieved,
)
from taskgate.telemetry.event_types.trail import (
    AuditDropped,
    AuditNoted,
    AuditWritten,
    ConfigReloaded,
    GatewayMoved,
)
from taskgate.telemetry.event_types.upstreams import (
    CircuitMoved,
    CredentialsGot,
    ExtensionDenied,
    HealthChecked,
    LateAnswerDropped,
    ProgramRestarted,
    ProgramSought,
    ProgramsRun,
    SessionLost,
    UpstreamAnswered,
    UpstreamBegun,
    UpstreamRetried,
)

__all__ = [
    "AccessRefused",
    "AuditDropped",
    "AuditNoted",
    "AuditWritten",
    "CallJoined",
    "CapRefused",
    "CircuitMoved",
    "ConfigReloaded",
    "CredentialsGot",
    "Event",
    "EventSink",
    "ExtensionDenied",
    "GatewayMoved",
    "HealthChecked",
    "InputAsked",
    "InputSettled",
    "InputWaited",
    "KeysFetched",
    "LateAnswerDropped",
    "LeaseLost",
    "OperatorAsked",
    "PollAdvised",
    "PollsCounted",
    "ProgramRestarted",
    "ProgramSought",
    "ProgramsRun",
    "QueueRefused",
    "RateJudged",
    "RatesFellBack",
    "SessionLost",
    "SlotsUsed",
    "SuspicionRaised",
    "TaskCancelAsked",
    "TaskCreated",
    "TaskDenied",
    "TaskDispatched",
    "TaskExpired",
    "TaskFinished",
    "TaskMoved",
    "TaskPolled",
    "TaskPurged",
    "TaskRecovered",
    "TaskRetrieved",
    "TokenJudged",
    "UpstreamAnswered",
    "UpstreamBegun",
    "UpstreamRetried",
    "WouldPromote",
]  # fmt: skip


class HttpAnswered(NamedTuple):
    """The public listener was done with a request, or with what is none; the last event of its visit.

    `route` is `mcp` for a mount, `prm` for a document about one, else `other`. `status` is 0 where no
    answer left: its host did before, or the listener ended.
    """

    route: str
    verb: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HttpRefused:
    """Refused before it was JSON-RPC; `reason` is of the closed set of `taskgate_http_rejections_total`."""

    reason: str


@dataclass(frozen=True, slots=True)
class PartAnswered:
    """One of several messages that came in one request was answered, or given up; the visit is its own."""


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

    Or it is `cancelled`: the host gave it up or left, or the gateway cut it off.

    `revision` is the session's, or what a refused message named; None where neither is known.
    """

    mount: str
    method: str
    revision: str | None
    seconds: float
    error: str | None


class ToolCalled(NamedTuple):
    """A `tools/call` was let in or refused; `disposition` says what became of it.

    It is task, inline (it could have become one, and ended before that), direct (it could not, or nothing came of it)
    or rejected (ours refused it before it left). `tool` is a name that the server listed, or None.
    """

    mount: str
    tool: str | None
    disposition: str


class StoreUsed(NamedTuple):
    """A store did, or failed to do, one operation."""

    operation: str
    seconds: float
    ok: bool


@dataclass(frozen=True, slots=True)
class StoreFaulted:
    """A store has a fault from now on, which keeps it from working; None where it has none any more."""

    fault: StoreFault | None


@dataclass(frozen=True, slots=True)
class StoreCounted:
    """What the store holds: tasks by status, and its size in bytes where known."""

    tasks: dict[TaskStatus, int]
    size: int | None


@dataclass(frozen=True, slots=True)
class CallsRunning:
    """How many calls of tasks are with the upstream of one mount now."""

    mount: str
    count: int


Event = (
    HttpAnswered
    | HttpRefused
    | PartAnswered
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
    | TaskRetrieved
    | TaskDenied
    | InputAsked
    | InputSettled
    | InputWaited
    | PollsCounted
    | TokenJudged
    | KeysFetched
    | CredentialsGot
    | ExtensionDenied
    | AccessRefused
    | SuspicionRaised
    | OperatorAsked
    | LateAnswerDropped
    | LeaseLost
    | SessionLost
    | StoreUsed
    | StoreFaulted
    | StoreCounted
    | CallsRunning
    | RateJudged
    | RatesFellBack
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
    | ProgramRestarted
    | ProgramSought
    | ProgramsRun
    | ConfigReloaded
    | GatewayMoved
    | AuditNoted
    | AuditWritten
    | AuditDropped
)


class EventSink(Protocol):
    """Where events go."""

    def emit(self, event: Event) -> None:
        """Take note of an event. Never raises, never waits."""
        ...


NO_ROOM: Final = "audit"
"""Why a request was refused that was not to be let in without a line."""


class Trail(Protocol):
    """What keeps a record of every request: whoever lets requests in asks it for room first."""

    @property
    def is_full(self) -> bool:
        """Whether a request would have to wait for room, or do without."""
        ...

    async def room(self) -> bool:
        """Wait for room, as long as the operator allows. False where the request is not to be let in without."""
        ...


class NoTrail:
    """Keeps none, and has room for all."""

    is_full = False

    async def room(self) -> bool:
        """See Trail."""
        return True


class Listeners:
    """Tells several listeners of each event, in their order."""

    def __init__(self, *listeners: EventSink) -> None:
        self._listeners = tuple(each.emit for each in listeners)

    def emit(self, event: Event) -> None:
        """See EventSink."""
        for tell in self._listeners:
            tell(event)
