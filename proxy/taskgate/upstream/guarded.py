"""Circuit breaker of one server: `CircuitGuard` refuses requests while the circuit is open.

A failure is one of these: no connection, a connection closed before an answer, no answer in time,
or the status 502, 503 or 504. Those statuses say that a proxy answered or that the server cannot
serve. Every other answer is a success: JSON-RPC errors and refusals are answers, and a slow call is
no failure. `domain.breaker` has the state machine. `SessionTransport` shows the guard each request,
and `http` opens and closes the circuit by health checks too.
"""

from collections.abc import Callable
from datetime import timedelta

from taskgate.clock import Clock
from taskgate.domain.breaker import CircuitBreaker, CircuitState
from taskgate.upstream import failures
from taskgate.upstream.settings import Breaker


class CircuitGuard:
    """The `RequestWatch` that is a circuit breaker; `moved` is called with each new state.

    Each request takes a number from the breaker, and settles it once, with its outcome.
    """

    def __init__(self, breaker: Breaker, *, moved: Callable[[str], None], clock: Clock) -> None:
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

    def begin(self) -> int:
        """Raises UpstreamFailed with `retry_after` while the circuit is open."""
        circuit, now = self._circuit, self._clock.elapsed()
        number = circuit.acquire(now)
        if circuit.state is not self._reported:
            self._report()
        if number is None:
            raise failures.left_alone(timedelta(seconds=circuit.retry_after(now)))
        return number

    def settle(self, number: int, ok: bool | None) -> None:
        circuit = self._circuit
        if ok is None:
            circuit.abandoned(number)
        elif ok:
            self.failing = False
            if circuit.state is CircuitState.HALF_OPEN:
                circuit.succeeded(number)
        else:
            self.failing = True
            circuit.failed(number, self._clock.elapsed())
        if circuit.state is not self._reported:
            self._report()

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

    def _report(self) -> None:
        """Call `moved` with the state. Called whenever the state differs from the reported one."""
        self._reported = self._circuit.state
        self._moved(self._reported.value)
