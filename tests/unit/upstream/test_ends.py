"""The way to a connection, and the end of it: what is left when nobody waits, and what is never sent."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from shutil import which

import pytest

from helpers.virtual_time import turns
from helpers.waiting import bounded
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from unit.upstream.exchanges import (
    DOCUMENT,
    JSON,
    NewTransport,
    answer_again,
    answered,
    failure_of,
    start,
)
from unit.upstream.raw_server import RawServer


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
def transport(server: RawServer, transport_to: NewTransport) -> HttpTransport:
    return transport_to(server.url())


# To speak TLS to somebody who says nothing is to be connecting for as long as a test wants.


async def test_a_call_that_is_cancelled_while_it_connects_leaves_no_connection(
    server: RawServer, transport_to: NewTransport
) -> None:
    asking = start(transport_to(server.url("https")))
    line = await server.next()
    asking.cancel()
    assert await line.at_end()
    await asyncio.wait((asking,))
    assert asking.cancelled()


async def test_a_transport_that_is_closed_while_it_connects_has_sent_nothing(
    server: RawServer, transport_to: NewTransport
) -> None:
    transport = transport_to(server.url("https"))
    asking = start(transport)
    line = await server.next()
    async with bounded():
        await transport.close()
    assert await failure_of(asking) == ("closed", False)
    assert await line.at_end()


async def test_the_way_to_a_connection_is_bounded(server: RawServer, transport_to: NewTransport) -> None:
    asking = start(transport_to(server.url("https"), connect=timedelta(seconds=0.05)))
    assert await failure_of(asking) == ("unreachable", False)
    assert await (await server.next()).at_end()


async def test_the_wait_for_a_head_includes_the_way_to_a_connection(
    server: RawServer, transport_to: NewTransport
) -> None:
    asking = start(transport_to(server.url("https")), first_byte=0.05)
    assert await failure_of(asking) == ("timeout", False)
    assert await (await server.next()).at_end()


@pytest.mark.parametrize("when", ["before the head", "within the body", "after it"])
async def test_a_closed_transport_leaves_no_connection(server: RawServer, transport: HttpTransport, when: str) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    if when != "before the head":
        await line.say(JSON + b"Content-Length: 2\r\n\r\n{")
        await turns()
    if when == "after it":
        await line.say(b"}")
        async with bounded():
            assert await asking == (200, [b"{}"])
    async with bounded():
        await transport.close()
    assert await line.at_end()
    if when != "after it":
        assert await failure_of(asking) == ("closed", True)
    async with bounded():
        await transport.close()


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_a_header_that_could_make_another_request_is_not_sent(
    server: RawServer, transport: HttpTransport, value: str
) -> None:
    sending = asyncio.create_task(transport.send(Outgoing(verb="POST", headers={"X-One": value}, body=b"{}")))
    assert await failure_of(sending) == ("unreachable", False)
    await answered(server, transport, DOCUMENT)
    assert len(server.accepted) == 1


async def test_a_server_with_an_ipv6_address_is_reached_and_named(transport_to: NewTransport) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    async with RawServer("::1") as server:
        transport = transport_to(server.url())
        asking = start(transport)
        line = await server.next()
        assert f"\r\nHost: [::1]:{server.port}\r\n" in (await line.request())[0]
        await line.say(DOCUMENT)
        await asking
        await transport.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of this machine's, which nobody trusts, and its key."""
    if which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    written = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *made, *subject, "-out", written[0], "-keyout", written[1]],
        check=True,
        capture_output=True,
    )
    return written


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "not trusted"])
@pytest.mark.program
async def test_a_server_is_spoken_to_over_tls_where_its_certificate_is_trusted(
    certificate: tuple[Path, Path], transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    async with RawServer(tls=context) as server:
        transport = transport_to(server.url("https"))
        if not trusted:
            assert await failure_of(start(transport)) == ("unreachable", False)
            return
        line, status, messages = await answered(server, transport, DOCUMENT)
        assert (status, messages) == (200, [b"{}"])
        await answer_again(line, transport)
        line.writer.close()
        await transport.close()
