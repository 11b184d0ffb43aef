"""Fetches of issuers' documents: what is accepted, and what is refused."""

import asyncio
import gzip
import logging
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from helpers.key_server import (
    Answer,
    Endless,
    Held,
    KeyServer,
    answer,
    breaks_off,
    document,
    drips,
    hangs_up,
    raw,
    redirect,
    status,
)
from helpers.waiting import PATIENCE, bounded
from requirements import covers
from taskgate.auth.fetch import FetchedDocument, FetchFailed, HttpFetcher, max_age_of

BODY = b'{"keys": [1]}'
SOON = timedelta(milliseconds=50)
LONG = timedelta(seconds=PATIENCE)


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    async with KeyServer() as server:
        yield server


@pytest.fixture
async def fetch() -> AsyncIterator[HttpFetcher]:
    fetch = HttpFetcher()
    yield fetch
    await fetch.close()


async def get(
    fetch: HttpFetcher, server: KeyServer, given: Answer, *, timeout: timedelta = LONG, max_size: int = 1000
) -> FetchedDocument:
    server.serve("/keys", given)
    async with bounded():
        return await fetch.get(server.url("/keys"), timeout=timeout, max_size=max_size)


async def reason_of(
    fetch: HttpFetcher, server: KeyServer, given: Answer, *, timeout: timedelta = LONG, max_size: int = 1000
) -> str:
    with pytest.raises(FetchFailed) as failed:
        await get(fetch, server, given, timeout=timeout, max_size=max_size)
    assert failed.value.__cause__ is None
    assert str(failed.value) == f"Nothing was fetched: {failed.value.reason}"
    return failed.value.reason


async def test_what_is_there_is_fetched(fetch: HttpFetcher, server: KeyServer) -> None:
    assert await get(fetch, server, answer(BODY)) == FetchedDocument(BODY, None)
    assert await get(fetch, server, answer(BODY, cache_control="max-age=60")) == FetchedDocument(
        BODY, timedelta(minutes=1)
    )


async def test_the_request_says_what_is_wanted_and_nothing_of_us(
    fetch: HttpFetcher, server: KeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with KeyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.issuer)
        monkeypatch.setenv("HTTP_PROXY", proxy.issuer)
        await get(fetch, server, answer(BODY))
        await get(fetch, server, answer(BODY))
        assert proxy.requests == []
    first, second = server.requests
    assert first == second
    assert first.method == "GET"
    assert first.headers.pop("host") == f"127.0.0.1:{server.port}"
    assert first.headers.pop("connection") == "close"
    assert first.headers == {
        "accept": "application/json, application/jwk-set+json",
        "accept-encoding": "identity",
        "user-agent": "taskgate",
    }


@pytest.mark.parametrize("path", ["/realms/a%7Eb%20c%2Fd/keys", "/keys?a=%41+b%2B&c", "/a//b/../keys;v=1"])
async def test_an_address_is_sent_as_it_is_written(fetch: HttpFetcher, server: KeyServer, path: str) -> None:
    server.serve(path, answer(BODY))
    async with bounded():
        await fetch.get(server.url(path), timeout=LONG, max_size=1000)
    assert [request.path for request in server.requests] == [path]


async def test_a_cookie_is_not_sent_back(fetch: HttpFetcher, server: KeyServer) -> None:
    server.serve("/keys", answer(BODY, set_cookie="a=b; Path=/"))
    for _ in range(2):
        # Cookies of a server without a name are nobody's: only this address shows them.
        async with bounded():
            await fetch.get(f"http://localhost:{server.port}/keys", timeout=LONG, max_size=1000)
    assert ["cookie" in request.headers for request in server.requests] == [False, False]


@covers("A-AUTH-17")
@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed(fetch: HttpFetcher, server: KeyServer, code: int) -> None:
    async with KeyServer() as elsewhere:
        elsewhere.publish({})
        assert await reason_of(fetch, server, redirect(elsewhere.url("/keys"), code=code)) == "redirect"
        assert elsewhere.requests == []
    assert server.count("/keys") == 1


@pytest.mark.parametrize("code", [201, 206, 400, 401, 403, 404, 429, 500, 503])
async def test_only_what_was_found_counts(fetch: HttpFetcher, server: KeyServer, code: int) -> None:
    assert await reason_of(fetch, server, status(code)) == "status"


