"""Late answers that are larger than the events that their hosts take: they come as documents, if that is possible."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer, Stream
from helpers.host.host import ACCEPT, Era, Host, both_eras
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import eventually
from interaction.handoffs import WAIT, handle_of, handoff, taskless, text_of, waited
from interaction.questions import ACCEPTED
from requirements import covers

LIMIT = 64 * 1024
LARGE = {"content": [{"type": "text", "text": "x" * LIMIT}]}
SMALL_EVENTS = {"sse_keepalive": "50ms", "event_limits": {"host/1": "64KiB"}}
"""The listener of a gateway whose hosts take no larger event."""
WARNING = "the answer is a larger event than its host takes (server.event_limits), and may be lost"
PROGRESS = "notifications/progress"
REPORT = {"name": "report", "arguments": {}}


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
async def limited(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway whose hosts take no event above LIMIT, and know no tasks."""
    async with serve(configuration({"reports": server.url}, server=SMALL_EVENTS)) as gateway:
        yield gateway


def asking(
    host: Host, method: str = "tools/call", params: Any = REPORT, accept: str = ACCEPT, *, id: Any = None, **meta: Any
) -> AbstractAsyncContextManager[Stream]:
    """A request for the length of the block, by a host of either era that takes both kinds of answers."""
    message = host.written(method, params, meta=meta or None, id=id)
    return host.sending(json.dumps(message).encode(), {**host.routing(message), "Accept": accept})


async def spaces(response: aiohttp.ClientResponse) -> None:
    """Wait until two spaces have kept the host waiting."""
    await eventually(lambda: response.content.total_bytes >= 2)


def assert_whole(answer: Answer) -> None:
    """A document with the whole large result, behind the space that kept its host waiting."""
    assert (answer.status, answer.streamed, answer.notices) == (200, False, ())
    assert answer.text.startswith("  ")
    assert answer.result["content"] == LARGE["content"]


# --- calls -----------------------------------------------------------------------------------------------------------


@covers("H-HTTP-6", "H-MOD-13")
@both_eras
@pytest.mark.parametrize("meta", [{}, {"progressToken": "p"}], ids=["alone", "with progress"])
async def test_a_late_answer_comes_as_a_document_to_a_host_that_takes_small_events(
    limited: Gateway, hold: Hold, era: Era, meta: dict[str, Any]
) -> None:
    host = await taskless(limited, era)
    async with asking(host, **meta) as asked:
        head = await asked.kept_waiting()
        assert head.headers["Cache-Control"] == "no-cache, no-transform"
        assert (head.headers["Transfer-Encoding"], "Content-Length" in head.headers) == ("chunked", False)
        await spaces(head)
        hold.release(LARGE)
        assert_whole(await asked.answer())
    # The connection is free for the next request.
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


@both_eras
async def test_a_quick_answer_is_a_document_of_known_size(limited: Gateway, server: ScriptedServer, era: Era) -> None:
    server.script["report"] = lambda turn: turn.respond({"jsonrpc": "2.0", "id": turn.id, "result": LARGE})
    answer = await (await taskless(limited, era)).call("report")
    assert int(answer.headers["Content-Length"]) == len(answer.text)


@covers("H-MOD-13")
async def test_a_modern_host_that_asks_for_the_answer_alone_gets_a_document(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, server={"sse_keepalive": "50ms"})) as gateway:
        host = await taskless(gateway, "modern")
        async with asking(host) as alone, asking(host, progressToken="p") as with_progress:
            await alone.kept_waiting()
            await with_progress.opened()
            hold.release(LARGE)
            assert not (await alone.answer()).streamed
            assert (await with_progress.answer()).notices


@covers("H-MOD-9")
async def test_a_modern_host_cancels_a_call_whose_document_has_begun_by_closing_it(
    limited: Gateway, server: ScriptedServer, hold: Hold
) -> None:
    async with asking(await taskless(limited, "modern")) as asked:
        await asked.kept_waiting()
        await asked.leave()
        await eventually(lambda: server.cancelled == [hold.turns[0].id])


