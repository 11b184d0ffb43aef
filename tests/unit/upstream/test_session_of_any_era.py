"""A session goes by the era that its server speaks, and by another one after the server left that."""

import asyncio
from datetime import timedelta

import pytest

from helpers.server import Hold, ScriptedServer, error, in_turn, result, status
from helpers.upstream_calls import task_call
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Notification
from taskgate.upstream.session import ServerSession
from unit.upstream.conftest import EVERYTHING, Caller
from unit.upstream.eras import DISCOVERED, HANDSHAKE, MODERN_CALL, PROBED, arrived, supports

ROOTS_CHANGED = Notification(
    method="notifications/roots/list_changed",
    params={},
    text='{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
    params_text="",
    params_at=0,
)


def other_session(caller: Caller):
    """Another session with the same server."""
    return caller.upstream.session(caller.heard.of_session, lambda: None, EVERYTHING)


@pytest.fixture
async def dual():
    """A server of both eras, of which nobody wants to hear anything besides its answers."""
    async with ScriptedServer("both") as server:
        server.capabilities = {"tools": {}}
        yield server


# --- one session like any other ------------------------------------------------------------------------------------


async def test_until_the_era_is_known_it_is_the_legacy_era_and_nothing_is_there(anew) -> None:
    session = anew().session
    assert session.era is Era.LEGACY
    assert not session.listed("echo")
    assert session.grants(frozenset({"widgetsChanged"})) == frozenset()
    session.tell(ROOTS_CHANGED)
    await session.close()


async def test_a_server_of_the_legacy_era_tells_of_whatever_it_declares(plain: ScriptedServer, anew) -> None:
    # X-EXT-24: there is no filter in that era.
    caller = anew()
    await caller.session.open()
    assert caller.session.grants(frozenset({"widgetsChanged"})) == {"widgetsChanged"}
    await caller.session.close()


async def test_whatever_is_asked_first_finds_the_era(plain: ScriptedServer, anew) -> None:
    for ask in ("open", "tools"):
        await getattr(anew().session, ask)()
        assert arrived(plain)[:3] == PROBED
        plain.requests.clear()
    assert isinstance(await anew().run(), CallSucceeded)
    assert arrived(plain) == [*PROBED, "tools/call"]


async def test_a_session_ends_although_the_first_who_ends_it_is_cancelled(new_caller_of) -> None:
    async with ScriptedServer("modern") as server:
        caller = new_caller_of(server.url, revision=None)
        await caller.session.open()
        await server.listens.opened()
        closing = asyncio.create_task(caller.session.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with bounded():
            with pytest.raises(asyncio.CancelledError):
                await closing
            await caller.session.close()
            await eventually(lambda: server.listens.filters == [])


async def test_what_is_told_and_listed_is_the_servers_in_either_era(plain: ScriptedServer, anew) -> None:
    caller = anew()
    session = other_session(caller)
    await session.tools()
    assert session.listed("echo")
    session.tell(ROOTS_CHANGED)
    await session.close()
    assert arrived(plain)[-1] == ROOTS_CHANGED.method


async def test_many_who_need_a_session_share_it(server: ScriptedServer, anew) -> None:
    caller = anew()
    async with bounded():
        await asyncio.gather(caller.session.open(), caller.call(), caller.session.tools(), caller.run())
    assert len(server.heard("initialize")) == len(server.heard("server/discover")) == 1


async def test_who_comes_while_the_server_is_asked_shares_what_is_found(plain: ScriptedServer, anew) -> None:
    plain.methods |= {"initialize": error(-32601, "no"), "server/discover": (hold := Hold())}
    caller = anew()
    first = asyncio.create_task(caller.call())
    async with bounded():
        await hold.begun.wait()
        second = asyncio.create_task(caller.call())
        await asyncio.sleep(0)
        hold.release(DISCOVERED)
        await asyncio.gather(first, second)
    assert sorted(arrived(plain)) == sorted(["initialize", "server/discover", *MODERN_CALL, "tools/call"])


@pytest.mark.parametrize("way", ["run", "call"])
async def test_a_call_does_not_wait_for_the_era_longer_than_it_may_run(plain: ScriptedServer, anew, way: str) -> None:
    plain.methods["initialize"] = Hold()
    caller = anew(call=timedelta(seconds=0.03 if way == "call" else 20))
    with pytest.raises(UpstreamFailed) as failed:
        await (caller.call() if way == "call" else caller.run(within=0.03))
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)


async def test_the_time_that_the_era_took_is_time_of_the_call(plain: ScriptedServer, anew, monkeypatch) -> None:
    given: list[timedelta] = []
    caller = anew()

    class Recording:
        era = Era.LEGACY

        async def call(self, call, listener):
            given.append(call.within)

        async def close(self) -> None:
            pass

    async def found(session, within):
        return Recording(), timedelta(seconds=7)

    monkeypatch.setattr(ServerSession, "_found_within", found)
    await caller.session.call(
        task_call("echo", "{}", timedelta(seconds=10)),
        caller.heard.of_calls,
    )
    assert given == [timedelta(seconds=3)]


