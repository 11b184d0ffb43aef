"""A bus that records what is sent, and delivers what a test receives from another replica."""

from typing import Any

from taskgate.cluster.messages import Message

A, B, C = "a" * 16, "b" * 16, "c" * 16


class RecordingBus:
    """A ClusterBus that sends nothing."""

    def __init__(self, holder: str = A) -> None:
        self.holder = holder
        self.has_peers = True
        self.handlers: dict[type[Message], Any] = {}
        self._sent: list[tuple[Any, str | None]] = []

    def send(self, message: Message, *, to: str | None = None) -> None:
        self._sent.append((message, to))

    def subscribe(self, kind: type[Message], handler: Any) -> None:
        self.handlers[kind] = handler

    def receive(self, message: Message, sender: str = B) -> None:
        """Handle a message of another replica."""
        self.handlers[type(message)](message, sender)

    def take_sent(self) -> list[tuple[Any, str | None]]:
        """What was sent since the last call, with the receivers."""
        sent, self._sent = self._sent, []
        return sent
