"""What is not asked, cannot be found, or is not who it should be."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from helpers.waiting import PATIENCE, bounded
from taskgate.auth.fetching import AiohttpFetch, FetchFailed

LONG = timedelta(seconds=PATIENCE)


@pytest.fixture
async def fetch() -> AsyncIterator[AiohttpFetch]:
    async with AiohttpFetch() as fetch:
        yield fetch


@pytest.mark.parametrize("url", ["http://10.0.0.1/keys", "https://u@h/", "ftp://127.0.0.1/", "https://h/#f", ""])
async def test_what_must_not_be_asked_is_not_asked(
    fetch: AiohttpFetch, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("it was looked up"))
    with pytest.raises(FetchFailed, match="address"):
        await fetch.get(url, timeout=LONG, max_size=1)


@pytest.mark.parametrize("host", ["h..x", "a" * 64 + ".x"])
async def test_what_can_be_no_name_is_no_address(fetch: AiohttpFetch, host: str) -> None:
    with pytest.raises(FetchFailed, match="address"):
        await fetch.get(f"https://{host}/", timeout=LONG, max_size=1)


async def test_a_name_that_does_not_exist_cannot_be_reached(
    fetch: AiohttpFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "hunter2")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(FetchFailed, match="unreachable"):
        await fetch.get("https://nowhere.invalid/keys", timeout=LONG, max_size=1)


async def test_a_server_that_speaks_no_tls_is_not_spoken_to_without(fetch: AiohttpFetch) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"GET" not in await reader.read(2**16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    assert await reason_at(fetch, accept, tls=None) == "tls"


async def test_a_server_whose_certificate_is_not_trusted_hears_no_request(fetch: AiohttpFetch, tmp_path: Path) -> None:
    heard = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(2**16))
        writer.close()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate_of_ones_own(tmp_path))
    assert await reason_at(fetch, accept, tls=tls) == "tls"
    assert heard == []


async def reason_at(
    fetch: AiohttpFetch,
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None,
) -> str:
    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    async with bounded(), listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed) as failed:
            await fetch.get(f"https://127.0.0.1:{port}/keys", timeout=LONG, max_size=1)
    return failed.value.reason


def certificate_of_ones_own(folder: Path) -> Path:
    """A file with a key and a certificate for this machine that nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    return file


@pytest.mark.requirement("T39")
@pytest.mark.parametrize(
    "found",
    ["127.0.0.1", "10.0.0.5", "169.254.169.254", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "::ffff:10.0.0.5"],
)
async def test_where_only_public_addresses_are_asked_a_name_of_a_private_one_is_not(
    fetch: AiohttpFetch, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    """A hostile issuer names a host whose name stands for something within the operator's network."""
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    place = (found, 443, 0, 0) if ":" in found else (found, 443)

    def private(*_: object, **__: object) -> list[object]:
        return [(family, socket.SOCK_STREAM, 6, "", place)]

    monkeypatch.setattr(socket, "getaddrinfo", private)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(FetchFailed, match="address"):
        await fetch.get("https://keys.example.com/", timeout=LONG, max_size=1, only_public=True)


async def test_of_a_name_with_both_the_public_address_is_asked(
    fetch: AiohttpFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def both(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("10.0.0.5", "9.9.9.9")]

    async def connect(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", both)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    with pytest.raises(FetchFailed, match="unreachable"):
        await fetch.get("https://keys.example.com/", timeout=LONG, max_size=1, only_public=True)
    assert asked == [("9.9.9.9", 443)]
