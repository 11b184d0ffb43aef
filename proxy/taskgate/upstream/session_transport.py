"""Requests of one session on their way to the transport: `SessionTransport`, with its written steps.

A request gets the principal of the session and the credentials for the server. A `RequestWatch`
sees it: the circuit breaker `CircuitGuard`, or the probe of health checks (`health`). `client`
creates the transport; the sessions of both eras send through it.

A failure is one of these: no connection, a connection closed before an answer, no answer in time,
or the status 502, 503 or 504. Those statuses say that a proxy answered or that the server cannot
serve. Every other answer is a success: JSON-RPC errors and refusals are answers, and a slow call is
no failure. `domain.breaker` has the state machine of the circuit; `client` opens and closes it by
health checks too.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, overload

from taskgate.clock import Clock
from taskgate.domain.breaker import CircuitBreaker, CircuitState
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.calls import PrincipalSource
from taskgate.upstream.credentials.speaking import Credentials
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.settings import Breaker

_Sent = TypeVar("_Sent")


class RequestWatch(Protocol):
    """An observer of each request to a server, and of its outcome.

    It does not see requests that only listen. Streams reopen after pauses of their own, and one may
    bring the answer of a running call. Requests that follow something begun pass unseen too: to
    refuse the server an answer would fail the call that asked for it.
    """

    def begin(self) -> int:
        """Return the number of a request that is about to be sent. Raises UpstreamFailed if it must
        not be."""
        ...

    def settle(self, number: int, ok: bool | None) -> None:
        """Take the outcome of a request, once, on every path.

        `ok` is True for an answer, False for a failure of the server, None if neither is known.
        """
        ...


class CircuitGuard:
    """The `RequestWatch` that is a circuit breaker; `moved` is called with each new state.

    Each request has a number of the breaker, and settles it once, with its outcome.
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
        circuit = self._circuit
        if circuit.state is CircuitState.CLOSED:
            return circuit.number
        now = self._clock.elapsed()
        number = circuit.trial(now)
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


class SessionTransport:
    """The `Transport` of one session, around the transport to the server that all sessions share.

    A request without a principal is made for that of the session, which `principal_source` returns.
    `asks_whose`: the server's transport must know the principal of every request. Failures to get a
    token are raised by `send` as UpstreamFailed. `checks`: the requests are health checks.
    """

    __slots__ = ("_asks_whose", "_checks", "_credentials", "_principal_source", "_transport", "_watch", "channels")

    def __init__(
        self,
        transport: Transport | ChannelTransport,
        watch: RequestWatch | None,
        principal_source: PrincipalSource,
        *,
        asks_whose: bool = False,
        credentials: Credentials | None = None,
        checks: bool = False,
    ) -> None:
        self._transport = transport
        self.channels = transport if isinstance(transport, ChannelTransport) else None
        """The transport, if messages go over channels and not over Streamable HTTP."""
        self._watch = watch
        self._principal_source = principal_source
        self._asks_whose = asks_whose
        self._credentials = credentials
        self._checks = checks

    @overload
    async def send(self, outgoing: Outgoing, *, is_again: bool = False) -> Incoming: ...

    @overload
    async def send(self, outgoing: Outgoing, *, by: Callable[[Outgoing], Coroutine[Any, Any, _Sent]]) -> _Sent: ...

    async def send(
        self,
        outgoing: Outgoing,
        *,
        by: Callable[[Outgoing], Coroutine[Any, Any, Any]] | None = None,
        is_again: bool = False,
    ) -> Any:
        """Send a request, by a message channel if `by` is the function that does so."""
        send: Callable[[Outgoing], Coroutine[Any, Any, Any]] = by or self._transport.send
        asked, watch, credentials, token = outgoing, self._watch, self._credentials, None
        principal = outgoing.principal
        if principal is None and (self._asks_whose or credentials is not None):
            principal = self._principal_source()
        if self._asks_whose:
            outgoing = outgoing._replace(principal=principal)
        if self._checks:
            outgoing = outgoing._replace(checks=True)
        if credentials is not None and principal is not None:
            token = await credentials.token(principal)
            outgoing = outgoing._replace(headers={**outgoing.headers, **credentials.fields(principal, token)})
        if watch is None or outgoing.only_listens or outgoing.follows:
            incoming = await send(outgoing)
        else:
            ok, patience = None, outgoing.first_byte
            number = watch.begin()
            # Most calls have no such bound, and need no reading of the clock.
            began = 0.0 if patience is None else asyncio.get_running_loop().time()
            try:
                incoming = await send(outgoing)
                ok = incoming.status not in _DOWN
            except UpstreamFailed as failure:
                ok = _is_answer(failure)
                raise
            except asyncio.CancelledError:
                # The caller may cancel just before the transport would have timed out. That is
                # silence of the server; an earlier cancellation shows nothing.
                if patience is not None:
                    waited = asyncio.get_running_loop().time() - began
                    ok = False if waited >= patience.total_seconds() * _NEARLY else None
                raise
            finally:
                watch.settle(number, ok)
        if token is not None and incoming.status == _UNAUTHORIZED and credentials is not None and principal is not None:
            # The server refused the token. The answer is returned: a call is not sent twice.
            credentials.refused(principal, token)
            if outgoing.only_listens and not is_again:
                # A stream has no effect at the server, so it is opened again, with a new token.
                incoming.release()
                return await self.send(asked, is_again=True)
        return incoming

    async def close(self) -> None:
        """Do nothing: the connections are shared by all sessions with the server."""


def _is_answer(failure: UpstreamFailed) -> bool | None:
    """Return True if it comes from an answer, False for a failure of the server, else None."""
    if failure.reason == UpstreamReason.CLOSED.value and not failure.dispatched:
        # The gateway closed it itself.
        return None
    if failure.reason == UpstreamReason.INTERNAL.value:
        return None
    return failure.reason not in _FAILURES


_UNAUTHORIZED: Final = 401
_DOWN: Final = frozenset({502, 503, 504})
_FAILURES: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as silence of the server."""
