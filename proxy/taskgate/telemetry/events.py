"""The events that the gateway emits, and `EventSink`, the port that takes them.

An event is a small value about something that happened. Its readers are metrics, the audit log and
spans; each decides what to make of it. An event holds no token, address or session id. Arguments
and results are in it only as parts of a task's record. The `request_context` says which request an
event belongs to. It is itself the event of a request that is over, the last one of its request.
`ring` has the sink of a gateway.

No event is changed after it was emitted. Those of nearly every task are not frozen, since that
makes them slow to make. A `NamedTuple` is used where equal events are counted, or nearly every request
emits one. What nearly every request passes has an event of its own, so that the audit log need not
look at it. The module is long because it is one catalogue, in the order of the way of a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from taskgate.domain.record import TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry.request_context import Caller, RequestContext

# --- requests of hosts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpRefused:
    """A request was refused before it was read as JSON-RPC.

    `reason` is of the closed set of `taskgate_http_rejections_total`.
    """

    reason: str


@dataclass(slots=True)
class StreamOpened:
    """An event stream began.

    `side` is downstream or upstream, `kind` is response, get or listen.
    """

    side: str
    kind: str


@dataclass(slots=True)
class StreamEnded:
    """An event stream ended; fields as in `StreamOpened`."""

    side: str
    kind: str


class ToolCalled(NamedTuple):
    """A `tools/call` was accepted or refused; `tool` is None unless the server listed the name.

    `disposition` is one of
    - `task`
    - `inline`: the call could have become a task, and ended before that
    - `direct`: the call could not become a task, or failed
    - `rejected`: the gateway refused the call and sent nothing
    """

    mount: str
    tool: str | None
    disposition: str


@dataclass(frozen=True, slots=True)
class ShadowPromotion:
    """A promotion rule in shadow mode matched a call that did not become a task."""

    mount: str


@dataclass(frozen=True, slots=True)
class CallCoalesced:
    """A call got the answer of an earlier one.

    `how` is `key` (the same idempotency key) or `retry` (an identical call still running).
    """

    mount: str
    how: str


# --- identity and access ---------------------------------------------------------------------------------------------


class TokenRecognized(NamedTuple):
    """A request was accepted by a token that is in the cache; `issuer` as in `TokenChecked`."""

    issuer: str


class TokenChecked(NamedTuple):
    """A request was accepted by its token, or refused because it had no valid one.

    `reason` is `ok`, an `AuthReason` or `jwks_unavailable`. `issuer` is the operator's name of the
    issuer, or `_OTHER`. `known` is False if the token was not in the cache, and None if it was not
    looked up.
    """

    issuer: str
    reason: str
    known: bool | None = None
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class KeysFetched:
    """An attempt to fetch the keys of an issuer ended; `keys` is the number of usable keys now.

    `result` is `ok`, `stale` (the fetch failed, earlier keys stay in use) or `failed` (no keys).
    """

    issuer: str
    result: str
    keys: int


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """An access rule refused an operation, or would have refused it outside of shadow mode.

    `rule` is the operator's name of the rule; None if no rule matched, which is a refusal as well.
    `tool` is the tool of the operation, if it has one.
    """

    mount: str
    method: str
    shadow: bool
    rule: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class SuspicionRaised:
    """A caller behaves like an attacker; emitted once for each detection, not for each request.

    `kind` is one of
    - `enumeration_suspected`: looks up many tasks that it does not have
    - `cross_context_access`: looks up a task of another auth context
    - `excessive_polling`
    - `header_mismatch`: headers contradict the body
    - `auth_bruteforce`: sends many invalid tokens
    - `input_key_unknown`: answers an input request that was not made
    """

    kind: str
    mount: str


@dataclass(frozen=True, slots=True)
class OperatorRequestAnswered:
    """A request to the protected part of the operators' listener was answered with `status`.

    `operator` is the name of the token; None if it had no right one. `left_out` counts refusals
    with this status before it that were not reported, because there were many. `details` are members
    of the audit line that the operation has of its own, such as `dry_run`. `task` is the head of the
    task whose payload the operator asks for.
    """

    verb: str
    path: str
    status: int
    address: str
    operator: str | None = None
    left_out: int = 0
    details: Mapping[str, int] = field(default_factory=dict)
    task: TaskRecord | None = None


# --- limits ----------------------------------------------------------------------------------------------------------


class RateLimitAllowed(NamedTuple):
    """A rate policy was checked, and allowed a request."""

    policy: str
    scope: str


class RateLimitChecked(NamedTuple):
    """A rate policy was checked; `decision` is rejected, delayed (allowed later), or shadow (would be rejected).

    While a shared rate store is unavailable, an allowed request is `fail_local` (by the share of
    this replica) or `fail_open`.
    """

    policy: str
    scope: str
    decision: str


@dataclass(frozen=True, slots=True)
class RateFallbackUsed:
    """The rate store is unavailable; `rule` is what applies instead: local, open or closed.

    Emitted for the first request that is affected, and then once a minute.
    """

    rule: str


@dataclass(frozen=True, slots=True)
class CapRefused:
    """A cap refused something; `cap` is tasks, bytes, sessions, streams or waits.

    `scope` is what the cap counts over.
    """

    cap: str
    scope: str


@dataclass(frozen=True, slots=True)
class SessionEvicted:
    """An idle host session ended because its caller was at its limit and opened another one."""


class ConcurrencyChanged(NamedTuple):
    """The calls in flight to a server, the `limit` on them, and the calls waiting for a permit."""

    mount: str
    in_use: int
    limit: int
    queued: int


@dataclass(frozen=True, slots=True)
class QueueRefused:
    """A call found the queue full or its server held, or waited too long.

    `reason` is full, held or timeout.
    """

    mount: str
    reason: str


# --- tasks -----------------------------------------------------------------------------------------------------------
# Each holds the task's record of that moment, with its owner, mount and id. Readers show no id.


@dataclass(slots=True)
class TaskCreated:
    """A task is durable and acknowledged.

    `adjustment` says how its TTL differs from the requested one: an `action` label, or None.
    """

    task: TaskRecord
    adjustment: str | None


@dataclass(slots=True)
class TaskDispatched:
    """The call of a task was sent to the server, `waited` after the task was created."""

    task: TaskRecord
    waited: timedelta


@dataclass(slots=True)
class TaskTransitioned:
    """A task changed its status; `task` is the record with the new one."""

    task: TaskRecord
    before: TaskStatus


@dataclass(slots=True)
class TaskFinished:
    """A task ended; `reason` is ok, tool_error, client (cancelled) or a `FaultReason`.

    An expired task has the `status` failed, although its record was not changed.
    """

    task: TaskRecord
    status: TaskStatus
    reason: str
    age: timedelta
    result_bytes: int | None


@dataclass(frozen=True, slots=True)
class TaskFaulted:
    """A task failed without a result of its tool, and not by an error that its server answered.

    `reason` is a `FaultReason`. It follows the TaskFinished of the task, for the log alone.
    """

    task: TaskRecord
    reason: str


@dataclass(frozen=True, slots=True)
class TaskExpired:
    """An unfinished task reached the age at which it ends; `phase` is queued, working or input_required."""

    task: TaskRecord
    phase: str


@dataclass(frozen=True, slots=True)
class TaskPurged:
    """A record was removed after its TTL.

    `task.retrieved` says whether the outcome was ever fetched.
    """

    task: TaskRecord


@dataclass(frozen=True, slots=True)
class TaskCancelRequested:
    """A host or an operator asked to cancel a task; `outcome` is propagated or already_terminal.

    `operator` is the name of the operator's token, and `reason` what the operator gave as one; None for
    a host.
    """

    task: TaskRecord
    outcome: str
    operator: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRecovered:
    """A task was taken over because its process was gone.

    `outcome` is `failed` (the call may have run) or `retried` (the call is sent again or resumed).
    """

    task: TaskRecord
    outcome: str


@dataclass(slots=True)
class TaskRetrieved:
    """The outcome of a task was sent to its owner; cancelled tasks have no outcome.

    `delay` is the time since the task ended; None unless this is the first retrieval.
    """

    task: TaskRecord
    delay: timedelta | None


@dataclass(frozen=True, slots=True)
class TaskDenied:
    """A look-up found no task of the caller.

    `reason` is context_mismatch, not_found, expired or malformed_id; the host does not learn which.
    `task` is the requested id, cut to the length of an id. `owner` is the auth context of the task
    if it exists.
    """

    mount: str
    method: str
    reason: str
    task: str
    owner: str | None


class TaskPolled(NamedTuple):
    """A task was polled; `result` is changed, unchanged, terminal, early or limited."""

    mount: str
    result: str


@dataclass(slots=True)
class PollsCounted:
    """The number of polls of one task until the host saw that it had ended."""

    mount: str
    polls: int


@dataclass(frozen=True, slots=True)
class InputRequestOpened:
    """A server sent an input request; `kind` is elicitation, sampling or roots."""

    task: TaskRecord
    key: str
    kind: str


@dataclass(frozen=True, slots=True)
class InputSettled:
    """An input request ended.

    `outcome` is answered, declined, expired (no answer in time) or superseded (not needed any
    more). `declined` covers declined and cancelled elicitations, and errors of the host.
    """

    task: TaskRecord
    key: str
    kind: str
    outcome: str


@dataclass(frozen=True, slots=True)
class InputWaited:
    """A task left the status `input_required` after `waited`."""

    task: TaskRecord
    waited: timedelta


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another replica took over what this one had leased; `kind` is `task`: its call is aborted.

    `task` is the id, which readers do not show, and `mount` its upstream.
    """

    kind: str
    mount: str
    task: TaskId


