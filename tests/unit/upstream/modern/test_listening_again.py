"""The stream of a server that ends, or does not come: asked for again, or given up."""

import asyncio

import pytest
from aiohttp import web

from helpers.loop_pace import LoopClock
from helpers.server import Hold, ScriptedServer, Turn, breaks_off, event, note, open_stream, redirect, status
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.clock import SystemClock
from taskgate.upstream.context import Lasting
from taskgate.upstream.modern import subscriptions
from taskgate.upstream.pauses import PAUSE_MOST
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ALL_KINDS, CHANGED, LISTEN, subscribe, updated
from unit.upstream.modern.conftest import NewGuest


@covers("M-SUB-2")
@pytest.mark.parametrize("way", ["its end", "its error", "a break", "a moment's refusal", "a reset"])
async def test_a_stream_that_ends_is_asked_for_again(server: ScriptedServer, guest: Guest, way: str) -> None:
    server.capabilities = ALL_KINDS
    if way in ("its end", "its error", "a break"):
        await guest.session.open()
        assert len(server.listens.filters) == 1
        await guest.session.tools()
        if way == "its end":
            server.listens.end()
        elif way == "its error":
            server.listens.fail()
        else:
            server.listens.cut()
    else:
        server.methods[LISTEN] = status(503) if way == "a moment's refusal" else breaks_off()
        await guest.session.open()
        await eventually(lambda: len(server.heard(LISTEN)) > 1)
        del server.methods[LISTEN]
    await eventually(lambda: server.listens.filters and len(server.heard(LISTEN)) > 1)
    await server.push(CHANGED)
    await eventually(lambda: guest.heard.of_session.notifications)


async def test_the_catalogue_is_read_again_after_a_stream_was_lost(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.tools()
    server.listens.end()
    await eventually(lambda: len(server.heard(LISTEN)) == 2 and server.listens.filters)
    await eventually(lambda: not guest.session.listed("echo"))
    await guest.session.tools()
    assert len(server.heard("tools/list")) == 2


async def test_a_host_is_told_that_lists_may_have_changed_while_a_stream_was_lost(
    server: ScriptedServer, guest: Guest
) -> None:
    """The server may have been deployed anew, and tells nobody what it does otherwise now."""
    server.capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {}}
    await guest.session.open()
    assert guest.heard.of_session.notifications == []
    server.listens.end()
    await eventually(lambda: len(guest.heard.of_session.notifications) == 2)
    told = [each.method for each in guest.heard.of_session.notifications]
    assert told == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]


@pytest.mark.parametrize(
    "reply", [status(404), status(200), redirect(307, "http://127.0.0.1:1/")], ids=["404", "200", "307"]
)
async def test_a_server_that_has_no_such_stream_is_left_alone(server: ScriptedServer, guest: Guest, reply) -> None:
    server.capabilities = ALL_KINDS
    server.methods[LISTEN] = reply
    await guest.call()
    await asyncio.sleep(PAUSE_MOST)
    await guest.call()
    assert len(server.heard(LISTEN)) == 1


