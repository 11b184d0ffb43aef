"""A network that is left through a proxy: servers, issuers and token endpoints are reached through it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.certificates import Authority
from helpers.command_line import run
from helpers.forward_proxy import ForwardProxy
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.key_server import signing_key
from helpers.secrets import noted
from helpers.server import ScriptedServer, result
from helpers.server.sse import SseServer
from helpers.waiting import bounded
from requirements import covers
from taskgate.auth.fetch import FetchFailed, FetchReason, HttpFetcher
from taskgate.egress import Egress, read_proxy
from taskgate.errors import UpstreamFailed
from taskgate.upstream.credentials.grants import TokenEndpoint
from taskgate.upstream.settings import GrantKind, GrantSettings

PASSWORD = noted("planted-proxy-pw")
DONE: dict[str, Any] = {"content": []}
SECOND = timedelta(seconds=20)


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


def through(proxy: ForwardProxy) -> Egress:
    found = read_proxy(f"http://ann:{PASSWORD}@{proxy.address}")
    return Egress(found, found)


async def test_calls_reach_a_server_that_only_the_proxy_knows(server: ScriptedServer, proxy: ForwardProxy) -> None:
    proxy.names["reports"] = urlsplit(server.url).port or 0
    server.script["report"] = result(DONE)
    config = configuration({"reports": "http://reports.corp.invalid/mcp"}, egress={"proxy": proxy.url})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        assert (await host.call("report")).result == DONE
    assert {line.split(" ")[1] for line in proxy.asked} == {"http://reports.corp.invalid/mcp"}
    assert proxy.connections < len(proxy.asked), "connections are kept"


async def test_a_server_of_http_and_sse_is_reached_by_its_stream_and_its_messages(proxy: ForwardProxy) -> None:
    async with SseServer(revision="2025-11-25") as server:
        place = urlsplit(server.url)
        proxy.names["reports"] = place.port or 0
        url = f"http://reports.corp.invalid{place.path}"
        upstream = {"path": "/reports/mcp", "transport": "sse", "url": url, "protocol_version": "auto"}
        config = configuration({}, upstreams={"reports": upstream}, egress={"proxy": proxy.url})
        async with serve(config) as gateway:
            host = await gateway.greeted()
            assert (await host.ask("tools/list")).result is not None
    assert {line.split(" ")[0] for line in proxy.asked} == {"GET", "POST"}


async def test_a_server_that_is_excepted_is_reached_directly(server: ScriptedServer, proxy: ForwardProxy) -> None:
    config = configuration({"reports": server.url}, egress={"proxy": proxy.url, "no_proxy": ["10.0.0.0/8"]})
    async with serve(config) as gateway:
        assert (await (await gateway.greeted()).ask("tools/list")).result is not None
    assert proxy.connections == 0


async def test_a_token_endpoint_is_asked_through_the_proxy(proxy: ForwardProxy) -> None:
    url = "https://idp.corp.invalid/token"
    grant = GrantSettings(
        kind=GrantKind.CLIENT_CREDENTIALS, token_url=url, client_id="c", client_secret=noted("s3cret-of")
    )
    endpoint = TokenEndpoint(grant, upstream="reports", patience=20, proxy=through(proxy).proxy_for(url))
    async with bounded():
        with pytest.raises(UpstreamFailed):
            await endpoint.grant(None)
        await endpoint.close()
    assert proxy.asked == ["CONNECT idp.corp.invalid:443 HTTP/1.1"]
    assert proxy.credentials != [None]


@covers("A-AUTH-17")
@pytest.mark.parametrize(
    ("url", "reason", "is_asked"),
    [
        ("https://idp.corp.invalid/keys", FetchReason.BROKEN, True),
        ("https://10.0.0.1/keys", FetchReason.ADDRESS, False),
        ("https://169.254.169.254/keys", FetchReason.ADDRESS, False),
        ("https://[fd00::1]/keys", FetchReason.ADDRESS, False),
    ],
)
async def test_keys_of_foreign_hosts_are_not_fetched_from_private_addresses_behind_a_proxy(
    proxy: ForwardProxy, url: str, reason: FetchReason, is_asked: bool
) -> None:
    fetch = HttpFetcher(through(proxy))
    async with bounded():
        with pytest.raises(FetchFailed) as failed:
            await fetch.get(url, timeout=SECOND, max_size=1000, only_public=True)
        await fetch.close()
    assert failed.value.reason == reason
    assert (len(proxy.asked) == 1) == is_asked


@covers("A-AUTH-17")
async def test_a_name_that_this_machine_resolves_to_a_private_address_is_not_fetched_by_the_proxy(
    proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", ("10.0.0.7", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    fetch = HttpFetcher(through(proxy))
    async with bounded():
        with pytest.raises(FetchFailed) as failed:
            await fetch.get("https://inner.corp.invalid/keys", timeout=SECOND, max_size=1000, only_public=True)
        await fetch.close()
    assert (failed.value.reason, proxy.asked) == (FetchReason.ADDRESS, [])


@pytest.mark.program
async def test_keys_come_through_a_tunnel_and_check_names_the_proxy_without_its_password(
    proxy: ForwardProxy, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    keys = json.dumps({"keys": [signing_key("EC", 0).jwk("one", alg="ES256")]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(keys)}\r\n\r\n"
        writer.write(head.encode() + keys)
        writer.close()

    issuer = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=authority.server_context("idp.corp.invalid"))
    proxy.names["idp"] = issuer.sockets[0].getsockname()[1]
    file = tmp_path / "taskgate.yaml"
    file.write_text(
        "version: 1\n"
        "upstreams: {reports: {path: /mcp, url: 'http://127.0.0.1:1/mcp'}}\n"
        "auth: {mode: required, issuers: {corp: {issuer: 'https://idp.corp.invalid', audience: [x],"
        " jwks_uri: 'https://idp.corp.invalid/keys'}}}\n"
        "store: {backend: memory}\n"
        "audit: {enabled: false}\n"
    )
    environ = {
        **os.environ,
        "https_proxy": f"http://ann:{PASSWORD}@{proxy.address}",
        "SSL_CERT_FILE": str(authority.file),
        "XDG_DATA_HOME": str(tmp_path),
    }
    command = (sys.executable, "-m", "taskgate", "check", "--config", str(file), "--online")
    child = await asyncio.create_subprocess_exec(*command, env=environ, stdout=-1, stderr=-1)
    async with bounded():
        out, err = await child.communicate()
    issuer.close()
    assert f"proxy:   http://********@{proxy.address} for https\n" in out.decode()
    assert "1 usable key" in (out + err).decode()
    assert PASSWORD not in (out + err).decode()
    assert proxy.asked == ["CONNECT idp.corp.invalid:443 HTTP/1.1"]


def written(folder: Path, egress: str = "") -> Path:
    file = folder / "taskgate.yaml"
    lines = ["version: 1", "upstreams: {reports: {path: /mcp, url: 'http://reports.corp/mcp'}}", "auth: {mode: none}"]
    file.write_text("\n".join([*lines, "store: {backend: memory}", "audit: {enabled: false}", egress, ""]))
    return file


def test_the_printed_configuration_has_no_password_of_a_proxy(tmp_path: Path) -> None:
    file = written(tmp_path, f"egress: {{proxy: 'http://ann:{PASSWORD}@proxy.corp:3128'}}")
    for options in ((), ("--print",), ("--json",)):
        status, out, err = run("check", "--config", file, *options)
        assert status == 0, err
        assert "proxy.corp:3128" in out
        assert PASSWORD not in out + err
        assert "ann" not in out


def test_a_variable_that_is_no_proxy_is_an_error_with_its_name(tmp_path: Path) -> None:
    status, _, err = run("check", "--config", written(tmp_path), HTTPS_PROXY=f"socks5://ann:{PASSWORD}@p:1")
    assert status == 2
    assert "HTTPS_PROXY: must be http://HOST:PORT" in err
    assert "egress.proxy" in err
    assert PASSWORD not in err
    status, _, err = run("check", "--config", written(tmp_path, "egress: {proxy: none}"), HTTPS_PROXY="socks5://p:1")
    assert status == 0, err
