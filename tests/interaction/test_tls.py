"""The whole gateway behind TLS: hosts know it by https, and nobody makes it say another address."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.certificates import Authority
from helpers.gateway.configuration import configuration, write_configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.gateway.process import taskgate
from helpers.host.host import Host
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from interaction.operators import OPS, VIEWER, tokens

WELL_KNOWN = "/.well-known/oauth-protected-resource/reports/mcp"
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SAID_OF_OTHERS = {
    "Forwarded": "for=10.0.0.9;host=elsewhere.example;proto=http",
    "X-Forwarded-For": "10.0.0.9",
    "X-Forwarded-Host": "elsewhere.example",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Port": "80",
    "X-Forwarded-Prefix": "/elsewhere",
    "X-Real-IP": "10.0.0.9",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Who has signed the gateway's certificate."""
    made = Authority(tmp_path)
    for name, content in zip(("tls.crt", "tls.key"), made.pair(), strict=True):
        (tmp_path / name).write_bytes(content)
    return made


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    """Whose tokens the gateway accepts."""
    return TokenIssuer(tmp_path)


@pytest.fixture
async def gateway(
    server: ScriptedServer, issuer: TokenIssuer, authority: Authority, tmp_path: Path
) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens."""
    tls = {"cert_file": str(tmp_path / "tls.crt"), "key_file": str(tmp_path / "tls.key")}
    config = guarded({"reports": server.url}, issuer, server={"tls": tls})
    async with serve(config, data_directory=tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def http(authority: Authority) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that trusts the gateway."""
    trust: ssl.SSLContext = authority.trusting()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        yield session


def origin(gateway: Gateway) -> str:
    return gateway.origin.replace("http://", "https://")


async def test_a_host_with_a_token_for_the_https_address_calls_tools(
    gateway: Gateway, http: aiohttp.ClientSession, issuer: TokenIssuer, server: ScriptedServer
) -> None:
    large = [{"type": "text", "text": "x" * 3 * 2**20}]
    server.script["large"] = result({"content": large})
    mount = f"{origin(gateway)}/reports/mcp"
    host = Host(http, mount, issuer.token(mount))
    await host.initialize()
    assert (await host.call("large")).result["content"] == large


async def test_a_token_for_the_same_address_without_tls_is_for_somebody_else(
    gateway: Gateway, http: aiohttp.ClientSession, issuer: TokenIssuer
) -> None:
    mount = f"{origin(gateway)}/reports/mcp"
    token = issuer.token(mount.replace("https://", "http://"))
    async with http.post(mount, data=b"{}", headers={**JSON, "Authorization": f"Bearer {token}"}) as answer:
        assert answer.status == 401


@pytest.mark.parametrize("said", [{}, *({each: value} for each, value in SAID_OF_OTHERS.items()), SAID_OF_OTHERS])
async def test_hosts_are_told_the_https_address_whatever_is_said_of_others(
    gateway: Gateway, http: aiohttp.ClientSession, said: Mapping[str, str]
) -> None:
    here = origin(gateway)
    async with http.get(here + WELL_KNOWN, headers=said) as document:
        assert json.loads(await document.read())["resource"] == f"{here}/reports/mcp"
    async with http.post(f"{here}/reports/mcp", data=b"{}", headers={**JSON, **said}) as refused:
        assert refused.status == 401
        assert f'resource_metadata="{here}{WELL_KNOWN}"' in refused.headers["WWW-Authenticate"]


async def test_what_is_said_of_others_does_not_reach_the_server(
    gateway: Gateway, http: aiohttp.ClientSession, issuer: TokenIssuer, server: ScriptedServer
) -> None:
    mount = f"{origin(gateway)}/reports/mcp"
    http.headers.update(SAID_OF_OTHERS)
    host = Host(http, mount, issuer.token(mount))
    await host.initialize()
    await host.call("echo", {})
    assert server.requests
    for request in server.requests:
        assert not {each.lower() for each in SAID_OF_OTHERS} & set(request.headers)


