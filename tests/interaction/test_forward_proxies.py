"""A network that is left through a proxy: servers of both transports are reached through it."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.forward_proxy import ForwardProxy
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer, result
from helpers.server.sse import SseServer

DONE: dict[str, Any] = {"content": []}


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


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
