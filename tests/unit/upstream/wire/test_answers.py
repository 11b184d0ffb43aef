"""An answer as it comes out of the socket: cut anywhere, followed by too much, or broken off."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from random import Random
from typing import cast

import pytest
from aiohttp import ClientPayloadError
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpResponseParser

from taskgate.errors import UpstreamFailed
from taskgate.upstream.wire.connection import Connection, ConnectionObserver
from taskgate.upstream.wire.heads import LONGEST, REMEMBERED, AnswerHead, AnswerHeads
from unit.upstream.exchanges import DOCUMENT, EVENT, JSON, STREAM

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"

Read = tuple[int, bytes, bool] | str
"""What became of an answer: its status, its body and whether that has ended; or that it is broken."""


@dataclass(eq=False)
class Pool:
    """Counts the connections that are kept and dropped."""

    kept: int = 0
    dropped: int = 0

    def made(self, connection: Connection) -> None: ...

    def keep(self, connection: Connection) -> None:
        self.kept += 1

    def forget(self, connection: Connection) -> None:
        self.dropped += 1

    def lost(self, connection: Connection) -> None: ...


@dataclass(eq=False)
class Network:
    """Takes what is written, and is read all the time."""

    written: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None: ...


class Exchange:
    """One request on a connection of its own."""

    def __init__(self, heads: AnswerHeads) -> None:
        self.pool = Pool()
        self.connection = Connection(asyncio.get_running_loop(), cast("ConnectionObserver", self.pool), heads)
        self.connection.connection_made(cast("asyncio.Transport", Network()))
        self._head: AnswerHead | None = None
        self._body = b""

    def read(self, pieces: Iterable[bytes]) -> Read:
        """Ask, and return what becomes of the answer that comes in these pieces."""
        waiting, self._body = self.connection.ask(b"", None, None), b""
        for piece in pieces:
            self.connection.data_received(piece)
            if waiting.done() and waiting.exception() is not None:
                return "broken"
            try:
                self._body += self.connection.take() if waiting.done() else b""
            except UpstreamFailed:
                return "broken"
        if not waiting.done():
            return "no answer"
        if not self.connection.has_ended and self.connection.more(None).done():
            return "broken"
        return waiting.result().status, self._body, self.connection.has_ended


def read_by_aiohttp(data: bytes) -> Read:
    """What aiohttp's parser makes of an answer that came whole."""
    loop = asyncio.get_running_loop()
    parser = HttpResponseParser(
        BaseProtocol(loop),
        loop,
        2**16,
        payload_exception=ClientPayloadError,
        read_until_eof=True,
        auto_decompress=False,
        max_line_size=LARGEST_HEAD,
        max_field_size=LARGEST_HEAD,
        max_headers=LARGEST_HEAD,
    )
    try:
        messages, _, _ = parser.feed_data(data)
    except Exception:
        return "broken"
    for message, body in messages:
        if message.code >= 200:
            return message.code, body.read_nowait(), body.is_eof()
    return "no answer"


LARGEST_HEAD = 4096
"""The most bytes of a head here."""

