"""A call that breaks off may mean that the whole session died without a word: the server is asked once."""

import asyncio

import pytest

from helpers.scripted_upstream import ScriptedServer, breaks_off, error, resets, status
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import Caller


async def break_off(caller: Caller) -> None:
    """A call that ends without an answer."""
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call("broken")
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)


@pytest.mark.parametrize("sign", [None, error(-32601, "no ping here"), status(500)], ids=["pong", "error", "500"])
async def test_a_session_whose_server_still_answers_goes_on(
    server: ScriptedServer, caller: Caller, sign: object
) -> None:
    server.script["broken"] = breaks_off()
    if sign is not None:
        server.methods["ping"] = sign  # type: ignore[assignment]
    await break_off(caller)
    await caller.call()
    assert (len(server.heard("initialize")), len(server.heard("ping")), caller.heard.lost) == (1, 1, 0)


@pytest.mark.parametrize("sign", [breaks_off(), resets(), status(404)], ids=["breaks off", "resets", "404"])
async def test_a_session_that_gives_no_sign_of_life_is_opened_anew_for_the_next_call(
    server: ScriptedServer, caller: Caller, sign: object
) -> None:
    server.script["broken"] = breaks_off()
    server.methods["ping"] = sign  # type: ignore[assignment]
    await break_off(caller)
    await caller.call()
    assert (len(server.heard("initialize")), caller.heard.lost) == (2, 1)
    assert len(server.heard("tools/call")) == 2


async def test_many_calls_that_break_off_at_once_ask_once(server: ScriptedServer, caller: Caller) -> None:
    server.script["broken"] = breaks_off()
    await caller.session.open()
    async with bounded():
        await asyncio.gather(*(break_off(caller) for _ in range(20)))
    assert 1 <= len(server.heard("ping")) < 20
    assert caller.heard.lost == 0


async def test_a_session_that_is_closed_while_it_is_asked_leaves_nothing_behind(
    server: ScriptedServer, caller: Caller
) -> None:
    asked = asyncio.Event()

    async def hang(turn: object) -> None:
        asked.set()
        await asyncio.get_running_loop().create_future()

    server.script["broken"] = breaks_off()
    server.methods["ping"] = hang  # type: ignore[assignment]
    breaking = asyncio.create_task(break_off(caller))
    async with bounded():
        await asked.wait()
        await caller.close()
        await breaking
