"""How often hosts ask for tasks: what each answer advises, and who asks so much more often that it is refused.

What must not live here: how an interval comes about (`domain/polling`), and what a refusal looks like. What holds: a
poll that is early is answered like any other, a few in a row are never refused, and advice that grew refuses nobody.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock, Entropy
from taskgate.domain.listing import ListedTask
from taskgate.domain.polling import PollPolicy, advised_interval
from taskgate.domain.rates import RateLimit, gcra
from taskgate.domain.record import TaskId, TaskRecord, evolve
from taskgate.errors import RateLimited
from taskgate.telemetry.events import EventSink, PollAdvised, PollsCounted, TaskPolled

POLICY: Final = "polling"
"""What a host is told refuses it; the name of no rate of the operator's."""

BURST: Final = 20
"""Polls of one task that pass however fast they come."""

REMEMBERED: Final = 20_000
"""Tasks of which is known what was advised last; the one that was looked at longest ago is forgotten first."""

_CHANCES: Final = 2**32
_AT_ONCE: Final = 256


class _Seen:
    """What is remembered of one task. Times are in seconds of the stopwatch; `polls` is None once they were told."""

    __slots__ = ("advised", "advised_at", "arrival", "polled_at", "polls", "revision")

    def __init__(self) -> None:
        self.advised: timedelta | None = None
        self.advised_at = 0.0
        self.polled_at: float | None = None
        self.revision: int | None = None
        self.arrival: float | None = None
        self.polls: int | None = 0


class Polls:
    """The polls of all tasks. `utilization` tells how much of a server's capacity is used, by its mount; 1 is all."""

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        utilization: Callable[[str], float],
        event_sink: EventSink,
        clock: Clock,
        entropy: Entropy,
        size: int = REMEMBERED,
    ) -> None:
        self._live = live
        self._utilization = utilization
        self._event_sink = event_sink
        self._clock = clock
        self._entropy = entropy
        self._size = size
        # The one used longest ago in front. A plain dict would have to search for its front.
        self._seen: OrderedDict[TaskId, _Seen] = OrderedDict()
        self._chances: list[int] = []

    def advised(self, record: TaskRecord) -> TaskRecord:
        """The record with the interval that its host is to be told now; as it is where it has ended."""
        if record.status.is_terminal:
            return record
        seen, mount = self._remember(record.id), record.owner.mount
        interval = self._advise(seen, record, mount, self._clock.now(), self._clock.elapsed())
        self._event_sink.emit(PollAdvised(mount, interval))
        return record if interval == record.poll_interval else evolve(record, poll_interval=interval)

    def interval(self, task: TaskId) -> timedelta:
        """What the host of a task was told last; the usual interval where that is not known."""
        seen = self._seen.get(task)
        usual = timedelta(seconds=self._live.now.polling.seconds[0])
        return usual if seen is None else seen.advised or usual

    def listed(self, mount: str, tasks: Sequence[ListedTask]) -> tuple[ListedTask, ...]:
        """The same for a page of a list, where an advice holds for as long as the interval that it advises."""
        now, elapsed = self._clock.now(), self._clock.elapsed()
        return tuple(task if task.status.is_terminal else self._listed(task, mount, now, elapsed) for task in tasks)

    def looked(self, record: TaskRecord) -> None:
        """Its host asked for the task. Raises RateLimited where it does so far beyond the advice, and keeps on."""
        polling, now, seen = self._live.now.polling, self._clock.elapsed(), self._remember(record.id)
        mount = record.owner.mount
        interval = (seen.advised or record.poll_interval).total_seconds()
        # What grew with load and age is not held against hosts that poll at a pace of their own: a released one does,
        # and gives its task up when it is refused.
        every = min(interval, polling.seconds[0]) / polling.reject_above
        if seen.arrival is None or seen.arrival <= now:
            # All polls are there, as with whoever heeds what is advised: one is taken.
            seen.arrival = now + every
        else:
            verdict, seen.arrival = gcra(seen.arrival, now, RateLimit(every=every, burst=BURST))
            if not verdict.allowed:
                self._event_sink.emit(TaskPolled(mount, "limited"))
                # Not sooner than the task itself advises, though less would do.
                raise RateLimited(timedelta(seconds=max(verdict.retry_after, interval)), POLICY)
        is_early = seen.polled_at is not None and now - seen.polled_at < interval * polling.tolerance
        self._event_sink.emit(TaskPolled(mount, "early" if is_early else _result(record, seen.revision)))
        seen.polled_at, seen.revision = now, record.revision
        if seen.polls is not None:
            self._count(seen, record, seen.polls + 1)

    def _count(self, seen: _Seen, record: TaskRecord, polls: int) -> None:
        """Count a poll that was let through; the one that finds the task ended tells how many it took."""
        seen.polls = polls
        if record.status.is_terminal:
            seen.polls = None
            self._event_sink.emit(PollsCounted(record.owner.mount, polls))

    def _listed(self, task: ListedTask, mount: str, now: datetime, elapsed: float) -> ListedTask:
        seen = self._remember(task.id)
        interval = seen.advised
        if interval is None or elapsed - seen.advised_at >= interval.total_seconds():
            interval = self._advise(seen, task, mount, now, elapsed)
        return task if interval == task.poll_interval else task._replace(poll_interval=interval)

    def _advise(
        self, seen: _Seen, task: TaskRecord | ListedTask, mount: str, now: datetime, elapsed: float
    ) -> timedelta:
        polling = self._live.now.polling
        interval = seen.advised = advised_interval(
            polling,
            utilization=self._utilization(mount),
            age=now - task.created_at,
            last=seen.advised,
            chance=self._chance(polling),
        )
        seen.advised_at = elapsed
        return interval

    def _chance(self, polling: PollPolicy) -> float:
        if not polling.adaptive or not polling.jitter:
            return 0.5
        if not self._chances:
            # The system is asked for many at once: one by one they cost as much as the rest of an advice.
            self._chances = memoryview(self._entropy.token(4 * _AT_ONCE)).cast("I").tolist()
        return self._chances.pop() / _CHANCES

    def _remember(self, task: TaskId) -> _Seen:
        seen = self._seen.get(task)
        if seen is not None:
            self._seen.move_to_end(task)
            return seen
        if len(self._seen) >= self._size:
            self._seen.popitem(last=False)
        seen = self._seen[task] = _Seen()
        return seen


def _result(record: TaskRecord, seen: int | None) -> str:
    """What a poll that was due found; `seen` is the revision that was looked at last, by whomever."""
    if record.status.is_terminal:
        return "terminal"
    return "unchanged" if record.revision == seen else "changed"
