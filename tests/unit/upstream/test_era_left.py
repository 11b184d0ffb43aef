"""A server that is replaced by one of the other era is found out, whatever the new one answers, and nobody restarts."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.server import Hold, Reply, ScriptedServer, error, raw, resets, result, status
from helpers.waiting import bounded
from requirements import covers
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import Caller
from unit.upstream.eras import arrived


@pytest.fixture
async def dual() -> AsyncIterator[ScriptedServer]:
    """A server of both eras, of which nobody wants to hear anything besides its answers."""
    async with ScriptedServer("both") as server:
        server.capabilities = {"tools": {}}
        yield server


async def comes_to(caller: Caller) -> str | tuple[str, bool]:
    """What a call comes to; for a failure, why, and whether it may have run."""
    try:
        response = await caller.call()
    except UpstreamFailed as failure:
        return failure.reason, failure.dispatched
    return "a result" if response.error is None else "an error"


# --- from the modern era to the other --------------------------------------------------------------------------

NO_DISCOVERIES: dict[str, Reply] = {
    "no method": error(-32601, "no"),
    "no parameters": error(-32602, "no"),
    "not now": error(-32600, "no"),
    "an error of its own": error(-32000, "no"),
    "no method, by status": error(-32601, "no", status=404),
    "a status": status(400),
    "nothing in it": result({}),
    "a page": raw(b"<p>", content_type="text/html"),
    "a break": resets(),
}


@covers("V-ERA-8")
@pytest.mark.parametrize("reply", NO_DISCOVERIES.values(), ids=NO_DISCOVERIES)
async def test_a_server_that_says_no_more_who_it_is_is_asked_anew_for_the_next_call(
    dual: ScriptedServer, new_caller_of, reply: Reply
) -> None:
    caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    dual.methods["server/discover"] = reply
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    assert other.era is Era.MODERN
    with pytest.raises(UpstreamFailed) as failed:
        await other.open()
    assert failed.value.dispatched is False
    await other.open()
    assert other.era is Era.LEGACY
    await other.close()


async def test_a_server_that_is_silent_when_asked_who_it_is_is_asked_anew(dual: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(dual.url, revision=None, first_byte=timedelta(seconds=0.05))
    await caller.call()
    dual.methods["server/discover"] = Hold()
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    with pytest.raises(UpstreamFailed):
        await other.open()
    assert other.era is Era.MODERN
    del dual.methods["server/discover"]
    dual.requests.clear()
    await other.open()
    assert arrived(dual)[0] == "initialize"
    await other.close()


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
async def test_a_status_of_the_caller_or_the_moment_leaves_the_era_whatever_its_body_says(
    dual: ScriptedServer, new_caller_of, code: int
) -> None:
    caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    dual.methods["server/discover"] = error(-32601, "no", status=code)
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    dual.requests.clear()
    for _ in range(2):
        with pytest.raises(UpstreamFailed):
            await other.open()
    assert arrived(dual) == ["server/discover"] * 2
    await other.close()


@pytest.mark.parametrize("way", ["open", "tools"])
async def test_a_session_that_is_closed_while_it_asks_leaves_the_era(
    dual: ScriptedServer, new_caller_of, way: str
) -> None:
    caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    dual.methods["server/discover"] = hold = Hold()
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    opening = asyncio.create_task(getattr(other, way)())
    async with bounded():
        await hold.begun.wait()
        await other.close()
        with pytest.raises(UpstreamFailed, match="was closed"):
            await opening
    assert caller.upstream.session(caller.heard.of_session, lambda: None).era is Era.MODERN


# --- from the legacy era to the other -------------------------------------------------------------------------


@covers("V-ERA-8")
@pytest.mark.parametrize("sessions", [True, False], ids=["with sessions", "without"])
async def test_a_server_that_speaks_the_modern_era_alone_from_now_on_is_found_out(
    dual: ScriptedServer, new_caller_of, sessions: bool
) -> None:
    dual.sessions = sessions
    dual.methods["server/discover"] = error(-32601, "no")
    caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    assert caller.session.era is Era.LEGACY
    dual.methods.clear()
    dual.era = "modern"
    response = await caller.call()
    assert response.error is not None
    assert response.error.value["code"] == -32602
    assert (await caller.call()).error is None
    assert caller.session.era is Era.MODERN


STRANGE: dict[str, Reply] = {
    "headers, by status": error(-32020, "no", status=400),
    "headers": error(-32020, "no"),
    "a capability": error(-32021, "no"),
    "a revision, and not which": error(-32022, "no", status=400),
    "parameters, by status": error(-32602, "no", status=400),
    "a method, by status": error(-32601, "no", status=404),
    "unread": error(-32020, "no", status=400, names_request=False),
    "a status": status(400),
    "no such place": status(404),
    "no such way": status(405),
}


@pytest.mark.parametrize("reply", STRANGE.values(), ids=STRANGE)
async def test_a_server_without_sessions_that_answers_strangely_to_whatever_it_is_asked_is_asked_anew(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    caller = anew()
    await caller.call()
    plain.methods |= {"tools/call": reply, "ping": reply}
    plain.requests.clear()
    assert await comes_to(caller) in ("an error", ("refused", False))
    assert arrived(plain)[:2] == ["tools/call", "ping"]
    assert arrived(plain).count("tools/call") == 1, "the server is one of the same era still"
    plain.methods.clear()
    assert (await caller.call()).error is None
    assert arrived(plain)[2] == "initialize"


@pytest.mark.parametrize("reply", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("ping", [result({}), error(-32601, "no"), status(401), resets()], ids=["", "no", "401", "cut"])
async def test_a_server_that_answers_strangely_and_still_knows_its_era_stays_in_it(
    plain: ScriptedServer, anew, reply: Reply, ping: Reply
) -> None:
    caller = anew()
    await caller.call()
    plain.methods |= {"tools/call": reply, "ping": ping}
    assert await comes_to(caller) in ("an error", ("refused", False))
    plain.methods.clear()
    plain.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(plain) == ["tools/call"]


@pytest.mark.parametrize("code", [-32601, -32602, -32603, -32000])
async def test_an_error_as_any_server_has_it_is_no_reason_to_ask(plain: ScriptedServer, anew, code: int) -> None:
    caller = anew()
    plain.script["odd"] = error(code, "no")
    await caller.call("odd")
    assert "ping" not in arrived(plain)


async def test_a_server_without_sessions_that_fails_for_a_moment_is_not_doubted(plain: ScriptedServer, anew) -> None:
    caller = anew()
    await caller.call()
    plain.methods["tools/call"] = status(503)
    assert await comes_to(caller) == ("refused", True)
    assert "ping" not in arrived(plain)
