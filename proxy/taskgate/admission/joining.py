"""Calls that are made twice: with the same idempotency key, or alike in all that a server would see of them.

What must not live here: where the key of a task is kept, and that no two tasks have it (`stores`). What holds: a call
is joined by its own context at its own mount alone, and of its arguments nothing is kept but a digest.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.domain.versions import Era
from taskgate.errors import CutOff, InvalidParams
from taskgate.protocol.intents import CallTool
from taskgate.protocol.repeats import call_digest, key_digest
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background
from taskgate.system.offload import LARGE, offloaded
from taskgate.telemetry.events import CallCoalesced, EventSink

MOST: Final = 10_000
"""Calls that can be joined at once, and tasks; of more calls each runs for itself."""

OF_ANOTHER: Final = "The idempotency key was used for another call"
NO_TASK: Final = "The call with this idempotency key is running, but not as a task"

Landed = TypeVar("Landed")


class CoalesceKey(NamedTuple):
    """A call that may be one that was made before.

    `window` is for how long after its beginning an identical call without a key is joined, None where none is.
    `takes_task` is whether its host is answered with a task, and so with the same one. `era` is its host's, and `asks`
    what that says it can be asked: what a server answers one of them is not always fit for another.
    """

    owner: OwnerKey
    call: CallTool
    window: timedelta | None
    takes_task: bool = False
    era: Era = Era.LEGACY
    asks: Mapping[str, Any] = MappingProxyType({})

    @property
    def concerned(self) -> bool:
        """Whether the call could join another, or be joined."""
        return self.call.repeat_key is not None or self.window is not None


def repeat_key(key: str) -> str:
    """What a record keeps of an idempotency key; its owner is who may use it again."""
    return key_digest(key)


async def check_repeat(record: TaskRecord, call: CallTool) -> None:
    """Refuse a call with the key of a task, read with its bodies, that was made by another. Raises InvalidParams."""
    kept = record.call.params
    assert kept is not None, "the record was read without its bodies"
    read = partial(call_digest, record.call.tool, kept)
    if await offloaded(len(kept), read) != await offloaded(call.params.size, partial(_call_digest, call)):
        raise InvalidParams(OF_ANOTHER)


class _Place(NamedTuple):
    """Where a call is looked for. `name` is the digest of the key, or that of the call itself."""

    owner: OwnerKey
    name: str
    keyed: bool
    takes_task: bool


class _Running:
    """A call that runs for everybody who waits for it, and no longer than somebody does."""

    __slots__ = ("call", "is_shared", "since", "task", "waiting")

    def __init__(self, call: "asyncio.Future[str] | str", since: float) -> None:
        self.call = call
        """What it has in common with others; of a large one, that is still found out."""
        self.since = since
        self.task: asyncio.Task[Any] | None = None
        self.waiting = 0
        self.is_shared = False


class _Made:
    """A task that a call became, when that began, and whether more than one call is answered with it."""

    __slots__ = ("id", "is_shared", "since")

    def __init__(self, id: TaskId, running: _Running) -> None:
        self.id = id
        self.since = running.since
        self.is_shared = running.is_shared


class RequestCoalescer:
    """The calls of this process that can be joined."""

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock, most: int = MOST) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._most = most
        self._running: dict[_Place, _Running] = {}
        # The one made longest ago in front. A plain dict would have to search for its front.
        self._made: OrderedDict[_Place, _Made] = OrderedDict()
        self._places: dict[TaskId, _Place] = {}
        self._background = Background()

    async def once(self, asking: CoalesceKey, run: Callable[[], Coroutine[Any, Any, Landed]]) -> Landed | TaskRecord:
        """What comes of `run`, or of the identical call that runs already; of a task, as it is now.

        The call goes on for as long as anybody waits, whoever began it, and what it raises is raised to all of them.
        Raises InvalidParams where the key is that of another call, CutOff when the gateway ends.
        """
        if not asking.concerned:
            return await run()
        if asking.call.repeat_key is not None:
            return await self._once_under_its_key(asking, run)
        call = await _digest(asking)
        place = _place(asking, call)
        made = await self._unfinished(asking, place)
        if made is not None:
            self._event_sink.emit(CallCoalesced(asking.owner.mount, "retry"))
            return made
        running = self._running.get(place)
        landed: Landed | TaskRecord
        if running is not None and self._is_within(asking, running.since):
            running.is_shared = True
            self._event_sink.emit(CallCoalesced(asking.owner.mount, "retry"))
        elif len(self._running) >= self._most:
            return await run()
        else:
            running = self._begin(place, call, run)
        landed = await self._outcome(place, running)
        return landed

    async def _once_under_its_key(self, asking: CoalesceKey, run: Callable[[], Coroutine[Any, Any, Landed]]) -> Landed:
        # Nothing is waited for before the call has its place: no task may be made under its key from here on.
        place = _place(asking, "")
        running = self._running.get(place)
        landed: Landed
        if running is not None:
            landed = await self._outcome(place, running, asking)
        elif len(self._running) >= self._most:
            landed = await run()
        else:
            call: asyncio.Future[str] | str
            if asking.call.params.size > LARGE:
                call = self._background.begin(partial(_digest, asking))
                run = partial(_after, call, run)
            else:
                call = await _digest(asking)
            landed = await self._outcome(place, self._begin(place, call, run))
        return landed

    async def task(self, asking: CoalesceKey) -> TaskRecord | None:
        """The task that an identical call became within the window, if it has not ended."""
        if asking.window is None or asking.call.repeat_key is not None:
            return None
        made = await self._unfinished(asking, _place(asking, await _digest(asking)))
        if made is not None:
            self._event_sink.emit(CallCoalesced(asking.owner.mount, "retry"))
        return made

    def is_shared(self, task: TaskId) -> bool:
        """Whether other calls than the first were answered with a task."""
        place = self._places.get(task)
        return place is not None and self._made[place].is_shared

    def expect_no_call(self, owners: Sequence[OwnerKey], key: str) -> None:
        """Refuse a task of one of the owners under the key of a call of theirs that runs and is none: it would be a
        second run. Raises InvalidParams.
        """
        name = key_digest(key)
        if any(_Place(owner, name, keyed=True, takes_task=False) in self._running for owner in owners):
            raise InvalidParams(NO_TASK)

    async def close(self) -> None:
        """Give up what still runs: who waits for it is told so."""
        await self._background.close()

    # --- the calls that run -----------------------------------------------------------------------------------------

    def _begin(
        self, place: _Place, call: "asyncio.Future[str] | str", run: Callable[[], Coroutine[Any, Any, Any]]
    ) -> _Running:
        since = self._clock.elapsed()
        running = self._running[place] = _Running(call, since)
        running.task = self._background.begin(partial(self._run, place, running, run))
        return running

    async def _run(self, place: _Place, running: _Running, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        landed = await run()
        if isinstance(landed, TaskRecord) and not place.keyed:
            # In one step with the end of the call: whoever comes next finds the one or the other.
            self._keep(place, _Made(landed.id, running))
        return landed

    async def _join(self, asking: CoalesceKey, running: _Running) -> None:
        """Take part in the call that runs under the key of the one that is asked for. Raises InvalidParams."""
        found = running.call if isinstance(running.call, str) else await asyncio.shield(running.call)
        if found != await _digest(asking):
            raise InvalidParams(OF_ANOTHER)
        running.is_shared = True
        self._event_sink.emit(CallCoalesced(asking.owner.mount, "key"))

    async def _outcome(self, place: _Place, running: _Running, asking: CoalesceKey | None = None) -> Any:
        """What the call comes to; `asking` is who still has to show that it is the same."""
        task = running.task
        assert task is not None, "a joined call has a task"
        running.waiting += 1
        try:
            if asking is not None:
                await self._join(asking, running)
            await asyncio.wait((task,))
        finally:
            running.waiting -= 1
            if not running.waiting:
                # A failure holds on to whoever waited for it: with the call kept it would be a ring.
                running.task = None
                if self._running.get(place) is running:
                    del self._running[place]
                await _given_up(task)
        try:
            if task.cancelled():
                raise CutOff
            return task.result()
        finally:
            del task

    # --- the tasks that calls became --------------------------------------------------------------------------------

    def _keep(self, place: _Place, made: _Made) -> None:
        self._forget(place)
        if len(self._made) >= self._most:
            self._forget(next(iter(self._made)))
        self._made[place] = made
        self._places[made.id] = place

    def _forget(self, place: _Place) -> None:
        made = self._made.pop(place, None)
        if made is not None:
            del self._places[made.id]

    async def _unfinished(self, asking: CoalesceKey, place: _Place) -> TaskRecord | None:
        """The task of an identical call, as it is now. Raises StoreUnavailable.

        Where there is none, nothing was waited for since that was seen.
        """
        while (made := self._made.get(place)) is not None and self._is_within(asking, made.since):
            record = await self._store.load(asking.owner, made.id, now=self._clock.now())
            if record is not None and not record.status.is_terminal:
                made.is_shared = True
                return record
            if self._made.get(place) is made:
                self._forget(place)
        return None

    def _is_within(self, asking: CoalesceKey, since: float) -> bool:
        return asking.window is not None and self._clock.elapsed() - since < asking.window.total_seconds()


async def _after(reading: "asyncio.Future[str]", run: Callable[[], Coroutine[Any, Any, Landed]]) -> Landed:
    """The call, once it was read: both at once would take turns with the interpreter."""
    await asyncio.wait((reading,))
    return await run()


def _call_digest(call: CallTool) -> str:
    return call_digest(call.tool, call.params.with_token(0))


async def _digest(asking: CoalesceKey) -> str:
    """What two calls must have in common for the answer to one to be fit for the other."""
    said = json.dumps(dict(asking.asks), sort_keys=True)
    call = await offloaded(asking.call.params.size, partial(_call_digest, asking.call))
    return key_digest(f"{call} {asking.era.value} {said}")


def _place(asking: CoalesceKey, call: str) -> _Place:
    key = asking.call.repeat_key
    name = call if key is None else key_digest(key)
    return _Place(asking.owner, name, keyed=key is not None, takes_task=asking.takes_task)


async def _given_up(task: "asyncio.Task[Any]") -> None:
    """Wait until a call that nobody waits for is over; one that ended is."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
