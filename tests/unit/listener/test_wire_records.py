"""Connections under TLS, record by record: how they begin, how they end, and what is passed on to the socket."""

import asyncio
import logging
import ssl
from datetime import timedelta
from unittest.mock import Mock

import pytest

from helpers.host.raw import RawHost, post
from helpers.waiting import bounded, eventually
from taskgate.listener.tls import TlsWire, made_context
from unit.listener.gate import MOMENT, PLANTED
from unit.listener.secure import Papers, papers


class Records:
    """A host whose records a test sends and reads itself; it ends no connection of its own accord."""

    def __init__(self, below: RawHost, made: Papers) -> None:
        self.below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        trust = made.authority.trusting()
        self.tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def shake_hands(self) -> None:
        """Byte by byte."""
        async with bounded():
            while True:
                try:
                    self.tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self.send_records()
                    self._incoming.write(await self.below.some(2**16))
            await self.send_records()

    async def send(self, plain: bytes) -> None:
        """Byte by byte too."""
        self.tls.write(plain)
        await self.send_records()

    async def to_the_end(self) -> bytes:
        """All that comes; what is missing is the farewell, or the end of the connection, raises."""
        self._incoming.write(await self.below.rest())
        plain = b""
        while piece := self.tls.read(2**16):
            plain += piece
        return plain

    async def send_records(self) -> None:
        """Send what the library has made, byte by byte."""
        await self.below.send(*(bytes([each]) for each in self._outgoing.read()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


async def test_handshakes_and_requests_may_come_byte_by_byte_and_an_idle_host_is_told_farewell(made: Papers) -> None:
    async with made.opened(idle_timeout=MOMENT) as gate, gate.host() as below:
        host = Records(below, made)
        await host.shake_hands()
        await host.send(post())
        assert (await host.to_the_end()).endswith(b'{"answer":1}')


async def test_a_refused_host_is_told_farewell_before_it_has_sent_all(made: Papers) -> None:
    loop = asyncio.get_running_loop()
    async with made.opened() as gate, gate.host() as below:
        host = Records(below, made)
        await host.shake_hands()
        await host.send(post("", Content_Length="5000"))
        began = loop.time()
        assert (await host.to_the_end()).startswith(b"HTTP/1.1 413")
        assert loop.time() - began < 0.5, "it may still send the rest"
        await host.send(b"x")


async def test_garbage_after_the_handshake_ends_the_connection(made: Papers, caplog: pytest.LogCaptureFixture) -> None:
    async with made.opened() as gate, gate.host() as below, made.host(gate) as other:
        host = Records(below, made)
        await host.shake_hands()
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        await below.send(b"\x17\x03\x03\x00\x30" + PLANTED.encode() * 4)
        await eventually(lambda: gate.connections == 1)
        assert (await other.ask(post())).status == 200
        with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
            await host.to_the_end()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_a_host_that_goes_on_after_garbage_is_not_waited_for(made: Papers) -> None:
    async with made.opened(head_timeout=timedelta(minutes=1)) as gate, gate.host() as below:
        host = Records(below, made)
        await host.shake_hands()
        await below.send(b"\x17\x03\x03\x00\x30" + PLANTED.encode() * 4)
        await below.rest()
        assert gate.engine.seen == []


async def test_a_farewell_of_the_host_ends_the_connection(made: Papers) -> None:
    async with made.opened() as gate, gate.host() as below:
        host = Records(below, made)
        await host.shake_hands()
        with pytest.raises(ssl.SSLWantReadError):
            host.tls.unwrap()
        await host.send_records()
        with pytest.raises(ssl.SSLZeroReturnError):
            await host.to_the_end()


async def test_a_connection_is_known_while_it_has_a_socket(made: Papers) -> None:
    """One that never gets a socket never ends either: a close would wait for it for ever."""
    known: set[TlsWire] = set()
    wire = _wire(made, known)
    assert known == set()
    wire.connection_made(Mock(asyncio.Transport))
    assert known == {wire}
    wire.connection_lost(None)
    assert known == set()


async def test_nothing_runs_for_a_connection_that_is_lost(made: Papers) -> None:
    wire, socket = _wire(made), Mock(asyncio.Transport)
    wire.connection_made(socket)
    wire.connection_lost(None)
    assert wire.lost.done()
    await asyncio.sleep(120)
    socket.abort.assert_not_called()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pause_reading", ()),
        ("resume_reading", ()),
        ("is_reading", ()),
        ("is_closing", ()),
        ("get_write_buffer_size", ()),
        ("set_write_buffer_limits", (2, 1)),
        ("get_extra_info", ("peername", None)),
    ],
)
async def test_what_is_about_the_socket_is_asked_of_it(made: Papers, name: str, given: tuple[object, ...]) -> None:
    wire, socket = _wire(made), Mock(asyncio.Transport)
    wire.connection_made(socket)
    getattr(wire, name)(*given)
    getattr(socket, name).assert_called_once_with(*given)
    wire.connection_lost(None)


def _wire(made: Papers, known: set[TlsWire] | None = None) -> TlsWire:
    wires = set() if known is None else known
    return TlsWire(made_context(made.settings()), asyncio.Protocol, timedelta(minutes=1), wires)
