"""What a host hears of a task without asking, and how often a wait for one is judged."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest

from helpers.scripted_upstream import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import WholeGateway, running
from interaction.conftest import Told
from requirements import covers
from taskgate.telemetry.events import AccessRefused, StreamOpened, TaskFinished

REPORTING: Final = {"tool": "report", "require_scopes": ["reports.write"]}
STATUS: Final = "notifications/tasks/status"


def opened(
    server: ScriptedServer, issuer: TokenIssuer, rule: Mapping[str, Any]
) -> AbstractAsyncContextManager[WholeGateway]:
    return running(guarded({"reports": server.url}, issuer, authorization={"rules": [rule]}))


@covers("A-AUTH-12")
@pytest.mark.parametrize("scope", ["reports.write", "reports.read"])
async def test_a_host_hears_only_of_tasks_that_it_may_get_with_the_token_of_now(
    server: ScriptedServer, issuer: TokenIssuer, told: Told, scope: str
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
            await eventually(lambda: told.of(TaskFinished))
            # News come in their order, so that whatever was told of the first is there before this one.
            last = (await host.start("echo"))["taskId"]
            await eventually(lambda: last in [note["params"]["taskId"] for note in stream.of(STATUS)])
    heard = [note["params"]["taskId"] for note in stream.of(STATUS)]
    assert heard == ([report, last] if scope == "reports.write" else [last])
    assert told.of(AccessRefused) == []


@covers("A-AUTH-12")
async def test_a_stream_hears_only_what_the_token_may_that_it_was_opened_with(
    server: ScriptedServer, issuer: TokenIssuer, told: Told
) -> None:
    async with opened(server, issuer, REPORTING) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url(), "reports.read"))
        async with host.listen() as stream:
            host.token = issuer.token(gateway.url(), "reports.write")
            report = (await host.start("report"))["taskId"]
            await eventually(lambda: told.of(TaskFinished))
            last = (await host.start("echo"))["taskId"]
            await eventually(lambda: last in [note["params"]["taskId"] for note in stream.of(STATUS)])
    assert report not in [note["params"]["taskId"] for note in stream.of(STATUS)]


async def test_a_wait_for_a_result_is_judged_once_whatever_news_it_waits_through(
    server: ScriptedServer, issuer: TokenIssuer, told: Told
) -> None:
    server.script["report"] = hold = Hold()
    async with opened(server, issuer, {**REPORTING, "methods": ["tasks/result"], "shadow": True}) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        task = await host.start("report")
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
        await eventually(lambda: StreamOpened("downstream", "response") in told.emitted)
        hold.release({"content": []})
        async with bounded():
            assert (await waiting).result["content"] == []
    (refused,) = told.of(AccessRefused)
    assert (refused.method, refused.shadow, refused.rule, refused.tool) == ("tasks/result", True, "rules[0]", "report")
