"""Lines: who shares one, how long one is kept, and what is heard over it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from unittest.mock import Mock

import pytest

from helpers.manual_clock import ManualClock
from helpers.recording_upstream import RecordingSession, RecordingUpstream
from helpers.waiting import bounded, eventually
from taskgate.admission.mounts import Mount
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import InvalidParams
from taskgate.gateway.extensions import DeniedExtensions
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import MAX_CAPABILITIES, Notification
from taskgate.sessions.session_pool import MAX_IDLE, MOST_KEPT, SessionPool, SharedSession
from taskgate.upstream.base import Upstream
from unit.admission.test_callers import MOUNT
from unit.auth.identities import identity
from unit.lifecycle.recorded_events import RecordedEvents

IDLE = timedelta(minutes=10)
CHANGED = cast(Notification, parse(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', max_depth=8))


def mount(server: RecordingUpstream, name: str = "reports") -> Mount:
    return replace(MOUNT, name=name, upstream=cast(Upstream, server))


def peer(name: str = "host", **capabilities: Any) -> Peer:
    return Peer(revision=Revision.R2026_07_28, capabilities=capabilities, info={"name": name})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lines(clock: ManualClock) -> SessionPool:
    return SessionPool(clock=clock, idle=IDLE, report_host=DeniedExtensions(RecordedEvents()).of_host)


@pytest.fixture
def may_close() -> asyncio.Event:
    """What the closes of sessions wait for."""
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
def server(may_close: asyncio.Event) -> RecordingUpstream:
    def make_session(*of: Any) -> RecordingSession:
        session = RecordingSession(*of)
        session.may_close = may_close
        return session

    return RecordingUpstream(make_session)


@pytest.fixture
def at(server: RecordingUpstream) -> Mount:
    return mount(server)


async def closed(server: RecordingUpstream) -> list[int]:
    """Which of the sessions are closed, once whatever began to has."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [number for number, session in enumerate(server.sessions) if session.closes]


# --- who shares one ------------------------------------------------------------------------------------------------


ALICE, BOB = AuthContext(key="alice"), AuthContext(key="bob")


def test_requests_that_declare_the_same_share_a_line_however_they_write_it(lines: SessionPool, at: Mount) -> None:
    first = lines.take(at, ALICE, peer(sampling={}, elicitation={"url": {}, "form": {}}))
    assert lines.take(at, ALICE, peer("other", elicitation={"form": {}, "url": {}}, sampling={})) is first


def test_no_host_is_taken_for_one_that_is_gone(lines: SessionPool, at: Mount) -> None:
    found: dict[int, SharedSession] = {}
    for number in range(3 * MOST_KEPT):
        host = peer(sampling={"n": number % 3})
        assert lines.take(at, ALICE, host) is found.setdefault(number % 3, lines.take(at, ALICE, host))
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    ("caller", "declared"),
    [
        pytest.param(BOB, {"sampling": {}}, id="caller"),
        pytest.param(ALICE, {}, id="less"),
        pytest.param(ALICE, {"sampling": {"tools": {}}}, id="more"),
        pytest.param(ALICE, {"elicitation": {}}, id="other"),
    ],
)
def test_nobody_else_shares_it(lines: SessionPool, at: Mount, caller: AuthContext, declared: dict[str, Any]) -> None:
    # I-ISO-1, V-META-4.
    assert lines.take(at, caller, peer(**declared)) is not lines.take(at, ALICE, peer(sampling={}))


def test_without_authentication_what_hosts_declare_tells_them_apart(lines: SessionPool, at: Mount) -> None:
    asks, mute = lines.take(at, ANONYMOUS, peer(elicitation={})), lines.take(at, ANONYMOUS, peer())
    assert asks is not mute
    assert lines.take(at, ANONYMOUS, peer()) is mute


def test_capabilities_out_of_all_proportion_are_refused(
    lines: SessionPool, at: Mount, server: RecordingUpstream
) -> None:
    most = {"a": "x" * (MAX_CAPABILITIES - len('{"a":""}'))}
    lines.take(at, ALICE, peer(**most))
    with pytest.raises(InvalidParams):
        lines.take(at, ALICE, peer(a=most["a"] + "x"))
    assert len(server.sessions) == 1


def test_each_mount_has_lines_of_its_own(lines: SessionPool, at: Mount) -> None:
    # I-ISO-6.
    other = mount(RecordingUpstream(), "other")
    first, second = lines.take(at, ALICE, peer()), lines.take(other, ALICE, peer())
    assert first is not second
    assert (first.owner, second.owner) == (ALICE.owner("reports"), ALICE.owner("other"))


def test_a_server_is_told_what_the_host_declared_and_not_who_it_is(
    lines: SessionPool, at: Mount, server: RecordingUpstream
) -> None:
    # V-META-4: the next request over the line may be of another host.
    line = lines.take(at, ALICE, peer("mine", roots={}))
    assert line.peer == Peer(revision=Revision.R2026_07_28, capabilities={"roots": {}}, info={})
    assert [session.host for session in server.sessions] == [line.peer]


def test_a_line_speaks_with_the_newest_token_of_its_caller(
    lines: SessionPool, at: Mount, server: RecordingUpstream
) -> None:
    lines.take(at, replace(ALICE, identity=identity(), token="old"), peer())
    lines.take(at, replace(ALICE, identity=identity(), token="new"), peer())
    assert [session.principal_source().token for session in server.sessions] == ["new"]


# --- how long it is kept -------------------------------------------------------------------------------------------


