"""Questions on streams that break and are taken up again: never on two that live, never replayed, never lost."""

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.wire import asked, gone, got
from helpers.server import TalkingTool
from interaction.questions import ACCEPTED, DONE, ELICIT, GIVEN_UP, capable
from interaction.resumption import SAID, call_stream, heard, last_id, tell
from requirements import covers


@covers("H-LEG-8", "T-19")
@pytest.mark.parametrize("listens", [True, False])
async def test_a_question_of_a_call_is_never_replayed_and_never_lost(
    gateway: Gateway, tool: TalkingTool, listens: bool
) -> None:
    host = await capable(gateway)
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await tool.ask("q")
        question = await wire.until(ELICIT)
        assert question.id is None
        wire.cut()
    await gone(host)
    if listens:
        async with got(host) as get:
            again = await get.until(ELICIT)
            async with got(host, last_id(wire)) as resumed:
                await tell(tool, 2)
                await resumed.until(SAID)
                await host.respond(again.message["id"], ACCEPTED)
                await tool.told("q")
                await tool.finish(DONE)
                await resumed.to_end()
        assert heard(resumed) == [2, DONE]
        return
    async with got(host, last_id(wire)) as resumed:
        again = await resumed.until(ELICIT)
        assert again.message["id"] == question.message["id"]
        resumed.cut()
    await gone(host)
    async with got(host, last_id(wire)) as resumed:
        again = await resumed.until(ELICIT)
        await host.respond(again.message["id"], ACCEPTED)
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        await resumed.to_end()
    assert [event.message.get("method") for event in resumed.seen] == [ELICIT, None]


@covers("H-LEG-8", "T-19")
@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_question_of_a_task_is_never_on_two_live_streams_and_never_lost(
    gateway: Gateway, tool: TalkingTool, elsewhere: bool
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with asked(host, "tasks/result", {"taskId": task}) as wire:
        await tool.ask("q")
        await wire.until(ELICIT)
        wire.cut()
    await gone(host)
    if elsewhere:
        async with got(host) as get:
            again = await get.until(ELICIT)
            async with got(host, wire.seen[0].id) as resumed:
                await host.respond(again.message["id"], ACCEPTED)
                await tool.told("q")
                await tool.finish(DONE)
                await resumed.to_end()
        assert [event.message.get("method") for event in resumed.seen] == [None]
        return
    for _ in range(2):
        async with got(host, wire.seen[0].id) as resumed:
            again = await resumed.until(ELICIT)
            resumed.cut()
        await gone(host)
    async with got(host, wire.seen[0].id) as resumed:
        again = await resumed.until(ELICIT)
        await host.respond(again.message["id"], ACCEPTED)
        await tool.told("q")
        await tool.finish(DONE)
        await resumed.to_end()
    assert [event.message.get("method") for event in resumed.seen if event.data] == [ELICIT, None]


async def test_that_a_question_is_given_up_is_told_to_who_comes_back(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    async with call_stream(host) as wire:
        await tool.ask("q")
        question = await wire.until(ELICIT)
        await tool.withdraw("q")
        given_up = await wire.until(GIVEN_UP)
        assert given_up.message["params"]["requestId"] == question.message["id"]
        async with got(host, wire.seen[0].id) as resumed:
            assert (await resumed.next()) == given_up
            await tool.finish(DONE)
            await resumed.to_end()


async def test_a_wait_without_its_host_claims_no_questions(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with asked(host, "tasks/result", {"taskId": task}) as wire:
        await tool.ask("q")
        question = await wire.until(ELICIT)
        wire.cut()
    await gone(host)
    before = await gateway.count("taskgate_store_operation_duration_seconds_count", operation="swap")
    await tell(tool, 1)
    for _ in range(10):
        assert (await host.task(task))["status"] == "input_required"
    # The question was given back, and nothing was written since.
    assert await gateway.count("taskgate_store_operation_duration_seconds_count", operation="swap") == before > 0
    await host.respond(question.message["id"], ACCEPTED)
    await tool.told("q")
    await tool.finish(DONE)
