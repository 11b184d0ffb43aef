"""A server that fails is left alone: its circuit, asked where its requests leave.

A failure is that the server could not be reached, closed the connection before it answered, did not begin to answer in
time, or answered 502, 503 or 504, which say that whoever answers is not the server or cannot serve. Any other answer is
a success: errors of JSON-RPC and refusals are answers, and a call that takes long is no failure. What must not live
here: when a circuit moves (`limits.breaker`), who checks the server besides (`health`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.breaker import CircuitBreaker, CircuitState
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.settings import Breaker


class GuardedTransport:
    """The transport to one server behind its circuit; `moved` hears in which state it is from now on.

    What only listens passes and counts for nothing: streams come back by themselves after pauses of their own, and one
    of them may bring the answer of a call that runs. So does what follows on something that the server has begun: to
    refuse it an answer would fail the call that asked for it.
    """

    def __init__(self, inner: Transport, breaker: Breaker, *, moved: Callable[[str], None], clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._moved = moved
        self._circuit = CircuitBreaker(
            failures=breaker.failures,
            window=breaker.window.total_seconds(),
            open_for=breaker.open_for.total_seconds(),
            half_open=breaker.half_open,
        )
        self._told = self._circuit.state
        self.failing = False
        """Whether the server failed the last request of which that is known."""

    @property
    def state(self) -> str:
        """closed, open or half_open."""
        return self._circuit.state.value

    # Hands on what is to be awaited: another coroutine to wait through would cost every request.
    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        """See Transport. UpstreamFailed with `retry_after` while the server is left alone: nothing is sent then."""
        if outgoing.only_listens or outgoing.follows:
            return self._inner.send(outgoing)
        circuit, now = self._circuit, self._clock.elapsed()
        number = circuit.acquire(now)
        if circuit.state is not self._told:
            self._tell()
        if number is None:
            raise failures.left_alone(timedelta(seconds=circuit.retry_after(now)))

        def tell(ok: bool | None) -> None:
            if ok is None:
                circuit.abandoned(number)
            elif ok:
                self.failing = False
                circuit.succeeded(number)
            else:
                self.failing = True
                circuit.failed(number, self._clock.elapsed())
            if circuit.state is not self._told:
                self._tell()

        return watched(self._inner, outgoing, tell)

    def trip(self) -> None:
        """Leave the server alone from now on."""
        self._circuit.open(self._clock.elapsed())
        if self._circuit.state is not self._told:
            self._tell()

    def mend(self) -> None:
        """The server is well: let everything through."""
        if self._circuit.state is not CircuitState.CLOSED:
            self._circuit.close()
            self._tell()

    async def close(self) -> None:
        """See Transport."""
        await self._inner.close()

    def _tell(self) -> None:
        self._told = self._circuit.state
        self._moved(self._told.value)


async def watched(transport: Transport, outgoing: Outgoing, tell: Callable[[bool | None], None]) -> Incoming:
    """Send it, and tell once what it says of the server: True for an answer, False for a failure, None for nothing."""
    loop = asyncio.get_running_loop()
    began, ok = loop.time(), None
    try:
        incoming = await transport.send(outgoing)
        ok = incoming.status not in _DOWN
        return incoming
    except UpstreamFailed as failure:
        ok = _judged(failure)
        raise
    except asyncio.CancelledError:
        # Who asked may end the wait for a head in the very moment in which the transport would have.
        patience = outgoing.first_byte
        if patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY:
            ok = False
        raise
    finally:
        tell(ok)


def _judged(failure: UpstreamFailed) -> bool | None:
    if failure.reason == UpstreamReason.CLOSED.value and not failure.dispatched:
        # We closed it ourselves.
        return None
    if failure.reason == UpstreamReason.INTERNAL.value:
        return None
    return failure.reason not in _FAILURES


_DOWN: Final = frozenset({502, 503, 504})
_FAILURES: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_NEARLY: Final = 0.95
"""The share of the patience after which a wait that is given up is silence."""
