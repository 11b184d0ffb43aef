"""How long calls may take: the bounds of tools, and how progress begins the time anew."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.server import Hold, ScriptedServer, Turn, event, open_stream, progress_note
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.system.timer_wheel import Timed
from taskgate.upstream.calls import CallBounds, RunningCall, briefly
from taskgate.upstream.context import Patience
from taskgate.upstream.settings import ToolTimeouts
from unit.upstream.conftest import Caller, settings_for


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass
class Bells:
    """Alarms that ring when the test says so."""

    asked: list[float] = field(default_factory=list)
    rings: list[Callable[[], object]] = field(default_factory=list)
    cancelled: int = 0
    known_loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def start(self, timed: Timed, span: float, now: float) -> None:
        self.asked.append(span)
        self.rings.append(timed.on_alarm)

    def stop(self, timed: Timed) -> None:
        self.cancelled += 1


def test_a_tool_has_the_bounds_of_the_first_rule_that_names_it() -> None:
    rules = (
        ToolTimeouts(tool="export_*", call=seconds(100), ceiling=seconds(200), idle=seconds(3)),
        ToolTimeouts(tool="exp*", call=seconds(1), ceiling=seconds(2), idle=None),
    )
    patience = Patience(settings_for("http://a/", call=seconds(10), ceiling=seconds(20), tools=rules))
    assert patience.of("export_all") == CallBounds(100, 200, seconds(3))
    assert patience.of("explain") == CallBounds(1, 2, None)
    assert patience.of("Export_all") == patience.of("") == patience.of(None) == CallBounds(10, 20, None)


def test_a_request_that_lasts_has_no_bounds_and_any_other_has_the_usual_ones() -> None:
    # X-EXT-32.
    rules = (ToolTimeouts(tool="*", call=seconds(1), ceiling=seconds(2), idle=None),)
    events = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS]})
    settings = settings_for("http://a/", call=seconds(10), ceiling=seconds(20), idle=seconds(3), tools=rules)
    patience = Patience(replace(settings, extensions=events))
    endless = patience.of(None, "events/stream")
    assert min(endless.call, endless.ceiling) >= timedelta(days=3650).total_seconds()
    assert endless.idle is None
    usual = CallBounds(10, 20, seconds(3))
    assert patience.of(None, "events/list") == patience.of(None, "tools/list") == patience.of() == usual
    assert Patience(settings).of(None, "events/stream") == usual


def test_a_tool_is_no_request_that_lasts_whatever_it_is_called() -> None:
    thing = Extension(methods=frozenset({"thing/do"}), streams=frozenset({"thing/do"}))
    settings = settings_for("http://a/", call=seconds(10), ceiling=seconds(20))
    settings = replace(settings, extensions=ExtensionPolicy(allowed={"com.example/thing": thing}))
    assert Patience(settings).of("thing/do") == CallBounds(10, 20, None)


@pytest.mark.parametrize(
    ("bounds", "span", "found"),
    [
        (CallBounds(10, 20), 30, CallBounds(10, 20)),
        (CallBounds(10, 20), 15, CallBounds(10, 15)),
        (CallBounds(10, 20, seconds(1)), 5, CallBounds(5, 5, seconds(1))),
    ],
)
def test_a_span_of_the_callers_bounds_a_call_whatever_happens(
    bounds: CallBounds, span: float, found: CallBounds
) -> None:
    assert bounds.within(seconds(span)) == found


def test_what_is_asked_briefly_ends_whatever_happens() -> None:
    assert briefly(seconds(2)) == CallBounds(2, 2)
    assert CallBounds(10, 5).first == 5
    assert CallBounds(5, 10).first == 5


class WatchedCall(RunningCall):
    """A call that only notes that its time is over."""

    is_over = False

    def cancel(self) -> None:
        self.is_over = True


class Watched:
    """A call under a clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bounds: CallBounds, spent: float = 0) -> None:
        self.now = 1000.0
        self.bells = Bells()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)
        self.call = WatchedCall(1, None, bounds, spent=spent)
        self.call.begin(self.bells)  # type: ignore[arg-type]

    @property
    def is_over(self) -> bool:
        return self.call.is_over

    def time(self) -> float:
        return self.now

    def ring_after(self, span: float) -> None:
        self.now += span
        self.bells.rings[-1]()


def test_a_call_without_progress_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, CallBounds(10, 100))
    assert watched.bells.asked == [10]
    watched.ring_after(10)
    assert watched.is_over


