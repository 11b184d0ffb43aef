"""Passive health of a server over message channels: `PassiveHealth` remembers whether it is up.

`ChannelTransport` reports what becomes of each `initialize`, and of requests outside of sessions. A
server counts as up only after it answered: a channel to it is no evidence. Requests in a session,
which come after its handshake, and streams that only listen are no evidence either. `up` is the one
of a stdio upstream without health checks.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason

_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as a timeout."""


class PassiveHealth:
    """Whether one server is up, by the outcome of requests.

    `told` is called with the new value of `up` when it is first known and whenever it changes, not
    after `close`. It also gets the cause if the server is down, as in UpstreamFailed.
    """

    def __init__(self, told: Callable[[bool, str | None], None] = lambda up, cause: None) -> None:
        self._told = told
        # Whether the last evidence was a refusal of `initialize`, the first in a row.
        self._was_refused = False
        self._closed = False
        self.up: bool | None = None
        """Whether the server is up; None until it is known."""

    def initialized(self, *, is_welcome: bool) -> None:
        """Take an answer to `initialize`. `is_welcome`: it opened a session, so the server is up.

        A second refusal in a row means that it is down. A first one may come from a modern server,
        which has no such method.
        """
        if is_welcome or self._was_refused:
            self.note(up=is_welcome, cause=None if is_welcome else "initialize refused")
        self._was_refused = not is_welcome

    def initialize_failed(self, failure: UpstreamFailed) -> None:
        """Take a failure of `initialize`: the server is down, unless the gateway itself failed.

        A timeout before anything was sent was a wait for a free program, and says nothing.
        """
        was_asked = failure.dispatched or failure.reason != UpstreamReason.TIMEOUT.value
        if failure.reason != UpstreamReason.INTERNAL.value and was_asked:
            self.note(up=False, cause=failure.cause)

    def initialize_cancelled(self, after: float, patience: timedelta | None) -> None:
        """Take a cancellation of the wait for `initialize`, so many seconds after it began.

        A caller with the same timeout may cancel just before the transport raises it. That counts
        as a timeout; an earlier cancellation is no evidence.
        """
        if patience is not None and after >= patience.total_seconds() * _NEARLY:
            self.note(up=False, cause=UpstreamReason.TIMEOUT.value)

    def failed(self, failure: UpstreamFailed) -> None:
        """Take a failure of a request outside of sessions: only a server that could not be reached is
        evidence."""
        if failure.reason == UpstreamReason.UNREACHABLE.value:
            self.note(up=False, cause=failure.cause)

    def note(self, *, up: bool, cause: str | None = None) -> None:
        """Store that the server is up, or down for a cause; call `told` if that is new."""
        self._was_refused = False
        if self.up is not up and not self._closed:
            self.up = up
            self._told(up, cause)

    def close(self) -> None:
        """From now on `up` does not change."""
        self._closed = True
