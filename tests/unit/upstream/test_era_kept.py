"""Which era a server speaks is configured, or found out once for all sessions with it."""

import asyncio

import pytest

from helpers.server import Hold, Reply, ScriptedServer, error, in_turn, resets, result, status
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.versions import Era, Revision
from taskgate.errors import UpstreamFailed
from unit.upstream.eras import DISCOVERED, HANDSHAKE, MODERN_CALL, PROBED, arrived, supports

# --- by configuration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_configured_revision_of_the_legacy_era_is_offered_and_nothing_asked(
    plain: ScriptedServer, anew, revision: str
) -> None:
    plain.revision = revision
    caller = anew(revision=Revision(revision))
    assert (await caller.call()).error is None
    assert arrived(plain) == [*HANDSHAKE, "tools/call"]
    assert plain.heard("initialize")[0]["params"]["protocolVersion"] == revision


async def test_a_configured_modern_era_needs_no_handshake(plain: ScriptedServer, anew) -> None:
    plain.methods["server/discover"] = result(DISCOVERED)
    assert (await anew(revision=Revision.R2026_07_28).call()).error is None
    assert arrived(plain) == MODERN_CALL


@pytest.mark.parametrize("reply", [error(-32601, "no"), status(400), supports("2025-11-25")])
async def test_a_configured_modern_era_is_kept_to(plain: ScriptedServer, anew, reply: Reply) -> None:
    plain.methods["server/discover"] = reply
    caller = anew(revision=Revision.R2026_07_28)
    for _ in range(2):
        with pytest.raises(UpstreamFailed):
            await caller.session.open()
    assert set(arrived(plain)) == {"server/discover"}


async def test_a_configured_legacy_era_is_kept_to(plain: ScriptedServer, anew) -> None:
    plain.methods["initialize"] = supports("2026-07-28")
    caller = anew(revision=Revision.R2025_11_25)
    for _ in range(2):
        with pytest.raises(UpstreamFailed):
            await caller.call()
    assert arrived(plain) == ["initialize", "initialize"]


# --- for many ------------------------------------------------------------------------------------------------------


@covers("V-ERA-8")
async def test_sessions_of_a_server_that_is_known_do_not_ask(plain: ScriptedServer, anew) -> None:
    caller = anew()
    await caller.call()
    plain.requests.clear()
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    await other.open()
    assert arrived(plain) == HANDSHAKE
    await other.close()


async def test_sessions_of_a_server_that_is_known_for_modern_make_no_handshake(new_caller_of) -> None:
    async with ScriptedServer("both") as server:
        server.capabilities = {"tools": {}}
        caller = new_caller_of(server.url, revision=None)
        await caller.call()
        server.requests.clear()
        other = caller.upstream.session(caller.heard.of_session, lambda: None)
        assert other.era is Era.MODERN
        await other.open()
        assert arrived(server) == ["server/discover"]
        await other.close()


async def test_many_sessions_ask_once(plain: ScriptedServer, anew) -> None:
    caller = anew()
    plain.methods["initialize"] = hold = Hold()
    sessions = [caller.upstream.session(caller.heard.of_session, lambda: None) for _ in range(4)]
    opening = [asyncio.create_task(session.open()) for session in sessions]
    async with bounded():
        await hold.begun.wait()
        del plain.methods["initialize"]
        hold.release({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}})
        await asyncio.gather(*opening)
    assert arrived(plain)[:3] == PROBED
    assert sorted(arrived(plain)[3:]) == sorted(HANDSHAKE * 3)
    for session in sessions:
        await session.close()


async def test_a_server_that_cannot_be_reached_is_tried_once_for_all_who_wait(plain: ScriptedServer, anew) -> None:
    plain.methods["initialize"] = resets()
    caller = anew()
    sessions = [caller.upstream.session(caller.heard.of_session, lambda: None) for _ in range(3)]
    failed = await asyncio.gather(*(session.open() for session in sessions), return_exceptions=True)
    assert {(each.reason, each.dispatched) for each in failed} == {("closed", False)}
    assert arrived(plain) == ["initialize"]
    for session in sessions:
        await session.close()


async def test_a_refusal_that_may_be_for_one_caller_alone_is_no_answer_for_another(plain: ScriptedServer, anew) -> None:
    plain.methods["initialize"] = in_turn(
        status(401), result({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}})
    )
    caller = anew()
    sessions = [caller.upstream.session(caller.heard.of_session, lambda: None) for _ in range(2)]
    refused, opened = await asyncio.gather(*(session.open() for session in sessions), return_exceptions=True)
    assert refused.reason == "refused"
    assert opened.peer.revision is Revision.R2025_11_25
    for session in sessions:
        await session.close()


async def test_who_leaves_while_asking_for_all_stops_nobody_else(plain: ScriptedServer, anew) -> None:
    caller = anew()
    plain.methods["initialize"] = hold = Hold()
    leaving = caller.upstream.session(caller.heard.of_session, lambda: None)
    opening = asyncio.create_task(leaving.open())
    async with bounded():
        await hold.begun.wait()
        staying = asyncio.create_task(caller.call())
        await eventually(lambda: caller.session is not None)
        del plain.methods["initialize"]
        await leaving.close()
        assert (await staying).error is None
        with pytest.raises(UpstreamFailed, match="was closed"):
            await opening
        hold.release({})
    assert arrived(plain) == ["initialize", *PROBED, "tools/call"]


async def test_who_waits_for_an_answer_that_told_nothing_asks_for_themselves(plain: ScriptedServer, anew) -> None:
    plain.methods["server/discover"] = status(503)
    caller = anew()
    sessions = [caller.upstream.session(caller.heard.of_session, lambda: None) for _ in range(3)]
    async with bounded():
        await asyncio.gather(*(session.open() for session in sessions))
    assert arrived(plain)[:3] == PROBED
    assert sorted(arrived(plain)) == sorted(PROBED * 3)
    for session in sessions:
        await session.close()


async def test_who_waited_for_a_refusal_does_not_wait_for_the_others_who_did(plain: ScriptedServer, anew) -> None:
    plain.methods["initialize"] = in_turn(status(401), hold := Hold())
    caller = anew()
    sessions = [caller.upstream.session(caller.heard.of_session, lambda: None) for _ in range(3)]
    opening = [asyncio.create_task(session.open()) for session in sessions]
    async with bounded():
        await eventually(lambda: len(hold.turns) == 2)
        hold.release({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}})
        refused, *opened = await asyncio.gather(*opening, return_exceptions=True)
    assert isinstance(refused, UpstreamFailed)
    assert [server.peer.revision for server in opened] == [Revision.R2025_06_18] * 2
    for session in sessions:
        await session.close()


async def test_who_leaves_while_the_server_is_asked_ends_the_session_that_stands(new_caller_of) -> None:
    async with ScriptedServer("both") as server:
        server.methods["server/discover"] = hold = Hold()
        caller = new_caller_of(server.url, revision=None)
        opening = asyncio.create_task(caller.session.open())
        async with bounded():
            await hold.begun.wait()
            await caller.session.close()
            with pytest.raises(UpstreamFailed, match="was closed"):
                await opening
        assert arrived(server)[-1] == "DELETE"
        assert server.live == set()
