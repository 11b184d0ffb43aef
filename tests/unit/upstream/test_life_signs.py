"""A call that breaks off may mean that the whole session died without a word: the server is asked once."""

import asyncio

import pytest
from aiohttp import web

from helpers.server import Hold, ScriptedServer, Turn, breaks_off, error, resets, result, status
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.legacy.connection import DYING
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


async def test_a_server_has_time_to_end_its_session_before_it_is_asked(server: ScriptedServer, caller: Caller) -> None:
    """A request that meets a session of mcp 1.8 while it dies of a cancel takes the whole server down."""
    loop, asked = asyncio.get_running_loop(), []

    async def note(turn: Turn) -> web.StreamResponse:
        asked.append(loop.time())
        return await result({})(turn)

    server.methods["ping"] = note
    await cancel(server, caller)
    begun = loop.time()
    await caller.call()
    assert [at - begun >= DYING for at in asked] == [True]


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


# --- after a cancel


async def cancel(server: ScriptedServer, caller: Caller) -> None:
    """A call that is given up while the server works at it."""
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        await asyncio.wait([calling])


async def test_a_server_is_asked_after_a_cancel_and_before_the_next_request(
    server: ScriptedServer, caller: Caller
) -> None:
    await cancel(server, caller)
    await caller.call()
    await caller.call()
    methods = [request.message["method"] for request in server.verbs("POST")]
    assert methods[-4:] == ["notifications/cancelled", "ping", "tools/call", "tools/call"]
    assert caller.heard.lost == 0


@pytest.mark.parametrize("sign", [breaks_off(), resets(), status(404)], ids=["breaks off", "resets", "404"])
async def test_the_call_after_a_cancel_that_ended_the_session_is_made_in_another(
    server: ScriptedServer, caller: Caller, sign: object
) -> None:
    await cancel(server, caller)
    server.methods["ping"] = sign  # type: ignore[assignment]
    await caller.call()
    assert (len(server.heard("initialize")), len(server.heard("tools/call")), caller.heard.lost) == (2, 2, 1)


async def test_many_calls_after_a_cancel_ask_once(server: ScriptedServer, caller: Caller) -> None:
    await cancel(server, caller)
    async with bounded():
        await asyncio.gather(*(caller.call() for _ in range(20)))
    assert (len(server.heard("ping")), caller.heard.lost) == (1, 0)


async def test_a_server_that_never_answers_that_is_asked_once(server: ScriptedServer, caller: Caller) -> None:
    await cancel(server, caller)
    server.methods["ping"] = Hold()
    async with bounded():
        await caller.call()
        await caller.call()
    assert (len(server.heard("ping")), caller.heard.lost) == (1, 0)


async def test_a_session_that_is_closed_while_it_is_asked_after_a_cancel_leaves_nothing_behind(
    server: ScriptedServer, caller: Caller
) -> None:
    await cancel(server, caller)
    server.methods["ping"] = hold = Hold()
    calling = asyncio.create_task(caller.call())
    async with bounded():
        await hold.begun.wait()
        await caller.close()
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert not failed.value.dispatched
