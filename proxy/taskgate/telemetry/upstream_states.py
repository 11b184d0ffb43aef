"""The reader of events that keeps the state of each upstream, for operators: `UpstreamStates`.

It emits `UpstreamStateChanged`, which the log and streams of operators read; `view` is for all others. It
keeps the last hour of requests of hosts, too. A request that succeeds costs one handler when its events are
folded.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.clock import Clock
from taskgate.errors import UpstreamReason
from taskgate.protocol.vocabulary import TOOLS_CALL, UNJUDGED_METHODS
from taskgate.telemetry import events
from taskgate.telemetry.events import Event
from taskgate.telemetry.history import SECONDS, RequestHistory
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.upstream_condition import Trouble, UpstreamCondition, UpstreamState, in_words

_FAILURES: Final = frozenset({*UpstreamReason, "cancelled"})
"""Outcomes of requests that are no answers."""

log = getLogger("taskgate.telemetry")


class UpstreamView(NamedTuple):
    """The state of an upstream as operators see it.

    - `state`: up, refusing or down, or held by an operator; None while it is unknown
    - `cause`: why it is not up, in words; `since`: when the failures began that go on
    - `requests`: requests of hosts that ended in the last five minutes; `failures`: those of them that
      the server did not serve
    """

    state: UpstreamState | None = None
    cause: str | None = None
    since: datetime | None = None
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Known:
    """The condition of one upstream, its last hour, and the state and trouble that were found last."""

    condition: UpstreamCondition = field(default_factory=UpstreamCondition)
    history: RequestHistory = field(default_factory=RequestHistory)
    told: tuple[UpstreamState | None, Trouble | None] = (None, None)


def _cause_of(trouble: Trouble | None) -> str | None:
    return None if trouble is None else trouble.cause


class UpstreamStates:
    """The reader of one gateway. `total` has the last hour of all upstreams, also of those that are gone."""

    def __init__(self, event_ring: EventRing, clock: Clock) -> None:
        self._event_ring = event_ring
        self._clock = clock
        self.total = RequestHistory(SECONDS)
        self._known: dict[str, _Known] = {}
        self._is_well = True
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            events.UpstreamAdded: self._added,
            events.UpstreamAnswered: self._answered,
            events.UpstreamRequestFailed: self._failed,
            events.HealthChecked: self._checked,
            events.ProgramAvailabilityChanged: self._programs_changed,
            events.CircuitChanged: self._circuit_changed,
        }
        self._hasten()
        event_ring.subscribe(self, self._handlers)

    def note_failure(self, event: Event) -> None:
        log.exception("an event did not change the state of an upstream", extra={"fact": type(event).__name__})

    def adopt(self, upstreams: Collection[str]) -> None:
        """Forget upstreams that are not among these any more, after a reload."""
        for gone in self._known.keys() - set(upstreams):
            del self._known[gone]

    def view(self, upstream: str, *, is_held: bool) -> UpstreamView:
        """Return the state of an upstream now; `is_held`: an operator holds it. Forgets what is too old."""
        self._event_ring.fold()
        known = self._known.get(upstream)
        if known is None:
            return UpstreamView(UpstreamState.HELD if is_held else None)
        now = self._clock.elapsed()
        known.condition.forget(now)
        self._tell(upstream, known)
        state, trouble = known.told
        cause, since = (None, None) if trouble is None else (in_words(trouble.cause), self._time_of(trouble))
        return UpstreamView(UpstreamState.HELD if is_held else state, cause, since, *known.history.recent(now))

    def history(self, upstream: str) -> RequestHistory:
        """Return the last hour of an upstream."""
        self._event_ring.fold()
        known = self._known.get(upstream)
        return RequestHistory() if known is None else known.history

    def _of(self, upstream: str) -> _Known:
        known = self._known.get(upstream)
        if known is None:
            known = self._known[upstream] = _Known()
        return known

    def _time_of(self, trouble: Trouble) -> datetime:
        return datetime.fromtimestamp(round(self._event_ring.folded_at + trouble.since, 3), UTC)

    def _added(self, event: events.UpstreamAdded) -> None:
        known = self._of(event.mount)
        known.condition = UpstreamCondition()
        self._tell(event.mount, known)

    def _answered(self, event: events.UpstreamAnswered) -> None:
        mount, method, seconds, error, is_own, is_replaced = event
        # Handshakes succeed with a server that refuses all else, and polls of its tasks are not of hosts.
        if is_replaced or error in _FAILURES or method in UNJUDGED_METHODS or method.startswith(_OF_TASKS):
            return
        known, at, is_call = self._of(mount), self._event_ring.elapsed, method == TOOLS_CALL
        for history in (known.history, self.total):
            if not is_own:
                history.requests.add(at)
            if is_call:
                history.durations.add(at, seconds)
        if error is None:
            known.condition.succeeded(is_call=is_call)
            if known.told[0] is not UpstreamState.UP:
                self._tell(mount, known)

    def _failed(self, event: events.UpstreamRequestFailed) -> None:
        mount, method, reason, cause, is_answer = event
        known, at = self._of(mount), self._event_ring.elapsed
        for history in (known.history, self.total):
            if not is_answer:
                history.requests.add(at)
            history.failures.add(at)
        known.condition.failed(reason, cause, at, is_call=method == TOOLS_CALL)
        self._tell(mount, known)

    def _checked(self, event: events.HealthChecked) -> None:
        known = self._of(event.mount)
        known.condition.checked(event.ok, event.up, event.cause, self._event_ring.elapsed)
        self._tell(event.mount, known)

    def _programs_changed(self, event: events.ProgramAvailabilityChanged) -> None:
        known = self._of(event.mount)
        known.condition.found_programs(event.up, event.cause, self._event_ring.elapsed)
        self._tell(event.mount, known)

    def _circuit_changed(self, event: events.CircuitChanged) -> None:
        known = self._of(event.mount)
        # Half open is a trial: the circuit then closes, or opens again.
        is_open = event.state != "closed" and event.is_for_all
        known.condition.circuit_changed(is_open, event.cause, self._event_ring.elapsed)
        self._tell(event.mount, known)

    def _tell(self, upstream: str, known: _Known) -> None:
        """Emit the present state, if it or its cause is another one than that of the last event."""
        state, trouble = known.condition.state, known.condition.trouble
        before, known.told = known.told, (state, trouble)
        if before == known.told or (before[0] is state and _cause_of(before[1]) == _cause_of(trouble)):
            return
        cause, since = (None, None) if trouble is None else (in_words(trouble.cause), self._time_of(trouble))
        self._event_ring.emit(events.UpstreamStateChanged(upstream, state, cause, since))
        is_well = all(each.told[1] is None for each in self._known.values())
        if is_well is not self._is_well:
            self._is_well = is_well
            self._hasten()

    def _hasten(self) -> None:
        """Have a success known soon while an upstream is not up. Else it waits until it is read."""
        kinds = self._handlers.keys()
        self._event_ring.hasten(self, kinds - {events.UpstreamAnswered} if self._is_well else kinds)


_OF_TASKS: Final = "tasks/"
"""The beginning of the methods about tasks of a server."""