ANSWERS = {
    "a document": DOCUMENT,
    "a length in another form": JSON + b"content-length:2\r\n\r\n{}",
    "a length with zeros before": JSON + b"Content-Length: 0002\r\n\r\n{}",
    "no body": OK + b"Content-Length: 0\r\n\r\n",
    "chunks": CHUNKED + b"1\r\n{\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "chunks with extensions and a trailer": CHUNKED + b'1;a=b\r\n{\r\n01 ;c="d;e"\r\n}\r\n0\r\nX: 1\r\nY:\r\n\r\n',
    "events": STREAM + EVENT + EVENT + b"0\r\n\r\n",
    "no length": JSON + b"\r\n{}\r\n\r\n{}",
    "chunked and packed": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "packed and not in chunks": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "interim answers": INTERIM + b"\r\n" + INTERIM + DOCUMENT,
    "an interim answer with a length": INTERIM.replace(b"Link: x", b"Content-Length: 9") + DOCUMENT,
    "no content, with a length": b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
    "not modified, with chunks": b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    "lines that end in LF alone": DOCUMENT.replace(b"\r\n", b"\n"),
    "empty lines before it": b"\r\n\n" + DOCUMENT,
    "two lengths": JSON + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a length and chunks": JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "a length that is none": JSON + b"Content-Length: +2\r\n\r\n{}",
    "an empty length": JSON + b"Content-Length: \r\n\r\n{}",
    "a length that goes on": JSON + b"Content-Length: 2\r\n 1\r\n\r\n{}",
    "a length beyond all bounds": JSON + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "too little": JSON + b"Content-Length: 3\r\n\r\n{}",
    "a chunk of less than nothing": CHUNKED + b"-1\r\n",
    "a chunk with another base": CHUNKED + b"0x1\r\n{\r\n",
    "a chunk that goes on": CHUNKED + b"1\r\n{}\r\n",
    "a trailer that is none": CHUNKED + b"0\r\nX 1\r\n\r\n",
    "a name with a space": OK + b"Bad Name: x\r\n\r\n",
    "a line without end": OK + b"X: " + b"x" * LARGEST_HEAD,
    "many lines": OK + b"X: x\r\n" * 129 + b"\r\n",
    "another protocol": b"SSH-2.0-OpenSSH\r\n\r\n",
}


def cuts_of(data: bytes) -> Iterator[list[bytes]]:
    """The data in two pieces, in all ways; whole; and byte by byte."""
    step = max(1, len(data) // 200)
    for cut in range(0, len(data), step):
        yield [data[:cut], data[cut:]] if cut else [data]
    yield [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_cut_anywhere_is_read_as_aiohttp_reads_it_whole(answer: bytes) -> None:
    heads, expected = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD), read_by_aiohttp(answer)
    for pieces in cuts_of(answer):
        # Twice: the head of the second one may be remembered.
        assert [Exchange(heads).read(pieces) for _ in range(2)] == [expected] * 2, pieces


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_read_by_its_own_head_also_behind_others_on_its_connection(answer: bytes) -> None:
    exchange = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD))
    for body in (b"{}", b"[1]", b"{}"):
        assert exchange.read([JSON + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)]) == (200, body, True)
        exchange.connection.release()
    assert exchange.read([answer]) == read_by_aiohttp(answer)


