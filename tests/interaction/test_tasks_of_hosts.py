"""Tasks that a host keeps for its server: asked for by the server, read by the server, and none of the gateway's."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host
from helpers.server import FORM, ScriptedServer, TalkingTool
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, ASKED, CAPABLE, DONE, ELICIT, RELATED, SAID, SAMPLE
from requirements import covers

OWN = {
    "list": {},
    "cancel": {},
    "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
}
THEIRS = {
    "taskId": "host-1",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "lastUpdatedAt": "2026-01-01T00:00:00.000Z",
    "ttl": 60_000,
}


async def keeper(gateway: Gateway, tasks: Any = OWN, revision: str = "2025-11-25") -> Host:
    """A host that keeps tasks for its server."""
    host = gateway.host()
    await host.initialize(revision, capabilities={**CAPABLE, "tasks": tasks})
    return host


@covers("L-HOST-1", "L-CAP-3")
@pytest.mark.parametrize(
    ("tasks", "declared"),
    [
        (OWN, OWN),
        ({"requests": {"sampling": {"createMessage": {}}}}, {"requests": {"sampling": {"createMessage": {}}}}),
        (None, None),
    ],
)
async def test_a_server_is_told_of_the_tasks_that_its_host_declared(
    gateway: Gateway, server: ScriptedServer, tasks: Any, declared: Any
) -> None:
    await keeper(gateway, tasks)
    assert server.heard("initialize")[0]["params"]["capabilities"].get("tasks") == declared


@covers("L-HOST-1")
async def test_a_host_of_a_revision_without_tasks_keeps_none(gateway: Gateway, server: ScriptedServer) -> None:
    await keeper(gateway, revision="2025-06-18")
    assert "tasks" not in server.heard("initialize")[0]["params"]["capabilities"]


@covers("L-HOST-2", "L-HOST-3", "L-HOST-4")
async def test_a_host_keeps_a_task_for_its_server_from_its_handle_to_its_result(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await keeper(gateway)
    async with host.asking("tools/call", {"name": "report"}) as stream:
        await tool.ask("q", SAMPLE, {**ASKED, "task": {"ttl": 60_000}})
        asked = await stream.until(SAMPLE)
        assert asked["params"] == {**ASKED, "task": {"ttl": 60_000}}
        await host.respond(asked["id"], {"task": THEIRS})
        assert (await tool.told("q"))["result"] == {"task": THEIRS}
        await tool.ask("g", "tasks/get", {"taskId": "host-1"})
        asked = await stream.until("tasks/get")
        assert asked["params"] == {"taskId": "host-1"}
        await host.respond(asked["id"], THEIRS)
        assert (await tool.told("g"))["result"] == THEIRS
        assert (await host.tell("notifications/tasks/status", {**THEIRS, "status": "completed"})).status == 202
        await eventually(lambda: server.heard("notifications/tasks/status"))
        assert server.heard("notifications/tasks/status")[0]["params"] == {**THEIRS, "status": "completed"}
        await tool.ask("r", "tasks/result", {"taskId": "host-1"})
        asked = await stream.until("tasks/result")
        outcome = {**SAID, "_meta": {RELATED: {"taskId": "host-1"}}}
        await host.respond(asked["id"], outcome)
        assert (await tool.told("r"))["result"] == outcome
        for id_, method, params, answer in (
            ("l", "tasks/list", {}, {"tasks": [THEIRS]}),
            ("c", "tasks/cancel", {"taskId": "host-1"}, {**THEIRS, "status": "cancelled"}),
        ):
            await tool.ask(id_, method, params)
            asked = await stream.until(method)
            await host.respond(asked["id"], answer)
            assert (await tool.told(id_))["result"] == answer
        await tool.finish(DONE)
        assert await stream.result() == DONE


@covers("L-HOST-3", "L-HOST-4", "I-ISO-6", "T51")
async def test_a_hosts_task_is_none_of_the_gateways(gateway: Gateway, tool: TalkingTool) -> None:
    host = await keeper(gateway)
    task = (await host.start("report"))["taskId"]
    mine = {**THEIRS, "taskId": task, "status": "failed"}
    await host.tell("notifications/tasks/status", mine)
    assert (await host.task(task))["status"] == "working"
    assert (await host.ask("tasks/get", {"taskId": "host-1"})).code == -32602
    await tool.finish(DONE)
    await host.ask("tasks/result", {"taskId": task})


@covers("L-HOST-5")
async def test_during_a_task_of_the_gateway_it_is_an_input_request_as_any_other(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await keeper(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("q", ELICIT, {**FORM, "task": {}})
        asked = await stream.until(ELICIT)
        assert asked["params"] == {**FORM, "task": {}, "_meta": {RELATED: {"taskId": task}}}
        await host.until(task, "input_required")
        await host.respond(asked["id"], {"task": THEIRS})
        assert (await tool.told("q"))["result"] == {"task": THEIRS}
        # The server has a handle, and waits for more.
        assert (await host.task(task))["status"] == "input_required"
        assert (await host.respond(asked["id"], ACCEPTED)).status == 202
        await tool.ask("g", "tasks/get", {"taskId": "host-1"})
        await host.respond((await stream.until("tasks/get"))["id"], THEIRS)
        await tool.told("g")
        assert (await host.task(task))["status"] == "input_required"
        await tool.ask("r", "tasks/result", {"taskId": "host-1"})
        asked = await stream.until("tasks/result")
        assert asked["params"] == {"taskId": "host-1", "_meta": {RELATED: {"taskId": task}}}
        await host.respond(asked["id"], {**ACCEPTED, "_meta": {RELATED: {"taskId": "host-1"}}})
        assert (await tool.told("r"))["result"] == {**ACCEPTED, "_meta": {RELATED: {"taskId": "host-1"}}}
        await host.until(task, "working")
        assert len(stream.of(ELICIT)) == 1
        await tool.finish(DONE)
        await stream.result()


@covers("L-HOST-6")
async def test_a_host_that_declared_no_tasks_is_asked_plainly(gateway: Gateway, tool: TalkingTool) -> None:
    host = await keeper(gateway, tasks={"requests": {"elicitation": {"create": {}}}})
    async with host.asking("tools/call", {"name": "report"}) as stream:
        await tool.ask(1, SAMPLE, {**ASKED, "task": {"ttl": 1}})
        asked = await stream.until(SAMPLE)
        assert asked["params"] == ASKED
        await host.respond(asked["id"], SAID)
        await tool.told(1)
        await tool.ask(2, "tasks/list", {})
        assert (await tool.told(2))["error"]["code"] == -32601
        await tool.finish(DONE)
        await stream.result()


@covers("L-CAP-4")
@pytest.mark.parametrize("as_task", [False, True])
async def test_a_host_that_keeps_tasks_is_asked_for_one_only_where_its_server_wants_it(
    gateway: Gateway, tool: TalkingTool, as_task: bool
) -> None:
    host = await keeper(gateway)
    params = {"taskId": (await host.start("report"))["taskId"]} if as_task else {"name": "report"}
    async with host.asking("tasks/result" if as_task else "tools/call", params) as stream:
        for method, asking, answer in ((ELICIT, FORM, ACCEPTED), (SAMPLE, ASKED, SAID)):
            await tool.ask(method, method, asking)
            asked = await stream.until(method)
            assert asked["params"].keys() - {"_meta"} == asking.keys()
            await host.respond(asked["id"], answer)
            assert (await tool.told(method))["result"] == answer
        await tool.finish(DONE)
        await stream.result()
        assert [each["method"] for each in stream.heard if "id" in each and "method" in each] == [ELICIT, SAMPLE]
