"""The state of one upstream, for operators: `UpstreamCondition`, from the latest calls and health checks.

Three refusals in a row with one cause make it refusing, of calls or of checks. Those of checks do not
while calls succeed: a server may know the callers and not the gateway. It is down if its checks or its
circuit say so, or if the latest call found no connection. Three answers in a row of a proxy without its
server mean the same. A failure that tells nothing of the server counts for nothing. All times are seconds
of a monotonic clock. A state decides nothing: that is for the circuit breaker and the checks.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from taskgate.errors import UpstreamReason

IN_A_ROW: Final = 3
"""Refusals with one cause that make an upstream refusing."""
REMEMBERED: Final = 300.0
"""Seconds for which the end of a call says more than checks do."""

_REFUSALS: Final = frozenset(
    {UpstreamReason.REFUSED.value, UpstreamReason.REDIRECT.value, UpstreamReason.MALFORMED.value}
)
_OF_PROXIES: Final = frozenset({"HTTP 502", "HTTP 503", "HTTP 504"})
"""The causes by which a proxy says that its server is down."""


class UpstreamState(StrEnum):
    """The state of an upstream. An operator holds it in `held`, in whatever other state it is."""

    UP = "up"
    REFUSING = "refusing"
    DOWN = "down"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The reason why an upstream is not up: the cause of an UpstreamFailed, and the time since when."""

    cause: str
    since: float


@dataclass(slots=True)
class _Row:
    """Refusals in a row: the cause of the last ones, how many had it, and when they began.

    `latest` is the time of the last one. `trouble` has the cause that came often enough.
    """

    cause: str | None = None
    times: int = 0
    began: float = 0.0
    latest: float = inf
    trouble: Trouble | None = None

    def add(self, cause: str, at: float) -> None:
        if self.times == 0:
            self.began = at
        self.times = self.times + 1 if cause == self.cause else 1
        self.cause, self.latest = cause, at
        if self.times >= IN_A_ROW:
            self.trouble = Trouble(cause, self.began)


@dataclass(slots=True)
class UpstreamCondition:
    """The outcomes of one upstream. The methods take them; `state` and `trouble` say what they mean.

    - `_calls`, `_checks`: refusals in a row
    - `_up`: what its checks or its programs say; `_failing_since`: when checks began to fail
    - `_unreached`: the latest call found no connection; `_circuit`: the circuit is open for all callers
    - `_answered_at`: when a call succeeded last
    """

    _calls: _Row = field(default_factory=_Row)
    _checks: _Row = field(default_factory=_Row)
    _up: bool | None = None
    _failing_since: float | None = None
    _failing: Trouble | None = None
    _unreached: Trouble | None = None
    _circuit: Trouble | None = None
    _answered_at: float = -inf

    @property
    def state(self) -> UpstreamState | None:
        """Up, refusing or down; None while nothing is known."""
        trouble = self.trouble
        if trouble is None:
            return UpstreamState.UP if self._up or self._answered_at > -inf else None
        if self._is_unserved or trouble.cause in _OF_PROXIES:
            return UpstreamState.DOWN
        return UpstreamState.REFUSING

    @property
    def trouble(self) -> Trouble | None:
        """Why it is down or refusing; None if it is neither."""
        found = [self._unreached, self._failing, self._circuit, self._calls.trouble, self._checks.trouble]
        known = [each for each in found if each is not None]
        return Trouble(known[0].cause, min(each.since for each in known)) if known else None

    @property
    def _is_unserved(self) -> bool:
        return not (self._unreached is self._failing is self._circuit is None)

    def succeeded(self, at: float) -> None:
        """The server answered a request that is no handshake and no ping."""
        self._answered_at = at
        self._unreached = None
        if self._calls.times:
            self._calls = _Row()
        if self._checks.times:
            self._checks = _Row()

    def failed(self, reason: str, cause: str, at: float) -> None:
        """A call failed, with the reason and the cause of an UpstreamFailed."""
        if reason == UpstreamReason.UNREACHABLE.value:
            # Without a cause of its own it was not tried: the circuit is open.
            if cause != reason:
                self._unreached = Trouble(cause, at if self._unreached is None else self._unreached.since)
            return
        if reason in _REFUSALS and cause != UpstreamReason.REFUSED.value:
            self._unreached = None
            self._calls.add(cause, at)

    def checked(self, ok: bool, up: bool | None, cause: str | None, at: float) -> None:
        """A health check ended. `up` is the health after it, None while unknown. `cause` says why it
        failed, or why the server refused it."""
        if not ok:
            if self._failing_since is None:
                self._failing_since = at
            self._tell(up, cause, self._failing_since)
            return
        self._failing_since = self._unreached = None
        self._tell(up, None, at)
        if cause is None:
            self._checks = _Row()
            if at - self._calls.latest >= REMEMBERED:
                self._calls = _Row()
        elif at - self._answered_at >= REMEMBERED:
            self._checks.add(cause, at)

    def found_programs(self, up: bool, cause: str | None, at: float) -> None:
        """Whether a needed program answers has changed; `cause` says why it does not."""
        self._tell(up, cause, at)

    def circuit_changed(self, is_open: bool, cause: str | None, at: float) -> None:
        """The circuit opened or closed for all callers."""
        if not is_open:
            self._circuit = None
        elif self._circuit is None:
            self._circuit = Trouble(cause or _UNKNOWN, at)

    def _tell(self, up: bool | None, cause: str | None, since: float) -> None:
        if up is None:
            return
        self._up = up
        self._failing = None if up else Trouble(cause or _UNKNOWN, since)


_UNKNOWN: Final = "unknown"


def in_words(cause: str) -> str:
    """Return the cause of an UpstreamFailed in words, after an HTTP status; the cause itself without words."""
    words = _WORDS.get(cause, cause)
    return f"{cause}: {words}" if cause.startswith("HTTP ") and words is not cause else words


_WORDS: Final = {
    "HTTP 401": "the server refuses the gateway's credentials",
    "HTTP 403": "the server forbids the request",
    "HTTP 404": "the server has nothing at this URL",
    "HTTP 405": "the server has no MCP at this URL",
    "HTTP 429": "the server gets too many requests",
    "HTTP 500": "the server has an error",
    "HTTP 502": "a proxy before the server does not reach it",
    "HTTP 503": "the server cannot serve now",
    "HTTP 504": "a proxy before the server gets no answer",
    "ECONNREFUSED": "connection refused",
    "ECONNRESET": "connection reset",
    "EHOSTUNREACH": "no route to the host",
    "ENETUNREACH": "no route to the network",
    "ETIMEDOUT": "no answer to the connection",
    "EAI_NONAME": "the host name is not known",
    "EAI_AGAIN": "the host name cannot be resolved now",
    "connect timeout": "no connection in time",
    "closed": "the server closes connections without an answer",
    "malformed": "its answers are not MCP",
    "redirect": "it answers with a redirect",
    "timeout": "no answer in time",
}
"""Causes of UpstreamFailed, by their names."""
