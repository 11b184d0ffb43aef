"""Waits for tasks go on at whatever replica their host comes to, with all that is said of the task meanwhile."""

from functools import partial
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.wire import asked, got
from helpers.server import TalkingTool
from interaction.questions import DONE
from interaction.resumption import ids_of, last_id, tell
from replicas.moved_streams import PART, counted, draining, heard, listened_to, messages, outcome, said


@pytest.mark.parametrize("way", [(0, 1, 2), (1, 2, 0)], ids=["from where it runs", "to where it runs"])
async def test_a_counted_wait_for_a_task_goes_on_elsewhere_while_its_replica_drains(
    three: list[Gateway], tool: TalkingTool, way: tuple[int, ...]
) -> None:
    host = await three[0].greeted()
    task = (await host.start("report"))["taskId"]
    told: list[Any] = []
    first, second, third = (three[place].again(host) for place in way)
    async with asked(first, "tasks/result", {"taskId": task}) as wire:
        await ids_of(wire, 1)
        await listened_to(wire, partial(tell, tool))
        await tell(tool, *counted(0))
        await messages(wire, PART)
        wire.cut()
        told += heard(wire)
    await tell(tool, *counted(1))
    async with got(second, last_id(wire)) as moved:
        await messages(moved, PART)
        await tell(tool, *counted(2))
        async with draining(three[way[1]]):
            await tell(tool, *counted(3))
            await moved.to_end()
        told += heard(moved)
    async with got(third, last_id(moved)) as again:
        await messages(again, 4 * PART - len(told))
        await tell(tool, *counted(4))
        await messages(again, 5 * PART - len(told))
        await tool.finish(DONE)
        await again.to_end()
        told += heard(again)[:-1]
    assert told == [*range(5 * PART)]
    assert outcome(again)["id"] == 7
    assert outcome(again)["result"]["content"] == DONE["content"]


async def test_a_host_that_waits_where_a_replica_drains_is_sent_elsewhere(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await three[0].greeted()
    task = (await host.start("report"))["taskId"]
    async with asked(three[1].again(host), "tasks/result", {"taskId": task}) as wire:
        await ids_of(wire, 1)
        await listened_to(wire, partial(tell, tool))
        await tell(tool, 1)
        await messages(wire, 1)
        async with draining(three[1]):
            assert (await wire.to_end())[-1].retry == "1000"
    await tell(tool, 2)
    async with got(three[2].again(host), last_id(wire)) as again:
        await tell(tool, 3)
        await tool.finish(DONE)
        await again.to_end()
    assert heard(wire) == [1]
    assert heard(again)[:-1] == [2, 3]
    assert outcome(again)["id"] == 7
    assert outcome(again)["result"]["content"] == DONE["content"]


async def test_a_wait_for_a_task_that_ended_meanwhile_ends_elsewhere(three: list[Gateway], tool: TalkingTool) -> None:
    host = await three[0].greeted()
    task = (await host.start("report"))["taskId"]
    async with asked(three[1].again(host), "tasks/result", {"taskId": task}) as wire:
        await ids_of(wire, 1)
        wire.cut()
    await tool.finish(DONE)
    for gateway in (three[2], three[0]):
        async with got(gateway.again(host), last_id(wire)) as again:
            await again.to_end()
            assert outcome(again)["result"]["content"] == DONE["content"]


async def test_a_task_is_told_of_on_the_get_stream_that_another_replica_has(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await three[0].greeted()
    await host.start("report")
    async with got(three[1].again(host)) as get:
        await listened_to(get, partial(tell, tool))
        await tell(tool, *counted(0))
        while [each for each in said(get) if each == PART - 1] == []:
            assert await get.next() is not None
        assert said(get) == [*counted(0)]
        await tool.finish(DONE)
