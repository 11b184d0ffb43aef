"""Event streams go on at whatever replica their host comes to: nothing lost, nothing twice, never on two at once."""

from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.wire import got, refused
from helpers.server import ScriptedServer, TalkingTool, note
from interaction.questions import ACCEPTED, DONE, ELICIT, capable
from interaction.resumption import SAID, call_stream, ids_of, last_id, tell
from replicas.moved_streams import PART, counted, draining, heard, listened_to, messages, outcome


async def test_a_counted_stream_of_a_call_goes_on_elsewhere_while_the_replica_that_carries_it_drains(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await three[0].greeted()
    told: list[Any] = []
    async with call_stream(host) as wire:
        await tell(tool, *counted(0))
        await messages(wire, PART)
        wire.cut()
        told += heard(wire)
    await tell(tool, *counted(1))
    async with got(three[1].again(host), last_id(wire)) as carried:
        await messages(carried, PART)
        await tell(tool, *counted(2))
        async with draining(three[1]):
            await tell(tool, *counted(3))
            rest = await carried.to_end()
            assert rest[-1].retry == "1000"
        told += heard(carried)
    async with got(three[2].again(host), last_id(carried)) as again:
        await messages(again, 4 * PART - len(told))
        await tell(tool, *counted(4))
        await tool.finish(DONE)
        await again.to_end()
        told += heard(again)
    assert told == [*range(5 * PART), DONE]


async def test_a_counted_stream_of_a_call_comes_back_to_the_replica_that_holds_it(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await three[0].greeted()
    async with call_stream(host) as wire:
        await tell(tool, *counted(0))
        await messages(wire, PART)
        wire.cut()
    async with got(three[1].again(host), last_id(wire)) as carried:
        await tell(tool, *counted(1))
        await messages(carried, PART)
        async with got(host, last_id(carried)) as again:
            await tell(tool, *counted(2))
            await tool.finish(DONE)
            await again.to_end()
            assert await carried.to_end() == []
    assert [*heard(wire), *heard(carried), *heard(again)] == [*range(3 * PART), DONE]


async def test_a_stream_that_is_taken_up_elsewhere_ends_where_it_was(three: list[Gateway], tool: TalkingTool) -> None:
    host = await three[0].greeted()
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await messages(wire, 1)
        async with got(three[1].again(host), last_id(wire)) as carried:
            await tell(tool, 2)
            await messages(carried, 1)
            assert await wire.to_end() == []
            async with got(three[2].again(host), last_id(carried)) as third:
                await tell(tool, 3)
                await messages(third, 1)
                assert await carried.to_end() == []
                await tool.finish(DONE)
                await third.to_end()
    assert [heard(each) for each in (wire, carried, third)] == [[1], [2], [3, DONE]]


async def test_the_answer_of_a_call_is_fetched_elsewhere_as_often_as_it_is_asked_for(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await three[0].greeted()
    async with call_stream(host) as wire:
        await tell(tool, 1, 2)
        await ids_of(wire, 3)
        first = wire.seen[1].id
        wire.cut()
    await tool.finish(DONE)
    for gateway in (three[1], three[2], three[1]):
        async with got(gateway.again(host), first) as again:
            await again.to_end()
            assert heard(again) == [2, DONE]


async def test_a_host_whose_call_is_lost_is_told_so_elsewhere(three: list[Gateway], tool: TalkingTool) -> None:
    """What came of it nobody knows, but silence would have the host wait for ever."""
    host = await three[0].greeted()
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await messages(wire, 1)
        async with got(three[1].again(host), last_id(wire)) as carried:
            await three[0].close()
            await carried.to_end()
    assert outcome(carried)["id"] == 7
    assert outcome(carried)["error"]["data"]["dispatched"] is True


async def test_a_question_goes_out_on_a_stream_that_is_carried_elsewhere(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await capable(three[0])
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await messages(wire, 1)
        wire.cut()
    async with got(three[1].again(host), last_id(wire)) as carried:
        await tool.ask("q")
        question = (await carried.until(ELICIT)).message
        async with got(three[2].again(host), last_id(wire)) as again:
            # The one before was asked on a stream that is there no more.
            assert (await again.until(ELICIT)).message == question
            assert await carried.to_end() == []
            await three[1].again(host).respond(question["id"], ACCEPTED)
            assert (await tool.told("q"))["result"] == ACCEPTED
            await tool.finish(DONE)
            await again.to_end()


async def test_a_get_stream_goes_on_elsewhere_while_its_replica_drains(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await three[0].greeted()
    await server.streaming()
    async with got(host) as wire:
        await server.push(note(SAID, level="info", data=1))
        await messages(wire, 1)
        async with draining(three[0]):
            assert (await wire.to_end())[-1].retry == "1000"
    async with got(three[1].again(host), last_id(wire)) as moved:
        await server.streaming()
        await server.push(note(SAID, level="info", data=2))
        await messages(moved, 1)
    assert heard(moved) == [2]


async def test_a_get_stream_goes_on_elsewhere_after_what_was_missed(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await three[0].greeted()
    await server.streaming()
    async with got(host) as wire:
        await server.push(note(SAID, level="info", data=1))
        await messages(wire, 1)
        wire.cut()
    await three[0].shows("taskgate_streams", 0, side="downstream", kind="get")
    await server.push(note(SAID, level="info", data=2))
    # It was said before that is asked, and so it is there before.
    await three[0].ready()
    async with got(three[1].again(host), last_id(wire)) as moved:
        await messages(moved, 1)
        await listened_to(moved, lambda probe: say_first(server, note(SAID, level="info", data=probe)))
        await say_first(server, note(SAID, level="info", data=3))
        await messages(moved, 2)
        moved.cut()
    assert heard(moved) == [2, 3]


async def test_a_stream_that_nobody_knows_is_refused(three: list[Gateway]) -> None:
    host = await three[0].greeted()
    status, text = await refused(three[1].again(host), "p1-0123456789ab-3")
    assert (status, "unknown" in text) == (400, True)


async def test_a_stream_of_another_session_is_refused(three: list[Gateway], tool: TalkingTool) -> None:
    host, other = await three[0].greeted(), await three[1].greeted()
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await messages(wire, 1)
        assert (await refused(other, last_id(wire)))[0] == 400
        await tool.finish(DONE)
        await wire.to_end()
    assert heard(wire) == [1, DONE]


async def say_first(server: ScriptedServer, message: object) -> None:
    """Say something in the server's oldest session alone."""
    await server.push(message, streams=1)
