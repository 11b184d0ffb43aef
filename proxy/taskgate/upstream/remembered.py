"""Passive health of a stdio server: `RememberedTransport` remembers whether the server is up.

It wraps the transport of a program, sends nothing of its own, and passes each request and answer on
unchanged. It watches `initialize` and the requests outside of sessions. A server counts as up only
after it answered: a channel to it is no evidence. `transport_choice` creates it. Its `up` is the
one of an upstream without health checks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import INITIALIZE, SERVER_DISCOVER, SESSION_HEADER
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.duplex.peek import RequestPeek, kind_of
from taskgate.upstream.duplex.pending import OK

_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as a timeout."""


class RememberedTransport:
    """Transport that remembers whether its server is up.

    `told` is called with the new value of `up` when it is first known and whenever it changes, not
    after `close`. What counts:

    - up: an `initialize` that opened a session, or HTTP status 200 for another request outside of
      sessions, except `server/discover`;
    - down: no channel could be opened, or `initialize` failed or timed out. An error of the gateway
      itself does not count, nor a timeout before `initialize` was sent;
    - down: a second refusal of `initialize` in a row. A first one may come from a modern server,
      which has no such method;
    - nothing: requests in a session, which come after its handshake, and streams that only listen.
    """

    def __init__(self, inner: Transport, told: Callable[[bool], None]) -> None:
        self._inner = inner
        self._told = told
        # Whether the last evidence was a refusal of `initialize`, the first in a row.
        self._was_refused = False
        self._closed = False
        self.up: bool | None = None
        """Whether the server is up; None until it is known."""

    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        # A request that only listens starts no program, so its failure is no evidence.
        if SESSION_HEADER in outgoing.headers or outgoing.only_listens:
            return self._inner.send(outgoing)
        asks = None if outgoing.body is None else kind_of(outgoing.body)
        return self._send(outgoing, asks.method if isinstance(asks, RequestPeek) else "")

    async def close(self) -> None:
        """Close the inner transport. From then on `up` does not change, and `told` is not
        called."""
        self._closed = True
        await self._inner.close()

    async def _send(self, outgoing: Outgoing, method: str) -> Incoming:
        """Send a message outside of sessions, and note what its outcome shows.

        `method` is empty if the message is no request.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            incoming = await self._inner.send(outgoing)
        except UpstreamFailed as failure:
            if _says_down(failure, greets=method == INITIALIZE):
                self._note(False)
            raise
        except asyncio.CancelledError:
            # A caller with the same timeout may cancel just before the transport raises it. That
            # counts as a timeout of `initialize`; an earlier cancellation is no evidence.
            patience = outgoing.first_byte
            is_spent = patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY
            if is_spent and method == INITIALIZE:
                self._note(False)
            raise
        if method == INITIALIZE:
            self._note_handshake(welcome=incoming.session is not None)
        elif method != SERVER_DISCOVER and incoming.status == OK:
            # `server/discover` only asks for the era: a legacy server may answer it with an error.
            self._note(True)
        return incoming

    def _note_handshake(self, *, welcome: bool) -> None:
        """Note the answer to `initialize`. `welcome`: it opened a session; otherwise it was a
        refusal."""
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
    """Whether a failed request shows that the server is down. `greets`: it was `initialize`.

    Of other requests, only a server that could not be reached is evidence.
    """
    if failure.reason == UpstreamReason.UNREACHABLE.value:
        return True
    if failure.reason == UpstreamReason.INTERNAL.value:
        return False
    # A timeout before anything was sent was a wait for a free program, and says nothing of the
    # server.
    return greets and (failure.dispatched or failure.reason != UpstreamReason.TIMEOUT.value)
