"""Tasks of a server that are believed to be at work: what is there of them, who follows them, and for how long."""

import json
from typing import Any

from helpers.server import result, server_request
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import eventually
from taskgate.upstream.duplex.outstanding import LEAST, RunningTasks
from unit.upstream.conftest import EVERYTHING
from unit.upstream.houses import House


def shown(status: str, id: str = "t", **more: Any) -> bytes:
    """An answer that shows a task."""
    task = {"taskId": id, "status": status, **more}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": task}).encode()


def test_a_task_counts_from_when_it_is_seen_until_it_is_over() -> None:
    tasks = RunningTasks()
    for status in ("working", "input_required"):
        tasks.look(shown(status), "alice", 0.0)
        assert (tasks.count(0.0), tasks.of("t")) == (1, "alice")
    for status in ("completed", "failed", "cancelled", "unheard of"):
        tasks.look(shown("working"), "alice", 0.0)
        tasks.look(shown(status), "alice", 0.0)
        assert (tasks.count(0.0), tasks.of("t")) == (0, None)


def test_the_outcome_of_a_task_is_its_end() -> None:
    tasks = RunningTasks()
    tasks.look(shown("working"), "alice", 0.0)
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
    tasks.look(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [], "_meta": related}}).encode(), "", 0.0)
    assert tasks.count(0.0) == 0


def test_a_task_that_nobody_looks_at_is_believed_in_for_a_while_and_longer_where_looks_are_rare() -> None:
    tasks = RunningTasks()
    tasks.look(shown("working", "often", pollInterval=1_000), "alice", 0.0)
    tasks.look(shown("working", "rarely", pollInterval=60_000), "alice", 0.0)
    assert tasks.count(LEAST - 1) == 2
    assert tasks.count(LEAST + 1) == 1
    assert tasks.count(181) == 0


def test_a_large_answer_is_not_looked_at() -> None:
    tasks = RunningTasks()
    tasks.look(shown("working", more="x" * 20_000), "alice", 0.0)
    assert tasks.count(0.0) == 0


async def test_a_line_whose_server_is_at_work_is_not_idle_though_nobody_waits(
    house: House, program: ScriptedChannels
) -> None:
    program.methods["tools/call"] = result({"task": {"taskId": "t", "status": "working"}})
    guest = house.guest()
    await guest.call()
    ears = program.lines[0].ears
    assert ears is not None
    assert ears.in_flight == 1
    program.methods["tasks/get"] = result({"taskId": "t", "status": "completed"})
    await guest.ask("tasks/get", None)
    assert ears.in_flight == 0


async def test_a_question_about_a_task_is_for_who_looked_at_it(house: House, program: ScriptedChannels) -> None:
    guests = [house.guest(host=EVERYTHING) for _ in range(3)]
    for guest in guests:
        await guest.call()
        await eventually(lambda guest=guest: "get opened" in guest.heard.streams)
    program.methods["tasks/get"] = result({"taskId": "t", "status": "working"})
    await guests[1].ask("tasks/get", None)
    program.lines[0].say(server_request("q", _meta={"io.modelcontextprotocol/related-task": {"taskId": "t"}}))
    await eventually(lambda: any(guest.heard.of_session.questions for guest in guests))
    assert [len(guest.heard.of_session.questions) for guest in guests] == [0, 1, 0]
