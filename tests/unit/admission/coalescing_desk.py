"""Calls that may be one, and those who wait for them."""

import asyncio
from datetime import timedelta
from typing import Any

from helpers.failing_store import HoldingStore
from helpers.manual_clock import ManualClock
from helpers.records import OWNER, keep, new_record
from helpers.waiting import bounded
from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.protocol.host_requests import CallTool
from taskgate.protocol.messages import Params
from unit.lifecycle.recorded_events import RecordedEvents

WINDOW = timedelta(seconds=30)
DONE = CallSucceeded(result='{"content":[]}', tool_error=False, message=None)
ANOTHER = r"^The idempotency key was used for another call$"


def call(
    arguments: str = '{"year":2026}', tool: str = "build_report", key: str | None = None, params: Params | None = None
) -> CallTool:
    text = f'{{"name":"{tool}","arguments":{arguments}}}'
    return CallTool(
        id=1,
        tool=tool,
        params=params or Params(text),
        stored_params=text,
        progress_token=None,
        wants_task=False,
        ttl=None,
        idempotency_key=key,
    )


def retried(intent: CallTool | None = None, **changes: Any) -> CoalesceKey:
    """A call whose rule lets retries join."""
    return CoalesceKey(**{"owner": OWNER, "call": intent or call(), "window": WINDOW, **changes})


def keyed(intent: CallTool | None = None, **changes: Any) -> CoalesceKey:
    """A call with a key, that no rule lets join."""
    return CoalesceKey(**{"owner": OWNER, "call": intent or call(key="k"), "window": None, **changes})


class World:
    """A coalescer, and calls that run until a test ends them."""

    def __init__(self, store: HoldingStore, **more: Any) -> None:
        self.store, self.clock, self.emitted = store, ManualClock(), RecordedEvents()
        self.coalescer = RequestCoalescer(store=store, event_sink=self.emitted, clock=self.clock, **more)
        self.runs: list[asyncio.Future[Any]] = []
        self.waiting: list[asyncio.Task[Any]] = []

    async def run(self) -> Any:
        self.runs.append(asyncio.get_running_loop().create_future())
        return await self.runs[-1]

    async def ask(self, asking: CoalesceKey) -> "asyncio.Task[Any]":
        """Somebody who waits for a call; by now they are as far as they get."""
        self.waiting.append(asyncio.get_running_loop().create_task(self.coalescer.run(asking, self.run)))
        for _ in range(9):
            await asyncio.sleep(0)
        return self.waiting[-1]

    async def make(self, asking: CoalesceKey, **changes: Any) -> TaskRecord:
        """A call that becomes a task."""
        asked = await self.ask(asking)
        record = new_record(**changes)
        await keep(self.store, record)
        self.runs[-1].set_result(record)
        assert await ended(asked) is record
        return record

    async def close(self) -> None:
        await self.coalescer.close()
        for each in self.waiting:
            each.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)


async def ended(asked: "asyncio.Task[Any]") -> Any:
    async with bounded():
        return await asked


async def left(asked: "asyncio.Task[Any]") -> None:
    asked.cancel()
    await asyncio.wait((asked,))
    assert asked.cancelled()
