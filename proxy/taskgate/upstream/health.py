"""Health checks of one server: `Checks` asks it at intervals, in a session of the gateway's own.

A server is healthy if it answers, whatever it answers: the gateway asks as itself, and its identity
may matter to the server. A failure is what counts as one for the circuit breaker
(`session.CircuitGuard`), or no whole answer in time. At most one check runs at a time. A check that
could not be sent, for lack of credentials for example, has no result. `client` creates the checks
and acts on their results. It starts them when the upstream is opened; they run until `close`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from itertools import count
from logging import getLogger
from typing import Any, Final, NamedTuple, Protocol

from taskgate.domain.versions import Era
from taskgate.errors import REFUSALS, UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.protocol.vocabulary import PING, TOOLS_LIST
from taskgate.system.background import cancel_and_wait
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, PrincipalSource, ServerQuestion, UnsavedCallListener, UpstreamCall
from taskgate.upstream.pauses import share
from taskgate.upstream.settings import HealthSettings, UpstreamObserver

log = getLogger("taskgate.upstream")

_SPREAD: Final = 0.2
"""The share by which the interval between two checks varies: a tenth less to a tenth more."""
_DOUBTFUL: Final = 1 / 3
"""The part of the interval after which a failed check is repeated, until the server counts as down."""
_NO_ANSWER: Final = frozenset({UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value})
"""Reasons of failures that are no whole answer."""
GATEWAY: Final = Principal(context="gateway")
"""The principal of health checks."""
QUIET: Final = UpstreamObserver(
    answered=lambda method, seconds, error, is_own: None,
    session_lost=lambda: None,
    stream_opened=lambda kind: None,
    stream_ended=lambda kind: None,
)
"""The observer of health checks: they have a metric of their own and are counted in no other."""


Reaches = Callable[[float], Coroutine[Any, Any, bool]]
"""Tries to connect for so many seconds, and returns whether that was possible."""
Requester = Principal | PrincipalSource
"""The caller of a request, or what returns it: only a few requests need to know."""

ANY_CALLER: Final = Principal(context="")
"""Stands for each caller; the context of a caller is not empty."""


class RequestWatch(Protocol):
    """An observer of each request to a server, and of its outcome.

    It does not see requests that only listen. Streams reopen after pauses of their own, and one may
    bring the answer of a running call. Requests that follow something begun pass unseen too: to
    refuse the server an answer would fail the call that asked for it.
    """

    def begin(self, requester: Requester) -> int:
        """Return the number of a request that is about to be sent. Raises UpstreamFailed if it must
        not be."""
        ...

    is_unreachable: bool
    """Whether `try_connection` comes before `begin`, which may refuse: no connection to the server was made."""

    async def try_connection(self) -> None:
        """Try whether a connection can be made by now. `begin` refuses nothing then."""
        ...

    def counts_end(self, number: int) -> bool:
        """Return whether a request is a failure whose connection the server closed. It is none if
        another one was that began before the same end."""
        ...

    def settle(self, number: int, ok: bool | None, cause: str | None, requester: Requester) -> None:
        """Take the outcome of a request, once, on every path.

        `ok` is True for an answer, False for a failure of the server, None if neither is known.
        `cause` is that of a failure, as in UpstreamFailed. `requester` is ANY_CALLER for a failure that
        any caller would have had.
        """
        ...


class HealthProbe:
    """The `RequestWatch` of health checks, in place of the circuit breaker.

    It remembers from one `forget` to the next whether a request was sent, and whether one failed.
    """

    def __init__(self) -> None:
        # Requests of this and earlier checks that wait for the head of an answer.
        self._under_way = 0
        self._sent = self._failed = False
        self.cause: str | None = None
        """The cause of the latest failure since `forget`; None without one."""
        self.is_unreachable = False
        """Whether the latest failure since `forget` is that no connection was made."""

    @property
    def failed(self) -> bool:
        """Whether the server failed a request since `forget`."""
        return self._failed

    @property
    def asked(self) -> bool:
        """Whether a request was sent since `forget`, or one of an earlier check still waits."""
        return self._sent or self._under_way > 0

    def forget(self) -> None:
        """Reset for the next check."""
        self._sent = self._failed = self.is_unreachable = False
        self.cause = None

    def begin(self, requester: object) -> int:
        """Count a request. Its number is not needed."""
        self._sent = True
        self._under_way += 1
        return 0

    def settle(self, number: int, ok: bool | None, cause: str | None, requester: object) -> None:
        self._under_way -= 1
        if ok is False:
            self._failed = True
            self.cause = cause
            self.is_unreachable = requester is ANY_CALLER

    async def try_connection(self) -> None:
        """Nothing: no check is refused."""

    def counts_end(self, number: int) -> bool:
        """Return True: there is no other check."""
        return True


class ProbeResult(NamedTuple):
    """Result of a check. `good`: the server answered. `silent`: no answer came in time.

    `cause` says why it failed, as in UpstreamFailed, or why the server refused it. `is_unreachable`: no
    connection was made.
    """

    good: bool
    silent: bool = False
    cause: str | None = None
    is_unreachable: bool = False


class Checks:
    """The health checks of one server.

    They run in a session from `new_session`, whose requests `sentinel` watches. `found`
    is called for every check that has a result, after `up` was updated.
    """

    def __init__(
        self,
        health: HealthSettings,
        name: str,
        *,
        sentinel: HealthProbe,
        new_session: Callable[[], UpstreamSession],
        found: Callable[[ProbeResult], None],
    ) -> None:
        self._health = health
        self._name = name
        self._sentinel = sentinel
        self._new_session = new_session
        self._found = found
        self._session = new_session()
        # How many checks in a row had the same result as the last one, `_was_good`.
        self._in_a_row = 0
        self._was_good = False
        self._task: asyncio.Task[None] | None = None
        self.up: bool | None = None
        """Whether the server is up; None until it is known."""

    def begin(self) -> None:
        """Start the checks, the first one now. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._check_repeatedly(), context=Context())

    async def close(self) -> None:
        """Stop the checks and end their session."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        await self._session.close()

    async def _check_repeatedly(self) -> None:
        """Make checks at intervals, until cancelled."""
        loop, interval = asyncio.get_running_loop(), self._health.interval.total_seconds()
        for turn in count():
            # Measured from start to start. A tenth less or more keeps the checks of many servers
            # out of step.
            began, pause = loop.time(), interval * (1 - 1.5 * _SPREAD + 2 * _SPREAD * share(self._name, turn))
            try:
                result = await self._check()
            except Exception:
                log.exception("unexpected error in a health check of a server", extra={"upstream": self._name})
                result = None
            if result is not None:
                self._note(result)
            # A server that fails is known to be down soon, and is checked as rarely as others then.
            is_doubtful = not self._was_good and self._in_a_row and self.up is not False
            await asyncio.sleep(began + (pause * _DOUBTFUL if is_doubtful else pause) - loop.time())

    async def _check(self) -> ProbeResult | None:
        """Make one check and return its result; None if it shows nothing."""
        sentinel = self._sentinel
        sentinel.forget()
        try:
            async with asyncio.timeout(self._health.timeout.total_seconds()):
                await self._ask()
        except TimeoutError:
            late = sentinel.cause or UpstreamReason.TIMEOUT.value
            return ProbeResult(False, silent=not sentinel.failed, cause=late) if sentinel.asked else None
        except UpstreamFailed as failure:
            if not sentinel.asked or failure.reason == UpstreamReason.INTERNAL.value:
                return None
            silent = failure.reason == UpstreamReason.TIMEOUT.value
            good = not (sentinel.failed or failure.reason in _NO_ANSWER)
            refusal = failure.cause if failure.reason in REFUSALS else None
            cause = refusal if good else sentinel.cause or failure.cause
            return ProbeResult(good, silent, cause, sentinel.is_unreachable)
        return ProbeResult(not sentinel.failed, cause=sentinel.cause)

    async def _ask(self) -> None:
        """Send the configured request. Any answer will do. Raises UpstreamFailed."""
        lists_tools = self._health.lists_tools
        if not lists_tools and self._session.era is Era.MODERN:
            # The modern era has no ping, but a new session sends `server/discover`. Sessions cost a
            # modern server nothing: it does not know of them.
            await self._session.close()
            self._session = self._new_session()
            await self._session.open()
            return
        await self._session.call(UpstreamCall(TOOLS_LIST if lists_tools else PING), DEAF)

    def _note(self, result: ProbeResult) -> None:
        good = result.good
        self._in_a_row = self._in_a_row + 1 if good is self._was_good else 1
        self._was_good = good
        if self._in_a_row >= (self._health.healthy_after if good else self._health.unhealthy_after):
            self.up = good
        self._found(result)


class _Deaf(UnsavedCallListener):
    """Listener of health checks: ignores everything and refuses questions."""

    passes_rounds: Final = False

    def on_notification(self, notification: Notification) -> None:
        """Ignored."""

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignored."""

    def clog(self) -> None:
        """No backpressure."""

    def met(self, server: ServerDescription) -> None:
        """Ignored."""


DEAF: Final = _Deaf()
"""The listener of health checks."""
