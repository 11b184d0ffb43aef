"""Calls that a server of 2025-11-25 makes tasks of: which they are, and what comes of them at once."""

import json
from typing import Any

import pytest

from helpers.server import Hold, ScriptedServer, error, result
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded
from requirements import covers
from taskgate.domain.events import CallFaulted, CallSucceeded
from unit.upstream.conftest import Caller
from unit.upstream.natively import DONE, end_of, failure_of, relayed, running

DAY = 86_400_000


@covers("L-TOOL-6", "L-CAP-3")
@pytest.mark.parametrize(("tool", "relays"), [("research", True), ("research", False), ("index", False)])
async def test_a_tool_that_has_tasks_is_called_with_the_wish_for_one(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks, tool: str, relays: bool
) -> None:
    call = relayed(caller, tool) if relays else running(caller, tool)
    task = await tasks.made()
    assert (task.params["name"], task.params["task"]) == (tool, {"ttl": DAY if relays else 60_000})
    task.complete(DONE)
    async with bounded():
        came = await call
    if relays:
        assert json.loads(came.text)["result"] == DONE
    else:
        assert came == CallSucceeded(result=json.dumps(DONE), tool_error=False)
    assert tasks.cancelled == []


@covers("L-TOOL-6")
@pytest.mark.parametrize(("tool", "relays"), [("index", True), ("echo", True), ("echo", False), ("unlisted", False)])
async def test_any_other_call_is_made_plainly(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks, tool: str, relays: bool
) -> None:
    async with bounded():
        await (relayed(caller, tool) if relays else running(caller, tool))
    (call,) = server.heard("tools/call")
    assert "task" not in call["params"]
    assert tasks.all == []


@covers("L-TOOL-6")
async def test_a_server_that_does_not_declare_it_is_asked_for_no_task_whatever_its_tools_say(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    server.capabilities["tasks"] = {"list": {}}
    async with bounded():
        assert isinstance(await running(caller, "research"), CallFaulted)
    assert server.heard("tools/list") == []
    assert tasks.all == []


@pytest.mark.parametrize("reply", [result(DONE), error(-32602, "Unknown topic")])
async def test_what_a_server_answers_at_once_is_the_answer(caller: Caller, tasks: LegacyTasks, reply: Any) -> None:
    tasks.instead["tools/call"] = [reply, reply]
    plain = await end_of(relayed(caller))
    assert json.loads(plain.text).get("result", DONE) == DONE
    assert isinstance(await end_of(running(caller)), CallSucceeded if plain.error is None else CallFaulted)
    assert tasks.looks() == 0


async def test_a_handle_that_cannot_be_followed_breaks_the_protocol(caller: Caller, tasks: LegacyTasks) -> None:
    tasks.instead["tools/call"] = [result({"task": {"taskId": "", "status": "working"}})]
    failure = await failure_of(running(caller))
    assert (failure.reason, failure.dispatched) == ("malformed", True)


async def test_the_tools_of_a_server_are_read_once_for_all_its_calls(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    for count in (1, 2):
        call = relayed(caller)
        (await tasks.made(count)).complete(DONE)
        await end_of(call)
    assert len(server.heard("tools/list")) == 1


async def test_a_call_waits_for_the_list_of_tools_no_longer_than_it_may_run(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    server.methods["tools/list"] = hold = Hold()
    failure = await failure_of(running(caller, within=0.2))
    assert (failure.reason, failure.dispatched) == ("timeout", False)
    assert server.heard("tools/call") == []
    hold.release({"tools": []})


async def test_where_the_tools_cannot_be_read_the_server_itself_refuses_a_plain_call(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    server.methods["tools/list"] = error(-32603, "Not now")
    refused = await end_of(relayed(caller))
    assert json.loads(refused.text)["error"]["message"] == "Only as a task"
