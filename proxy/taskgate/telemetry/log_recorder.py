"""The reader of events for log lines about conditions: `LogRecorder`.

It logs at `warning` that an upstream is down, refuses requests or is up again. It does so for a circuit
that opens for one caller or closes, and when the reason changes meanwhile. It does so too for a task that
fails without a result of its tool, or gets too old. Lost leases have lines, and limits that refuse a
caller. The number of lines is bounded: a line counts what it leaves out. docs/logs.md lists them.

No line has an id of a task: it has the task's public reference. For a request that is not refused
nothing here runs, unless the shared store of rates is away.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from logging import INFO, getLogger
from math import inf
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.record import FaultReason, TaskId
from taskgate.system.log_throttle import LOG_PAUSE, KeyedLog
from taskgate.telemetry import events
from taskgate.telemetry.events import Event
from taskgate.telemetry.request_context import current
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.upstream_condition import UpstreamState, in_words

PAUSE: Final = 10.0
"""Seconds between two lines about one condition of one upstream."""
LONGEST_PAUSE: Final = 600.0
"""The longest pause between two lines about other and other reasons of one outage. It doubles up to that."""

log = getLogger("taskgate.telemetry")
_upstream_log: Final = getLogger("taskgate.upstream")
_limit_log: Final = getLogger("taskgate.limits")
_task_log: Final = getLogger("taskgate.runner")
_lease_log: Final = getLogger("taskgate.leases")


class LogRecorder:
    """The reader of the events of a gateway that writes log lines, until `close`.

    `reference_of` returns the public reference of a task. `block_of` returns what counts as one
    address, for callers that are not authenticated.

    - `_health`, `_circuits`: what is known of each upstream, by its name
    - `_timer`: the one timer of all lines that wait
    """

    def __init__(
        self,
        event_sink: EventRing,
        *,
        clock: Clock,
        reference_of: Callable[[TaskId], str],
        block_of: Callable[[str], str],
    ) -> None:
        self._event_sink = event_sink
        self._clock = clock
        self._reference_of = reference_of
        self._block_of = block_of
        self._health: dict[str, _Health] = {}
        self._circuits: dict[str, _Circuit] = {}
        self._refusals = KeyedLog(_limit_log, "a limit refuses a caller")
        self._failed_tasks = KeyedLog(_task_log, "a task failed without a result of its tool")
        self._resumed_tasks = KeyedLog(_task_log, "a task of a process that is gone goes on here", level=INFO)
        self._expired_tasks = KeyedLog(_task_log, "a task ended unfinished: it is as old as tasks.ttl.max allows")
        self._lost_leases = KeyedLog(_lease_log, "another replica took over a task: its call is aborted here")
        self._keyed = (self._refusals, self._failed_tasks, self._resumed_tasks, self._expired_tasks, self._lost_leases)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        handlers: Mapping[type, Callable[[Any], None]] = {
            events.UpstreamAdded: self._upstream_added,
            events.UpstreamStateChanged: self._state_changed,
            events.CircuitChanged: self._circuit_changed,
            events.RateLimitChecked: self._rate_limit_checked,
            events.CapRefused: self._cap_refused,
            events.QueueRefused: self._queue_refused,
            events.TaskFaulted: self._task_faulted,
            events.TaskRecovered: self._task_recovered,
            events.TaskExpired: self._task_expired,
            events.LeaseLost: self._lease_lost,
        }
        event_sink.hasten(self, handlers.keys())
        event_sink.subscribe(self, handlers)

    def note_failure(self, event: Event) -> None:
        log.exception("an event was not logged", extra={"fact": type(event).__name__})

    def adopt(self, upstreams: Collection[str]) -> None:
        """Forget upstreams that are not among these any more, after a reload."""
        for conditions in (self._health, self._circuits):
            for gone in conditions.keys() - set(upstreams):
                del conditions[gone]

    def close(self) -> None:
        """Write what is counted or changed and has no line yet."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for keyed in self._keyed:
            keyed.close()
        for known in (*self._health.values(), *self._circuits.values()):
            known.write(inf, self._clock.now())

    # --- upstreams ----------------------------------------------------------------------------------------------------

    def _upstream_added(self, event: events.UpstreamAdded) -> None:
        # What a line said of the server before is true until the new one is checked. Its circuit is closed.
        if (circuit := self._circuits.get(event.mount)) is not None:
            self._change(circuit, None, is_bad=False)

    def _state_changed(self, event: events.UpstreamStateChanged) -> None:
        if event.state is None:
            return
        known = self._health.get(event.mount)
        if known is None:
            known = self._health[event.mount] = _Health(event.mount)
        known.began, known.is_refusing = event.since, event.state == UpstreamState.REFUSING
        self._change(known, event.cause, is_bad=event.state != UpstreamState.UP)

    def _circuit_changed(self, event: events.CircuitChanged) -> None:
        if event.is_for_all and event.state != "closed":
            # The upstream is down, which has a line.
            self._circuits.pop(event.mount, None)
            return
        known = self._circuits.get(event.mount)
        if known is None:
            if event.state == "closed":
                return
            known = self._circuits[event.mount] = _Circuit(event.mount)
        # Half open is a trial: the circuit then closes, or opens again.
        if event.state != "half_open":
            self._change(known, event.cause, is_bad=event.state == "open")

    def _change(self, known: "_Condition", cause: str | None, *, is_bad: bool) -> None:
        """Take the present state of a condition, and log it unless it has had a line just now."""
        now = self._event_sink.elapsed
        if is_bad is not known.is_bad:
            known.is_bad = is_bad
            known.changes += 1
            if is_bad and not known.is_logged_bad:
                known.since, known.cause = known.began or self._event_sink.now, cause
        if is_bad and cause is not None and cause != known.cause:
            known.cause = cause
            known.changes += 1
        due = known.write(now, self._event_sink.now)
        if due is not None:
            self._come_back(due - now)

    # --- limits -------------------------------------------------------------------------------------------------------

    def _rate_limit_checked(self, event: events.RateLimitChecked) -> None:
        # In shadow mode, and without the rate store, the request was not refused.
        if event.decision == "rejected":
            self._refused({"limit": "rate", "policy": event.policy, "scope": event.scope})

    def _cap_refused(self, event: events.CapRefused) -> None:
        self._refused({"limit": event.cap, "scope": event.scope})

    def _queue_refused(self, event: events.QueueRefused) -> None:
        self._refused({"limit": "queue", "upstream": event.mount, "reason": event.reason})

    def _refused(self, fields: dict[str, str]) -> None:
        """Log that a limit refused the present caller: its reference, or its address without one."""
        here = current()
        caller = "unknown"
        if here is not None:
            caller = self._block_of(here.address) if here.caller is None else f"c_{here.caller.key}"
            if here.mount is not None:
                fields.setdefault("upstream", here.mount)
        key = caller, fields["limit"], fields.get("policy"), fields.get("upstream")
        self._emit(self._refusals, key, {"caller": caller, **fields})

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _task_faulted(self, event: events.TaskFaulted) -> None:
        if event.reason == FaultReason.EXPIRED:
            # `_task_expired` says more.
            return
        upstream = event.task.owner.mount
        fields = {"upstream": upstream, "reason": event.reason, "task": self._reference_of(event.task.id)}
        self._emit(self._failed_tasks, event.task.id, fields)

    def _task_recovered(self, event: events.TaskRecovered) -> None:
        # One that is lost has the line of a failed task.
        if event.outcome == "retried":
            task = event.task
            fields = {"upstream": task.owner.mount, "tool": task.call.tool, "task": self._reference_of(task.id)}
            self._emit(self._resumed_tasks, task.id, fields)

    def _task_expired(self, event: events.TaskExpired) -> None:
        task = event.task
        upstream, tool = task.owner.mount, task.call.tool
        fields = {
            "upstream": upstream,
            "tool": tool,
            "task": self._reference_of(task.id),
            "phase": event.phase,
            "seconds": round((task.expires_at - task.created_at).total_seconds()),
        }
        self._emit(self._expired_tasks, (upstream, tool), fields)

    def _lease_lost(self, event: events.LeaseLost) -> None:
        fields = {"upstream": event.mount, "task": self._reference_of(event.task)}
        self._emit(self._lost_leases, event.mount, fields)

    # --- lines that wait ----------------------------------------------------------------------------------------------

    def _emit(self, keyed: KeyedLog, key: object, fields: Mapping[str, Any]) -> None:
        keyed.emit(key, fields, self._event_sink.elapsed)
        self._come_back(LOG_PAUSE)

    def _come_back(self, seconds: float) -> None:
        """Write the lines that wait in so many seconds, or earlier if a timer is due earlier."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(seconds, 0.0)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._write_waiting, context=Context())

    def _write_waiting(self) -> None:
        self._timer = None
        # Events that wait are older than now.
        self._event_sink.fold()
        now, today = self._clock.elapsed(), self._clock.now()
        due = [keyed.flush(now) for keyed in self._keyed]
        conditions = (*self._health.values(), *self._circuits.values())
        due += [known.write(now, today) for known in conditions]
        soonest = min((each for each in due if each is not None), default=None)
        if soonest is not None:
            self._come_back(soonest - now)


@dataclass(slots=True)
class _Condition:
    """Something that may be wrong with an upstream, and what the log says of it.

    - `is_bad`: how it is; `is_logged_bad`: how it was at the last line
    - `began`: when the failures began that go on, if that is known
    - `since`, `cause`: when it became bad, and why; `logged_cause`: why, by the last line
    - `changes`: how often it changed, or its cause, since the last line
    - `causes`: how many lines said since it became bad that its cause is another
    """

    upstream: str
    is_bad: bool = False
    is_logged_bad: bool = False
    began: datetime | None = None
    since: datetime | None = None
    cause: str | None = None
    logged_cause: str | None = None
    changes: int = 0
    causes: int = 0
    logged_at: float = float("-inf")

    def write(self, now: float, today: datetime) -> float | None:
        """Write the line of a new state or cause; return when, if the last line is too new for that.

        Changes that were undone before they had a line are counted in the next one.
        """
        is_another_cause = self.is_bad and self.is_logged_bad
        if self.cause == self.logged_cause if is_another_cause else self.is_bad is self.is_logged_bad:
            return None
        pause = min(PAUSE * 2**self.causes, LONGEST_PAUSE) if is_another_cause else PAUSE
        if now - self.logged_at < pause:
            return self.logged_at + pause
        fields: dict[str, Any] = {"upstream": self.upstream}
        if self.is_bad:
            fields["reason"] = in_words(self.cause or "unknown")
        if self.since is not None:
            fields["since"] = self.since.isoformat(timespec="seconds").replace("+00:00", "Z")
            if not self.is_bad:
                fields["seconds"] = round((today - self.since).total_seconds(), 1)
        if self.changes > 1:
            fields["left_out"] = self.changes - 1
        self.causes = self.causes + 1 if is_another_cause else 0
        self.is_logged_bad, self.logged_at, self.changes = self.is_bad, now, 0
        self.logged_cause = self.cause
        self.log(fields, is_another_cause=is_another_cause)
        return None

    def log(self, fields: Mapping[str, Any], *, is_another_cause: bool) -> None:
        """Write the line of the present state."""
        raise NotImplementedError


@dataclass(slots=True)
class _Health(_Condition):
    is_refusing: bool = False
    was_logged_refusing: bool = False

    def log(self, fields: Mapping[str, Any], *, is_another_cause: bool) -> None:
        was_refusing, self.was_logged_refusing = self.was_logged_refusing, self.is_bad and self.is_refusing
        if self.was_logged_refusing:
            _upstream_log.warning("an upstream refuses requests", extra=fields)
        elif is_another_cause and not was_refusing:
            _upstream_log.warning("an upstream is still down, for another reason", extra=fields)
        elif self.is_bad:
            _upstream_log.warning("an upstream is down", extra=fields)
        else:
            _upstream_log.warning("an upstream is up again", extra=fields)


class _Circuit(_Condition):
    """The circuit that is open for one caller."""

    __slots__ = ()

    def log(self, fields: Mapping[str, Any], *, is_another_cause: bool) -> None:
        if is_another_cause:
            _upstream_log.warning(
                "the circuit of an upstream is still open for a caller, for another reason", extra=fields
            )
        elif self.is_bad:
            _upstream_log.warning(
                "the circuit of an upstream is open for a caller: its calls are refused", extra=fields
            )
        else:
            _upstream_log.warning("the circuit of an upstream is closed again", extra=fields)
