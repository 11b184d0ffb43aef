"""Streams of `subscriptions/listen`: what is told there of servers, and how each ends."""

import gc
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore, HoldingStore
from helpers.manual_clock import EPOCH
from helpers.modern_schema import SUBSCRIPTION
from helpers.records import new_record
from helpers.waiting import bounded, eventually
from taskgate.auth.context import AuthContext
from taskgate.errors import (
    Draining,
    StoreUnavailable,
    UpstreamFailed,
    UpstreamReason,
)
from taskgate.gateway.modern.subscriptions import ListenStream
from taskgate.stores.open import open_store
from taskgate.system.cancel_scope import ScopeCancelled
from unit.auth.identities import identity
from unit.gateway.modern.listening import ID, Listener, World, said, waiters

ALICE = AuthContext(key="alice", identity=identity("read"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()


# --- what is told of the server: M-NOTIF-5, M-NOTIF-7 -----------------------------------------------------------------

NOTICES = {
    "tools": said("notifications/tools/list_changed"),
    "prompts": said("notifications/prompts/list_changed"),
    "resources": said("notifications/resources/list_changed"),
}


@pytest.mark.parametrize("kind", NOTICES)
async def test_only_those_kinds_of_lists_are_told_of_that_were_asked_for(world: World, kind: str) -> None:
    listener = world.listen(**{kind: True})
    await listener.hears(1)
    for on_notification in NOTICES.values():
        world.line.on_notification(on_notification)
    assert [message["method"] for message in listener.heard[1:]] == [NOTICES[kind].method]
    assert listener.heard[1]["params"]["_meta"] == {SUBSCRIPTION: ID}


@pytest.mark.parametrize(
    "on_notification",
    [
        said("notifications/message", level="error", data="x"),
        said("notifications/progress", progressToken=1, progress=1),
        said("notifications/elicitation/complete", elicitationId="e"),
        said("notifications/resources/updated"),
        said("notifications/resources/updated", uri=7),
        said("notifications/resources/updated", uri="a://12"),
        said("notifications/resources/updated", uri="a://"),
    ],
    ids=lambda on_notification: on_notification.params_text,
)
async def test_nothing_else_that_a_server_says_is_told(world: World, on_notification: Any) -> None:
    listener = world.listen(tools=True, prompts=True, resources=True, resource_uris=("a://1",))
    await listener.hears(1)
    world.line.on_notification(on_notification)
    assert len(listener.heard) == 1


@pytest.mark.parametrize("uri", ["a://1", "a://1/part", "b://2/", "b://2/part"])
async def test_a_resource_and_its_parts_are_told_of(world: World, uri: str) -> None:
    listener = world.listen(resource_uris=("a://1", "b://2/"))
    await listener.hears(1)
    world.line.on_notification(said("notifications/resources/updated", uri=uri))
    assert [message["params"].get("uri") for message in listener.heard[1:]] == [uri]


async def test_two_streams_are_told_what_each_asked_for(world: World) -> None:
    one, other = world.listen(id=1, tools=True), world.listen(id=2, prompts=True)
    await one.hears(1)
    await other.hears(1)
    for on_notification in NOTICES.values():
        world.line.on_notification(on_notification)
    assert [message["method"] for message in one.heard[1:]] == [NOTICES["tools"].method]
    assert [message["method"] for message in other.heard[1:]] == [NOTICES["prompts"].method]


async def test_resources_are_subscribed_to_once_for_all_streams_and_no_longer_than_for_the_last(world: World) -> None:
    one, other = world.listen(resource_uris=("a://1",)), world.listen(resource_uris=("a://1",))
    await one.hears(1)
    await other.hears(1)
    one.leave()
    await one.end()
    assert world.server.asked == [("resources/subscribe", "a://1")]
    other.leave()
    await other.end()
    await eventually(lambda: len(world.server.asked) == 2)
    assert world.server.asked[1] == ("resources/unsubscribe", "a://1")


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_of_a_host_that_leaves(world: World) -> None:
    record = new_record()
    await world.keep(record)
    listener = world.listen(tasks=(record.id,), tools=True, resource_uris=("a://1",))
    await listener.hears(2)
    await eventually(lambda: waiters(world) == 1)
    assert world.line.busy
    listener.leave()
    await listener.end()
    await eventually(lambda: not world.line.busy)
    assert waiters(world) == 0
    heard = listener.heard
    world.line.on_notification(NOTICES["tools"])
    assert listener.heard == heard
    await eventually(lambda: world.server.asked[1:] == [("resources/unsubscribe", "a://1")])
    # The host's side of it knows the stream as well.
    world.listeners.clear()
    del listener
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, ListenStream)]


