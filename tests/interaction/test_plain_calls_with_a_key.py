"""A plain call with an idempotency key that a task was made with: its host hears what that task comes to."""

import asyncio
from typing import Any

from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually
from interaction.questions import DONE

KEY = {"io.taskgate/idempotency-key": "k-1"}


def keyed(tool: str = "report", **more: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": {"of": 1}, "_meta": KEY, **more}


async def test_it_is_answered_with_the_outcome_of_the_task_and_runs_no_second_time(
    server: ScriptedServer, host: Host
) -> None:
    server.script["report"] = hold = Hold()
    task = (await host.ask("tools/call", keyed(task={}))).result["task"]["taskId"]
    await eventually(lambda: len(server.heard("tools/call")) == 1)
    asking = asyncio.create_task(host.ask("tools/call", keyed()))
    hold.release(DONE)
    async with bounded():
        answer = await asking
    assert answer.result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task}
    assert answer.result == (await host.ask("tasks/result", {"taskId": task})).result
    assert len(server.heard("tools/call")) == 1


async def test_a_key_of_another_call_is_refused(server: ScriptedServer, host: Host) -> None:
    created = await host.ask("tools/call", keyed(task={}))
    assert "task" in created.result
    answer = await host.ask("tools/call", keyed("echo"))
    assert answer.code == -32602
    assert [call["params"]["name"] for call in server.heard("tools/call")] == ["report"]


async def test_without_a_task_of_that_key_it_is_a_call_like_any_other(server: ScriptedServer, host: Host) -> None:
    assert "content" in (await host.ask("tools/call", keyed())).result
    assert KEY.keys().isdisjoint(server.heard("tools/call")[0]["params"].get("_meta", {}))