async def test_a_server_that_never_answers_is_left_in_time(fetch: HttpFetcher, server: KeyServer) -> None:
    held = Held(document({}))
    assert await reason_of(fetch, server, held, timeout=SOON) == "timeout"
    assert held.begun.is_set()


async def test_a_body_that_never_ends_is_left_in_time(fetch: HttpFetcher, server: KeyServer) -> None:
    assert await reason_of(fetch, server, drips(b" "), timeout=SOON) == "timeout"


async def test_the_time_is_for_the_whole_and_not_for_each_piece(fetch: HttpFetcher, server: KeyServer) -> None:
    endless = Endless(piece=1)
    assert await reason_of(fetch, server, endless, timeout=SOON, max_size=2**40) == "timeout"
    async with bounded():
        await endless.left.wait()
    assert endless.sent > 1


async def test_a_huge_body_is_left_where_it_is(fetch: HttpFetcher, server: KeyServer) -> None:
    endless = Endless()
    assert await reason_of(fetch, server, endless, max_size=2**16) == "too_large"
    async with bounded():
        await endless.left.wait()
    # The rest is what the sockets between us hold.
    assert endless.sent < 2**24


async def test_what_says_that_it_is_huge_is_not_read(fetch: HttpFetcher, server: KeyServer) -> None:
    assert await reason_of(fetch, server, answer(b"", length=1001)) == "too_large"


async def test_a_body_of_just_the_size_is_read_and_one_byte_more_is_too_much(
    fetch: HttpFetcher, server: KeyServer
) -> None:
    assert await get(fetch, server, answer(BODY), max_size=len(BODY)) == FetchedDocument(BODY)
    assert await reason_of(fetch, server, answer(BODY), max_size=len(BODY) - 1) == "too_large"
    chunked = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n3\r\n123\r\n0\r\n\r\n"
    )
    assert await get(fetch, server, raw(chunked), max_size=3) == FetchedDocument(b"123")
    assert await reason_of(fetch, server, raw(chunked), max_size=2) == "too_large"


@pytest.mark.parametrize(
    "given",
    [
        raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        breaks_off(BODY, promised=len(BODY) + 1),
        raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n3\r\n12"),
        hangs_up(),
        raw(b"HTTP/1.1 200"),
    ],
)
async def test_what_is_no_http_or_breaks_off_is_broken(fetch: HttpFetcher, server: KeyServer, given: Answer) -> None:
    assert await reason_of(fetch, server, given) == "broken"
    assert server.count("/keys") <= 2


async def test_a_server_that_is_down_cannot_be_reached(fetch: HttpFetcher, server: KeyServer) -> None:
    await server.down()
    assert await reason_of(fetch, server, hangs_up()) == "unreachable"
    await server.up()
    assert await get(fetch, server, answer(BODY)) == FetchedDocument(BODY)


PACKED = {"gzip": gzip.compress(BODY), "deflate": zlib.compress(BODY), "identity, gzip": gzip.compress(BODY), "x": BODY}


@pytest.mark.parametrize(("coding", "body"), PACKED.items(), ids=PACKED)
async def test_a_body_in_gzip_or_deflate_is_decoded(
    fetch: HttpFetcher, server: KeyServer, coding: str, body: bytes
) -> None:
    assert await get(fetch, server, answer(body, content_encoding=coding)) == FetchedDocument(BODY)


async def test_what_unpacks_to_more_than_the_size_or_not_at_all_is_refused(
    fetch: HttpFetcher, server: KeyServer
) -> None:
    packed = gzip.compress(bytes(2**20))
    assert await reason_of(fetch, server, answer(packed, content_encoding="gzip"), max_size=2**19) == "too_large"
    assert await reason_of(fetch, server, answer(packed[:-9], content_encoding="gzip"), max_size=2**21) == "broken"
    assert await reason_of(fetch, server, answer(BODY, content_encoding="gzip")) == "broken"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
async def test_a_body_in_another_coding_is_refused(fetch: HttpFetcher, server: KeyServer, coding: str) -> None:
    packed = answer(gzip.compress(b" " * 500), content_encoding=coding)
    assert await reason_of(fetch, server, packed) == "encoding"


async def test_a_body_that_is_said_to_be_plain_is_read(fetch: HttpFetcher, server: KeyServer) -> None:
    assert await get(fetch, server, answer(BODY, content_encoding="Identity")) == FetchedDocument(BODY)


