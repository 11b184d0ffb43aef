"""What is known of a server without asking it more than hosts do: how it did when it was last needed.

What must not live here: what follows from it. What holds: a server is up only once it was heard: that there is a way to
it says nothing of whether it answers.
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
"""The share of a patience after which a wait that is given up counts as all of it."""


class RememberedTransport:
    """The transport `inner` over lines, and whether its server is thought to be up; `told` hears of news.

    It is up that welcomed a session, or answered a request that needs none; down where there was no way to it, or the
    handshake came to nothing. One refusal may be that of a server of the modern era, which is asked in another way
    then: a second one counts.
    """

    def __init__(self, inner: Transport, told: Callable[[bool], None]) -> None:
        self._inner = inner
        self._told = told
        self._was_refused = False
        self._closed = False
        self.up: bool | None = None
        """Whether the server is thought to be up; None where nobody knows yet."""

    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        """See Transport."""
        # What is said in a session comes after its handshake. What only listens has no server started.
        if SESSION_HEADER in outgoing.headers or outgoing.only_listens:
            return self._inner.send(outgoing)
        asks = None if outgoing.body is None else kind_of(outgoing.body)
        return self._send(outgoing, asks.method if isinstance(asks, RequestPeek) else "")

    async def close(self) -> None:
        """See Transport. What fails of that is no news."""
        self._closed = True
        await self._inner.close()

    async def _send(self, outgoing: Outgoing, method: str) -> Incoming:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            incoming = await self._inner.send(outgoing)
        except UpstreamFailed as failure:
            if _says_down(failure, greets=method == INITIALIZE):
                self._note(False)
            raise
        except asyncio.CancelledError:
            # Who asked may end the wait in the very moment in which the transport would have.
            patience = outgoing.first_byte
            is_spent = patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY
            if is_spent and method == INITIALIZE:
                self._note(False)
            raise
        if method == INITIALIZE:
            self._greeted(welcome=incoming.session is not None)
        elif method != SERVER_DISCOVER and incoming.status == OK:
            self._note(True)
        return incoming

    def _greeted(self, *, welcome: bool) -> None:
        if welcome or self._was_refused:
            self._note(welcome)
        self._was_refused = not welcome

    def _note(self, up: bool) -> None:
        self._was_refused = False
        if self.up is not up and not self._closed:
            self.up = up
            self._told(up)


def _says_down(failure: UpstreamFailed, *, greets: bool) -> bool:
    if failure.reason == UpstreamReason.UNREACHABLE.value:
        return True
    if failure.reason == UpstreamReason.INTERNAL.value:
        return False
    # What waited in vain for its turn says nothing of the server.
    return greets and (failure.dispatched or failure.reason != UpstreamReason.TIMEOUT.value)
