"""A body reaches the engine whole and within bounds, or not at all."""

import asyncio
import gc
import json
import os
import re
import tracemalloc
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import cast

import pytest

from helpers.host.raw import RawAnswer, post
from helpers.virtual_time import turns
from helpers.waiting import eventually
from requirements import covers
from taskgate.auth.context import AuthContext
from taskgate.listener.body import ArrivingBody, Source
from taskgate.listener.door import TOO_SLOW
from taskgate.streams.bytes_in_flight import SPARES, ByteBounds, BytesInFlight
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.offload import LARGE
from unit.listener.gate import LONG_BODY, MOMENT, Gate, bodies_kept, opened

CHUNKED = {"Content_Length": "", "Transfer_Encoding": "chunked"}
CHUNKED_POST = post("", **CHUNKED)


def refused(answer: RawAnswer, status: int) -> bool:
    """Whether this is the last answer on its connection, and says nothing of the request."""
    return (
        answer.status == status
        and answer.headers["connection"] == "close"
        and re.fullmatch("[A-Z][a-z ]+", json.loads(answer.body)["error"]["message"]) is not None
    )


async def test_a_body_that_comes_in_pieces_is_put_together(gate: Gate) -> None:
    whole = post('{"a":[1,2,3]}')
    async with gate.host() as host:
        for byte in whole[:-1]:
            await host.send(bytes([byte]))
        assert (await host.ask(whole[-1:])).status == 200
    assert gate.engine.bodies[0] == b'{"a":[1,2,3]}'


async def test_a_body_as_large_as_allowed_passes(gate: Gate) -> None:
    body = "x" * LONG_BODY
    async with gate.host() as host:
        assert (await host.ask(post(body))).status == 200
        assert (await host.ask(CHUNKED_POST + b"1000\r\n" + body.encode() + b"\r\n0\r\n\r\n")).status == 200
    assert [len(body) for body in gate.engine.bodies] == [LONG_BODY, LONG_BODY]


async def test_a_body_of_megabytes_passes_where_it_is_allowed() -> None:
    body = os.urandom(2**21)
    async with opened(max_body=2**21) as gate, gate.host() as host:
        assert (await host.ask(post(body))).status == 200
        assert gate.engine.bodies[0] == body


@covers("S-SEC-6")
@pytest.mark.parametrize("length", [LONG_BODY + 1, 2**40, 2**63], ids=str)
async def test_a_body_that_says_it_is_too_large_is_not_waited_for(gate: Gate, length: int) -> None:
    async with gate.host() as host:
        assert refused(await host.ask(post(Content_Length=str(length))), 413)
        assert await host.at_end()
    assert (gate.engine.seen, gate.emitted.refused()) == ([], ["body_too_large"])


async def test_a_body_that_came_whole_and_is_too_large_is_refused(gate: Gate) -> None:
    async with gate.host() as host:
        assert refused(await host.ask(CHUNKED_POST + b"1001\r\n" + b"x" * 0x1001 + b"\r\n0\r\n\r\n"), 413)
        assert await host.at_end()
    assert gate.engine.seen == []