@pytest.mark.parametrize(
    "type",
    [
        "application/json",
        "Application/JSON; charset=UTF-8",
        "application/json;charset=utf-8",
        "application/jwk-set+json",
        "application/vnd.x.y-z+json ; a=b",
        "text/json",
        "text/plain; charset=utf-8",
        "application/octet-stream",
        "binary/octet-stream",
        "",
        None,
    ],
)
async def test_json_and_what_file_servers_call_it_is_read(
    fetch: HttpFetcher, server: KeyServer, type: str | None
) -> None:
    assert await get(fetch, server, answer(BODY, type=type)) == FetchedDocument(BODY)


@pytest.mark.parametrize(
    "type",
    [
        "text/html",
        "text/html; charset=utf-8",
        "application/xml",
        "application/jsonx",
        "image/png",
        "json",
        "a/b/c+json",
    ],
)
async def test_what_is_for_people_is_not_read(fetch: HttpFetcher, server: KeyServer, type: str) -> None:
    assert await reason_of(fetch, server, answer(BODY, type=type)) == "content_type"


async def test_who_waits_may_be_cancelled_and_nothing_is_left(fetch: HttpFetcher, server: KeyServer) -> None:
    held = Held(document({}))
    waiting = asyncio.create_task(get(fetch, server, held))
    async with bounded():
        await held.begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_it_may_be_closed_twice_and_before_it_was_used() -> None:
    fetch = HttpFetcher()
    await fetch.close()
    await fetch.close()


async def test_nothing_is_logged(fetch: HttpFetcher, server: KeyServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await get(fetch, server, answer(BODY))
    await reason_of(fetch, server, hangs_up())
    assert [line for line in caplog.text.splitlines() if "127.0.0.1" in line] == []


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ([], None),
        ([""], None),
        (["no-store"], None),
        (["max-age=0"], 0),
        (["public, max-age=3600, must-revalidate"], 3600),
        (["public,MAX-AGE=7"], 7),
        (["public", "max-age=8"], 8),
        (["max-age=1, max-age=2"], 1),
        (["s-maxage=5"], None),
        (["x-max-age=5"], None),
        (["max-age=-5"], None),
        (["max-age=1.5"], None),
        (["max-age=x"], None),
        (["max-age=٣"], None),
        (["max-age=9999999999"], 9999999999),
        (["max-age=99999999999"], None),
    ],
)
def test_how_long_an_answer_holds_is_read_where_it_is_said(fields: list[str], seconds: int | None) -> None:
    assert max_age_of(fields) == (None if seconds is None else timedelta(seconds=seconds))


# --- addresses, names and TLS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://10.0.0.1/keys", "https://u@h/", "ftp://127.0.0.1/", "https://h/#f", ""])
async def test_what_must_not_be_asked_is_not_asked(
    fetch: HttpFetcher, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("it was looked up"))
    with pytest.raises(FetchFailed, match="address"):
        await fetch.get(url, timeout=LONG, max_size=1)


@pytest.mark.parametrize("host", ["h..x", "a" * 64 + ".x"])
async def test_what_can_be_no_name_is_no_address(fetch: HttpFetcher, host: str) -> None:
    with pytest.raises(FetchFailed, match="address"):
        await fetch.get(f"https://{host}/", timeout=LONG, max_size=1)


async def test_a_name_that_does_not_exist_cannot_be_reached(
    fetch: HttpFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "hunter2")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(FetchFailed, match="unreachable"):
        await fetch.get("https://nowhere.invalid/keys", timeout=LONG, max_size=1)


async def test_a_server_that_speaks_no_tls_is_not_spoken_to_without(fetch: HttpFetcher) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"GET" not in await reader.read(2**16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    assert await reason_at(fetch, accept, tls=None) == "tls"


async def test_a_server_whose_certificate_is_not_trusted_hears_no_request(fetch: HttpFetcher, tmp_path: Path) -> None:
    heard = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(2**16))
        writer.close()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate_of_ones_own(tmp_path))
    assert await reason_at(fetch, accept, tls=tls) == "tls"
    assert heard == []


async def reason_at(
    fetch: HttpFetcher,
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
    fetch: HttpFetcher, monkeypatch: pytest.MonkeyPatch, found: str
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
    fetch: HttpFetcher, monkeypatch: pytest.MonkeyPatch
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