async def test_what_the_file_says_of_versions_and_of_hosts_certificates_holds(
    server: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    tls = {
        "cert_file": str(tmp_path / "tls.crt"),
        "key_file": str(tmp_path / "tls.key"),
        "min_version": "1.3",
        "client_auth": "require",
        "client_ca_file": str(authority.file),
    }
    old = authority.host(tmp_path)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    served = []
    config = configuration({"reports": server.url}, server={"listen": "127.0.0.1:0", "tls": tls})
    async with serve(config) as gateway:
        for trust in (old, authority.trusting(), authority.host(tmp_path)):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as http:
                try:
                    served.append((await Host(http, f"{origin(gateway)}/reports/mcp").initialize())["serverInfo"])
                except aiohttp.ClientError:
                    served.append(None)
    assert [bool(each) for each in served] == [False, False, True]


@pytest.mark.parametrize("listener", ["server", "admin"])
def test_files_that_cannot_be_used_end_the_start_with_1_and_a_line(tmp_path: Path, listener: str) -> None:
    section: Any = f'{{listen: "127.0.0.1:0", tls: {{cert_file: "{tmp_path}/none", key_file: "{tmp_path}/none"}}}}'
    sections: Any = {listener: section, "audit": {"enabled": False}}
    file = write_configuration(tmp_path, "http://127.0.0.1:9/mcp", **sections)
    ended = taskgate("serve", "--config", file, folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1] == (
        f"taskgate: {listener}.tls.cert_file cannot be read: no such file or directory"
    )
    assert "Traceback" not in ended.stderr


# The operators' listener.


@pytest.fixture
async def operated(server: ScriptedServer, authority: Authority, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway whose operators use TLS."""
    tls = {"cert_file": str(tmp_path / "tls.crt"), "key_file": str(tmp_path / "tls.key")}
    async with serve(configuration({"reports": server.url}, admin={**tokens(tmp_path), "tls": tls})) as gateway:
        yield gateway


async def test_operators_use_the_console_and_the_api_over_https(operated: Gateway, http: aiohttp.ClientSession) -> None:
    here = operated.operators_origin.replace("http://", "https://")
    async with http.get(f"{here}/ui") as page:
        assert (page.status, page.content_type) == (200, "text/html")
    async with http.post(f"{here}/ui/session", headers={"Authorization": OPS, "Origin": here}) as signed_in:
        assert signed_in.status == 200
        assert "Secure" in signed_in.headers["Set-Cookie"].split("; ")
    async with http.get(f"{here}/api/v1/tasks", headers={"Authorization": VIEWER}) as tasks:
        assert (tasks.status, (await tasks.json())["items"]) == (200, [])
    with pytest.raises(aiohttp.ClientError):
        await operated.operators("/livez")


async def test_people_are_told_the_https_address_of_operators(operated: Gateway, http: aiohttp.ClientSession) -> None:
    here = operated.operators_origin.replace("http://", "https://")
    async with operated.http.get(f"{operated.origin}/", headers={"Accept": "text/html"}) as page:
        assert f'<a href="{here}/">' in await page.text()
    assert f"  operators       {here}" in operated.banner
    assert f"  console         {here}/ui" in operated.banner


async def test_commands_trust_the_authorities_of_ssl_cert_file_alone(
    operated: Gateway, authority: Authority, tmp_path: Path
) -> None:
    here = operated.operators_origin.replace("http://", "https://")

    async def health(url: str, **variables: str) -> tuple[int, str]:
        ended = await asyncio.to_thread(taskgate, "health", "--admin", url, folder=tmp_path, **variables)
        return ended.returncode, ended.stderr

    assert await health(here, SSL_CERT_FILE=str(authority.file)) == (0, "")
    status, told = await health(here)
    assert (status, "certificate is not trusted" in told, "SSL_CERT_FILE" in told) == (1, True, True)
    status, told = await health(operated.operators_origin)
    assert (status, "https:// with admin.tls" in told) == (1, True)