async def test_a_line_is_let_go_when_nothing_went_over_it_for_long(
    lines: SessionPool, at: Mount, server: RecordingUpstream, clock: ManualClock
) -> None:
    with lines.take(at, ALICE, peer()) as first:
        clock.advance(IDLE)
    clock.advance(IDLE - timedelta(seconds=1))
    lines.sweep()
    assert lines.take(at, ALICE, peer()) is first
    clock.advance(timedelta(seconds=1))
    lines.sweep()
    assert await closed(server) == [0]
    assert lines.take(at, ALICE, peer()) is not first


@pytest.mark.parametrize(
    ("begin", "end"),
    [(SharedSession.__enter__, lambda line: line.__exit__()), (SharedSession.acquire, SharedSession.release)],
    ids=["use", "hold"],
)
async def test_a_line_in_use_is_kept_and_its_idleness_begins_with_the_end_of_that(
    lines: SessionPool,
    at: Mount,
    server: RecordingUpstream,
    clock: ManualClock,
    begin: Callable[[SharedSession], Any],
    end: Callable[[SharedSession], None],
) -> None:
    line = lines.take(at, ALICE, peer())
    begin(line)
    clock.advance(2 * IDLE)
    lines.sweep()
    assert line.busy
    end(line)
    assert not line.busy
    clock.advance(IDLE / 2)
    lines.sweep()
    assert await closed(server) == []
    clock.advance(IDLE / 2)
    lines.sweep()
    assert await closed(server) == [0]


async def test_of_too_many_idle_lines_of_a_caller_the_one_goes_that_was_not_asked_for_the_longest(
    lines: SessionPool, at: Mount, server: RecordingUpstream
) -> None:
    kept = lines.take(at, BOB, peer())
    for number in range(MAX_IDLE):
        lines.take(at, ALICE, peer(roots={"n": number}))
    lines.take(at, ALICE, peer(roots={"n": 0}))
    assert await closed(server) == []
    lines.take(at, ALICE, peer(roots={"n": MAX_IDLE}))
    assert await closed(server) == [2]
    assert lines.take(at, BOB, peer()) is kept
    assert lines.take(at, ALICE, peer(roots={"n": 0})).upstream is cast(Any, server.sessions[1])


async def test_no_line_in_use_goes_for_another(lines: SessionPool, at: Mount, server: RecordingUpstream) -> None:
    for number in range(2 * MAX_IDLE):
        lines.take(at, ALICE, peer(roots={"n": number})).acquire()
    assert await closed(server) == []


async def test_what_was_in_use_counts_among_the_idle_afterwards(
    lines: SessionPool, at: Mount, server: RecordingUpstream
) -> None:
    used = [lines.take(at, ALICE, peer(roots={"n": number})) for number in range(MAX_IDLE)]
    for line in used:
        line.acquire()
    lines.take(at, ALICE, peer(sampling={}))
    for line in used:
        line.release()
    lines.take(at, ALICE, peer(elicitation={}))
    assert await closed(server) == [0, 1]


async def test_at_the_end_every_line_is_closed_whatever_goes_over_it(
    lines: SessionPool, at: Mount, server: RecordingUpstream, may_close: asyncio.Event
) -> None:
    may_close.clear()
    for caller in (ALICE, BOB):
        lines.take(at, caller, peer()).acquire()
    closing = asyncio.create_task(lines.close())
    await closed(server)
    assert not closing.done()
    may_close.set()
    async with bounded():
        await closing
    assert [session.closes for session in server.sessions] == [1, 1]


async def test_a_line_that_was_let_go_is_waited_for_at_the_end(
    lines: SessionPool, at: Mount, server: RecordingUpstream, may_close: asyncio.Event, clock: ManualClock
) -> None:
    may_close.clear()
    lines.take(at, ALICE, peer())
    clock.advance(IDLE)
    lines.sweep()
    closing = asyncio.create_task(lines.close())
    await closed(server)
    assert not closing.done()
    may_close.set()
    await eventually(closing.done)
    assert [session.closes for session in server.sessions] == [1]


# --- what is heard over it -----------------------------------------------------------------------------------------


def test_whoever_listens_hears_what_the_server_says_of_no_call(lines: SessionPool, at: Mount) -> None:
    line = lines.take(at, ALICE, peer())
    heard: list[tuple[str, Notification]] = []
    ears = [lambda note, name=name: heard.append((name, note)) for name in "ab"]
    line.on_notification(CHANGED)
    for ear in ears:
        line.subscribe(ear)
    line.on_notification(CHANGED)
    line.unsubscribe(ears[0])
    line.on_notification(CHANGED)
    assert heard == [("a", CHANGED), ("b", CHANGED), ("b", CHANGED)]


def test_whoever_stops_to_listen_while_something_is_told_keeps_it_from_nobody(lines: SessionPool, at: Mount) -> None:
    line = lines.take(at, ALICE, peer())
    heard: list[Notification] = []

    def once(_: Notification) -> None:
        line.unsubscribe(once)

    line.subscribe(once)
    line.subscribe(heard.append)
    line.on_notification(CHANGED)
    assert heard == [CHANGED]


def test_a_question_that_belongs_to_no_call_is_refused(lines: SessionPool, at: Mount) -> None:
    # H-MOD-8: nobody of this era can be asked but in the answer to a request.
    lines.take(at, ALICE, peer()).asked(question := Mock(spec=["refuse"]))
    question.refuse.assert_called_once_with()


def test_no_server_is_held_up_for_what_belongs_to_no_call(lines: SessionPool, at: Mount) -> None:
    line = lines.take(at, ALICE, peer())
    assert (line.clog(), line.passes_rounds) == (None, False)
