"""Who opens the address of a listener in a browser is told what it is for."""

from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer
from interaction.operators import tokens

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def opened(gateway: Gateway, verb: str = "GET", path: str = "/", **headers: str) -> tuple[int, str, str]:
    """Status, type and text of what a browser gets."""
    async with gateway.http.request(verb, f"{gateway.origin}{path}", headers=BROWSER | headers) as response:
        return response.status, response.content_type, await response.text()


def config(reports: ScriptedServer, **sections: Any) -> GatewayConfig:
    return configuration({"reports": reports.url}, **sections)


async def test_a_gateway_of_this_machine_says_how_a_host_gets_its_servers(server: ScriptedServer) -> None:
    async with serve(config(server)) as gateway:
        status, kind, text = await opened(gateway)
        assert (status, kind) == (200, "text/html")
        assert f"claude mcp add --transport http reports {gateway.url()}" in text
        assert f'<a href="{gateway.operators_origin}/">' in text
        assert (await opened(gateway, "HEAD"))[0] == 200


async def test_strangers_are_not_told_which_servers_there_are(server: ScriptedServer) -> None:
    for public in ({"public_url": "https://mcp.example.com"}, {"allowed_hosts": ["mcp.example.com"]}):
        async with serve(config(server, server={"listen": "127.0.0.1:0", **public})) as gateway:
            status, _, text = await opened(gateway, Host="mcp.example.com")
            assert status == 200
            assert "reports" not in text
            assert "127.0.0.1" not in text


@pytest.mark.parametrize(
    ("verb", "headers"),
    [("GET", {"Accept": "text/event-stream"}), ("POST", {}), ("DELETE", {}), ("GET", {"Accept": "*/*"})],
)
async def test_a_host_with_the_wrong_address_is_told_so_as_before(
    server: ScriptedServer, verb: str, headers: dict[str, str]
) -> None:
    async with serve(config(server)) as gateway:
        status, _, text = await opened(gateway, verb, **headers)
        assert status == 404
        assert "No server is mounted at this path" in text


async def test_a_browser_host_with_the_wrong_address_reads_that_it_is_wrong(server: ScriptedServer) -> None:
    origin = "https://app.example.com"
    allowed = {"listen": "127.0.0.1:0", "allowed_origins": [origin]}
    async with serve(config(server, server=allowed)) as gateway:
        url, sent = f"{gateway.origin}/", {"Origin": origin, "Access-Control-Request-Method": "POST"}
        for verb, status in (("OPTIONS", 204), ("POST", 404)):
            async with gateway.http.request(verb, url, headers={"Accept": "application/json", **sent}) as answer:
                assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, origin), verb


async def test_a_page_for_the_name_of_another_host_is_refused(server: ScriptedServer) -> None:
    async with serve(config(server)) as gateway:
        assert (await opened(gateway, Host="evil.example"))[0] == 421


async def test_a_mount_at_the_root_has_no_page_before_it(server: ScriptedServer) -> None:
    at_root = {"reports": {"path": "/", "url": server.url}}
    async with serve(config(server, upstreams=at_root)) as gateway:
        assert (await opened(gateway))[0] != 200
        assert (await gateway.greeted()).session is not None


async def test_a_server_that_a_reload_adds_is_on_the_page(server: ScriptedServer, other: ScriptedServer) -> None:
    async with serve(config(server)) as gateway:
        assert "/books/mcp" not in (await opened(gateway))[2]
        await gateway.reload(configuration({"reports": server.url, "books": other.url}))
        assert "/books/mcp" in (await opened(gateway))[2]


@pytest.mark.parametrize("has_tokens", [True, False])
async def test_operators_are_led_to_the_console_if_it_is_on(
    server: ScriptedServer, tmp_path: Path, has_tokens: bool
) -> None:
    sections = {"admin": tokens(tmp_path)} if has_tokens else {}
    async with serve(config(server, **sections)) as gateway:
        status, body = await gateway.operators("/")
        assert status == 200
        assert ('href="/ui"' in body) is has_tokens
        assert ("admin.token_file" in body) is not has_tokens
        assert 'href="/metrics"' in body
