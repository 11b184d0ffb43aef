"""What comes back for a request to a server of the modern era, and what it means."""

import asyncio

import pytest
from aiohttp import web

from helpers.server import (
    Hold,
    Reply,
    ScriptedServer,
    Turn,
    breaks_off,
    error,
    raw,
    redirect,
    resets,
    result,
    status,
    stream,
)
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import failure_of, value_of


@pytest.mark.parametrize("code", [200, 400, 404])
async def test_an_error_is_the_answer_under_whatever_status(server: ScriptedServer, guest: Guest, code: int) -> None:
    server.script["echo"] = error(-32602, "no such tool", status=code)
    assert (await guest.call()).error.value["code"] == -32602
    assert (guest.heard.answered[-1], guest.heard.eras_lost) == (("tools/call", "-32602"), 0)


@pytest.mark.parametrize("code", [200, 400])
@pytest.mark.parametrize("id", ["", '"id":null,'], ids=["without an id", "under null"])
async def test_an_error_that_names_no_request_answers_the_one_it_came_for(
    server: ScriptedServer, guest: Guest, id: str, code: int
) -> None:
    text = f'{{"jsonrpc":"2.0",{id}"error":{{"code":-32602,"message":"unread","data":[ 1e400]}}}}'
    server.script["echo"] = raw(text.encode(), status=code)
    response = await guest.call()
    assert response.error is not None
    assert response.text[response.error.start : response.error.end] == text[text.index('{"code') : -1]
    assert guest.heard.eras_lost == 0


@pytest.mark.parametrize("code", [400, 404])
async def test_an_error_of_a_legacy_server_that_names_no_request_casts_doubt_on_the_era(
    server: ScriptedServer, guest: Guest, code: int
) -> None:
    """As servers on the TypeScript SDK refuse a request without a session."""
    said = b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}'
    await guest.call()
    server.script["echo"] = server.methods["server/discover"] = raw(said, status=code)
    with pytest.raises(UpstreamFailed):
        await guest.call()
    assert guest.heard.eras_lost


@covers("H-MOD-7")
async def test_a_header_that_was_refused_unread_has_the_catalogue_read_anew(
    server: ScriptedServer, guest: Guest, monkeypatch
) -> None:
    await guest.session.tools()
    unread = raw(b'{"jsonrpc":"2.0","error":{"code":-32020,"message":"unread"}}', status=400)
    region = {"type": "string", "x-mcp-header": "Region"}
    server.tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"region": region}}}]

    async def reply(turn: Turn) -> web.StreamResponse:
        has_header = "Mcp-Param-Region" in turn.request.headers
        return await (result({"content": []}) if has_header else unread)(turn)

    server.script["echo"] = reply
    server.checks_headers = False
    assert (await guest.call("echo", '{"region":"south"}')).error is None


@covers("V-META-7")
@pytest.mark.parametrize("kind", ["task", "later", None, 1])
async def test_an_answer_of_an_unknown_kind_fails_the_call(server: ScriptedServer, guest: Guest, kind) -> None:
    server.script["echo"] = result({"resultType": kind, "content": []})
    assert await failure_of(guest.call()) == ("malformed", True)


async def test_an_answer_means_to_a_task_what_it_says(server: ScriptedServer, guest: Guest) -> None:
    server.script["echo"] = result({"content": [], "isError": True})
    outcome = guest.session.outcome(await guest.run())
    assert isinstance(outcome, CallSucceeded)
    assert outcome.tool_error


@pytest.mark.parametrize("code", [400, 404, 405])
async def test_a_status_that_means_another_era_is_reported(server: ScriptedServer, guest: Guest, code: int) -> None:
    await guest.call()
    server.methods |= {"tools/call": status(code), "server/discover": status(code)}
    assert await failure_of(guest.call()) == ("refused", False)
    assert guest.heard.eras_lost == 1


@covers("V-ERA-8")
@pytest.mark.parametrize("code", [400, 404, 405])
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_a_server_that_refuses_without_a_word_and_still_says_who_it_is_stays_in_its_era(
    server: ScriptedServer, guest: Guest, method: str, code: int
) -> None:
    await guest.session.open()
    server.methods[method] = status(code)
    asked = guest.call() if method == "tools/call" else guest.session.tools()
    assert await failure_of(asked) == ("refused", False)
    assert (guest.heard.eras_lost, len(server.heard("server/discover"))) == (0, 2)


