"""Metrics of admission: limits, tokens and access rules, and the callers that are active.

Families come first, then the recorders, and `ActiveCallers`, which counts callers.
"""

from typing import Final, TypeVar

from taskgate.clock import Clock
from taskgate.domain.limits import CapScope
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import FROM_START, SeriesLimits, counter, from_start, gauge
from taskgate.telemetry.metrics.registry import Recorders, Registry
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.metrics.storage import AUDIT_QUEUE_LIMIT, STORE_LIMIT
from taskgate.telemetry.ring import EventRing

# --- families of limits ----------------------------------------------------------------------------------------------

RATE_DECISIONS = counter(
    "taskgate_rate_limit_decisions_total",
    "Decisions of rate policies on requests.",
    labels.POLICY,
    labels.RATE_SCOPE,
    labels.RATE_DECISION,
    limits=SeriesLimits(own=5),
)
RATE_WAITING = gauge("taskgate_rate_limit_waiting", "Requests that wait for their turn at a rate.")
IN_USE = gauge(
    "taskgate_concurrency_in_use",
    "Calls in flight to an upstream; over all, unfinished tasks in the store.",
    labels.CONCURRENCY_SCOPE,
    labels.UPSTREAM,
)
LIMIT = gauge(
    "taskgate_concurrency_limit",
    "The limit on those in use; absent without a limit.",
    labels.CONCURRENCY_SCOPE,
    labels.UPSTREAM,
)
CAP_REJECTIONS = counter(
    "taskgate_concurrency_rejections_total",
    "Refusals by a cap on tasks, bytes, sessions, streams or waits.",
    labels.CAP,
    labels.CAP_SCOPE,
)
SESSIONS_EVICTED = counter(
    "taskgate_sessions_evicted_total",
    "Idle host sessions that ended because their caller, at its limit, opened another one.",
)
SATURATED = gauge("taskgate_saturated_contexts", "Callers that are at one of their own caps.")
ACTIVE = gauge("taskgate_active_contexts", "Callers with a request in the last five minutes.")
QUEUE_DEPTH = gauge(
    "taskgate_queue_depth", "Calls that wait for a permit of an upstream.", labels.UPSTREAM, limits=FROM_START
)
QUEUE_LIMIT = gauge("taskgate_queue_limit", "The most calls that may wait for an upstream.", labels.UPSTREAM)
QUEUE_REJECTIONS = counter(
    "taskgate_queue_rejections_total",
    "Calls that found the queue full or the upstream held by an operator, or waited too long.",
    labels.UPSTREAM,
    labels.QUEUE_REFUSAL,
    limits=from_start(("full",), ("timeout",)),
)

LIMIT_FAMILIES: Final = (
    RATE_DECISIONS, RATE_WAITING, IN_USE, LIMIT, CAP_REJECTIONS, SESSIONS_EVICTED, SATURATED, ACTIVE, QUEUE_DEPTH,
    QUEUE_LIMIT, QUEUE_REJECTIONS,
)  # fmt: skip

# --- families of access ----------------------------------------------------------------------------------------------

AUTH_REQUESTS = counter(
    "taskgate_auth_requests_total",
    "Requests by what became of their token; `_OTHER` is an unknown issuer, or no token.",
    labels.ISSUER,
    labels.TOKEN_RESULT,
    labels.TOKEN_REASON,
    limits=SeriesLimits(reserved=frozenset({(True, "ok")}), own=len(labels.TOKEN_REASON.values or ())),
)
TOKEN_CACHE = counter(
    "taskgate_token_cache_lookups_total",
    "Look-ups in the cache of verified tokens.",
    labels.TOKEN_CACHE_RESULT,
    limits=from_start(()),
)
KEY_REFRESHES = counter(
    "taskgate_jwks_refreshes_total",
    "Attempts to fetch an issuer's keys.",
    labels.ISSUER,
    labels.KEY_FETCH_RESULT,
    limits=from_start(("ok",), ("stale",), ("failed",)),
)
KEYS = gauge("taskgate_jwks_keys", "Keys of an issuer that are usable.", labels.ISSUER, limits=FROM_START)
KEYS_FETCHED = gauge(
    "taskgate_jwks_last_success_timestamp_seconds",
    "When an issuer's keys were last fetched; 0 before the first.",
    labels.ISSUER,
    limits=FROM_START,
)
ACCESS_REFUSALS = counter(
    "taskgate_access_refusals_total",
    "Operations refused by a rule, or that one in shadow mode would refuse.",
    labels.UPSTREAM,
    labels.METHOD,
    labels.RULE_MODE,
    limits=SeriesLimits(own=11),
)
SECURITY_EVENTS = counter(
    "taskgate_security_events_total", "Signs of an attack.", labels.SUSPICION, limits=from_start(())
)
PENALIZED = gauge("taskgate_penalized_contexts", "Penalties for callers that missed tasks, each at one mount.")

