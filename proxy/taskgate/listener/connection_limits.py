"""The limits on connections of hosts: `BoundedSocket`, a listening socket that counts what it
accepts, in total and by address.

A connection over a limit is closed at once, before anything is read. It counts until its socket is
closed, by the gateway or the system. `wiring/app` creates the socket, and `Acceptor` accepts
from it.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from typing import Any, Final

from taskgate.admission.rates import address_block
from taskgate.ip_addresses import Network
from taskgate.listener.peers import Peers, read_peer
from taskgate.system import descriptors
from taskgate.system.log_throttle import ThrottledLog

_WARN_AT: Final = 0.8
"""The share of a limit at which a warning is logged."""
_REFUSED_AT_ONCE: Final = 64
"""Connections that are refused in one pass of the event loop."""

_log = getLogger("taskgate.listener")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """The limits: connections in total, and of one address that is not in a network of `exempt`.

    An IPv6 /64 network counts as one address, because its owner has all of it.
    """

    total: int
    per_address: int
    exempt: tuple[Network, ...] = ()


class ConnectionCounts:
    """The number of open connections, in total and by address."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self._per_address = bounds.per_address
        self._proxies = Peers(bounds.exempt)
        self._total = min(bounds.total, descriptors.host_connections())
        self._ceiling = descriptors.host_ceiling()
        self._open = 0
        self._by_address: dict[str, int] = {}
        cause = "server.max_connections" if self._total == bounds.total else "the open file limit"
        self._warnings = {
            "near": _warning(f"Host connections are close to their limit, set by {cause}"),
            "full": _warning(f"Host connections are refused: their limit is reached; raise {cause}"),
            "address near": _warning("Connections from one address are close to server.max_connections_per_address"),
            "address full": _warning(
                "Connections from one address are refused: server.max_connections_per_address is reached; "
                "if the address is a proxy, add it to server.trusted_proxies"
            ),
        }

    def admit(self, host: str, number: int) -> Callable[[], None] | None:
        """Count a connection of `host`, whose descriptor has that number, if the limits allow it.

        Returns the function to call once when it is closed, which stops counting it. Returns None
        if a limit is reached: the caller closes the connection.
        """
        # Higher descriptors are reserved for servers, the store and operators.
        if number >= self._ceiling:
            descriptors.EXHAUSTED_LOG.emit({"limit": descriptors.limit()})
            return None
        bound = self._per_address
        # A proxy serves many hosts, so its address is not counted.
        is_proxy = self._proxies.trusts_any and self._proxies.trusts(host)
        address = None if is_proxy else address_block(read_peer(host)[1])
        of_address = 0 if address is None else self._by_address.get(address, 0)
        if of_address >= bound:
            self._warnings["address full"].emit({"address": address, "bound": bound})
            return None
        if self._open >= self._total:
            self._warnings["full"].emit({"bound": self._total})
            return None
        self._open += 1
        if self._open >= self._total * _WARN_AT:
            self._warnings["near"].emit({"open": self._open, "bound": self._total})
        if address is not None:
            self._by_address[address] = of_address + 1
            if of_address + 1 >= bound * _WARN_AT:
                self._warnings["address near"].emit({"address": address, "open": of_address + 1, "bound": bound})
        return partial(self._release, address)

    def _release(self, address: str | None) -> None:
        self._open -= 1
        if address is None:
            return
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


class BoundedSocket(socket.socket):
    """A listening socket that accepts within limits. It takes over the descriptor of `listening`.

    It keeps a spare descriptor open. When the process has no other left, that one is closed to
    accept one more connection, which is refused.
    """

    __slots__ = ("_counts", "_spare_descriptor")

    def __init__(self, listening: socket.socket, counts: ConnectionCounts) -> None:
        super().__init__(listening.family, listening.type, listening.proto, listening.detach())
        self._counts = counts
        self._spare_descriptor: int | None = _spare_descriptor()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection within the limits, and close those over them.

        Raises BlockingIOError if no more connection waits, or after many refusals, so that the
        event loop is not blocked.
        """
        for _ in range(_REFUSED_AT_ONCE):
            try:
                accepted, address = super().accept()
            except BlockingIOError:
                raise
            except OSError as error:
                if not descriptors.is_exhaustion(error):
                    raise
                descriptors.EXHAUSTED_LOG.emit({"limit": descriptors.limit()})
                self._refuse_one()
                continue
            on_close = self._counts.admit(address[0], accepted.fileno())
            if on_close is not None:
                return HostSocket(accepted, on_close), address
            accepted.close()
        raise BlockingIOError

    def close(self) -> None:
        """Stop listening."""
        super().close()
        spare, self._spare_descriptor = self._spare_descriptor, None
        if spare is not None:
            os.close(spare)

    def _refuse_one(self) -> None:
        """Refuse a connection for which no descriptor is free; else it would wait forever.

        Raises BlockingIOError if there is no spare descriptor either.
        """
        if self._spare_descriptor is None:
            self._spare_descriptor = _spare_descriptor()
            raise BlockingIOError
        os.close(self._spare_descriptor)
        try:
            super().accept()[0].close()
        finally:
            self._spare_descriptor = _spare_descriptor()


class HostSocket(socket.socket):
    """The socket of a connection, counted until it is closed."""

    __slots__ = ("_on_close",)

    def __init__(self, accepted: socket.socket, on_close: Callable[[], None]) -> None:
        self._on_close: Callable[[], None] | None = on_close
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())

    def close(self) -> None:
        """Close the connection, and stop counting it."""
        super().close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __del__(self) -> None:
        # It was not closed before: the interpreter closes it now, with a warning.
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
        super().__del__()  # type: ignore[misc]


def _warning(text: str) -> ThrottledLog:
    return ThrottledLog(_log, text)


def _spare_descriptor() -> int | None:
    """Open a descriptor that is of no use but to be closed; None if there is none left."""
    with suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return None
