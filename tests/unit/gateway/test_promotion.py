"""How long a call waits for its turn at its server, by what its host may get meanwhile."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.admission import concurrency
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings
from taskgate.errors import QueueFull
from taskgate.gateway.promotion import Promotion
from unit.lifecycle.recorded_events import RecordedEvents

MOMENT = timedelta(milliseconds=10)
nothing: Any = None


@pytest.mark.parametrize(("gets_handle", "within"), [(False, timedelta(seconds=60)), (True, MOMENT)])
async def test_a_call_waits_briefly_and_one_that_is_handed_off_as_long_as_a_task(
    monkeypatch: pytest.MonkeyPatch, gets_handle: bool, within: timedelta
) -> None:
    if not gets_handle:
        monkeypatch.setattr(concurrency, "BRIEF_WAIT", MOMENT)
    bulkhead = Bulkhead(
        "reports",
        BulkheadSettings(concurrency=1, queue=8, max_wait=within, share=8, is_shared=False),
        event_sink=RecordedEvents(),
    )
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
    async with bounded():
        with pytest.raises(QueueFull):
            await promotion.wait_shared(call, waiting)
    assert counted == ["rejected"]
    waiting.release()
    running.release()


async def test_a_call_that_is_handed_off_does_not_end_after_the_brief_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "BRIEF_WAIT", timedelta())
    settings = BulkheadSettings(concurrency=1, queue=8, max_wait=timedelta(seconds=60), share=8, is_shared=False)
    bulkhead = Bulkhead("reports", settings, event_sink=RecordedEvents())
    promotion = Promotion(tasks=nothing, coalescer=nothing, waiter=nothing, count=nothing, hosts=nothing, clock=nothing)
    running, waiting = bulkhead.acquire("a"), bulkhead.acquire("a")
    call: Any = SimpleNamespace(gets_handle=True)
    turn = asyncio.create_task(promotion.wait_shared(call, waiting))
    for _ in range(3):
        await asyncio.sleep(0)
    running.release()
    async with bounded():
        await turn
    assert waiting.is_granted
    waiting.release()