async def test_calls_that_are_refused_together_have_the_server_asked_once(server: ScriptedServer, guest: Guest) -> None:
    await guest.call()
    server.methods |= {"tools/call": status(400), "server/discover": (hold := Hold())}
    calls = [asyncio.create_task(failure_of(guest.call())) for _ in range(5)]
    await eventually(lambda: guest.heard.answered.count(("tools/call", "refused")) == 5)
    async with bounded():
        await hold.begun.wait()
    hold.release({"supportedVersions": ["2026-07-28"], "capabilities": {}})
    assert await asyncio.gather(*calls) == [("refused", False)] * 5
    assert (guest.heard.eras_lost, len(server.heard("server/discover"))) == (0, 2)


async def test_a_server_that_is_silent_when_it_is_doubted_keeps_no_host_waiting(
    server: ScriptedServer, guest: Guest
) -> None:
    await guest.call()
    server.methods |= {"tools/call": status(400), "server/discover": Hold()}
    async with bounded(2 * SIGN_OF_LIFE.total_seconds()):
        assert await failure_of(guest.call()) == ("refused", False)


@pytest.mark.parametrize(("code", "acted"), [(401, False), (403, False), (429, False), (503, True)])
async def test_a_status_that_means_nothing_of_eras_is_only_a_refusal(
    server: ScriptedServer, guest: Guest, code: int, acted: bool
) -> None:
    server.script["echo"] = status(code)
    assert await failure_of(guest.call()) == ("refused", acted)
    assert guest.heard.eras_lost == 0


async def test_a_server_that_takes_the_revision_no_more_is_asked_anew_who_it_is(
    server: ScriptedServer, guest: Guest
) -> None:
    await guest.call()
    server.versions = ["2031-01-01"]
    assert await failure_of(guest.call()) == ("refused", False)
    assert guest.heard.eras_lost == 1
    server.versions = ["2026-07-28"]
    await guest.call()
    assert len(server.heard("server/discover")) == 2


@covers("V-ERA-7")
async def test_a_server_that_names_no_revision_we_know_is_no_server_of_this_era(
    server: ScriptedServer, guest: Guest
) -> None:
    server.methods["server/discover"] = result({"supportedVersions": ["2025-11-25"], "capabilities": {}})
    assert await failure_of(guest.call()) == ("refused", False)
    assert guest.heard.eras_lost == 1
    assert server.heard("tools/call") == []


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (resets(), ("closed", True)),
        (breaks_off(), ("closed", True)),
        (breaks_off(document=True), ("closed", True)),
        (stream(None), ("closed", True)),
        (raw(b"{}", content_type="text/html"), ("malformed", True)),
        (raw(b"{}"), ("malformed", True)),
        (result({"content": []}, id="another"), ("malformed", True)),
        (redirect(307, "http://127.0.0.1:1/"), ("redirect", False)),
        (stream({"content": []}, before=[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]), ("malformed", True)),
    ],
    ids=[
        "reset",
        "broken stream",
        "broken document",
        "empty stream",
        "HTML",
        "no message",
        "other id",
        "sent off",
        "asks",
    ],
)
@covers("H-MOD-11")
async def test_a_call_that_fails_is_not_made_again(server: ScriptedServer, guest: Guest, reply, found) -> None:
    server.script["echo"] = reply
    assert await failure_of(guest.call()) == found
    assert len(server.heard("tools/call")) == 1
    assert {request.verb for request in server.requests} == {"POST"}
    assert guest.heard.answered[-1] == ("tools/call", found[0])


async def test_what_goes_before_a_call_and_fails_has_not_run_it(server: ScriptedServer, guest: Guest) -> None:
    server.methods["server/discover"] = resets()
    assert await failure_of(guest.call()) == ("closed", False)
    assert await failure_of(guest.session.tools()) == ("closed", False)


async def test_an_answer_to_something_else_is_passed_over(server: ScriptedServer, guest: Guest) -> None:
    other = {"jsonrpc": "2.0", "id": 4711, "result": {"content": [{"type": "text", "text": "other"}]}}
    server.script["echo"] = stream({"content": []}, before=[other])
    assert value_of(await guest.call())["content"] == []


@pytest.mark.parametrize(
    "reply", [result({"content": []}, id="another"), stream(None)], ids=["another id", "empty stream"]
)
async def test_the_connection_of_an_answer_to_another_request_has_no_more_calls(
    server: ScriptedServer, guest: Guest, reply: Reply
) -> None:
    server.script["echo"] = reply
    await failure_of(guest.call())
    del server.script["echo"]
    assert (await guest.call()).error is None
    first, second = [request.peer for request in server.requests if request.message["method"] == "tools/call"]
    assert first != second