async def test_nothing_is_left_of_a_host_that_is_too_slow(world: World) -> None:
    listener = world.listen(tools=True)
    await listener.hears(1)
    assert listener.feed is not None
    listener.feed.close()
    await listener.end()
    assert not world.line.busy


async def test_a_host_that_left_before_its_stream_began_is_told_nothing(world: World) -> None:
    world.server.gate.clear()
    listener = Listener(has_left=True)
    world.listen(listener=listener, tools=True)
    with pytest.raises(ScopeCancelled):
        await listener.end()
    assert listener.heard == []
    assert not world.line.busy


async def test_a_stream_on_which_nothing_was_said_yet_ends_with_a_refusal_at_the_end_of_the_gateway(
    world: World,
) -> None:
    world.server.gate.clear()
    listener = world.listen(tools=True)
    await eventually(lambda: listener.is_streaming)
    world.subscriptions.finish()
    with pytest.raises(Draining):
        await listener.end()
    assert listener.heard == []


async def test_a_stream_ends_with_its_result_when_the_token_does(world: World) -> None:
    caller = AuthContext(key="alice", identity=replace(identity(), expires_at=EPOCH + timedelta(milliseconds=20)))
    listener = world.listen(caller, tools=True)
    reply = await listener.end()
    assert reply.body is not None
    assert json.loads(reply.body)["id"] == ID
    assert [message["method"] for message in listener.heard] == ["notifications/subscriptions/acknowledged"]


async def test_nothing_is_told_after_the_end_of_the_token_even_where_that_was_not_noticed(world: World) -> None:  # T9
    listener = world.listen(ALICE, tools=True)
    await listener.hears(1)
    world.clock.advance(timedelta(hours=1))
    world.line.on_notification(NOTICES["tools"])
    await listener.end()
    assert len(listener.heard) == 1


@pytest.mark.parametrize("id", [7, "7"])
async def test_at_the_end_of_the_gateway_every_stream_ends_with_its_result(world: World, id: str | int) -> None:
    listeners = [world.listen(id=id, tools=True), world.listen(id=id, tasks=())]
    for listener in listeners:
        await listener.hears(1)
    world.subscriptions.finish()
    for listener in listeners:
        answer = json.loads((await listener.end()).body or "")
        assert (answer["id"], answer["result"]["resultType"]) == (id, "complete")
        assert answer["result"]["_meta"][SUBSCRIPTION] == id


async def test_no_stream_begins_after_that(world: World) -> None:
    world.subscriptions.finish()
    listener = world.listen(tools=True)
    with pytest.raises(Draining):
        await listener.end()
    assert not listener.is_streaming


async def test_nor_does_one_whose_tasks_were_still_looked_up_then(world: World) -> None:
    with world.store.holding("load") as looking:
        listener = world.listen(tasks=("task",))
        async with bounded():
            await looking.wait()
        world.subscriptions.finish()
    with pytest.raises(Draining):
        await listener.end()
    assert not listener.is_streaming


async def test_a_server_that_cannot_be_met_is_the_answer_and_nothing_is_left(world: World) -> None:
    world.server.failure = UpstreamFailed(UpstreamReason.UNREACHABLE, "no", dispatched=False)
    listener = world.listen(tools=True)
    with pytest.raises(UpstreamFailed):
        await listener.end()
    assert listener.heard == []
    assert not world.line.busy


async def test_a_store_that_is_not_available_refuses_before_there_is_a_stream() -> None:
    store = FailingStore(await open_store("memory", None))
    store.failing = {"load"}
    world = World(store)
    listener = world.listen(tasks=("task",))
    with pytest.raises(StoreUnavailable):
        await listener.end()
    assert not listener.is_streaming
    await world.close()