def made_up(random: Random) -> bytes:
    """An answer that may be broken."""
    body = random.choice([b"", b"{}", b"data: {}\n\ndata: 1\n\n", b"x\r\n\r\ny"])
    fields = random.choices(
        [JSON[17:], b"Mcp-Session-Id: a\r\n", b"Connection: close\r\n", b"X: a\n", b"X: a\r\n b\r\n", b"Y: \t\r\n"],
        k=random.randint(0, 3),
    )
    if random.random() < 0.5:
        written = random.choice(
            [b"Content-Length: %d", b"content-length:%d", b"Content-Length: 0%d ", b"Content-Length: +%d"]
        )
        fields.append(written % len(body) + b"\r\n")
    elif random.random() < 0.8:
        fields.append(b"Transfer-Encoding: chunked\r\n")
        chunks, at = [], 0
        while at < len(body):
            size = random.randint(1, len(body) - at)
            chunks.append(b"%x%s\r\n%s\r\n" % (size, random.choice([b"", b" ", b";a=b"]), body[at : at + size]))
            at += size
        body = b"".join(chunks) + random.choice(
            [b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: 1\r\n\r\n", b"zz\r\n", b"0\r\n", b""]
        )
    random.shuffle(fields)
    status = random.choice([OK, OK, OK, b"HTTP/1.0 404 No\r\n", b"HTTP/1.1 204 No\r\n"])
    body = b"" if b"204" in status else body
    return random.choice([b"", b"", b"", INTERIM]) + status + b"".join(fields) + b"\r\n" + body


@pytest.mark.parametrize("seed", range(4))
async def test_an_answer_that_is_made_up_and_cut_anywhere_is_read_as_aiohttp_reads_it_whole(seed: int) -> None:
    random, heads = Random(seed), AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    for _ in range(400):
        answer = made_up(random)
        cuts = sorted({0, len(answer), *random.choices(range(len(answer)), k=random.randint(0, 4))})
        pieces = [answer[at:end] for at, end in pairwise(cuts)]
        assert Exchange(heads).read(pieces) == read_by_aiohttp(answer), pieces


# --- heads that are remembered --------------------------------------------------------------------------------------


TOO_LARGE = {
    "one line": OK + b"X: " + b"x" * LARGEST_HEAD + b"\r\n\r\n",
    "many lines": OK + b"X: x\r\n" * (LARGEST_HEAD // 6) + b"\r\n",
    "lines without an end": OK + b"X: x\r\n" * (LARGEST_HEAD // 6),
    "interim heads": INTERIM * (LARGEST_HEAD // 16) + DOCUMENT,
}


@pytest.mark.parametrize("size", [1, 100, 10**6])
@pytest.mark.parametrize("answer", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_head_of_more_bytes_than_the_limit_is_refused_by_that_name(answer: bytes, size: int) -> None:
    connection = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)).connection
    waiting = connection.ask(b"", None, None)
    for at in range(0, len(answer), size):
        if not waiting.done():
            connection.data_received(answer[at : at + size])
    with pytest.raises(UpstreamFailed, match=f"max_header allows .{LARGEST_HEAD} bytes") as failed:
        await waiting
    assert (failed.value.reason, failed.value.dispatched) == ("too_large", True)


async def test_a_head_is_measured_by_itself_whatever_comes_behind_it() -> None:
    lines = OK + b"Content-Length: 9999\r\n" + b"X: x\r\n" * ((LARGEST_HEAD - 100) // 6) + b"\r\n"
    body = b"x" * 9999
    assert Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)).read([lines + body]) == (200, body, True)


class CountedHeads(AnswerHeads):
    """`parsed` counts the heads that were not remembered."""

    parsed = 0

    def parser(self) -> HttpResponseParser:
        self.parsed += 1
        return super().parser()


async def test_of_two_answers_with_one_head_each_has_its_own_length() -> None:
    heads = CountedHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    exchange = Exchange(heads)
    for body in (b"{}", b"", b'{"a":1}', b"[1]"):
        assert exchange.read([JSON + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)]) == (200, body, True)
        exchange.connection.release()
        assert exchange.read([CHUNKED + b"0\r\n\r\n"]) == (200, b"", True)
        exchange.connection.release()
    assert (exchange.pool.kept, heads.parsed) == (8, 2)


async def test_a_head_that_lacks_its_length_is_not_taken_for_one_that_is_remembered() -> None:
    exchange = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD))
    assert exchange.read([DOCUMENT]) == (200, b"{}", True)
    exchange.connection.release()
    assert exchange.read([JSON + b"Content-Length: \r\n\r\n{}"]) == "broken"