ACCESS_FAMILIES: Final = (
    AUTH_REQUESTS, TOKEN_CACHE, KEY_REFRESHES, KEYS, KEYS_FETCHED, ACCESS_REFUSALS, SECURITY_EVENTS, PENALIZED,
)  # fmt: skip

# --- recorders -------------------------------------------------------------------------------------------------------


def limit_recorders(registry: Registry) -> Recorders:
    """The recorders of decisions by limits."""
    decisions = registry.counter(RATE_DECISIONS)
    caps = registry.counter(CAP_REJECTIONS)
    evictions = registry.counter(SESSIONS_EVICTED)[()]
    queue_refusals = registry.counter(QUEUE_REJECTIONS)

    def rate_limit_allowed(event: events.RateLimitAllowed, times: int = 1) -> None:
        decisions.count((event.policy, event.scope, "allowed"), times)

    def rate_limit_checked(event: events.RateLimitChecked) -> None:
        # The event is the key: its fields are the labels of the family.
        decisions[event].value += 1

    def cap_refused(event: events.CapRefused) -> None:
        caps[event.cap, event.scope].value += 1

    def session_evicted(event: events.SessionEvicted) -> None:
        evictions.value += 1

    def queue_refused(event: events.QueueRefused) -> None:
        # The queue of a held server has no place for new calls. A reason of its own would be a series each.
        reason = "full" if event.reason == "held" else event.reason
        queue_refusals[event.mount, reason].value += 1

    return {
        events.RateLimitAllowed: rate_limit_allowed,
        events.RateLimitChecked: rate_limit_checked,
        events.CapRefused: cap_refused,
        events.SessionEvicted: session_evicted,
        events.QueueRefused: queue_refused,
    }


class ConcurrencyRecorder:
    """The recorder of what is in use of limited things, and of the limits themselves.

    Events say what is in use; `adopt` sets the limits at the start and at each reload.
    """

    def __init__(self, registry: Registry) -> None:
        self._in_use = registry.gauge(IN_USE)
        self._limits = registry.gauge(LIMIT)
        self._depth = registry.gauge(QUEUE_DEPTH)
        self._queue_limits = registry.gauge(QUEUE_LIMIT)
        self._store_limit = registry.gauge(STORE_LIMIT)
        self._audit_limits = registry.gauge(AUDIT_QUEUE_LIMIT)
        # The limit and queue length last set for each mount, since they change seldom.
        self._last: dict[str, tuple[int, int]] = {}

    def recorders(self) -> Recorders:
        return {events.ConcurrencyChanged: self._concurrency_changed}

    def set_unfinished(self, tasks: int) -> None:
        """Show the number of unfinished tasks of all upstreams."""
        self._in_use[labels.ALL, None].value = tasks

    def adopt(self, config: MetricsConfig) -> None:
        """Show these limits from now on."""
        self._last.clear()
        if config.task_limit is None:
            self._limits.remove((labels.ALL, None))
        else:
            self._limits[labels.ALL, None].value = config.task_limit
        self._queue_limits.replace({(mount,): limit for mount, limit in config.queue_limits.items()})
        size, lines = config.store_limit, config.audit_queue
        self._store_limit.replace({} if size is None else {(config.backend,): size})
        self._audit_limits.replace({} if lines is None else {(sink,): lines for sink in config.sinks})

    def _concurrency_changed(self, event: events.ConcurrencyChanged) -> None:
        self._in_use["upstream", event.mount].value = event.in_use
        if self._last.get(event.mount) != (event.limit, event.queued):
            self._last[event.mount] = event.limit, event.queued
            self._limits["upstream", event.mount].value = event.limit
            self._depth[event.mount,].value = event.queued


def key_recorders(registry: Registry, ring: EventRing) -> Recorders:
    """The recorder of the keys of issuers."""
    refreshes = registry.counter(KEY_REFRESHES)
    usable = registry.gauge(KEYS)
    last_success = registry.gauge(KEYS_FETCHED)

    def keys_fetched(event: events.KeysFetched) -> None:
        refreshes[event.issuer, event.result].value += 1
        usable[event.issuer,].value = event.keys
        if event.result == "ok":
            last_success[event.issuer,].value = ring.now.timestamp()

    return {events.KeysFetched: keys_fetched}


