"""Taking up connections: each that was accepted is served or closed, whenever the listener stops."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.host.raw import RawHost, post
from helpers.waiting import bounded, eventually
from taskgate.listener.acceptor import RETRY_DELAY, Acceptor
from taskgate.listener.protocol import FIRST_REQUEST
from unit.listener.gate import Gate
from unit.listener.secure import Papers, SecureHost, papers

LONG = timedelta(minutes=1)

TURNS = range(10)
"""Turns of the loop between the arrival of a connection and the close: it is accepted, made, read, or was answered."""


PROBED = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE),)
PROBES = (
    *PROBED,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
)


class Troubled(socket.socket):
    """A listening socket whose `accept` fails as it is told, once for each."""

    def __init__(self, fileno: int, troubles: list[int]) -> None:
        super().__init__(fileno=fileno)
        self._troubles = troubles

    def accept(self) -> tuple[socket.socket, Any]:
        """See the base class."""
        if self._troubles:
            raise OSError(self._troubles.pop(0), "trouble")
        return super().accept()


class Counting(asyncio.Protocol):
    """Counts what was made, and closes it."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See the base class."""
        Counting.made += 1
        transport.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates."""
    return papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
async def problems() -> AsyncIterator[list[dict[str, Any]]]:
    """What the loop is told of, instead of its log."""
    heard: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    Counting.made = 0
    yield heard
    loop.set_exception_handler(None)


def troubled(
    *troubles: int,
    make_protocol: Callable[[], asyncio.Protocol] = Counting,
    silence: timedelta | None = None,
) -> tuple[Acceptor, Troubled]:
    """An acceptor whose socket has these troubles before it accepts anything."""
    bound = Troubled(socket.create_server(("127.0.0.1", 0)).detach(), list(troubles))
    return Acceptor(bound, make_protocol, silence), bound


@pytest.mark.parametrize(
    ("silence", "options"),
    [
        (timedelta(minutes=1), [1, 60, 15, 4]),
        (timedelta(seconds=90), [1, 90, 22, 4]),
        (timedelta(seconds=1), [1, 1, 1, 4]),
        (None, [0]),
    ],
    ids=str,
)
async def test_the_system_probes_an_accepted_connection_that_is_silent(
    silence: timedelta | None, options: list[int]
) -> None:
    found: list[list[int]] = []

    class Connected(asyncio.Protocol):
        """Notes the socket's options, and closes it."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """See the base class."""
            at = transport.get_extra_info("socket")
            found.append([at.getsockopt(*option) for option in (PROBES if silence else PROBED)])
            transport.close()

    acceptor, bound = troubled(make_protocol=Connected, silence=silence)
    with socket.create_connection(bound.getsockname()) as host:
        host.setblocking(False)
        async with bounded():
            assert await asyncio.get_running_loop().sock_recv(host, 1) == b""
    acceptor.stop()
    await acceptor.settle()
    assert found == [options]


@pytest.mark.parametrize("turns", TURNS)
async def test_a_request_whose_connection_is_being_made_as_the_listener_closes_is_answered(
    gate: Gate, turns: int
) -> None:
    """Asyncio's own server loses such a connection, and counts it as open for ever."""
    with socket.create_connection(gate.address) as one:
        one.sendall(post())
        for _ in range(turns):
            await asyncio.sleep(0)
        await gate.close(LONG)
        one.setblocking(False)
        host = RawHost(*await asyncio.open_connection(sock=one))
        assert (await host.answer()).status == 200
        await host.close()


@pytest.mark.parametrize("turns", TURNS)
async def test_a_connection_that_brings_nothing_does_not_hold_the_close(gate: Gate, turns: int) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_connection(gate.address) as one:
        for _ in range(turns):
            await asyncio.sleep(0)
        began = loop.time()
        await gate.close(LONG)
        assert loop.time() - began < 2 * FIRST_REQUEST
        one.settimeout(5)
        assert one.recv(1) == b""


async def test_a_connection_made_as_the_listener_closes_has_a_moment_for_its_request(gate: Gate) -> None:
    async with gate.host() as host:
        closing = asyncio.create_task(gate.close(LONG))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (await host.ask(post())).headers["connection"] == "close"
        async with bounded():
            await closing


@pytest.mark.parametrize("turns", TURNS)
async def test_a_handshake_that_began_before_the_close_may_end_with_an_answer(made: Papers, turns: int) -> None:
    async with made.opened() as gate, bounded():
        one = socket.create_connection(gate.address)
        one.setblocking(False)
        trust = made.authority.trusting()
        coming = asyncio.create_task(asyncio.open_connection(sock=one, ssl=trust, server_hostname="127.0.0.1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.create_task(gate.close(LONG))
        host = SecureHost(*await coming)
        answer = await host.ask(post())
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await closing
        await host.close()


async def test_a_handshake_that_does_not_end_does_not_hold_the_close(made: Papers) -> None:
    async with made.opened() as gate, gate.host() as host:
        await host.send(b"\x16\x03\x01")
        await gate.close(LONG)
        assert await host.at_end()


async def test_a_host_that_left_before_it_was_accepted_hides_nobody(problems: list[dict[str, Any]]) -> None:
    taking, bound = troubled(errno.ECONNABORTED, errno.EPROTO)
    with socket.create_connection(bound.getsockname()):
        await eventually(lambda: Counting.made == 1)
        taking.stop()
        await taking.settle()
    assert problems == []


async def test_accepting_goes_on_a_while_after_there_was_no_room(problems: list[dict[str, Any]]) -> None:
    taking, bound = troubled(errno.EMFILE)
    with socket.create_connection(bound.getsockname()):
        await eventually(lambda: problems)
        await asyncio.sleep(RETRY_DELAY / 2)
        assert Counting.made == 0
        await asyncio.sleep(RETRY_DELAY / 2)
        await eventually(lambda: Counting.made == 1)
        taking.stop()
        await taking.settle()
    assert [problem["message"] for problem in problems] == [
        "cannot accept another connection: out of file descriptors or memory"
    ]


async def test_nothing_is_accepted_after_the_end_of_a_pause_that_ends_with_the_acceptor(
    problems: list[dict[str, Any]],
) -> None:
    taking, bound = troubled(errno.ENFILE)
    with socket.create_connection(bound.getsockname()):
        await eventually(lambda: problems)
        taking.stop()
        taking.stop()
        taking.turn_away()
        await taking.settle()
    await asyncio.sleep(RETRY_DELAY)
    assert Counting.made == 1, "what the system had made is taken up"
    assert len(problems) == 1


async def test_a_connection_without_a_protocol_is_closed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> asyncio.Protocol:
        raise LookupError

    taking, bound = troubled(make_protocol=fail)
    with socket.create_connection(bound.getsockname()) as one:
        one.settimeout(5)
        async with bounded():
            assert await asyncio.to_thread(one.recv, 1) == b""
        taking.stop()
        await taking.settle()
    assert [vars(record)["error"] for record in caplog.records if record.levelno >= logging.ERROR] == ["LookupError"]
