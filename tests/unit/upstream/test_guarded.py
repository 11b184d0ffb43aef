"""A server that fails too often is left alone, and tried again: through sessions, with the server's own words."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.manual_clock import ManualClock
from helpers.server import Hold, Reply, ScriptedServer, raw, redirect, resets, result, status
from helpers.server import error as refusal
from helpers.waiting import bounded, eventually
from taskgate.domain.breaker import BRIEF
from taskgate.errors import UpstreamFailed
from taskgate.system import descriptors
from taskgate.upstream.calls import Principal
from taskgate.upstream.settings import Breaker
from unit.upstream.asking import Asking
from unit.upstream.conftest import EVERYTHING, Caller, new_caller, settings_for, speaks_for_anybody
from unit.upstream.offices import Office, exchange, failure, somebody

OPEN_FOR = timedelta(seconds=30)
BREAKER = Breaker(failures=3, window=timedelta(seconds=10), open_for=OPEN_FOR, half_open=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def guarded(plain: ScriptedServer, clock: ManualClock, new_caller_of: Callable[..., Caller]) -> Caller:
    """Somebody who knows the server, whose circuit three failures within ten seconds open for thirty."""
    caller = new_caller_of(plain.url, clock=clock, breaker=BREAKER)
    await caller.session.open()
    return caller


async def failed(calling: Any) -> UpstreamFailed:
    async with bounded():
        with pytest.raises(UpstreamFailed) as raised:
            await calling
    return raised.value


async def left_alone(server: ScriptedServer, caller: Caller) -> UpstreamFailed:
    """How a call fails that does not leave."""
    before = len(server.requests)
    refused = await failed(caller.call())
    assert len(server.requests) == before
    assert (refused.reason, refused.dispatched) == ("unreachable", False)
    assert str(refused) == "Circuit open: the server failed repeatedly; the request was not sent"
    return refused


async def open_circuit(server: ScriptedServer, caller: Caller) -> None:
    server.script["bad"] = status(503)
    for _ in range(3):
        await failed(caller.call("bad"))
    assert caller.heard.circuit[-1] == "open"
    assert caller.heard.circuit_causes[-1] == "HTTP 503, one caller"


FAILURES = {"resets": resets(), "502": status(502), "503": status(503), "504": status(504),
            "503 with an answer": refusal(-32000, "busy", status=503)}  # fmt: skip


@pytest.mark.parametrize("reply", FAILURES.values(), ids=FAILURES)
async def test_failures_open_the_circuit_and_nothing_is_sent_then(
    plain: ScriptedServer, guarded: Caller, clock: ManualClock, reply: Reply
) -> None:
    plain.script["bad"] = reply
    # The end of a kept connection says nothing of the server: its time may be up.
    for _ in range(reply is FAILURES["resets"]):
        await failed(guarded.call("bad"))
    for _ in range(3):
        assert guarded.upstream.vitals().circuit == "closed"
        with suppress(UpstreamFailed):
            assert (await guarded.call("bad")).error is not None
        clock.advance(timedelta(seconds=1))
    assert (guarded.upstream.vitals()[:2], guarded.heard.circuit) == ((None, "open"), ["open"])
    clock.advance(timedelta(seconds=9))
    refused = await left_alone(plain, guarded)
    assert refused.retry_after == timedelta(seconds=20)


ANSWERS = {"an error of JSON-RPC": refusal(-32603, "no"), "400": status(400), "401": status(401), "403": status(403),
           "404": status(404), "429": status(429), "500": status(500), "nonsense": raw(b"<html>"),
           "too much": result({"content": ["x" * 70_000]}), "a redirect": redirect(302, "/elsewhere")}  # fmt: skip


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
async def test_whatever_the_server_answers_is_no_failure(plain: ScriptedServer, guarded: Caller, reply: Reply) -> None:
    plain.script["odd"] = reply
    for _ in range(10):
        with suppress(UpstreamFailed):
            await guarded.call("odd")
    assert (guarded.heard.circuit, guarded.upstream.vitals().circuit) == ([], "closed")
    assert len(plain.heard("tools/call")) >= 10


async def test_a_server_that_cannot_be_reached_is_left_alone_after_a_while(
    new_caller_of: Callable[..., Caller], clock: ManualClock
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        caller = new_caller_of(f"http://127.0.0.1:{bound.getsockname()[1]}/mcp", clock=clock, breaker=BREAKER)
        told = [await failed(caller.call()) for _ in range(4)]
    assert [each.retry_after for each in told] == [None, None, None, timedelta(seconds=BRIEF)]


async def test_a_server_that_does_not_begin_to_answer_in_time_fails(
    plain: ScriptedServer, new_caller_of: Callable[..., Caller], clock: ManualClock
) -> None:
    """The handshake has as long as its head: whichever bound is noticed first, it is a failure."""
    plain.methods["initialize"] = Hold()
    caller = new_caller_of(plain.url, clock=clock, breaker=BREAKER, first_byte=timedelta(milliseconds=20))
    told = [await failed(caller.call()) for _ in range(4)]
    assert [each.reason for each in told] == ["timeout", "timeout", "timeout", "unreachable"]


async def test_a_list_that_does_not_begin_in_time_fails(
    plain: ScriptedServer, new_caller_of: Callable[..., Caller], clock: ManualClock
) -> None:
    caller = new_caller_of(plain.url, clock=clock, breaker=BREAKER, first_byte=timedelta(milliseconds=200))
    await caller.session.open()
    plain.methods["tools/list"] = Hold()
    told = [await failed(caller.session.tools()) for _ in range(4)]
    assert [each.reason for each in told] == ["timeout", "timeout", "timeout", "unreachable"]


async def test_a_call_that_takes_longer_than_it_may_is_no_failure_of_its_server(
    plain: ScriptedServer, guarded: Caller
) -> None:
    plain.script["slow"] = Hold()
    for _ in range(5):
        assert (await failed(guarded.run("slow", within=0.01))).reason == "timeout"
    assert guarded.heard.circuit == []


async def test_failures_further_apart_than_the_window_leave_it_closed(
    plain: ScriptedServer, guarded: Caller, clock: ManualClock
) -> None:
    plain.script["bad"] = status(503)
    for _ in range(6):
        await failed(guarded.call("bad"))
        clock.advance(timedelta(seconds=6))
    assert guarded.heard.circuit == []


async def test_one_call_tries_it_when_its_time_is_up_and_closes_it_when_it_is_answered(
    plain: ScriptedServer, guarded: Caller, clock: ManualClock
) -> None:
    await open_circuit(plain, guarded)
    clock.advance(OPEN_FOR)
    plain.script["slow"] = hold = Hold()
    trying = asyncio.create_task(guarded.call("slow"))
    async with bounded():
        await hold.begun.wait()
    assert guarded.upstream.vitals().circuit == "half_open"
    clock.advance(timedelta(seconds=10))
    assert (await left_alone(plain, guarded)).retry_after == timedelta(seconds=1), "a trial nearly always ends soon"
    hold.release({"content": []})
    async with bounded():
        await trying
    assert guarded.heard.circuit == ["open", "half_open", "closed"]
    await guarded.call()


async def test_a_try_that_fails_opens_it_again(plain: ScriptedServer, guarded: Caller, clock: ManualClock) -> None:
    await open_circuit(plain, guarded)
    clock.advance(OPEN_FOR)
    await failed(guarded.call("bad"))
    assert guarded.heard.circuit == ["open", "half_open", "open"]
    assert (await left_alone(plain, guarded)).retry_after == OPEN_FOR


async def test_a_try_that_is_given_up_makes_room_for_the_next_one(
    plain: ScriptedServer, guarded: Caller, clock: ManualClock
) -> None:
    await open_circuit(plain, guarded)
    clock.advance(OPEN_FOR)
    plain.script["slow"] = hold = Hold()
    trying = asyncio.create_task(guarded.call("slow"))
    async with bounded():
        await hold.begun.wait()
        trying.cancel()
        await asyncio.wait((trying,))
    assert guarded.upstream.vitals().circuit == "half_open"
    assert (await guarded.call()).error is None
    assert guarded.upstream.vitals().circuit == "closed"


async def test_answers_to_what_a_running_call_asks_pass_an_open_circuit(
    plain: ScriptedServer, clock: ManualClock
) -> None:
    """The call that asked would fail for want of them, and it is already at the server."""
    caller = new_caller(plain.url, EVERYTHING, clock=clock, breaker=BREAKER)
    async with Asking(plain, caller) as asking:
        await open_circuit(plain, caller)
        asking.ear.questions[0].refuse()
        assert (await plain.reply_to("q"))["id"] == "q"
        asking.goes_on.set_result(None)
        async with bounded():
            await asking.call
    assert caller.heard.circuit == ["open"], "they count for nothing"
    await caller.close()


async def test_streams_and_farewells_pass_an_open_circuit_and_count_for_nothing(
    server: ScriptedServer, clock: ManualClock
) -> None:
    caller = new_caller(server.url, clock=clock, breaker=BREAKER)
    await caller.session.open()
    await open_circuit(server, caller)
    clock.advance(OPEN_FOR)
    gets = len(server.verbs("GET"))
    server.cut_streams()
    await eventually(lambda: len(server.verbs("GET")) > gets)
    await caller.session.close()
    assert len(server.verbs("DELETE")) == 1
    assert caller.heard.circuit == ["open"]
    await caller.close()


async def test_every_session_of_a_caller_meets_the_same_circuit(
    plain: ScriptedServer, clock: ManualClock, guarded: Caller
) -> None:
    await open_circuit(plain, guarded)
    other = guarded.upstream.session(guarded.heard.of_session, speaks_for_anybody)
    assert (await failed(other.open())).retry_after == OPEN_FOR
    await other.close()


@pytest.fixture
async def second(guarded: Caller) -> AsyncIterator[Caller]:
    """Another caller of the same server."""
    session = guarded.upstream.session(guarded.heard.of_session, lambda: Principal(context="another"))
    await session.open()
    yield Caller(guarded.upstream, session, guarded.heard)
    await session.close()


async def test_a_circuit_that_one_caller_opened_refuses_no_other_and_the_success_of_one_closes_it(
    plain: ScriptedServer, guarded: Caller, second: Caller
) -> None:
    await open_circuit(plain, guarded)
    await left_alone(plain, guarded)
    plain.script["slow"] = hold = Hold()
    calls = [asyncio.create_task(second.call("slow")) for _ in range(3)]
    await eventually(lambda: len(hold.turns) == 3)
    hold.release({"content": []})
    async with bounded():
        await asyncio.gather(*calls)
    assert guarded.heard.circuit == ["open", "closed"]


async def test_a_circuit_opens_for_all_when_a_second_caller_fails_too(
    plain: ScriptedServer, guarded: Caller, second: Caller
) -> None:
    await open_circuit(plain, guarded)
    await failed(second.call("bad"))
    assert guarded.heard.circuit_causes == ["HTTP 503, one caller", "HTTP 503"]
    await left_alone(plain, guarded)
    await left_alone(plain, second)


async def test_a_server_that_cannot_be_reached_by_one_caller_is_left_alone_by_all(
    plain: ScriptedServer, guarded: Caller, second: Caller
) -> None:
    await plain.stop()
    for _ in range(3):
        await failed(guarded.call())
    assert guarded.heard.circuit_causes == ["ECONNREFUSED"]
    assert (await failed(second.call())).retry_after == timedelta(seconds=BRIEF)


async def test_a_server_that_could_not_be_reached_is_called_by_all_as_soon_as_it_can(
    plain: ScriptedServer, guarded: Caller, second: Caller
) -> None:
    await plain.stop()
    for _ in range(3):
        await failed(guarded.call())
    assert (await failed(guarded.call())).retry_after == timedelta(seconds=BRIEF)
    await plain.come_back()
    async with bounded():
        await asyncio.gather(*(each.call() for each in (guarded, second) for _ in range(3)))
    assert guarded.heard.circuit == ["open", "closed"]


async def test_calls_that_run_when_their_process_ends_leave_the_circuit_closed(
    plain: ScriptedServer, guarded: Caller
) -> None:
    plain.script["slow"] = hold = Hold()
    calls = [asyncio.create_task(guarded.call("slow")) for _ in range(20)]
    await eventually(lambda: len(hold.turns) == 20)
    await plain.stop()
    assert {(await failed(call)).reason for call in calls} == {"closed"}
    await plain.come_back()
    await guarded.call()
    assert guarded.heard.circuit == []


async def test_credentials_that_cannot_be_had_are_no_failure_of_the_server(
    server: ScriptedServer, endpoint: ExchangeServer
) -> None:
    office = Office(settings_for(server.url, credentials=exchange(endpoint), breaker=BREAKER))
    await endpoint.stop()
    session = office.session(somebody())
    for _ in range(5):
        assert (await failure(session)).retry_after is None
    assert office.upstream.vitals().circuit == "closed"
    await office.close()


async def test_a_closed_upstream_is_not_taken_for_a_failing_server(plain: ScriptedServer, guarded: Caller) -> None:
    await guarded.upstream.close()
    for _ in range(5):
        assert (await failed(guarded.call())).reason == "closed"
    assert guarded.heard.circuit == []


async def test_without_a_breaker_a_server_is_never_left_alone(plain: ScriptedServer, caller: Caller) -> None:
    plain.script["bad"] = status(503)
    for _ in range(20):
        await failed(caller.call("bad"))
    assert caller.upstream.vitals()[:2] == (None, "closed")


async def test_the_gateways_own_lack_of_descriptors_is_no_failure_of_the_server(
    plain: ScriptedServer,
    clock: ManualClock,
    new_caller_of: Callable[..., Caller],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "server_ceiling", lambda: 0)
    caller = new_caller_of(plain.url, clock=clock, breaker=BREAKER)
    for _ in range(2 * BREAKER.failures):
        lack = await failed(caller.call())
        assert (lack.reason, lack.dispatched) == ("internal", False)
    assert plain.requests == []
    assert caller.upstream.vitals().circuit == "closed"
