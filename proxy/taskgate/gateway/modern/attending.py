"""Requests that wait for their servers: until the answer is there, the host leaves, or the gateway shuts down.

The answer is one JSON document unless the host has to wait: the first thing that is to be said before it, or the first
keep-alive interval without it, turns it into an event stream (H-MOD-13). A host that leaves has cancelled its request
(H-MOD-9). What must not live here: what is waited for.
"""

from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from taskgate.domain.record import RequestId
from taskgate.errors import CutOff
from taskgate.gateway.modern.hearing import RequestListener
from taskgate.protocol.modern_requests import ModernDialect, RequestMeta
from taskgate.streams.exchange import Exchange
from taskgate.streams.keepalive import Keepalive
from taskgate.system.alarms import Alarms
from taskgate.system.interruption import Interrupted, Interruptible

Awaited = TypeVar("Awaited")


class ResponseWaiter:
    """The requests that wait in this process. `patience` is the time after which a silent answer becomes a stream."""

    def __init__(self, *, dialect: ModernDialect, patience: timedelta) -> None:
        self._dialect = dialect
        self._patience = patience.total_seconds()
        self._alarms = Alarms(self._patience)
        self._waiting: set[Interruptible] = set()
        self._stopping = False

    def telling(
        self, exchange: Exchange, said: RequestMeta, id: RequestId | None = None, *, passes_rounds: bool = False
    ) -> RequestListener:
        """Who hears a request for its host, and keeps its answer alive, for as long as the block is not over."""
        telling = RequestListener(exchange, self._dialect, said, id, passes_rounds=passes_rounds)
        streams = exchange.head.accepts_stream
        if streams and not exchange.head.accepts_json:
            exchange.stream()
        if streams:
            telling.pulse = Keepalive(self._alarms, self._patience, telling.live)
        return telling

    async def wait(self, exchange: Exchange, work: Awaitable[Awaited]) -> Awaited:
        """What comes of `work`, which is cancelled with the request.

        Raises Interrupted when the host left, CutOff when the gateway ends, and what the work raises.
        """
        scope = Interruptible()
        self._waiting.add(scope)
        try:
            with scope:
                exchange.on_disconnect(scope.interrupt)
                if self._stopping:
                    # It was late to come here; what is there already is told all the same.
                    scope.interrupt()
                return await work
        except Interrupted:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            self._waiting.discard(scope)

    async def meet(self, exchange: Exchange, said: RequestMeta, work: Awaitable[Awaited]) -> Awaited:
        """What comes of `work`, for which a server is met before a request goes to it. Raises as `wait`.

        The host waits for it as for an answer, but hears no progress yet: that begins with the request, and only grows.
        """
        with self.telling(exchange, said._replace(progress_token=None)):
            return await self.wait(exchange, work)

    def stop(self) -> None:
        """Give up what still waits, or begins to: hosts are told so."""
        self._stopping = True
        for scope in self._waiting:
            scope.interrupt()

    def close(self) -> None:
        """Nobody waits any more."""
        self._alarms.close()
