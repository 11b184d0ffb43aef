"""What a connection asks of the exchange under way on it. What must not live here: anything that does it (`stream`)."""

from typing import Protocol


class Departing(Protocol):
    """The exchange under way, as its connection sees it."""

    def host_left(self) -> None:
        """Nobody will read the answer."""
        ...

    def wind_down(self) -> None:
        """The listener is closing: end what would not end by itself."""
        ...

    def send_elsewhere(self) -> None:
        """End what another process goes on with."""
        ...
