"""The operators' listener under TLS: the same answers, renewed certificates, and handshakes that have the place of a
connection without a request."""

import asyncio
import logging
import socket
import ssl
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.host.raw import RawHost, raw_host, request_head
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.listener.operations import MOST_CONNECTIONS
from taskgate.listener.tls import TlsRefused
from unit.listener.gate import MOMENT
from unit.listener.operating import TOKEN, Operated, operating
from unit.listener.secure import Papers, papers

LONG = timedelta(hours=1)
PROBE = request_head("GET", "/livez", Host="localhost")
RELOAD = request_head("POST", "/-/reload", Host="localhost", Authorization=f"Bearer {TOKEN}")


@pytest.fixture
def made(tmp_path: Path) -> Papers:
    return papers(tmp_path)


async def test_requests_are_answered_one_after_another_as_without_tls(made: Papers) -> None:
    async with operating(tls=made.settings()) as operated, made.host(operated) as host:
        assert (await host.ask(PROBE)).body == b'{"status":"live"}'
        assert (await host.ask(RELOAD)).status == 200
        assert b"taskgate_ready" in (await host.ask(request_head("GET", "/metrics", Host="localhost"))).body
        assert operated.reloads == 1


async def test_a_request_without_tls_gets_no_answer_and_no_line(made: Papers, caplog: pytest.LogCaptureFixture) -> None:
    async with operating(tls=made.settings()) as operated, raw_host(operated.address) as host:
        await host.send(RELOAD)
        assert b"HTTP" not in await host.rest()
        assert operated.reloads == 0
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []


async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_go_on(made: Papers) -> None:
    async with operating(tls=made.settings()) as operated, made.host(operated) as old:
        assert (await old.ask(PROBE)).status == 200
        first, second = old.serial, made.renew()

        async def shown() -> int:
            async with made.host(operated) as host:
                assert (await host.ask(PROBE)).status == 200
                number: int = host.serial
                return number

        async with bounded():
            while await shown() != second:
                pass
        assert (await old.ask(PROBE)).status == 200
        assert old.serial == first


async def test_a_client_without_a_certificate_gets_no_answer_if_one_is_required(made: Papers) -> None:
    settings = made.settings(client_auth="require", client_ca_file=made.authority.file)
    async with operating(tls=settings) as operated:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with made.host(operated) as host:
                await host.ask(RELOAD)
        assert operated.reloads == 0
        async with made.host(operated, made.authority.host(made.folder)) as host:
            assert (await host.ask(RELOAD)).status == 200


async def test_a_listener_does_not_open_with_files_that_cannot_be_used(made: Papers) -> None:
    made.key_file.unlink()
    operated = Operated()
    with pytest.raises(TlsRefused, match=r"^admin\.tls\.key_file cannot be read"):
        await operated.listener.start("127.0.0.1", 0, tls=made.settings(section="admin.tls"))
    await operated.listener.close()


async def ended(host: RawHost) -> None:
    """Wait for the end of a connection."""
    await host.rest()


@covers("T34", "T53")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["silent", "half a hello"])
async def test_handshakes_of_strangers_keep_no_probe_and_no_operator_out(made: Papers, sent: bytes) -> None:
    async with AsyncExitStack() as stack:
        operated = await stack.enter_async_context(operating(tls=made.settings(handshake_timeout=LONG)))
        prober = await stack.enter_async_context(made.host(operated))
        assert (await prober.ask(PROBE)).status == 200
        over = MOST_CONNECTIONS // 2
        ends = []
        for _ in range(MOST_CONNECTIONS + over):
            host = await stack.enter_async_context(raw_host(operated.address))
            host.send_at_once(sent)
            ends.append(asyncio.create_task(ended(host)))
        await eventually(lambda: sum(each.done() for each in ends) >= over)
        for _ in range(MOST_CONNECTIONS):
            async with made.host(operated) as host:
                assert (await host.ask(PROBE)).status == 200
        async with made.host(operated) as host:
            assert (await host.ask(RELOAD)).status == 200
        assert (await prober.ask(PROBE)).status == 200, "a connection that has sent nothing but probes stays"
        for each in ends:
            each.cancel()


@covers("T34")
async def test_a_handshake_that_takes_too_long_ends_its_connection(made: Papers) -> None:
    settings = made.settings(handshake_timeout=MOMENT)
    async with operating(tls=settings) as operated, made.host(operated) as host, raw_host(operated.address) as silent:
        assert await silent.at_end()
        assert (await host.ask(PROBE)).status == 200, "the time for the handshake ends with it"


def is_ended(connection: ssl.SSLSocket) -> bool:
    """Whether the other side is gone, found without reading."""
    try:
        connection.send(b"\r\n")
    except ssl.SSLWantWriteError:
        return False
    except OSError:
        return True
    return False


@covers("T34")
async def test_an_answer_that_is_not_read_under_tls_ends_its_connection(made: Papers) -> None:
    async with operating(tls=made.settings(), write_timeout=MOMENT) as operated:
        operated.servers = {"reports": {"text": "x" * 2**24}}

        def ask() -> ssl.SSLSocket:
            plain = socket.create_connection(operated.address)
            secure = made.authority.trusting().wrap_socket(plain, server_hostname="127.0.0.1")
            secure.send(request_head("GET", "/readyz?verbose", Host="localhost"))
            return secure

        with await asyncio.to_thread(ask) as secure:
            secure.setblocking(False)
            await eventually(lambda: is_ended(secure))


async def test_the_close_ends_handshakes(made: Papers) -> None:
    async with operating(tls=made.settings(handshake_timeout=LONG)) as operated, raw_host(operated.address) as silent:
        async with made.host(operated) as host:
            assert (await host.ask(PROBE)).status == 200
        await operated.listener.close()
        assert await silent.at_end()
