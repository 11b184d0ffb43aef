"""The state of one upstream, for operators: `UpstreamCondition`, from the latest calls and health checks.

Three refusals in a row make it refusing, of calls of tools, of other requests, or of checks. A call
without an answer in time counts as a refusal. Those of checks count where checks were answered before,
or no call has ever succeeded: a server may know the callers and not the gateway. It is down if its
checks or its circuit say so, or if the latest request found no connection. Three answers in a row of a
proxy without its server mean the same. A failure that tells nothing of the server counts for nothing.
What requests show is forgotten after REMEMBERED. All times are seconds of a monotonic clock. A state
decides nothing: that is for the circuit breaker and the checks.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from taskgate.errors import REFUSALS, UpstreamReason

IN_A_ROW: Final = 3
"""Refusals that make an upstream refusing."""
APART: Final = 1.0
"""Seconds from one refusal to the next that counts: many requests may wait for one handshake."""
REMEMBERED: Final = 300.0
"""Seconds after which a refusal, or a request without a connection, is forgotten."""

_OF_PROXIES: Final = frozenset({"HTTP 502", "HTTP 503", "HTTP 504"})
"""The causes by which a proxy says that its server is down."""
_OF_REQUESTS: Final = frozenset({"HTTP 400", "HTTP 404", "HTTP 405", "HTTP 410", "HTTP 422"})
"""The causes that may be about one call of a tool, and so count for other requests alone."""
_UNANSWERED: Final = "calls time out"
_UNANSWERED_BUT_CHECKS: Final = "calls time out, checks are answered"
"""The causes of calls without an answer in time."""
_WITHOUT_ANSWER: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.INTERNAL.value, UpstreamReason.CALL_LOST.value}
)
"""The reasons of failures that show no connection."""


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
    """Refusals in a row: how many, when they began, and the time and the cause of the last one."""

    times: int = 0
    began: float = 0.0
    latest: float = -inf
    cause: str = ""

    @property
    def trouble(self) -> Trouble | None:
        """The trouble that enough of them are."""
        return Trouble(self.cause, self.began) if self.times >= IN_A_ROW else None

    def add(self, cause: str, at: float) -> None:
        if self.times == 0:
            self.began = at
        if at - self.latest >= APART or self.times == 0:
            self.times, self.latest = self.times + 1, at
        self.cause = cause


@dataclass(slots=True)
class UpstreamCondition:
    """The outcomes of one upstream. The methods take them; `state` and `trouble` say what they mean.

    - `_calls`, `_others`, `_checks`: refusals in a row, of calls of tools, other requests and checks
    - `_up`: what its checks or its programs say; `_failing_since`: when checks began to fail
    - `_unreached`: the latest request found no connection, at `_unreached_at`
    - `_circuit`: the circuit is open for all callers
    - `_has_answered`: a request succeeded; `_has_served`: a call of a tool did; `_has_passed`: a check was
      answered, and not refused
    """

    _calls: _Row = field(default_factory=_Row)
    _others: _Row = field(default_factory=_Row)
    _checks: _Row = field(default_factory=_Row)
    _up: bool | None = None
    _failing_since: float | None = None
    _failing: Trouble | None = None
    _unreached: Trouble | None = None
    _unreached_at: float = -inf
    _circuit: Trouble | None = None
    _has_answered: bool = False
    _has_served: bool = False
    _has_passed: bool = False

    @property
    def state(self) -> UpstreamState | None:
        """Up, refusing or down; None while nothing is known."""
        trouble = self.trouble
        if trouble is None:
            return UpstreamState.UP if self._up or self._has_answered else None
        is_unserved = not (self._unreached is self._failing is self._circuit is None)
        return UpstreamState.DOWN if is_unserved or trouble.cause in _OF_PROXIES else UpstreamState.REFUSING

    @property
    def trouble(self) -> Trouble | None:
        """Why it is down or refusing; None if it is neither."""
        rows = (self._calls.trouble, self._others.trouble, self._checks.trouble)
        known = [each for each in (self._unreached, self._failing, self._circuit, *rows) if each is not None]
        return Trouble(known[0].cause, min(each.since for each in known)) if known else None

    def succeeded(self, *, is_call: bool) -> None:
        """The server answered a request with a result; `is_call`: it calls a tool. Successful
        handshakes and pings are left out."""
        self._unreached, self._has_answered = None, True
        if self._others.times:
            self._others = _Row()
        if not is_call:
            return
        self._has_served = True
        if self._calls.times:
            self._calls = _Row()
        if self._checks.times:
            self._checks = _Row()

    def failed(self, reason: str, cause: str, at: float, *, is_call: bool) -> None:
        """A request failed, with the reason and the cause of an UpstreamFailed."""
        if reason == UpstreamReason.UNREACHABLE.value and cause != reason:
            # Without a cause of its own it was not tried: the circuit is open.
            self._unreached = Trouble(cause, at if self._unreached is None else self._unreached.since)
            self._unreached_at = at
        if reason not in _WITHOUT_ANSWER:
            self._unreached = None
        if reason == UpstreamReason.TIMEOUT.value and is_call:
            self._calls.add(_UNANSWERED_BUT_CHECKS if self._has_passed else _UNANSWERED, at)
        if reason not in REFUSALS or cause == UpstreamReason.REFUSED.value:
            return
        if not is_call:
            self._others.add(cause, at)
        elif cause not in _OF_REQUESTS:
            self._calls.add(cause, at)

    def checked(self, ok: bool, up: bool | None, cause: str | None, at: float) -> None:
        """A health check ended. `up` is the health after it, None while unknown. `cause` says why it
        failed, or why the server refused it."""
        if not ok:
            if self._failing_since is None:
                self._failing_since = at
            self._tell(up, cause, self._failing_since)
            return
        self._unreached = None
        if up is not False:
            self._failing_since = None
            self._tell(up, None, at)
        if cause is None:
            self._has_passed, self._checks = True, _Row()
        elif self._has_passed or not self._has_served:
            self._checks.add(cause, at)

    def found_programs(self, up: bool, cause: str | None, at: float) -> None:
        """Whether a needed program answers has changed; `cause` says why it does not."""
        self._tell(up, cause, at)

    def circuit_changed(self, is_open: bool, cause: str | None, at: float) -> None:
        """The circuit opened or closed for all callers."""
        before = self._circuit or Trouble(_UNKNOWN, at)
        self._circuit = Trouble(cause or before.cause, before.since) if is_open else None

    def forget(self, now: float) -> None:
        """Forget what requests showed that is too old. Checks are made again and again."""
        if now - self._calls.latest >= REMEMBERED:
            self._calls = _Row()
        if now - self._others.latest >= REMEMBERED:
            self._others = _Row()
        if self._unreached is not None and now - self._unreached_at >= REMEMBERED:
            self._unreached, self._has_answered = None, False

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
    "ConnectionResetError": "connection reset",
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
