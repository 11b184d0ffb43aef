"""What a server is asked to find out which era it speaks, by what it answers."""

import pytest

from helpers.modern_requests import check_client_message
from helpers.server import Hold, Reply, ScriptedServer, error, in_turn, raw, redirect, resets, result, status
from helpers.waiting import bounded
from requirements import covers
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed
from unit.upstream.eras import DISCOVERED, HANDSHAKE, MODERN_CALL, PROBED, arrived, supports

# --- after a handshake ---------------------------------------------------------------------------------------------


@covers("V-ERA-5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("sessions", [True, False], ids=["with sessions", "without"])
async def test_a_server_of_an_older_revision_is_sent_nothing_that_it_does_not_know(
    server: ScriptedServer, anew, revision: str, sessions: bool
) -> None:
    # Libraries of old revisions end on an unknown method.
    server.revision, server.sessions = revision, sessions
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(server) == [*HANDSHAKE, *(["GET"] if sessions else []), "tools/call"]
    assert caller.session.era is Era.LEGACY


async def test_a_server_with_tasks_of_its_revision_is_asked_nothing_more(server: ScriptedServer, anew) -> None:
    # At the SDK for Python the question begins a session and ends it, which stops the tasks of all others.
    server.capabilities = {**server.capabilities, "tasks": {"requests": {"tools": {}}}}
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(server) == [*HANDSHAKE, "GET", "tools/call"]
    assert caller.session.era is Era.LEGACY


LEGACY_ANSWERS = {
    "nothing": result({}),
    "revisions of the legacy era": result(DISCOVERED | {"supportedVersions": ["2025-11-25"]}),
    "a revision that nobody knows": result(DISCOVERED | {"supportedVersions": ["2099-01-01"]}),
    "unknown method": error(-32601, "no"),
    "invalid params": error(-32602, "no"),
    "unknown method with 404": error(-32601, "no", status=404),
    "an error with 400": error(-32000, "Session header required", status=400),
    "an error that names no request": error(-32000, "no", status=400, names_request=False),
    "another revision that is not ours": supports("2099-01-01"),
    "a refusal of the revision that names none": error(-32022, "no", status=400),
    "400": status(400),
    "404": status(404),
    "405": status(405, b""),
    "406": status(406),
    "415": status(415),
    "no JSON": raw(b"<html>"),
    "a page": raw(b"<html>", content_type="text/html"),
    "an empty document": raw(b""),
    "a stream without an answer": raw(b": nothing\n\n", content_type="text/event-stream"),
    "more than is read": raw(b'{"jsonrpc":"2.0","result":"' + b"x" * 65536 + b'"}'),
}


@covers("V-ERA-5", "V-ERA-7")
@pytest.mark.parametrize("reply", LEGACY_ANSWERS.values(), ids=LEGACY_ANSWERS)
async def test_a_server_without_the_modern_era_is_used_in_the_session_that_stands(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    plain.methods["server/discover"] = reply
    caller = anew()
    async with bounded():
        assert (await caller.call()).error is None
        assert (await caller.call()).error is None
    assert arrived(plain) == [*PROBED, "tools/call", "tools/call"]
    assert caller.session.era is Era.LEGACY


async def test_a_server_with_sessions_refuses_the_question_and_is_used_in_the_session_that_stands(
    server: ScriptedServer, anew
) -> None:
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(server) == [*HANDSHAKE, "GET", "server/discover", "tools/call"]
    await caller.session.close()
    assert server.live == set()


async def test_a_server_that_does_not_answer_the_question_is_of_the_legacy_era(plain: ScriptedServer, anew) -> None:
    plain.methods["server/discover"] = Hold()
    caller = anew()
    async with bounded():
        assert (await caller.call()).error is None
        other = caller.upstream.session(caller.heard.of_session, lambda: None)
        await other.open()
    assert arrived(plain) == [*PROBED, "tools/call", *HANDSHAKE]
    await other.close()


MODERN_ANSWERS = {
    "a revision": result(DISCOVERED),
    "a header mismatch": error(-32020, "no", status=400),
    "a header mismatch that names no request": error(-32020, "no", status=400, names_request=False),
    "a missing capability": error(-32021, "no", {"requiredCapabilities": {}}, status=400),
    "another revision that is ours": supports("2026-07-28"),
    "a header mismatch with 200": error(-32020, "no", status=200),
    "a revision on a stream": raw(
        b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'
        b'data: {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}\n\n',
        content_type="text/event-stream",
    ),
}


@covers("V-ERA-5")
@pytest.mark.parametrize("reply", MODERN_ANSWERS.values(), ids=MODERN_ANSWERS)
async def test_a_server_of_both_eras_is_used_in_the_modern_one(plain: ScriptedServer, anew, reply: Reply) -> None:
    plain.methods["server/discover"] = in_turn(reply, result(DISCOVERED))
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(plain) == [*PROBED, *MODERN_CALL]
    assert caller.session.era is Era.MODERN


async def test_the_session_that_a_server_of_both_eras_gave_is_ended(new_caller_of) -> None:
    async with ScriptedServer("both") as server:
        server.capabilities = {"tools": {}}
        caller = new_caller_of(server.url, revision=None)
        assert (await caller.call()).error is None
        assert arrived(server) == [*HANDSHAKE, "GET", "server/discover", "DELETE", *MODERN_CALL]
        assert server.live == set()
        assert server.faults == []


async def test_the_question_is_a_whole_request_of_the_modern_era(plain: ScriptedServer, anew) -> None:
    # H-MOD-1, V-META-1.
    await anew().call()
    (asked,) = [each for each in plain.requests if each.message["method"] == "server/discover"]
    assert asked.headers["mcp-protocol-version"] == "2026-07-28"
    assert asked.headers["mcp-method"] == "server/discover"
    assert asked.headers["accept"] == "application/json, text/event-stream"
    assert "mcp-session-id" not in asked.headers
    check_client_message(asked.message)


SILENT = {
    **{str(code): status(code) for code in (401, 403, 429, 500, 502, 503)},
    "500 with an error": error(-32601, "no", status=500),
    "401 with a revision": result(DISCOVERED, status=401),
    "no answer at all": resets(),
    "a redirect": redirect(302, "http://elsewhere.example.com/"),
}


@covers("V-ERA-7")
@pytest.mark.parametrize("reply", SILENT.values(), ids=SILENT)
async def test_an_answer_that_tells_nothing_leaves_the_session_that_stands_and_the_next_one_asks_again(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    plain.methods["server/discover"] = in_turn(reply, result(DISCOVERED))
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(plain) == [*PROBED, "tools/call"]
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    await other.open()
    assert arrived(plain)[4:] == [*PROBED, "server/discover"]
    assert (caller.session.era, other.era) == (Era.LEGACY, Era.MODERN)
    await other.close()


# --- without a handshake -------------------------------------------------------------------------------------------


REFUSED = {
    "unknown method": error(-32601, "no"),
    "an error with 400": error(-32600, "no", status=400),
    "a header mismatch": error(-32020, "no", status=400),
    "a refusal that names no revision": error(-32022, "no", status=400),
    "400": status(400),
    "404": status(404),
    "405": status(405),
}


@covers("V-ERA-5")
@pytest.mark.parametrize("reply", REFUSED.values(), ids=REFUSED)
async def test_a_server_that_opens_no_session_is_asked_for_the_other_era(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    plain.methods |= {"initialize": reply, "server/discover": result(DISCOVERED)}
    caller = anew()
    assert (await caller.call()).error is None
    assert arrived(plain) == ["initialize", "server/discover", *MODERN_CALL]
    assert caller.session.era is Era.MODERN


@pytest.mark.parametrize("reply", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("told", [error(-32601, "no"), status(400)], ids=["an error", "a status"])
async def test_a_server_that_speaks_neither_era_is_a_failure_and_asked_again(
    plain: ScriptedServer, anew, reply: Reply, told: Reply
) -> None:
    plain.methods |= {"initialize": reply, "server/discover": told}
    caller = anew()
    for _ in range(2):
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call()
        assert (failed.value.reason, failed.value.dispatched) == ("refused", False)
    assert arrived(plain) == ["initialize", "server/discover"] * 2


@covers("V-ERA-7")
async def test_a_server_that_names_the_modern_era_for_a_handshake_is_asked_no_more(new_caller_of) -> None:
    async with ScriptedServer("modern") as server:
        server.capabilities = {"tools": {}}
        caller = new_caller_of(server.url, revision=None)
        assert (await caller.call()).error is None
        assert arrived(server) == ["initialize", *MODERN_CALL]
        assert server.faults == []


NO_EVIDENCE = SILENT | {
    "an unknown revision": result({"protocolVersion": "1999-01-01", "capabilities": {}}),
    "no JSON": raw(b"<html>"),
    "401 with the other era": error(-32022, "no", {"supported": ["2026-07-28"]}, status=401),
    "503 with an error": error(-32601, "no", status=503),
    "406": status(406),
}


@covers("V-ERA-7")
@pytest.mark.parametrize("reply", NO_EVIDENCE.values(), ids=NO_EVIDENCE)
async def test_a_handshake_that_fails_otherwise_tells_nothing_and_is_made_again(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    plain.methods["initialize"] = reply
    caller = anew()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert failed.value.dispatched is False
    assert arrived(plain) == ["initialize"]
    del plain.methods["initialize"]
    assert (await caller.call()).error is None


@pytest.mark.parametrize("reply", [status(401), status(500), resets()], ids=["401", "500", "no answer at all"])
async def test_a_question_that_tells_nothing_after_a_refused_handshake_is_a_failure(
    plain: ScriptedServer, anew, reply: Reply
) -> None:
    plain.methods |= {"initialize": error(-32601, "no"), "server/discover": in_turn(reply, result(DISCOVERED))}
    caller = anew()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert failed.value.dispatched is False
    assert (await caller.call()).error is None
    assert caller.session.era is Era.MODERN
