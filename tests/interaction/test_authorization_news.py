"""What a host hears of a task without asking, and how often a wait for one is judged."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.audit_logs import audited, kept, lines, of
from requirements import covers

REPORTING: Final = {"tool": "report", "require_scopes": ["reports.write"]}
STATUS: Final = "notifications/tasks/status"


def opened(
    server: ScriptedServer, issuer: TokenIssuer, rule: Mapping[str, Any]
) -> AbstractAsyncContextManager[Gateway]:
    return serve(guarded({"reports": server.url}, issuer, authorization={"rules": [rule]}))


@covers("A-AUTH-12")
@pytest.mark.parametrize("scope", ["reports.write", "reports.read"])
async def test_a_host_hears_only_of_tasks_that_it_may_get_with_the_token_of_now(
    server: ScriptedServer, issuer: TokenIssuer, scope: str
) -> None:
    server.script["report"] = hold = Hold()
    async with opened(server, issuer, REPORTING) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url(), "reports.write"))
        report = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
        host.token = issuer.token(gateway.url(), scope)
        async with host.listen() as stream:
            hold.release({"content": []})
            await gateway.counted("taskgate_tasks_finished_total")
            # News come in their order, so that whatever was told of the first is there before this one.
            last = (await host.start("echo"))["taskId"]
            await eventually(lambda: last in [note["params"]["taskId"] for note in stream.of(STATUS)])
        assert await gateway.count("taskgate_access_refusals_total") == 0
    heard = [note["params"]["taskId"] for note in stream.of(STATUS)]
    assert heard == ([report, last] if scope == "reports.write" else [last])


@covers("A-AUTH-12")
async def test_a_stream_hears_only_what_the_token_may_that_it_was_opened_with(
    server: ScriptedServer, issuer: TokenIssuer
) -> None:
    async with opened(server, issuer, REPORTING) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url(), "reports.read"))
        async with host.listen() as stream:
            host.token = issuer.token(gateway.url(), "reports.write")
            report = (await host.start("report"))["taskId"]
            await gateway.counted("taskgate_tasks_finished_total")
            last = (await host.start("echo"))["taskId"]
            await eventually(lambda: last in [note["params"]["taskId"] for note in stream.of(STATUS)])
    assert report not in [note["params"]["taskId"] for note in stream.of(STATUS)]


async def test_a_wait_for_a_result_is_judged_once_whatever_news_it_waits_through(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    rule = {**REPORTING, "methods": ["tasks/result"], "shadow": True}
    config = guarded({"reports": server.url}, issuer, authorization={"rules": [rule]}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        task = await host.start("report")
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
        await gateway.counted("taskgate_streams", side="downstream", kind="response")
        hold.release({"content": []})
        async with bounded():
            assert (await waiting).result["content"] == []
    (refused,) = of(lines(tmp_path), "access.refused", "access.shadow_refused")
    assert (refused["event"], refused["data"]["rule"]) == ("access.shadow_refused", "rules[0]")
    assert refused["mcp"]["method"] == "tasks/result"
