"""Whether a server is well: asked in the background, and what follows for its circuit."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.server import Hold, Reply, ScriptedServer, breaks_off, in_turn, raw, resets, result, status
from helpers.server import error as refusal
from helpers.waiting import bounded, eventually
from taskgate.upstream.health import DEAF, Checks
from taskgate.upstream.settings import Breaker, HealthSettings
from unit.upstream.asking import question
from unit.upstream.checking import checks, soon
from unit.upstream.conftest import Caller

OPEN_FOR = timedelta(seconds=30)
BREAKER = Breaker(failures=100, window=timedelta(seconds=10), open_for=OPEN_FOR, half_open=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def checked(server: ScriptedServer, clock: ManualClock, new_caller_of: Callable[..., Caller]) -> Callable[..., Caller]:
    """Makes callers whose server is checked from now on; a health with the changes that the test wants."""

    def make(health: HealthSettings | None = None, **changes: Any) -> Caller:
        caller = new_caller_of(server.url, **{"clock": clock, "breaker": BREAKER, "health": health or soon()} | changes)
        caller.upstream.open()
        return caller

    return make


class Refused:
    """A question that counts how often it is refused."""

    times = 0

    def refuse(self) -> None:
        self.times += 1


async def test_a_server_that_answers_is_up_and_is_asked_in_one_session_of_its_own(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    caller = checked()
    assert caller.upstream.vitals()[:2] == (None, "closed")
    assert await checks(caller, 3) == [(True, True)] * 3
    assert caller.upstream.vitals()[:2] == (True, "closed")
    assert (len(server.heard("initialize")), len(server.heard("tools/list")) >= 3) == (1, True)
    await caller.call()
    assert len(server.heard("initialize")) == 2


async def test_checks_are_in_no_count_but_their_own(server: ScriptedServer, checked: Callable[..., Caller]) -> None:
    caller = checked()
    await checks(caller, 3)
    await server.streaming()
    server.forget_sessions()
    await eventually(lambda: len(server.heard("initialize")) == 2)
    assert (caller.heard.answered, caller.heard.streams, caller.heard.lost) == ([], [], 0)


@pytest.mark.parametrize("has_ping", [True, False])
async def test_a_server_is_pinged_and_well_whatever_it_answers(
    server: ScriptedServer, checked: Callable[..., Caller], has_ping: bool
) -> None:
    if not has_ping:
        server.methods["ping"] = refusal(-32601, "Method not found")
    caller = checked(soon(lists_tools=False))
    assert await checks(caller, 3) == [(True, True)] * 3
    assert (len(server.heard("ping")) >= 3, server.heard("tools/list")) == (True, [])
    assert len(server.heard("initialize")) == 1


async def test_a_server_that_does_not_answer_a_ping_is_down(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["ping"] = Hold()
    caller = checked(soon(lists_tools=False, unhealthy_after=1, timeout=timedelta(seconds=1)))
    assert await checks(caller, 1) == [(False, False)]


GOOD = {"an error of JSON-RPC": refusal(-32601, "none"), "401": status(401), "403": status(403), "429": status(429),
        "500": status(500), "nonsense": raw(b"<html>")}  # fmt: skip
BAD = {"502": status(502), "503": status(503), "504": status(504), "resets": resets(), "breaks off": breaks_off(),
       "breaks off in a document": breaks_off(document=True)}  # fmt: skip
CAUSES = {BAD[name]: f"HTTP {name}" if name.isdecimal() else "closed" for name in BAD}


@pytest.mark.parametrize("reply", GOOD.values(), ids=GOOD)
async def test_a_server_that_answers_anything_is_well(
    server: ScriptedServer, checked: Callable[..., Caller], reply: Reply
) -> None:
    """It is asked as the gateway, and what it says to the gateway is nobody else's business."""
    server.methods["tools/list"] = reply
    assert await checks(checked(), 2) == [(True, True)] * 2


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
async def test_a_server_that_fails_checks_in_a_row_is_down_and_left_alone_at_once(
    server: ScriptedServer, checked: Callable[..., Caller], reply: Reply
) -> None:
    server.methods["tools/list"] = server.methods["ping"] = reply
    caller = checked(soon(unhealthy_after=3))
    assert await checks(caller, 4) == [(False, None), (False, None), (False, False), (False, False)]
    assert (caller.upstream.vitals()[:2], caller.heard.circuit) == ((False, "open"), ["open"])
    assert {*caller.heard.causes, *caller.heard.circuit_causes} == {CAUSES[reply]}


