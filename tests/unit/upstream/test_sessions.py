"""A session goes on while calls come and go: cancelled calls, lost sessions, the catalogue."""

import asyncio
from typing import Any

import pytest

from helpers.server import Hold, ScriptedServer, Turn, error, note, result, status
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.policy import TaskSupport
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import Principal

CHANGED = note("notifications/tools/list_changed")


@pytest.mark.parametrize("way", ["call", "run"])
async def test_a_cancelled_call_is_cancelled_at_the_server(server: ScriptedServer, caller, way: str) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(getattr(caller, way)("slow"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await hold.left.wait()
        await eventually(lambda: server.cancelled)
    assert server.cancelled == [hold.turns[0].id]
    assert caller.heard.answered[-1] == ("tools/call", "cancelled")


@pytest.mark.parametrize("sessions", [True, False], ids=["with a session", "without"])
async def test_a_cancel_reaches_the_server_even_when_the_session_closes_at_once(
    server: ScriptedServer, caller, sessions: bool
) -> None:
    server.sessions = sessions
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.run("slow"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        await asyncio.wait((calling,))
        await caller.session.close()
    assert server.cancelled == [hold.turns[0].id]
    assert server.requests[-1].verb == ("DELETE" if sessions else "POST")


@pytest.mark.parametrize("lost", [404, 400])
async def test_a_call_that_meets_a_lost_session_goes_on_in_another(server: ScriptedServer, caller, lost: int) -> None:
    """Released servers answer 404 after a restart, or 400; both mean that they do not know the session."""
    await caller.call()
    server.unknown_session = status(lost)
    server.forget_sessions()
    assert (await caller.call()).error is None
    assert (caller.heard.lost, len(server.heard("initialize"))) == (1, 2)
    assert server.verbs("POST")[-1].headers["mcp-session-id"] == "session-2"


@pytest.mark.parametrize("refusal", [status(404), status(404, b'{"detail":"Session not found"}'), status(400)])
async def test_many_calls_that_meet_a_lost_session_lose_it_once(server: ScriptedServer, caller, refusal) -> None:
    await caller.call()
    server.unknown_session = refusal
    server.forget_sessions()
    answers = await asyncio.gather(*(caller.call() for _ in range(20)))
    assert [answer.error for answer in answers] == [None] * 20
    assert caller.heard.lost == 1
    assert len(server.heard("initialize")) == 2


class HeldPing:
    """What a server answers in sessions that it does not know; the first ping, which has `come`, gets no answer."""

    def __init__(self) -> None:
        self.come = asyncio.Event()

    async def __call__(self, turn: Turn) -> Any:
        if turn.message["method"] == "ping" and not self.come.is_set():
            self.come.set()
            await asyncio.Event().wait()
        return await status(404, b'{"detail":"Session not found"}')(turn)


async def test_a_call_whose_ping_is_cut_off_after_a_cancelled_one_goes_on_in_another(
    server: ScriptedServer, caller
) -> None:
    server.script["slow"] = slow = Hold()
    running = asyncio.create_task(caller.run("slow"))
    async with bounded():
        await slow.begun.wait()
        server.unknown_session = held = HeldPing()
        server.forget_sessions()
        calling = [asyncio.create_task(caller.call()) for _ in range(3)]
        await held.come.wait()
        running.cancel()
        await asyncio.wait((running,))
        # It asks first whether the session has survived that.
        following = asyncio.create_task(caller.call())
        assert [(await each).error for each in (*calling, following)] == [None] * 4
    assert (caller.heard.lost, len(server.heard("initialize"))) == (1, 2)


async def test_a_lost_session_is_not_ended_a_second_time(server: ScriptedServer, caller) -> None:
    await caller.call()
    server.forget_sessions()
    await caller.call()
    await caller.session.close()
    assert [request.headers["mcp-session-id"] for request in server.verbs("DELETE")] == ["session-2"]


async def test_a_call_of_a_lost_session_may_still_end(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        server.forget_sessions()
        await caller.call()
        hold.release({"content": []})
        assert (await calling).error is None


async def test_a_404_without_a_session_is_a_refusal(server: ScriptedServer, caller) -> None:
    server.sessions = False
    server.script["gone"] = status(404)
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call("gone")
    assert (failed.value.reason, failed.value.dispatched) == ("refused", False)
    assert caller.heard.lost == 0


@covers("T17")
async def test_sessions_of_one_server_never_use_an_id_twice(server: ScriptedServer, caller) -> None:
    other = caller.upstream.session(caller.heard.of_session, lambda: Principal(context="other"))
    await asyncio.gather(caller.call(), caller.call(), other.tools())
    await other.close()
    ids = [request.message["id"] for request in server.verbs("POST") if "id" in request.message]
    assert len(ids) == len(set(ids)) == 5
    assert {type(id_) for id_ in ids} == {int}


# --- the catalogue


async def test_the_catalogue_is_all_pages_as_one(server: ScriptedServer, caller) -> None:
    server.page_size = 2
    server.tools = [{"name": f"tool-{number}"} for number in range(5)]
    server.tools[3]["execution"] = {"taskSupport": "optional"}
    expected = {f"tool-{number}": None for number in range(5)} | {"tool-3": TaskSupport.OPTIONAL}
    assert {name: tool.support for name, tool in (await caller.session.tools()).items()} == expected
    assert [message.get("params") for message in server.heard("tools/list")] == [{}, {"cursor": "2"}, {"cursor": "4"}]


async def test_the_catalogue_is_read_once(server: ScriptedServer, caller) -> None:
    await asyncio.gather(caller.session.tools(), caller.session.tools())
    await caller.session.tools()
    assert len(server.heard("tools/list")) == 1


async def test_the_catalogue_is_read_again_after_the_server_said_it_changed(server: ScriptedServer, caller) -> None:
    await caller.session.tools()
    await server.streaming()
    server.tools = [{"name": "new"}]
    await server.push(CHANGED)
    await eventually(lambda: caller.heard.session)
    assert caller.heard.session[0].method == CHANGED["method"]
    assert set(await caller.session.tools()) == {"new"}


async def test_a_change_while_the_catalogue_is_read_makes_the_next_reader_read_again(
    server: ScriptedServer, caller
) -> None:
    server.methods["tools/list"] = hold = Hold()
    reading = asyncio.create_task(caller.session.tools())
    async with bounded():
        await hold.begun.wait()
        await server.streaming()
        await server.push(CHANGED)
        await eventually(lambda: caller.heard.session)
        hold.release({"tools": [{"name": "old"}]})
        assert set(await reading) == {"old"}
    del server.methods["tools/list"]
    assert set(await caller.session.tools()) == {"echo"}


async def test_the_catalogue_of_a_lost_session_is_forgotten(server: ScriptedServer, caller) -> None:
    await caller.session.tools()
    server.forget_sessions()
    await caller.call()
    await caller.session.tools()
    assert len(server.heard("tools/list")) == 2


BROKEN_CATALOGUES = {
    "no list": (result({"tools": {}}), "malformed"),
    "an error": (error(-32601, "no tools"), "refused"),
    "a status": (status(500), "refused"),
    "404 in a session that lives": (status(404), "refused"),
}


@pytest.mark.parametrize(("reply", "reason"), BROKEN_CATALOGUES.values(), ids=BROKEN_CATALOGUES)
async def test_a_catalogue_that_cannot_be_read_is_asked_for_again(
    server: ScriptedServer, caller, reply, reason: str
) -> None:
    server.methods["tools/list"] = reply
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.session.tools()
    assert (failed.value.reason, failed.value.dispatched) == (reason, False), "to list tools runs none"
    del server.methods["tools/list"]
    assert set(await caller.session.tools()) == {"echo"}


async def test_a_catalogue_of_many_pages_is_read_to_its_end(server: ScriptedServer, caller) -> None:
    server.page_size, server.tools = 1, [{"name": f"tool-{number}"} for number in range(500)]
    assert len(await caller.session.tools()) == len(server.heard("tools/list")) == 500


async def test_one_who_stops_waiting_for_the_catalogue_stops_nobody_else(server: ScriptedServer, caller) -> None:
    server.methods["tools/list"] = hold = Hold()
    leaving, staying = (asyncio.create_task(caller.session.tools()) for _ in range(2))
    async with bounded():
        await hold.begun.wait()
        leaving.cancel()
        hold.release({"tools": []})
        assert await staying == {}
    assert server.cancelled == []
