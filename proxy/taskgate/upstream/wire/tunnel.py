"""Tunnels through a proxy to https origins: `open_tunnel`, which sends CONNECT and begins TLS behind it."""

import asyncio
import re
import ssl
from typing import Final

from yarl import URL

from taskgate.egress import ForwardProxy, TunnelRefused

_LONGEST: Final = 16 * 1024
"""The most bytes of a proxy's answer."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r)").match


def connect_request(origin: URL, proxy: ForwardProxy) -> bytes:
    """Return the request for a tunnel to an origin."""
    assert origin.raw_host is not None, "a target has a host"
    host = f"[{origin.raw_host}]" if ":" in origin.raw_host else origin.raw_host
    place = f"{host}:{origin.port}"
    credentials = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: taskgate\r\n{credentials}\r\n".encode()


async def open_tunnel(
    address: str, port: int, connection: asyncio.Protocol, *, request: bytes, tls: ssl.SSLContext, name: str | None
) -> asyncio.Transport:
    """Connect to a proxy, send it the request for a tunnel, and make `connection` the protocol of TLS in it.

    `name` is what the certificate of the server is for. Raises TunnelRefused, and OSError for what else fails.
    """
    loop = asyncio.get_running_loop()
    handshake = _Handshake(loop)
    raw, _ = await loop.create_connection(lambda: handshake, address, port)
    try:
        raw.write(request)
        await handshake.answered
        transport = await loop.start_tls(raw, connection, tls, server_hostname=name)
        if transport is None:
            raise ConnectionResetError
    except BaseException:
        raw.abort()
        raise
    connection.connection_made(transport)
    return transport


class _Handshake(asyncio.Protocol):
    """Reads the proxy's answer. `answered` is done when it has opened the tunnel."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answered: asyncio.Future[None] = loop.create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, more = self._received.partition(b"\r\n\r\n")
        if self.answered.done() or not (end or len(head) > _LONGEST):
            return
        status = _STATUS(head)
        if status is None or more or not end or not 200 <= int(status[1]) < 300:
            self._refuse(0 if status is None else int(status[1]))
        else:
            self.answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse(0)

    def _refuse(self, status: int) -> None:
        if not self.answered.done():
            self.answered.set_exception(TunnelRefused(status))
            # If the waiter was cancelled, the error has no other reader.
            self.answered.exception()
