"""One session with one server as the gateway holds it: `ServerSession`, whatever the era of the server.

Its `call` counts and traces the call, and finds the eras of the server if they are unknown. It goes on
in the session of one era (`legacy.session`, `modern.session`), that of the host where the server speaks
it. `era.EraFinder` finds the eras on first use, and again if the server stops answering in one.
`client` creates it. Each session has a
`SessionUsage`: it counts in the `RequestCounter`, for a metric and for a drain, and traces by the
`CallTracer`. `sessions.upstream_usage` makes the usage of a session.

The sessions of both eras send by a `SessionTransport`. A request gets the principal of the session
and the credentials for the server. A `RequestWatch` sees it: the circuit breaker `CircuitGuard`, or
the probe of health checks (`health`).

A failure is one of these: no connection, a connection closed before an answer, no answer in time,
or the status 502, 503 or 504. Those statuses say that a proxy answered or that the server cannot
serve. Every other answer is a success: JSON-RPC errors and refusals are answers, and a slow call is
no failure. `domain.breaker` has the state machine of the circuit; `client` opens and closes it by
health checks too.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeVar, overload

from taskgate.clock import Clock
from taskgate.domain.breaker import CircuitBreaker, CircuitState
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, Peer, find_revision
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.vocabulary import INITIALIZE
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing, Transport, UpstreamSession
from taskgate.upstream.calls import (
    CallListener,
    Principal,
    PrincipalSource,
    Resumed,
    Resumes,
    UpstreamCall,
)
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.credentials.speaking import Credentials
from taskgate.upstream.descriptions import Welcome
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.era import EraFinder, EraProbe, choose_era
from taskgate.upstream.health import ANY_CALLER, Reaches, Requester, RequestWatch
from taskgate.upstream.legacy.session import LegacySession
from taskgate.upstream.settings import Breaker
from taskgate.upstream.wire.redirects import SessionTarget
from taskgate.upstream.wire.transport import HttpTransport


class RequestCounter:
    """The requests of hosts and calls of tasks in flight, by the name of their upstream.

    A replaced server and its successor have the same name, so they count together.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        """The counts, kept by the sessions. A request ends when it is answered, fails, or is
        cancelled."""
        self.ended: asyncio.Event | None = None
        """Set by a session at the end of each request; None until a drain waits."""

    def read(self) -> dict[tuple[str], int]:
        """Present counts by name, as label values of a metric; idle upstreams may be missing."""
        return {(name,): count for name, count in self.in_flight.items()}

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, at any upstream; used by a drain."""
        self.ended = ended = self.ended or asyncio.Event()
        while self.in_flight.total():
            ended.clear()
            await ended.wait()


class CallTracer(Protocol):
    """Tracing of the calls to one server."""

    def traced(
        self,
        call: UpstreamCall,
        listed: Callable[[str], ListedTool | None],
        send: Callable[[UpstreamCall], Coroutine[Any, Any, Response]],
    ) -> Coroutine[Any, Any, Response]:
        """Send a call by `send`, with a span and its trace context, and return the response.

        `listed` returns a tool that the server lists.
        """
        ...


def _ignore() -> None:
    """Do nothing: the open sessions are not counted."""


@dataclass(slots=True)
class SessionUsage:
    """Counter and tracer of the calls of one session.

    `name` is that of its upstream. `tracer` is None without tracing. `closed` is called once, when
    the session is closed.
    """

    name: str
    requests: RequestCounter = field(default_factory=RequestCounter)
    tracer: CallTracer | None = None
    closed: Callable[[], None] = _ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """Makers of the session of either era.

    Their argument is a callback. The session calls it when the server may have left that era.
    """

    legacy: Callable[[Callable[[], None]], LegacySession]
    modern: Callable[[Callable[[], None]], UpstreamSession]


class ServerSession:
    """An `UpstreamSession` that counts and traces its calls, in the session of one era.

    `era` is the configured era; None if `finder` has to find it. At a server of both eras that of
    `host` is used. When the server then leaves its era, the call that notices did not run. It detects
    the era again, and is sent once more if that is another. Calls that still run may complete.
    """

    __slots__ = (
        "_bound",
        "_closing",
        "_finder",
        "_finding",
        "_host",
        "_makers",
        "_retired",
        "_upstream_context",
        "_usage",
        "_welcome",
        "call",
        "era",
        "era_session",
    )

    def __init__(
        self,
        era: Era | None,
        finder: EraFinder,
        *,
        host: Peer | None,
        upstream_context: UpstreamContext,
        makers: Makers,
        welcome: Welcome,
        usage: SessionUsage,
    ) -> None:
        self._finder = finder
        self._host = host
        self._welcome = welcome
        self._upstream_context = upstream_context
        self._makers = makers
        self._usage = usage
        self._finding = SingleFlight(self._find)
        # The end of this session, from the first `close` on.
        self._closing: asyncio.Task[None] | None = None
        # The session of the era before, which stays open so that its calls may complete.
        self._retired: UpstreamSession | None = None
        found = era or (choose_era(finder.eras, host) if finder.eras else None)
        self.era = found or Era.LEGACY
        """The era that is used with the server, legacy until it is known."""
        self.era_session: UpstreamSession | None = None
        """The session for new calls, in that era; None while the era is unknown."""
        if era is not None:
            make = makers.modern if era is Era.MODERN else makers.legacy
            self.era_session = make(_keep_era)
        elif found is not None:
            self.era_session = self._new_session(found)
        # The last session that took calls; it stays while the era is found again.
        self._bound = self.era_session
        self.call = self._counted if usage.tracer is None else self._traced

    def _traced(self, call: UpstreamCall, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Make a call with a span, in which the eras may have to be found first."""
        assert self._usage.tracer is not None, "only with tracing"
        return self._usage.tracer.traced(call, self.listed, partial(self._counted, listener=listener))

    async def _counted(self, call: UpstreamCall, listener: CallListener) -> Response:
        """Make a call, which is counted while it runs."""
        requests, name = self._usage.requests, self._usage.name
        missed: UpstreamFailed | None = None
        era_before = self.era
        requests.in_flight[name] += 1
        try:
            while True:
                session = self.era_session
                if session is None or call.resumes is not None:
                    session = await self._session_for(call)
                if missed is not None and session.era is era_before:
                    raise missed.copy()
                try:
                    return await session.call(call, listener)
                except UpstreamFailed as failure:
                    # What did not run is sent once more if the server is one of another era now.
                    if missed or failure.dispatched or call.resumes is not None or self.era_session is session:
                        raise
                    missed, era_before = failure.copy(), session.era
        except UpstreamFailed as failure:
            self._report(call.method, failure)
            raise
        finally:
            requests.in_flight[name] -= 1
            if requests.ended is not None:
                requests.ended.set()

    def _report(self, method: str, failure: UpstreamFailed) -> None:
        """Report the failure of a request that is not tried again."""
        reason = failure.reason
        if isinstance(failure, failures.CallerRefused | failures.StaleToken):
            reason = _INTERNAL
        elif isinstance(failure, failures.NoCredentials):
            # It is not the server that failed. Without a cause, the caller has no token, or the gateway ends.
            reason = _INTERNAL if failure.cause == failure.reason else _REFUSAL
        self._upstream_context.observer.failed(method, reason, failure.cause, False)

    async def open(self) -> ServerDescription:
        try:
            return await (self.era_session or await self._found_session()).open()
        except UpstreamFailed as failure:
            self._report(INITIALIZE, failure)
            raise

    async def welcome(self) -> ServerDescription:
        return await self._welcome.describe(self.open())

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        assert self._bound is not None, "a response belongs to a session"
        return self._bound.outcome(response)

    def tell(self, notification: Notification) -> None:
        if self.era_session is not None:
            self.era_session.tell(notification)

    async def tools(self, wanted: str | None = None) -> Mapping[str, ListedTool]:
        return await (self.era_session or await self._found_session()).tools(wanted)

    def listed(self, tool: str) -> ListedTool | None:
        return None if self.era_session is None else self.era_session.listed(tool)

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        return frozenset() if self.era_session is None else await self.era_session.listen_for(changes)

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        return frozenset() if self.era_session is None else self.era_session.grants(filters)

    async def close(self) -> None:
        # It goes on if the caller is cancelled, as a health check is: streams would stay open.
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._finding.close()
            sessions = [session for session in (self._bound, self._retired) if session is not None]
            await asyncio.gather(*(session.close() for session in sessions))
        finally:
            self._usage.closed()

    # --- the era of the server ----------------------------------------------------------------------------------------

    async def _session_for(self, call: UpstreamCall) -> UpstreamSession:
        """Return the session for a call that another process began, or whose server's eras are unknown.

        The search for the eras takes of the call's time.
        """
        resumes = call.resumes
        if self._bound is None and isinstance(resumes, Resumed):
            # The era is that in which the server took the call; no detection is needed. For other
            # calls the eras are still to be found, so `era_session` is not set.
            self._bound = bound = self._new_session(_era_of(resumes))
            self.era = bound.era
            return bound
        session = self.era_session
        if session is None:
            session = await self._found_session_for(call)
        if resumes is not None and session.era is not (era := _era_of(resumes)) and era in self._finder.eras:
            # The server took the call in the era that its host does not have.
            session = self._new_session(era)
            await self._bind(session)
        return session

    async def _found_session_for(self, call: UpstreamCall) -> UpstreamSession:
        """Return the session for a call after finding the eras of the server, in the call's time."""
        bounds = self._upstream_context.patience.of(call.tool)
        if call.within is None:
            return (await self._found_within(bounds.first))[0]
        session, spent = await self._found_within(bounds.within(call.within).first)
        call.within -= spent
        return session

    async def _found_session(self) -> UpstreamSession:
        """Return the session of the server's era, after finding the era. Raises UpstreamFailed."""
        if self._closing is not None:
            raise failures.let_go(dispatched=False)
        try:
            return await self._finding.get()
        except UpstreamFailed as failure:
            # The call itself was not sent.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    async def _found_within(self, within: float) -> tuple[UpstreamSession, timedelta]:
        """Return the session, and the time that finding it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                session = await self._found_session()
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return session, timedelta(seconds=loop.time() - began)

    async def _find(self) -> UpstreamSession:
        """Find the era, and make its session the one for new calls, in one flight for all calls."""
        lost = partial(self._lose_era, Era.LEGACY)
        found = await self._finder.find(
            EraProbe(upstream_context=self._upstream_context, open=partial(self._makers.legacy, lost))
        )
        bound, era = self._bound, choose_era(found.eras, self._host)
        session: UpstreamSession
        if found.session is not None and era is Era.LEGACY:
            session = found.session
        elif bound is not None and bound.era is era:
            session = bound
        else:
            session = self._new_session(era)
        await self._bind(session, None if found.session is session else found.session)
        return session

    async def _bind(self, session: UpstreamSession, surplus: UpstreamSession | None = None) -> None:
        """Make a session the one for new calls, and close `surplus`, which found the eras.

        Of the sessions with running calls only one is kept: the one before it.
        """
        bound, self._bound = self._bound, session
        self.era_session = session
        self.era = session.era
        retired = None
        if bound is not None and bound is not session:
            retired, self._retired = self._retired, bound
        closing = [each.close() for each in (retired, surplus) if each is not None]
        if closing:
            await asyncio.shield(asyncio.gather(*closing))

    def _new_session(self, era: Era) -> UpstreamSession:
        """Return a session of that era, not yet opened."""
        make = self._makers.modern if era is Era.MODERN else self._makers.legacy
        return make(partial(self._lose_era, era))

    def _lose_era(self, era: Era) -> None:
        """Forget the era, so that the next call finds it again. Sessions of that era call this."""
        self._finder.forget(era)
        self._upstream_context.reception.lost(self._upstream_context.settings, era)
        if self.era_session is not None and self.era_session.era is era:
            self.era_session = None
            self._finding.forget()


def _era_of(resumes: Resumes) -> Era:
    """Return the era in which the server took a call: modern unless a legacy revision is named."""
    if isinstance(resumes, Resumed) and find_revision(resumes.resume_point.revision) is not None:
        return Era.LEGACY
    return Era.MODERN


def _keep_era() -> None:
    """Do nothing: a configured era stays, whatever the server answers."""


# --- requests on their way to the transport ---------------------------------------------------------------------------

_Sent = TypeVar("_Sent")


class CircuitGuard:
    """The `RequestWatch` that is a circuit breaker; `moved` is called with each new state.

    `moved` also gets the cause of the latest failure, and whether the state concerns all callers. Each
    request has a number of the breaker, and settles it once, with its outcome. `reaches` returns whether
    a connection is made in so many seconds; None if that cannot be tried without a request.
    """

    def __init__(
        self,
        breaker: Breaker,
        *,
        moved: Callable[[str, str | None, bool], None],
        clock: Clock,
        reaches: Reaches | None = None,
    ) -> None:
        self._clock = clock
        self._moved = moved
        self._reaches = reaches
        self._attempt = SingleFlight(self._connect)
        self._tried_at = -inf
        self._circuit = CircuitBreaker(
            failures=breaker.failures,
            window=breaker.window.total_seconds(),
            open_for=breaker.open_for.total_seconds(),
            half_open=breaker.half_open,
        )
        # The state that `moved` was called with last, and whom it concerned.
        self._reported: tuple[CircuitState, str | None] = (self._circuit.state, None)
        self._cause: str | None = None
        # The caller whose request the server failed last, empty for any; None after a success.
        self._failing: str | None = None
        # Whether the latest failure is that no connection was made.
        self._has_no_connection = False
        self.is_unreachable = False
        self.counts_end = self._circuit.counts_end

    @property
    def state(self) -> str:
        """The state of the circuit: closed, open or half_open."""
        return self._circuit.state.value

    @property
    def reason(self) -> str | None:
        """Why the circuit is not closed, and whom it refuses; None if it is closed."""
        if self._circuit.state is _CLOSED:
            return None
        whom = "all callers" if self._circuit.only is None else "one caller"
        return f"{whom}: {self._cause or 'unknown'}"

    def is_failing(self, caller: str) -> bool:
        """Whether the server fails requests of the caller, as far as is known."""
        return self._failing in {ANY_CALLER.context, caller} or self._circuit.is_open_for(caller)

    def begin(self, requester: Requester) -> int:
        """Raises UpstreamFailed with `retry_after` while the circuit is open."""
        circuit = self._circuit
        if circuit.state is _CLOSED:
            return circuit.number
        now, caller = self._clock.elapsed(), _caller_of(requester)
        number = circuit.trial(now, caller)
        self._report()
        if number is None:
            raise failures.left_alone(timedelta(seconds=circuit.retry_after(now, caller)))
        return number

    async def try_connection(self) -> None:
        """Try to connect, in one flight for all. A connection closes the circuit."""
        with suppress(TimeoutError, Abandoned):
            async with asyncio.timeout(_CONNECT_WITHIN):
                # An attempt that was begun before may have come a moment too early.
                if self._attempt.is_empty or not await self._attempt.get():
                    await self._attempt.get()

    async def _connect(self) -> bool:
        assert self._reaches is not None, "there is a way to connect"
        try:
            await asyncio.sleep(self._tried_at + _CONNECT_PAUSE - self._clock.elapsed())
            reached = await self._reaches(_CONNECT_WITHIN)
        finally:
            self._tried_at = self._clock.elapsed()
            self._attempt.forget()
        if reached and self.is_unreachable:
            self.mend()
        return reached

    async def close(self) -> None:
        """End the attempt to connect."""
        await self._attempt.close()

    def settle(self, number: int, ok: bool | None, cause: str | None, requester: Requester) -> None:
        circuit = self._circuit
        if ok:
            self._failing = None
            if not circuit.counts_successes:
                return
            circuit.succeeded(number, self._clock.elapsed(), _caller_of(requester))
        elif ok is None:
            circuit.abandoned(number)
        else:
            self._failing, self._cause = _caller_of(requester), cause
            self._has_no_connection = requester is ANY_CALLER
            circuit.failed(number, self._clock.elapsed(), self._failing or None)
        self._report()

    def trip(self, cause: str | None = None, *, is_unreachable: bool = False) -> None:
        """Open the circuit now: health checks found the server down, for this cause."""
        self._cause, self._has_no_connection = cause, is_unreachable
        self._circuit.open(self._clock.elapsed())
        self._report()

    def mend(self) -> None:
        """Close the circuit: a health check found the server up."""
        if self._circuit.state is not _CLOSED:
            self._circuit.close()
            self._report()

    def _report(self) -> None:
        """Note the state, and call `moved` with it if it differs from the reported one."""
        circuit = self._circuit
        self.is_unreachable = self._has_no_connection and circuit.state is not _CLOSED and self._reaches is not None
        if (circuit.state, circuit.only) != self._reported:
            self._reported = circuit.state, circuit.only
            self._moved(circuit.state.value, self._cause, circuit.only is None)


def _caller_of(requester: Requester) -> str:
    return (requester if isinstance(requester, Principal) else requester()).counted_as


class SessionTransport:
    """The `Transport` of one session, around the transport to the server that all sessions share.

    A request without a principal is made for that of the session, which `principal_source` returns.
    Permanent redirects of a server over HTTP are remembered here, for this session alone.
    `asks_whose`: the server's transport must know the principal of every request. Failures to get a
    token are raised by `send` as UpstreamFailed. `checks`: the requests are health checks.
    """

    __slots__ = ("_asks_whose", "_checks", "_credentials", "_principal_source", "_send", "_watch", "channels")

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
        self._send: Callable[[Outgoing], Coroutine[Any, Any, Any]] = transport.send
        if isinstance(transport, HttpTransport):
            self._send = partial(transport.send, session=SessionTarget())
        self.channels = transport if isinstance(transport, ChannelTransport) else None
        """The transport, if messages go over channels and not over Streamable HTTP."""
        self._watch = watch
        self._principal_source = principal_source
        self._asks_whose = asks_whose
        self._credentials = credentials
        self._checks = checks

    @overload
    async def send(self, outgoing: Outgoing) -> Incoming: ...

    @overload
    async def send(self, outgoing: Outgoing, *, by: Callable[[Outgoing], Coroutine[Any, Any, _Sent]]) -> _Sent: ...

    @overload
    async def send(
        self, outgoing: Outgoing, *, by: Callable[[Outgoing], Coroutine[Any, Any, Any]] | None, is_again: bool
    ) -> Any: ...

    async def send(
        self,
        outgoing: Outgoing,
        *,
        by: Callable[[Outgoing], Coroutine[Any, Any, Any]] | None = None,
        is_again: bool = False,
    ) -> Any:
        """Send a request, by a message channel if `by` is the function that does so.

        If the server refuses the credentials and there are others, it is sent again, once
        (`is_again`).
        """
        send = by or self._send
        asked, watch, credentials, token, principal, shown = outgoing, self._watch, self._credentials, None, None, None
        if credentials is not None or self._asks_whose or self._checks:
            # A copy, because its sender may send it again.
            outgoing = replace(outgoing, checks=outgoing.checks or self._checks)
            principal = outgoing.principal
            if principal is None and (self._asks_whose or credentials is not None):
                principal = self._principal_source()
            if self._asks_whose:
                outgoing.principal = principal
            if credentials is not None and principal is not None:
                token = await credentials.token(principal)
                shown = credentials.fields(principal, token)
                outgoing.headers = {**outgoing.headers, **shown}
        if watch is None or outgoing.only_listens or outgoing.follows:
            incoming = await send(outgoing)
        else:
            ok, patience, cause = None, outgoing.first_byte, None
            if watch.is_unreachable:
                await watch.try_connection()
            number = watch.begin(requester := asked.principal or self._principal_source)
            # Most calls have no such bound, and need no reading of the clock.
            began = 0.0 if patience is None else asyncio.get_running_loop().time()
            try:
                incoming = await send(outgoing)
                ok = incoming.status not in _DOWN
                cause = None if ok else failures.http_cause(incoming.status)
            except UpstreamFailed as failure:
                ok, cause = _is_answer(failure, watch, number), failure.cause
                # Without a connection, no caller can be the reason. A program is its caller's own.
                requester = requester if failure.reason != _UNREACHABLE or self._asks_whose else ANY_CALLER
                raise
            except asyncio.CancelledError:
                ok, cause = _silence(patience, began), _TIMEOUT
                raise
            finally:
                watch.settle(number, ok, cause, requester)
        if (
            credentials is not None
            and principal is not None
            and incoming.status == _UNAUTHORIZED
            and await _are_replaced(credentials, principal, token, shown or {}, incoming, is_again=is_again)
        ):
            # The server did not run it.
            return await self.send(asked, by=by, is_again=True)
        if shown is not None and asked.call is not None and incoming.status >= _REFUSED:
            asked.call.shown = shown
        return incoming

    async def close(self) -> None:
        """Do nothing: the connections are shared by all sessions with the server."""


async def _are_replaced(
    credentials: Credentials,
    principal: Principal,
    token: str | None,
    shown: Mapping[str, str],
    refusal: Any,
    *,
    is_again: bool,
) -> bool:
    """Whether there are other credentials than those that the server refused; `refusal` is released then."""
    if is_again:
        # The second refusal is the answer.
        credentials.refused_twice(principal, token)
        return False
    is_answer = False
    try:
        is_answer = not await credentials.replaced(principal, token, shown)
    finally:
        if not is_answer:
            refusal.release()
    return not is_answer


def _silence(patience: timedelta | None, began: float) -> bool | None:
    """Return False for a cancelled request whose server was silent, else None: an earlier end shows nothing.

    The caller may cancel just before the transport would have timed out, after `patience`.
    """
    if patience is None:
        return None
    waited = asyncio.get_running_loop().time() - began
    return False if waited >= patience.total_seconds() * _NEARLY else None


def _is_answer(failure: UpstreamFailed, watch: RequestWatch, number: int) -> bool | None:
    """Return True if it comes from an answer, False for a failure of the server, else None."""
    if failure.cause == failures.KEPT_TOO_LONG:
        return None
    if failure.reason == _CLOSING:
        # Not dispatched: the gateway closed it itself.
        return False if failure.dispatched and watch.counts_end(number) else None
    if failure.reason == UpstreamReason.INTERNAL.value:
        return None
    return failure.reason not in _FAILURES


# To read a member from its class costs as much as a call in Python 3.11.
_CLOSED: Final = CircuitState.CLOSED
_REFUSED: Final = 400
_UNAUTHORIZED: Final = 401
_DOWN: Final = frozenset({502, 503, 504})
_TIMEOUT: Final = UpstreamReason.TIMEOUT.value
_UNREACHABLE: Final = UpstreamReason.UNREACHABLE.value
_CLOSING: Final = UpstreamReason.CLOSED.value
_REFUSAL: Final = UpstreamReason.REFUSED.value
_INTERNAL: Final = UpstreamReason.INTERNAL.value
_FAILURES: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_CONNECT_WITHIN: Final = 0.25
"""Seconds in which a server has to take a connection that is to close its circuit."""
_CONNECT_PAUSE: Final = 0.05
"""Seconds between two attempts to make one."""
_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as silence of the server."""