async def test_few_heads_are_remembered_and_no_long_one() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    answers = [OK + b"X: %d\r\nContent-Length: 0\r\n\r\n" % number for number in range(5 * REMEMBERED // 2)]
    answers += [
        OK + b"X: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % number for number in range(5 * REMEMBERED // 2)
    ]
    for answer in answers:
        assert Exchange(heads).read([answer]) == (200, b"", True)
    assert len(heads.counted) == len(heads.others) == REMEMBERED
    for remembered in (heads.counted, heads.others):
        assert next(iter(remembered)).startswith(OK + b"X: %d\r\n" % (5 * REMEMBERED // 2 - REMEMBERED))
    for fields in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        assert Exchange(heads).read([OK + b"X: %s\r\n" % (b"x" * LONGEST) + fields]) == (200, b"", True)
    assert max(map(len, [*heads.counted, *heads.others])) < LONGEST


async def test_a_connection_that_the_server_closes_is_not_kept() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    for _ in range(2):
        exchange = Exchange(heads)
        assert exchange.read([JSON + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"]) == (200, b"{}", True)
        exchange.connection.release()
        assert (exchange.pool.kept, exchange.pool.dropped) == (0, 1)


async def test_an_empty_line_of_lf_alone_ends_no_remembered_head() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    Exchange(heads).read([OK + b"Content-Length: 2\r\nX: ab\n\n{}"])
    assert not heads.counted
    assert not heads.others


# --- what comes after an answer, or instead of its end ----------------------------------------------------------------


@pytest.mark.parametrize("more", [DOCUMENT, DOCUMENT[:9], STREAM + b"1", b"\r\n" + DOCUMENT], ids=str)
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("answer", [DOCUMENT, CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"], ids=["counted", "chunked"])
async def test_what_follows_an_answer_is_never_the_answer_to_the_next_request(
    answer: bytes, more: bytes, at_once: bool
) -> None:
    exchange = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD))
    assert exchange.read([answer + more] if at_once else [answer, more]) == (200, b"{}", True)
    exchange.connection.release()
    assert (exchange.pool.kept, exchange.pool.dropped) == (0, 1)


async def test_a_time_of_day_until_which_to_wait_counts_from_now_if_the_answer_has_no_date() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True).encode()
    busy = b"HTTP/1.1 429 Busy\r\nRetry-After: " + until + b"\r\nContent-Length: 0\r\n\r\n"
    exchange = Exchange(heads)
    pauses = []
    for _ in range(2):
        waiting = exchange.connection.ask(b"", None, None)
        exchange.connection.data_received(busy)
        pauses.append(waiting.result().retry_after)
    assert all(timedelta(seconds=50) < pause <= timedelta(seconds=60) for pause in pauses)
    # It differs with each answer.
    assert (heads.counted, pauses[0] == pauses[1]) == ({}, False)


async def test_an_answer_with_nonsense_behind_it_is_broken_if_both_come_at_once() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    assert Exchange(heads).read([DOCUMENT + b"nonsense"]) == "broken"
    last = DOCUMENT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert Exchange(heads).read([last + DOCUMENT]) == read_by_aiohttp(last + DOCUMENT) == "broken"
    later = Exchange(heads)
    assert later.read([DOCUMENT, b"nonsense"]) == (200, b"{}", True)
    assert later.pool.dropped == 1


async def test_an_answer_is_kept_only_if_nothing_but_empty_lines_follows() -> None:
    exchange = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD))
    assert exchange.read([DOCUMENT + b"\r\n"]) == (200, b"{}", True)
    exchange.connection.release()
    assert (exchange.pool.kept, exchange.pool.dropped) == (1, 0)


async def test_what_came_before_a_body_broke_off_is_read_and_then_the_failure_raised() -> None:
    exchange = Exchange(AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD))
    connection = exchange.connection
    assert exchange.read([STREAM]) == (200, b"", False)
    connection.data_received(EVENT + b"2\r\nab\r\nzz\r\n")
    assert connection.take() == b"data: {}\n\nab"
    await connection.more(60.0)
    with pytest.raises(UpstreamFailed, match="ended before it was complete"):
        connection.take()


async def test_a_body_without_a_length_ends_as_its_connection_does_and_a_counted_one_breaks_off() -> None:
    heads = AnswerHeads(asyncio.get_running_loop(), LARGEST_HEAD)
    open_end, counted = Exchange(heads), Exchange(heads)
    assert open_end.read([JSON + b"\r\n{"]) == (200, b"{", False)
    open_end.connection.connection_lost(None)
    assert (open_end.connection.take(), open_end.connection.has_ended) == (b"", True)
    assert counted.read([JSON + b"Content-Length: 2\r\n\r\n{"]) == (200, b"{", False)
    counted.connection.connection_lost(None)
    with pytest.raises(UpstreamFailed):
        counted.connection.take()
