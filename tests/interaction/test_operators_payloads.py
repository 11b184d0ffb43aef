"""Payloads of tasks: shown to operators where the configuration says so, and each look is a line of the audit log."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import FORM, Hold, ScriptedServer, TalkingTool, result
from interaction.audit_logs import audited, lines, of, told_of
from interaction.operators import OPS, VIEWER, act, look, tokens
from interaction.questions import CAPABLE, ELICIT

TASKS = "/api/v1/tasks"
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "the-secret-result"}]}


@pytest.fixture(params=["memory", "sqlite"])
async def gateway(server: ScriptedServer, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    """A gateway that shows payloads until it is told to reload."""
    folder = tmp_path if request.param == "sqlite" else None

    def config(payloads: bool) -> Any:
        admin = {**tokens(tmp_path), "payloads": payloads}
        return configuration({"reports": server.url}, folder=folder, admin=admin, audit=audited(tmp_path))

    async with serve(config(True), data_directory=tmp_path / "data", source=lambda: config(False)) as gateway:
        yield gateway


async def started(gateway: Gateway, host: Host, **arguments: Any) -> tuple[str, str]:
    """The id and the reference of a new task."""
    task: str = (await host.start("report", arguments))["taskId"]
    [item] = (await look(gateway, TASKS))["items"]
    return task, item["reference"]


async def payload(gateway: Gateway, reference: str, bearer: str = OPS) -> tuple[int, dict[str, Any]]:
    """Status and document of a look at a payload."""
    path = f"{TASKS}/{reference}/payload"
    code, headers, body = await gateway.operators_answer(path, Authorization=bearer)
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Cache-Control"] == "no-store"
    return code, json.loads(body)


async def test_an_operator_reads_arguments_and_the_result_as_the_host_does(
    gateway: Gateway, host: Host, server: ScriptedServer
) -> None:
    server.script["report"] = result(DONE)
    task, reference = await started(gateway, host, year=2026)
    await host.until(task, "completed")
    code, shown = await payload(gateway, reference)
    assert code == 200
    assert shown["arguments"] == {"state": "shown", "bytes": len('{"year": 2026}'), "value": {"year": 2026}}
    assert (shown["result"]["value"], shown["error"]["state"]) == (DONE, "none")
    assert (shown["reference"], shown["upstream"], shown["tool"]) == (reference, "reports", "report")
    assert task not in json.dumps(shown)


async def test_an_operator_reads_an_open_question(gateway: Gateway, tool: TalkingTool) -> None:
    host = gateway.host()
    await host.initialize("2025-11-25", capabilities=CAPABLE)
    task, reference = await started(gateway, host)
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("a-1")
        await stream.until(ELICIT)
        _, shown = await payload(gateway, reference)
        [question] = shown["questions"]
        assert (question["method"], question["value"]) == (ELICIT, FORM)
        assert (shown["result"]["state"], shown["answers"]) == ("pending", [])
        await tool.finish(DONE)
        await stream.result()


async def test_each_look_is_a_line_with_the_token_the_task_and_its_owner(
    gateway: Gateway, host: Host, server: ScriptedServer, tmp_path: Path
) -> None:
    server.script["report"] = Hold()
    _, reference = await started(gateway, host, question="the-secret-argument")
    assert (await payload(gateway, reference, VIEWER))[0] == 403
    assert (await payload(gateway, reference))[0] == 200
    assert (await payload(gateway, "t_" + "A" * 22))[0] == 404
    await told_of(tmp_path, "admin.request", 3)
    denied, shown, unknown = of(lines(tmp_path), "admin.request")
    assert (denied["outcome"], denied["data"], denied["task"]) == ("denied", {"operator": "looks"}, None)
    assert (shown["outcome"], shown["data"], shown["actor"]) == ("success", {"operator": "ops"}, None)
    assert (shown["http"]["verb"], shown["http"]["path"]) == ("GET", f"{TASKS}/{reference}/payload")
    assert (shown["task"]["ref"], shown["task"]["owner_ctx"]) == (reference, "c_anonymous")
    assert (shown["mcp"]["upstream"], shown["mcp"]["tool"]) == ("reports", "report")
    assert (unknown["outcome"], unknown["http"]["status"], unknown["task"]) == ("failure", 404, None)
    assert "the-secret" not in (tmp_path / "audit.jsonl").read_text()


async def test_a_reload_takes_payloads_away_at_once(gateway: Gateway, host: Host, server: ScriptedServer) -> None:
    server.script["report"] = Hold()
    _, reference = await started(gateway, host)
    path = f"{TASKS}/{reference}"
    assert json.loads((await gateway.operators(path, Authorization=OPS))[1])["may_show_payload"] is True
    assert (await look(gateway, path))["may_show_payload"] is False
    assert await act(gateway, "/api/v1/reload") == (200, {"result": "success", "needs_restart": []})
    assert json.loads((await gateway.operators(path, Authorization=OPS))[1])["may_show_payload"] is False
    code, refused = await payload(gateway, reference)
    assert (code, refused["error"]["code"]) == (403, "payloads_off")


async def test_no_page_of_another_origin_reads_a_payload(gateway: Gateway, host: Host, server: ScriptedServer) -> None:
    server.script["report"] = Hold()
    _, reference = await started(gateway, host, question="the-secret-argument")
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        code, body = await gateway.operators(f"{TASKS}/{reference}/payload", Authorization=OPS, **headers)
        assert code == 403
        assert "the-secret" not in body
