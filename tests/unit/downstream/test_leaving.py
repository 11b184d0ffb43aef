"""Hosts that leave at the moment of their answer: whether they have it, for whoever must know."""

import asyncio

import pytest
from aiohttp import web

from helpers.raw_http import post
from helpers.waiting import bounded, eventually
from taskgate.engine.messages import Exchange, Reply
from unit.downstream.gate import Gate


@pytest.mark.parametrize(("is_closed_before", "expected"), [(False, []), (True, ["left"])])
async def test_a_host_that_leaves_with_the_last_event_of_its_stream_left_after_its_answer(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, is_closed_before: bool, expected: list[str]
) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> Reply:
        exchange.when_gone(lambda: left.append("left"))
        feed = exchange.stream()
        feed.put('{"first":true}')
        if is_closed_before:
            # As for a host that reads too slowly: the answer is not told any more.
            feed.close()
        return Reply(body='{"last":true}')

    ending, go_on = asyncio.Event(), asyncio.Event()

    async def write_eof(*_: object) -> None:
        ending.set()
        await go_on.wait()

    monkeypatch.setattr(web.StreamResponse, "write_eof", write_eof)
    gate.engine.script = answer
    async with gate.host() as host:
        await host.send(post())
        async with bounded():
            await ending.wait()
        (connection,) = gate.listener._connections._open
        host.abort()
        async with bounded():
            await connection.lost
        go_on.set()
        await eventually(gate.facts.answered)
    assert left == expected


async def test_a_host_whose_connection_ends_just_before_its_plain_answer_has_left_before_it(gate: Gate) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> Reply:
        exchange.when_gone(lambda: left.append("left"))
        exchange._http.transport.abort()  # type: ignore[attr-defined]
        return Reply(body="{}")

    gate.engine.script = answer
    async with gate.host() as host:
        await host.send(post())
        await eventually(gate.facts.answered)
    assert left == ["left"]
