"""How hosts are told that a limit refuses them: as the operator wants it, in either era, and so that they can act."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer

Opens = Callable[..., AbstractAsyncContextManager[Gateway]]
CALLS = {"name": "calls", "scope": "context", "rate": "20/m", "burst": 1, "methods": ["tools/call"]}
LISTS = {"name": "lists", "scope": "context", "rate": "20/m", "burst": 1, "methods": ["tools/list"]}
RATE = {"origin": "gateway", "reason": "rate", "policy": "calls", "retryAfterMs": 3000}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opens(server: ScriptedServer, clock: ManualClock) -> Opens:
    """A gateway with these limits."""

    @asynccontextmanager
    async def opened(*rates: dict[str, Any], tasks: Any = None, **limits: Any) -> Any:
        sections = {"limits": {"rate": list(rates), "wait": "0s", **limits}, **({"tasks": tasks} if tasks else {})}
        async with serve(configuration({"reports": server.url}, **sections), Environment(clock=clock)) as gateway:
            yield gateway

    return opened


# --- as a status -----------------------------------------------------------------------------------------------------


@both_eras
async def test_the_status_may_be_that_of_http_with_the_same_body(opens: Opens, era: str) -> None:
    async with opens(CALLS, reject_as="http") as gateway:
        host = await gateway.greeted(era=era)
        await host.call("echo")
        answer = await host.call("echo")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
        assert answer.error == {"code": 429, "message": "Rate limit calls exceeded; try again in 3 s", "data": RATE}
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"rate": 1}


# --- as a result of the tool -----------------------------------------------------------------------------------------


@both_eras
async def test_a_call_may_be_answered_with_words_that_a_model_can_act_on(
    opens: Opens, server: ScriptedServer, clock: ManualClock, era: str
) -> None:
    async with opens(CALLS, reject_as="tool_error") as gateway:
        host = await gateway.greeted(era=era)
        await host.call("echo")
        answer = await host.call("echo")
        result = answer.result
        assert (answer.status, answer.headers["Retry-After"], result["isError"]) == (200, "3", True)
        assert result["content"] == [
            {"type": "text", "text": "The tool was not called: Rate limit calls exceeded; try again in 3 s."}
        ]
        assert result.get("resultType") == ("complete" if era == "modern" else None)
        assert len(server.heard("tools/call")) == 1
        # It is counted as the refusal that it is.
        assert await gateway.count("mcp_server_operation_duration_seconds_count", error_type="429") == 1
        clock.advance(timedelta(seconds=2))
        assert "; try again in 1 s." in (await host.call("echo")).result["content"][0]["text"]
        assert await gateway.count("taskgate_http_rejections_total") == 0


@both_eras
async def test_whatever_else_is_asked_is_refused_with_an_error(opens: Opens, era: str) -> None:
    async with opens(LISTS, reject_as="tool_error") as gateway:
        host = await gateway.greeted(era=era)
        await host.ask("tools/list", {})
        answer = await host.ask("tools/list", {})
        assert (answer.status, answer.code, answer.error["data"]["policy"]) == (200, 429, "lists")


async def test_who_asks_for_a_task_gets_an_error_since_a_result_would_be_none(opens: Opens) -> None:
    async with opens(CALLS, reject_as="tool_error") as gateway:
        host = await gateway.greeted()
        await host.call("echo")
        answer = await host.call("echo", task={})
        assert (answer.status, answer.code, answer.error["data"]) == (200, 429, RATE)


# --- other limits than rates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reject_as", ["jsonrpc", "http"])
async def test_a_cap_on_tasks_names_its_scope_and_advises_when_to_try_again(
    opens: Opens, server: ScriptedServer, reject_as: str
) -> None:
    server.script["report"] = Hold()
    caps = {"tasks_per_context": 1}
    async with opens(reject_as=reject_as, concurrency=caps) as gateway:
        host = await gateway.greeted()
        await host.start("report")
        answer = await host.call("report", task={})
        assert answer.status == (429 if reject_as == "http" else 200)
        assert answer.headers["Retry-After"] == "2"
        assert answer.error == {
            "code": 429,
            "message": "Too many unfinished tasks of this caller (1 of 1): wait until one ends, or cancel one"
            "; try again in 2 s",
            "data": {
                "origin": "gateway",
                "reason": "concurrency",
                "limit": 1,
                "scope": "context",
                "retryAfterMs": 2000,
            },
        }


# --- what is left ----------------------------------------------------------------------------------------------------


@both_eras
async def test_nothing_is_told_of_budgets_unless_the_operator_wants_it(opens: Opens, era: str) -> None:
    async with opens(CALLS) as gateway:
        host = await gateway.greeted(era=era)
        for _ in range(2):
            answer = await host.call("echo")
            assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]


@both_eras
async def test_hosts_may_be_told_what_is_left_the_scarcest_first(opens: Opens, clock: ManualClock, era: str) -> None:
    wide = {**CALLS, "name": "wide", "rate": "1/s", "burst": 10, "methods": None}
    shadow = {**CALLS, "name": "shadow", "mode": "shadow"}
    async with opens(wide, CALLS, shadow, expose_quota=True) as gateway:
        host = await gateway.greeted(era=era)
        clock.advance(timedelta(minutes=1))
        there = {
            "RateLimit-Policy": '"calls";q=1;w=3, "wide";q=10;w=10',
            "RateLimit": '"calls";r=0;t=3, "wide";r=9;t=1',
        }
        answer = await host.call("echo")
        assert {name: answer.headers[name] for name in there} == there
        # Of one that is refused nothing is taken, and what is there is told.
        answer = await host.call("echo")
        assert {name: answer.headers[name] for name in there} == there
        assert (answer.code, answer.headers["Retry-After"]) == (429, "3")
        listed = await host.ask("tools/list", {})
        assert listed.headers["RateLimit"] == '"wide";r=8;t=2'
