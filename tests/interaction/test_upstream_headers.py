"""What the gateway shows to a server without asking anybody for a token: a header, a context, a certificate."""

import asyncio
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.gateway.configuration import configuration, write_configuration
from helpers.gateway.gateway import serve
from helpers.gateway.process import taskgate
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from requirements import covers
from unit.upstream.raw_server import RawServer


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key"])
async def test_a_fixed_header_is_shown_for_everybody(server: ScriptedServer, name: str) -> None:
    credentials = {"mode": "header", "header": name, "value": "Bearer of the gateway"}
    upstream = {"path": "/reports/mcp", "url": server.url, "credentials": credentials}
    async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
        host = await gateway.greeted(token="of-a-host")
        await host.ask("tools/call", {"name": "echo", "arguments": {}}, headers={"X-Api-Key": "of a host"})
        await host.leave()
        await eventually(lambda: bool(server.verbs("DELETE")))
    assert {request.headers.get(name.lower()) for request in server.requests} == {"Bearer of the gateway"}
    assert "of a host" not in str(server.requests)
    assert "of-a-host" not in str(server.requests)


async def test_where_nobody_is_asked_the_one_context_is_told(server: ScriptedServer) -> None:
    told = {"context": "X-Taskgate-Context"}
    upstream = {"path": "/reports/mcp", "url": server.url, "identity_headers": told}
    async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
        await (await gateway.greeted()).call("echo")
    assert {request.headers["x-taskgate-context"] for request in server.requests} == {"anonymous"}


NAMES = {"subject": "X-User", "issuer": "X-Issuer"}


@covers("T7", "A-AUTH-3")
@both_eras
async def test_one_name_at_two_issuers_is_two_users_for_the_server(
    server: ScriptedServer, tmp_path: Path, era: str
) -> None:
    issuers = TokenIssuer(tmp_path), TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    upstream = {"path": "/reports/mcp", "url": server.url, "identity_headers": NAMES}
    async with serve(guarded({}, *issuers, upstreams={"reports": upstream})) as gateway:
        for issuer in issuers:
            token, forged = issuer.token(gateway.url(), subject="alice"), {"X-Issuer": issuers[0].issuer}
            host = await gateway.greeted(token=token) if era == "legacy" else gateway.modern(token=token)
            answer = await host.ask("tools/call", {"name": "echo", "arguments": {}}, headers=forged)
            assert answer.status == 200
    shown = [
        (request.headers["x-user"], request.headers["x-issuer"])
        for request in server.requests
        if "tools/call" in str(request.message)
    ]
    assert shown == [("alice", issuer.issuer) for issuer in issuers]


async def test_a_server_is_shown_the_gateways_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("gateway.internal")
    async with RawServer(tls=authority.server_context("127.0.0.1", client_auth=True)) as server:
        upstream = {
            "path": "/reports/mcp",
            "url": server.url("https"),
            "credentials": {"mode": "mtls"},
            "tls": {
                "ca_file": str(authority.file),
                "cert_file": str(own.cert_file),
                "key_file": str(own.key_file),
            },
        }
        async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
            asking = asyncio.create_task(gateway.greeted())
            line = await server.next()
            head, _ = await line.request()
            await line.say(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            await asyncio.wait((asking,))
            assert isinstance(asking.exception(), AssertionError)
    assert "Authorization" not in head
    assert line.writer.get_extra_info("peercert")["subjectAltName"] == (("DNS", "gateway.internal"),)


def test_a_file_that_will_not_do_ends_the_start_with_one_line(tmp_path: Path) -> None:
    tls = f'{{ca_file: "{tmp_path}/missing"}}'
    upstreams = f'{{reports: {{path: /reports/mcp, url: "https://127.0.0.1:1/mcp", tls: {tls}}}}}'
    file = write_configuration(tmp_path, "", upstreams=upstreams)
    ended = taskgate("serve", "--config", file, folder=tmp_path)
    assert ended.returncode == 1
    said = "upstreams.reports.tls.ca_file: cannot be read: No such file or directory"
    assert ended.stderr.splitlines()[-1] == f"taskgate: {said}"
