"""TLS of the listener: which files are refused, and what is agreed on with hosts."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import Authority, put
from helpers.host.raw import post
from taskgate.listener.tls import TlsRefused, made_context
from unit.listener.gate import new_listener
from unit.listener.secure import Papers, papers


@pytest.fixture
def made(tmp_path: Path) -> Papers:
    return papers(tmp_path)


# What is refused.


def _other(made: Papers) -> dict[str, Any]:
    put(made.key_file, made.authority.pair()[1])
    return {}


def _protected(made: Papers) -> dict[str, Any]:
    certificate, key = made.authority.pair(b"secret")
    put(made.cert_file, certificate)
    put(made.key_file, key)
    return {}


def _torn(made: Papers) -> dict[str, Any]:
    put(made.cert_file, made.cert_file.read_bytes()[:-80])
    return {}


def _pipe(made: Papers) -> dict[str, Any]:
    os.mkfifo(made.folder / "pipe")
    return {"key_file": made.folder / "pipe"}


UNUSABLE = "server.tls.cert_file and server.tls.key_file hold no usable certificate and key"
REFUSED: dict[str, tuple[Callable[[Papers], dict[str, Any]], str]] = {
    "no certificate": (
        lambda made: {"cert_file": made.folder / "none"},
        "server.tls.cert_file cannot be read: no such file or directory",
    ),
    "no key": (
        lambda made: {"key_file": made.folder / "none"},
        "server.tls.key_file cannot be read: no such file or directory",
    ),
    "no authority": (
        lambda made: {"client_ca_file": made.folder / "none", "client_auth": "require"},
        "server.tls.client_ca_file cannot be read: no such file or directory",
    ),
    "a folder": (lambda made: {"cert_file": made.folder}, "server.tls.cert_file is not a file"),
    "a pipe": (_pipe, "server.tls.key_file is not a file"),
    "another key": (_other, "server.tls.key_file does not match the certificate in server.tls.cert_file"),
    "a passphrase": (
        _protected,
        "server.tls.key_file is protected by a passphrase; use a key file without one",
    ),
    "swapped": (lambda made: {"cert_file": made.key_file, "key_file": made.cert_file}, UNUSABLE),
    "torn": (_torn, UNUSABLE),
    "no certificate in the authority": (
        lambda made: {"client_ca_file": made.key_file, "client_auth": "require"},
        "server.tls.client_ca_file holds no usable certificate",
    ),
}


@pytest.mark.parametrize("section", ["server.tls", "admin.tls"])
@pytest.mark.parametrize(("spoil", "words"), REFUSED.values(), ids=REFUSED)
def test_files_that_cannot_be_used_are_refused_in_one_line(
    made: Papers, spoil: Callable[[Papers], dict[str, Any]], words: str, section: str
) -> None:
    with pytest.raises(TlsRefused) as refused:
        made_context(made.settings(section=section, **spoil(made)))
    assert str(refused.value).startswith(words.replace("server.tls", section))
    assert "\n" not in str(refused.value)
    assert str(made.folder) not in str(refused.value)


async def test_a_listener_does_not_start_with_files_that_cannot_be_used(made: Papers) -> None:
    made.key_file.unlink()
    listener = new_listener(tls=made.settings())
    with socket.create_server(("127.0.0.1", 0)) as bound:
        with pytest.raises(TlsRefused):
            await listener.start(bound)
        await listener.close(made.settings().look_interval)


# What is agreed on.


@pytest.mark.parametrize(
    ("least", "spoken", "comes_in"),
    [
        ("1.2", ssl.TLSVersion.TLSv1_2, True),
        ("1.2", ssl.TLSVersion.TLSv1_3, True),
        ("1.3", ssl.TLSVersion.TLSv1_2, False),
        ("1.3", ssl.TLSVersion.TLSv1_3, True),
    ],
)
async def test_no_older_version_is_spoken_than_the_least(
    made: Papers, least: str, spoken: ssl.TLSVersion, comes_in: bool
) -> None:
    trust = made.authority.trusting()
    trust.minimum_version = trust.maximum_version = spoken
    async with made.opened(tls={"min_version": least}) as gate:
        if comes_in:
            async with made.host(gate, trust) as host:
                assert (await host.ask(post())).status == 200
        else:
            with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
                async with made.host(gate, trust):
                    pass


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_versions_before_1_2_cannot_be_allowed(made: Papers, version: str) -> None:
    assert made_context(made.settings()).minimum_version == ssl.TLSVersion.TLSv1_2
    assert made_context(made.settings()).minimum_version > ssl.TLSVersion[version]


async def test_the_protocol_that_is_agreed_on_is_http_1_1(made: Papers) -> None:
    trust = made.authority.trusting()
    trust.set_alpn_protocols(["h2", "http/1.1"])
    async with made.opened() as gate, made.host(gate, trust) as host:
        assert host.tls.selected_alpn_protocol() == "http/1.1"


def test_keys_of_connections_are_written_to_no_file(made: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(made.folder / "keys"))
    assert made_context(made.settings()).keylog_filename is None
    assert not (made.folder / "keys").exists()


def test_a_host_may_not_negotiate_again(made: Papers) -> None:
    assert made_context(made.settings()).options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("asked", ["none", "optional", "require"])
@pytest.mark.parametrize("shows", ["nothing", "a good one", "a strange one"])
async def test_hosts_show_a_certificate_where_they_have_to_and_a_good_one_where_they_do(
    made: Papers, tmp_path: Path, asked: str, shows: str
) -> None:
    trust = made.authority.host(tmp_path) if shows == "a good one" else made.authority.trusting()
    if shows == "a strange one":
        Authority(tmp_path, "stranger").host(tmp_path)
        trust.load_cert_chain(tmp_path / "host.crt", tmp_path / "host.key")
    refused = {("optional", "a strange one"), ("require", "a strange one"), ("require", "nothing")}
    changes = {"client_auth": asked, "client_ca_file": None if asked == "none" else made.authority.file}
    statuses: list[int] = []
    async with made.opened(tls=changes) as gate:
        # Under TLS 1.3 a host hears of its certificate after its own part of the handshake.
        with suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            async with made.host(gate, trust) as host:
                statuses.append((await host.ask(post())).status)
        assert bool(statuses) is ((asked, shows) not in refused)
        assert len(gate.engine.seen) == len(statuses)
