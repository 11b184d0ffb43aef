"""A task is followed to its server, and back to the request that made it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.host.host import Host
from helpers.otlp_collector import CLIENT, KEPT, SERVER, Collected, OtlpCollector, Place, serve_traced
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded
from interaction.falls import falling, leave_one_sent
from interaction.traces import META, PARENT, TRACE, heard_by, place

DONE = {"content": [{"type": "text", "text": "done"}]}


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    """Who takes the spans."""
    async with OtlpCollector() as collector:
        yield collector


async def ended(host: Host, task: str) -> None:
    async with bounded():
        await host.ask("tasks/result", {"taskId": task})


async def test_a_task_is_called_beside_the_request_that_made_it(
    server: ScriptedServer, collector: OtlpCollector
) -> None:
    """That ends when its host has the handle; the call points back at it, and so does whoever asks for the task."""
    server.script["report"] = hold = Hold()
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        task = (await host.ask("tools/call", called_with(META, task={}))).result["task"]["taskId"]
        async with bounded():
            await hold.begun.wait()
        await host.task(task)
        hold.release(DONE)
        await ended(host, task)
        await host.ask("tasks/cancel", {"taskId": task})
    made, call = collector.only(SERVER, "tools/call report"), collector.only(CLIENT, "tools/call report")
    assert made.parent == Place(TRACE, PARENT)
    assert (call.parent, call.links) == (None, (made.place,))
    assert call.place.trace != made.place.trace
    assert place(heard_by(server)["traceparent"]) == call.place
    assert call.attributes["taskgate.queue_wait_s"] >= 0
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        asked = collector.only(SERVER, method)
        assert (asked.parent, asked.links) == (None, (made.place,)), method
    assert_about_one_task([made, call, *collector.of(SERVER, "tasks/get")], task)


def called_with(meta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "report", "arguments": {}, "_meta": meta, **more}


def assert_about_one_task(spans: list[Collected], task: str) -> None:
    refs = {span.attributes["taskgate.task.ref"] for span in spans}
    assert len(refs) == 1
    assert refs.pop().startswith("t_")
    assert not any(task in str(span) for span in spans), "an id lets whoever reads it ask for the task"


@pytest.mark.parametrize("rule", [{"mode": "always"}, {"mode": "auto", "inline_grace": "20ms"}])
async def test_a_task_of_the_modern_era_is_followed_the_same_way(
    rule: dict[str, str], collector: OtlpCollector
) -> None:
    """Only a call that had left before it became a task stays a part of the request that it was made for."""
    rules = {"upgrade": [{"tool": "report", **rule}]}
    async with ScriptedServer("modern") as server:
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = hold = Hold()
        section = {"reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": "2026-07-28"}}
        async with serve_traced(collector, {"reports": server.url}, upstreams=section, tasks=rules) as gateway:
            host = gateway.modern()
            task = (await host.start("report", meta=META))["taskId"]
            async with bounded():
                await hold.begun.wait()
            hold.release(DONE)
            await host.until(task, "completed")
            await host.update(task, {})
        made, call = collector.only(SERVER, "tools/call report"), collector.only(CLIENT, "tools/call report")
        assert made.parent == Place(TRACE, PARENT)
        assert made.attributes["taskgate.disposition"] == "task"
        left = {"always": (None, (made.place,)), "auto": (made.place, ())}
        assert (call.parent, call.links) == left[rule["mode"]]
        told = heard_by(server)
        assert (place(told["traceparent"]), told.get("baggage")) == (call.place, None)
        for asked in (*collector.of(SERVER, "tasks/get"), collector.only(SERVER, "tasks/update")):
            assert asked.links == (made.place,)


async def test_a_task_that_outlived_its_process_still_points_back(
    server: ScriptedServer, collector: OtlpCollector, tmp_path: Path
) -> None:
    server.script["report"] = Hold()
    servers = {"reports": server.url}
    async with serve_traced(collector, servers, folder=tmp_path) as gateway:
        host = await gateway.greeted()
        task = (await host.ask("tools/call", called_with(META, task={}))).result["task"]["taskId"]
    made = next(span for span in collector.of(SERVER) if span.attributes["mcp.method.name"] == "tools/call")
    async with serve_traced(collector, servers, folder=tmp_path) as gateway:
        again = Host(gateway.http, gateway.url())
        again.session, again.revision = host.session, host.revision
        await ended(again, task)
    assert collector.only(SERVER, "tasks/result").links == (made.place,)


async def test_a_call_that_an_earlier_process_never_sent_points_back_when_it_is(
    server: ScriptedServer, collector: OtlpCollector, tmp_path: Path
) -> None:
    async with falling(server, tmp_path, tracing={**KEPT, "endpoint": collector.url}) as gateway:
        host = await gateway.greeted()
        await leave_one_sent(server, tmp_path, host, tool="echo")
        asked = await host.ask("tools/call", called_with(META, task={}))
        task = asked.result["task"]["taskId"]
    async with serve_traced(collector, {"reports": server.url}, folder=tmp_path) as gateway:
        await ended(gateway.again(host), task)
    # What the server lists is not known yet when the call is sent.
    made, call = collector.only(SERVER, "tools/call report"), collector.only(CLIENT, "tools/call")
    assert made.parent == Place(TRACE, PARENT)
    assert (call.parent, call.links) == (None, (made.place,))
    assert place(heard_by(server)["traceparent"]) == call.place
    assert_about_one_task([call, collector.only(SERVER, "tasks/result")], task)
