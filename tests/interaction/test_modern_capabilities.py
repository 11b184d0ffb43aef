"""What hosts of the modern era that did not declare it are refused, and what they are served without it."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import GONE
from helpers.modern_schema import TASKS
from helpers.server import ScriptedServer
from interaction.refusals import NAMED, NEEDED, TASK, expect_nothing_done, refused
from requirements import covers


@covers("M-NEG-1", "M-NEG-4", "V-META-5")
@pytest.mark.parametrize("value", [GONE, None, True, "yes", []])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_requests_about_tasks_are_refused_to_hosts_without_the_extension(
    gateway: Gateway, server: ScriptedServer, method: str, value: Any
) -> None:
    declared = {} if value is GONE else {"extensions": {TASKS: value}}
    answer = await gateway.modern().ask(method, NAMED[method], capabilities=declared)
    assert refused(answer, 400, -32021)["data"] == NEEDED
    await expect_nothing_done(gateway, server)


@covers("M-NEG-4", "M-NEG-7", "V-META-4", "T-8")
async def test_what_was_declared_once_does_not_count_for_another_request(
    gateway: Gateway, server: ScriptedServer
) -> None:
    host = gateway.modern()
    refused(await host.ask("tasks/get", NAMED["tasks/get"]), 200, -32602)
    refused(await host.ask("tasks/get", NAMED["tasks/get"], capabilities={}), 400, -32021)


@covers("M-NEG-7")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_tasks_of_the_other_era_are_no_extension(
    gateway: Gateway, server: ScriptedServer, method: str
) -> None:
    claims = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    answer = await gateway.modern().ask(method, NAMED[method], capabilities=claims)
    assert refused(answer, 400, -32021)["data"] == NEEDED
    await expect_nothing_done(gateway, server)


@covers("M-NOTIF-1", "V-META-5")
async def test_news_of_tasks_are_refused_to_hosts_without_the_extension(
    gateway: Gateway, server: ScriptedServer
) -> None:
    wanted = {"notifications": {"toolsListChanged": True, "taskIds": [TASK]}}
    answer = await gateway.modern(tasks=False).ask("subscriptions/listen", wanted)
    assert refused(answer, 400, -32021)["data"] == NEEDED
    await expect_nothing_done(gateway, server)


@covers("M-NEG-2", "M-NEG-5", "M-NEG-7")
@pytest.mark.parametrize("declared", [{}, {"tasks": {"requests": {"tools": {"call": {}}}}}])
async def test_task_is_a_member_like_any_other_and_makes_no_task(
    gateway: Gateway, server: ScriptedServer, declared: dict[str, Any]
) -> None:
    for task in ({"ttl": 1}, {}, True, None, -1):
        answer = await gateway.modern().call("echo", {"a": 1}, task=task, capabilities=declared)
        assert answer.result["structuredContent"] == {"a": 1}
    assert all("task" not in call["params"] for call in server.heard("tools/call"))
    assert await gateway.count("taskgate_tasks_started_total") == 0
