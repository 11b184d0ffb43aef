"""Connections to one origin: `Dialer` opens each, and `transport` keeps them.

It resolves the address, races addresses ("happy eyeballs"), and adds TLS. `cause_of` names why that
failed.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any, Final

from yarl import URL

from taskgate.egress import ForwardProxy, TunnelRefused
from taskgate.system import descriptors
from taskgate.system.keep_alive import keep_alive
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.trust import tls_context

NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address is tried beside the current one."""


_OpenTunnel = Callable[[str, int, asyncio.Protocol], Coroutine[Any, Any, asyncio.Transport]]
"""Connects to a proxy at an address and port, and makes a protocol that of TLS in a tunnel."""


class Dialer:
    """Connects to one http or https origin, by way of `proxy` if there is one. The system probes a
    connection after `silence`; None: never. The creation raises TlsFileRefused.
    """

    __slots__ = ("_ceiling", "_host", "_name", "_port", "_silence", "_tls", "_tunnel")

    def __init__(
        self, origin: URL, tls: UpstreamTls, silence: timedelta | None, proxy: ForwardProxy | None = None
    ) -> None:
        assert origin.raw_host is not None, "a target has a host"
        assert origin.port is not None, "a target has a port"
        self._host = origin.raw_host
        self._port = origin.port
        self._silence = silence
        # Descriptors from this number on are reserved for the gateway itself.
        self._ceiling = descriptors.server_ceiling()
        self._tls = tls_context(tls) if origin.scheme == "https" else None
        # Certificates name a host without the trailing dot of a full name.
        self._name = None if self._tls is None else tls.server_name or self._host.rstrip(".")
        self._tunnel: _OpenTunnel | None = None
        if proxy is not None:
            if self._tls is not None:
                self._tunnel = _tunnel(origin, proxy, self._tls, self._name)
            self._host, self._port = proxy.host, proxy.port

    async def connect(self, new: Callable[[], Connection]) -> Connection:
        """Return an open connection made by `new`. Raises OSError if no address can be reached,
        ValueError for an impossible host name."""
        return await self._first_of(await self._addresses(), new)

    async def _addresses(self) -> list[str]:
        try:
            ip_address(self._host)
        except ValueError:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            return _families_in_turn([(family, str(address[0])) for family, _, _, _, address in found])
        return [self._host]

    async def _reach(self, address: str, new: Callable[[], Connection]) -> Connection:
        """Connect to one address."""
        connection = new()
        try:
            if self._tunnel is None:
                # Does not use the race in asyncio: cancelled at a bad moment, that loses a socket.
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: connection, address, self._port, ssl=self._tls, server_hostname=self._name
                )
            else:
                transport = await self._tunnel(address, self._port, connection)
        except asyncio.CancelledError:
            # At that moment uvloop closes the transport and does not call `connection_lost`.
            if connection.transport is not None and not connection.transport.is_closing():
                connection.connection_lost(None)
            raise
        if transport.get_extra_info("socket").fileno() >= self._ceiling:
            connection.drop()
            raise OSError(errno.EMFILE, "the remaining file descriptors are reserved for the gateway")
        if self._silence is not None:
            # It may be closed already.
            with suppress(OSError):
                keep_alive(transport.get_extra_info("socket"), self._silence)
        return connection

    async def _first_of(self, addresses: list[str], new: Callable[[], Connection]) -> Connection:
        """Return the first connection; end all other attempts."""
        loop = asyncio.get_running_loop()
        started: list[asyncio.Task[Connection]] = []
        running: set[asyncio.Task[Connection]] = set()
        done: set[asyncio.Task[Connection]] = set()
        attempt: asyncio.Task[Connection] | None = None
        winner: asyncio.Task[Connection] | None = None
        try:
            while winner is None and (addresses or running):
                if addresses:
                    # An empty context: the connection will serve other requests later.
                    attempt = loop.create_task(self._reach(addresses.pop(0), new), context=Context())
                    started.append(attempt)
                    running.add(attempt)
                patience = NEXT_ADDRESS if addresses else None
                done, running = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                winner = next((attempt for attempt in done if attempt.exception() is None), None)
        finally:
            try:
                await _end({attempt for attempt in started if attempt is not winner})
            except asyncio.CancelledError:
                # The caller is cancelled, so the connection has no user.
                if winner is not None:
                    winner.result().drop()
                raise
        if winner is not None:
            return winner.result()
        errors = [attempt.exception() for attempt in started]
        try:
            raise _most_telling(errors)
        finally:
            del attempt, started, done, running, errors


def _tunnel(origin: URL, proxy: ForwardProxy, tls: ssl.SSLContext, name: str | None) -> _OpenTunnel:
    # Few gateways have a proxy.
    from taskgate.upstream.wire.tunnel import connect_request, open_tunnel  # noqa: PLC0415

    return partial(open_tunnel, request=connect_request(origin, proxy), tls=tls, name=name)


def _most_telling(errors: Iterable[BaseException | None]) -> OSError:
    """The error to raise of those of all addresses: what this machine lacks, or what the server did.

    That an address has no route says the least: a name often has one of a family that is not in use.
    """
    found = sorted((error for error in errors if isinstance(error, OSError)), key=_silence)
    return found[0] if found else OSError("no address of the host is reachable")


def _silence(error: OSError) -> int:
    return 0 if descriptors.is_exhaustion(error) else 2 if error.errno in _NO_ROUTE else 1


_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def cause_of(error: OSError | ValueError) -> str:
    """Return why a connection was not made, as a name of the system such as ECONNREFUSED.

    It has no text of the error, which may show the address.
    """
    match error:
        case TunnelRefused():
            return f"the proxy refused with {error.status}" if error.status else "the proxy gave no answer"
        case TimeoutError():
            return "connect timeout" if error.errno is None else "ETIMEDOUT"
        case socket.gaierror():
            return _RESOLVER_ERRORS.get(error.errno or 0, "name not resolved")
        case ssl.SSLError():
            return f"TLS {getattr(error, 'reason', None) or 'handshake failed'}"
        case OSError():
            return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "invalid host name"


async def _end(attempts: set[asyncio.Task[Connection]]) -> None:
    """Cancel attempts, and drop connections that were made all the same, even if the caller is
    cancelled meanwhile."""
    for attempt in attempts:
        attempt.cancel()
        attempt.add_done_callback(_drop)
    if attempts:
        await asyncio.wait(attempts)


def _drop(attempt: asyncio.Task[Connection]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().drop()


_RESOLVER_ERRORS: Final = {number: name for name, number in vars(socket).items() if name.startswith("EAI_")}
"""The names of the resolver's errors."""


def _families_in_turn(found: list[tuple[int, str]]) -> list[str]:
    """Return the addresses alternating between families, in the order of the system's resolver."""
    families: dict[int, list[str]] = {}
    for family, address in found:
        families.setdefault(family, []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]
