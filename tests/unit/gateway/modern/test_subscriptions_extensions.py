"""What of carried extensions a host that listens is granted, and what it is told of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.modern_schema import SUBSCRIPTION
from taskgate.domain.versions import Era
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.stores.open import open_store
from unit.gateway.modern.listening import ID, Listener, World, new_line, said

WIDGETS = "com.example/widgets"
CHANGED = "notifications/widgets/changed"
CARRIED = ExtensionPolicy(
    allowed={
        WIDGETS: Extension(
            notifications=frozenset({CHANGED}), filters=frozenset({"widgetsChanged"}), eras=frozenset(Era)
        ),
        EVENTS: BUILT_IN[EVENTS],
    }
)
BOTH = {"extensions": {WIDGETS: {}}, "events": {}}
ASKED = ("eventsListChanged", "widgetsChanged")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    world.server.capabilities = BOTH
    world.server.granted = frozenset(ASKED)
    world.line = new_line(world.server, world.clock, extensions=CARRIED)  # type: ignore[arg-type]
    yield world
    await world.close()


async def granted(world: World, *filters: str, **more: Any) -> dict[str, Any]:
    """What the first message of a stream says of what a host wants to hear."""
    (first,) = await world.listen(filters=filters, **more).hears(1)
    told: dict[str, Any] = first["params"]["notifications"]
    return told


async def told_of(world: World, listener: Listener, *methods: str) -> list[str]:
    """What of those notifications of the server a host is told that listens."""
    await listener.hears(1)
    for method in methods:
        world.line.on_notification(said(method))
    return [message["method"] for message in listener.heard[1:]]


@pytest.mark.parametrize(
    ("declared", "answer", "told"),
    [
        (BOTH, ASKED, ASKED),
        (BOTH, ("widgetsChanged",), ("widgetsChanged",)),
        (BOTH, (), ()),
        ({"extensions": {WIDGETS: {}}}, ASKED, ("widgetsChanged",)),
        ({"extensions": {EVENTS: {}}}, ASKED, ("eventsListChanged",)),
        ({}, ASKED, ()),
    ],
)
async def test_that_is_granted_which_the_server_declares_and_grants(
    world: World, declared: dict[str, Any], answer: tuple[str, ...], told: tuple[str, ...]
) -> None:
    # X-EXT-24.
    world.server.capabilities, world.server.granted = declared, frozenset(answer)
    assert await granted(world, *ASKED) == dict.fromkeys(told, True)


async def test_nothing_is_granted_that_was_not_asked_for(world: World) -> None:
    assert await granted(world, "widgetsChanged", tools=True) == {"widgetsChanged": True}
    assert world.server.filters == [{"widgetsChanged"}]
    assert await granted(world, tools=True) == {}
    assert len(world.server.filters) == 1


async def test_of_a_server_of_the_other_era_that_is_granted_which_crosses_between_them(world: World) -> None:
    # X-EXT-7.
    world.server.era = Era.LEGACY
    assert await granted(world, *ASKED) == {"widgetsChanged": True}


async def test_news_of_an_extension_come_under_the_id_of_the_stream(world: World) -> None:
    listener = world.listen(filters=ASKED)
    await listener.hears(1)
    world.line.on_notification(said(CHANGED, a=1, _meta={SUBSCRIPTION: "theirs", "b": 2}))
    assert listener.heard[1]["method"] == CHANGED
    assert listener.heard[1]["params"] == {"a": 1, "_meta": {SUBSCRIPTION: ID, "b": 2}}


async def test_only_those_hear_news_of_an_extension_who_were_granted_it(world: World) -> None:
    # X-EXT-23.
    news = (CHANGED, "notifications/events/list_changed", "notifications/other/changed")
    assert await told_of(world, world.listen(filters=ASKED), *news) == list(news[:2])
    assert await told_of(world, world.listen(filters=("widgetsChanged",)), *news) == [CHANGED]
    assert await told_of(world, world.listen(tools=True, prompts=True, resources=True), *news) == []


async def test_who_asked_and_was_not_granted_it_hears_nothing_of_it(world: World) -> None:
    world.server.granted = frozenset()
    assert await told_of(world, world.listen(filters=ASKED), CHANGED) == []
