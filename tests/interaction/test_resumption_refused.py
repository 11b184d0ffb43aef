"""Streams that cannot be taken up: forged and foreign ids, other processes, what is not kept any more."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host
from helpers.host.wire import asked, gone, got, refused
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, TalkingTool, note
from helpers.token_issuer import TokenIssuer, guarded
from helpers.virtual_time import pass_time
from interaction.questions import DONE
from interaction.resumption import SAID, UNKNOWN, call_stream, heard, ids_of, last_id, tell
from requirements import covers


@covers("H-LEG-12", "I-ISO-2")
@pytest.mark.parametrize(
    "forged",
    ["x", "p1", "-", "p1-0", "p01-000000000000-1", "p1-000000000000-1", "q1-000000000000-1", "p" * 300, "p1-\u00e9-1"],
)
async def test_an_id_that_is_none_of_ours_is_refused(host: Host, forged: str) -> None:
    code, text = await refused(host, forged)
    assert (code, json.loads(text)) == (400, UNKNOWN)


@covers("H-LEG-12")
async def test_an_id_that_was_never_given_is_refused_and_the_stream_goes_on(host: Host, tool: TalkingTool) -> None:
    async with call_stream(host) as wire, got(host) as get:
        for each in (wire, get):
            await each.next()
            ahead = last_id(each).removesuffix("0") + "9"
            code, text = await refused(host, ahead)
            assert (code, json.loads(text)) == (400, UNKNOWN)
        await tool.finish(DONE)
        await wire.to_end()
    assert heard(wire) == [DONE]


async def test_two_last_events_are_refused_and_an_empty_one_is_none(host: Host) -> None:
    async with got(host) as get:
        await get.next()
        assert (await refused(host, last_id(get), f"{last_id(get)}1"))[0] == 400
    async with got(host, "") as get:
        assert (await get.next()) is not None


@covers("H-LEG-12", "I-ISO-2")
async def test_an_id_of_another_session_is_as_unknown_as_any(gateway: Gateway, tool: TalkingTool) -> None:
    owner, other = await gateway.greeted(), await gateway.greeted()
    async with call_stream(owner) as wire, got(owner) as get:
        await tell(tool, "secret")
        await ids_of(wire, 2)
        await get.next()
        code, text = await refused(other, wire.seen[0].id or "")
        assert (code, json.loads(text)) == (400, UNKNOWN)
        async with got(other, last_id(get)) as foreign:
            first = await foreign.next()
            assert first is not None
            assert (first.data, first.id != last_id(get)) == ("", True)
        await tool.finish(DONE)
        await wire.to_end()
    assert heard(wire) == ["secret", DONE]


@covers("H-LEG-12", "I-ISO-2")
async def test_a_stream_is_its_owners_alone(issuer: TokenIssuer, server: ScriptedServer, tool: TalkingTool) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        url = gateway.url()
        owner = await gateway.greeted(token=issuer.token(url, subject="ann"))
        async with call_stream(owner) as wire:
            await tell(tool, "secret")
            await ids_of(wire, 2)
            thief = owner.again()
            thief.token = issuer.token(url, subject="bob")
            assert (await refused(thief, wire.seen[0].id or ""))[0] == 404
            thief.token = None
            assert (await refused(thief, wire.seen[0].id or ""))[0] == 401
            newer = owner.again()
            newer.token = issuer.token(url, subject="ann", jti="newer")
            async with got(newer, wire.seen[0].id) as again:
                await tool.finish(DONE)
                await again.to_end()
    assert heard(again) == ["secret", DONE]


async def test_after_a_restart_a_call_cannot_be_taken_up_and_a_get_stream_begins_anew(
    server: ScriptedServer, tool: TalkingTool, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        host = await gateway.greeted()
        async with call_stream(host) as wire, got(host) as get:
            await tool.finish(DONE)
            await wire.to_end()
            await get.next()
    async with serve(config) as gateway:
        again = Host(gateway.http, gateway.url())
        again.session, again.revision = host.session, host.revision
        code, text = await refused(again, wire.seen[0].id or "")
        assert (code, json.loads(text)) == (400, UNKNOWN)
        async with got(again, last_id(get)) as new:
            first = await new.next()
            assert first is not None
            assert first.id != last_id(get)


@covers("H-LEG-12", "R-RES-7")
async def test_who_missed_more_than_is_kept_is_refused_and_who_did_not_is_not(host: Host, tool: TalkingTool) -> None:
    # A mebibyte is kept of a stream: seventeen of these.
    words = [f"{number}" + "x" * 60_000 for number in range(30)]
    async with call_stream(host) as wire:
        await tell(tool, *words)
        await ids_of(wire, 31)
        wire.cut()
    await gone(host)
    for place in (0, 1, 12):
        assert (await refused(host, wire.seen[place].id or ""))[0] == 400
    await tool.finish(DONE)
    await gone(host)
    async with got(host, wire.seen[15].id) as again:
        await again.to_end()
    assert heard(again) == [*words[15:], DONE]


@covers("R-RES-3")
async def test_what_ended_is_forgotten_after_a_while(
    server: ScriptedServer, tool: TalkingTool, clock: ManualClock
) -> None:
    async with serve(configuration({"reports": server.url}), Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        async with call_stream(host) as wire:
            await tool.finish(DONE)
            await wire.to_end()
        clock.advance(timedelta(minutes=4))
        async with got(host, wire.seen[0].id) as again:
            await again.to_end()
        assert heard(again) == [DONE]
        clock.advance(timedelta(minutes=2))
        assert (await refused(host, wire.seen[0].id or ""))[0] == 400


async def test_a_large_answer_waits_whole(host: Host, tool: TalkingTool) -> None:
    large = {"content": [{"type": "text", "text": "x" * (5 * 1024 * 1024)}]}
    async with call_stream(host) as wire:
        await tell(tool, 1)
        await ids_of(wire, 2)
        wire.cut()
    await gone(host)
    await tool.finish(large)
    async with got(host, wire.seen[0].id) as again:
        await again.to_end()
    assert heard(again) == [1, large]


@covers("H-LEG-12", "R-RES-7")
async def test_a_host_that_reads_slowly_makes_its_server_wait_and_misses_nothing(
    server: ScriptedServer, tool: TalkingTool
) -> None:
    # A notification of more than 64 KiB would be passed over.
    words = [f"{number}" + "x" * 60_000 for number in range(1000)]
    # What a server may say beside an answer is bounded by the size of an answer.
    config = configuration({"reports": server.url}, tasks={"max_result": "128MiB"})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        async with call_stream(host) as wire:
            await wire.next()
            await tell(tool, *words)
            await tool.finish(DONE)
            await at_a_standstill(lambda: tool.unsaid)
            # Far more than connections hold is not said yet.
            assert tool.unsaid > len(words) // 2
            await wire.to_end()
    assert heard(wire) == [*words, DONE]


async def at_a_standstill(count: Callable[[], int]) -> None:
    """Wait until a number has not changed for a while."""
    while (before := count()) is not None:
        await asyncio.sleep(0.3)
        if count() == before:
            return


@covers("R-RES-7")
async def test_a_wait_that_nobody_comes_back_for_is_given_up_and_a_call_is_not(
    server: ScriptedServer, clock: ManualClock
) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}), Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        async with asked(host, "tasks/result", {"taskId": task}) as wait, call_stream(host) as call, got(host) as get:
            for wire in (wait, call, get):
                await wire.next()
            await sweep(clock)
            assert (await host.ask("ping")).result == {}
            for wire in (wait, call, get):
                wire.cut()
        await gateway.shows("taskgate_streams", 0, side="downstream")
        await sweep(clock)
        assert (await refused(host, wait.seen[0].id or ""))[0] == 400
        async with got(host, get.seen[0].id) as new:
            first = await new.next()
            assert first is not None
            assert first.id != get.seen[0].id
        hold.release(DONE)
        async with got(host, call.seen[0].id) as again:
            await again.to_end()
        assert heard(again) == [DONE]


async def sweep(clock: ManualClock) -> None:
    """Let the time go by for which who lost a connection may come back, and the sweep come that ends what waited."""
    clock.advance(timedelta(minutes=6))
    await pass_time(35)


@covers("A-AUTH-13", "H-LEG-11")
async def test_a_get_stream_that_ended_with_its_token_goes_on_with_the_next(
    issuer: TokenIssuer, server: ScriptedServer
) -> None:
    async with serve(
        guarded({"reports": server.url}, auth={"issuers": {"corp": {**issuer.section, "leeway": "0s"}}})
    ) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        await server.streaming()
        newer, host.token = host.token, issuer.token(gateway.url(), exp=time.time() + 1.5)
        async with got(host) as wire:
            assert [event.retry for event in await wire.to_end()] == [None, "1000"]
        await server.push(note(SAID, level="info", data="meanwhile"))
        host.token = newer
        async with got(host, wire.seen[0].id) as again:
            await again.until(SAID)
    assert heard(again) == ["meanwhile"]


@covers("A-AUTH-13")
async def test_a_get_stream_that_was_taken_up_outlives_the_token_that_it_began_with(
    issuer: TokenIssuer, server: ScriptedServer
) -> None:
    async with serve(
        guarded({"reports": server.url}, auth={"issuers": {"corp": {**issuer.section, "leeway": "0s"}}})
    ) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        await server.streaming()
        newer, host.token = host.token, issuer.token(gateway.url(), exp=time.time() + 1.5)
        async with got(host) as wire:
            await wire.next()
            host.token = newer
            async with got(host, wire.seen[0].id) as again:
                await pass_time(5)
                await server.push(note(SAID, level="info", data="later"))
                await again.until(SAID)
    assert [event.retry for event in again.seen] == [None]
