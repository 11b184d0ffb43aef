"""How many unfinished tasks there may be, and how much may be kept of them, as hosts of both eras meet it."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host, both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, until
from interaction.questions import DONE
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
AT_ONCE = {"upgrade": [{"tool": "*", "mode": "auto"}], "inline_grace": "0s"}


def limited(server: ScriptedServer, *, tasks: Any = ALWAYS, **concurrency: Any) -> Any:
    """Two mounts, and these caps."""
    servers = {"reports": server.url, "other": server.url}
    return configuration(servers, tasks=tasks, limits={"rate": [], "concurrency": concurrency})


async def call(host: Host, tool: str, *, arguments: Any = None) -> Any:
    """What comes of a call that is to be a task."""
    return await host.call_as_task(tool, arguments)


def is_task(answer: Any) -> bool:
    return "task" in answer.result or answer.result.get("resultType") == "task"


def refusal(answer: Any) -> dict[str, Any]:
    """What the data of the refusal say, but for when to try again."""
    assert (answer.status, answer.code) == (200, 429), answer.message
    assert answer.headers["Retry-After"] == "2"
    return {name: value for name, value in answer.error["data"].items() if name != "retryAfterMs"}


async def refusals_of(gateway: Gateway) -> dict[Any, float]:
    """How often caps refused, by what they count and over what."""
    return await gateway.counts("taskgate_concurrency_rejections_total", "policy", "scope")


@covers("R-RES-1", "R-RES-6")
@both_eras
@pytest.mark.parametrize("scope", ["context", "upstream", "global"])
async def test_a_task_above_a_cap_is_refused(server: ScriptedServer, scope: str, era: str) -> None:
    server.script["report"] = Hold()
    name = "tasks_global" if scope == "global" else f"tasks_per_{scope}"
    async with serve(limited(server, **{"tasks_per_context": 9, name: 2})) as gateway:
        host, elsewhere = await gateway.greeted(era=era), await gateway.greeted(era=era, mount="other")
        assert is_task(await call(host, "report"))
        assert is_task(await call(host, "report"))
        refused = await call(host, "report")
        assert refusal(refused) == {"origin": "gateway", "reason": "concurrency", "limit": 2, "scope": scope}
        assert await gateway.count("taskgate_tool_calls_total", tool="report", disposition="rejected") == 1
        # Of another upstream, but of the same caller.
        assert ("error" in ((await call(elsewhere, "report")).message or {})) is (scope != "upstream")
        refusals = 1 if scope == "upstream" else 2
        assert await refusals_of(gateway) == {("tasks", scope): refusals}
    assert len(server.heard("tools/call")) <= 3


@both_eras
@pytest.mark.parametrize("by", ["the operator's default", "a rule"])
async def test_the_unfinished_tasks_of_one_tool_are_capped_whoever_made_them(
    server: ScriptedServer, issuer: TokenIssuer, by: str, era: str
) -> None:
    server.script["report"] = server.script["echo"] = Hold()
    rule = {"tool": "report", "mode": "always", **({"cap": 1} if by == "a rule" else {})}
    config = guarded(
        {"reports": server.url, "other": server.url},
        issuer,
        tasks={"upgrade": [rule, {"tool": "*", "mode": "always"}]},
        limits={"rate": [], "concurrency": {"tasks_per_tool": 2 if by == "a rule" else 1}},
    )
    async with serve(config) as gateway:
        mine, yours = [
            await gateway.greeted(era=era, token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")
        ]
        elsewhere = await gateway.greeted(era=era, mount="other", token=issuer.token(gateway.url("other")))
        assert is_task(await call(mine, "report"))
        assert refusal(await call(yours, "report"))["scope"] == "tool"
        assert is_task(await call(yours, "echo"))
        assert is_task(await call(elsewhere, "report"))


@both_eras
async def test_the_tasks_of_a_tenant_are_capped_and_gold_has_more(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = Hold()
    config = guarded(
        {"reports": server.url},
        issuer,
        auth={"issuers": {"corp": {**issuer.section, "claims": {"tenant": "org"}}}},
        tasks=ALWAYS,
        limits={
            "rate": [],
            "concurrency": {"tasks_per_tenant": 1},
            "overrides": [{"match": {"tenant": "gold"}, "concurrency": {"tasks_per_tenant": 2}}],
        },
    )
    async with serve(config) as gateway:

        async def member(name: str, tenant: str) -> Host:
            return await gateway.greeted(era=era, token=issuer.token(gateway.url(), subject=name, org=tenant))

        assert is_task(await call(await member("a", "iron"), "report"))
        assert refusal(await call(await member("b", "iron"), "report"))["scope"] == "tenant"
        assert is_task(await call(await member("a", "gold"), "report"))
        assert is_task(await call(await member("b", "gold"), "report"))
        assert refusal(await call(await member("c", "gold"), "report")) == {
            "origin": "gateway",
            "reason": "concurrency",
            "limit": 2,
            "scope": "tenant",
        }


@covers("R-RES-6")
@pytest.mark.parametrize("scope", ["context", "tool", "upstream", "global"])
async def test_a_call_that_a_cap_keeps_from_becoming_a_task_goes_on_as_it_is(
    server: ScriptedServer, scope: str
) -> None:
    server.script["report"] = hold = Hold()
    name = "tasks_global" if scope == "global" else f"tasks_per_{scope}"
    async with serve(limited(server, tasks=AT_ONCE, **{"tasks_per_context": 9, name: 1})) as gateway:
        host = gateway.modern()
        await host.start("report")
        waiting = asyncio.create_task(host.call("report"))
        await until(lambda: refusals_of(gateway), lambda found: found == {("tasks", scope): 1})
        assert not waiting.done()
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["resultType"] == "complete"
        assert len(server.heard("tools/call")) == 2


@covers("T42")
@both_eras
async def test_nothing_new_is_taken_once_too_much_is_kept_until_it_is_purged(
    server: ScriptedServer, clock: ManualClock, era: str
) -> None:
    config = configuration(
        {"reports": server.url},
        tasks=ALWAYS,
        limits={"rate": [], "concurrency": {"kept_per_context": "1KiB"}},
        store={"backend": "memory", "purge_interval": "20ms"},
        server={"listen": "127.0.0.1:0", "session_idle": "7d"},
    )
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era=era)
        assert is_task(await call(host, "echo", arguments={"text": "x" * 1100}))
        refused = await call(host, "report")
        assert refusal(refused) == {"origin": "gateway", "reason": "bytes", "limit": 1024, "scope": "context"}
        assert await refusals_of(gateway) == {("bytes", "context"): 1}
        clock.advance(timedelta(hours=2))
        async with bounded():
            while not await gateway.count("taskgate_tasks_purged_total"):
                pass
        assert is_task(await call(host, "report"))


@both_eras
async def test_a_result_is_kept_however_little_room_there_is(server: ScriptedServer, era: str) -> None:
    large = {"content": [{"type": "text", "text": "x" * 5000}]}
    server.script["report"] = hold = Hold()
    async with serve(limited(server, kept_global="2KiB")) as gateway:
        host = await gateway.greeted(era=era)
        answer = await call(host, "report")
        hold.release(large)
        if host.era == "legacy":
            ended = await host.ask("tasks/result", {"taskId": answer.result["task"]["taskId"]})
            assert ended.result["content"] == large["content"]
        else:
            ended_task = await host.until(answer.result["taskId"], "completed")
            assert ended_task["result"]["content"] == large["content"]
        assert refusal(await call(host, "echo")) == {
            "origin": "gateway",
            "reason": "bytes",
            "limit": 2048,
            "scope": "global",
        }


async def test_two_hundred_calls_at_once_make_as_many_tasks_as_may_be(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = Hold()
    config = configuration(
        {"reports": server.url},
        folder=tmp_path,
        tasks=ALWAYS,
        limits={"rate": [], "concurrency": {"tasks_per_context": 50, "tasks_per_upstream": 17}},
    )
    async with serve(config) as gateway:
        host = gateway.modern()
        async with bounded():
            answers = await asyncio.gather(*(host.call("report") for _ in range(200)))
        made = [answer for answer in answers if "result" in (answer.message or {})]
        assert len(made) == 17
        assert {answer.error["data"]["scope"] for answer in answers if answer not in made} == {"upstream"}
        assert await gateway.count("taskgate_tasks_started_total") == 17
