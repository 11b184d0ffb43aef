"""What the audit log says of tasks that do not simply succeed: questions, ends, limits, restarts."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment
from helpers.host.host import both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, TalkingTool, error
from helpers.waiting import bounded
from interaction.audit_logs import audited, kept, lines, of, said, text, told_of
from interaction.falls import falling, leave_one_sent
from interaction.handoffs import CANCEL, WAIT, handle_of, handoff, taskless, waited
from interaction.idempotency import KEY, YEAR
from interaction.questions import ACCEPTED, DONE, ELICIT, capable
from requirements import covers


@covers("O-AUD-1")
async def test_what_is_asked_and_answered_is_told_without_the_words(
    tool: TalkingTool, server: ScriptedServer, tmp_path: Path
) -> None:
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            for number, answer in enumerate((ACCEPTED, {"action": "decline"})):
                await tool.ask(number)
                asked = await stream.until(ELICIT, times=number + 1)
                await host.respond(asked["id"], answer)
                await tool.told(number)
            await tool.finish(DONE)
            await stream.result()
    written = lines(tmp_path)
    assert [(line["data"]["key"], line["data"]["kind"]) for line in of(written, "task.input_requested")] == [
        ("input-1", "elicitation"), ("input-2", "elicitation"),
    ]  # fmt: skip
    assert [said(line) for line in of(written, "task.input_answered")] == [
        ("task.input_answered", "success", "answered"),
        ("task.input_answered", "failure", "declined"),
    ]
    assert [line["actor"]["method"] for line in of(written, "task.input_answered")] == ["none", "none"]
    [ended] = of(written, "task.completed")
    assert [line["task"]["ref"] for line in of(written, "task.input_requested")] == [ended["task"]["ref"]] * 2


async def test_a_question_that_is_taken_back_is_told(tool: TalkingTool, server: ScriptedServer, tmp_path: Path) -> None:
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.ask(1)
            await stream.until(ELICIT)
            await tool.withdraw(1)
            await told_of(tmp_path, "task.input_dropped")
            await tool.finish(DONE)
            await stream.result()
    assert [said(line) for line in of(lines(tmp_path), "task.input_dropped")] == [
        ("task.input_dropped", "failure", "superseded")
    ]


@covers("O-AUD-1")
async def test_a_task_that_is_cancelled_and_one_that_fails_are_told(server: ScriptedServer, tmp_path: Path) -> None:
    server.script |= {"report": Hold(), "broken": error(-32000, "no")}
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        await host.ask("tasks/cancel", {"taskId": task["taskId"]})
        await host.start("broken")
        await told_of(tmp_path, "task.cancelled")
        await told_of(tmp_path, "task.failed")
    written = lines(tmp_path)
    assert [said(line) for line in of(written, "task.cancel_requested", "task.cancelled", "task.failed")] == [
        ("task.cancel_requested", "success", "propagated"),
        ("task.cancelled", "success", "client"),
        ("task.failed", "failure", "jsonrpc_error"),
    ]
    [asked], [ended] = of(written, "task.cancel_requested"), of(written, "task.cancelled")
    assert asked["http"]["request_id"] == ended["http"]["request_id"]


@covers("O-AUD-1")
async def test_a_task_that_expires_is_told_of_once_and_so_is_its_record(
    server: ScriptedServer, clock: ManualClock, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    config = configuration(
        {"reports": server.url}, store={"backend": "memory", "purge_interval": "20ms"}, audit=audited(tmp_path),
        server={"listen": "127.0.0.1:0", "session_idle": "7d"}, tasks={"ttl": {"default": "30m", "max": "30m"}},
    )  # fmt: skip
    async with kept(tmp_path, config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        await host.start("report", None, ttl=10 * 3_600_000)
        async with bounded():
            await hold.begun.wait()
        clock.advance(timedelta(hours=3))
        await told_of(tmp_path, "task.purged")
        await told_of(tmp_path, "task.expired")
    written = lines(tmp_path)
    assert [said(line) for line in of(written, "limit.ttl_clamped")] == [
        ("limit.ttl_clamped", "success", "clamped_max")
    ]
    assert of(written, "task.created")[0]["task"]["ttl_ms"] == 1_800_000
    assert [said(line) for line in of(written, "task.expired")] == [("task.expired", "failure", "working")]
    assert of(written, "task.failed") == []
    [purged] = of(written, "task.purged")
    assert (purged["data"], purged["http"], purged["actor"]["ctx"]) == ({"retrieved": False}, None, "c_anonymous")


@covers("O-AUD-1")
async def test_what_is_taken_over_after_a_fall_is_told_with_whose_it_is(server: ScriptedServer, tmp_path: Path) -> None:
    async with falling(server, tmp_path) as gateway:
        host = await gateway.greeted()
        await leave_one_sent(server, tmp_path, host, host)
    config = configuration({"reports": server.url}, folder=tmp_path, audit=audited(tmp_path))
    async with kept(tmp_path, config):
        await told_of(tmp_path, "task.completed")
        await told_of(tmp_path, "task.failed")
    written = lines(tmp_path)
    recovered = of(written, "task.recovered")
    assert {line["reason"] for line in recovered} == {"failed", "retried"}
    assert {line["actor"]["ctx"] for line in recovered} == {"c_anonymous"}
    assert {said(line) for line in of(written, "task.completed", "task.failed")} == {
        ("task.completed", "success", "ok"),
        ("task.failed", "failure", "call_lost"),
    }
    assert all(line["http"] is None for line in of(written, "task.completed", "task.failed", "task.dispatched"))


async def test_a_rule_in_shadow_and_a_call_that_joined_another_are_told(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = hold = Hold()
    rules = [{"tool": "echo", "mode": "always", "shadow": True}, {"tool": "*", "mode": "sync"}]
    config = configuration({"reports": server.url}, tasks={"upgrade": rules}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        await gateway.modern().call("echo")
        again: Any = [asyncio.create_task(gateway.modern().call("report", YEAR, meta={KEY: "k"})) for _ in range(2)]
        async with bounded():
            while not await gateway.count("taskgate_calls_joined_total", how="key"):
                await asyncio.sleep(0.005)
            hold.release(DONE)
            await asyncio.gather(*again)
    written = lines(tmp_path)
    assert [line["mcp"]["tool"] for line in of(written, "task.shadow_promoted")] == ["echo"]
    [joined] = of(written, "call.joined")
    assert joined["reason"] == "key"
    assert joined["http"]["request_id"] in {line["http"]["request_id"] for line in of(written, "rpc.call")}


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_cap_and_a_full_queue_are_told(server: ScriptedServer, tmp_path: Path, era: str) -> None:
    server.script["report"] = hold = Hold()
    section = {"path": "/reports/mcp", "url": server.url, "concurrency": 1, "queue": {"size": 1, "max_wait": "300s"}}
    config = configuration(
        {}, upstreams={"reports": section}, audit=audited(tmp_path),
        limits={"rate": [], "concurrency": {"tasks_per_context": 1}},
        tasks={"upgrade": [{"tool": "*", "mode": "always"}]},
    )  # fmt: skip
    async with kept(tmp_path, config) as gateway:
        modern = gateway.modern(tasks=False)
        host: Any = gateway.modern() if era == "2026-07-28" else await gateway.greeted(era)
        await host.start("report")
        async with bounded():
            await hold.begun.wait()
        await (host.call("report") if era == "2026-07-28" else host.call("report", task={}))
        waiting = asyncio.create_task(modern.call("echo"))
        async with bounded():
            while not await gateway.count("taskgate_queue_depth"):
                await asyncio.sleep(0.005)
            await modern.call("echo")
            hold.release(DONE)
            await waiting
    written = lines(tmp_path)
    assert [(line["reason"], line["limit"]["scope"]) for line in of(written, "limit.concurrency_rejected")] == [
        ("tasks", "context")
    ]
    assert [said(line) for line in of(written, "limit.queue_rejected")] == [("limit.queue_rejected", "denied", "full")]
    assert [line["reason"] for line in of(written, "rpc.rejected")] == ["concurrency", "queue"]


@covers("T71")
@pytest.mark.parametrize("arguments", ["keys", "hash", "full"])
@both_eras
async def test_no_handle_is_in_the_line_of_a_call_of_a_tool_of_the_gateway(
    server: ScriptedServer, tmp_path: Path, era: str, arguments: str
) -> None:
    server.script["report"] = hold = Hold()
    audit = {**audited(tmp_path), "arguments": arguments}
    async with kept(tmp_path, configuration({"reports": server.url}, tasks=handoff(), audit=audit)) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", {"year": 2026}))
        hold.release(DONE)
        await waited(host, handle)
        await waited(host, f"{handle} ")
        await host.call(CANCEL, {"handle": handle, "note": handle})
    calls = [line for line in lines(tmp_path) if line["event"].startswith("rpc.") and line["mcp"]["tool"]]
    shown = {line["mcp"]["tool"]: line["args"] is not None for line in calls}
    assert shown == {"report": True, WAIT: False, CANCEL: False}
    assert handle not in text(tmp_path)
