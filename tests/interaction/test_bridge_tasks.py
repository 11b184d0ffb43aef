"""Tasks before a server of the modern era: read, answered and told in either era, whoever made them."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.server import Hold, Rounds, ScriptedServer, Turn, event, note, open_stream, progress_note, stream
from helpers.waiting import bounded, eventually
from interaction.bridges import ALWAYS, DONE, FORM, ROOTS, SAMPLE, before, bridge, modern
from interaction.questions import ACCEPTED, CAPABLE, ELICIT
from requirements import covers

__all__ = ["bridge", "modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}, "sampling": {}}
SERVER_SAYS = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}, "own": 1}


@covers("I-ISO-7", "B-CONV-1", "B-CONV-3", "M-GET-2", "T-14")
@pytest.mark.parametrize("made_in", ["legacy", "modern"])
async def test_an_outcome_is_shown_to_either_era_in_its_own_words(modern: ScriptedServer, made_in: str) -> None:
    modern.script["echo"] = stream({"content": [], "structuredContent": [1], "_meta": SERVER_SAYS})
    async with before(modern, tasks=ALWAYS) as gateway:
        old, new = await gateway.greeted(), gateway.modern()
        task = (await (old if made_in == "legacy" else new).start("echo"))["taskId"]
        result = (await new.until(task, "completed"))["result"]
        fetched = (await old.ask("tasks/result", {"taskId": task})).result
    assert (result["structuredContent"], result["content"]) == ([1], [])
    assert result["resultType"] == "complete"
    assert result["_meta"]["own"] == fetched["_meta"]["own"] == 1
    assert fetched["content"] == [{"type": "text", "text": "[1]"}]
    assert not {"resultType", "structuredContent"} & set(fetched)
    assert "io.modelcontextprotocol/serverInfo" not in fetched["_meta"]


@covers("L-INPUT-3", "M-MRTR-3", "B-CONV-6")
async def test_a_round_of_a_task_of_the_modern_era_is_answered_in_a_session(modern: ScriptedServer) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "s"}, answer=DONE
    )
    async with before(modern, tasks=ALWAYS) as gateway:
        task = (await gateway.modern(capabilities=ASKABLE).start("report"))["taskId"]
        host = gateway.host()
        await host.initialize(capabilities=CAPABLE)
        await host.until(task, "input_required")
        async with host.asking("tasks/result", {"taskId": task}) as heard:
            for method, answer in ((ELICIT, ACCEPTED), ("roots/list", {"roots": []})):
                asked = await heard.until(method)
                await host.respond(asked["id"], answer)
            assert (await heard.result())["content"] == DONE["content"]
    assert rounds.answers == [{"a": ACCEPTED, "b": {"roots": []}}]


@covers("M-UPD-1", "M-MRTR-3")
async def test_a_round_of_a_task_of_a_session_is_answered_in_the_modern_era(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"}, answer=DONE)
    old, new = bridge.host(), bridge.modern(capabilities=ASKABLE)
    await old.initialize(capabilities=CAPABLE)
    task = (await old.start("report"))["taskId"]
    (key,) = (await new.until(task, "input_required"))["inputRequests"]
    await old.leave()
    await new.update(task, {key: ACCEPTED})
    assert (await new.until(task, "completed"))["result"]["content"] == DONE["content"]
    assert rounds.answers == [{"a": ACCEPTED}]


@covers("L-INPUT-8", "M-MRTR-7", "S-SEC-1", "M-GET-3")
@pytest.mark.parametrize(("question", "ends"), [(FORM, "completed"), (SAMPLE, "failed")])
async def test_a_round_of_a_task_that_nobody_answers_ends(
    modern: ScriptedServer, question: dict[str, Any], ends: str
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": question}, "requestState": "s"}, answer=DONE)
    async with before(modern, tasks={**ALWAYS, "input_required": {"max_wait": "50ms"}}) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = await host.until((await host.start("report"))["taskId"], ends)
    if ends == "completed":
        assert rounds.answers == [{"a": {"action": "cancel"}}]
    else:
        assert task["error"]["data"]["dispatched"] is True
        assert len(rounds.turns) == 1


@covers("L-PROG-1", "L-META-1", "M-NOTIF-5", "T-16")
async def test_what_is_told_of_a_running_task_comes_as_each_era_has_it(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.capabilities["logging"] = {}
    go_on = asyncio.Event()

    async def report(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        await response.write(event(progress_note(turn.token, 1)))
        await response.write(event(note("notifications/message", level="error", data="careful")))
        async with bounded():
            await go_on.wait()
        await response.write(event(turn.answer(DONE)))
        await response.write_eof()
        return response

    modern.script["report"] = report
    old, new = await bridge.greeted(), bridge.modern()
    await old.ask("logging/setLevel", {"level": "info"})
    async with old.listen() as heard:
        made = await old.call("report", task={}, _meta={"progressToken": "mine"})
        task = made.result["task"]["taskId"]
        async with new.listen(taskIds=[task]) as listened:
            related = {"io.modelcontextprotocol/related-task": {"taskId": task}}
            progress = await heard.until("notifications/progress")
            assert progress["params"] == {"progressToken": "mine", "progress": 1, "_meta": related}
            assert (await heard.until("notifications/message"))["params"]["_meta"] == related
            go_on.set()
            await new.until(task, "completed")
            await eventually(lambda: listened.heard[-1]["params"].get("status") == "completed")
    assert {each["method"] for each in listened.heard[1:]} == {"notifications/tasks"}


@covers("H-LEG-5", "T-11")
async def test_a_task_outlives_the_session_that_made_it(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.script["report"] = hold = Hold()
    host = await bridge.greeted()
    task = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    assert await host.leave() == 200
    new = bridge.modern()
    assert (await new.task(task))["status"] == "working"
    assert [each["method"] for each in modern.left if each["method"] == "tools/call"] == []
    hold.release(DONE)
    assert (await new.until(task, "completed"))["result"]["content"] == DONE["content"]
