"""A task that waited for input at a server of the modern era when its process fell goes on after the next start.

The process is one that holds a call in a round; what it had in its store at that moment is what the next one finds.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from helpers.modern_host import ModernHost
from helpers.modern_server import ModernServer, Rounds
from helpers.scripted_upstream import Hold, Turn, result
from helpers.several_gateways import key_file
from helpers.waiting import bounded
from helpers.whole_gateway import SystemClock, WholeGateway
from interaction.bridging import ALWAYS, DONE, FORM, ROOTS, SAMPLE, before, modern
from interaction.questioning import ACCEPTED
from interaction.test_restarts import LOST, leave_behind
from taskgate.domain.events import InputAnswered, RoundLeft, TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import Lease, OwnerKey, TaskRecord
from taskgate.lifecycle import checkpoints

__all__ = ["modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}}
ANSWER = '{"result":{"action":"accept","content":{}}}'


def sections(folder: Path | None = None, **more: Any) -> dict[str, Any]:
    """Of a gateway that makes a task of every call, over a file in the folder, with a key of its own."""
    kept = {} if folder is None else {"store": {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}}
    return {"tasks": ALWAYS | {"early_poll": {"reject_above": 1000}}, **kept, **more}


async def resting(gateway: WholeGateway, task: str, count: int) -> TaskRecord:
    """The whole record, once the call rests with so many questions open."""
    assert gateway.service._store is not None
    async with bounded():
        while True:
            now = SystemClock().now()
            owner = OwnerKey("anonymous", "reports")
            record = await gateway.service._store.load(owner, task, now=now, bodies=True)
            if record is not None and record.kept is not None and len(record.inputs) == count:
                return record
            # A store in memory lets nobody else have a turn.
            await asyncio.sleep(0)


async def fallen(
    modern: ModernServer,
    folder: Path,
    count: int,
    *events: TaskEvent,
    answers: dict[str, Any] | None = None,
    **more: Any,
) -> TaskRecord:
    """What a process leaves in the folder that fell in the first round of a task, in which so many were asked."""
    async with before(modern, **sections(**more)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        record = await resting(gateway, task, count)
        if answers:
            asked = {each.method: each.key for each in record.inputs}
            await host.update(task, {asked[method]: answer for method, answer in answers.items()})
            record = await resting(gateway, task, count - len(answers))
    for event in events:
        record = advance(record, event, record.updated_at)
    lease = Lease(holder="fallen", until=SystemClock().now() + timedelta(hours=1))
    await leave_behind(folder, replace(record, lease=lease))
    return record


def keys(found: dict[str, Any]) -> dict[str, str]:
    return {each["method"]: key for key, each in found["inputRequests"].items()}


async def test_a_round_is_made_once_its_last_answer_is_there_and_so_are_those_behind_it(
    modern: ModernServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "one"},
        {"inputRequests": {"c": FORM}, "requestState": "two"},
    )
    task = (await fallen(modern, tmp_path, 2, answers={"roots/list": {"roots": []}})).id
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        (key,) = (await host.until(task, "input_required"))["inputRequests"]
        assert len(rounds.turns) == 1
        await host.update(task, {key: ACCEPTED})
        other = keys(await until_other(host, task, key))["elicitation/create"]
        await host.update(task, {other: {"action": "decline"}})
        done = await host.until(task, "completed")
        assert await gateway.count("taskgate_task_recoveries_total", outcome="retried") == 1
    assert done["result"]["structuredContent"] == {"answers": rounds.answers}
    assert rounds.answers == [{"a": ACCEPTED, "b": {"roots": []}}, {"c": {"action": "decline"}}]
    assert (rounds.states, len(rounds.turns)) == (["one", "two"], 3)


async def until_other(host: ModernHost, task: str, key: str) -> dict[str, Any]:
    """The task once it waits for something else."""
    async with bounded():
        while key in (found := await host.until(task, "input_required"))["inputRequests"]:
            pass
    return found


async def test_a_round_whose_answers_were_all_there_leaves_at_the_next_start(
    modern: ModernServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    task = (await fallen(modern, tmp_path, 1, InputAnswered(key="input-1", response=ANSWER))).id
    async with before(modern, **sections(tmp_path)) as gateway:
        done = await gateway.modern(capabilities=ASKABLE).until(task, "completed")
    assert done["result"]["content"] == DONE["content"]
    assert (rounds.answers, rounds.states) == ([{"a": {"action": "accept", "content": {}}}], ["one"])


async def test_a_round_that_may_have_left_is_not_made_again(modern: ModernServer, tmp_path: Path) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    answered = InputAnswered(key="input-1", response=ANSWER)
    task = (await fallen(modern, tmp_path, 1, answered, RoundLeft())).id
    async with before(modern, **sections(tmp_path)) as gateway:
        found = await gateway.modern(capabilities=ASKABLE).until(task, "failed")
    assert found["error"]["data"] == LOST
    assert len(rounds.turns) == 1


async def test_a_question_that_nobody_answers_after_the_start_has_its_time(
    modern: ModernServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    task = (await fallen(modern, tmp_path, 1)).id
    soon = sections(tmp_path)
    soon["tasks"] = soon["tasks"] | {"input_required": {"max_wait": "1s"}}
    async with before(modern, **soon) as gateway:
        await gateway.modern(capabilities=ASKABLE).until(task, "completed")
    assert rounds.answers == [{"a": {"action": "cancel"}}]


async def test_a_cancel_ends_a_task_that_rests_and_its_server_hears_nothing_more(
    modern: ModernServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    task = (await fallen(modern, tmp_path, 1)).id
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await host.until(task, "input_required")
        await host.cancel(task)
        await host.until(task, "cancelled")
        await gateway.service.close()
    assert len(rounds.turns) == 1


@pytest.mark.parametrize("theirs", ["context.key", "other.key"])
async def test_a_round_goes_on_only_where_one_of_us_kept_it(modern: ModernServer, tmp_path: Path, theirs: str) -> None:
    """Who can write to the store cannot have anything sent (T25)."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    named = [
        {"mode": "none", "context": {"key_file": str(key_file(tmp_path, name))}} for name in (theirs, "context.key")
    ]
    answered = InputAnswered(key="input-1", response=ANSWER)
    task = (await fallen(modern, tmp_path, 1, answered, auth=named[0])).id
    async with before(modern, **sections(tmp_path, auth=named[1])) as gateway:
        ours = theirs == "context.key"
        await gateway.modern(capabilities=ASKABLE).until(task, "completed" if ours else "failed")
    assert len(rounds.turns) == 1 + ours


