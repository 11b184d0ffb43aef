"""What becomes of a call when its server, or the way to it, does not do what it should."""

import asyncio
import socket
from datetime import timedelta

import pytest
from aiohttp import web

from helpers.server import (
    Hold,
    ScriptedServer,
    Turn,
    breaks_off,
    error,
    note,
    open_stream,
    raw,
    resets,
    result,
    status,
    stream,
)
from helpers.waiting import bounded
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import UpstreamCall

FINE = {"content": []}


async def cut_short(turn: Turn) -> web.StreamResponse:
    """Promise nine bytes and send one."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "9"})
    await response.prepare(turn.request)
    await response.write(b"{")
    turn.request.transport.close()
    return response


FAILURES = {
    "reset before an answer": (resets(), "closed", True),
    "a document that breaks off": (breaks_off(document=True), "closed", True),
    "a stream that breaks off": (breaks_off(), "closed", True),
    "a stream that breaks off after a notification": (breaks_off(note("notifications/message")), "closed", True),
    "a stream that ends without an answer": (stream(None), "closed", True),
    "a document that is too short": (cut_short, "closed", True),
    "HTML": (raw(b"<html>", content_type="text/html"), "malformed", True),
    "HTML that calls itself JSON": (raw(b"<html>"), "malformed", True),
    "an empty document": (raw(b""), "malformed", True),
    "no content type": (raw(b"{}", content_type=None), "malformed", True),
    "202": (raw(b"", content_type=None, status=202), "malformed", True),
    "204": (raw(b"", content_type=None, status=204), "malformed", True),
    "a batch": (raw(b'[{"jsonrpc":"2.0","id":1,"result":{}}]'), "malformed", True),
    "two documents": (raw(b'{"jsonrpc":"2.0","id":1,"result":{}}{}'), "malformed", True),
    "bad UTF-8": (raw(b'{"jsonrpc":"2.0","id":"\xff"}'), "malformed", True),
    "a wrong id": (result(FINE, id=999), "malformed", True),
    "an id of another type": (result(FINE, id="2"), "malformed", True),
    "a request instead of an answer": (raw(b'{"jsonrpc":"2.0","id":2,"method":"ping"}'), "malformed", True),
    "a coded document": (raw(b"\x1f\x8b", Content_Encoding="br"), "malformed", True),
    "a head without an end": (raw(b"{}", X_Long="x" * 20_000), "malformed", True),
    "a huge document": (result({"content": ["x" * 70_000]}), "too_large", True),
    "a huge event": (stream({"content": ["x" * 70_000]}), "too_large", True),
    "401": (status(401), "refused", False),
    "403": (status(403), "refused", False),
    "405": (status(405), "refused", False),
    "429": (status(429), "refused", False),
    "500": (status(500), "refused", True),
    "502 in JSON": (status(502, b'{"error":"bad gateway"}', content_type="application/json"), "refused", True),
    "503": (status(503), "refused", True),
    "a result under an error status": (result(FINE, status=500), "refused", True),
    "400 in a session": (status(400), "refused", False),
}


@pytest.mark.parametrize(("reply", "reason", "dispatched"), FAILURES.values(), ids=FAILURES)
async def test_a_failed_call_tells_its_reason_and_whether_it_may_have_run(
    server: ScriptedServer, caller, reply, reason: str, dispatched: bool
) -> None:
    server.script["bad"] = reply
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call("bad")
    assert (failed.value.reason, failed.value.dispatched) == (reason, dispatched)
    assert caller.heard.answered[-1] == ("tools/call", reason)
    assert len(server.heard("tools/call")) == 1, "nothing is sent twice"
    assert_says_nothing(failed.value, server)
    assert (await caller.call()).error is None, "the next call is not hurt"


@pytest.mark.parametrize("reply", [result(FINE, id=999), stream(None)], ids=["wrong id", "no answer"])
async def test_the_connection_of_an_answer_to_another_request_has_no_more_calls(
    server: ScriptedServer, caller, reply
) -> None:
    server.script["bad"] = reply
    async with bounded():
        with pytest.raises(UpstreamFailed):
            await caller.call("bad")
        # Else it would get the answer to the first, if that came late, and each call that of the call before.
        await caller.call()
    peers = [
        request.peer for request in server.requests if request.message and request.message["method"] == "tools/call"
    ]
    assert len(set(peers)) == 2


@pytest.mark.parametrize(("reply", "reason", "dispatched"), FAILURES.values(), ids=FAILURES)
async def test_a_task_fails_as_a_call_does(
    server: ScriptedServer, caller, reply, reason: str, dispatched: bool
) -> None:
    server.script["bad"] = reply
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.run("bad")
    assert (failed.value.reason, failed.value.dispatched) == (reason, dispatched)


def assert_says_nothing(failure: UpstreamFailed, server: ScriptedServer) -> None:
    """An error tells no address, and hides no exception that does."""
    port = server.origin.rpartition(":")[2]
    for word in (port, "127.0.0.1", "localhost", "/mcp", "http:", "aiohttp"):
        assert word not in str(failure)
    assert failure.__cause__ is None
    assert failure.__suppress_context__ or failure.__context__ is None


async def test_a_server_that_is_not_there_was_sent_nothing(new_caller_of) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    caller = new_caller_of(f"http://127.0.0.1:{port}/mcp")
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)
    assert str(failed.value) == "The server could not be reached"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b"])
async def test_a_name_that_leads_nowhere_was_sent_nothing(new_caller_of, name: str) -> None:
    caller = new_caller_of(f"http://{name}:9/mcp", connect=timedelta(seconds=2))
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)
    assert name not in str(failed.value)


async def test_a_server_that_goes_away_between_calls_was_sent_nothing(server: ScriptedServer, caller) -> None:
    await caller.call()
    await server.stop()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)


async def test_plain_http_where_tls_is_expected_was_sent_nothing(server: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(server.url.replace("http:", "https:"))
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)


async def test_a_request_whose_answer_does_not_begin_in_time_fails(server: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(server.url, first_byte=timedelta(milliseconds=100))
    await caller.session.open()
    server.methods["prompts/list"] = Hold()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.session.call(UpstreamCall("prompts/list", None), caller.heard.of_calls)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)


async def test_a_tool_may_take_longer_than_a_first_byte(server: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(server.url, first_byte=timedelta(milliseconds=100))
    await caller.session.open()
    server.script["slow"] = hold = Hold()
    asyncio.get_running_loop().call_later(0.2, hold.release, FINE)
    async with bounded():
        assert (await caller.call("slow")).error is None


@pytest.mark.parametrize("bound", ["call", "within"])
async def test_a_call_that_takes_too_long_fails_and_the_server_is_told(
    server: ScriptedServer, new_caller_of, bound: str
) -> None:
    caller = new_caller_of(server.url, call=timedelta(seconds=0.1 if bound == "call" else 20))
    server.script["slow"] = hold = Hold()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.run("slow", within=0.1 if bound == "within" else 20)
        assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
        await hold.left.wait()
        await caller.session.close()
    assert server.cancelled == [hold.turns[0].id]


async def test_a_stream_that_drips_is_bounded_by_the_whole_call(server: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(server.url, call=timedelta(milliseconds=150), idle=timedelta(seconds=20))
    server.script["drips"] = stream(FINE, before=[b": keep-alive\n\n"] * 3)
    assert (await caller.call("drips")).error is None


async def test_silence_within_an_answer_is_bounded_where_configured(server: ScriptedServer, new_caller_of) -> None:
    async def stalls(turn: Turn) -> None:
        await open_stream(turn.request)
        await asyncio.get_running_loop().create_future()

    caller = new_caller_of(server.url, idle=timedelta(milliseconds=100))
    server.script["stalls"] = stalls
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call("stalls")
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)


@pytest.mark.parametrize("code", [200, 400, 403, 500])
async def test_an_error_of_the_servers_own_is_an_answer_whatever_its_status(
    server: ScriptedServer, caller, code: int
) -> None:
    server.script["bad"] = error(-32602, "Not like that", status=code)
    assert (await caller.call("bad")).error.value == {"code": -32602, "message": "Not like that"}
    assert caller.heard.answered[-1] == ("tools/call", "-32602")
    outcome = await caller.run("bad")
    assert isinstance(outcome, CallFaulted)
    assert outcome.message == "Not like that"


async def test_the_result_of_a_task_is_the_servers_text(server: ScriptedServer, caller) -> None:
    async def odd(turn: Turn) -> web.StreamResponse:
        body = b'{"id": %d ,"result":{"content" : [ ], "n":1e999},"jsonrpc":"2.0"}' % turn.message["id"]
        return await raw(body)(turn)

    server.script["odd"] = odd
    outcome = await caller.run("odd")
    assert isinstance(outcome, CallSucceeded)
    assert outcome.result == '{"content" : [ ], "n":1e999}'
