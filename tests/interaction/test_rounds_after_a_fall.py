"""A task that waited for input at a server of the modern era when its process fell goes on after the next start.

The process is one that holds a call in a round; what it had in its store at that moment is what the next one finds.
"""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import file_store
from helpers.gateway.gateway import Environment
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import Hold, Rounds, ScriptedServer, Turn, result
from helpers.stored_tasks import StoredTask, copied, stored_task, stored_tasks, with_another_question
from helpers.waiting import bounded, eventually, until
from interaction.bridges import ALWAYS, DONE, FORM, ROOTS, SAMPLE, before, modern
from interaction.falls import LOST, MortalStore
from interaction.questions import ACCEPTED, ELICIT, capable

__all__ = ["modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}}
ANSWERED = {"elicitation/create": ACCEPTED}


def sections(folder: Path, **more: Any) -> dict[str, Any]:
    """Of a gateway that makes a task of every call, over a file in the folder, with a key of its own."""
    store = {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}
    return {"tasks": ALWAYS | {"early_poll": {"reject_above": 1000}}, "store": store, **more}


async def resting(folder: Path, task: str, count: int) -> StoredTask:
    """The task as it is stored, once its call rests with so many questions open."""
    return await stored_task(folder, task, lambda found: found.checkpoint and len(found.inputs) == count)


async def asking(host: Host, task: str, count: int) -> dict[str, Any]:
    """The task as its host sees it, once that sees so many questions: the file may have them a moment before."""
    return await until(lambda: host.task(task), lambda found: len(found.get("inputRequests", {})) == count)


async def fallen(
    modern: ScriptedServer,
    folder: Path,
    count: int,
    *,
    answers: dict[str, Any] | None = None,
    dies_after: int | None = None,
    **more: Any,
) -> str:
    """The task of which a process fell in the first round, in which so many were asked; its store is in the folder.

    With `dies_after` it fell when its store had taken so many changes since the host came with its answers: the first
    is the last answer, the second says that the next round leaves.
    """
    elsewhere = folder / "fallen"
    elsewhere.mkdir(parents=True)
    store = MortalStore(await file_store(elsewhere))
    around = Environment(store=store)  # type: ignore[arg-type]
    async with before(modern, environment=around, **sections(elsewhere, **more)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task: str = (await host.start("report"))["taskId"]
        await resting(elsewhere, task, count)
        asked = keys(await asking(host, task, count))
        if dies_after is not None:
            store.die_after(dies_after)
        if answers:
            await host.update(task, {asked[method]: answer for method, answer in answers.items()})
            if dies_after is None:
                await resting(elsewhere, task, count - len(answers))
            else:
                await eventually(lambda: store.is_dead)
        copied(elsewhere, folder)
    return task


def keys(found: dict[str, Any]) -> dict[str, str]:
    return {each["method"]: key for key, each in found["inputRequests"].items()}


async def test_a_round_is_made_once_its_last_answer_is_there_and_so_are_those_behind_it(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "one"},
        {"inputRequests": {"c": FORM}, "requestState": "two"},
    )
    task = await fallen(modern, tmp_path, 2, answers={"roots/list": {"roots": []}})
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


async def test_a_round_of_a_legacy_host_goes_on_in_the_era_in_which_it_began(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    """An earlier release used the modern era of a server of both eras for every host; or a server learned the other."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    elsewhere = tmp_path / "fallen"
    elsewhere.mkdir()
    async with before(modern, **sections(elsewhere)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        await resting(elsewhere, task, 1)
        copied(elsewhere, tmp_path)
    modern.era = "both"
    async with before(modern, **sections(tmp_path)) as gateway:
        host.http, host.url = gateway.http, gateway.url("reports")
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            asked = await stream.until(ELICIT)
            await host.respond(asked["id"], ACCEPTED)
            assert (await stream.result())["structuredContent"] == {"answers": [{"a": ACCEPTED}]}
        assert (await host.call("echo", {"n": 1})).result["structuredContent"] == {"n": 1}
    assert rounds.states == ["one"]
    calls = [each for each in modern.verbs("POST") if each.message.get("method") == "tools/call"]
    called = [(each.message["params"]["name"], each.headers["mcp-protocol-version"]) for each in calls]
    assert called == [("report", "2026-07-28"), ("report", "2026-07-28"), ("echo", "2025-11-25")]


async def until_other(host: Host, task: str, key: str) -> dict[str, Any]:
    """The task once it waits for something else."""
    async with bounded():
        while key in (found := await host.until(task, "input_required"))["inputRequests"]:
            pass
    return found


async def test_the_last_question_of_a_round_is_written_with_what_another_process_needs(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    """Else a process that falls right after a host has seen the question loses the task."""
    modern.script["report"] = Rounds({"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "one"})
    store = MortalStore(await file_store(tmp_path))
    around = Environment(store=store)  # type: ignore[arg-type]
    async with before(modern, environment=around, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        await resting(tmp_path, task, 2)
        await host.cancel(task)
        await host.until(task, "cancelled")
    asking = [(len(each.inputs), each.checkpoint is not None) for each in store.written if each.inputs]
    assert asking == [(1, False), (2, True)]


async def test_a_round_whose_answers_were_all_there_leaves_at_the_next_start(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    task = await fallen(modern, tmp_path, 1, answers=ANSWERED, dies_after=1)
    async with before(modern, **sections(tmp_path)) as gateway:
        done = await gateway.modern(capabilities=ASKABLE).until(task, "completed")
    assert done["result"]["content"] == DONE["content"]
    assert (rounds.answers, rounds.states) == ([{"a": ACCEPTED}], ["one"])


async def test_a_round_that_may_have_left_is_not_made_again(modern: ScriptedServer, tmp_path: Path) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    task = await fallen(modern, tmp_path, 1, answers=ANSWERED, dies_after=2)
    made = len(rounds.turns)
    async with before(modern, **sections(tmp_path)) as gateway:
        found = await gateway.modern(capabilities=ASKABLE).until(task, "failed")
    assert found["error"]["data"] == LOST
    assert len(rounds.turns) == made


async def test_a_question_that_nobody_answers_after_the_start_has_its_time(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    task = await fallen(modern, tmp_path, 1)
    soon = sections(tmp_path)
    soon["tasks"] = soon["tasks"] | {"input_required": {"max_wait": "1s"}}
    async with before(modern, **soon) as gateway:
        await gateway.modern(capabilities=ASKABLE).until(task, "completed")
    assert rounds.answers == [{"a": {"action": "cancel"}}]


async def test_a_cancel_ends_a_task_that_rests_and_its_server_hears_nothing_more(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    task = await fallen(modern, tmp_path, 1)
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await host.until(task, "input_required")
        await host.cancel(task)
        await host.until(task, "cancelled")
        await gateway.close()
    assert len(rounds.turns) == 1


@pytest.mark.parametrize("theirs", ["context.key", "other.key"])
async def test_a_round_goes_on_only_where_one_of_us_kept_it(
    modern: ScriptedServer, tmp_path: Path, theirs: str
) -> None:
    """Who can write to the store cannot have anything sent (T25)."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"}, answer=DONE)
    named = [
        {"mode": "none", "context": {"key_file": str(key_file(tmp_path, name))}} for name in (theirs, "context.key")
    ]
    task = await fallen(modern, tmp_path, 1, answers=ANSWERED, dies_after=1, auth=named[0])
    async with before(modern, **sections(tmp_path, auth=named[1])) as gateway:
        ours = theirs == "context.key"
        await gateway.modern(capabilities=ASKABLE).until(task, "completed" if ours else "failed")
    assert len(rounds.turns) == 1 + ours


