"""A server behind a forward proxy: http by its whole URL, https through a tunnel."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import Authority
from helpers.forward_proxy import ForwardProxy
from helpers.waiting import bounded, eventually
from taskgate.egress import Egress, read_proxy
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.settings import UpstreamTls
from unit.upstream.raw_server import RawServer

NAME = "reports.corp.invalid"
BARE = b"HTTP/1.1 204 No Content\r\n\r\n"
NewTransport = Callable[..., HttpTransport]


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


def through(proxy: ForwardProxy, user: str = "") -> Egress:
    found = read_proxy(f"http://{user}{proxy.address}")
    return Egress(found, found)


async def exchange(server: RawServer, transport: HttpTransport, line: Any = None) -> tuple[str, Any]:
    """The head of a request as the server got it, and its connection."""
    asking = asyncio.create_task(transport.send(Outgoing(verb="POST", headers={"X-Own": "1"}, body=b"{}")))
    line = line or await server.next()
    head, _ = await line.request()
    await line.say(BARE)
    async with bounded():
        (await asking).release()
    return head, line


async def test_an_http_server_gets_its_request_by_the_proxy(proxy: ForwardProxy, transport_to: NewTransport) -> None:
    async with RawServer() as server:
        proxy.names["reports"] = server.port
        transport = transport_to(f"http://{NAME}/mcp?a=1", egress=through(proxy, "ann:s%3At@"))
        head, line = await exchange(server, transport)
        assert head.startswith(f"POST /mcp?a=1 HTTP/1.1\r\nHost: {NAME}\r\n")
        assert "X-Own: 1" in head
        await exchange(server, transport, line)
    assert proxy.asked == [f"POST http://{NAME}/mcp?a=1 HTTP/1.1"] * 2
    assert proxy.credentials == ["Basic YW5uOnM6dA=="] * 2
    assert (proxy.connections, len(server.accepted)) == (1, 1)


async def test_an_https_server_is_reached_through_a_tunnel_that_is_kept(
    proxy: ForwardProxy, transport_to: NewTransport, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with RawServer(tls=authority.server_context(NAME)) as server:
        proxy.names["reports"] = server.port
        transport = transport_to(
            f"https://{NAME}/mcp", egress=through(proxy, "ann:pw@"), tls=UpstreamTls(ca_file=authority.file)
        )
        head, line = await exchange(server, transport)
        await exchange(server, transport, line)
        assert head.startswith(f"POST /mcp HTTP/1.1\r\nHost: {NAME}\r\n")
        assert "Proxy-Authorization" not in head
        assert proxy.asked == [f"CONNECT {NAME}:443 HTTP/1.1"]
        assert proxy.credentials == ["Basic YW5uOnB3"]
        await transport.close()
        assert await line.at_end()


async def test_a_tunnel_does_not_replace_the_certificate(
    proxy: ForwardProxy, transport_to: NewTransport, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with RawServer(tls=authority.server_context("other.corp.invalid")) as server:
        proxy.names["reports"] = server.port
        transport = transport_to(f"https://{NAME}/mcp", egress=through(proxy), tls=UpstreamTls(ca_file=authority.file))
        assert await failure(transport) == ("unreachable", False)


@pytest.mark.parametrize("status", [403, 407, 502])
async def test_a_proxy_that_opens_no_tunnel_makes_the_server_unreachable(
    proxy: ForwardProxy, transport_to: NewTransport, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.refuses = status
    transport = transport_to(f"https://{NAME}/mcp", egress=through(proxy, "ann:planted-pw@"))
    assert await failure(transport) == ("unreachable", False)
    assert "planted-pw" not in caplog.text


async def test_a_proxy_that_is_away_makes_the_server_unreachable(transport_to: NewTransport) -> None:
    async with ForwardProxy() as gone:
        egress = through(gone)
    for scheme in ("http", "https"):
        assert await failure(transport_to(f"{scheme}://{NAME}/mcp", egress=egress)) == ("unreachable", False)


@pytest.mark.parametrize("said", [b"", b"junk\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nmore", b"x" * 20_000])
async def test_an_odd_answer_of_a_proxy_opens_no_tunnel(transport_to: NewTransport, said: bytes) -> None:
    async with RawServer() as odd:
        proxy = read_proxy(odd.url().removesuffix("/mcp"))
        transport = transport_to(f"https://{NAME}/mcp", egress=Egress(proxy, proxy))
        failing = asyncio.create_task(failure(transport))
        line = await odd.next()
        await line.head()
        await line.say(said)
        line.writer.close()
        assert await failing == ("unreachable", False)


async def test_a_request_that_is_given_up_leaves_no_half_tunnel(transport_to: NewTransport) -> None:
    async with RawServer() as silent:
        proxy = read_proxy(silent.url().removesuffix("/mcp"))
        transport = transport_to(f"https://{NAME}/mcp", egress=Egress(proxy, proxy))
        asking = asyncio.create_task(transport.send(Outgoing(verb="GET", headers={})))
        line = await silent.next()
        await line.head()
        asking.cancel()
        assert await line.at_end()
        await eventually(asking.done)


async def test_loopback_and_exceptions_are_direct(proxy: ForwardProxy, transport_to: NewTransport) -> None:
    async with RawServer() as server:
        head, _ = await exchange(server, transport_to(server.url(), egress=through(proxy)))
    assert head.startswith("POST /mcp HTTP/1.1")
    assert proxy.connections == 0


async def failure(transport: HttpTransport) -> tuple[str, bool]:
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await transport.send(Outgoing(verb="GET", headers={}))
    return failed.value.reason, failed.value.dispatched
