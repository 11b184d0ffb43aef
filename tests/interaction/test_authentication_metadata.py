"""Whoever has no token can find out where to get one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.raw import raw_host, request_head
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.bare_requests import SCOPES, WELL_KNOWN, ask, seen
from requirements import covers


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens; it uses its store for nobody but its hosts."""
    config = guarded({"reports": server.url}, issuer, auth=SCOPES, store={"purge_interval": "1h"})
    async with serve(config) as gateway:
        yield gateway


@covers("A-AUTH-4", "A-AUTH-9", "A-AUTH-11")
async def test_everybody_may_read_where_tokens_are_to_be_had(
    gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    for path in (f"{WELL_KNOWN}/reports/mcp", WELL_KNOWN, f"{WELL_KNOWN}/reports/mcp?x=1"):
        code, headers, text = await seen(gateway, path, Origin="https://any.example", Accept="text/html")
        assert (code, headers["Content-Type"]) == (200, "application/json")
        assert (headers["Access-Control-Allow-Origin"], headers["Cache-Control"]) == ("*", "public, max-age=300")
        assert json.loads(text) == {
            "resource": gateway.url(),
            "authorization_servers": [issuer.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["a.read", "b.write"],
        }
    assert server.requests == []
    assert await gateway.count("taskgate_auth_requests_total") == 0


async def test_a_browser_may_ask_first_and_other_methods_are_told_which_there_are(gateway: Gateway) -> None:
    path = f"{WELL_KNOWN}/reports/mcp"
    code, headers, text = await seen(gateway, path, "OPTIONS", Origin="https://any.example")
    assert (code, text, headers["Access-Control-Allow-Origin"]) == (204, "", "*")
    assert headers["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS"
    length = (await seen(gateway, path))[1]["Content-Length"]
    code, headers, text = await seen(gateway, path, "HEAD")
    assert (code, text, headers["Content-Length"]) == (200, "", length)
    for verb in ("POST", "DELETE", "PUT"):
        code, headers, _ = await seen(gateway, path, verb)
        assert (code, headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_the_metadata_is_for_the_right_host_only(gateway: Gateway) -> None:
    path = f"{WELL_KNOWN}/reports/mcp"
    assert (await seen(gateway, path, Host="evil.example"))[0] == 421


async def test_what_comes_with_the_question_is_not_read_and_the_connection_ends(gateway: Gateway) -> None:
    address = gateway.address
    head = request_head("GET", WELL_KNOWN, Host=f"{address[0]}:{address[1]}", Content_Length="40")
    async with raw_host(address) as host:
        answer = await host.ask(head, b"x" * 10)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await host.at_end()


async def test_each_mount_has_a_document_of_its_own_and_the_root_has_none_of_two(
    server: ScriptedServer, tmp_path: Path
) -> None:
    corp, other = TokenIssuer(tmp_path), TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    config = guarded({"reports": server.url, "books": server.url}, corp, other)
    async with serve(config) as gateway:
        for mount in ("reports", "books"):
            document = json.loads((await seen(gateway, f"{WELL_KNOWN}/{mount}/mcp"))[2])
            assert document["resource"] == gateway.url(mount)
            assert document["authorization_servers"] == [corp.issuer, other.issuer]
            assert "scopes_supported" not in document
        assert (await seen(gateway, WELL_KNOWN))[0] == 404
        for issuer in (corp, other):
            host = await gateway.greeted(token=issuer.token(gateway.url()))
            assert (await host.ask("ping")).result == {}
            assert (await gateway.host("books", host.token).ask("ping")).status == 401


@covers("A-AUTH-4", "A-AUTH-11")
@pytest.mark.parametrize(
    ("public", "resource", "paths"),
    [
        ("https://MCP.example.com:443", "https://mcp.example.com/reports/mcp", ["/reports/mcp"]),
        (
            "https://mcp.example.com/gate",
            "https://mcp.example.com/gate/reports/mcp",
            ["/gate/reports/mcp", "/reports/mcp"],
        ),
    ],
)
async def test_with_a_public_url_the_documents_and_challenges_name_it(
    server: ScriptedServer, issuer: TokenIssuer, public: str, resource: str, paths: list[str]
) -> None:
    section = {"public_url": public, "listen": "127.0.0.1:0"}
    async with serve(guarded({"reports": server.url}, issuer, server=section)) as gateway:
        for path in paths:
            assert json.loads((await seen(gateway, WELL_KNOWN + path))[2])["resource"] == resource
        _, headers, _ = await ask(gateway, "POST")
        path = resource.removeprefix("https://mcp.example.com")
        document = f"https://mcp.example.com{WELL_KNOWN}{path}"
        assert headers["WWW-Authenticate"] == f'Bearer resource_metadata="{document}"'
        host = await gateway.greeted(token=issuer.token(resource))
        assert (await host.ask("ping")).result == {}
        assert (await gateway.host(token=issuer.token(gateway.url())).ask("ping")).status == 401


@pytest.mark.parametrize("mode", ["required", "none"])
async def test_without_metadata_there_is_nothing_to_find_and_no_challenge_names_it(
    server: ScriptedServer, issuer: TokenIssuer, mode: str
) -> None:
    config = guarded({"reports": server.url}, issuer, auth={"protected_resource_metadata": {"enabled": False}})
    async with serve(config if mode == "required" else configuration({"reports": server.url})) as gateway:
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/reports/mcp"):
            assert (await seen(gateway, path))[0] == 404
        code, headers, _ = await ask(gateway, "POST")
        assert (code, headers.get("WWW-Authenticate")) == ((401, "Bearer") if mode == "required" else (404, None))
