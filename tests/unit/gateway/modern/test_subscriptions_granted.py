"""What of a host's wishes to hear is granted, and what is refused."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.modern_schema import SUBSCRIPTION
from helpers.records import OWNER, new_call, new_record
from helpers.waiting import eventually
from taskgate.auth.authorization import AccessEffect, AccessRule
from taskgate.auth.context import AuthContext
from taskgate.domain.events import (
    CancelRequested,
    Dispatched,
)
from taskgate.domain.record import OwnerKey
from taskgate.errors import (
    InvalidParams,
    Penalized,
)
from taskgate.gateway.modern.subscriptions import MAX_TASKS
from taskgate.protocol.vocabulary import LIST_CHANGES
from taskgate.stores.open import open_store
from unit.gateway.modern.listening import DONE, EVERYTHING, ID, World, only_json, told_all


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()


# --- what is granted: M-SUB-1, M-NOTIF-2 ------------------------------------------------------------------------------


async def test_the_first_message_says_what_is_granted_and_each_granted_task_is_told_of_once_after_it(
    world: World,
) -> None:  # M-NOTIF-2, M-NOTIF-3, AMB-15
    mine, also_mine, foreign = new_record(), new_record(), new_record(owner=OwnerKey("bob", OWNER.mount))
    await world.keep(mine, also_mine, foreign)
    listener = world.listen(tasks=(also_mine.id, foreign.id, "unknown", mine.id), tools=True)
    first, *others = await listener.hears(3)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {"toolsListChanged": True, "taskIds": [also_mine.id, mine.id]}
    assert [message["params"]["_meta"] for message in (first, *others)] == 3 * [{SUBSCRIPTION: ID}]
    assert await told_all(world, listener, 2) == [(also_mine.id, "working"), (mine.id, "working")]


@pytest.mark.parametrize("id", [7, "7"])
async def test_the_subscription_is_named_in_the_type_of_the_request_id(world: World, id: str | int) -> None:
    (first,) = await world.listen(id=id, tools=True).hears(1)
    assert first["params"]["_meta"][SUBSCRIPTION] is not None
    assert repr(first["params"]["_meta"][SUBSCRIPTION]) == repr(id)


@pytest.mark.parametrize(
    ("declared", "granted"),
    [
        (EVERYTHING, ["promptsListChanged", "resourceSubscriptions", "resourcesListChanged", "toolsListChanged"]),
        ({}, []),
        ({"tools": {}, "prompts": {"listChanged": False}, "resources": {"subscribe": True}}, ["resourceSubscriptions"]),
        ({"tools": True, "resources": {"listChanged": True, "subscribe": "yes"}}, ["resourcesListChanged"]),
    ],
)
async def test_of_the_server_that_is_granted_which_it_declares_and_it_is_asked_for_other_list_changes(
    world: World, declared: dict[str, Any], granted: list[str]
) -> None:
    world.server.capabilities = declared
    (first,) = await world.listen(tools=True, prompts=True, resources=True, resource_uris=("a://1",)).hears(1)
    told = first["params"]["notifications"]
    assert sorted(name for name, value in told.items() if value) == granted
    others = LIST_CHANGES.difference(granted)
    assert world.server.changes == ([others] if others else [])


async def test_list_changes_that_a_server_grants_without_declaring_them_are_granted(world: World) -> None:
    world.server.capabilities, world.server.granted = {}, frozenset({"toolsListChanged"})
    (first,) = await world.listen(tools=True, resources=True).hears(1)
    assert first["params"]["notifications"] == {"toolsListChanged": True}
    assert world.server.changes == [{"toolsListChanged", "resourcesListChanged"}]


async def test_a_server_is_not_met_for_who_wants_to_hear_of_tasks_alone(world: World) -> None:
    world.server.gate.clear()
    (first,) = await world.listen(tasks=()).hears(1)
    assert first["params"]["notifications"] == {"taskIds": []}


async def test_a_resource_that_its_server_does_not_tell_of_is_not_granted(world: World) -> None:
    world.server.refused = {"a://2"}
    (first,) = await world.listen(resource_uris=("a://1", "a://2")).hears(1)
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["a://1"]}


async def test_a_resource_that_the_rules_do_not_let_the_caller_subscribe_to_is_left_out_without_a_word() -> None:
    rule = AccessRule(name="r", effect=AccessEffect.DENY, methods=("resources/subscribe",))
    world = World(HoldingStore(await open_store("memory", None)), rule)
    (first,) = await world.listen(tools=True, resource_uris=("a://1",)).hears(1)
    assert first["params"]["notifications"] == {"toolsListChanged": True}
    assert world.server.asked == []
    await world.close()


async def test_a_task_that_the_rules_do_not_let_the_caller_read_is_left_out_without_a_word() -> None:
    rule = AccessRule(name="r", effect=AccessEffect.DENY, tool="delete_*")
    world = World(HoldingStore(await open_store("memory", None)), rule)
    forbidden = new_record(call=new_call()._replace(tool="delete_all"))
    await world.keep(forbidden)
    (first,) = await world.listen(tasks=(forbidden.id,)).hears(1)
    assert first["params"]["notifications"] == {"taskIds": []}
    await world.close()


async def test_tasks_under_an_earlier_key_of_the_caller_are_told_of(world: World) -> None:
    rotated = AuthContext(key="alice-new", previous_key="alice")
    old, new = new_record(owner=OwnerKey("alice", "reports")), new_record(owner=OwnerKey("alice-new", "reports"))
    await world.keep(old, new)
    listener = world.listen(rotated, tasks=(old.id, new.id))
    await eventually(lambda: sorted(listener.told) == sorted([(old.id, "working"), (new.id, "working")]))
    await world.change(old, Dispatched(), DONE)
    await world.change(new, Dispatched(), CancelRequested())
    await eventually(lambda: listener.told[2:] == [(old.id, "completed"), (new.id, "cancelled")])


# --- who only tries ids: S-SEC ----------------------------------------------------------------------------------------


async def test_a_caller_that_names_many_tasks_of_others_gets_no_stream_for_these() -> None:
    world = World(HoldingStore(await open_store("memory", None)), threshold=3)
    mine = new_record()
    await world.keep(mine)
    guesses = world.listen(tasks=(mine.id, *(f"guess-{number}" for number in range(900))))
    with pytest.raises(Penalized):
        await guesses.end()
    assert not guesses.is_streaming
    # Its own tasks are found.
    (first,) = await world.listen(tasks=(mine.id,)).hears(1)
    assert first["params"]["notifications"] == {"taskIds": [mine.id]}
    await world.close()


async def test_a_few_tasks_that_are_gone_harm_nobody() -> None:
    world = World(HoldingStore(await open_store("memory", None)), threshold=3)
    (first,) = await world.listen(tasks=("gone-1", "gone-2", "gone-3")).hears(1)
    assert first["params"]["notifications"] == {"taskIds": []}
    await world.close()


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wants",
    [
        {"tasks": tuple(map(str, range(MAX_TASKS + 1)))},
        {"resource_uris": tuple(map(str, range(257)))},
        {"resource_uris": ("a://" + 2045 * "x",)},
    ],
    ids=["tasks", "resources", "a URI"],
)
async def test_wishes_without_measure_are_refused(world: World, wants: dict[str, Any]) -> None:
    listener = world.listen(**wants)
    with pytest.raises(InvalidParams):
        await listener.end()
    assert not listener.is_streaming


async def test_a_host_that_takes_no_stream_is_refused(world: World) -> None:
    with pytest.raises(InvalidParams):
        await world.listen(listener=only_json(), tools=True).end()
