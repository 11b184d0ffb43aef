"""Who a server is, for a host that asks: as it says now, but for one that is at work, or down."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.scripted_upstream import Hold, Reply, ScriptedServer, breaks_off, error, raw, status
from helpers.stateless_server import StatelessServer
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import Caller

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}
MakeCaller = Callable[..., Caller]


def pings(server: ScriptedServer) -> int:
    return len(server.heard("ping"))


async def failure_of(caller: Caller) -> str:
    with pytest.raises(UpstreamFailed) as failed:
        await caller.session.welcome()
    return failed.value.reason


# --- a session of the initialize era


async def test_a_session_that_is_opened_for_it_is_asked_nothing_else(server: ScriptedServer, caller: Caller) -> None:
    told = await caller.session.welcome()
    assert (told.is_stale, told.info) == (False, '{"name": "scripted", "version": "1"}')
    assert (len(server.heard("initialize")), pings(server)) == (1, 0)
    assert caller.heard.of_session.servers == [told]


async def test_one_that_stands_is_asked_whether_it_does_once_for_all(server: ScriptedServer, caller: Caller) -> None:
    first = await caller.session.open()
    for times in (1, 2):
        server.methods["ping"] = hold = Hold()
        asked = [asyncio.create_task(caller.session.welcome())]
        await hold.begun.wait()
        asked += [asyncio.create_task(caller.session.welcome()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in asked)
        hold.release({})
        assert await asyncio.gather(*asked) == [first] * 3
        assert (len(server.heard("initialize")), pings(server)) == (1, times)


async def test_one_that_is_at_work_is_not_asked(server: ScriptedServer, caller: Caller) -> None:
    server.script["echo"] = hold = Hold()
    call = asyncio.create_task(caller.call())
    await hold.begun.wait()
    assert not (await caller.session.welcome()).is_stale
    assert pings(server) == 0
    hold.release({"content": []})
    await call


ANSWERS: dict[str, Reply] = {
    "an error": error(-32601, "no"),
    "401": status(401),
    "429": status(429),
    "nonsense": raw(b"<html>"),
}


@pytest.mark.parametrize("how", ANSWERS)
async def test_one_whose_server_answers_whatever_it_answers_stands(
    server: ScriptedServer, caller: Caller, how: str
) -> None:
    first = await caller.session.open()
    server.methods["ping"] = ANSWERS[how]
    assert await caller.session.welcome() is first
    assert len(server.heard("initialize")) == 1


STRANGE: dict[str, Reply] = {
    "400": status(400),
    "404": status(404),
    "405": status(405),
    "a word of the other era": error(-32022, "no"),
    "an end": breaks_off(),
}


@pytest.mark.parametrize("how", STRANGE)
async def test_one_whose_server_does_not_know_it_is_opened_anew(
    server: ScriptedServer, caller: Caller, how: str
) -> None:
    await caller.session.open()
    server.methods["ping"] = STRANGE[how]
    server.info = {"name": "another", "version": "2"}
    assert (await caller.session.welcome()).info == '{"name": "another", "version": "2"}'
    assert (len(server.heard("initialize")), caller.heard.lost) == (2, 1)


async def test_one_that_was_closed_tells_nothing(server: ScriptedServer, caller: Caller) -> None:
    await caller.session.open()
    await caller.session.close()
    assert await failure_of(caller) == "closed"
    assert pings(server) == 0


async def test_the_end_of_one_ends_the_question(server: ScriptedServer, caller: Caller) -> None:
    await caller.session.open()
    server.methods["ping"] = hold = Hold()
    asked = asyncio.create_task(failure_of(caller))
    await hold.begun.wait()
    async with bounded():
        await caller.session.close()
        assert await asked == "closed"


async def test_another_session_is_told_what_the_server_said_last(server: ScriptedServer, caller: Caller) -> None:
    first = await caller.session.open()
    await server.stop()
    heard: Any = caller.heard.of_session
    other = caller.upstream.session(heard, lambda: pytest.fail("nobody is told apart"))
    told = await other.welcome()
    assert (told.is_stale, told.info) == (True, first.info)
    with pytest.raises(UpstreamFailed, match="could not be reached"):
        await other.open()
    await other.close()


# --- a server of the stateless era


@pytest.fixture
async def modern() -> Any:
    async with StatelessServer() as server:
        server.capabilities = {"tools": {}}
        yield server


@pytest.fixture
def guest(modern: StatelessServer, new_caller_of: MakeCaller) -> Caller:
    """Somebody with a session at that server, who knows its era."""
    return new_caller_of(modern.url, revision="2026-07-28")


def discoveries(server: ScriptedServer) -> int:
    return len(server.heard("server/discover"))


async def test_a_server_without_sessions_is_asked_anew_once_for_all(modern: StatelessServer, guest: Caller) -> None:
    await guest.session.welcome()
    for times in (2, 3):
        modern.methods["server/discover"] = hold = Hold()
        asked = [asyncio.create_task(guest.session.welcome())]
        await hold.begun.wait()
        asked += [asyncio.create_task(guest.session.welcome()) for _ in range(2)]
        await asyncio.sleep(0)
        hold.release({**DISCOVERED, "instructions": str(times)})
        told = await asyncio.gather(*asked)
        assert [each.instructions for each in told] == [f'"{times}"'] * 3
        assert discoveries(modern) == times
        assert await guest.session.open() is told[0]
        assert guest.heard.of_session.servers[-1] is told[0]


async def test_calls_go_on_while_it_is_asked_anew(modern: StatelessServer, guest: Caller) -> None:
    await guest.session.welcome()
    modern.methods["server/discover"] = hold = Hold()
    asked = asyncio.create_task(guest.session.welcome())
    await hold.begun.wait()
    async with bounded():
        assert (await guest.call()).error is None
    hold.release(DISCOVERED)
    assert (await asked).capabilities == "{}"


async def test_a_server_without_sessions_that_is_at_work_is_not_asked(modern: StatelessServer, guest: Caller) -> None:
    first = await guest.session.welcome()
    modern.script["echo"] = hold = Hold()
    call = asyncio.create_task(guest.call())
    await hold.begun.wait()
    assert await guest.session.welcome() is first
    assert discoveries(modern) == 1
    hold.release({"content": []})
    await call


@pytest.mark.parametrize("how", ["401", "429", "nonsense"])
async def test_a_server_that_does_not_say_again_who_it_is_is_as_it_was(
    modern: StatelessServer, guest: Caller, how: str
) -> None:
    first = await guest.session.welcome()
    modern.methods["server/discover"] = ANSWERS[how]
    assert await guest.session.welcome() is first


async def test_a_server_that_speaks_another_revision_now_is_refused(modern: StatelessServer, guest: Caller) -> None:
    await guest.session.welcome()
    modern.versions = ["2031-01-01"]
    assert await failure_of(guest) == "refused"


async def test_the_end_of_a_session_ends_the_question_who_its_server_is(modern: StatelessServer, guest: Caller) -> None:
    await guest.session.welcome()
    modern.methods["server/discover"] = hold = Hold()
    asked = asyncio.create_task(failure_of(guest))
    await hold.begun.wait()
    async with bounded():
        await guest.session.close()
        assert await asked == "closed"
