"""The wait of a request for its server: `ResponseWaiter`.

`Calls`, `Promotion` and `RemoteRetries` await everything through `wait`, within the block of a
`RequestListener`. A wait ends with the result of its work, when the host disconnects,
or when the gateway shuts down. A host that disconnects has cancelled its request (H-MOD-9).

The answer is one JSON document unless the host has to wait. The first message before the answer, or
the first keep-alive interval without it, turns the answer into an event stream (H-MOD-13).
"""

from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from taskgate.errors import CutOff
from taskgate.gateway.host_listener import Keepalives
from taskgate.gateway.modern.hearing import RequestListener
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.exchange import Exchange
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.system.timer_wheel import TimerWheel

Awaited = TypeVar("Awaited")


class ResponseWaiter:
    """The waiting requests of this process. `patience` is the keep-alive interval, after which an
    answer becomes an event stream.
    """

    def __init__(self, *, dialect: ModernDownstream, patience: timedelta) -> None:
        interval = patience.total_seconds()
        self.dialect = dialect
        self.keepalives = Keepalives(TimerWheel(interval), interval, dialect.progress)
        self._waiting: set[CancelScope] = set()
        self._stopping = False

    async def wait(self, exchange: Exchange, work: Awaitable[Awaited]) -> Awaited:
        """Await `work`, and return its result. The end of the request cancels `work`.

        Raises ScopeCancelled when the host disconnected, CutOff when the gateway shuts down, and what
        `work` raises.
        """
        scope = CancelScope()
        self._waiting.add(scope)
        try:
            with scope:
                exchange.on_disconnect(scope.cancel)
                if self._stopping:
                    # The others have been cancelled before this one was registered. A result that
                    # is there already is still returned.
                    scope.cancel()
                return await work
        except ScopeCancelled:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            self._waiting.discard(scope)

    async def wait_for_session(self, exchange: Exchange, meta: RequestMeta, work: Awaitable[Awaited]) -> Awaited:
        """Await `work`, which opens a session with a server before a request is sent. Raises what
        `wait` raises.

        Meanwhile keep-alives carry no progress: its numbers must only grow, and those of the
        server begin later.
        """
        with RequestListener(exchange, None, self.keepalives, self.dialect, meta.log_level):
            return await self.wait(exchange, work)

    def stop(self) -> None:
        """Cancel every wait, and every later one, which then raise CutOff. Called at shutdown."""
        self._stopping = True
        for scope in self._waiting:
            scope.cancel()

    def close(self) -> None:
        """Stop the timers, after the last wait has ended."""
        self.keepalives.wheel.close()
