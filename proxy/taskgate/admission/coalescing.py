"""Coalescing of repeated calls: `RequestCoalescer` answers equal calls with the result of one.

Calls are equal if they have the same idempotency key, or if a server would see no difference. A
call joins only calls of its own context at its own mount. Of the arguments only a digest is stored.
The store has the idempotency keys of tasks, and keeps them unique.
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
from taskgate.protocol.host_requests import CallTool, call_digest, key_digest
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background
from taskgate.system.offload import LARGE, offload
from taskgate.telemetry.events import CallCoalesced, EventSink

MOST: Final = 10_000
"""Running calls that can be joined, and tasks; further calls run on their own."""

KEY_REUSED: Final = "The idempotency key was used for another call"
NOT_A_TASK: Final = "The call with this idempotency key is running, but not as a task"

CallResult = TypeVar("CallResult")


class CoalesceKey(NamedTuple):
    """A call that may equal an earlier one.

    An equal call without a key is joined within `window` after its start; None joins none.
    `accepts_task` tells if the host accepts a task as the answer, and so the same task. `era` is
    the host's, and `features` what the host declares that a server can ask it for. An answer to one
    host is not always valid for another.
    """

    owner: OwnerKey
    call: CallTool
    window: timedelta | None
    accepts_task: bool = False
    era: Era = Era.LEGACY
    features: Mapping[str, Any] = MappingProxyType({})

    @property
    def is_coalescable(self) -> bool:
        """Whether the call could join another, or be joined."""
        return self.call.idempotency_key is not None or self.window is not None


async def check_same_call(record: TaskRecord, call: CallTool) -> None:
    """Check that a task, loaded with its bodies, was created by an equal call. Raises
    InvalidParams.
    """
    params = record.call.params
    assert params is not None, "the record was read without its bodies"
    read = partial(call_digest, record.call.tool, params)
    if await offload(len(params), read) != await offload(call.params.size, partial(_call_digest, call)):
        raise InvalidParams(KEY_REUSED)


class _Slot(NamedTuple):
    """The identity of equal calls. `name` is the digest of the key, or of the call itself."""

    owner: OwnerKey
    name: str
    keyed: bool
    accepts_task: bool


class _RunningCall:
    """A call that runs while at least one request waits for it.

    `digest` identifies the call; of a large one it is still being computed.
    """

    __slots__ = ("digest", "is_shared", "since", "task", "waiting")

    def __init__(self, digest: "asyncio.Future[str] | str", since: float) -> None:
        self.digest = digest
        self.since = since
        self.task: asyncio.Task[Any] | None = None
        self.waiting = 0
        self.is_shared = False


class _CreatedTask:
    """A task that a call became, the start of that call, and whether several calls are answered
    with it.
    """

    __slots__ = ("id", "is_shared", "since")

    def __init__(self, id: TaskId, running: _RunningCall) -> None:
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
        self._running: dict[_Slot, _RunningCall] = {}
        # The oldest first. A plain dict would have to search for its first entry.
        self._created: OrderedDict[_Slot, _CreatedTask] = OrderedDict()
        self._slots: dict[TaskId, _Slot] = {}
        self._background = Background()

    async def run(
        self, key: CoalesceKey, call: Callable[[], Coroutine[Any, Any, CallResult]]
    ) -> CallResult | TaskRecord:
        """The result of `call`, or of an equal call that runs; of a task, its present record.

        The call runs while any request waits for it, and all of them get its result or its error.
        Raises InvalidParams if the key was used for another call, CutOff if the gateway ends.
        """
        if not key.is_coalescable:
            return await call()
        if key.call.idempotency_key is not None:
            return await self._run_keyed(key, call)
        digest = await _digest(key)
        slot = _slot(key, digest)
        created = await self._unfinished_task(key, slot)
        if created is not None:
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
            return created
        running = self._running.get(slot)
        result: CallResult | TaskRecord
        if running is not None and self._is_within_window(key, running.since):
            running.is_shared = True
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
        elif len(self._running) >= self._most:
            return await call()
        else:
            running = self._start(slot, digest, call)
        result = await self._result(slot, running)
        return result

    async def _run_keyed(self, key: CoalesceKey, call: Callable[[], Coroutine[Any, Any, CallResult]]) -> CallResult:
        # No await before the call has its slot: from there on no task may be created under its key.
        slot = _slot(key, "")
        running = self._running.get(slot)
        result: CallResult
        if running is not None:
            result = await self._result(slot, running, key)
        elif len(self._running) >= self._most:
            result = await call()
        else:
            digest: asyncio.Future[str] | str
            if key.call.params.size > LARGE:
                digest = self._background.start(partial(_digest, key))
                call = partial(_after, digest, call)
            else:
                digest = await _digest(key)
            result = await self._result(slot, self._start(slot, digest, call))
        return result

    async def find_task(self, key: CoalesceKey) -> TaskRecord | None:
        """The task that an equal call became within the window, unless it has ended."""
        if key.window is None or key.call.idempotency_key is not None:
            return None
        created = await self._unfinished_task(key, _slot(key, await _digest(key)))
        if created is not None:
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
        return created

    @property
    def running(self) -> int:
        """How many calls run that can be joined."""
        return len(self._running)

    def is_shared(self, task: TaskId) -> bool:
        """Whether several calls were answered with a task."""
        slot = self._slots.get(task)
        return slot is not None and self._created[slot].is_shared

    def check_key_unused(self, owners: Sequence[OwnerKey], key: str) -> None:
        """Check that no call of the owners runs under the key without a task: a task would be a
        second run.

        Raises InvalidParams.
        """
        name = key_digest(key)
        if any(_Slot(owner, name, keyed=True, accepts_task=False) in self._running for owner in owners):
            raise InvalidParams(NOT_A_TASK)

    async def close(self) -> None:
        """Cancel the running calls; their requests get CutOff."""
        await self._background.close()

    # --- running calls ------------------------------------------------------------------------------------------------

    def _start(
        self, slot: _Slot, digest: "asyncio.Future[str] | str", call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> _RunningCall:
        since = self._clock.elapsed()
        running = self._running[slot] = _RunningCall(digest, since)
        running.task = self._background.start(partial(self._run, slot, running, call))
        return running

    async def _run(self, slot: _Slot, running: _RunningCall, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        result = await call()
        if isinstance(result, TaskRecord) and not slot.keyed:
            # In one step with the end of the call, so that the next equal call finds one of them.
            self._add_task(slot, _CreatedTask(result.id, running))
        return result

    async def _join(self, key: CoalesceKey, running: _RunningCall) -> None:
        """Join the call that runs under the key. Raises InvalidParams if it is another call."""
        digest = running.digest if isinstance(running.digest, str) else await asyncio.shield(running.digest)
        if digest != await _digest(key):
            raise InvalidParams(KEY_REUSED)
        running.is_shared = True
        self._event_sink.emit(CallCoalesced(key.owner.mount, "key"))

    async def _result(self, slot: _Slot, running: _RunningCall, key: CoalesceKey | None = None) -> Any:
        """Wait for the result of a call; with `key`, after a check that it is the same call."""
        task = running.task
        assert task is not None, "a joined call has a task"
        running.waiting += 1
        try:
            if key is not None:
                await self._join(key, running)
            await asyncio.wait((task,))
        finally:
            running.waiting -= 1
            if not running.waiting:
                # An exception refers to the frames that waited: with the task it would be a cycle.
                running.task = None
                if self._running.get(slot) is running:
                    del self._running[slot]
                await _cancel(task)
        try:
            if task.cancelled():
                raise CutOff
            return task.result()
        finally:
            del task

    # --- tasks that calls became --------------------------------------------------------------------------------------

    def _add_task(self, slot: _Slot, created: _CreatedTask) -> None:
        self._remove_task(slot)
        if len(self._created) >= self._most:
            self._remove_task(next(iter(self._created)))
        self._created[slot] = created
        self._slots[created.id] = slot

    def _remove_task(self, slot: _Slot) -> None:
        created = self._created.pop(slot, None)
        if created is not None:
            del self._slots[created.id]

    async def _unfinished_task(self, key: CoalesceKey, slot: _Slot) -> TaskRecord | None:
        """The present record of an equal call's task. Raises StoreUnavailable.

        If it returns None, it has not awaited since it saw that there is none.
        """
        while (created := self._created.get(slot)) is not None and self._is_within_window(key, created.since):
            record = await self._store.load(key.owner, created.id, now=self._clock.now())
            if record is not None and not record.status.is_terminal:
                created.is_shared = True
                return record
            if self._created.get(slot) is created:
                self._remove_task(slot)
        return None

    def _is_within_window(self, key: CoalesceKey, since: float) -> bool:
        return key.window is not None and self._clock.elapsed() - since < key.window.total_seconds()


async def _after(digest: "asyncio.Future[str]", call: Callable[[], Coroutine[Any, Any, CallResult]]) -> CallResult:
    """Start the call after its digest is computed: together they would compete for the interpreter."""
    await asyncio.wait((digest,))
    return await call()


def _call_digest(call: CallTool) -> str:
    return call_digest(call.tool, call.params.with_token(0))


async def _digest(key: CoalesceKey) -> str:
    """The digest of all that equal calls have in common, so that the answer to one is valid for the
    other.
    """
    features = json.dumps(dict(key.features), sort_keys=True)
    call = await offload(key.call.params.size, partial(_call_digest, key.call))
    return key_digest(f"{call} {key.era.value} {features}")


def _slot(key: CoalesceKey, digest: str) -> _Slot:
    repeat_key = key.call.idempotency_key
    name = digest if repeat_key is None else key_digest(repeat_key)
    return _Slot(key.owner, name, keyed=repeat_key is not None, accepts_task=key.accepts_task)


async def _cancel(task: "asyncio.Task[Any]") -> None:
    """Cancel a call that no request waits for, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
