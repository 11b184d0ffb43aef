"""Calls that a server makes tasks of: looked at until there is an answer, which is the call's own."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from helpers.modern_schema import CAPABILITIES, TASKS
from helpers.recording_listener import RecordingListener
from helpers.server import (
    Rounds,
    ScriptedServer,
    Turn,
    error,
    event,
    open_stream,
    progress_note,
    raw,
    redirect,
    resets,
    result,
    status,
)
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.server_messages import progress_done
from taskgate.upstream.pauses import DEAF_FOR, POLL_PAUSE_MOST
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ACCEPTED, ELICIT, failure_of
from unit.upstream.modern.conftest import NewGuest
from unit.upstream.modern.natives import DONE, Following, natives, slow, words

__all__ = ["natives", "slow"]


@covers("M-NEG-8")
async def test_a_call_that_became_a_task_is_answered_with_what_that_comes_to(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    async with Following(guest, slow) as following:
        following.task.complete(DONE)
        assert await following.result() == {"resultType": "complete", **DONE}
    assert len(server.heard("tools/call")) == 1
    assert server.faults == []
    assert ("tools/call", None) in guest.heard.answered
    assert ("tasks/get", None) in guest.heard.answered


async def test_who_relays_a_call_gets_the_same(guest: Guest, slow: TaskTool) -> None:
    calling = asyncio.create_task(guest.call("slow"))
    (await slow.made()).complete({"content": [], "isError": True})
    async with bounded():
        assert json.loads((await calling).text)["result"]["isError"] is True


def extensions(server: ScriptedServer) -> list[Any]:
    """What each call said of extensions."""
    return [call["params"]["_meta"][CAPABILITIES].get("extensions") for call in server.heard("tools/call")]


async def test_a_plain_call_says_nothing_of_the_extension_where_the_server_runs_it_plainly(
    natives: ModernTasks, server: ScriptedServer, guest: Guest
) -> None:
    await guest.call("echo")
    await guest.run("echo")
    assert extensions(server) == [None, {TASKS: {}}]


async def test_that_a_tool_runs_as_a_task_alone_is_found_out_once(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    for number in (1, 2):
        calling = asyncio.create_task(guest.call("slow"))
        (await slow.made(number)).complete(DONE)
        async with bounded():
            await calling
    assert extensions(server) == [None, {TASKS: {}}, {TASKS: {}}]


async def test_a_call_of_a_host_that_declares_the_extension_says_so(
    natives: ModernTasks, server: ScriptedServer, new_guest: NewGuest
) -> None:
    peer = Peer(revision=Revision.R2026_07_28, capabilities={"extensions": {TASKS: {}}}, info={})
    await new_guest(host=peer).call("echo")
    assert extensions(server) == [{TASKS: {}}]


@pytest.mark.parametrize("serves", [True, False])
async def test_a_server_that_wants_another_capability_or_serves_no_tasks_is_not_asked_again(
    server: ScriptedServer, guest: Guest, natives: ModernTasks, serves: bool
) -> None:
    if not serves:
        server.capabilities.pop("extensions")
    wanted = {"sampling": {}} if serves else {"extensions": {TASKS: {}}}

    async def refuse(turn: Turn) -> web.StreamResponse:
        return await error(-32021, "lacking", {"requiredCapabilities": wanted}, status=400)(turn)

    server.script["echo"] = refuse
    assert json.loads((await guest.call("echo")).text)["error"]["code"] == -32021
    assert len(server.heard("tools/call")) == 1


async def test_an_error_of_a_task_is_the_answer_to_the_call(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.fail(-32001, "no", data={"a": 1})
        assert json.loads((await following.response()).text)["error"] == {
            "code": -32001, "message": "no", "data": {"a": 1},
        }  # fmt: skip


async def test_an_error_of_a_task_says_nothing_of_the_servers_era(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.fail(-32022, "another version", data={"supported": [], "requested": "x"})
        assert (await following.response()).error is not None
    assert guest.heard.eras_lost == 0


@covers("M-NEG-8")
async def test_a_tool_may_still_answer_at_once(server: ScriptedServer, guest: Guest, natives: ModernTasks) -> None:
    assert (await guest.run("echo")).error is None
    assert server.heard("tasks/get") == []


async def test_a_task_may_be_over_when_it_is_made(guest: Guest, natives: ModernTasks) -> None:
    slow = natives.tool("slow", status="completed", interval=60_000)
    async with Following(guest, slow) as following:
        following.task.complete(DONE)
        assert (await following.result())["content"] == DONE["content"]


@covers("M-MRTR-3", "M-CREATE-4")
async def test_a_call_may_become_a_task_after_a_round_of_questions(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    slow = natives.tool("slow")
    asks = Rounds({"inputRequests": {"a": ELICIT}, "requestState": "s"})

    async def first_asks(turn: Turn) -> Any:
        return await (slow if "inputResponses" in turn.message["params"] else asks)(turn)

    server.script["slow"] = first_asks
    ear = RecordingListener()
    calling = asyncio.create_task(guest.run("slow", ear=ear))
    await eventually(lambda: ear.questions)
    ear.questions[0].answer(ACCEPTED)
    (await slow.made()).complete(DONE)
    async with bounded():
        assert (await calling).error is None


@pytest.mark.parametrize("passes_rounds", [True, False])
async def test_a_task_is_followed_whoever_passes_rounds_on(guest: Guest, slow: TaskTool, passes_rounds: bool) -> None:
    async with Following(guest, slow, ear=RecordingListener(passes_rounds=passes_rounds)) as following:
        following.task.complete(DONE)
        assert (await following.result())["content"] == DONE["content"]


TASK = {"resultType": "task", "taskId": "n1", "status": "working"}


@covers("V-META-7")
async def test_a_task_that_was_not_asked_for_breaks_the_protocol(server: ScriptedServer, guest: Guest) -> None:
    server.script["slow"] = result(TASK)
    assert await failure_of(guest.run("slow")) == ("malformed", True)


@covers("V-META-7", "M-NEG-8")
async def test_nothing_but_a_call_of_a_tool_becomes_a_task(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    server.methods["prompts/get"] = result(TASK)
    assert await failure_of(guest.ask("prompts/get", '{"name":"p"}')) == ("malformed", True)
    assert server.heard("tasks/get") == []


async def test_a_task_that_cannot_be_followed_breaks_the_protocol(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    server.script["slow"] = result({**TASK, "taskId": ""})
    assert await failure_of(guest.run("slow")) == ("malformed", True)


# --- what is told of it


@covers("L-PROG-1")
async def test_what_a_task_says_of_itself_is_told_once_as_progress_that_grows(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        for message in ("one", "two", "two", "three"):
            following.task.say(message)
            await following.task.looked(2)
        following.task.complete(DONE)
        await following.response()
    assert words(following.ear) == ["one", "two", "three"]
    numbers = [progress_done(note) or 0 for note in following.ear.notifications]
    assert sorted(set(numbers)) == numbers


async def test_what_it_says_when_it_is_made_is_told_and_its_last_word_is_not(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    slow = natives.tool("slow")

    async def born_talking(turn: Turn) -> Any:
        task = natives.make(turn)
        slow.tasks.append(task)
        task.say("queued")
        return await result({"resultType": "task", **task.shown})(turn)

    server.script["slow"] = born_talking
    async with Following(guest, slow) as following:
        following.task.say("all done")
        following.task.complete(DONE)
        await following.response()
    assert words(following.ear) == ["queued"]


async def test_words_come_after_the_numbers_that_were_told_before(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    slow = natives.tool("slow")

    async def counts_first(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        await response.write(event(progress_note(turn.token, 3)))
        task = natives.make(turn)
        slow.tasks.append(task)
        await response.write(event(turn.answer({"resultType": "task", **task.shown})))
        await response.write_eof()
        return response

    server.script["slow"] = counts_first
    async with Following(guest, slow) as following:
        following.task.say("on")
        await eventually(lambda: words(following.ear))
    numbers = [progress_done(note) for note in following.ear.notifications]
    assert numbers[0] == 3
    assert 3 < (numbers[1] or 0) < 3.001


# --- how long it is waited for


@covers("V-INIT-9")
async def test_a_task_that_shows_no_progress_is_given_up_in_time(new_guest: NewGuest, slow: TaskTool) -> None:
    guest = new_guest(call=timedelta(seconds=0.4))
    async with Following(guest, slow) as following:
        failure = await following.failure()
        assert (failure.reason, failure.dispatched) == ("timeout", True)
        await following.task.cancelled()


@covers("V-INIT-9")
async def test_a_task_that_shows_progress_is_waited_for(new_guest: NewGuest, slow: TaskTool) -> None:
    guest = new_guest(call=timedelta(seconds=0.3), ceiling=timedelta(seconds=20))
    began = asyncio.get_running_loop().time()
    async with Following(guest, slow) as following:
        while asyncio.get_running_loop().time() < began + 0.5:
            following.task.say("on", updated=f"2026-08-01T09:00:00.{following.task.looks:03}Z")
            await following.task.looked()
        following.task.complete(DONE)
        assert (await following.response()).error is None


# --- looks that fail


@pytest.mark.parametrize("trouble", [status(503), status(404), resets(), error(-32603, "not now"), error(-32000, "no")])
async def test_a_look_that_fails_for_now_is_made_again(
    server: ScriptedServer, guest: Guest, slow: TaskTool, trouble: Any
) -> None:
    async with Following(guest, slow) as following:
        await following.task.looked()
        show, server.methods["tasks/get"] = server.methods["tasks/get"], trouble
        wanted = len(server.heard("tasks/get")) + 2
        await eventually(lambda: len(server.heard("tasks/get")) >= wanted)
        server.methods["tasks/get"] = show
        following.task.complete(DONE)
        assert (await following.response()).error is None


@pytest.mark.parametrize(
    ("trouble", "reason"), [(status(503), "refused"), (resets(), "closed"), (error(-32603, "no"), "refused")]
)
async def test_a_task_that_is_not_shown_for_too_long_is_given_up(
    server: ScriptedServer, new_guest: NewGuest, slow: TaskTool, trouble: Any, reason: str
) -> None:
    loop, long = asyncio.get_running_loop(), 2 * DEAF_FOR
    guest = new_guest(call=timedelta(seconds=long))
    async with Following(guest, slow, within=long) as following:
        server.methods["tasks/get"] = trouble
        began = loop.time()
        failure = await following.failure(long)
        assert DEAF_FOR <= loop.time() - began < DEAF_FOR + 2 * POLL_PAUSE_MOST
        assert (failure.reason, failure.dispatched) == (reason, True)
        assert "no longer reports on its task" in str(failure)
        await following.task.cancelled()


async def test_a_task_that_its_server_lost_is_a_call_of_which_nobody_knows(
    guest: Guest, slow: TaskTool, natives: ModernTasks
) -> None:
    async with Following(guest, slow) as following:
        natives.forget()
        failure = await following.failure()
    assert (failure.reason, failure.dispatched) == ("call_lost", True)
    assert "may or may not have completed" in str(failure)
    assert guest.heard.answered[-2:] == [("tasks/get", "-32602"), ("tools/call", "call_lost")]


async def test_a_task_that_its_server_cancelled_is_a_call_that_failed(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.status = "cancelled"
        failure = await following.failure()
    assert (failure.reason, failure.dispatched) == ("closed", True)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (result({"taskId": "another", "status": "working"}), "malformed"),
        (result({"taskId": "native-1", "status": "completed"}), "malformed"),
        (raw(b"x" * 70_000), "too_large"),
        (redirect(307, "http://127.0.0.1:1/elsewhere"), "redirect"),
    ],
)
async def test_a_look_that_cannot_be_read_ends_the_call_and_the_task(
    server: ScriptedServer, guest: Guest, slow: TaskTool, trouble: Any, reason: str
) -> None:
    async with Following(guest, slow) as following:
        server.methods["tasks/get"] = trouble
        failure = await following.failure()
        assert (failure.reason, failure.dispatched) == (reason, True)
        await following.task.cancelled()
