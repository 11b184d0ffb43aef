"""Coalescing of repeated calls: `RequestCoalescer` answers equal calls with the result of one.

Calls are equal if they have the same idempotency key, or if a server would see no difference and
they come within a time window. A call joins only calls of its own context at its own mount. The
first of equal calls is sent; those that come while it runs wait for its result. If it becomes a
task, later ones within the window get that task. A running call is cancelled when no request waits
for it any more.

Without a key only the digest of a call is remembered. Here are the calls of this process. The store
has the idempotency keys of tasks, and keeps them unique.
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
from taskgate.protocol.host_requests import MAX_KEY, CallTool, call_digest, key_digest
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background, cancel_and_wait
from taskgate.system.offload import LARGE, offload
from taskgate.telemetry.events import CallCoalesced, EventSink

MOST: Final = 10_000
"""The most running calls that can be joined, and the most tasks. Calls above it run on their own."""

KEY_REUSED: Final = "The idempotency key was used for another call"
NOT_A_TASK: Final = "The call with this idempotency key is running, but not as a task"

CallResult = TypeVar("CallResult")


class CoalesceKey(NamedTuple):
    """A call, and what decides which other calls it equals.

    - `window`: calls without an idempotency key are equal if they start within it; None if never.
    - `accepts_task`: the answer to this call may be a task. Such calls join only each other.
    - `era`, `features`: the host's era, and what it declares that a server can ask it for. They must
      be equal too, because an answer to one host is not always valid for another.
    - `scopes`: those of the caller's token, if the server gets a token that they decide (`Mount.scopes_of`).
    """

    owner: OwnerKey
    call: CallTool
    window: timedelta | None
    accepts_task: bool = False
    era: Era = Era.LEGACY
    features: Mapping[str, Any] = MappingProxyType({})
    scopes: frozenset[str] = frozenset()

    @property
    def is_coalescable(self) -> bool:
        """Whether the call may join another, or be joined."""
        return self.call.idempotency_key is not None or self.window is not None


async def check_same_call(record: TaskRecord, call: CallTool) -> None:
    """Check that a task with the call's idempotency key was created by the same call.

    The record must have its bodies. Raises InvalidParams if the key was used for another call.
    """
    params = record.call.params
    assert params is not None, "the record was read without its bodies"
    read = partial(call_digest, record.call.tool, params)
    if await offload(len(params), read) != await offload(call.params.size, partial(_call_digest, call)):
        raise InvalidParams(KEY_REUSED)


async def own_key(call: CallTool, scopes: frozenset[str] = frozenset()) -> str:
    """The idempotency key that equal calls of a caller have in common when their hosts give none.

    It is the same in both eras: a host that connects again may speak another one. No host can give it:
    theirs are shorter.
    """
    digest = await offload(call.params.size, partial(_call_digest, call))
    return key_digest(_with_scopes(digest, scopes)).ljust(MAX_KEY + 1)


def scoped_key(key: str, scopes: frozenset[str]) -> str:
    """The idempotency key of a host as it counts for a token with these scopes; one made here stays as it is.

    What a server shows to a token is not for another one, so each set of scopes has keys of its own.
    """
    return key if len(key) > MAX_KEY else key_digest(_with_scopes(key, scopes)).ljust(MAX_KEY + 2)


def _with_scopes(text: str, scopes: frozenset[str]) -> str:
    return f"{text} {json.dumps(sorted(scopes))}" if scopes else text


class _CallIdentity(NamedTuple):
    """The identity that equal calls share, under which a running one is found.

    `name` is the digest of the idempotency key if `keyed`, else of the call itself.
    """

    owner: OwnerKey
    name: str
    keyed: bool
    accepts_task: bool


class _RunningCall:
    """A call that runs while at least one request waits for it.

    - `digest`: that of the call itself; of a large call it may still be computed.
    - `since`: when it started.
    - `task`: the asyncio task that runs it; None when no request waits for it any more.
    - `waiting`: the number of requests that wait for it.
    - `is_shared`: more than one request gets its result.
    - `host_kind`: that of the first request, of a call with a key.
    """

    __slots__ = ("digest", "host_kind", "is_shared", "since", "task", "waiting")

    def __init__(self, digest: "asyncio.Future[str] | str", since: float) -> None:
        self.digest = digest
        self.since = since
        self.task: asyncio.Task[Any] | None = None
        self.waiting = 0
        self.is_shared = False
        self.host_kind = ""


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
        self._running: dict[_CallIdentity, _RunningCall] = {}
        # The oldest first. A plain dict would have to search for its first entry.
        self._created: OrderedDict[_CallIdentity, _CreatedTask] = OrderedDict()
        self._identities_of_tasks: dict[TaskId, _CallIdentity] = {}
        self._background = Background()

    async def run(
        self, key: CoalesceKey, call: Callable[[], Coroutine[Any, Any, CallResult]]
    ) -> CallResult | TaskRecord:
        """The result of `call`, or of an equal call that runs; of a task, its present record.

        `call` is started only if there is nothing to join. It runs while any request waits for it,
        and all of them get its result or its error. Raises InvalidParams if the key was used for
        another call, CutOff if the gateway ends, and StoreUnavailable.
        """
        if not key.is_coalescable:
            return await call()
        if key.call.idempotency_key is not None:
            return await self._run_keyed(key, call)
        digest = await _digest(key)
        identity = _identity(key, digest)
        created = await self._unfinished_task(key, identity)
        if created is not None:
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
            return created
        running = self._running.get(identity)
        result: CallResult | TaskRecord
        if running is not None and self._is_within_window(key, running.since):
            running.is_shared = True
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
        elif len(self._running) >= self._most:
            return await call()
        else:
            running = self._start_running(identity, digest, call)
        result = await self._wait_for_result(identity, running)
        return result

    async def _run_keyed(self, key: CoalesceKey, call: Callable[[], Coroutine[Any, Any, CallResult]]) -> CallResult:
        # No await before the call is registered: from then on no task may be created under its key.
        identity = _identity(key, "")
        running = self._running.get(identity)
        result: CallResult
        is_of_other_kind = running is not None and key.call.is_own_key and running.host_kind != host_kind(key)
        if running is not None and not is_of_other_kind:
            result = await self._wait_for_result(identity, running, key)
        elif running is not None or len(self._running) >= self._most:
            result = await call()
        else:
            digest: asyncio.Future[str] | str
            if key.call.is_own_key:
                # Never compared.
                digest = ""
            elif key.call.params.size > LARGE:
                digest = self._background.start(partial(_digest, key))
                call = partial(_after_digest, digest, call)
            else:
                digest = await _digest(key)
            running = self._start_running(identity, digest, call)
            running.host_kind = host_kind(key)
            result = await self._wait_for_result(identity, running)
        return result

    async def find_task(self, key: CoalesceKey) -> TaskRecord | None:
        """The task that an equal call became within the window, unless it has ended."""
        if key.window is None or key.call.idempotency_key is not None:
            return None
        created = await self._unfinished_task(key, _identity(key, await _digest(key)))
        if created is not None:
            self._event_sink.emit(CallCoalesced(key.owner.mount, "retry"))
        return created

    @property
    def running(self) -> int:
        """How many calls run that can be joined."""
        return len(self._running)

    def is_shared(self, task: TaskId) -> bool:
        """Whether several calls were answered with that task, so that one host must not end it."""
        identity = self._identities_of_tasks.get(task)
        return identity is not None and self._created[identity].is_shared

    def check_key_unused(self, owners: Sequence[OwnerKey], key: str) -> None:
        """Check that no plain call of the owners runs under the key; called before a task is made.

        A task with the key would run the same call a second time. Raises InvalidParams.
        """
        name = key_digest(key)
        if any(_CallIdentity(owner, name, keyed=True, accepts_task=False) in self._running for owner in owners):
            raise InvalidParams(NOT_A_TASK)

    async def close(self) -> None:
        """Cancel the running calls; their requests get CutOff."""
        await self._background.close()

    # --- running calls ------------------------------------------------------------------------------------------------

    def _start_running(
        self, identity: _CallIdentity, digest: "asyncio.Future[str] | str", call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> _RunningCall:
        since = self._clock.elapsed()
        running = self._running[identity] = _RunningCall(digest, since)
        running.task = self._background.start(partial(self._run_call, identity, running, call))
        return running

    async def _run_call(
        self, identity: _CallIdentity, running: _RunningCall, call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        result = await call()
        if isinstance(result, TaskRecord) and not identity.keyed:
            # In one step with the end of the call: an equal call finds either it or the task.
            self._add_task(identity, _CreatedTask(result.id, running))
        return result

    async def _check_same_and_join(self, key: CoalesceKey, running: _RunningCall) -> None:
        """Join the call that runs under the key. Raises InvalidParams if it is a different call."""
        # A key of the gateway's own is made of the call.
        if not key.call.is_own_key:
            digest = running.digest if isinstance(running.digest, str) else await asyncio.shield(running.digest)
            if digest != await _digest(key):
                raise InvalidParams(KEY_REUSED)
        running.is_shared = True
        self._event_sink.emit(CallCoalesced(key.owner.mount, "retry" if key.call.is_own_key else "key"))

    async def _wait_for_result(
        self, identity: _CallIdentity, running: _RunningCall, key: CoalesceKey | None = None
    ) -> Any:
        """Wait for the result of a call; with `key`, after a check that it is the same call."""
        task = running.task
        assert task is not None, "a joined call has a task"
        running.waiting += 1
        try:
            if key is not None:
                await self._check_same_and_join(key, running)
            await asyncio.wait((task,))
        finally:
            running.waiting -= 1
            if not running.waiting:
                # An exception refers to the frames that waited: with the task it would be a cycle.
                running.task = None
                if self._running.get(identity) is running:
                    del self._running[identity]
                await _cancel_unwanted(task)
        try:
            if task.cancelled():
                raise CutOff
            return task.result()
        finally:
            del task

    # --- tasks that calls became --------------------------------------------------------------------------------------

    def _add_task(self, identity: _CallIdentity, created: _CreatedTask) -> None:
        self._remove_task(identity)
        if len(self._created) >= self._most:
            self._remove_task(next(iter(self._created)))
        self._created[identity] = created
        self._identities_of_tasks[created.id] = identity

    def _remove_task(self, identity: _CallIdentity) -> None:
        created = self._created.pop(identity, None)
        if created is not None:
            del self._identities_of_tasks[created.id]

    async def _unfinished_task(self, key: CoalesceKey, identity: _CallIdentity) -> TaskRecord | None:
        """The present record of an equal call's task. Raises StoreUnavailable.

        If it returns None, it has not awaited since it saw that there is none.
        """
        while (created := self._created.get(identity)) is not None and self._is_within_window(key, created.since):
            record = await self._store.load(key.owner, created.id, now=self._clock.now())
            if record is not None and not record.status.is_terminal:
                created.is_shared = True
                return record
            if self._created.get(identity) is created:
                self._remove_task(identity)
        return None

    def _is_within_window(self, key: CoalesceKey, since: float) -> bool:
        return key.window is not None and self._clock.elapsed() - since < key.window.total_seconds()


async def _after_digest(
    digest: "asyncio.Future[str]", call: Callable[[], Coroutine[Any, Any, CallResult]]
) -> CallResult:
    """Start the call after its digest is computed: together they would compete for the interpreter."""
    await asyncio.wait((digest,))
    return await call()


def _call_digest(call: CallTool) -> str:
    return call_digest(call.tool, call.params.with_token(0))


async def _digest(key: CoalesceKey) -> str:
    """The digest of all that equal calls have in common, so that the answer to one is valid for the
    other.
    """
    call = await offload(key.call.params.size, partial(_call_digest, key.call))
    return key_digest(_with_scopes(f"{call} {host_kind(key)}", key.scopes))


def host_kind(key: CoalesceKey) -> str:
    """The era of the host and what it can be asked: a call that is no task is shared within one kind alone."""
    return f"{key.era.value} {json.dumps(dict(key.features), sort_keys=True)}"


def _identity(key: CoalesceKey, digest: str) -> _CallIdentity:
    repeat_key = key.call.idempotency_key
    name = digest if repeat_key is None else key_digest(repeat_key)
    return _CallIdentity(key.owner, name, keyed=repeat_key is not None, accepts_task=key.accepts_task)


async def _cancel_unwanted(task: "asyncio.Task[Any]") -> None:
    """Cancel a call that no request waits for, and wait for its end."""
    if not task.done():
        await cancel_and_wait(task)
