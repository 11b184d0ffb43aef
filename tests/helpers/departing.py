"""A call that a transport marks as sent: when it does so."""

from collections.abc import Callable


class Departing:
    """Calls `leaves` whenever its request is marked as sent."""

    def __init__(self, leaves: Callable[[], None]) -> None:
        self._leaves = leaves
        self._was_sent = False

    @property
    def sent(self) -> bool:
        return self._was_sent

    @sent.setter
    def sent(self, was_sent: bool) -> None:
        self._was_sent = was_sent
        self._leaves()
