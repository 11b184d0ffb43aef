"""Circuit breaker of one server: `GuardedTransport` refuses requests while the circuit is open.

A failure is one of these: no connection, a connection closed before an answer, no answer in time,
or the status 502, 503 or 504. Those statuses say that a proxy answered or that the server cannot
serve. Every other answer is a success: JSON-RPC errors and refusals are answers, and a slow call is
no failure. `domain.breaker` has the state machine. `http` puts this transport around the real one,
and opens and closes the circuit by health checks too.
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
    """Transport to one server with a circuit breaker; `moved` is called with each new state.

    Each request takes a number from the breaker, and settles it once, with its outcome.

    Requests that only listen pass and are not counted. Streams reopen after pauses of their own,
    and one may bring the answer of a running call. Requests that follow something begun pass too:
    to refuse the server an answer would fail the call that asked for it.
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
        # The state that `moved` was called with last.
        self._reported = self._circuit.state
        self.failing = False
        """Whether the server failed the last request whose result is known."""

    @property
    def state(self) -> str:
        """The state of the circuit: closed, open or half_open."""
        return self._circuit.state.value

    # Returns the inner coroutine: one more coroutine to await would cost every request.
    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        """Raises UpstreamFailed with `retry_after` while the circuit is open, and sends nothing."""
        if outgoing.only_listens or outgoing.follows:
            return self._inner.send(outgoing)
        circuit, now = self._circuit, self._clock.elapsed()
        number = circuit.acquire(now)
        if circuit.state is not self._reported:
            self._report()
        if number is None:
            raise failures.left_alone(timedelta(seconds=circuit.retry_after(now)))

        def settle(ok: bool | None) -> None:
            if ok is None:
                circuit.abandoned(number)
            elif ok:
                self.failing = False
                circuit.succeeded(number)
            else:
                self.failing = True
                circuit.failed(number, self._clock.elapsed())
            if circuit.state is not self._reported:
                self._report()

        return watched(self._inner, outgoing, settle)

    def trip(self) -> None:
        """Open the circuit now: health checks found the server down."""
        self._circuit.open(self._clock.elapsed())
        if self._circuit.state is not self._reported:
            self._report()

    def mend(self) -> None:
        """Close the circuit: a health check found the server up."""
        if self._circuit.state is not CircuitState.CLOSED:
            self._circuit.close()
            self._report()

    async def close(self) -> None:
        await self._inner.close()

    def _report(self) -> None:
        """Call `moved` with the state. Called whenever the state differs from the reported one."""
        self._reported = self._circuit.state
        self._moved(self._reported.value)


async def watched(transport: Transport, outgoing: Outgoing, settle: Callable[[bool | None], None]) -> Incoming:
    """Send the request, and call `settle` once, on every path.

    Its argument is True for an answer, False for a failure of the server, None if neither is known.
    """
    loop = asyncio.get_running_loop()
    began, ok = loop.time(), None
    try:
        incoming = await transport.send(outgoing)
        ok = incoming.status not in _DOWN
        return incoming
    except UpstreamFailed as failure:
        ok = _is_answer(failure)
        raise
    except asyncio.CancelledError:
        # The caller may cancel just before the transport would have timed out. That is silence of
        # the server; an earlier cancellation shows nothing.
        patience = outgoing.first_byte
        if patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY:
            ok = False
        raise
    finally:
        settle(ok)


def _is_answer(failure: UpstreamFailed) -> bool | None:
    """Return True if it comes from an answer, False for a failure of the server, else None."""
    if failure.reason == UpstreamReason.CLOSED.value and not failure.dispatched:
        # The gateway closed it itself.
        return None
    if failure.reason == UpstreamReason.INTERNAL.value:
        return None
    return failure.reason not in _FAILURES


_DOWN: Final = frozenset({502, 503, 504})
_FAILURES: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as silence of the server."""