# --- upstreams -------------------------------------------------------------------------------------------------------


class UpstreamAnswered(NamedTuple):
    """A server answered a request of the gateway, or failed to.

    `error` is as in `RequestContext`, or the reason of the failure. `is_own`: no host made the request, such as
    that for a page of the server's tools. `is_replaced`: a reload has put another server in the place of this one.
    """

    mount: str
    method: str
    seconds: float
    error: str | None
    is_own: bool = False
    is_replaced: bool = False


class UpstreamRequestFailed(NamedTuple):
    """A request that a host made of a server failed, after all that was tried.

    `reason` and `cause` are as in `UpstreamFailed`. No metric has the cause. `is_answer`: the server
    answered it with an error, under an HTTP status that is about the caller or the server.
    """

    mount: str
    method: str
    reason: str
    cause: str
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamStateChanged:
    """A server is up, refusing or down from now on, or is so for another cause.

    `state` is as in `UpstreamState`, None if it is unknown; an operator may hold it besides. `cause` says
    why it is not up, in words for operators; no metric has it. `since` is when the failures began that go
    on. Both are None without any.
    """

    mount: str
    state: str | None
    cause: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class UpstreamAdded:
    """A server is served from now on, new or in place of another of its name; health unknown."""

    mount: str


@dataclass(frozen=True, slots=True)
class UpstreamRetried:
    """A request of which no byte was sent is retried; `reason` is connect."""

    mount: str
    reason: str


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    """The circuit breaker of a server is now closed, open or half_open.

    `cause` is that of the latest failure, as in `UpstreamFailed`. No metric has it. `is_for_all`: it
    concerns all callers, and not one.
    """

    mount: str
    state: str
    cause: str | None = None
    is_for_all: bool = True