async def test_a_legacy_host_that_cancels_such_a_call_gets_no_message(
    limited: Gateway, server: ScriptedServer, hold: Hold
) -> None:
    host = await taskless(limited, "legacy")

    async def cancels() -> None:
        async with asking(host, id=7) as asked:
            await asked.kept_waiting()
            await host.tell("notifications/cancelled", {"requestId": 7})
            await asked.answer()

    with pytest.raises(json.JSONDecodeError):
        await cancels()
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


@both_eras
async def test_an_error_comes_as_a_document_that_has_begun(limited: Gateway, server: ScriptedServer, era: Era) -> None:
    server.script["report"] = tool = TalkingTool()
    async with asking(await taskless(limited, era)) as asked:
        await asked.kept_waiting()
        await tool.say({"jsonrpc": "2.0", "id": tool.called.id, "error": {"code": -32602, "message": "no year"}})
        answer = await asked.answer()
    assert (answer.status, answer.streamed, answer.code) == (200, False, -32602)


@both_eras
async def test_a_host_that_takes_no_stream_is_kept_waiting_too(limited: Gateway, hold: Hold, era: Era) -> None:
    async with asking(await taskless(limited, era), accept="application/json") as asked:
        await asked.kept_waiting()
        hold.release(LARGE)
        assert not (await asked.answer()).streamed


# --- what a server says meanwhile ------------------------------------------------------------------------------------


