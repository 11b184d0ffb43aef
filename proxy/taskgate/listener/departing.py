"""The exchange under way, as the connection sees it that reports its end: `Departing`, an interface.

It has what a connection reports about an end: the host disconnects, or the listener closes.
`HostExchange` (`stream`) implements it, and is set as `HostConnection.exchange` while the gateway
works on its request. When the listener closes, `wind_down` comes first. A second later
`send_elsewhere` follows for exchanges that still run, and at last the connection is aborted.
"""

from typing import Protocol


class Departing(Protocol):
    """The exchange under way on a connection. Each method may be called when it has no effect."""

    def host_left(self) -> None:
        """Handle that the host has disconnected: nothing more can be sent to it."""
        ...

    def wind_down(self) -> None:
        """Handle that the listener closes: end a GET stream, which would not end by itself.

        The answer to a call is not ended: it ends with the call.
        """
        ...

    def send_elsewhere(self) -> None:
        """End a stream of a running call, if the host can resume it in another process.

        Other exchanges continue.
        """
        ...
