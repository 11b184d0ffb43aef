"""The exchange under way as its connection sees it: `Departing`, a protocol.

`HostConnection` calls these methods when the host disconnects or the listener closes.
`HostExchange` (`stream`) implements them.
"""

from typing import Protocol


class Departing(Protocol):
    """The exchange under way on a connection."""

    def host_left(self) -> None:
        """Handle that the host has disconnected: the answer has no reader."""
        ...

    def wind_down(self) -> None:
        """Handle that the listener is closing: end what would not end by itself."""
        ...

    def send_elsewhere(self) -> None:
        """End a stream that the host can resume in another process."""
        ...
