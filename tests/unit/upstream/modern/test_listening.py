"""The stream on which a server says what belongs to no call: opened, and changed with what is wanted."""

import asyncio

from aiohttp import web

from helpers.server import Hold, ScriptedServer, Turn, error, note
from helpers.waiting import bounded, eventually
from requirements import covers
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ALL_KINDS, CHANGED, LISTEN, subscribe, updated

UNDECLARED = frozenset({"promptsListChanged"})


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


async def test_a_server_is_asked_once_for_list_changes_that_it_does_not_declare(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = {"tools": {"listChanged": True}}
    await guest.session.open()
    assert await guest.session.listen_for(UNDECLARED) == UNDECLARED
    assert await guest.session.listen_for(UNDECLARED) == UNDECLARED
    await eventually(lambda: server.listens.filters == [{"toolsListChanged": True, "promptsListChanged": True}])
    assert len(server.heard(LISTEN)) == 2
    await server.push(note("notifications/prompts/list_changed"))
    await eventually(lambda: guest.heard.of_session.notifications)


async def test_list_changes_that_the_server_leaves_out_are_not_granted(server: ScriptedServer, guest: Guest) -> None:
    async def leaves_out(turn: Turn) -> web.StreamResponse:
        for name in UNDECLARED:
            turn.message["params"]["notifications"].pop(name, None)
        return await server.listens.serve(turn)

    server.methods[LISTEN] = leaves_out
    assert await guest.session.listen_for(UNDECLARED | {"toolsListChanged"}) == {"toolsListChanged"}


async def test_a_server_that_refuses_other_list_changes_goes_on_with_those_that_it_declares(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}

    async def is_strict(turn: Turn) -> web.StreamResponse:
        if UNDECLARED & turn.message["params"]["notifications"].keys():
            return await error(-32602, "no such filter", status=400)(turn)
        return await server.listens.serve(turn)

    server.methods[LISTEN] = is_strict
    assert await guest.session.listen_for(UNDECLARED) == frozenset()
    await subscribe(guest, "a:b")
    await eventually(lambda: server.listens.filters == [{"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}])
    await server.push(CHANGED)
    await eventually(lambda: guest.heard.of_session.notifications)


async def test_a_server_without_such_streams_grants_no_list_changes(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"tools": {}}
    server.methods[LISTEN] = error(-32601, "no such method", status=404)
    assert await guest.session.listen_for(UNDECLARED) == frozenset()
    assert len(server.heard(LISTEN)) == 1
