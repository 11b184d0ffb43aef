"""What a session hears of carried extensions: on its stream of news, and in the answers to its requests."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from helpers.modern_schema import SUBSCRIPTION
from helpers.server import Hold, ScriptedServer, Turn, event, note, open_stream
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import LISTEN, subscribe
from unit.upstream.modern.conftest import NewGuest

WIDGETS = "com.example/widgets"
CHANGED = "notifications/widgets/changed"
_ALL: dict[str, Any] = {"notifications": frozenset({CHANGED}), "filters": frozenset({"widgetsChanged"})}
BRIDGED = ExtensionPolicy(allowed={WIDGETS: Extension(**_ALL, eras=frozenset(Era))})
OF_ERA = ExtensionPolicy(allowed={WIDGETS: Extension(**_ALL)})
DECLARED = {"tools": {}, "extensions": {WIDGETS: {}}}
NEWEST = Peer(revision=Revision.R2026_07_28, capabilities={}, info={})
FILTER = frozenset({"widgetsChanged"})


@pytest.fixture
def guest(server: ScriptedServer, new_guest: NewGuest) -> Guest:
    """A session of a host of the other era, to a server that has widgets, which carry."""
    server.capabilities = DECLARED
    return new_guest(extensions=BRIDGED)


async def acknowledges(turn: Turn, granted: dict[str, Any]) -> web.StreamResponse:
    """A stream that says that it grants this, and nothing more."""
    response = await open_stream(turn.request)
    method = "notifications/subscriptions/acknowledged"
    await response.write(event(note(method, notifications=granted, _meta={SUBSCRIPTION: turn.id})))
    await asyncio.get_running_loop().create_future()
    return response


async def test_a_session_listens_to_what_the_server_declares_of_carried_extensions(
    server: ScriptedServer, guest: Guest
) -> None:
    # X-EXT-24.
    assert guest.session.grants(FILTER) == frozenset()
    await guest.session.open()
    assert server.listens.filters == [{"widgetsChanged": True}]
    assert guest.session.grants(FILTER | {"toolsListChanged"}) == FILTER
    assert guest.session.grants(frozenset()) == frozenset()


@pytest.mark.parametrize(
    ("declared", "extensions", "host"),
    [
        ({"tools": {}}, BRIDGED, NEWEST),
        (DECLARED, ExtensionPolicy(), NEWEST),
        (DECLARED, BRIDGED, None),
        (DECLARED, OF_ERA, Peer(revision=Revision.R2025_11_25, capabilities={}, info={})),
    ],
    ids=["not declared", "not carried", "for nobody", "for a host of the other era"],
)
async def test_a_session_does_not_listen_to_what_does_not_cross(
    server: ScriptedServer,
    new_guest: NewGuest,
    declared: dict[str, Any],
    extensions: ExtensionPolicy,
    host: Peer | None,
) -> None:
    server.capabilities = declared
    guest = new_guest(host, extensions=extensions)
    await guest.session.open()
    assert server.heard(LISTEN) == []
    assert guest.session.grants(FILTER) == frozenset()


@pytest.mark.parametrize("granted", [{}, {"widgetsChanged": False}, {"widgetsChanged": 1}, {"toolsListChanged": True}])
async def test_what_the_server_does_not_grant_is_not_granted(
    server: ScriptedServer, guest: Guest, granted: dict[str, Any]
) -> None:
    server.methods[LISTEN] = lambda turn: acknowledges(turn, granted)
    async with bounded():
        await guest.session.open()
    assert guest.session.grants(FILTER) == frozenset()


@pytest.mark.parametrize(
    ("revision", "names_stream"),
    [(Revision.R2025_11_25, False), (Revision.R2026_07_28, True)],
    ids=["legacy", "newest"],
)
async def test_news_of_an_extension_are_heard_beside_all_others(
    server: ScriptedServer, new_guest: NewGuest, revision: Revision, names_stream: bool
) -> None:
    # X-EXT-23.
    server.capabilities = DECLARED
    guest = new_guest(Peer(revision=revision, capabilities={}, info={}), extensions=BRIDGED)
    await guest.session.open()
    await server.push(note(CHANGED, widget="a"))
    await eventually(lambda: guest.heard.of_session.notifications)
    (heard,) = guest.heard.of_session.notifications
    assert heard.method == CHANGED
    assert heard.params["widget"].value == "a"
    assert ("subscriptionId" in heard.text) is names_stream


async def test_news_of_an_extension_in_an_answer_are_heard_by_who_asked(server: ScriptedServer, guest: Guest) -> None:
    async def changes(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        for method in (CHANGED, "notifications/other/changed"):
            await response.write(event(note(method)))
        await response.write(event(turn.answer({"done": True})))
        await response.write_eof()
        return response

    server.methods["widgets/list"] = changes
    async with bounded():
        response = await guest.ask("widgets/list")
    assert response.error is None
    assert [heard.method for heard in guest.heard.of_calls.notifications] == [CHANGED]
    assert guest.heard.of_session.notifications == []


async def test_what_is_granted_stays_so_while_one_stream_takes_the_place_of_another(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = {**DECLARED, "resources": {"subscribe": True}}
    await guest.session.open()
    server.methods[LISTEN] = hold = Hold()
    subscribing = asyncio.create_task(subscribe(guest, "a:b"))
    async with bounded():
        await hold.begun.wait()
    assert guest.session.grants(FILTER) == FILTER
    subscribing.cancel()
