"""Event streams that hosts of 2025-11-25 lose and take up again: their ids, and what is replayed."""

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.host.wire import asked, gone, got, head_of
from helpers.server import Hold, ScriptedServer, TalkingTool, note
from helpers.waiting import bounded, until
from interaction.questions import DONE
from interaction.resumption import ID, SAID, call_stream, heard, ids_of, last_id, tell
from requirements import covers


@covers("H-LEG-11", "H-LEG-12")
async def test_a_stream_begins_with_an_id_and_no_message_and_every_message_has_the_next_id(
    host: Host, tool: TalkingTool
) -> None:
    async with call_stream(host) as wire:
        first = await wire.next()
        assert first is not None
        assert (first.data, first.retry) == ("", None)
        await tell(tool, 1, 2)
        await tool.finish(DONE)
        await wire.to_end()
    ids = [ID(event.id or "") for event in wire.seen]
    assert [id_ and id_[2] for id_ in ids] == ["0", "1", "2", "3"]
    assert len({id_ and id_[1] for id_ in ids}) == 1
    assert all(host.session not in event.id for event in wire.seen if host.session and event.id)
    assert heard(wire) == [1, 2, DONE]


@covers("H-LEG-12")
async def test_no_two_streams_of_a_session_share_an_id(host: Host, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with call_stream(host) as one, call_stream(host) as two, got(host) as get, got(host) as other:
        ids = [event.id for event in [await wire.next() for wire in (one, two, get, other)] if event is not None]
        assert len(set(ids)) == 4
        assert [id_[0] for id_ in ids if id_] == ["p", "p", "g", "g"]
        hold.release(DONE)
        await one.to_end()
        await two.to_end()


@covers("H-LEG-11")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_streams_of_older_hosts_have_neither_ids_nor_pauses(
    gateway: Gateway, tool: TalkingTool, revision: str
) -> None:
    host = await gateway.greeted(revision)
    async with got(host) as get, call_stream(host) as wire:
        await tell(tool, 1)
        await tool.finish(DONE)
        await wire.to_end()
        assert await host.leave() == 200
        await get.to_end()
    assert [(event.id, event.retry) for event in (*wire.seen, *get.seen)] == [(None, None)] * 2
    assert heard(wire) == [1, DONE]


async def test_to_an_older_host_a_last_event_means_nothing(gateway: Gateway, server: ScriptedServer) -> None:
    host = await gateway.greeted("2025-06-18")
    await server.streaming()
    async with got(host, "p1-000000000000-1") as get:
        await server.push(note(SAID, level="info", data="new"))
        await get.until(SAID)
        assert heard(get) == ["new"]


@covers("H-LEG-11")
async def test_a_get_stream_that_the_gateway_ends_says_when_to_come_back(gateway: Gateway, host: Host) -> None:
    async with got(host) as oldest:
        for _ in range(8):
            await asyncio.wait_for(_hold_open(host), 15)
        ended = await oldest.to_end()
    assert [(event.id, event.retry, event.data) for event in ended[1:]] == [(None, "1000", None)]
    async with got(host) as get:
        await get.next()
        await gateway.drain()
        assert [event.retry for event in await get.to_end()] == ["1000"]


async def _hold_open(host: Host) -> None:
    head = head_of(host, Accept="text/event-stream")
    await host.http.get(host.url, headers=head)


@covers("H-LEG-8", "H-LEG-10", "H-LEG-12")
@pytest.mark.parametrize("told_before", [0, 1, 3])
@pytest.mark.parametrize("told_meanwhile", [0, 2])
@pytest.mark.parametrize("ends", ["before", "after"])
async def test_a_call_whose_stream_broke_goes_on_where_its_host_stopped_to_hear(
    host: Host, tool: TalkingTool, told_before: int, told_meanwhile: int, ends: str
) -> None:
    before, meanwhile = range(told_before), range(10, 10 + told_meanwhile)
    async with call_stream(host) as wire:
        await tell(tool, *before)
        await ids_of(wire, 1 + told_before)
        wire.cut()
    await gone(host)
    await tell(tool, *meanwhile)
    if ends == "before":
        await tool.finish(DONE)
        await gone(host)
    async with got(host, last_id(wire)) as again:
        if ends == "after":
            await ids_of(again, told_meanwhile)
            await tell(tool, "live")
            await ids_of(again, told_meanwhile + 1)
            await tool.finish(DONE)
        await again.to_end()
    assert heard(again) == [*meanwhile, *(["live"] if ends == "after" else []), DONE]
    numbers = [int(event.id.rpartition("-")[2]) for event in again.seen if event.id]
    assert numbers == [*range(told_before + 1, told_before + 1 + len(numbers))]


@covers("H-LEG-12")
async def test_what_came_after_the_last_event_is_replayed_as_often_as_it_is_asked_for(
    host: Host, tool: TalkingTool
) -> None:
    async with call_stream(host) as wire:
        await tell(tool, 1, 2, 3)
        await tool.finish(DONE)
        await wire.to_end()
    whole = [1, 2, 3, DONE]
    for place, event in enumerate(wire.seen):
        for _ in range(2):
            async with got(host, event.id) as again:
                await again.to_end()
                assert heard(again) == whole[place:]
                assert [each.id for each in again.seen] == [each.id for each in wire.seen[place + 1 :]]


@covers("H-LEG-8")
async def test_of_two_that_take_a_stream_up_only_the_second_has_it(host: Host, tool: TalkingTool) -> None:
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await ids_of(wire, 2)
        async with got(host, wire.seen[0].id) as first:
            await ids_of(first, 1)
            assert await wire.to_end() == []
            async with got(host, wire.seen[0].id) as second:
                assert await first.to_end() == []
                await tell(tool, 2)
                await tool.finish(DONE)
                await second.to_end()
    assert heard(wire) == heard(first) == [1]
    assert heard(second) == [1, 2, DONE]


async def test_a_connection_that_lost_its_stream_to_another_is_closed_though_the_call_goes_on(
    gateway: Gateway, host: Host, tool: TalkingTool
) -> None:
    async with call_stream(host) as wire:
        await wire.next()
        async with got(host, last_id(wire)) as again:
            await wire.to_end()
            assert wire.broke
            assert (await host.ask("ping")).result == {}
            await tool.finish(DONE)
            await again.to_end()
    assert heard(again) == [DONE]


@covers("H-LEG-12")
async def test_a_get_stream_goes_on_with_what_was_said_meanwhile(host: Host, server: ScriptedServer) -> None:
    await server.streaming()
    async with got(host) as wire:
        await server.push(note(SAID, level="info", data=1))
        await ids_of(wire, 2)
        wire.cut()
    await gone(host)
    await server.push(note(SAID, level="info", data=2))
    await gone(host)
    async with got(host, last_id(wire)) as again:
        await ids_of(again, 1)
        await server.push(note(SAID, level="info", data=3))
        await ids_of(again, 2)
        async with got(host, last_id(wire)) as third:
            await ids_of(third, 2)
            await server.push(note(SAID, level="info", data=4))
            await ids_of(third, 3)
            assert await again.to_end() == []
    assert (heard(again), heard(third)) == ([2, 3], [2, 3, 4])


@covers("H-LEG-12")
async def test_what_a_server_says_in_the_moment_that_a_get_stream_is_lost_waits_for_its_host(
    host: Host, server: ScriptedServer
) -> None:
    await server.streaming()
    async with got(host) as wire:
        await wire.next()
        wire.cut()
    # Then the socket is closed, and its end comes together with what is said next.
    await asyncio.sleep(0)
    for number in range(20):
        await server.push(note(SAID, level="info", data=number))
        await asyncio.sleep(0)
    async with got(host, last_id(wire)) as again:
        await server.push(note(SAID, level="info", data="last"))
        while "last" not in heard(again):
            assert await again.next() is not None
    assert heard(again) == [*range(20), "last"]


@covers("H-LEG-8")
async def test_what_an_open_get_stream_hears_does_not_wait_for_a_lost_one(host: Host, server: ScriptedServer) -> None:
    await server.streaming()
    async with got(host) as wire:
        await wire.next()
        wire.cut()
    await gone(host)
    async with got(host) as other:
        await other.next()
        await server.push(note(SAID, level="info", data=1))
        await ids_of(other, 2)
        async with got(host, last_id(wire)) as again:
            await server.push(note(SAID, level="info", data=2))
            await ids_of(again, 1)
    assert (heard(other), heard(again)) == ([1], [2])


async def test_a_wait_for_a_task_goes_on_without_its_host_and_its_answer_waits(host: Host, tool: TalkingTool) -> None:
    task = (await host.start("report"))["taskId"]
    async with asked(host, "tasks/result", {"taskId": task}) as wire:
        await wire.next()
        wire.cut()
    await gone(host)
    await tool.finish(DONE)
    await host.until(task, "completed")
    async with got(host, last_id(wire)) as again:
        await again.to_end()
    assert [event.message["result"]["content"] for event in again.seen] == [DONE["content"]]


async def test_a_call_that_was_taken_up_is_waited_for_in_a_drain(
    gateway: Gateway, host: Host, tool: TalkingTool
) -> None:
    async with call_stream(host) as wire:
        await wire.next()
        wire.cut()
    await gone(host)
    async with got(host, last_id(wire)) as again, got(host) as get:
        await tell(tool, 1)
        await ids_of(again, 1)
        await get.next()
        draining = asyncio.create_task(gateway.drain())
        while await gateway.ready() != 503:
            pass
        await tool.finish(DONE)
        await again.to_end()
        assert [event.retry for event in await get.to_end()] == ["1000"]
        async with bounded():
            await draining
    assert heard(again) == [1, DONE]


@covers("H-LEG-8", "H-LEG-12")
@pytest.mark.parametrize("seed", range(4))
async def test_however_often_a_connection_breaks_every_event_comes_once_and_in_order(
    host: Host, tool: TalkingTool, seed: int
) -> None:
    chance, words, said = random.Random(seed), list[Any](), 0
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(call_stream(host))
        await wire.next()
        last = last_id(wire)
        while said < 60:
            more = chance.randrange(6)
            await tell(tool, *range(said, said + more))
            said += more
            await ids_of(wire, len(wire.seen) + chance.randint(0, said - len(words)))
            words, last = [*words, *heard(wire)], last_id(wire) if wire.seen else last
            if chance.random() < 0.5:
                wire.cut()
            wire = await stack.enter_async_context(got(host, last))
        await tool.finish(DONE)
        await wire.to_end()
    assert [*words, *heard(wire)] == [*range(said), DONE]


@pytest.mark.parametrize("first", ["the session", "the connection"])
async def test_a_wait_of_a_session_that_is_gone_ends_with_its_connection(server: ScriptedServer, first: str) -> None:
    server.script["report"] = hold = Hold()
    streams = {"side": "downstream", "kind": "response"}
    one_wait = {"rate": [], "concurrency": {"waits_per_context": 1}}
    async with serve(configuration({"reports": server.url}, limits=one_wait)) as gateway:
        host, other = await gateway.greeted(), await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        async with asked(host, "tasks/result", {"taskId": task}) as wire:
            await wire.next()
            if first == "the connection":
                wire.cut()
                await gateway.shows("taskgate_streams", 0, **streams)
                assert await host.leave() == 200
            else:
                assert await host.leave() == 200
                wire.cut()
        await gateway.shows("taskgate_streams", 0, **streams)

        async def wait() -> "asyncio.Task[Answer] | None":
            """A wait of the other, which is refused while there is one."""
            waiting = asyncio.create_task(other.ask("tasks/result", {"taskId": task}))
            await until(lambda: gateway.count("taskgate_streams", **streams), lambda open: open or waiting.done())
            if not waiting.done():
                return waiting
            assert waiting.result().code == 429
            return None

        waiting = await until(wait, lambda found: found is not None)
        hold.release(DONE)
        assert waiting is not None
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]
