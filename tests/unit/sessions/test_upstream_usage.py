"""An upstream counts its open sessions and requests, and redirects new sessions to its successor."""

import asyncio
from typing import Any, cast

import pytest

from helpers.recording_upstream import RecordingSession, RecordingUpstream, response
from helpers.waiting import bounded
from taskgate.domain.versions import Era
from taskgate.lifecycle.task_listener import NOBODY
from taskgate.sessions.upstream_usage import CountedUpstream
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.session import RequestCounter

PRINCIPAL = Principal(context="c")


def session_of(upstream: Upstream) -> UpstreamSession:
    return upstream.session(NOBODY, lambda: PRINCIPAL)


async def test_an_upstream_is_idle_when_every_session_is_closed() -> None:
    upstream = CountedUpstream(RecordingUpstream())
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
    server = RecordingUpstream()
    upstream = CountedUpstream(server)
    session = session_of(upstream)
    server.sessions[0].fault = OSError("no")
    with pytest.raises(OSError, match="no"):
        await session.close()
    async with bounded():
        await upstream.wait_idle()


def test_new_sessions_are_redirected_to_the_last_successor() -> None:
    first, second, third = RecordingUpstream(), RecordingUpstream(), RecordingUpstream()
    before, between, now = (CountedUpstream(server) for server in (first, second, third))
    before.redirect_to(lambda: between)
    between.redirect_to(lambda: now)
    session_of(before)
    assert (len(first.sessions), len(second.sessions), len(third.sessions)) == (0, 0, 1)


def test_without_a_present_successor_a_session_is_its_own() -> None:
    server = RecordingUpstream()
    upstream = CountedUpstream(server)
    upstream.redirect_to(lambda: None)
    session_of(upstream)
    assert len(server.sessions) == 1


async def test_a_close_runs_once_and_goes_on_when_its_caller_is_cancelled() -> None:
    class Slow(RecordingUpstream):
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
    assert server.asked == ["close"]


async def test_everything_is_asked_of_the_session_of_the_era_unchanged() -> None:
    server = RecordingUpstream()
    upstream = CountedUpstream(server)
    upstream.open()
    await upstream.close()
    assert (upstream.name, upstream.vitals(), server.asked) == ("reports", Vitals(True, "closed"), ["open", "close"])
    session = cast("Any", session_of(upstream))
    call = UpstreamCall("ping")
    assert session.era is Era.MODERN
    assert await session.open() == "opened"
    assert await session.call(call, NOBODY) == response()
    assert session.outcome("response") == "outcome"
    assert await session.tools() == {"add": "add"}
    assert session.listed("add") == "add"
    session.tell("note")
    assert server.sessions[0].asked == [
        ("call", call, NOBODY),
        ("outcome", "response"),
        ("tell", "note"),
    ]


# --- requests in flight -----------------------------------------------------------------------------------------------


class Pending(RecordingUpstream):
    """Its calls end when `answers` is set, with the fault if there is one."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__(self._make_session)
        self.answers, self._fault = asyncio.Event(), fault

    def _make_session(self, *of: Any) -> RecordingSession:
        session = RecordingSession(*of)
        session.answer = self._answer
        return session

    async def _answer(self) -> None:
        await self.answers.wait()
        if self._fault is not None:
            raise self._fault


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
