"""Questions of tasks on streams: no question is on two, and none stays with a stream that is not there."""

import asyncio
import re
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_input, new_peer, new_record
from helpers.unread_connection import UnreadConnection
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.domain.events import Dispatched, InputDeferred, InputRequested
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.open import open_store
from taskgate.streams.event_stream import EventStream
from unit.lifecycle.recorded_events import RecordedEvents

KEY = "input-1"


class SlowStore(FailingStore):
    """A store that goes on with a swap though nobody waits for it any more, once `goes_on` is set."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.swapping: set[asyncio.Task[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        operation = super().__getattr__(name)
        if name != "swap":
            return operation

        async def late(*args: Any, **kwargs: Any) -> Any:
            await self.goes_on.wait()
            return await operation(*args, **kwargs)

        async def swap(*args: Any, **kwargs: Any) -> Any:
            swapping = asyncio.create_task(late(*args, **kwargs))
            self.swapping.add(swapping)
            return await asyncio.shield(swapping)

        return swap


class World:
    """A task that asks something, and the offers of one process."""

    def __init__(self, store: SlowStore, record: TaskRecord) -> None:
        self.store = store
        self.record = record
        self.clock = ManualClock()
        self.changes = Transitions(store=store, event_sink=RecordedEvents(), clock=self.clock)
        nothing: Any = None  # no answer comes through here
        self.offers = InputDelivery(
            holder="here",
            store=nothing,
            transitions=self.changes,
            access=nothing,
            dialect=LegacyDownstream("1"),
            clock=self.clock,
        )

    async def now(self) -> TaskRecord:
        found = await self.store.load(OWNER, self.record.id, now=self.clock.now())
        assert isinstance(found, TaskRecord)
        return found

    async def claim(self) -> str | None:
        """Which stream has the question, by the record."""
        return (await self.now()).inputs[0].claimed_by

    async def idle(self) -> None:
        """Wait until nothing is done in the background."""
        await turns(50)

    async def offer(self, feed: EventStream) -> None:
        await self.offers.offer(await self.now(), feed, new_peer())


@pytest.fixture
async def world() -> World:
    store = SlowStore(await open_store("memory", None))
    request = InputRequested(request=new_input(KEY, params='{"message":"Go on?","requestedSchema":{}}'))
    record = after(new_record(), Dispatched(), request)
    await keep(store, record)
    return World(store, record)


@pytest.fixture
def line() -> UnreadConnection:
    return UnreadConnection()


def waits(line: UnreadConnection) -> list[str]:
    """The methods of the messages that wait for the connection of a stream."""
    found = (re.search(rb'"method":"([^"]+)"', text) for text in line.pieces)
    return [each[1].decode() for each in found if each is not None]


@pytest.fixture
def feed(line: UnreadConnection) -> EventStream:
    return EventStream(line)


async def test_a_question_goes_out_on_the_first_stream_alone_until_that_gives_it_back(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    other = UnreadConnection()
    await world.offer(feed)
    await world.offer(EventStream(other))
    assert (waits(line), waits(other)) == (["elicitation/create"], [])
    assert await world.claim() == "here/1"
    world.offers.give_back(feed)
    await world.idle()
    assert await world.claim() is None


async def test_a_claim_whose_stream_went_while_it_was_written_is_given_back(world: World, feed: EventStream) -> None:
    world.store.goes_on.clear()
    offering = asyncio.create_task(world.offer(feed))
    await eventually(lambda: world.store.swapping)
    offering.cancel()
    await asyncio.wait([offering])
    world.store.goes_on.set()
    await world.idle()
    assert await world.claim() is None
    assert (await world.now()).revision > world.record.revision + 1


@pytest.mark.parametrize("refused", ["load", "swap"])
async def test_a_claim_that_the_store_could_not_tell_of_is_given_back(
    world: World, feed: EventStream, refused: str
) -> None:
    record = await world.now()
    world.store.failing = {refused}
    with pytest.raises(StoreUnavailable):
        await world.offers.offer(record, feed, new_peer())
    world.store.failing = set()
    await world.idle()
    assert await world.claim() is None


async def test_a_claim_for_a_stream_that_closed_meanwhile_is_given_back(world: World, feed: EventStream) -> None:
    feed.close()
    await world.offer(feed)
    await world.idle()
    assert await world.claim() is None


async def test_an_answer_that_is_kept_ends_the_matter_of_its_stream(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    await world.offer(feed)
    with world.offers.answering(world.record.id, KEY):
        pass
    world.offers.settle(world.record.id, None)
    assert len(waits(line)) == 1


async def test_an_answer_that_is_not_kept_leaves_the_question_with_its_stream(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    await world.offer(feed)
    with pytest.raises(StoreUnavailable), world.offers.answering(world.record.id, KEY):
        raise StoreUnavailable("as the test wants")
    assert await world.claim() == "here/1"
    world.offers.give_back(feed)
    await world.idle()
    assert await world.claim() is None


async def test_an_answer_that_is_not_kept_frees_the_question_whose_stream_closed_meanwhile(
    world: World, feed: EventStream
) -> None:
    await world.offer(feed)

    def answer() -> None:
        with world.offers.answering(world.record.id, KEY):
            feed.close()
            world.offers.give_back(feed)
            raise StoreUnavailable("as the test wants")

    with pytest.raises(StoreUnavailable):
        answer()
    await world.idle()
    assert await world.claim() is None


async def test_an_answer_to_what_no_stream_carries_may_fail_too(world: World) -> None:
    with pytest.raises(StoreUnavailable), world.offers.answering(world.record.id, KEY):
        raise StoreUnavailable("as the test wants")


async def test_a_host_is_told_once_that_its_answer_is_not_needed_any_more(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    await world.offer(feed)
    world.offers.settle(world.record.id, await world.now())
    assert len(waits(line)) == 1
    for _ in range(2):
        world.offers.settle(world.record.id, None)
    assert waits(line)[1:] == ["notifications/cancelled"]


async def test_a_question_that_the_host_keeps_a_task_for_is_asked_no_more_though_its_stream_gave_it_back(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    await world.offer(feed)
    with pytest.raises(StoreUnavailable), world.offers.answering(world.record.id, KEY):
        # As with a store that wrote it, and could not say so.
        raise StoreUnavailable("as the test wants")
    kept = InputDeferred(key=KEY, response='{"result":{"task":{}}}', deferred_to="host-1")
    await world.changes.make(OWNER, world.record.id, lambda _: kept)
    world.offers.give_back(feed)
    await world.idle()
    assert await world.claim() is None
    await world.offer(feed)
    assert waits(line).count("elicitation/create") == 1


async def test_a_question_is_withdrawn_on_a_stream_that_gives_it_back_before_its_answer(
    world: World, feed: EventStream, line: UnreadConnection
) -> None:
    await world.offer(feed)
    world.offers.give_back(feed)
    await world.idle()
    assert waits(line) == ["elicitation/create", "notifications/cancelled"]
    assert await world.claim() is None


async def test_to_close_waits_for_what_is_given_back(world: World, feed: EventStream) -> None:
    await world.offer(feed)
    world.store.goes_on.clear()
    world.offers.give_back(feed)
    async with bounded():
        await world.offers.close()
    world.store.goes_on.set()
    await asyncio.gather(*world.store.swapping)
