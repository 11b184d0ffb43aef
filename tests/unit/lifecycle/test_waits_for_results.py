"""Requests that wait for the result of a task, however many there are."""

import asyncio
import gc
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.admission.concurrency import OpenStreams
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.events import CallSucceeded
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.task_streams import TaskStreams
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.vocabulary import TASKS_RESULT
from taskgate.stores.open import open_store
from taskgate.streams.exchange import Admission, HttpMethod
from unit.lifecycle.asked import Asked
from unit.lifecycle.guarding import Guard
from unit.lifecycle.recorded_events import RecordedEvents

FOUR_KIB = 4 * 1024
WANTS_NO_STREAM = Admission(method=HttpMethod.POST, path="/reports/mcp", accepts_stream=False)
SESSION = SimpleNamespace(mount=SimpleNamespace(name=OWNER.mount), peer=None, id="s", streams=())


@covers("T41")
async def test_a_wait_takes_four_kibibytes_at_most_however_many_there_are() -> None:
    """With all that waits for it: the frames of its request, and their asyncio.Task."""
    clock, emitted, dialect = ManualClock(), RecordedEvents(), LegacyDownstream("1")
    store, record = await open_store("memory", None), new_record()
    await keep(store, record)
    guard = Guard(store, clock, emitted, waits=4000, all_waits=4000)
    changes = Transitions(store=store, event_sink=emitted, clock=clock)
    open_ones = OpenStreams(live=guard.live, event_sink=emitted)
    waiter = ResultWaiter(
        store=store,
        retrievals=Retrievals(transitions=changes, event_sink=emitted, clock=clock),
        lookups=guard.lookups,
        streams=TaskStreams(sessions=None, access=guard.access, open=open_ones),  # type: ignore[arg-type]
        offers=InputDelivery(
            holder="p", store=store, transitions=changes, access=guard.access, dialect=dialect, clock=clock
        ),
        dialect=dialect,
        clock=clock,
        document_wait=lambda *_: nullcontext(),
    )
    waits: list[asyncio.Task[object]] = []

    async def bytes_of(count: int) -> int:
        for _ in range(count):
            outcome = waiter.outcome(Asked(WANTS_NO_STREAM), ANONYMOUS, SESSION, record.id, TASKS_RESULT)  # type: ignore[arg-type]
            waits.append(asyncio.create_task(outcome))
        await eventually(lambda: open_ones.waits == len(waits))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few, more, most = await bytes_of(500), await bytes_of(500), await bytes_of(1000)
    finally:
        tracemalloc.stop()
    ended = after(record, CallSucceeded(result="{}", tool_error=False))
    assert await store.swap(ended, expected=record.revision)
    async with bounded():
        assert [each.id for each in await asyncio.gather(*waits)] == [record.id] * 2000
    assert open_ones.waits == 0
    await store.close()
    assert more - few < 500 * FOUR_KIB
    assert most - more < 1000 * FOUR_KIB