async def test_a_server_that_refuses_to_be_listened_to_on_a_stream_is_left_alone(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = ALL_KINDS

    async def refuse(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        error = {"code": -32601, "message": "no such method"}
        await response.write(event({"jsonrpc": "2.0", "id": turn.id, "error": error}))
        return response

    server.methods[LISTEN] = refuse
    for _ in range(3):
        await guest.call()
        await asyncio.sleep(PAUSE_MOST)
    assert len(server.heard(LISTEN)) == 1
    assert (await subscribe(guest, "a:b")).error.value["code"] == -32602


async def test_a_resource_that_the_server_does_not_tell_of_cannot_be_subscribed_to(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = ALL_KINDS

    async def grants_little(turn: Turn) -> web.StreamResponse:
        turn.message["params"]["notifications"].pop("resourceSubscriptions", None)
        return await server.listens.serve(turn)

    server.methods[LISTEN] = grants_little
    assert (await subscribe(guest, "a:b")).error.value["code"] == -32602
    await eventually(lambda: len(server.heard(LISTEN)) == 3)


async def test_a_resource_cannot_be_subscribed_to_where_there_is_no_stream(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    server.methods[LISTEN] = status(404)
    assert (await subscribe(guest, "a:b")).error.value["code"] == -32602


async def test_a_subscription_stands_as_soon_as_its_stream_does(server: ScriptedServer, guest: Guest) -> None:
    """A server that is away for a moment is no reason to refuse."""
    server.capabilities = {"resources": {"subscribe": True}}
    server.methods[LISTEN] = status(503)
    assert (await subscribe(guest, "a:b")).error is None
    del server.methods[LISTEN]
    await server.listens.opened()
    await server.push(updated("a:b"))
    await eventually(lambda: guest.heard.of_session.notifications)


async def test_what_cannot_be_read_on_the_stream_is_passed_over(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS

    async def speaks_oddly(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        told = note("notifications/subscriptions/acknowledged", notifications={})
        odd = [
            b"data: {\n\n",
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "id": 999, "result": {}},
        ]
        for message in (told, *odd, note("notifications/unknown"), CHANGED):
            await response.write(event(message))
        await asyncio.get_running_loop().create_future()
        return response

    server.methods[LISTEN] = speaks_oddly
    await guest.session.open()
    await eventually(lambda: guest.heard.of_session.notifications)
    assert [each.method for each in guest.heard.of_session.notifications] == ["notifications/tools/list_changed"]


async def test_the_first_call_does_not_wait_for_a_stream_that_does_not_come(
    server: ScriptedServer, guest: Guest
) -> None:
    server.capabilities = ALL_KINDS
    server.methods[LISTEN] = Hold()
    async with bounded():
        assert (await guest.call()).error is None


async def test_streams_that_last_are_asked_for_again_soon(server: ScriptedServer, new_guest: NewGuest) -> None:
    loop, pauses = asyncio.get_running_loop(), list[float]()
    guest = new_guest(clock=LoopClock())
    server.capabilities = ALL_KINDS
    await guest.session.open()
    for turn, lasts in enumerate((0.0, 0.0, PAUSE_MOST + 1), start=2):
        await asyncio.sleep(lasts)
        ended = loop.time()
        server.listens.end()
        await eventually(lambda turn=turn: len(server.heard(LISTEN)) == turn and server.listens.filters)
        pauses.append(loop.time() - ended)
    assert [most / 2 <= pause < 2 * most for pause, most in zip(pauses, (0.1, 0.2, 0.1), strict=True)] == [True] * 3


async def test_a_stream_is_over_with_its_result_though_the_server_keeps_it_open(
    server: ScriptedServer, guest: Guest
) -> None:
    async def ends_and_stays(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        await response.write(event(turn.answer({})))
        await asyncio.get_running_loop().create_future()
        return response

    server.capabilities = ALL_KINDS
    server.methods[LISTEN] = ends_and_stays
    await guest.session.open()
    await eventually(lambda: len(server.heard(LISTEN)) > 1)


async def test_a_stream_that_is_not_heard_makes_way_at_once(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.open()
    server.methods[LISTEN] = hold = Hold()
    server.listens.end()
    async with bounded():
        await hold.begun.wait()
        subscribing = asyncio.create_task(subscribe(guest, "a:b"))
        await hold.left.wait()
    await eventually(lambda: len(hold.turns) == 2)
    subscribing.cancel()


async def test_a_subscription_that_is_waited_for_ends_with_the_session(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    server.methods[LISTEN] = hold = Hold()
    subscribing = asyncio.create_task(subscribe(guest, "a:b"))
    async with bounded():
        await hold.begun.wait()
        await guest.session.close()
        await subscribing
        await hold.left.wait()
    assert guest.heard.streams == []
    assert len(server.heard(LISTEN)) == 1


async def test_a_closed_session_listens_no_more(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.open()
    async with bounded():
        await guest.session.close()
        await server.leaving(LISTEN)
        await guest.session.close()
    assert len(server.heard(LISTEN)) == 1


async def test_what_is_wanted_after_the_end_is_not_asked_for(server: ScriptedServer, guest: Guest) -> None:
    """Whoever waited for the session to open may go on when it is closed already."""
    closed = subscriptions.SubscriptionListener(
        guest.upstream_context,
        None,
        hear=guest.heard.of_session.on_notification,
        resumed=lambda: None,
        lasting=Lasting(),
        clock=SystemClock(),
    )
    await closed.close()
    assert not await closed.subscribe("a:b", 0.0)
    await guest.session.open()
    assert server.heard(LISTEN) == []