def access_recorders(registry: Registry) -> Recorders:
    """The recorders of tokens, access rules and suspicions."""
    requests = registry.counter(AUTH_REQUESTS)
    cache_lookups = registry.counter(TOKEN_CACHE)
    refusals = registry.counter(ACCESS_REFUSALS)
    suspicions = registry.counter(SECURITY_EVENTS)

    def token_recognized(event: events.TokenRecognized, times: int = 1) -> None:
        requests.count((event.issuer, True, "ok"), times)
        cache_lookups[True,].value += times

    def token_checked(event: events.TokenChecked) -> None:
        requests[event.issuer, event.reason == "ok", event.reason].value += 1
        if event.known is not None:
            cache_lookups[event.known,].value += 1

    def access_refused(event: events.AccessRefused) -> None:
        refusals[event.mount, event.method, event.shadow].value += 1

    def suspicion_raised(event: events.SuspicionRaised) -> None:
        suspicions[event.kind,].value += 1

    return {
        events.TokenRecognized: token_recognized,
        events.TokenChecked: token_checked,
        events.AccessRefused: access_refused,
        events.SuspicionRaised: suspicion_raised,
    }


# --- active callers --------------------------------------------------------------------------------------------------

ACTIVE_SECONDS: Final = 300.0
"""Seconds that a caller counts after its last request, or after a cap refused it."""

REFRESH_SECONDS: Final = 1.0
"""Seconds after which a request refreshes its caller again: a caller may count that much shorter."""

MAX_CALLERS: Final = 100_000
"""Callers to remember; beyond that, those with the oldest requests do not count."""

Key = TypeVar("Key")

_TASKS, _BYTES, _SESSIONS, _STREAMS = "tasks", "bytes", "sessions", "streams"


class ActiveCallers:
    """The number of active callers, and of those at one of their own caps.

    It remembers the keys of callers of the last minutes, up to a bound. A caller is at a cap from its
    refusal until something of that kind ends. Only the event loop may use it. `_active` has the time
    of the last request by caller, `_saturated` that of the last refusal by caller and cap. Both take
    the time at which the event happened from `ring`.
    """

    def __init__(self, clock: Clock, ring: EventRing) -> None:
        self._clock = clock
        self._ring = ring
        self._active: dict[str, float] = {}
        self._saturated: dict[tuple[str, str], float] = {}

    def active(self) -> int:
        """The number of callers with a request in the last `ACTIVE_SECONDS`."""
        self._expire(self._active)
        return len(self._active)

    def saturated(self) -> int:
        """The number of callers that a cap of their own refused in that time, and that are still at it."""
        self._expire(self._saturated)
        return len({caller for caller, _ in self._saturated})

    def add(self, caller: str) -> None:
        """Count the caller with this key as active."""
        if self._ring.elapsed - self._active.get(caller, -REFRESH_SECONDS) >= REFRESH_SECONDS:
            self._refresh(self._active, caller)

    def session_opened(self, caller: str) -> None:
        """A caller opened a session, so it is below its cap; no event says when one ends."""
        self._saturated.pop((caller, _SESSIONS), None)

    def recorders(self) -> Recorders:
        """The recorders of caps; `requests` calls `add` and `session_opened`."""
        return {
            events.CapRefused: self._cap_refused,
            events.TaskFinished: self._task_finished,
            events.TaskPurged: self._task_purged,
            events.StreamEnded: self._stream_ended,
        }

    def _cap_refused(self, event: events.CapRefused) -> None:
        if event.scope == CapScope.CONTEXT and (caller := _current_caller()) is not None:
            self._refresh(self._saturated, (caller, event.cap))

    def _task_finished(self, event: events.TaskFinished) -> None:
        self._saturated.pop((event.task.owner.context, _TASKS), None)

    def _task_purged(self, event: events.TaskPurged) -> None:
        self._saturated.pop((event.task.owner.context, _BYTES), None)

    def _stream_ended(self, event: events.StreamEnded) -> None:
        if event.side == "downstream" and (caller := _current_caller()) is not None:
            self._saturated.pop((caller, _STREAMS), None)

    def _refresh(self, table: dict[Key, float], key: Key) -> None:
        # The newest is last in the table, so that the oldest are found at once.
        table.pop(key, None)
        table[key] = self._ring.elapsed
        if len(table) > MAX_CALLERS:
            del table[next(iter(table))]

    def _expire(self, table: dict[Key, float]) -> None:
        oldest = self._clock.elapsed() - ACTIVE_SECONDS
        while table and table[first := next(iter(table))] < oldest:
            del table[first]


def _current_caller() -> str | None:
    here = request_context.current()
    return None if here is None or here.caller is None else here.caller.key
