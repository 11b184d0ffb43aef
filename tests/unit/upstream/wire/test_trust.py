"""TLS towards a server: whom it must be certified by, what the gateway shows of itself, and files that will not do."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import Authority
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from unit.upstream.raw_server import RawServer

BARE = b"HTTP/1.1 204 No Content\r\n\r\n"
NewTransport = Callable[..., HttpTransport]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def peer_of(server: RawServer, transport: HttpTransport) -> Any:
    """The certificate that the gateway showed, as the server saw it; None for none."""
    asking = asyncio.create_task(transport.send(Outgoing(verb="GET", headers={})))
    line = await server.next()
    await line.request()
    await line.say(BARE)
    async with bounded():
        (await asking).release()
    return line.writer.get_extra_info("peercert") or None


async def refusal(transport: HttpTransport) -> tuple[str, bool]:
    failure = await failure_of(transport)
    return failure.reason, failure.dispatched


async def failure_of(transport: HttpTransport) -> UpstreamFailed:
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await transport.send(Outgoing(verb="GET", headers={}))
    return failed.value


async def test_a_server_of_the_configured_authority_is_trusted(
    authority: Authority, transport_to: NewTransport
) -> None:
    async with RawServer(tls=authority.server_context("127.0.0.1")) as server:
        transport = transport_to(server.url("https"), tls=UpstreamTls(ca_file=authority.file))
        assert await peer_of(server, transport) is None


async def test_a_server_of_another_authority_is_sent_nothing(
    authority: Authority, transport_to: NewTransport, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    async with RawServer(tls=authority.server_context("127.0.0.1")) as server:
        for tls in (UpstreamTls(), UpstreamTls(ca_file=other.file)):
            assert await refusal(transport_to(server.url("https"), tls=tls)) == ("unreachable", False)


async def test_a_server_by_another_name_is_sent_nothing_unless_that_is_the_one_to_expect(
    authority: Authority, transport_to: NewTransport
) -> None:
    async with RawServer(tls=authority.server_context("reports.internal")) as server:
        wrong = transport_to(server.url("https"), tls=UpstreamTls(ca_file=authority.file))
        failure = await failure_of(wrong)
        assert (failure.reason, failure.dispatched) == ("unreachable", False)
        assert failure.cause == "TLS CERTIFICATE_VERIFY_FAILED"
        tls = UpstreamTls(ca_file=authority.file, server_name="reports.internal")
        assert await peer_of(server, transport_to(server.url("https"), tls=tls)) is None


async def test_the_gateway_shows_its_certificate(authority: Authority, transport_to: NewTransport) -> None:
    own = authority.issue("gateway.internal")
    async with RawServer(tls=authority.server_context("127.0.0.1", client_auth=True)) as server:
        tls = UpstreamTls(ca_file=authority.file, cert_file=own.cert_file, key_file=own.key_file)
        shown = await peer_of(server, transport_to(server.url("https"), tls=tls))
    assert shown["subjectAltName"] == (("DNS", "gateway.internal"),)


async def test_a_server_that_wants_one_gets_nothing_without(authority: Authority, transport_to: NewTransport) -> None:
    async with RawServer(tls=authority.server_context("127.0.0.1", client_auth=True)) as server:
        transport = transport_to(server.url("https"), tls=UpstreamTls(ca_file=authority.file))
        reason, _ = await refusal(transport)
        assert reason in ("unreachable", "closed")
        assert server.accepted == [], "no handshake came to its end"


async def test_any_server_will_do_where_nothing_is_verified(authority: Authority, transport_to: NewTransport) -> None:
    async with RawServer(tls=authority.server_context("somebody.else")) as server:
        transport = transport_to(server.url("https"), tls=UpstreamTls(insecure_skip_verify=True))
        assert await peer_of(server, transport) is None


@pytest.mark.parametrize("skips", [True, False])
async def test_that_nothing_is_verified_is_said_at_each_start(
    new_caller_of: Callable[..., Any], caplog: pytest.LogCaptureFixture, skips: bool
) -> None:
    new_caller_of("https://127.0.0.1:1/mcp", tls=UpstreamTls(insecure_skip_verify=skips))
    told = [(record.levelno, record.getMessage(), record.upstream) for record in caplog.records]
    assert (
        told
        == [
            (logging.WARNING, "the certificate of a server is not verified: tls.insecure_skip_verify is set", "reports")
        ]
        * skips
    )


def test_old_versions_are_not_spoken() -> None:
    context = tls_context(UpstreamTls(insecure_skip_verify=True))
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert tls_context(UpstreamTls()).verify_mode is ssl.CERT_REQUIRED
    assert tls_context(UpstreamTls()).check_hostname


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> dict[str, Path]:
    """Files by what they are."""
    pair, other = authority.issue("a.internal"), authority.issue("b.internal")
    locked = authority.issue("c.internal", password=b"a password")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "garbage").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\xff\0")
    return {
        "cert": pair.cert_file,
        "key": pair.key_file,
        "other key": other.key_file,
        "locked cert": locked.cert_file,
        "locked key": locked.key_file,
        "empty": tmp_path / "empty",
        "garbage": tmp_path / "garbage",
        "missing": tmp_path / "missing",
        "folder": tmp_path,
        "nameless": Path("a\0b"),
    }


NO_PAIR = "tls.cert_file, tls.key_file: must hold a PEM certificate and its key without a password"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"ca_file": "missing"}, "tls.ca_file: cannot be read: No such file or directory"),
        ({"ca_file": "folder"}, "tls.ca_file: cannot be read: Is a directory"),
        ({"ca_file": "nameless"}, "tls.ca_file: cannot be read: the file name is invalid"),
        ({"ca_file": "empty"}, "tls.ca_file: holds no certificate in PEM form"),
        ({"ca_file": "garbage"}, "tls.ca_file: holds no certificate in PEM form"),
        ({"cert_file": "missing", "key_file": "key"}, "tls.cert_file: cannot be read: No such file or directory"),
        ({"cert_file": "cert", "key_file": "missing"}, "tls.key_file: cannot be read: No such file or directory"),
        ({"cert_file": "empty", "key_file": "key"}, NO_PAIR),
        ({"cert_file": "cert", "key_file": "garbage"}, NO_PAIR),
        ({"cert_file": "cert", "key_file": "other key"}, NO_PAIR),
        ({"cert_file": "locked cert", "key_file": "locked key"}, NO_PAIR),
    ],
)
def test_a_file_that_will_not_do_is_told_by_its_key_without_its_path(
    files: dict[str, Path], new_settings: Callable[..., Any], named: dict[str, str], told: str
) -> None:
    tls = UpstreamTls(**{key: files[name] for key, name in named.items()})
    with pytest.raises(TlsFileRefused) as refused:
        HttpTransport(new_settings("https://127.0.0.1:1/mcp", tls=tls))
    assert str(refused.value) == told