async def test_progress_after_the_document_has_begun_goes_to_the_get_stream(
    limited: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    host = await taskless(limited, "legacy")
    async with host.listen() as listening, asking(host, progressToken="p") as asked:
        await asked.kept_waiting()
        await tool.note(PROGRESS, progressToken=tool.called.token, progress=1)
        assert (await listening.until(PROGRESS))["params"] == {"progressToken": "p", "progress": 1}
        await tool.finish(LARGE)
        assert (await asked.answer()).notices == ()


async def test_progress_after_the_document_has_begun_is_lost_to_a_modern_host(
    limited: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with asking(await taskless(limited, "modern"), progressToken="p") as asked:
        await asked.kept_waiting()
        await tool.note(PROGRESS, progressToken=tool.called.token, progress=1)
        await tool.finish(LARGE)
        answer = await asked.answer()
    assert (answer.notices, answer.result["content"]) == ((), LARGE["content"])


async def test_a_question_goes_to_the_get_stream_while_a_document_waits(
    limited: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    host = await taskless(limited, "legacy", elicitation={"form": {}})
    async with host.listen() as listening, asking(host) as asked:
        await asked.kept_waiting()
        await tool.ask("q")
        question = await listening.until("elicitation/create")
        await host.respond(question["id"], ACCEPTED)
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(LARGE)
        assert (await asked.answer()).notices == ()


async def test_a_document_goes_on_when_the_get_stream_ends(limited: Gateway, hold: Hold) -> None:
    host = await taskless(limited, "legacy", elicitation={"form": {}})
    async with asking(host) as asked:
        async with host.listen():
            head = await asked.kept_waiting()
        await spaces(head)
        hold.release(LARGE)
        assert_whole(await asked.answer())


async def test_the_log_names_a_host_that_may_lose_its_answer(
    limited: Gateway, hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    # It may be asked something on the stream of its call, as it has no other.
    host = await taskless(limited, "legacy", elicitation={"form": {}})
    async with asking(host) as asked:
        await asked.opened()
        hold.release(LARGE)
        answer = await asked.answer()
    assert answer.result["content"] == LARGE["content"]
    (record,) = [vars(record) for record in caplog.records if record.getMessage() == WARNING]
    named = {name: record[name] for name in ("client", "version", "limit")}
    assert named == {"client": "host", "version": "1", "limit": LIMIT}
    assert record["bytes"] == len(answer.text.removesuffix("\n"))


# --- tasks, and calls that were handed off ---------------------------------------------------------------------------


async def test_a_host_waits_for_the_result_of_a_task_as_a_document(limited: Gateway, hold: Hold) -> None:
    host = await limited.greeted()
    task = (await host.start("report"))["taskId"]
    async with asking(host, "tasks/result", {"taskId": task}) as asked:
        await spaces(await asked.kept_waiting())
        hold.release(LARGE)
        assert_whole(await asked.answer())


async def test_a_host_that_leaves_its_wait_for_a_task_may_wait_again(limited: Gateway, hold: Hold) -> None:
    host = await limited.greeted()
    task = (await host.start("report"))["taskId"]
    async with asking(host, "tasks/result", {"taskId": task}) as asked:
        await asked.kept_waiting()
        await asked.leave()
    hold.release(LARGE)
    assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == LARGE["content"]


async def test_a_question_of_a_task_goes_to_the_get_stream_while_a_document_waits(
    limited: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    host = await limited.greeted(capabilities={"elicitation": {"form": {}}})
    task = (await host.start("report"))["taskId"]
    async with host.listen() as listening, asking(host, "tasks/result", {"taskId": task}) as asked:
        await asked.kept_waiting()
        await tool.ask("q")
        question = await listening.until("elicitation/create")
        await host.respond(question["id"], ACCEPTED)
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(LARGE)
        assert (await asked.answer()).result["content"] == LARGE["content"]


async def test_a_host_that_can_be_asked_waits_for_a_task_on_a_stream(limited: Gateway, server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    host = await limited.greeted(capabilities={"elicitation": {"form": {}}})
    task = (await host.start("report"))["taskId"]
    async with asking(host, "tasks/result", {"taskId": task}) as asked:
        await asked.opened()
        await tool.ask("q")
        await asked.until("elicitation/create")


@both_eras
async def test_a_call_that_is_handed_off_and_its_waits_are_documents(
    server: ScriptedServer, hold: Hold, era: Era
) -> None:
    config = configuration({"reports": server.url}, server=SMALL_EVENTS, tasks=handoff("400ms"))
    async with serve(config) as gateway:
        host = await taskless(gateway, era)
        async with asking(host) as asked:
            await asked.kept_waiting()
            handle = handle_of(await asked.answer())
        async with asking(host, params={"name": WAIT, "arguments": {"handle": handle}}) as asked:
            await spaces(await asked.kept_waiting())
            hold.release(LARGE)
            assert_whole(await asked.answer())


async def test_a_question_goes_to_the_get_stream_while_a_handle_waits_for_a_document(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    config = configuration({"reports": server.url}, server=SMALL_EVENTS, tasks=handoff())
    async with serve(config) as gateway:
        host = await taskless(gateway, "legacy", elicitation={"form": {}})
        async with host.listen() as listening:
            wait = {"name": WAIT, "arguments": {"handle": handle_of(await host.call("report"))}}
            async with asking(host, params=wait) as asked:
                await asked.kept_waiting()
                await tool.ask("q")
                question = await listening.until("elicitation/create")
                await host.respond(question["id"], ACCEPTED)
                assert (await tool.told("q"))["result"] == ACCEPTED
                await tool.finish(LARGE)
                assert (await asked.answer()).result["content"] == LARGE["content"]


@both_eras
async def test_a_wait_that_is_a_stream_by_the_end_of_its_call_tells_to_wait_again(
    server: ScriptedServer, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    server.script["report"] = tool = TalkingTool()
    config = configuration({"reports": server.url}, server=SMALL_EVENTS, tasks=handoff())
    async with serve(config) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report"))
        async with asking(host, params={"name": WAIT, "arguments": {"handle": handle}}, progressToken="p") as asked:
            await tool.note(PROGRESS, progressToken=tool.called.token, progress=1, message="halfway")
            await asked.opened()
            await tool.finish(LARGE)
            answer = await asked.answer()
        assert text_of(answer).startswith("The call of report has ended. Its result is too large for this answer")
        assert handle_of(answer) == handle
        again = await waited(host, handle)
        assert (again.streamed, again.result["content"]) == (False, LARGE["content"])
    assert WARNING not in caplog.messages
