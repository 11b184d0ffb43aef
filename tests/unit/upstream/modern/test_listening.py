"""The stream on which a server says what belongs to no call: opened, and changed with what is wanted."""

import asyncio

from helpers.server import Hold, ScriptedServer, note
from helpers.waiting import bounded, eventually
from requirements import covers
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ALL_KINDS, CHANGED, LISTEN, subscribe, updated


@covers("M-SUB-2")
async def test_a_session_listens_from_its_first_request_on_to_what_the_server_declares(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {}}
    await guest.session.open()
    assert server.listens.filters == [{"toolsListChanged": True}]
    await server.push(CHANGED)
    await eventually(lambda: guest.heard.of_session.notifications)
    (heard,) = guest.heard.of_session.notifications
    assert heard.method == "notifications/tools/list_changed"
    assert "subscriptionId" not in heard.text
    assert guest.heard.streams[0] == "listen opened"


async def test_all_kinds_are_listened_to_on_one_stream(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.open()
    names = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
    assert server.listens.filters == [dict.fromkeys(names, True)]


async def test_a_server_that_tells_of_nothing_is_not_listened_to(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"tools": {}, "prompts": True, "resources": {"subscribe": True}}
    await guest.call()
    assert server.heard(LISTEN) == []


async def test_a_change_of_tools_forgets_the_catalogue(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    assert set(await guest.session.tools()) == {"echo"}
    server.tools = [{"name": "other", "inputSchema": {"type": "object"}}]
    await server.push(note("notifications/prompts/list_changed"))
    await eventually(lambda: len(guest.heard.of_session.notifications) == 1)
    assert guest.session.listed("echo")
    await server.push(CHANGED)
    await eventually(lambda: len(guest.heard.of_session.notifications) == 2)
    assert set(await guest.session.tools()) == {"other"}


async def test_a_resource_is_heard_of_until_nobody_wants_it(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    await subscribe(guest, "a:b")
    await subscribe(guest, "a:b")
    await subscribe(guest, "a:b", "unsubscribe")
    await server.push(updated("a:b"))
    await eventually(lambda: guest.heard.of_session.notifications)
    await subscribe(guest, "a:b", "unsubscribe")
    await eventually(lambda: [each.get("resourceSubscriptions") for each in server.listens.filters] == [None])
    await subscribe(guest, "never", "unsubscribe")
    assert len(server.heard(LISTEN)) == 3


async def test_nothing_is_missed_while_one_stream_takes_the_place_of_another(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.open()
    server.methods[LISTEN] = hold = Hold()
    subscribing = asyncio.create_task(subscribe(guest, "a:b"))
    async with bounded():
        await hold.begun.wait()
    await server.push(CHANGED)
    await eventually(lambda: guest.heard.of_session.notifications)
    subscribing.cancel()


async def test_there_is_one_stream_after_many_changes(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    for turn in range(4):
        await subscribe(guest, f"a:{turn}")
    await eventually(lambda: len(server.listens.filters) == 1)
    assert guest.heard.streams.count("listen opened") - guest.heard.streams.count("listen ended") == 1
