"""An upstream counts its open sessions and requests, and redirects new sessions to its successor."""

import asyncio
from typing import Any, cast

import pytest

from helpers.counted_sessions import counted
from helpers.waiting import bounded
from taskgate.domain.versions import Era
from taskgate.lifecycle.task_listener import NOBODY
from taskgate.sessions.upstream_usage import CountedUpstream
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.session import RequestCounter, SessionUsage

PRINCIPAL = Principal(context="c")


class Session:
    """Records its calls; `fault` is what `close` raises."""

    era = Era.MODERN

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.fault = fault

    async def call(self, call: UpstreamCall, listener: Any) -> Any:
        self.asked.append(("call", call, listener))
        return "called"

    async def open(self) -> Any:
        return "opened"

    async def tools(self) -> Any:
        return "tools"

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
    """Makes sessions, and records that it was opened and closed."""

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
        return self.counted_session(SessionUsage(self.name), listener, principal_source, host)

    def counted_session(
        self, usage: SessionUsage, listener: Any, principal_source: Any, host: Any = None
    ) -> UpstreamSession:
        self.sessions.append(self.new_session())
        return counted(self.sessions[-1], usage)

    def new_session(self) -> Session:
        return Session(self.fault)

    async def close(self) -> None:
        self.told.append("close")


def session_of(upstream: Upstream) -> UpstreamSession:
    return upstream.session(NOBODY, lambda: PRINCIPAL)


async def test_an_upstream_is_idle_when_every_session_is_closed() -> None:
    upstream = CountedUpstream(Server())
    async with bounded():
        await upstream.wait_idle()
    sessions = [session_of(upstream) for _ in range(2)]
    idle = asyncio.ensure_future(upstream.wait_idle())
    await sessions[0].close()
    await sessions[0].close()
    await asyncio.sleep(0)
    assert not idle.done(), "one session closed twice counts once"
    await sessions[1].close()
    async with bounded():
        await idle


async def test_a_session_whose_close_fails_counts_as_closed() -> None:
    upstream = CountedUpstream(Server(fault=OSError("no")))
    session = session_of(upstream)
    with pytest.raises(OSError, match="no"):
        await session.close()
    async with bounded():
        await upstream.wait_idle()


def test_new_sessions_are_redirected_to_the_last_successor() -> None:
    first, second, third = Server(), Server(), Server()
    before, between, now = (CountedUpstream(server) for server in (first, second, third))
    before.redirect_to(lambda: between)
    between.redirect_to(lambda: now)
    session_of(before)
    assert (len(first.sessions), len(second.sessions), len(third.sessions)) == (0, 0, 1)


def test_without_a_present_successor_a_session_is_its_own() -> None:
    server = Server()
    upstream = CountedUpstream(server)
    upstream.redirect_to(lambda: None)
    session_of(upstream)
    assert len(server.sessions) == 1


async def test_a_close_runs_once_and_goes_on_when_its_caller_is_cancelled() -> None:
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


async def test_everything_is_asked_of_the_session_of_the_era_unchanged() -> None:
    server = Server()
    upstream = CountedUpstream(server)
    upstream.open()
    await upstream.close()
    assert (upstream.name, upstream.vitals(), server.told) == ("reports", Vitals(True, "closed"), ["open", "close"])
    session = cast("Any", session_of(upstream))
    call = UpstreamCall("ping")
    assert session.era is Era.MODERN
    assert await session.open() == "opened"
    assert await session.call(call, NOBODY) == "called"
    assert session.outcome("response") == "outcome"
    assert await session.tools() == "tools"
    assert session.listed("t") == "listed"
    session.tell("note")
    assert server.sessions[0].asked == [
        ("call", call, NOBODY),
        ("outcome", "response", {}),
        ("listed", "t", {}),
        ("tell", "note", {}),
    ]


# --- requests in flight -----------------------------------------------------------------------------------------------


class Pending(Server):
    """Its calls end when `answers` is set, with the fault if there is one."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__(fault)
        self.answers = asyncio.Event()

    def new_session(self) -> Session:
        server = self

        class Slow(Session):
            async def call(self, call: UpstreamCall, listener: Any) -> Any:
                await server.answers.wait()
                if self.fault is not None:
                    raise self.fault

        return Slow(self.fault)


def calls(session: UpstreamSession) -> list[asyncio.Task[Any]]:
    """A request and a task's call, both started."""
    running = UpstreamCall("ping"), UpstreamCall("tools/call", tool="t", as_task=True)
    return [asyncio.create_task(cast("Any", session).call(call, NOBODY)) for call in running]


@pytest.mark.parametrize("ends", ["answer", "fault", "cancel"])
async def test_a_request_counts_until_it_is_answered_fails_or_is_cancelled(ends: str) -> None:
    requests, server = RequestCounter(), Pending(OSError("no") if ends == "fault" else None)
    session = session_of(CountedUpstream(server, requests))
    assert requests.read() == {}
    running = calls(session)
    await asyncio.sleep(0)
    assert requests.read() == {("reports",): 2}
    if ends == "cancel":
        for task in running:
            task.cancel()
    server.answers.set()
    async with bounded():
        await asyncio.wait(running)
    assert {type(task.exception()) for task in running if not task.cancelled()} == {
        "answer": {type(None)}, "fault": {OSError}, "cancel": set()
    }[ends]  # fmt: skip
    assert requests.read() == {("reports",): 0}


async def test_a_replaced_server_counts_together_with_its_successor() -> None:
    requests, first, second = RequestCounter(), Pending(), Pending()
    running = [task for server in (first, second) for task in calls(session_of(CountedUpstream(server, requests)))]
    await asyncio.sleep(0)
    assert requests.read() == {("reports",): 4}
    first.answers.set()
    second.answers.set()
    async with bounded():
        await asyncio.wait(running)
    assert requests.read() == {("reports",): 0}


async def test_a_request_that_did_not_start_is_not_counted() -> None:
    requests = RequestCounter()
    session = session_of(CountedUpstream(Pending(), requests))
    cast("Any", session).call(UpstreamCall("ping", None), NOBODY).close()
    assert requests.read() == {}
