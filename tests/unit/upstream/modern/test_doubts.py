"""A server of the modern era that answers like one of the other is asked again who it is, now and then."""

import asyncio
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, error, note, status
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.modern.discovery import SURE_FOR
from unit.upstream.eras import DISCOVERED
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ALL_KINDS, LISTEN, failure_of
from unit.upstream.modern.conftest import NewGuest

LATER = timedelta(seconds=SURE_FOR)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def doubting(new_guest: NewGuest, clock: ManualClock) -> Guest:
    """Somebody whose time the test decides."""
    return new_guest(clock=clock)


@covers("V-ERA-8")
@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32000])
async def test_a_server_whose_answers_may_be_of_the_other_era_is_found_out_in_time(
    server: ScriptedServer, doubting: Guest, clock: ManualClock, code: int
) -> None:
    await doubting.call()
    server.methods |= {"tools/call": error(code, "no"), "server/discover": error(-32601, "no")}
    clock.advance(LATER)
    assert (await doubting.call()).error.value["code"] == code
    assert doubting.heard.eras_lost == 0
    assert await failure_of(doubting.call()) == ("refused", False)
    assert doubting.heard.eras_lost == 1


async def test_a_server_that_says_again_who_it_is_is_believed_for_a_while(
    server: ScriptedServer, doubting: Guest, clock: ManualClock
) -> None:
    server.methods["tools/call"] = error(-32602, "no")
    for _ in range(3):
        await doubting.call()
    assert len(server.heard("server/discover")) == 1
    clock.advance(LATER)
    for _ in range(3):
        await doubting.call()
    assert len(server.heard("server/discover")) == 2
    assert doubting.heard.eras_lost == 0


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_an_error_of_this_era_is_no_reason_to_doubt(
    server: ScriptedServer, doubting: Guest, clock: ManualClock, code: int
) -> None:
    await doubting.call()
    server.methods["tools/call"] = error(code, "no")
    clock.advance(LATER)
    await doubting.call()
    await doubting.call()
    assert len(server.heard("server/discover")) == 1


@covers("V-ERA-8")
async def test_while_a_server_is_asked_who_it_is_others_use_what_it_said_before(
    server: ScriptedServer, guest: Guest
) -> None:
    """A bare status may be of the tool alone, and all that are refused so ask together."""
    await guest.call()
    server.script["strange"] = status(404)
    server.methods["server/discover"] = hold = Hold()
    refused = [asyncio.create_task(failure_of(guest.call("strange"))) for _ in range(3)]
    async with bounded():
        await hold.begun.wait()
        await eventually(lambda: len(server.heard("tools/call")) == 4)
        assert (await guest.call()).error is None
        hold.release(DISCOVERED)
        assert [await each for each in refused] == [("refused", False)] * 3
    assert len(server.heard("server/discover")) == 2


async def test_a_stream_that_stands_goes_on_when_its_server_was_doubted(
    server: ScriptedServer, doubting: Guest, clock: ManualClock
) -> None:
    server.capabilities = ALL_KINDS
    server.methods["tools/call"] = error(-32602, "no")
    await doubting.call()
    clock.advance(LATER)
    await doubting.call()
    await doubting.call()
    assert (len(server.heard("server/discover")), len(server.heard(LISTEN))) == (2, 1)
    await server.push(note("notifications/tools/list_changed"))
    await eventually(lambda: doubting.heard.of_session.notifications)
