"""Polling of tasks by hosts: `PollLimiter` advises intervals, and refuses hosts that far exceed
them.

`Lookups` calls `on_poll` for each `tasks/get`; `advise` is for each other task that a host is shown. The
interval that a host is told grows with the load and the age of the task (`domain/polling`). A poll
before its end is answered like any other. Only a host that keeps polling several times as often as
it was told is refused, after a burst of polls. An interval above the usual one counts as that.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock, Entropy
from taskgate.domain.listing import ListedTask
from taskgate.domain.polling import advised_interval
from taskgate.domain.rates import RateLimit, gcra
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import RateLimited
from taskgate.telemetry.events import EventSink, PollsCounted, TaskPolled

POLICY: Final = "polling"
"""The policy that a refused host is told; no configured rate has this name."""

BURST: Final = 20
"""Polls of one task that pass at any speed."""

REMEMBERED: Final = 20_000
"""Tasks whose polls are remembered; the one that was used longest ago is forgotten first."""

_polled: Final = lru_cache(maxsize=1024)(TaskPolled)
"""Cached: there is one of these events for each mount and result."""


_MILLISECOND: Final = timedelta(milliseconds=1)
_RANDOM_RANGE: Final = 2**32
_RANDOM_BATCH: Final = 256


class _PollState:
    """The polls of one task, by any host. Times are in seconds of the monotonic clock.

    - `advised`, `advised_at`: the interval that a host was told last, in milliseconds, and when.
    - `shortest`: the shortest one that was told since the last accepted poll came, in milliseconds. Its
      host may still wait by it, as a list or a notification told another one meanwhile.
    - `polled_at`, `revision`: the last accepted poll, and the revision of the record that it got.
    - `born`: when the task was created; None until its age is needed.
    - `arrival`: the state of the rate limit (`domain.rates.gcra`); long ago before the first poll.
    - `polls`: the number of accepted polls; None after it was reported, when the task had ended.
    """

    __slots__ = ("advised", "advised_at", "arrival", "born", "polled_at", "polls", "revision", "shortest")

    def __init__(self) -> None:
        self.advised: int | None = None
        self.advised_at = 0.0
        self.shortest: int | None = None
        self.polled_at = -inf
        self.revision: int | None = None
        self.arrival = -inf
        self.born: float | None = None
        self.polls: int | None = 0


class PollLimiter:
    """The polls of all tasks. `utilization` returns the used part of a mount's capacity; 1 is all."""

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
        # The one used longest ago first. A plain dict would have to search for its first entry.
        self._states: OrderedDict[TaskId, _PollState] = OrderedDict()
        self._newest: dict[str, int] = {}
        """The interval that was advised last, in milliseconds, by mount."""
        self._random_numbers: list[float] = []

    def advise(self, record: TaskRecord) -> int | None:
        """The interval to tell the host of a task now, in milliseconds; None if the task has ended."""
        if record.status.is_terminal:
            return None
        mount, task = record.owner.mount, record.id
        # Nearly always it is a new task, which no host has seen before.
        state = self._state(task) if task in self._states else self._new_state(task)
        advised = self._newest[mount] = self._advise(state, record, mount, self._clock.elapsed())
        return advised

    def newest(self) -> dict[tuple[str], float]:
        """The interval that the newest answer about one task advised, in seconds, by mount."""
        return {(mount,): advised / 1000 for mount, advised in self._newest.items()}

    def last_interval(self, task: TaskId) -> timedelta:
        """The interval that the host of a task was told last; the usual one if that is unknown."""
        state = self._states.get(task)
        usual = timedelta(seconds=self._live.current.polling.seconds[0])
        return usual if state is None or state.advised is None else timedelta(milliseconds=state.advised)

    def advise_page(self, mount: str, tasks: Sequence[ListedTask]) -> tuple[ListedTask, ...]:
        """The tasks of a page with the intervals to tell their host now.

        Unlike in `advise`, a told interval is repeated until it has passed.
        """
        now = self._clock.elapsed()
        return tuple(task if task.status.is_terminal else self._advise_listed(task, mount, now) for task in tasks)

    def on_poll(self, record: TaskRecord, now: float | None = None) -> int:
        """Count a poll of a task, and return the interval to tell its host, in milliseconds.

        `now` is the monotonic time; None reads the clock. Raises RateLimited if its host keeps polling far
        above the advice.
        """
        if now is None:
            now = self._clock.elapsed()
        polling, task = self._live.current.polling, record.id
        state = self._states.get(task)
        if state is None:
            state = self._new_state(task)
        else:
            self._states.move_to_end(task)
        mount, has_ended, emit = record.owner.mount, record.status.is_terminal, self._event_sink.emit
        interval = record.poll_interval.total_seconds() if state.shortest is None else state.shortest / 1000
        # The growth with load and age does not count. Released hosts poll at a pace of their own, and
        # give up a task when a poll is refused.
        every = polling.seconds[0]
        every = (interval if interval < every else every) / polling.reject_above
        if state.arrival <= now:
            # The burst is complete, as with a host that follows the advice: take one poll.
            state.arrival = now + every
        else:
            verdict, state.arrival = gcra(state.arrival, now, RateLimit(every=every, burst=BURST))
            if not verdict.allowed:
                emit(_polled(mount, "limited"))
                # At least the advised interval, though less would do.
                raise RateLimited(timedelta(seconds=max(verdict.retry_after, interval)), POLICY)
        if now - state.polled_at < interval * polling.tolerance:
            result = "early"
        elif has_ended:
            result = "terminal"
        else:
            result = "unchanged" if record.revision == state.revision else "changed"
        emit(_polled(mount, result))
        state.polled_at, state.revision, state.shortest = now, record.revision, None
        if state.polls is not None:
            state.polls += 1
        if not has_ended:
            advised = self._newest[mount] = self._advise(state, record, mount, now)
            return advised
        if state.polls is not None:
            # The poll that finds the task ended reports how many it took.
            emit(PollsCounted(mount, state.polls))
            state.polls = None
        return record.poll_interval // _MILLISECOND

    def _advise_listed(self, task: ListedTask, mount: str, now: float) -> ListedTask:
        state = self._state(task.id)
        advised = state.advised
        if advised is None or now - state.advised_at >= advised / 1000:
            advised = self._advise(state, task, mount, now)
        interval = timedelta(0, 0, advised * 1000)
        return task if interval == task.poll_interval else task._replace(poll_interval=interval)

    def _advise(self, state: _PollState, task: TaskRecord | ListedTask, mount: str, now: float) -> int:
        """The interval to tell now, in milliseconds."""
        polling, chance = self._live.current.polling, 0.5
        state.advised_at = now
        if polling.adaptive:
            if polling.jitter:
                if not self._random_numbers:
                    # Many at once: a system call for each would cost as much as the rest of an advice.
                    numbers = memoryview(self._entropy.token(4 * _RANDOM_BATCH)).cast("I")
                    self._random_numbers = [number / _RANDOM_RANGE for number in numbers]
                chance = self._random_numbers.pop()
            if state.born is None:
                state.born = now - (self._clock.now() - task.created_at).total_seconds()
            advised = advised_interval(
                polling, utilization=self._utilization(mount), age=now - state.born, last=state.advised, chance=chance
            )
        else:
            advised = polling.base_ms
        state.advised = advised
        if state.shortest is None or advised < state.shortest:
            state.shortest = advised
        return advised

    def _state(self, task: TaskId) -> _PollState:
        state = self._states.get(task)
        if state is not None:
            self._states.move_to_end(task)
            return state
        return self._new_state(task)

    def _new_state(self, task: TaskId) -> _PollState:
        if len(self._states) >= self._size:
            self._states.popitem(last=False)
        state = self._states[task] = _PollState()
        return state
