"""What a host that listens is told of its tasks."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import after, new_input, new_record
from helpers.waiting import bounded, eventually
from taskgate.domain.events import Dispatched, InputAnswered, InputClaimed, InputDeferred, InputRequested, Progressed
from taskgate.gateway.modern.subscriptions import LARGE
from taskgate.stores.open import open_store
from unit.gateway.modern.listening import DONE, RESULT, World, said, told_all, waiters


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()


# --- what is told of tasks: M-NOTIF-1, M-NOTIF-4 ----------------------------------------------------------------------


async def test_every_change_that_a_host_can_see_is_told_and_no_other(world: World) -> None:
    record = new_record()
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    assert await told_all(world, listener, 1) == [(record.id, "working")]
    asked = InputRequested(request=new_input(params='{"message":"Go on?","requestedSchema":{}}'))
    seen = 1
    for event, is_seen in (
        (Dispatched(), False),
        (Progressed(message="3/10"), True),
        (asked, True),
        (InputClaimed(key="input-1", stream="s/1"), False),
        (InputClaimed(key="input-1", stream=None), False),
        (InputAnswered(key="input-1", response='{"result":{"action":"accept"}}'), True),
    ):
        await world.change(record, event)
        seen += is_seen
        assert len(await told_all(world, listener, seen)) == seen, event


async def test_changes_at_the_same_moment_are_told_too(world: World) -> None:
    record = after(new_record(), Dispatched())
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await told_all(world, listener, 1)
    await world.change(record, Progressed(message="3/10"), by=timedelta())
    await told_all(world, listener, 2)
    await world.change(record, Progressed(message="4/10"), by=timedelta())
    assert len(await told_all(world, listener, 3)) == 3


async def test_a_question_that_a_host_of_the_other_era_keeps_a_task_for_is_taken_back_here(world: World) -> None:
    record = after(new_record(), Dispatched(), InputRequested(request=new_input(params='{"message":"Go on?"}')))
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    assert await told_all(world, listener, 1) == [(record.id, "input_required")]
    await world.change(record, InputDeferred(key="input-1", response='{"result":{}}', deferred_to="its-task"))
    assert await told_all(world, listener, 2) == [(record.id, "input_required"), (record.id, "working")]


async def test_a_question_is_told_with_all_that_tasks_get_would_show(world: World) -> None:
    record = after(new_record(), Dispatched())
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await told_all(world, listener, 1)
    await world.change(record, InputRequested(request=new_input(params='{"message":"Go on?","requestedSchema":{}}')))
    await told_all(world, listener, 2)
    assert listener.heard[-1]["params"]["inputRequests"]["input-1"]["params"]["message"] == "Go on?"


async def test_the_end_of_a_task_is_told_with_its_result_and_nothing_after_it_though_the_stream_stays(
    world: World,
) -> None:  # M-NOTIF-4, AMB-13
    record = after(new_record(), Dispatched())
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await told_all(world, listener, 1)
    await world.change(record, DONE)
    messages = await listener.hears(3)
    assert messages[-1]["params"]["result"]["content"] == json.loads(RESULT)["content"]
    await eventually(lambda: waiters(world) == 0)
    assert listener.serving is not None
    assert not listener.serving.done()


async def test_a_task_that_has_ended_is_told_of_once_with_its_result(world: World) -> None:  # AMB-15
    record = after(new_record(), Dispatched(), DONE)
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    messages = await listener.hears(2)
    assert messages[1]["params"]["result"]["content"] == json.loads(RESULT)["content"]
    await eventually(lambda: waiters(world) == 0)
    assert len(listener.heard) == 2


async def test_a_task_that_ends_while_its_server_is_met_is_told_of_as_it_is_then(world: World) -> None:
    record = after(new_record(), Dispatched())
    await world.keep(record)
    world.server.gate.clear()
    listener = world.listen(tasks=(record.id,), tools=True)
    await eventually(lambda: listener.is_streaming)
    await world.change(record, DONE)
    world.server.gate.set()
    await listener.hears(2)
    await eventually(lambda: waiters(world) == 0)
    assert listener.told == [(record.id, "completed")]


async def test_a_task_that_ends_while_another_is_told_of_at_first_is_not_forgotten(world: World) -> None:
    first, second = after(new_record(), Dispatched()), after(new_record(), Dispatched())
    await world.keep(first, second)
    world.server.gate.clear()
    listener = world.listen(tasks=(first.id, second.id), tools=True)
    await eventually(lambda: listener.is_streaming)
    load = world.store.load

    async def ends_meanwhile(owner: Any, id: str, **more: Any) -> Any:
        if id == second.id and listener.told == [(first.id, "working")]:
            world.store.load = load
            await world.change(first, DONE)
        return await load(owner, id, **more)

    world.store.load = ends_meanwhile
    world.server.gate.set()
    await eventually(lambda: len(listener.told) == 3)
    assert listener.told == [(first.id, "working"), (second.id, "working"), (first.id, "completed")]


async def test_a_task_that_expires_is_told_of_no_more(world: World) -> None:
    record = after(new_record(), Dispatched())
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await told_all(world, listener, 1)
    world.clock.advance(timedelta(hours=2))
    await world.store.purge(now=world.clock.now(), limit=10)
    await eventually(lambda: waiters(world) == 0)
    assert listener.told == [(record.id, "working")]


async def test_many_outcomes_do_not_end_the_stream_of_a_host_that_reads_slowly(world: World) -> None:
    text = json.dumps({"content": [{"type": "text", "text": LARGE // 2 * "x"}]})
    records = [after(new_record(), Dispatched(), replace(DONE, result=text)) for _ in range(48)]
    await world.keep(*records)
    listener = world.listen(tasks=tuple(record.id for record in records))
    await eventually(lambda: listener.wire is not None and listener.wire.is_congested)
    assert listener.wire is not None
    read = 0
    async with bounded():
        while read < 1 + len(records):
            assert await listener.wire.receive(5) is not None
            read += 1
    assert not listener.wire.is_closed


async def test_large_outcomes_wait_for_a_host_that_reads_slowly_one_at_a_time(world: World) -> None:
    text = json.dumps({"content": [{"type": "text", "text": 2**21 * "x"}]})
    records = [after(new_record(), Dispatched(), replace(DONE, result=text)) for _ in range(5)]
    await world.keep(*records)
    listener = world.listen(tasks=tuple(record.id for record in records))
    await eventually(lambda: listener.wire is not None and listener.wire.is_congested)
    assert listener.wire is not None
    read = 0
    async with bounded():
        while read < 1 + len(records):
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(listener.told) <= 1
            assert await listener.wire.receive(5) is not None
            read += 1
    assert not listener.wire.is_closed


async def test_large_news_of_a_server_do_not_pile_up_before_a_host_that_does_not_read(world: World) -> None:
    listener = world.listen(tools=True)
    await listener.hears(1)
    huge = said("notifications/tools/list_changed", much=2**21 * "x")
    for _ in range(4):
        world.line.on_notification(huge)
    assert listener.wire is not None
    assert sum(map(len, listener.wire.pieces)) < 5 * 2**21
    assert (await listener.end()).body is not None
    assert listener.wire.is_closed


async def test_an_outcome_that_is_larger_than_what_may_wait_is_told_all_the_same(world: World) -> None:
    huge = json.dumps({"content": [{"type": "text", "text": 5 * 2**20 * "x"}]})
    record = after(new_record(), Dispatched(), replace(DONE, result=huge))
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await listener.hears(2)
    assert listener.told == [(record.id, "completed")]
    assert listener.feed is not None
    assert not listener.feed.is_closed


async def test_what_is_told_of_a_task_advises_how_soon_to_ask_for_it_and_is_no_poll(world: World) -> None:
    # Two seconds, whatever the record was made with.
    record = new_record()
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    _, told = await listener.hears(2)
    assert told["params"]["pollIntervalMs"] == 2000
    assert (world.polls.newest(), world.polled.all) == ({("reports",): 2.0}, [])
