"""How calls of a server of the modern era end before their answer, and what a server is told then: nothing."""

import asyncio
from datetime import timedelta

import pytest
from aiohttp import web

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, Turn, event, open_stream, progress_note, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.protocol.jsonrpc import notification_text, parse
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import failure_of
from unit.upstream.modern.conftest import LEGACY_HOST, NewGuest

META = "io.modelcontextprotocol/"


@covers("H-MOD-10")
@pytest.mark.parametrize("way", ["call", "run"])
async def test_a_cancelled_call_closes_its_stream_and_says_nothing(
    server: ScriptedServer, guest: Guest, way: str
) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(getattr(guest, way)("slow"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await hold.left.wait()
    assert server.cancelled == []
    assert guest.heard.answered[-1] == ("tools/call", "cancelled")


async def test_a_call_is_over_when_its_time_is(server: ScriptedServer, guest: Guest) -> None:
    server.script["slow"] = hold = Hold()
    assert await failure_of(guest.run("slow", within=0.05)) == ("timeout", True)
    async with bounded():
        await hold.left.wait()


async def test_progress_gives_a_call_more_time(server: ScriptedServer, new_guest: NewGuest) -> None:
    guest = new_guest(call=timedelta(seconds=0.4))
    goes_on = asyncio.Event()

    async def slowly(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        await goes_on.wait()
        await response.write(event(progress_note(turn.token, 1)))
        await asyncio.get_running_loop().create_future()
        return response

    server.script["slow"] = slowly
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(0.2, goes_on.set)
    assert await failure_of(guest.run("slow")) == ("timeout", True)
    assert loop.time() - began > 0.55


async def test_a_tool_may_take_longer_to_begin_its_answer_than_anything_else(
    server: ScriptedServer, new_guest: NewGuest
) -> None:
    guest = new_guest(first_byte=timedelta(seconds=0.3))
    await guest.session.tools()
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(guest.call("slow"))
    asyncio.get_running_loop().call_later(0.5, hold.release, {"content": []})
    async with bounded():
        assert (await calling).error is None


async def test_a_discovery_that_takes_too_long_has_sent_no_call(server: ScriptedServer, new_guest: NewGuest) -> None:
    server.methods["server/discover"] = Hold()
    guest = new_guest(first_byte=timedelta(seconds=0.05))
    assert await failure_of(guest.call()) == ("timeout", False)


async def test_calls_that_run_when_the_session_is_closed_end(server: ScriptedServer, guest: Guest) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(guest.call("slow"))
    async with bounded():
        await hold.begun.wait()
        await guest.session.close()
    assert await failure_of(calling) == ("closed", True)
    assert await failure_of(guest.call()) == ("closed", False)
    assert await failure_of(guest.session.tools()) == ("closed", False)


async def test_a_session_closed_while_it_opens_has_sent_no_call(server: ScriptedServer, guest: Guest) -> None:
    server.methods["server/discover"] = hold = Hold()
    calling, reading = asyncio.create_task(guest.call()), asyncio.create_task(guest.session.tools())
    async with bounded():
        await hold.begun.wait()
        await guest.session.close()
    assert await failure_of(calling) == ("closed", False)
    assert await failure_of(reading) == ("closed", False)


async def test_a_host_that_reads_slowly_makes_its_server_wait(server: ScriptedServer, guest: Guest) -> None:
    opens = asyncio.get_running_loop().create_future()
    ear = RecordingListener(clogs=[opens])
    server.script["slow"] = stream({"content": []}, progress=2)
    calling = asyncio.create_task(guest.run("slow", ear=ear))
    await eventually(lambda: ear.notifications)
    assert not calling.done()
    assert len(ear.notifications) == 1
    opens.set_result(None)
    async with bounded():
        await calling
    assert len(ear.notifications) == 2


@covers("H-MOD-12")
async def test_a_server_of_this_era_is_told_nothing_of_a_host(server: ScriptedServer, guest: Guest) -> None:
    await guest.session.open()
    guest.session.tell(parse(notification_text("notifications/roots/list_changed").encode(), max_depth=9))
    await guest.call()
    assert [each.message["method"] for each in server.requests] == ["server/discover", "tools/list", "tools/call"]


async def test_a_server_may_ask_nothing_of_a_host_that_declared_nothing(
    server: ScriptedServer, new_guest: NewGuest
) -> None:
    guest = new_guest(LEGACY_HOST._replace(capabilities={}))
    await guest.call()
    assert server.heard("tools/call")[0]["params"]["_meta"][f"{META}clientCapabilities"] == {}
