"""Requests of carried extensions: which cross to a server, and how long one is held that lasts."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import Bulkhead, OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.versions import Era
from taskgate.errors import TooManyTasks, UnknownMethod, UpstreamFailed, UpstreamReason
from taskgate.gateway.extensions import ExtensionRequests
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.upstream.base import Upstream
from unit.admission.live_rules import live
from unit.auth.identities import identity
from unit.lifecycle.recorded_events import RecordedEvents

L, M = Era.LEGACY, Era.MODERN
ANN = AuthContext(key="ann")
BRIDGED = Extension(methods=frozenset({"bridged/do"}), eras=frozenset(Era))
POLICY = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS], "com.example/bridged": BRIDGED})


def mount(name: str = "reports") -> Mount:
    return Mount(
        name=name,
        path=f"/{name}/mcp",
        upstream=cast("Upstream", None),
        offers_tasks=False,
        resource="https://mcp.example.com/reports/mcp",
        bulkhead=cast("Bulkhead", None),
        extensions=POLICY,
    )


def done() -> Response:
    found = parse(b'{"jsonrpc":"2.0","id":1,"result":{}}', max_depth=9)
    assert isinstance(found, Response)
    return found


class Work:
    """The work of a request, and how it went; it goes on until `over`, and then raises `error` or has a response."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.over = asyncio.Event()
        self.error = error
        self.began = self.was_cancelled = False

    async def do(self) -> Response:
        self.began = True
        try:
            await self.over.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return done()


class World:
    """Requests that are held, with as many streams as there may be."""

    def __init__(self, streams: int = 1) -> None:
        self.clock, self.emitted = ManualClock(), RecordedEvents()
        self.requests = ExtensionRequests(
            streams=OpenStreams(live=live(streams=streams), event_sink=self.emitted), clock=self.clock
        )

    def hold(
        self,
        work: Coroutine[Any, Any, Response],
        method: str = "events/stream",
        *,
        caller: AuthContext = ANN,
        at: str = "reports",
    ) -> Coroutine[Any, Any, Response | None]:
        extension = POLICY.by_method.get(method)
        assert extension is not None
        return self.requests.hold(caller, mount(at), method, extension, work)

    def until(self, seconds: float) -> AuthContext:
        """Somebody whose token ends in so many seconds."""
        return AuthContext(
            key="ann", identity=replace(identity(), expires_at=self.clock.wall() + timedelta(seconds=seconds))
        )


@pytest.fixture
def world() -> World:
    return World()


# --- which cross ---


@pytest.mark.parametrize(
    ("method", "pairs"),
    [("bridged/do", {(L, L), (L, M), (M, L), (M, M)}), ("events/list", {(L, L), (M, M)}), ("skills/list", set())],
)
def test_a_request_is_refused_where_its_extension_does_not_cross(
    world: World, method: str, pairs: set[tuple[Era, Era]]
) -> None:
    # X-EXT-7, X-EXT-20.
    for host in Era:
        for server in Era:
            if (host, server) in pairs:
                assert world.requests.extension_of(mount(), method, host, server) is POLICY.by_method.get(method)
            else:
                with pytest.raises(UnknownMethod, match=r"^The extension method is not available on this server$"):
                    world.requests.extension_of(mount(), method, host, server)


# --- how long ---


@pytest.mark.parametrize("method", ["events/stream", "events/list"])
async def test_what_the_server_answers_is_the_answer(world: World, method: str) -> None:
    work = Work()
    work.over.set()
    async with bounded():
        found = await world.hold(work.do(), method)
    assert found is not None
    assert found.id == 1


@pytest.mark.parametrize("method", ["events/stream", "events/list"])
@pytest.mark.parametrize(
    "error", [UpstreamFailed(UpstreamReason.TIMEOUT, "late", dispatched=True), TimeoutError("of the work itself")]
)
async def test_what_the_work_raises_is_raised(world: World, method: str, error: Exception) -> None:
    work = Work(error)
    work.over.set()
    async with bounded():
        with pytest.raises(type(error)) as raised:
            await world.hold(work.do(), method)
    assert raised.value is error


@pytest.mark.parametrize("left", [0.0, -60.0, 0.01])
async def test_a_request_that_lasts_ends_with_the_token_and_has_no_answer(world: World, left: float) -> None:
    # X-EXT-43.
    work = Work()
    async with bounded():
        assert await world.hold(work.do(), caller=world.until(left)) is None
    assert work.was_cancelled is work.began
    async with bounded():
        assert await world.hold(Work().do(), caller=world.until(left)) is None


async def test_any_other_request_is_not_bounded_by_the_token(world: World) -> None:
    work = Work()
    held = asyncio.create_task(world.hold(work.do(), "events/list", caller=world.until(0)))
    await eventually(lambda: work.began)
    work.over.set()
    async with bounded():
        assert await held is not None


async def test_a_request_of_a_token_without_an_end_lasts(world: World) -> None:
    work = Work()
    held = asyncio.create_task(world.hold(work.do()))
    await eventually(lambda: work.began)
    work.over.set()
    async with bounded():
        assert await held is not None


async def test_a_host_that_leaves_is_no_end_of_a_token(world: World) -> None:
    work = Work()
    held = asyncio.create_task(world.hold(work.do(), caller=world.until(3600)))
    await eventually(lambda: work.began)
    held.cancel()
    async with bounded():
        with pytest.raises(asyncio.CancelledError):
            await held
    assert work.was_cancelled


# --- how many ---


async def test_more_requests_that_last_than_there_may_be_are_refused_and_their_work_is_never_begun(
    world: World,
) -> None:
    # X-EXT-32.
    first, second, elsewhere = Work(), Work(), Work()
    held = asyncio.create_task(world.hold(first.do()))
    await eventually(lambda: first.began)
    async with bounded():
        with pytest.raises(TooManyTasks, match=r"^Too many streams of this caller \(1 of 1\): "):
            await world.hold(second.do())
    assert not second.began
    other = asyncio.create_task(world.hold(elsewhere.do(), at="orders"))
    await eventually(lambda: elsewhere.began)
    for work in (first, elsewhere):
        work.over.set()
    async with bounded():
        await asyncio.gather(held, other)
        second.over.set()
        assert await world.hold(second.do()) is not None


async def test_requests_that_do_not_last_are_as_many_as_they_like(world: World) -> None:
    works = [Work() for _ in range(3)]
    held = [asyncio.create_task(world.hold(work.do(), "events/list")) for work in works]
    await eventually(lambda: all(work.began for work in works))
    for work in works:
        work.over.set()
    async with bounded():
        assert all(await asyncio.gather(*held))