@covers("V-INIT-9")
def test_progress_begins_the_time_anew_up_to_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, CallBounds(10, 25))
    watched.now += 8
    watched.call.progressed()
    watched.ring_after(2)
    assert (watched.is_over, watched.bells.asked) == (False, [10, 8])
    watched.now += 7
    watched.call.progressed()
    watched.ring_after(1)
    assert (watched.is_over, watched.bells.asked) == (False, [10, 8, 7])
    watched.call.progressed()
    watched.ring_after(7)
    assert watched.is_over


def test_silence_after_progress_ends_a_call_too(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, CallBounds(10, 100))
    watched.now += 4
    watched.call.progressed()
    watched.ring_after(6)
    watched.ring_after(4)
    assert (watched.is_over, watched.bells.asked) == (True, [10, 4])


def test_what_was_spent_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, CallBounds(10, 15), spent=3)
    watched.now += 5
    watched.call.progressed()
    watched.ring_after(2)
    assert (watched.is_over, watched.bells.asked) == (False, [7, 5])


async def test_a_call_that_is_over_has_no_time() -> None:
    bells, call = Bells(), RunningCall(1, None, CallBounds(10, 100))
    call.begin(bells)  # type: ignore[arg-type]
    for ends in range(2):
        with call:
            assert bells.cancelled == ends
    assert bells.cancelled == 1


# --- over the wire


@covers("V-INIT-9")
@pytest.mark.parametrize("place", ["call", "get"])
async def test_progress_on_either_stream_begins_the_time_of_its_call_anew(
    server: ScriptedServer, caller: Caller, place: str
) -> None:
    """A call has twenty seconds."""

    async def works(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        await asyncio.sleep(15)
        told = progress_note(turn.token, 1)
        if place == "call":
            await response.write(event(told))
        else:
            await server.push(told)
        await asyncio.sleep(15)
        await response.write(event(turn.answer({"content": []})))
        await response.write_eof()
        return response

    server.script["works"] = works
    await caller.session.open()
    await server.streaming()
    assert (await caller.run("works")).tool_error is False


async def test_the_time_that_a_session_took_to_open_is_the_calls(server: ScriptedServer, caller: Caller) -> None:
    async def later(turn: Turn) -> Any:
        await asyncio.sleep(15)
        return await server.usual(turn)

    server.methods["initialize"] = server.methods["tools/call"] = later
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call()
    assert failed.value.reason == "timeout"
    # In a session that is open already it has its time for itself.
    assert (await caller.call()).error is None


async def test_progress_of_another_call_does_not_help(server: ScriptedServer, caller: Caller) -> None:
    server.script["slow"] = slow = Hold()
    server.script["quick"] = quick = Hold()
    await caller.session.open()
    await server.streaming()
    slowly = asyncio.create_task(caller.run("slow"))
    async with bounded():
        await slow.begun.wait()
    quickly = asyncio.create_task(caller.run("quick"))
    async with bounded():
        await quick.begun.wait()
    await asyncio.sleep(15)
    await server.push(progress_note(quick.turns[0].token, 1))
    async with bounded(10):
        with pytest.raises(UpstreamFailed) as failed:
            await slowly
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
    quick.release({"content": []})
    await quickly
    await eventually(lambda: server.cancelled == [slow.turns[0].id])


async def test_a_tool_with_bounds_of_its_own_is_held_to_them(
    server: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    rule = ToolTimeouts(tool="slow*", call=seconds(0.05), ceiling=seconds(20), idle=None)
    caller = new_caller_of(server.url, tools=(rule,))
    server.script["slow"] = Hold()
    server.script["echo"] = echo = Hold()
    other = asyncio.create_task(caller.call("echo"))
    async with bounded():
        for asking in (caller.call("slow"), caller.run("slow")):
            with pytest.raises(UpstreamFailed) as failed:
                await asking
            assert failed.value.reason == "timeout"
    echo.release({"content": []})
    await other


async def test_a_tool_may_have_its_own_bound_of_silence(
    server: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    rule = ToolTimeouts(tool="mute", call=seconds(20), ceiling=seconds(20), idle=seconds(0.05))
    caller = new_caller_of(server.url, tools=(rule,))

    async def mute(turn: Turn) -> Any:
        await open_stream(turn.request)
        return await asyncio.get_running_loop().create_future()

    server.script["mute"] = mute
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call("mute")
    assert str(failed.value) == "The server was silent for too long"


async def test_the_ceiling_bounds_a_call_that_is_longer_patient(
    server: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    caller = new_caller_of(server.url, ceiling=seconds(0.1))
    server.script["slow"] = Hold()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call("slow")
    assert str(failed.value) == "The server did not answer in time"
