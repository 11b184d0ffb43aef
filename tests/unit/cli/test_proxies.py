"""`check` names the proxy that is in use, without its password."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.command_line import run
from helpers.forward_proxy import ForwardProxy
from helpers.key_server import signing_key
from helpers.secrets import noted
from helpers.waiting import bounded
from taskgate.config import ConfigurationError, for_command, for_upstream

PASSWORD = noted("planted-proxy-pw")


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


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
    file = written(tmp_path, f"egress: {{proxy: 'http://anneliese:{PASSWORD}@proxy.corp:3128'}}")
    for options in ((), ("--print",), ("--json",)):
        status, out, err = run("check", "--config", file, *options)
        assert status == 0, err
        assert "proxy.corp:3128" in out
        assert PASSWORD not in out + err
        assert "anneliese" not in out


def test_flags_in_place_of_a_file_lead_through_the_proxies_of_the_environment() -> None:
    environ = {"HTTP_PROXY": "http://proxy.corp:3128"}
    for config in (for_upstream("http://a.example", None, None, environ), for_command("a", None, None, environ)):
        assert config.to_egress().lines() == ["http://proxy.corp:3128 for http"]
    with pytest.raises(ConfigurationError, match="HTTP_PROXY: must be http://HOST:PORT"):
        for_upstream("http://a.example", None, None, {"HTTP_PROXY": "socks5://p:1"})


def test_a_variable_that_is_no_proxy_is_an_error_with_its_name(tmp_path: Path) -> None:
    status, _, err = run("check", "--config", written(tmp_path), HTTPS_PROXY=f"socks5://ann:{PASSWORD}@p:1")
    assert status == 2
    assert "HTTPS_PROXY: must be http://HOST:PORT" in err
    assert "egress.proxy" in err
    assert PASSWORD not in err
    status, _, err = run("check", "--config", written(tmp_path, "egress: {proxy: none}"), HTTPS_PROXY="socks5://p:1")
    assert status == 0, err
