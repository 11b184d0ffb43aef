"""How a session with a server is opened, what goes along with its requests, and how it is closed."""

import asyncio

import pytest

from helpers.server import Hold, ScriptedServer, error, raw, result, status
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed


async def test_a_session_opens_with_a_handshake(server: ScriptedServer, caller) -> None:
    welcome = await caller.session.open()
    assert welcome.peer.info == {"name": "scripted", "version": "1"}
    assert welcome.instructions == '"Do as the script says."'
    assert [request.message["method"] for request in server.verbs("POST")] == [
        "initialize",
        "notifications/initialized",
    ]
    assert caller.heard.answered == [("initialize", None)]


async def test_many_who_need_a_session_share_one_handshake(server: ScriptedServer, caller) -> None:
    async with bounded():
        await asyncio.gather(caller.session.open(), caller.call(), caller.session.tools(), caller.run())
    assert len(server.heard("initialize")) == 1


async def test_one_who_stops_waiting_for_the_handshake_stops_nobody_else(server: ScriptedServer, caller) -> None:
    server.methods["initialize"] = hold = Hold()
    leaving, staying = asyncio.create_task(caller.call()), asyncio.create_task(caller.call())
    async with bounded():
        await hold.begun.wait()
        leaving.cancel()
        del server.methods["initialize"]
        hold.release({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}})
        server.sessions = False
        assert (await staying).error is None
    assert leaving.cancelled()
    assert server.cancelled == []


@pytest.mark.parametrize(
    ("revision", "told"),
    [("2024-11-05", None), ("2025-03-26", None), ("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25")],
)
async def test_requests_carry_the_session_and_the_agreed_revision(
    server: ScriptedServer, caller, revision: str, told: str | None
) -> None:
    server.revision = revision
    assert (await caller.call()).error is None
    await server.streaming()
    await caller.session.close()
    opening, *rest = server.requests
    assert "mcp-session-id" not in opening.headers
    assert {request.headers.get("mcp-session-id") for request in rest} == {"session-1"}
    assert {request.headers.get("mcp-protocol-version") for request in rest} == {told}
    assert {request.verb for request in rest} == {"POST", "GET", "DELETE"}


async def test_posts_say_what_they_are_and_what_they_take(server: ScriptedServer, caller) -> None:
    await caller.session.open()
    (post, *_) = server.verbs("POST")
    assert post.headers["content-type"] == "application/json"
    assert post.headers["accept"] == "application/json, text/event-stream"
    assert post.headers["accept-encoding"] == "identity"
    assert "cookie" not in post.headers


async def test_a_server_without_sessions_gets_no_session_no_stream_and_no_farewell(
    server: ScriptedServer, caller
) -> None:
    server.sessions = False
    assert (await caller.call()).error is None
    await caller.session.close()
    assert {request.verb for request in server.requests} == {"POST"}
    assert not any("mcp-session-id" in request.headers for request in server.requests)


@pytest.mark.parametrize("form", ["session {}", "a;b,c={}", '"{}"'])
async def test_a_session_id_of_any_printable_characters_is_sent_back(server: ScriptedServer, caller, form: str) -> None:
    server.session_form = form
    assert (await caller.call()).error is None
    assert [each.headers["mcp-session-id"] for each in server.verbs("POST")[1:]] == [form.format(1)] * 2


async def test_an_empty_session_id_is_none(server: ScriptedServer, caller) -> None:
    server.sessions, server.session_form = False, ""
    assert (await caller.call()).error is None
    await caller.session.close()
    assert {request.verb for request in server.requests} == {"POST"}
    assert not any("mcp-session-id" in request.headers for request in server.requests)


async def test_a_call_in_a_session_whose_id_is_not_ascii_was_not_sent(server: ScriptedServer, caller) -> None:
    server.session_form = "s\xe9ssion-{}"
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("malformed", False)


REFUSALS = {
    "an error": (error(-32603, "no"), "refused"),
    "an error with a status": (error(-32603, "no", status=400), "refused"),
    "a status": (status(403), "refused"),
    "an unknown revision": (result({"protocolVersion": "1999-01-01", "capabilities": {}}), "malformed"),
    "no JSON": (raw(b"<html>"), "malformed"),
}


@pytest.mark.parametrize(("reply", "reason"), REFUSALS.values(), ids=REFUSALS)
async def test_a_call_whose_handshake_failed_was_not_sent(server: ScriptedServer, caller, reply, reason: str) -> None:
    server.methods["initialize"] = reply
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == (reason, False)
    assert caller.heard.answered == [("initialize", reason)]
    del server.methods["initialize"]
    assert (await caller.call()).error is None, "the next call tries again"


async def test_a_task_does_not_wait_for_a_handshake_longer_than_it_may_run(server: ScriptedServer, caller) -> None:
    server.methods["initialize"] = Hold()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.run(within=0.03)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)


async def test_a_closed_session_is_ended_at_the_server_once_and_takes_no_call(server: ScriptedServer, caller) -> None:
    await caller.call()
    await caller.session.close()
    await caller.session.close()
    assert len(server.verbs("DELETE")) == 1
    assert server.live == set()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("closed", False)


async def test_a_session_that_was_never_opened_is_closed_without_a_word(server: ScriptedServer, caller) -> None:
    await caller.session.close()
    assert server.requests == []


async def test_closing_ends_a_handshake_and_who_waits_for_it(server: ScriptedServer, caller) -> None:
    server.methods["initialize"] = hold = Hold()
    opening = asyncio.create_task(caller.session.open())
    async with bounded():
        await hold.begun.wait()
        await caller.session.close()
        with pytest.raises(UpstreamFailed, match="was closed"):
            await opening


async def test_closing_ends_calls_that_still_wait(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        await caller.session.close()
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)
    await eventually(hold.left.is_set)