@dataclass(frozen=True, slots=True)
class HealthChecked:
    """A health check of a server ended; `up` is the health after it, None while unknown.

    `cause` says why the check failed, as in `UpstreamFailed`, or why the server refused it, which is an
    answer. No metric has it.
    """

    mount: str
    ok: bool
    up: bool | None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class ProgramRestarted:
    """A stdio program was started after one that ended by itself; `cause` is why that ended."""

    mount: str
    cause: str


@dataclass(frozen=True, slots=True)
class ProgramsCounted:
    """The number of stdio programs of a server that run now."""

    mount: str
    count: int


@dataclass(frozen=True, slots=True)
class ProgramAvailabilityChanged:
    """Whether a needed stdio program answers changed; `up` is False as well if none starts.

    `cause` says why it is down, as in `UpstreamFailed`.
    """

    mount: str
    up: bool
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A server ended its session; the next call opens another one."""

    mount: str


@dataclass(frozen=True, slots=True)
class LateAnswerDropped:
    """A server answered a call whose task had already ended."""

    mount: str


@dataclass(frozen=True, slots=True)
class ExtensionDenied:
    """A host or server declared an extension that the gateway does not forward.

    `extension` is its identifier, which a peer may have invented.
    """

    mount: str
    extension: str


@dataclass(frozen=True, slots=True)
class CredentialsFetched:
    """A token exchange for a server ended; `ok` is whether it gave a token."""

    mount: str
    seconds: float
    ok: bool


# --- the store -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoreUsed:
    """One operation of the store ended; `ok` is whether it succeeded."""

    operation: str
    seconds: float
    ok: bool


@dataclass(frozen=True, slots=True)
class StoreFaulted:
    """The fault that keeps the store from working from now on; None when it is over."""

    fault: StoreFault | None


@dataclass(frozen=True, slots=True)
class StoreCounted:
    """The number of tasks in the store by status, and its size in bytes if known."""

    tasks: dict[TaskStatus, int]
    size: int | None


# --- the gateway -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatewayPhaseChanged:
    """The gateway is started, stopping or stopped.

    `fingerprint` is that of its configuration.
    """

    phase: str
    version: str
    fingerprint: int


@dataclass(frozen=True, slots=True)
class ConfigReloaded:
    """The configuration was read again; `result` is success, invalid, unchanged or needs_restart.

    `fingerprint` has 48 bits, equal for equal effective configurations. `problems` says why the
    configuration was refused. `waits` lists the changed keys that need a restart.
    """

    result: str
    fingerprint: int
    problems: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


# --- the audit log ---------------------------------------------------------------------------------------------------
# For metrics alone: an audit log of its own lines would not end.


class AuditEventRecorded(NamedTuple):
    """An event of the audit log: its name and outcome."""

    event: str
    outcome: str


@dataclass(frozen=True, slots=True)
class AuditLinesWritten:
    """A sink wrote a batch of lines in `seconds`.

    `sequence` is the number of the last line, `queued` the events that still wait.
    """

    sink: str
    seconds: float
    sequence: int
    queued: int


@dataclass(frozen=True, slots=True)
class AuditLinesDropped:
    """Lines that a sink lost; `reason` is queue_full, write_failed or closed."""

    sink: str
    reason: str
    lines: int


Event = (
    RequestContext | HttpRefused | StreamOpened | StreamEnded | ToolCalled | ShadowPromotion | CallCoalesced
    | TokenRecognized | TokenChecked | KeysFetched | AccessRefused | SuspicionRaised | OperatorRequestAnswered
    | RateLimitAllowed | RateLimitChecked | RateFallbackUsed | CapRefused | SessionEvicted | ConcurrencyChanged
    | QueueRefused | TaskCreated | TaskDispatched | TaskTransitioned | TaskFinished | TaskFaulted | TaskExpired
    | TaskPurged
    | TaskCancelRequested | TaskRecovered | TaskRetrieved | TaskDenied | TaskPolled | PollsCounted | InputRequestOpened
    | InputSettled | InputWaited | LeaseLost | UpstreamAnswered | UpstreamRequestFailed | UpstreamStateChanged
    | UpstreamAdded | UpstreamRetried
    | CircuitChanged | HealthChecked | ProgramRestarted | ProgramsCounted | ProgramAvailabilityChanged | SessionLost
    | LateAnswerDropped | ExtensionDenied | CredentialsFetched | StoreUsed | StoreFaulted | StoreCounted
    | GatewayPhaseChanged | ConfigReloaded | AuditEventRecorded | AuditLinesWritten | AuditLinesDropped
)  # fmt: skip

# --- ports -----------------------------------------------------------------------------------------------------------


class EventSink(Protocol):
    """A receiver of events."""

    def emit(self, event: Event) -> None:
        """Take an event, of the current request. Does not raise and does not wait."""
        ...


AUDIT_FULL: Final = "audit"
"""The reason of `HttpRefused` when the audit log has no room and must not lose a line."""


class AuditCapacity(Protocol):
    """The room for requests in the audit log; the listener asks it before it accepts a request."""

    @property
    def is_full(self) -> bool:
        """Whether a request must wait for room or be refused."""
        ...

    async def room(self) -> bool:
        """Wait for room as long as the operator allows; False if the request must be refused."""
        ...


class UnlimitedAuditCapacity:
    """The `AuditCapacity` without an audit log."""

    is_full = False

    async def room(self) -> bool:
        return True
