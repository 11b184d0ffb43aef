"""Protection against callers that guess task ids: `LookupGuard`, with its `PenaltyBox`.

`Lookups` calls the guard after each look-up that found no task of the caller (`on_miss`). The guard
counts the failure, raises alerts, and in the end puts the caller into the penalty box. For some time
its look-ups that find nothing are refused there; what is found is served. A penalty is for one mount,
and for `tasks/*` or for the tools of the gateway: servers and models write what these are asked.

Reports for operators say why a look-up failed, which hosts do not learn. The owner of the missing task
is read from the store some time later, for all failures together. So the time of an answer does not
show whether the task exists.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.admission.rates import RateLimiter
from taskgate.admission.security_alerts import REMEMBERED, SecurityAlerts, SecurityLog
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.errors import Penalized, StoreUnavailable
from taskgate.protocol.messages import Request
from taskgate.streams.exchange import Exchange
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, SuspicionRaised, TaskDenied
from taskgate.telemetry.request_context import RequestContext, current, in_request, no_request

REPORT_DELAY: Final = 0.25
"""Seconds until the owners of missing tasks are read."""
MAX_PENDING: Final = 256
"""Misses that may wait for that; further ones are reported as not found."""
MAX_TASK_ID: Final = 32
"""Characters of a task id in an event."""
_MAX_AGENT: Final = 256
_FOREIGN: Final = "context_mismatch"

FindOwner = Callable[[TaskId], Awaitable[OwnerKey | None]]
"""Finds the owner of a task (`TaskStore.owner_of`)."""


class Miss(NamedTuple):
    """A look-up that found no task of the caller; `owner_of` finds the task's owner.

    `is_of_tool`: a call of a tool of the gateway asked for it. `is_of_other_host`: the task is the caller's, and
    was handed to another host.
    """

    mount: str
    method: str
    task: TaskId
    owner_of: FindOwner
    is_of_tool: bool = False
    is_of_other_host: bool = False


class _PendingReport(NamedTuple):
    miss: Miss
    caller: AuthContext
    request_context: RequestContext | None


class LookupGuard:
    """The handler of failed look-ups. `penalties` is None without authentication: all hosts are one caller,
    and a penalty would refuse all of them.
    """

    def __init__(
        self,
        *,
        penalties: "PenaltyBox | None",
        rates: RateLimiter,
        security_log: SecurityLog,
        event_sink: EventSink,
        clock: Clock,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.penalties = penalties
        self._rates = rates
        self._security_log = security_log
        self._event_sink = event_sink
        self._clock = clock
        self._alerts = SecurityAlerts(event_sink, clock, size=2 * REMEMBERED)
        self._max_pending = max_pending
        self._pending: list[_PendingReport] = []
        self._timer: asyncio.TimerHandle | None = None
        self._background = Background()

    async def on_miss(self, exchange: Exchange, caller: AuthContext, miss: Miss) -> None:
        """Handle a look-up of a task that the caller does not have, for whatever reason.

        Raises Penalized while the caller is in the penalty box, and RateLimited if a rate of failures is
        exceeded. The caller of this may look up many tasks for one request, and stops then.
        """
        mount, subject = miss.mount, _subject(caller, miss)
        if self.penalties is not None:
            left = self.penalties.remaining(subject, self._clock.elapsed())
            if left > 0:
                raise Penalized(timedelta(seconds=left))
        self._report_later(caller, miss)
        is_within_rate = await self._rates.on_lookup_failure(caller, exchange, mount)
        if self.penalties is not None and self.penalties.add_failure(
            subject, self._clock.elapsed(), miss.task[: MAX_TASK_ID + 1]
        ):
            self._event_sink.emit(SuspicionRaised("enumeration_suspected", mount))
            self._security_log.log_enumeration(exchange, mount)
        if not is_within_rate:
            await self._rates.check_lookups(caller, exchange, mount)

    def on_excessive_polling(self, caller: AuthContext, mount: str) -> None:
        """Raise an alert about a caller whose poll was refused: it polls far more often than
        advised.
        """
        self._alerts.raise_once("excessive_polling", caller.key, mount)

    async def close(self) -> None:
        """Report all pending misses, and none later. Needs the store."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._background.close()
        await self.report_pending()

    # --- reports ------------------------------------------------------------------------------------------------------

    def _report_later(self, caller: AuthContext, miss: Miss) -> None:
        if len(self._pending) >= self._max_pending:
            self._event_sink.emit(_denied(miss, "not_found", None))
            return
        self._pending.append(_PendingReport(miss, caller, _light_copy(current())))
        if self._timer is None:
            with no_request():
                self._timer = asyncio.get_running_loop().call_later(REPORT_DELAY, self._start_report)

    def _start_report(self) -> None:
        self._timer = None
        self._background.run(self.report_pending)

    async def report_pending(self) -> None:
        """Emit the events of all pending misses now, each in the context of its request."""
        pending, self._pending = self._pending, []
        for each in pending:
            owner = await _owner(each.miss)
            with in_request(each.request_context):
                self._report(each.miss, each.caller, owner)

    def _report(self, miss: Miss, caller: AuthContext, owner: OwnerKey | None) -> None:
        reason = _FOREIGN if miss.is_of_other_host else _reason(miss.mount, caller, owner)
        self._event_sink.emit(_denied(miss, reason, owner))
        if reason == _FOREIGN:
            self._alerts.raise_once("cross_context_access", caller.key, miss.mount)


