"""Answers of hosts of the modern era to what their tasks wait with."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helpers.records import OWNER, after, new_call, new_peer
from helpers.unread_connection import UnreadConnection
from helpers.waiting import bounded, eventually
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.events import InputClaimed, InputDeferred
from taskgate.domain.record import TaskStatus
from taskgate.errors import InvalidParams
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.status_notifications import StatusNotifier
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.open import open_store
from taskgate.streams.event_stream import EventStream
from unit.gateway.modern.task_desk import (
    ACCEPT,
    DECLINE,
    DONE,
    FAULT,
    CountingStore,
    World,
    is_acknowledgement,
)


@pytest.fixture
async def world() -> World:
    return World(CountingStore(await open_store("memory", None)))


async def test_an_answer_is_there_at_once(world: World) -> None:  # M-UPD-6
    record = await world.asking()
    assert is_acknowledgement(await world.update(record.id, input_1=ACCEPT))
    now = await world.now(record)
    assert (now.status, now.answers) == (TaskStatus.WORKING, {"input-1": ACCEPT})
    assert "inputRequests" not in await world.get(record.id)


async def test_a_task_with_some_of_its_answers_waits_for_the_others(world: World) -> None:  # M-UPD-3
    record = await world.asking(count=2)
    await world.update(record.id, input_2=ACCEPT)
    result = await world.get(record.id)
    assert (result["status"], list(result["inputRequests"])) == ("input_required", ["input-1"])


async def test_the_server_hears_an_answer_from_who_gave_it(world: World) -> None:
    record = await world.asking()
    before: list[dict[str, str]] = []
    now = world.clock.now()
    world.desk.look = lambda: before.append(world.store.inner.recall(OWNER, record.id, now=now).answers)
    await world.update(record.id, input_1=ACCEPT)
    assert world.desk.heard == [((OWNER,), record.id, ANONYMOUS)]
    assert before == [{}]


@pytest.mark.parametrize("malformed", ['{"result":{}}', '{"result":{"action":"maybe"}}'])
async def test_where_one_answer_does_not_fit_none_is_taken(world: World, malformed: str) -> None:  # M-UPD-5
    record = await world.asking(count=2)
    with pytest.raises(InvalidParams):
        await world.update(record.id, input_1=ACCEPT, input_2=malformed)
    assert await world.now(record) == replace(record, call=record.call._replace(params=None))
    assert world.desk.heard == []


async def test_answers_to_nothing_that_waits_do_nothing_and_are_acknowledged(world: World) -> None:  # M-UPD-2
    record = await world.asking(count=2)
    await world.update(record.id, input_1=ACCEPT)
    assert is_acknowledgement(await world.update(record.id, input_1='{"result":{}}', input_9='{"result":{}}'))
    assert (await world.now(record)).answers == {"input-1": ACCEPT}
    assert len(world.desk.heard) == 1


async def test_an_answer_counts_next_to_others_that_do_not(world: World) -> None:
    record = await world.asking(count=2)
    await world.update(record.id, input_9=ACCEPT, input_2=ACCEPT)
    assert (await world.now(record)).answers == {"input-2": ACCEPT}


async def test_what_a_host_of_the_other_era_keeps_a_task_for_is_answered_by_that_alone(world: World) -> None:
    record = await world.asking(InputDeferred(key="input-1", response='{"result":{}}', deferred_to="its-task"))
    assert is_acknowledgement(await world.update(record.id, input_1=ACCEPT))
    assert (await world.now(record)).answers == {"input-1": '{"result":{}}'}


@pytest.mark.parametrize("end", [DONE, FAULT])
async def test_answers_to_a_task_that_has_ended_are_acknowledged(world: World, end: Any) -> None:
    record = await world.asking(end)
    assert is_acknowledgement(await world.update(record.id, input_1=ACCEPT))


async def test_of_two_answers_at_once_one_counts_and_both_are_acknowledged(world: World) -> None:
    record = await world.asking()
    with world.store.holding("swap") as swapping:
        racers = [asyncio.create_task(world.update(record.id, input_1=answer)) for answer in (ACCEPT, DECLINE)]
        async with bounded():
            await swapping.wait()
    assert all([is_acknowledgement(await racer) for racer in racers])
    assert list((await world.now(record)).answers.values()) in ([ACCEPT], [DECLINE])
    assert (await world.now(record)).revision == record.revision + 1


async def test_an_answer_while_the_call_ends_leaves_the_end_as_it_is(world: World) -> None:
    record = await world.asking()
    with world.store.holding("swap") as swapping:
        updating = asyncio.create_task(world.update(record.id, input_1=ACCEPT))
        async with bounded():
            await swapping.wait()
        assert await world.store.inner.swap(after(record, DONE), expected=record.revision)
    assert is_acknowledgement(await updating)
    assert (await world.get(record.id))["status"] == "completed"


async def test_a_question_on_a_stream_of_the_other_era_is_answered_and_taken_back_there(world: World) -> None:
    record = await world.asking(call=new_call(host_session="session-1"))
    line = UnreadConnection()
    dialect = LegacyDownstream("1")
    offers = InputDelivery(
        holder="here",
        store=world.store,
        transitions=world.changes,
        access=world.guard.access,
        dialect=dialect,
        clock=world.clock,
    )
    nowhere: Any = type("Nowhere", (), {"question_stream": lambda *_: None, "send_to_session": lambda *_: False})()
    news = StatusNotifier(
        store=world.store,
        streams=nowhere,
        offers=offers,
        polls=world.guard.polls,
        dialect=dialect,
        clock=world.clock,
    )
    session: Any = type("Session", (), {"id": "session-1"})()
    await offers.offer(await world.now(record), EventStream(line), new_peer())
    assert (await world.now(record)).inputs[0].claimed_by is not None
    news.attend(OWNER, session)
    await eventually(lambda: world.store.running["changed"])
    await world.update(record.id, input_1=ACCEPT)
    await eventually(lambda: len(line.pieces) == 2)
    assert b'"notifications/cancelled"' in line.pieces[1]
    assert (await world.now(record)).answers == {"input-1": ACCEPT}
    await news.close()
    await offers.close()


async def test_a_claimed_question_is_answered_like_any_other(world: World) -> None:
    record = await world.asking(InputClaimed(key="input-1", stream="elsewhere/1"))
    await world.update(record.id, input_1=ACCEPT)
    assert (await world.now(record)).answers == {"input-1": ACCEPT}