async def test_a_state_that_is_too_large_is_not_kept(modern: ScriptedServer, tmp_path: Path) -> None:
    large = "s" * 300_000
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": large}, answer=DONE)
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        (key,) = (await host.until(task, "input_required"))["inputRequests"]
        assert stored_tasks(tmp_path)[task].checkpoint is None
        await host.update(task, {key: ACCEPTED})
        await host.until(task, "completed")
    assert (rounds.answers, rounds.states) == ([{"a": ACCEPTED}], [large])


async def test_what_a_host_cannot_be_asked_is_answered_by_nobody_after_the_start_either(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    """Its server asked for a sample as well, for which there is no answer but a sample (10.2)."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    task = await fallen(modern, tmp_path, 1, answers=ANSWERED, dies_after=1)
    with_another_question(tmp_path, task, "b", SAMPLE["method"])
    async with before(modern, **sections(tmp_path)) as gateway:
        found = await gateway.modern(capabilities=ASKABLE).until(task, "failed")
    assert found["error"]["data"]["reason"] == "unanswered"
    assert len(rounds.turns) == 1


async def test_what_the_record_keeps_of_a_round_is_gone_before_the_next_one_is_at_the_server(
    modern: ScriptedServer, tmp_path: Path
) -> None:
    """Whoever takes the task over from here on cannot make it again."""
    second = Hold()
    first = result({"resultType": "input_required", "inputRequests": {"a": FORM}, "requestState": "one"})

    async def asks(turn: Turn) -> web.StreamResponse:
        return await (second if "inputResponses" in turn.message["params"] else first)(turn)

    modern.script["report"] = asks
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        await resting(tmp_path, task, 1)
        (key,) = (await asking(host, task, 1))["inputRequests"]
        await host.update(task, {key: ACCEPTED})
        async with bounded():
            await second.begun.wait()
        left = stored_tasks(tmp_path)[task]
        assert (left.checkpoint, left.was_sent, left.reruns) == (None, True, 0)
        second.release(DONE)
        await host.until(task, "completed")