def _subject(caller: AuthContext, miss: Miss) -> str:
    """Return whose failures count together: those of one caller at one mount, by requests of one kind."""
    return f"{caller.key} {'tool' if miss.is_of_tool else 'tasks'} {miss.mount}"


def _reason(mount: str, caller: AuthContext, owner: OwnerKey | None) -> str:
    """The reason of a miss. A foreign task is foreign even if expired; an own one at another mount
    is not found.
    """
    if owner is None:
        return "not_found"
    if owner.context not in (caller.key, caller.previous_key):
        return _FOREIGN
    return "expired" if owner.mount == mount else "not_found"


async def _owner(miss: Miss) -> OwnerKey | None:
    try:
        return await miss.owner_of(miss.task)
    except StoreUnavailable:
        return None


def _denied(miss: Miss, reason: str, owner: OwnerKey | None) -> TaskDenied:
    return TaskDenied(
        miss.mount, miss.method, reason, miss.task[:MAX_TASK_ID], None if owner is None else owner.context
    )


def _light_copy(request_context: RequestContext | None) -> RequestContext | None:
    """A copy of a request context for a later report, without the host's message.

    The message may be large, and many reports may be pending.
    """
    if request_context is None:
        return None
    request = request_context.message
    light = None if not isinstance(request, Request) else Request(request.id, request.method, {}, "", "")
    copy = request_context.for_message(light)
    copy.span = request_context.span
    copy.agent = None if request_context.agent is None else request_context.agent[:_MAX_AGENT]
    return copy


# --- penalties --------------------------------------------------------------------------------------------------------


class PenaltyBox:
    """The failed look-ups of each context; more than `threshold` within `window` put it into the
    box.

    A context is that of a caller at a mount (`_subject`). One task counts once in the window.

    It stays there for `penalty`. Failures in the box do not count and do not prolong the penalty;
    afterwards the count starts at zero. Times are in seconds of a monotonic clock.

    At most `size` contexts are remembered. One more replaces the context outside of the box whose
    last failure is the oldest. If all others are in the box, the one whose penalty ends first is
    released. So a full box loses the rest of one penalty, and newcomers then replace each other.
    """

    def __init__(
        self,
        threshold: int = 20,
        window: timedelta = timedelta(minutes=1),
        penalty: timedelta = timedelta(minutes=5),
        size: int = 10_000,
    ) -> None:
        self._threshold = threshold
        self._window = window.total_seconds()
        self._penalty = penalty.total_seconds()
        self._size = size
        # Both start with the first one to replace: the oldest last failure, the earliest end of a penalty.
        self._failures: dict[str, deque[tuple[float, str | None]]] = {}
        """When tasks were missed first, and which: never more than one above the threshold."""
        self.ends: dict[str, float] = {}
        """When the penalties end, by context; some may have ended."""

    def adjust(self, threshold: int, window: timedelta, penalty: timedelta) -> None:
        """Apply other limits; present penalties do not change."""
        self._threshold = threshold
        self._window = window.total_seconds()
        self._penalty = penalty.total_seconds()

    def add_failure(self, context: str, now: float, task: str | None = None) -> bool:
        """Count a failed look-up of a task, None of one that is not known; True if it puts the context into the
        box.
        """
        self._release_expired(now)
        if self.remaining(context, now) > 0:
            return False
        # An expired penalty may stand behind a longer one, from before `adjust`.
        self.ends.pop(context, None)
        failures = self._failures.pop(context, None) or deque()
        while failures and now - failures[0][0] >= self._window:
            failures.popleft()
        if task is None or all(task != missed for _, missed in failures):
            failures.append((now, task))
        is_new_in_box = len(failures) > self._threshold
        self._make_room()
        if is_new_in_box:
            self.ends[context] = now + self._penalty
        else:
            self._failures[context] = failures
        return is_new_in_box

    def remaining(self, context: str, now: float) -> float:
        """The remaining seconds of a penalty; 0 if the context has none."""
        return max(0.0, self.ends.get(context, now) - now)

    def count(self, now: float) -> int:
        """The number of contexts in the box. Changes nothing, so any thread may call it."""
        return sum(end > now for end in self.ends.copy().values())

    def _release_expired(self, now: float) -> None:
        while self.ends and self.ends[first := next(iter(self.ends))] <= now:
            del self.ends[first]

    def _make_room(self) -> None:
        if len(self._failures) + len(self.ends) >= self._size:
            replaceable = self._failures or self.ends
            del replaceable[next(iter(replaceable))]
