"""An upstream knows whether a session with it is open, and hands who comes too late to the one in its place."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.waiting import bounded
from taskgate.domain.versions import Era
from taskgate.lifecycle.hearing import NOBODY
from taskgate.sessions.counted import CountedUpstream, RequestCounter
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.principal import Principal

SPEAKER = Principal(context="c")


class Session:
    """Notes what it is asked; `fault` is what its end raises."""

    era = Era.MODERN

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.fault = fault

    async def relay(self, *arguments: Any, **more: Any) -> Any:
        self.asked.append(("relay", *arguments, more))
        return "relay"

    async def run(self, *arguments: Any, **more: Any) -> Any:
        self.asked.append(("run", *arguments, more))
        return "run"

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any, **more: Any) -> Any:
            self.asked.append((name, *arguments, more))
            return name

        return note

    async def close(self) -> None:
        self.asked.append(("close",))
        if self.fault is not None:
            raise self.fault


class Server:
    """Gives out sessions, and notes that it was opened and closed."""

    name = "reports"

    def __init__(self, fault: Exception | None = None) -> None:
        self.sessions: list[Session] = []
        self.told: list[str] = []
        self.fault = fault

    def open(self) -> None:
        self.told.append("open")

    def vitals(self) -> Vitals:
        return Vitals(up=True, circuit="closed")

    def session(self, listener: Any, principal_source: Any, host: Any = None) -> UpstreamSession:
        self.sessions.append(Session(self.fault))
        return cast("UpstreamSession", self.sessions[-1])

    async def close(self) -> None:
        self.told.append("close")


def session_of(upstream: Upstream) -> UpstreamSession:
    return upstream.session(NOBODY, lambda: SPEAKER)


async def test_it_is_left_once_every_session_was_closed() -> None:
    upstream = CountedUpstream(Server())
    async with bounded():
        await upstream.left()
    sessions = [session_of(upstream) for _ in range(2)]
    left = asyncio.ensure_future(upstream.left())
    await sessions[0].close()
    await sessions[0].close()
    await asyncio.sleep(0)
    assert not left.done(), "a second end of one session is no end of the other"
    await sessions[1].close()
    async with bounded():
        await left


async def test_a_session_whose_end_fails_has_ended() -> None:
    upstream = CountedUpstream(Server(fault=OSError("no")))
    session = session_of(upstream)
    with pytest.raises(OSError, match="no"):
        await session.close()
    async with bounded():
        await upstream.left()


def test_who_comes_too_late_gets_a_session_of_the_one_in_its_place() -> None:
    first, second, third = Server(), Server(), Server()
    before, between, now = (CountedUpstream(server) for server in (first, second, third))
    before.yield_to(lambda: between)
    between.yield_to(lambda: now)
    session_of(before)
    assert (len(first.sessions), len(second.sessions), len(third.sessions)) == (0, 0, 1)


def test_without_one_in_its_place_it_gives_its_own() -> None:
    server = Server()
    upstream = CountedUpstream(server)
    upstream.yield_to(lambda: None)
    session_of(upstream)
    assert len(server.sessions) == 1


async def test_an_end_that_has_begun_goes_on_though_nobody_waits_and_is_made_once() -> None:
    """Else what was half let go would be let go by nobody."""

    class Slow(Server):
        ends = asyncio.Event()

        async def close(self) -> None:
            await self.ends.wait()
            await super().close()

    server = Slow()
    upstream = CountedUpstream(server)
    first = asyncio.create_task(upstream.close())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(upstream.close())
    server.ends.set()
    async with bounded():
        await second
    assert server.told == ["close"]


async def test_everything_else_is_handed_on_as_it_came() -> None:
    server = Server()
    upstream = CountedUpstream(server)
    upstream.open()
    await upstream.close()
    assert (upstream.name, upstream.vitals(), server.told) == ("reports", Vitals(True, "closed"), ["open", "close"])
    session = cast("Any", session_of(upstream))
    more = {"listener": NOBODY, "principal": SPEAKER, "log_level": "info", "repeated": {"a": "b"}}
    round_ = object()
    assert session.era is Era.MODERN
    assert session.open() == "open"
    assert session.welcome() == "welcome"
    assert await session.relay("ping", None, tool="t", **more) == "relay"
    assert await session.run("t", "{}", within=timedelta(1), resumes=round_, **more) == "run"
    assert session.outcome("response") == "outcome"
    assert session.tools() == "tools"
    assert session.listed("t") == "listed"
    session.tell("note")
    assert server.sessions[0].asked == [
        ("open", {}),
        ("welcome", {}),
        ("relay", "ping", None, {"tool": "t", **more}),
        ("run", "t", "{}", {"within": timedelta(1), "resumes": round_, **more}),
        ("outcome", "response", {}),
        ("tools", {}),
        ("listed", "t", {}),
        ("tell", "note", {}),
    ]


# --- what is under way ----------------------------------------------------------------------------------------------


class Pending(Server):
    """Its sessions answer when `answers` is set, with the fault that they have."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__(fault)
        self.answers = asyncio.Event()

    def session(self, listener: Any, principal_source: Any, host: Any = None) -> UpstreamSession:
        server = self

        class Slow(Session):
            async def relay(self, *arguments: Any, **more: Any) -> Any:
                await server.answers.wait()
                if self.fault is not None:
                    raise self.fault

            run = relay

        return cast("UpstreamSession", Slow(self.fault))


def asked(session: UpstreamSession) -> list[asyncio.Task[Any]]:
    """A request and a call, which have begun."""
    session_, more = cast("Any", session), {"listener": NOBODY}
    loop = asyncio.get_running_loop()
    return [
        loop.create_task(session_.relay("ping", None, **more)),
        loop.create_task(session_.run("t", "{}", within=timedelta(1), **more)),
    ]


@pytest.mark.parametrize("ends", ["answer", "fault", "cancel"])
async def test_a_request_is_under_way_from_its_beginning_to_whatever_end(ends: str) -> None:
    requests, server = RequestCounter(), Pending(OSError("no") if ends == "fault" else None)
    session = session_of(CountedUpstream(server, requests))
    assert requests.read() == {}
    under_way = asked(session)
    await asyncio.sleep(0)
    assert requests.read() == {("reports",): 2}
    if ends == "cancel":
        for task in under_way:
            task.cancel()
    server.answers.set()
    async with bounded():
        await asyncio.wait(under_way)
    assert {type(task.exception()) for task in under_way if not task.cancelled()} == {
        "answer": {type(None)}, "fault": {OSError}, "cancel": set()
    }[ends]  # fmt: skip
    assert requests.read() == {("reports",): 0}


async def test_what_was_replaced_counts_with_what_took_its_place() -> None:
    requests, first, second = RequestCounter(), Pending(), Pending()
    under_way = [task for server in (first, second) for task in asked(session_of(CountedUpstream(server, requests)))]
    await asyncio.sleep(0)
    assert requests.read() == {("reports",): 4}
    first.answers.set()
    second.answers.set()
    async with bounded():
        await asyncio.wait(under_way)
    assert requests.read() == {("reports",): 0}


async def test_a_request_that_never_began_is_not_under_way() -> None:
    requests = RequestCounter()
    session = session_of(CountedUpstream(Pending(), requests))
    cast("Any", session).relay("ping", None, listener=NOBODY).close()
    assert requests.read() == {}
