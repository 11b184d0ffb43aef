"""A connection that did not come about is tried again; a request of which a byte may have left is not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.upstream.settings import Retries
from taskgate.upstream.wire.transport import Retrying
from unit.upstream.exchanges import DOCUMENT, NewTransport, failure_of, outgoing, start
from unit.upstream.raw_server import RawServer


def retries(attempts: int = 2, backoff: float = 0.001, most: float = 5) -> Retries:
    return Retries(attempts=attempts, backoff=timedelta(seconds=backoff), max_backoff=timedelta(seconds=most))


class LateServer(RawServer):
    """A server that refuses every connection until `listen`."""

    async def __aenter__(self) -> "LateServer":
        self._socket = socket.socket()
        self._socket.bind((self._host, 0))
        self.port = self._socket.getsockname()[1]
        self._starting: asyncio.Task[None] | None = None
        return self

    def listen(self) -> None:
        """From now on whoever comes is let in, at once or a little later."""
        self._socket.listen()
        self._starting = asyncio.create_task(self._start())

    async def __aexit__(self, *error: object) -> None:
        if self._starting is None:
            self._socket.close()
            return
        await self._starting
        await super().__aexit__(*error)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._socket)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
async def late() -> AsyncIterator[LateServer]:
    async with LateServer() as server:
        yield server


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where every connection is refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The address of every connection that is tried."""
    ways: list[object] = []
    connect = socket.socket.connect

    def counting(tried: socket.socket, address: object) -> None:
        ways.append(address)
        connect(tried, address)

    monkeypatch.setattr(socket.socket, "connect", counting)
    return ways


async def test_a_server_that_refuses_and_then_accepts_is_asked_once(
    late: LateServer, transport_to: NewTransport
) -> None:
    told: list[str] = []

    def listen(reason: str) -> None:
        told.append(reason)
        late.listen()

    asking = start(transport_to(late.url(), retries=retries(), retried=listen))
    line = await late.next()
    _, body = await line.request()
    await line.say(DOCUMENT)
    async with bounded():
        assert await asking == (200, [b"{}"])
    assert (body, told, len(late.accepted)) == (b"{}", ["connect"], 1)


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_so_many_tries_are_made_in_all(
    nobody: str, transport_to: NewTransport, ways: list[object], attempts: int
) -> None:
    told: list[str] = []
    transport = transport_to(nobody, retries=retries(attempts), retried=told.append)
    assert await failure_of(start(transport)) == ("unreachable", False)
    assert (len(ways), told) == (attempts, ["connect"] * (attempts - 1))


async def test_a_request_with_a_control_character_in_a_header_is_not_tried_again(
    nobody: str, transport_to: NewTransport
) -> None:
    told: list[str] = []
    transport = transport_to(nobody, retries=retries(3), retried=told.append)
    asking = asyncio.create_task(transport.send(replace(outgoing(), headers={"X-Name": "a\nb"})))
    assert await failure_of(asking) == ("unreachable", False)
    assert told == []


async def test_without_retries_there_is_one_try(nobody: str, transport_to: NewTransport, ways: list[object]) -> None:
    transport = transport_to(nobody)
    assert await failure_of(start(transport)) == ("unreachable", False)
    assert len(ways) == 1


@pytest.mark.parametrize("way", ["a connection that takes too long", "a handshake of TLS that breaks off"])
async def test_whatever_keeps_a_connection_from_coming_about_is_tried_again(
    server: RawServer, transport_to: NewTransport, way: str
) -> None:
    """Nothing of the request goes before the end of the handshake of TLS."""
    told: list[str] = []
    slow = way.startswith("a connection")
    changes = {"connect": timedelta(milliseconds=20)} if slow else {}
    asking = start(transport_to(server.url("https"), retries=retries(3), retried=told.append, **changes))
    for _ in range(3):
        line = await server.next()
        if not slow:
            line.writer.transport.abort()
    assert await failure_of(asking) == ("unreachable", False)
    assert (told, len(server.accepted)) == (["connect"] * 2, 3)


@pytest.mark.parametrize("kept", [False, True], ids=["a new connection", "a kept connection"])
@pytest.mark.parametrize("heard", ["nothing", "a part", "all of it"])
async def test_a_request_that_may_have_left_is_never_made_again(
    server: RawServer, transport_to: NewTransport, heard: str, kept: bool
) -> None:
    told: list[str] = []
    transport = transport_to(server.url(), retries=retries(5), retried=told.append)
    asking = start(transport)
    line = await server.next()
    if kept:
        await line.request()
        await line.say(DOCUMENT)
        async with bounded():
            await asking
        asking = start(transport)
    if heard == "a part":
        async with bounded():
            await line.reader.readexactly(3)
    elif heard == "all of it":
        await line.request()
    else:
        # Its bytes may be anywhere by then.
        await turns()
    line.writer.transport.abort()
    assert await failure_of(asking) == ("closed", True)
    assert (told, len(server.accepted)) == ([], 1)


async def test_nobody_waits_longer_for_another_try_than_for_an_answer(
    nobody: str, transport_to: NewTransport, ways: list[object]
) -> None:
    told: list[str] = []
    transport = transport_to(nobody, retries=retries(3, backoff=60, most=60), retried=told.append)
    assert await failure_of(start(transport, first_byte=10)) == ("unreachable", False)
    assert (len(ways), told) == (1, [])


@pytest.mark.parametrize("end", ["the transport is closed", "who asks goes away"])
async def test_a_pause_ends_with_whoever_waits_in_it(
    nobody: str, transport_to: NewTransport, ways: list[object], end: str
) -> None:
    told: list[str] = []
    transport = transport_to(nobody, retries=retries(3, backoff=600, most=600), retried=told.append)
    asking = start(transport)
    await eventually(lambda: ways)
    await turns()
    async with bounded():
        if end == "who asks goes away":
            asking.cancel()
            await asyncio.wait((asking,))
        else:
            await transport.close()
            assert await failure_of(asking) == ("closed", False)
    assert (len(ways), told) == (1, [])


async def test_a_stream_is_not_tried_again_here_for_it_comes_back_by_itself(
    nobody: str, transport_to: NewTransport, ways: list[object]
) -> None:
    transport = transport_to(nobody, retries=retries(5))
    listening = asyncio.ensure_future(transport.send(replace(outgoing(None), verb="GET", only_listens=True)))
    assert await failure_of(listening) == ("unreachable", False)
    assert len(ways) == 1


def test_pauses_double_up_to_the_longest_and_none_is_shorter_than_half() -> None:
    retrying = Retrying(retries(6, backoff=1, most=5), "reports", lambda reason: None)
    for _ in range(50):
        for pause, most in zip(retrying.pauses(), (1, 2, 4, 5, 5), strict=True):
            assert most / 2 <= pause <= most


def test_no_two_requests_pause_alike() -> None:
    retrying = Retrying(retries(backoff=1), "reports", lambda reason: None)
    other = Retrying(retries(backoff=1), "search", lambda reason: None)
    first = sorted(pause for each in (retrying, other) for _ in range(50) for pause in each.pauses())
    assert all(one < next_ for one, next_ in pairwise(first))