async def test_a_closed_session_takes_no_call_and_asks_nothing(plain: ScriptedServer, anew) -> None:
    caller = anew()
    await caller.session.close()
    await caller.session.close()
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert (failed.value.reason, failed.value.dispatched) == ("closed", False)
    assert arrived(plain) == []


async def test_closing_ends_the_question_and_who_waits_for_it(server: ScriptedServer, anew) -> None:
    server.methods["server/discover"] = Hold()
    server.sessions = False
    caller = anew()
    opening = asyncio.create_task(caller.session.open())
    async with bounded():
        await eventually(lambda: server.heard("server/discover"))
        await caller.session.close()
        with pytest.raises(UpstreamFailed, match="was closed"):
            await opening


@covers("V-ERA-9")
@pytest.mark.parametrize("code", [-32000, -32001, -32003, -32019])
async def test_a_code_that_servers_keep_for_themselves_is_an_answer_and_means_nothing(
    plain: ScriptedServer, anew, code: int
) -> None:
    plain.script["odd"] = error(code, "Mine")
    caller = anew()
    response = await caller.call("odd")
    assert response.error is not None
    assert response.error.value == {"code": code, "message": "Mine"}
    plain.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(plain) == ["tools/call"]


# --- a server that leaves its era ----------------------------------------------------------------------------------


@covers("V-ERA-8")
async def test_a_call_whose_server_opens_no_session_any_more_is_made_in_the_other_era(
    server: ScriptedServer, anew
) -> None:
    caller = anew()
    await caller.call()
    server.forget_sessions()
    server.methods |= {"initialize": supports("2026-07-28"), "server/discover": result(DISCOVERED), "ping": status(404)}
    server.script["echo"] = in_turn(status(404), result({"content": []}))
    server.sessions = False
    server.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(server) == ["tools/call", "ping", "initialize", "initialize", *MODERN_CALL]
    assert caller.session.era is Era.MODERN


async def test_a_call_that_is_told_of_the_modern_era_is_made_in_it(plain: ScriptedServer, anew) -> None:
    caller = anew()
    await caller.call()
    plain.methods |= {
        "tools/call": in_turn(supports("2026-07-28"), result({"content": []})),
        "initialize": supports("2026-07-28"),
        "server/discover": result(DISCOVERED),
    }
    plain.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(plain) == ["tools/call", "initialize", *MODERN_CALL]


@covers("V-ERA-8")
async def test_a_server_that_left_the_modern_era_is_used_in_the_other(dual: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    dual.versions = ["2099-01-01"]
    dual.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(dual) == ["tools/call", *HANDSHAKE, "GET", "server/discover", "tools/call"]
    assert caller.session.era is Era.LEGACY


async def test_another_session_is_not_troubled_by_a_loss_that_it_does_not_meet(server: ScriptedServer, anew) -> None:
    caller = anew()
    await caller.call()
    other = other_session(caller)
    server.methods["initialize"] = error(-32601, "no")
    with pytest.raises(UpstreamFailed):
        await other.open()
    server.requests.clear()
    assert (await caller.call()).error is None
    assert arrived(server) == ["tools/call"]
    await other.close()


async def test_a_server_that_is_found_in_its_era_again_keeps_its_session(plain: ScriptedServer, anew) -> None:
    caller = anew()
    plain.methods |= {"initialize": supports("2026-07-28"), "server/discover": result(DISCOVERED)}
    await caller.call()
    plain.methods["tools/call"] = in_turn(status(404), result({"content": []}))
    plain.methods["server/discover"] = in_turn(status(404), result(DISCOVERED))
    plain.requests.clear()
    with pytest.raises(UpstreamFailed):
        await caller.call()
    assert (await caller.call()).error is None
    assert arrived(plain) == ["tools/call", "server/discover", "initialize", "tools/call"]


async def test_a_call_of_the_era_that_was_left_ends_by_itself(dual: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(dual.url, revision=None)
    dual.script["slow"] = hold = Hold()
    running = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        dual.versions = []
        assert (await caller.call()).error is None
        hold.release({"content": []})
        assert (await running).error is None


async def test_closing_ends_the_sessions_of_both_eras(dual: ScriptedServer, new_caller_of) -> None:
    caller = new_caller_of(dual.url, revision=None)
    dual.script["slow"] = hold = Hold()
    running = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        dual.versions = []
        await caller.call()
        await caller.session.close()
        with pytest.raises(UpstreamFailed, match="was closed"):
            await running
    assert dual.live == set()


async def test_of_the_sessions_that_were_left_only_the_last_may_still_run(plain: ScriptedServer, anew) -> None:
    caller = anew()
    modern = {"initialize": supports("2026-07-28"), "server/discover": result(DISCOVERED)}
    done = result({"content": []})
    plain.script |= {"slow": (hold := Hold()), "leave": in_turn(status(404), done, supports("2026-07-28"), done)}
    plain.methods |= modern
    running = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        plain.methods.clear()
        await caller.call("leave")
        assert (caller.session.era, running.done()) == (Era.LEGACY, False)
        plain.methods |= modern
        await caller.call("leave")
        assert caller.session.era is Era.MODERN
        with pytest.raises(UpstreamFailed, match="was closed"):
            await running
