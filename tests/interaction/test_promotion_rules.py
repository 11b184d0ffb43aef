"""On what terms calls become tasks, rule by rule, as hosts of both eras meet them."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import Host, both_eras
from helpers.server import Hold, ScriptedServer, error
from helpers.stored_tasks import stored_task
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.questions import DONE
from requirements import covers

NEVER = {"inline_grace": "1h"}


def ruled(server: ScriptedServer, *upgrade: dict[str, Any], folder: Path | None = None, **tasks: Any) -> Any:
    """A configuration with these rules."""
    return configuration({"reports": server.url}, folder=folder, tasks={"upgrade": list(upgrade), **tasks})


def lifetime(task: dict[str, Any]) -> int:
    """What a host is told of how long its task lives, in milliseconds."""
    return int(task["ttl"] if "ttl" in task else task["ttlMs"])


# --- what a server hints at ------------------------------------------------------------------------------------------

READING = {"tool": "*", "mode": "always", "hints": {"readOnlyHint": True}}


@pytest.fixture
def hinting(server: ScriptedServer) -> ScriptedServer:
    """A server that says of `echo` that it only reads, and of `report` that it does not."""
    server.tools = [
        {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
        {"name": "report", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}},
        {"name": "broken", "inputSchema": {"type": "object"}},
    ]
    return server


async def test_a_tool_tells_its_task_support_by_what_its_server_hints_at(hinting: ScriptedServer) -> None:
    async with serve(ruled(hinting, READING)) as gateway:
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    assert [tool["execution"]["taskSupport"] for tool in listed] == ["optional", "forbidden", "forbidden"]


async def test_a_reload_changes_the_task_support_that_the_same_session_lists(server: ScriptedServer) -> None:
    async with serve(ruled(server, {"tool": "echo", "mode": "auto"})) as gateway:
        host = await gateway.greeted()
        for mode, word in (("auto", "optional"), ("required", "required"), ("sync", "forbidden")):
            await gateway.reload(ruled(server, {"tool": "echo", "mode": mode}))
            listed = (await host.ask("tools/list")).result["tools"]
            assert listed[0]["execution"] == {"taskSupport": word}


async def page_of(host: Host) -> str:
    """The list of tools as it came."""
    answer = (await host.ask("tools/list")).text
    return answer[answer.index('"tools"') :]


async def test_a_list_that_announces_nothing_is_that_of_the_server_to_the_byte(server: ScriptedServer) -> None:
    server.tools[0]["execution"] = {"taskSupport": "forbidden", "x": 1.0}
    auto, required = {"tool": "echo", "mode": "auto"}, {"tool": "report", "mode": "required"}
    async with serve(ruled(server, auto, required, announce="never")) as gateway:
        host = await gateway.greeted()
        directly = Host(host.http, server.url)
        await directly.open()
        assert await page_of(host) == await page_of(directly)
        assert (await host.start("echo"))["status"] == "working"
        await gateway.reload(ruled(server, auto, {**required, "announce": "never"}))
        listed = (await host.ask("tools/list")).result["tools"]
        assert listed[0]["execution"] == {"taskSupport": "optional", "x": 1.0}
        assert "execution" not in listed[1]
        assert listed[2]["execution"] == {"taskSupport": "forbidden"}


async def test_a_task_is_made_where_the_server_hints_at_what_the_rule_asks_for(hinting: ScriptedServer) -> None:
    async with serve(ruled(hinting, READING)) as gateway:
        host = await gateway.greeted()
        assert (await host.start("echo"))["status"] == "working"
        assert [(await host.call(tool, task={})).code for tool in ("report", "broken")] == [-32601] * 2
        modern = gateway.modern()
        assert (await modern.start("echo"))["resultType"] == "task"
        assert (await modern.call("report")).result["resultType"] == "complete"


async def test_a_tool_that_must_be_a_task_by_its_hints_is_one_from_the_first_call_on(hinting: ScriptedServer) -> None:
    rule = {"tool": "*", "mode": "required", "hints": {"readOnlyHint": False}}
    async with serve(ruled(hinting, rule)) as gateway:
        assert (await (await gateway.greeted()).call("report")).code == -32601
    async with serve(ruled(hinting, rule)) as gateway:
        refused = await gateway.modern(tasks=False).call("report")
        assert refused.code == -32021
    assert hinting.heard("tools/call") == []


@both_eras
async def test_while_the_catalogue_cannot_be_read_no_rule_that_asks_for_hints_decides(
    hinting: ScriptedServer, era: str
) -> None:
    hinting.methods["tools/list"] = error(-32603, "no")
    async with serve(ruled(hinting, READING)) as gateway:
        host = await gateway.greeted(era=era)
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


# --- rules in shadow -------------------------------------------------------------------------------------------------


@both_eras
async def test_a_rule_in_shadow_makes_no_task_and_tells_that_it_would(server: ScriptedServer, era: str) -> None:
    shadow = {"tool": "echo", "mode": "always", "shadow": True}
    async with serve(ruled(server, shadow, {"tool": "*", "mode": "sync"})) as gateway:
        host = await gateway.greeted(era=era)
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert (await host.call("report", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert await gateway.count("taskgate_tasks_started_total") == 0
        assert await gateway.counts("taskgate_shadow_promotions_total", "upstream") == {"reports": 1}


async def test_a_rule_in_shadow_would_make_no_task_for_a_host_without_them(server: ScriptedServer) -> None:
    async with serve(ruled(server, {"tool": "*", "mode": "always", "shadow": True})) as gateway:
        await gateway.modern(tasks=False).call("echo")
        await (await gateway.greeted("2025-06-18")).call("echo")
        assert await gateway.count("taskgate_shadow_promotions_total") == 0


# --- how long --------------------------------------------------------------------------------------------------------


@covers("R-RES-2")
@pytest.mark.parametrize(
    ("asked", "granted"),
    [({}, 2_400_000), ({"ttl": 1}, 600_000), ({"ttl": 700_000}, 700_000), ({"ttl": 10**12}, 3_000_000)],
)
async def test_a_rule_bounds_the_time_to_live_of_its_tools_and_no_others(
    server: ScriptedServer, asked: dict[str, Any], granted: int
) -> None:
    rule = {"tool": "echo", "mode": "auto", "ttl": "40m", "ttl_min": "10m", "ttl_max": "50m"}
    server.script["echo"] = Hold()
    async with serve(ruled(server, rule, {"tool": "*", "mode": "auto"})) as gateway:
        host = await gateway.greeted()
        task = await host.start("echo", **asked)
        assert task["ttl"] == (await host.task(task["taskId"]))["ttl"] == granted
        assert (await host.start("report"))["ttl"] == 3_600_000


async def test_a_host_of_the_modern_era_is_told_the_time_to_live_of_the_rule(server: ScriptedServer) -> None:
    async with serve(ruled(server, {"tool": "echo", "mode": "always", "ttl": "20m"})) as gateway:
        server.script["echo"] = Hold()
        host = gateway.modern()
        task = await host.start("echo")
        assert task["ttlMs"] == (await host.task(task["taskId"]))["ttlMs"] == 1_200_000


@both_eras
async def test_a_tenant_may_keep_its_tasks_for_longer(server: ScriptedServer, issuer: TokenIssuer, era: str) -> None:
    section = {**issuer.section, "claims": {"tenant": "org"}}
    config = guarded(
        {"reports": server.url},
        issuer,
        auth={"issuers": {"corp": section}},
        tasks={"upgrade": [{"tool": "*", "mode": "always", "ttl": "30m", "ttl_max": "40m"}]},
        limits={"rate": [], "overrides": [{"match": {"tenant": "gold"}, "ttl_max": "20m"}]},
    )
    async with serve(config) as gateway:
        ttls = []
        for tenant in ("gold", "iron"):
            host = await gateway.greeted(era=era, token=issuer.token(gateway.url(), org=tenant))
            ttls.append(lifetime(await host.start("echo")))
        assert ttls == [1_200_000, 1_800_000]


# --- what a record starts with ---------------------------------------------------------------------------------------


@both_eras
async def test_a_record_has_the_deadline_and_the_reruns_of_its_rule(
    server: ScriptedServer, tmp_path: Path, era: str
) -> None:
    rule = {"tool": "echo", "mode": "always", "deadline": "5m", "on_lost": "rerun"}
    config = ruled(server, rule, {"tool": "*", "mode": "always"}, folder=tmp_path)
    async with serve(config) as gateway:
        host = await gateway.greeted(era=era)
        bound, plain = [await stored_task(tmp_path, (await host.start(tool))["taskId"]) for tool in ("echo", "report")]
    assert (bound.deadline, bound.reruns) == (timedelta(minutes=5), 1)
    assert (plain.deadline, plain.reruns) == (None, 0)


async def test_a_call_that_becomes_a_task_on_its_way_has_the_terms_of_its_rule(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    rule = {"tool": "report", "mode": "auto", "inline_grace": "0s", "deadline": "5m", "on_lost": "rerun", "ttl": "20m"}
    config = ruled(server, rule, {"tool": "*", "mode": "auto"}, folder=tmp_path, **NEVER)
    async with serve(config) as gateway:
        host = gateway.modern()
        task = await host.start("report")
        record = await stored_task(tmp_path, task["taskId"])
        hold.release(DONE)
    assert task["ttlMs"] == 1_200_000
    assert (record.deadline, record.reruns, record.was_sent) == (timedelta(minutes=5), 1, True)


async def test_each_rule_has_a_grace_of_its_own(server: ScriptedServer) -> None:
    server.script["report"] = server.script["echo"] = hold = Hold()
    config = ruled(
        server, {"tool": "report", "mode": "auto", "inline_grace": "0s"}, {"tool": "*", "mode": "auto"}, **NEVER
    )
    async with serve(config) as gateway:
        host = gateway.modern()
        assert (await host.start("report"))["resultType"] == "task"
        waiting = asyncio.create_task(host.call("echo"))
        async with bounded():
            while len(hold.turns) < 2:
                await asyncio.sleep(0)
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["resultType"] == "complete"
