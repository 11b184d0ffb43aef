"""Lines about requests: one for each tool call with `logging.access`, and more at `debug`."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, result
from helpers.waiting import bounded, eventually
from interaction.audit_logs import lines as audit_lines
from interaction.audit_logs import of, told_of
from interaction.reloads import SUCCESS

CALL = "a tool call was handled"
REQUEST = "a request was handled"
_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    """The fields of the lines with that message, but for the milliseconds."""
    found = [vars(record) for record in caplog.records if record.getMessage() == message]
    return [{key: value for key, value in line.items() if key not in _KNOWN and key != "ms"} for line in found]


async def test_each_call_has_a_line_with_what_became_of_it(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    server.script["report"] = result({"content": []})
    limits = {"rate": [{"name": "echoes", "scope": "context", "methods": ["tools/call"], "rate": "1/h", "burst": 3}]}
    config = configuration({"reports": server.url}, folder=tmp_path, logging={"access": True}, limits=limits)
    async with serve(config, data_directory=tmp_path) as gateway:
        host = await gateway.greeted()
        await host.ask("tools/list")
        await host.call("echo", {"text": "s3cret-argument"})
        task = await host.start("report")
        await host.call("no-such-tool")
        assert (await host.call("echo")).code == 429
        await eventually(lambda: len(lines(caplog, CALL)) == 4)
        plain, created, unknown, refused = lines(caplog, CALL)
        await told_of(tmp_path, "task.created")
        [reference] = [line["task"]["ref"] for line in of(audit_lines(tmp_path), "task.created")]
    assert plain == {"upstream": "reports", "tool": "echo", "disposition": "direct", "status": 200}
    assert created == plain | {"tool": "report", "disposition": "task", "task": reference}
    assert ("tool" in unknown, unknown["upstream"]) == (False, "reports")
    assert refused["disposition"] == "rejected"
    assert (refused["tool"], refused["error"], refused["refusal"]) == ("echo", "429", "rate")
    assert task["taskId"] not in caplog.text
    assert "s3cret-argument" not in str([vars(record) for record in caplog.records])


async def test_without_access_a_call_has_no_line_and_a_reload_turns_lines_on_and_off(
    server: ScriptedServer, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    host = await gateway.greeted()
    for access, expected in ((None, 0), (True, 1), (False, 1), (True, 2)):
        if access is not None:
            config = configuration({"reports": server.url}, logging={"access": access})
            assert await gateway.reload(config) == SUCCESS
        await host.call("echo")
        await gateway.metrics()
        assert len(lines(caplog, CALL)) == expected
    assert await gateway.count("taskgate_tool_calls_total") == 4


async def test_a_line_comes_soon_without_a_scrape(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    config = configuration({"reports": server.url}, logging={"access": True}, audit={"enabled": False})
    async with serve(config) as gateway:
        await (await gateway.greeted()).call("echo")
        await eventually(lambda: lines(caplog, CALL))


async def test_each_message_of_a_batch_has_its_own_line(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(configuration({"reports": server.url}, logging={"access": True})) as gateway:
        host = await gateway.greeted("2025-03-26")
        await host.ask("tools/list")
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
        body = json.dumps([call | {"id": "a"}, call | {"id": "b"}, {"jsonrpc": "2.0", "id": "c", "method": "ping"}])
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **host.head()}
        async with bounded(), gateway.http.post(host.url, data=body, headers=headers) as response:
            assert response.status == 200
        await eventually(lambda: len(lines(caplog, CALL)) == 2)
    assert [line["tool"] for line in lines(caplog, CALL)] == ["echo", "echo"]


async def test_a_call_that_got_the_answer_of_an_equal_one_is_marked(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    hold = server.script["echo"] = Hold()
    async with serve(configuration({"reports": server.url}, logging={"access": True})) as gateway:
        host = await gateway.greeted()
        key = {"_meta": {"io.taskgate/idempotency-key": "k"}}
        both = [asyncio.create_task(host.call("echo", **key)) for _ in range(2)]
        async with bounded():
            await hold.begun.wait()
            await gateway.counted("taskgate_calls_joined_total")
            hold.release({"content": []})
            await asyncio.gather(*both)
        await eventually(lambda: len(lines(caplog, CALL)) == 2)
    assert sorted(line.get("coalesced", False) for line in lines(caplog, CALL)) == [False, True]


async def test_at_debug_each_request_and_each_upstream_request_has_a_line(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(configuration({"reports": server.url}, logging={"level": "debug"})) as gateway:
        host = await gateway.greeted()
        await host.ask("tools/list")
        await host.ask("s3cret/method")
        await eventually(lambda: any(line.get("method") == "_OTHER" for line in lines(caplog, REQUEST)))
        found = {line["method"]: line for line in lines(caplog, REQUEST) if "method" in line}
        asked = {line["method"] for line in lines(caplog, "an upstream request ended")}
    assert found["tools/list"] == {
        "upstream": "reports",
        "method": "tools/list",
        "revision": "2025-11-25",
        "route": "mcp",
        "status": 200,
    }
    assert {"initialize", "tools/list"} <= asked
    assert "s3cret" not in str([vars(record) for record in caplog.records])
    assert lines(caplog, CALL) == []


async def test_at_debug_refusals_name_the_rule_or_the_limit(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"rate": [{"name": "calls", "scope": "context", "methods": ["tools/call"], "rate": "1/h", "burst": 1}]}
    rules = {"rules": [{"name": "no-lists", "methods": ["prompts/list"], "effect": "deny"}]}
    config = configuration({"reports": server.url}, logging={"level": "debug"}, limits=limits, authorization=rules)
    async with serve(config) as gateway:
        host = await gateway.greeted()
        for _ in range(2):
            await host.call("echo")
        await host.ask("prompts/list")
        await host.ask("tasks/get", {"taskId": "A" * 43})
        await gateway.metrics()
    decided = lines(caplog, "a rate policy decided about a request")
    assert decided == [
        {"policy": "calls", "scope": "context", "decision": "allowed"},
        {"policy": "calls", "scope": "context", "decision": "rejected"},
    ]
    assert lines(caplog, "an access rule refused a request")[0]["rule"] == "no-lists"
    assert lines(caplog, "a look-up found no task of the caller")[0]["upstream"] == "reports"
    assert "A" * 43 not in str([vars(record) for record in caplog.records])


async def test_allowed_requests_have_lines_at_debug_alone_and_are_counted_at_each_level(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"rate": [{"name": "calls", "scope": "context", "methods": ["tools/call"], "rate": "9/s"}]}

    def at(level: str) -> Any:
        return configuration({"reports": server.url}, logging={"level": level}, limits=limits)

    async with serve(at("info")) as gateway:
        host = await gateway.greeted()
        for number, (level, expected) in enumerate([("info", 0), ("debug", 1), ("info", 1), ("debug", 2)], 1):
            if number > 1:
                assert await gateway.reload(at(level)) == SUCCESS
            await host.call("echo")
            await gateway.counted("taskgate_rate_limit_decisions_total", number, policy="calls", decision="allowed")
            assert len(lines(caplog, "a rate policy decided about a request")) == expected
