"""A name with several addresses: whichever can be reached, and nothing left of the others."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
import uvloop
from yarl import URL

from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire import dialer
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.dialer import NEXT_ADDRESS, cause_of
from unit.upstream.raw_server import RawServer

FIRST, SECOND = "127.0.0.2", "127.0.0.1"
BARE = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer(SECOND) as server:
        yield server


@pytest.fixture
def stuck(server: RawServer) -> Iterator[None]:
    """The first address takes no connection and refuses none."""
    with socket.socket() as listening:
        listening.bind((FIRST, server.port))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex((FIRST, server.port))
        yield
        for one in waiting:
            one.close()


@pytest.fixture
async def transport(
    server: RawServer, new_settings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HttpTransport]:
    """Goes to a name that has both addresses."""
    resolve_to(monkeypatch, FIRST, SECOND)
    transport = HttpTransport(new_settings(f"http://two.example:{server.port}/mcp"))
    yield transport
    await transport.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "two.example"
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port))
            for family, address in zip(families, addresses, strict=True)
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def start(transport: HttpTransport) -> "asyncio.Task[Any]":
    return asyncio.create_task(transport.send(Outgoing(verb="GET", headers={})))


async def answer(server: RawServer, asking: "asyncio.Task[Any]") -> None:
    line = await server.next()
    await line.request()
    await line.say(BARE)
    async with bounded():
        incoming = await asking
    assert incoming.status == 204
    incoming.release()


async def test_an_address_that_refuses_costs_no_time(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, *[FIRST] * 40, SECOND)
    async with bounded(20 * NEXT_ADDRESS):
        await answer(server, start(transport))


@pytest.mark.usefixtures("stuck")
async def test_an_address_that_does_not_answer_is_soon_overtaken(server: RawServer, transport: HttpTransport) -> None:
    await answer(server, start(transport))


def reach_both(monkeypatch: pytest.MonkeyPatch, *, together: bool) -> None:
    """Have the ways to both addresses begin at the same turn of the loop, or end at the same one if `together`."""
    both, loop = asyncio.Barrier(2), asyncio.get_running_loop()
    create = loop.create_connection

    async def create_connection(*args: Any, **wish: Any) -> Any:
        if not together:
            await both.wait()
        connection = await create(*args, **wish)
        if together:
            await both.wait()
        return connection

    monkeypatch.setattr(loop, "create_connection", create_connection)


@pytest.mark.parametrize("together", [True, False], ids=["at the same turn", "one after the other"])
async def test_of_two_connections_at_once_one_is_used_and_one_dropped(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    reach_both(monkeypatch, together=together)
    async with RawServer(FIRST, port=server.port) as other:
        asking = start(transport)
        async with bounded():
            lines = [await server.next(), await other.next()]
            heads = [asyncio.create_task(line.request()) for line in lines]
            await asyncio.wait(heads)
        ended = [isinstance(head.exception(), asyncio.IncompleteReadError) for head in heads]
        assert sorted(ended) == [False, True]
        used = lines[ended.index(False)]
        await used.say(BARE)
        async with bounded():
            (await asking).release()
        await transport.close()


@pytest.mark.usefixtures("stuck")
async def test_a_race_that_is_given_up_while_its_loser_ends_leaves_nothing(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ending, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    create = loop.create_connection

    async def create_connection(make: Any, address: str, *args: Any, **wish: Any) -> Any:
        try:
            return await create(make, address, *args, **wish)
        except asyncio.CancelledError:
            ending.set()
            await go_on.wait()
            raise

    monkeypatch.setattr(loop, "create_connection", create_connection)
    asking = start(transport)
    async with bounded():
        await ending.wait()
    asking.cancel()
    async with bounded():
        await asyncio.wait([asking])
    assert await (await server.next()).at_end()
    go_on.set()


async def test_a_name_of_which_no_address_is_reached_was_sent_nothing(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, FIRST, "127.0.0.3")
    with pytest.raises(UpstreamFailed) as failed:
        await start(transport)
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)
    assert failed.value.cause == "ECONNREFUSED"
    assert "ECONNREFUSED" not in str(failed.value)


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (errno.ENETUNREACH, errno.ECONNREFUSED, "ECONNREFUSED"),
        (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, "ECONNREFUSED"),
        (errno.ENETUNREACH, errno.EADDRNOTAVAIL, "ENETUNREACH"),
    ],
)
async def test_the_cause_is_that_of_the_address_that_says_most(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, first: int, second: int, cause: str
) -> None:
    errors = iter((first, second))

    async def fail(*_: Any) -> Connection:
        raise OSError(next(errors), "no")

    monkeypatch.setattr(dialer.Dialer, "_reach", fail)
    with pytest.raises(UpstreamFailed) as failed:
        await start(transport)
    assert failed.value.cause == cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "203.0.113.9"), "ECONNREFUSED"),
        (OSError(errno.EHOSTUNREACH, "203.0.113.9"), "EHOSTUNREACH"),
        (ConnectionResetError("203.0.113.9"), "ConnectionResetError"),
        (TimeoutError(), "connect timeout"),
        (TimeoutError(errno.ETIMEDOUT, "203.0.113.9"), "ETIMEDOUT"),
        (socket.gaierror(socket.EAI_NONAME, "secret.example"), "EAI_NONAME"),
        (socket.gaierror("secret.example"), "name not resolved"),
        (ssl.SSLError("secret.example"), "TLS handshake failed"),
        (ValueError("secret.example"), "invalid host name"),
    ],
    ids=repr,
)
def test_the_cause_is_the_name_of_the_error_without_its_text(error: OSError | ValueError, cause: str) -> None:
    assert cause_of(error) == cause


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize("way", ["cancelled", "closed"])
async def test_a_race_that_nobody_waits_for_leaves_nothing(transport: HttpTransport, way: str) -> None:
    before = len(asyncio.all_tasks())
    asking = start(transport)
    await eventually(lambda: len(asyncio.all_tasks()) == before + 2)
    async with bounded():
        if way == "cancelled":
            asking.cancel()
        else:
            await transport.close()
        await asyncio.wait((asking,))
    assert len(asyncio.all_tasks()) == before
    assert asking.cancelled() == (way == "cancelled")
    if not asking.cancelled():
        failure = asking.exception()
        assert isinstance(failure, UpstreamFailed)
        assert (failure.reason, failure.dispatched) == ("closed", False)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_connection_that_is_made_while_its_call_is_given_up_is_dropped(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    resolve_to(monkeypatch, SECOND)
    for turns in range(12):
        asking = start(transport)
        for _ in range(turns):
            await asyncio.sleep(0)
        # A time limit and its host may end a call in turns that follow one another.
        for _ in range(times):
            asking.cancel()
            await asyncio.sleep(0)
        async with bounded():
            await asyncio.wait((asking,))
    assert server.accepted
    for line in server.accepted:
        assert await line.at_end()


class Dialed(asyncio.Protocol):
    """A connection that knows whether it is open."""

    transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def drop(self) -> None:
        """Close it."""
        if self.transport is not None:
            self.transport.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_dial_that_is_given_up_leaves_no_connection_that_counts_as_open(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def give_up() -> None:
        made: list[Dialed] = []

        def new() -> Connection:
            made.append(Dialed())
            return cast("Connection", made[-1])

        async with RawServer(SECOND) as server:
            to_it = dialer.Dialer(URL(f"http://{SECOND}:{server.port}"), UpstreamTls(), None)
            for turns in range(12):
                asking = asyncio.create_task(to_it.connect(new))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                async with bounded():
                    await asyncio.wait((asking,))
                if not asking.cancelled():
                    asking.result().drop()
            await eventually(lambda: all(each.transport is None for each in made))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(give_up())


@pytest.mark.parametrize(("silence", "probed"), [(None, 0), (timedelta(seconds=90), 1)], ids=str)
async def test_the_system_probes_a_connection_to_a_server_as_its_settings_say(
    server: RawServer, silence: timedelta | None, probed: int
) -> None:
    to_it = dialer.Dialer(URL(server.url()), UpstreamTls(), silence)
    async with bounded():
        connection = await to_it.connect(lambda: cast("Connection", Dialed()))
    at = cast("Dialed", connection).transport.get_extra_info("socket")
    assert at.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == probed
    assert not probed or at.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 90
    connection.drop()


async def test_families_take_turns_in_the_order_that_the_system_chose(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def create_connection(_: object, address: str, *__: object, **___: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError

    resolve_to(monkeypatch, "::1", "::2", "::3", FIRST, SECOND)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    with pytest.raises(UpstreamFailed):
        await start(transport)
    assert tried == ["::1", FIRST, "::2", SECOND, "::3"]
