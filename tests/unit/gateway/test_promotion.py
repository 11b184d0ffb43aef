"""How long a call waits for its turn at its server, by what its host may get meanwhile."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.admission.concurrency import BRIEF_WAIT, Bulkhead, BulkheadSettings
from taskgate.errors import QueueFull
from taskgate.gateway.promotion import Promotion
from unit.lifecycle.recorded_events import RecordedEvents

MAX_WAIT = timedelta(seconds=30)
SETTINGS = BulkheadSettings(concurrency=1, queue=8, max_wait=MAX_WAIT, share=8, is_shared=False)
nothing: Any = None


@pytest.mark.parametrize(("gets_handle", "within"), [(False, BRIEF_WAIT), (True, MAX_WAIT)])
async def test_a_call_waits_briefly_and_one_that_is_handed_off_as_long_as_a_task(
    gets_handle: bool, within: timedelta
) -> None:
    bulkhead = Bulkhead("reports", SETTINGS, event_sink=RecordedEvents())
    counted: list[str] = []
    promotion = Promotion(
        tasks=nothing,
        coalescer=nothing,
        waiter=nothing,
        count=lambda _, what: counted.append(what),
        hosts=nothing,
        clock=nothing,
    )
    call: Any = SimpleNamespace(gets_handle=gets_handle)
    running, waiting = bulkhead.acquire("a"), bulkhead.acquire("a")
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with bounded():
        with pytest.raises(QueueFull):
            await promotion.wait_shared(call, waiting)
    assert timedelta(seconds=round(loop.time() - began)) == within
    assert counted == ["rejected"]
    waiting.release()
    running.release()


async def test_a_call_that_is_handed_off_does_not_end_after_the_brief_wait() -> None:
    bulkhead = Bulkhead("reports", SETTINGS, event_sink=RecordedEvents())
    promotion = Promotion(tasks=nothing, coalescer=nothing, waiter=nothing, count=nothing, hosts=nothing, clock=nothing)
    running, waiting = bulkhead.acquire("a"), bulkhead.acquire("a")
    call: Any = SimpleNamespace(gets_handle=True)
    turn = asyncio.create_task(promotion.wait_shared(call, waiting))
    await asyncio.sleep(BRIEF_WAIT.total_seconds() + 1)
    running.release()
    async with bounded():
        await turn
    assert waiting.is_granted
    waiting.release()