async def test_a_state_that_is_too_large_is_not_kept(modern: ModernServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_SEALED", 1000)
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s" * 1000}, answer=DONE)
    async with before(modern, **sections()) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        (key,) = (await host.until(task, "input_required"))["inputRequests"]
        assert gateway.service._store is not None
        owner = OwnerKey("anonymous", "reports")
        record = await gateway.service._store.load(owner, task, now=SystemClock().now())
        assert record is not None
        assert record.kept is None
        await host.update(task, {key: ACCEPTED})
        await host.until(task, "completed")
    assert rounds.answers == [{"a": ACCEPTED}]


async def test_what_a_host_cannot_be_asked_is_answered_by_nobody_after_the_start_either(
    modern: ModernServer, tmp_path: Path
) -> None:
    """Its server asked for a sample as well, for which there is no answer but a sample (10.2)."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    record = await fallen(modern, tmp_path, 1)
    assert record.kept is not None
    opened = checkpoints.UNSEALED.open(record)
    assert opened is not None
    asked = (*opened.asked, checkpoints.AskedQuestion("b", SAMPLE["method"], None))  # type: ignore[arg-type]
    sealed = checkpoints.UNSEALED.seal(record.owner, record.id, opened._replace(asked=asked))
    assert sealed is not None
    folder = tmp_path / "other"
    folder.mkdir()
    answered = advance(record, InputAnswered(key="input-1", response=ANSWER), record.updated_at)
    lease = Lease(holder="fallen", until=SystemClock().now() + timedelta(hours=1))
    kept = replace(record.kept, sealed=sealed)
    await leave_behind(folder, replace(answered, kept=kept, lease=lease))
    async with before(modern, **sections(folder)) as gateway:
        found = await gateway.modern(capabilities=ASKABLE).until(record.id, "failed")
    assert found["error"]["data"]["reason"] == "unanswered"
    assert len(rounds.turns) == 1


async def test_what_the_record_keeps_of_a_round_is_gone_before_the_next_one_is_at_the_server(
    modern: ModernServer,
) -> None:
    """Whoever takes the task over from here on cannot make it again."""
    second = Hold()
    first = result({"resultType": "input_required", "inputRequests": {"a": FORM}, "requestState": "one"})

    async def asks(turn: Turn) -> web.StreamResponse:
        return await (second if "inputResponses" in turn.message["params"] else first)(turn)

    modern.script["report"] = asks
    async with before(modern, **sections()) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        record = await resting(gateway, task, 1)
        await host.update(task, {record.inputs[0].key: ACCEPTED})
        async with bounded():
            await second.begun.wait()
        assert gateway.service._store is not None
        left = await gateway.service._store.load(record.owner, task, now=SystemClock().now())
        assert left is not None
        assert (left.kept, left.may_go_on) == (None, False)
        second.release(DONE)
        await host.until(task, "completed")
