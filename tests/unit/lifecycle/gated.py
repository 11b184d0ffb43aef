"""Replicas whose every step is let through, or held, by a schedule: see `several_runners`, which puts them together."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.gateway.sweeper import Sweeper
from taskgate.lifecycle.leases import Leasing
from taskgate.lifecycle.runner import Runner
from taskgate.upstream.calls import UpstreamCall
from unit.lifecycle.recorded_events import RecordedEvents

HERE: ContextVar["Replica | None"] = ContextVar("HERE", default=None)
sleep = asyncio.sleep
"""What asyncio.sleep was before a test had it wait for its schedule."""


class Watched(Protocol):
    """What a replica works in."""

    gates: "Gates"
    is_down: bool

    def note(self, found: Any) -> None: ...
    def judge(self, record: TaskRecord, before: int) -> None: ...


class Gates:
    """Everything that waits to go on; who is let through is for the schedule to say."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Replica | None, asyncio.Future[None]]] = []

    async def pass_(self) -> None:
        """Wait until the schedule lets this through."""
        future = asyncio.get_running_loop().create_future()
        entry = (HERE.get(), future)
        self.waiting.append(entry)
        try:
            await future
        finally:
            if entry in self.waiting:
                self.waiting.remove(entry)

    async def sleep(self, seconds: float) -> None:
        """What stands for asyncio.sleep."""
        if seconds == 0 or HERE.get() is None:
            await sleep(0)
        else:
            await self.pass_()


class Gated:
    """Something that is shared, as a replica sees it: each use of it waits before and after."""

    def __init__(self, world: Watched, inner: Any) -> None:
        self._world = world
        self._inner = inner

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`, which waits."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def use(*args: Any, **named: Any) -> Any:
            await self._world.gates.pass_()
            if self._world.is_down:
                raise StoreUnavailable("down")
            done = await getattr(self._inner, name)(*args, **named)
            self._world.note(done)
            await self._world.gates.pass_()
            if self._world.is_down:
                # It was done, and nobody heard of it.
                raise StoreUnavailable("down")
            return done

        return use

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        await self._world.gates.pass_()
        if self._world.is_down:
            raise StoreUnavailable("down")
        has_won: bool = await self._inner.swap(record, expected=expected)
        if has_won:
            self._world.judge(record, expected)
        await self._world.gates.pass_()
        if self._world.is_down:
            raise StoreUnavailable("down")
        return has_won

    async def changed(self, *args: Any, **named: Any) -> Any:
        news = await self._inner.changed(*args, **named)
        await self._world.gates.pass_()
        return news


class Server:
    """The server of all of them: it counts what it is sent, and answers when the schedule says so."""

    def __init__(self, world: Watched) -> None:
        self._world = world
        self.sent: Counter[str] = Counter()
        self.open: list[asyncio.Future[str]] = []
        self.listeners: list[Any] = []
        """Those of its calls, the newest last."""

    async def call(self, call: UpstreamCall, listener: Any) -> str:
        # A moment passes between the last line of the gateway and the first byte.
        await self._world.gates.pass_()
        assert call.params is not None
        self.sent[call.params.head] += 1
        self.listeners.append(listener)
        answer = asyncio.get_running_loop().create_future()
        self.open.append(answer)
        try:
            text: str = await answer
        finally:
            self.open.remove(answer)
        return text

    def outcome(self, response: str) -> CallSucceeded:
        return CallSucceeded(result=response, tool_error=False)


@dataclass(eq=False)
class Replica:
    """One of them. While it is stopped nothing of it goes on; one that is dead stays so."""

    name: str
    store: Any
    runner: Runner
    leasing: Leasing
    sweeper: Sweeper
    place: Any
    emitted: RecordedEvents
    stopped: bool = False
    dead: bool = False
    sweeping: bool = False
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def open(self) -> None:
        """Have it hear what others do."""

        async def open_() -> None:
            self.runner.open()

        self.begin(open_)

    def begin(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Have it do something, in the background."""

        async def within() -> None:
            HERE.set(self)
            with suppress(StoreUnavailable):
                await work()

        task = asyncio.get_running_loop().create_task(within())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def kill(self) -> None:
        """End it without a word."""
        self.stopped = self.dead = True