async def test_a_failed_check_is_repeated_soon_until_the_server_counts_as_down(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["tools/list"] = resets()
    loop = asyncio.get_running_loop()
    began, caller = loop.time(), checked(soon(interval=timedelta(seconds=30), unhealthy_after=3))
    await checks(caller, 3)
    down_after = loop.time() - began
    await checks(caller, 4)
    pause = loop.time() - began - down_after
    assert (10 < down_after < 25, 25 < pause < 35) == (True, True)


async def test_a_server_that_is_silent_for_longer_than_a_check_may_take_is_down(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["tools/list"] = Hold()
    caller = checked(soon(timeout=timedelta(milliseconds=20), unhealthy_after=2))
    assert await checks(caller, 2) == [(False, None), (False, False)]
    assert (caller.heard.circuit, {*caller.heard.causes}) == (["open"], {"timeout"})


async def test_a_handshake_that_hangs_counts_against_every_check_that_waits_for_it(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["initialize"] = hold = Hold()
    caller = checked(soon(timeout=timedelta(milliseconds=20), unhealthy_after=3))
    assert await checks(caller, 3) == [(False, None), (False, None), (False, False)]
    assert (len(hold.turns), caller.heard.circuit) == (1, ["open"])


async def test_a_server_that_works_at_a_call_may_be_silent_meanwhile(
    server: ScriptedServer, new_caller_of: Callable[..., Caller], clock: ManualClock
) -> None:
    """Many a server does one thing at a time: it is shown as down, but calls may still wait for it."""
    server.script["slow"] = working = Hold()
    server.methods["tools/list"] = Hold()
    health = soon(timeout=timedelta(milliseconds=20), interval=timedelta(milliseconds=30), unhealthy_after=2)
    caller = new_caller_of(server.url, clock=clock, breaker=BREAKER, health=health)
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await working.begun.wait()
    caller.upstream.open()
    assert await checks(caller, 3) == [(False, None), (False, False), (False, False)]
    assert (caller.upstream.vitals()[:2], caller.heard.circuit) == ((False, "closed"), [])
    working.release({"content": []})
    async with bounded():
        await calling
    await eventually(lambda: caller.heard.circuit == ["open"])


async def test_a_server_that_fails_is_left_alone_even_while_it_works_at_a_call(
    server: ScriptedServer, new_caller_of: Callable[..., Caller], clock: ManualClock
) -> None:
    server.script["slow"] = working = Hold()
    server.methods["tools/list"] = status(503)
    caller = new_caller_of(server.url, clock=clock, breaker=BREAKER, health=soon(unhealthy_after=1))
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await working.begun.wait()
    caller.upstream.open()
    await checks(caller, 1)
    assert caller.upstream.vitals()[:2] == (False, "open")
    working.release({"content": []})
    async with bounded():
        assert (await calling).error is None


async def test_one_bad_check_between_good_ones_changes_nothing(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    bad, good = status(503), result({"tools": []})
    server.methods["tools/list"] = in_turn(bad, good, bad, good, good, bad, good)
    caller = checked(soon(unhealthy_after=2))
    seen = [(False, None), (True, True), (False, True), (True, True), (True, True), (False, True), (True, True)]
    assert await checks(caller, 7) == seen
    assert caller.heard.circuit == []


async def test_a_server_is_up_again_after_so_many_good_checks_which_close_its_circuit_early(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["tools/list"] = status(503)
    caller = checked(soon(unhealthy_after=1, healthy_after=3))
    await checks(caller, 1)
    assert caller.upstream.vitals()[:2] == (False, "open")
    del server.methods["tools/list"]
    await eventually(lambda: caller.upstream.vitals().circuit == "closed")
    first = caller.heard.health.index((True, False))
    assert caller.heard.health[first : first + 3] == [(True, False), (True, False), (True, True)]
    assert caller.heard.circuit == ["open", "closed"]
    assert (await caller.call()).error is None


async def test_each_time_that_it_goes_down_it_is_left_alone(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["tools/list"] = in_turn(status(503), result({"tools": []}), status(503))
    caller = checked(soon(unhealthy_after=1))
    await checks(caller, 4)
    assert caller.heard.circuit == ["open", "closed", "open"]


async def test_while_it_is_down_its_circuit_lets_calls_try_in_its_time(
    server: ScriptedServer, checked: Callable[..., Caller], clock: ManualClock
) -> None:
    server.methods["tools/list"] = status(503)
    caller = checked(soon(unhealthy_after=1))
    await checks(caller, 3)
    clock.advance(OPEN_FOR)
    assert (await caller.call()).error is None
    count = len(caller.heard.health)
    await checks(caller, count + 3)
    assert caller.heard.circuit == ["open", "half_open", "closed"], "what calls find out counts for more"


async def test_there_is_never_more_than_one_check_at_a_time(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    server.methods["tools/list"] = hold = Hold()
    caller = checked(soon(interval=timedelta(microseconds=1)))
    caller.upstream.open()
    async with bounded():
        await hold.begun.wait()
    ticks = asyncio.get_running_loop().time() + 0.05
    await eventually(lambda: asyncio.get_running_loop().time() > ticks)
    assert (len(hold.turns), caller.heard.health) == (1, [])


async def test_a_session_that_the_server_forgot_is_opened_anew(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    caller = checked()
    await checks(caller, 1)
    server.forget_sessions()
    await eventually(lambda: len(server.heard("initialize")) == 2)
    await checks(caller, len(caller.heard.health) + 2)
    assert {ok for ok, _ in caller.heard.health} == {True}


async def test_the_session_of_the_checks_ends_with_the_upstream(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    caller = checked()
    await checks(caller, 1)
    await caller.upstream.close()
    await eventually(lambda: len(server.verbs("DELETE")) == 1)
    count = len(server.requests)
    ticks = asyncio.get_running_loop().time() + 0.03
    await eventually(lambda: asyncio.get_running_loop().time() > ticks)
    assert len(server.requests) == count


@pytest.mark.parametrize("opened", [False, True])
async def test_nothing_is_asked_before_checks_begin_nor_without_them(
    server: ScriptedServer, new_caller_of: Callable[..., Caller], opened: bool
) -> None:
    caller = new_caller_of(server.url, health=None if opened else soon())
    if opened:
        caller.upstream.open()
    ticks = asyncio.get_running_loop().time() + 0.03
    await eventually(lambda: asyncio.get_running_loop().time() > ticks)
    assert (server.requests, caller.upstream.vitals()[:2]) == ([], (None, "closed"))
    assert caller.heard.begun == opened


async def test_a_server_that_asks_a_check_something_is_refused(
    server: ScriptedServer, checked: Callable[..., Caller]
) -> None:
    caller = checked()
    await checks(caller, 1)
    await server.streaming()
    await server.push(question())
    assert "error" in await server.reply_to("q")
    never_declared = Refused()
    DEAF.asked(never_declared)  # type: ignore[arg-type]
    assert never_declared.times == 1


@pytest.mark.parametrize("breaker", [None, BREAKER])
async def test_without_a_breaker_a_server_that_is_down_is_only_shown_to_be(
    server: ScriptedServer, checked: Callable[..., Caller], breaker: Breaker | None
) -> None:
    server.methods["tools/list"] = status(503)
    caller = checked(soon(unhealthy_after=1), **({} if breaker else {"breaker": None}))
    await checks(caller, 2)
    assert caller.upstream.vitals()[:2] == (False, "open" if breaker else "closed")


async def test_checks_go_on_after_what_nobody_foresaw(
    server: ScriptedServer,
    checked: Callable[..., Caller],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ask, broken = Checks._ask, [True]

    async def breaks_once(self: Checks) -> None:
        if broken:
            broken.clear()
            raise RuntimeError("bug")
        await ask(self)

    monkeypatch.setattr(Checks, "_ask", breaks_once)
    assert await checks(checked(), 1) == [(True, True)]
    assert [record.levelno for record in caplog.records if record.levelno > logging.DEBUG] == [logging.ERROR]
