"""Passive health of a server over message channels: `RememberedTransport` watches its handshakes.

It sends nothing of its own. A server counts as up only after it answered: a channel to it is no
evidence. `transport_choice` puts it around the transport of programs. The result is the `up` of an
upstream that has no health checks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import INITIALIZE, SERVER_DISCOVER, SESSION_HEADER
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.duplex.replies import OK
from taskgate.upstream.duplex.words import RequestPeek, kind_of

_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as a timeout."""


class RememberedTransport:
    """Transport that records whether its server is up; `told` is called when that changes.

    Up: the server accepted a session, or answered a request outside of sessions. Down: there was no
    channel, or the handshake failed. A server that refuses `initialize` may be a modern one: only a
    second refusal in a row counts as down.
    """

    def __init__(self, inner: Transport, told: Callable[[bool], None]) -> None:
        self._inner = inner
        self._told = told
        # Whether the last `initialize` was refused.
        self._was_refused = False
        self._closed = False
        self.up: bool | None = None
        """Whether the server is up; None until it is known."""

    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        # Messages of a session come after its handshake. A request that only listens starts no
        # server.
        if SESSION_HEADER in outgoing.headers or outgoing.only_listens:
            return self._inner.send(outgoing)
        asks = None if outgoing.body is None else kind_of(outgoing.body)
        return self._send(outgoing, asks.method if isinstance(asks, RequestPeek) else "")

    async def close(self) -> None:
        """Close the inner transport; failures from then on are no evidence."""
        self._closed = True
        await self._inner.close()

    async def _send(self, outgoing: Outgoing, method: str) -> Incoming:
        """Send a message outside of sessions, and note what its outcome shows."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            incoming = await self._inner.send(outgoing)
        except UpstreamFailed as failure:
            if _says_down(failure, greets=method == INITIALIZE):
                self._note(False)
            raise
        except asyncio.CancelledError:
            # The caller may cancel just before the transport would have timed out, which counts as
            # a timeout. An earlier cancellation is no evidence.
            patience = outgoing.first_byte
            is_spent = patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY
            if is_spent and method == INITIALIZE:
                self._note(False)
            raise
        if method == INITIALIZE:
            self._note_handshake(welcome=incoming.session is not None)
        elif method != SERVER_DISCOVER and incoming.status == OK:
            self._note(True)
        return incoming

    def _note_handshake(self, *, welcome: bool) -> None:
        """Note the answer to `initialize`; `welcome` tells whether it opened a session."""
        if welcome or self._was_refused:
            self._note(welcome)
        self._was_refused = not welcome

    def _note(self, up: bool) -> None:
        """Store that the server is up or down; call `told` if that is new."""
        self._was_refused = False
        if self.up is not up and not self._closed:
            self.up = up
            self._told(up)


def _says_down(failure: UpstreamFailed, *, greets: bool) -> bool:
    """Whether a failed request shows that the server is down; `greets` if it was `initialize`."""
    if failure.reason == UpstreamReason.UNREACHABLE.value:
        return True
    if failure.reason == UpstreamReason.INTERNAL.value:
        return False
    # A timeout before anything was sent was a wait for a program, and says nothing of the server.
    return greets and (failure.dispatched or failure.reason != UpstreamReason.TIMEOUT.value)