async def test_chunks_without_end_are_refused_once_they_are_too_many(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(CHUNKED_POST)
        assert refused(await host.ask(*[b"400\r\n" + b"x" * 1024 + b"\r\n"] * 5), 413)
        assert await host.at_end()
    assert (gate.engine.seen, gate.emitted.refused()) == ([], ["body_too_large"])


@pytest.mark.parametrize("path", ["/mcp", "/nowhere"])
@pytest.mark.parametrize("at_once", [2**18, 0], ids=["with the head", "after the head"])
async def test_a_refused_host_that_goes_on_sending_still_gets_its_answer(gate: Gate, path: str, at_once: int) -> None:
    # Closing with bytes unread would reset the connection, and the answer with it.
    async with gate.host() as host:
        await host.send(post(Content_Length=str(2**24), path=path) + b"x" * at_once)
        await eventually(gate.emitted.answered)
        await host.send(*[b"x" * 2**20] * 15)
        assert (await host.answer()).status == (413 if path == "/mcp" else 404)
        host.stop_sending()
        assert await host.at_end()


async def test_a_refused_host_whose_body_was_not_read_for_a_while_still_gets_its_answer(gate: Gate) -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    gate.engine.script = work
    async with gate.host() as host:
        await host.send(post())
        sending = asyncio.create_task(host.send(post(Content_Length=str(2**25)), b"x" * 2**24))
        # Behind a request at work the body is read no further than to a mark.
        await turns()
        assert gate.unread
        go_on.set()
        assert [(await host.answer()).status for _ in range(2)] == [200, 413]
        await sending
        host.stop_sending()
        assert await host.at_end()


async def test_chunks_are_put_together(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(CHUNKED_POST)
        answer = await host.ask(b"2\r\n{", b'"', b'\r\n3;name=value\r\na":\r\n', b"0002\r\n1}\r\n", b"0\r\n\r\n")
        assert answer.status == 200
        assert (await host.ask(post())).status == 200
    assert gate.engine.bodies[0] == b'{"a":1}'


@pytest.mark.parametrize("at_once", [True, False], ids=["with the head", "after the head"])
async def test_chunks_of_a_byte_are_refused_once_they_are_very_many(at_once: bool) -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        chunks = [b"1\r\n \r\n" * 2**14] * 20
        if not at_once:
            await host.send(CHUNKED_POST)
        assert refused(await host.ask(*([CHUNKED_POST] if at_once else []), *chunks), 400)
        host.stop_sending()
        assert await host.at_end()
    assert gate.engine.bodies == []


@pytest.mark.parametrize("size", [64, 2**10, 2**17])
async def test_chunks_of_any_sensible_size_may_be_very_many(size: int) -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
        await host.send(CHUNKED_POST, *[chunk * (2**17 // size)] * 16)
        assert (await host.ask(b"0\r\n\r\n")).status == 200
    assert [len(body) for body in gate.engine.bodies] == [2**21]


async def test_what_comes_with_the_end_of_a_body_is_of_the_next_one() -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        await host.send(CHUNKED_POST + b"1\r\nx\r\n")
        await host.send(b"0\r\n\r\n" + post("y" * 200_000))
        assert [(await host.answer()).status for _ in range(2)] == [200, 200]
    assert [len(body) for body in gate.engine.bodies] == [1, 200_000]


BAD_CHUNKS = {
    "no size": b"\r\n{}\r\n0\r\n\r\n",
    "a size that is no number": b"zz\r\n{}\r\n0\r\n\r\n",
    "a negative size": b"-2\r\n{}\r\n0\r\n\r\n",
    "a size with a prefix": b"0x2\r\n{}\r\n0\r\n\r\n",
    "a space before the size": b" 2\r\n{}\r\n0\r\n\r\n",
    "a size beyond counting": b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "more than its size": b"1\r\n{}\r\n0\r\n\r\n",
    "bare LF after the size": b"2\n{}\r\n0\r\n\r\n",
    "bare LF after the chunk": b"2\r\n{}\n0\r\n\r\n",
}


@pytest.mark.parametrize("at_once", [True, False], ids=["with the head", "after the head"])
@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
async def test_chunks_that_are_none_are_a_bad_request(gate: Gate, chunks: bytes, at_once: bool) -> None:
    async with gate.host() as host:
        if at_once:
            answer = await host.ask(CHUNKED_POST + chunks)
        else:
            await host.send(CHUNKED_POST)
            await gate.has_read()
            answer = await host.ask(chunks + post())
        assert refused(answer, 400)
        assert await host.at_end()
    assert gate.engine.seen == []
    assert len(gate.emitted.answered()) == 1


async def test_a_body_that_is_cut_off_reaches_nobody(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(post(Content_Length="100"))
        await gate.has_read()
        host.abort()
        await eventually(gate.emitted.answered)
    assert gate.engine.seen == []
    assert gate.emitted.answered() == [("mcp", "POST", 400)]


@pytest.mark.parametrize(("last", "status"), [(b"10000\r\n" + b"x" * 2**16 + b"\r\n", 413), (b"no chunk\r\n", 400)])
async def test_nothing_of_a_refused_body_is_kept_while_its_host_may_finish_sending(last: bytes, status: int) -> None:
    chunk = b"10000\r\n" + b"x" * 2**16 + b"\r\n"
    async with opened(max_body=2**22) as gate, gate.host() as host:
        await host.send(CHUNKED_POST)
        tracemalloc.start()
        try:
            for _ in range(2**6):
                await host.send(chunk)
            # Not counted any more from here on.
            assert refused(await host.ask(last), status)
            assert tracemalloc.get_traced_memory()[0] < 2**20
        finally:
            tracemalloc.stop()


async def test_nothing_of_a_body_that_was_not_asked_for_is_kept_while_its_host_may_finish_sending() -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        go_on = asyncio.Event()

        async def deny(_: Exchange) -> HttpReply:
            await go_on.wait()
            return HttpReply(status=401, body="{}")

        gate.engine.turn_away = deny
        tracemalloc.start()
        try:
            await host.send(post("", Content_Length=str(2**22)) + b"x" * 3 * 2**17)
            await eventually(lambda: tracemalloc.get_traced_memory()[0] > 3 * 2**17)
            go_on.set()
            assert (await host.answer()).status == 401
            assert tracemalloc.get_traced_memory()[0] < 2**17
        finally:
            tracemalloc.stop()


async def test_nothing_of_a_body_that_came_too_slowly_is_kept_while_its_host_may_finish_sending() -> None:
    async with opened(max_body=2**22, read_timeout=MOMENT) as gate, gate.host() as host:
        tracemalloc.start()
        try:
            await host.send(post("", Content_Length=str(2**22)) + b"x" * 2**21)
            assert refused(await host.answer(), 408)
            assert tracemalloc.get_traced_memory()[0] < 2**20
        finally:
            tracemalloc.stop()


def test_what_arrives_of_a_body_after_its_rejection_is_not_kept() -> None:
    body = ArrivingBody(cast(Source, None))
    body.fail(TOO_SLOW)
    tracemalloc.start()
    try:
        for _ in range(16):
            body.feed(bytes(2**14))
        assert tracemalloc.get_traced_memory()[0] < 2**15
    finally:
        tracemalloc.stop()


async def test_nothing_of_a_body_without_room_is_kept_while_its_host_may_finish_sending() -> None:
    async with opened(max_body=2**22) as gate, AsyncExitStack() as stack:
        gate.engine.in_flight = BytesInFlight(lambda: ByteBounds(1, 1, 1))
        # The first body always has room.
        for _ in range(1 + SPARES):
            await (await stack.enter_async_context(gate.host())).send(post("", Content_Length=str(2**20)))
        await eventually(lambda: gate.engine.in_flight.total == 2**20 * (1 + SPARES))
        host = await stack.enter_async_context(gate.host())
        tracemalloc.start()
        try:
            await host.send(post("", Content_Length=str(2**22)) + b"x" * 3 * 2**17)
            assert refused(await host.answer(), 429)
            assert tracemalloc.get_traced_memory()[0] < 2**17
        finally:
            tracemalloc.stop()


async def test_nothing_of_a_body_that_is_cut_off_is_kept() -> None:
    gc.collect()
    gc.disable()
    try:
        async with opened() as gate, gate.host() as host:
            await host.send(post(Content_Length="4000") + b"x" * 1000)
            await gate.has_read()
            host.abort()
            await eventually(gate.emitted.answered)
            await eventually(lambda: bodies_kept() == 0)
    finally:
        gc.enable()


@pytest.mark.parametrize("start", [post(Content_Length="100"), CHUNKED_POST + b"5\r\n{"], ids=["length", "chunks"])
async def test_a_body_that_does_not_come_is_not_waited_for(start: bytes) -> None:
    async with opened(read_timeout=MOMENT) as gate, gate.host() as host:
        answer = await host.ask(start)
        assert refused(answer, 408)
        assert await host.at_end()
        assert gate.engine.seen == []


async def test_a_body_that_drips_is_not_waited_for_longer() -> None:
    async with opened(read_timeout=MOMENT) as gate, gate.host() as host:
        await host.send(post(Content_Length="4000"))

        async def drip() -> None:
            # Never all of it, however fast this goes.
            for _ in range(3_900):
                await host.send("x")
                await asyncio.sleep(0)

        dripping = asyncio.create_task(drip())
        assert refused(await host.answer(), 408)
        dripping.cancel()
        await asyncio.wait([dripping])
        assert gate.engine.seen == []


async def test_a_host_that_asks_before_it_sends_is_told_to_go_on(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(post("", Content_Length="2", Expect="100-Continue"))
        go_on = await host.head()
        assert (go_on.status, go_on.headers, gate.engine.seen) == (100, {}, [])
        assert (await host.ask("{}")).status == 200


async def test_http_1_0_knows_no_question_before_the_body(gate: Gate) -> None:
    request_bytes = post("", Content_Length="2", Expect="100-continue", Connection="keep-alive")
    async with gate.host() as host:
        await host.send(request_bytes.replace(b"HTTP/1.1", b"HTTP/1.0"))
        await gate.has_read()
        answer = await host.ask("{}")
        assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")


async def test_a_host_that_asks_before_it_sends_what_is_refused_is_told_so_at_once(gate: Gate) -> None:
    async with gate.host() as host:
        assert refused(await host.ask(post("", Content_Length=str(LONG_BODY + 1), Expect="100-continue")), 413)
        assert await host.at_end()


# --- large ones, which are admitted by their bytes --------------------------------------------------------------------


class Admitted:
    """What was asked of large bodies, by their bytes; `open` is when they may be read."""

    def __init__(self, gate: Gate) -> None:
        self.sizes: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        gate.engine.admit_large = self

    async def __call__(self, exchange: Exchange, caller: AuthContext, size: int) -> None:
        self.sizes.append(size)
        await self.open.wait()


def chunks_of(size: int, chunk: int) -> bytes:
    """A body of that size in chunks, after the head of a chunked request."""
    return (b"%x\r\n" % chunk + b"x" * chunk + b"\r\n") * (size // chunk) + b"0\r\n\r\n"


async def test_a_large_body_is_admitted_by_its_size_and_a_small_one_is_not_asked_for() -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        admitted = Admitted(gate)
        for size in (10, LARGE, LARGE + 1, 2**21):
            assert (await host.ask(post("x" * size))).status == 200
        assert admitted.sizes == [LARGE + 1, 2**21]
        assert [len(body) for body in gate.engine.bodies] == [10, LARGE, LARGE + 1, 2**21]


@covers("T46")
@pytest.mark.parametrize("chunk", [2**15, 2**17, 2**20])
async def test_a_body_without_a_size_pays_for_what_has_come_in_few_steps_however_small_its_chunks(chunk: int) -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        admitted = Admitted(gate)
        await host.send(CHUNKED_POST)
        for sent in range(chunk, 2**21 + 1, chunk):
            await host.send(b"%x\r\n" % chunk + b"x" * chunk + b"\r\n")
            await eventually(lambda sent=sent: gate.engine.in_flight.total == sent)
        assert (await host.ask("0\r\n\r\n")).status == 200
        assert len(gate.engine.bodies[0]) == 2**21
        assert 2**21 <= sum(admitted.sizes) <= 2**21 + LARGE
        assert len(admitted.sizes) <= 2**21 // LARGE


async def test_the_wait_of_a_large_body_for_its_turn_is_no_time_in_which_it_must_arrive() -> None:
    async with opened(max_body=2**22, read_timeout=timedelta(seconds=1)) as gate, gate.host() as host:
        admitted = Admitted(gate)
        for request in (post("x" * 2**20), CHUNKED_POST + chunks_of(2**20, 2**18)):
            admitted.open.clear()
            asyncio.get_running_loop().call_later(1.2, admitted.open.set)
            assert (await host.ask(request)).status == 200


@pytest.mark.parametrize("size", [3 * 2**17, 2**23])
async def test_no_more_is_read_of_a_large_body_that_waits_for_its_turn_the_larger_it_is(size: int) -> None:
    async with opened(max_body=2**24) as gate, gate.host() as host:
        admitted = Admitted(gate)
        admitted.open.clear()
        await host.send(post("", Content_Length=str(size)))
        await eventually(lambda: admitted.sizes == [size])
        sending = asyncio.create_task(host.send(b"x" * size))
        # Others are served meanwhile, so that it would have been read.
        for _ in range(20):
            async with gate.host() as other:
                assert (await other.ask(post())).status == 200
        assert gate.unread
        assert gate.engine.in_flight.total == size
        admitted.open.set()
        await sending
        assert (await host.answer()).status == 200
        assert not gate.unread


async def test_a_large_body_that_came_before_it_was_asked_for_is_admitted_too() -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        admitted, identified = Admitted(gate), asyncio.Event()

        async def identify(exchange: Exchange) -> HttpReply | None:
            await identified.wait()
            return None

        gate.engine.turn_away = identify
        await host.send(post("x" * (LARGE + 1)))
        await gate.has_read()
        identified.set()
        assert (await host.answer()).status == 200
        assert admitted.sizes == [LARGE + 1]
        assert gate.engine.in_flight.total == 0
