"""A request that waits for its answer, `Call`, with its timeouts.

A legacy session makes an `UpstreamRequest`, a modern one a `RequestDraft`
(`protocol.server_messages`). Both send it under the id of a `Call`. After `begin` they wait for the
answer in the block `with call`. The block ends early if the time is up, or by `cancel`. `Patience`
has the timeouts of each tool; sessions of both eras ask it for each request. `UpstreamContext` is
the state shared by all legacy sessions with one server; modern sessions have `modern.context`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from taskgate.clock import Entropy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.system.cancel_scope import CancelScope
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.principal import Principal
from taskgate.upstream.reception import Reception
from taskgate.upstream.resume_points import NextRound
from taskgate.upstream.settings import ToolTimeouts, UpstreamObserver, UpstreamSettings


@dataclass(frozen=True, slots=True)
class CallBounds:
    """Timeouts of a call. `call`: seconds without progress. `ceiling`: seconds in all.

    `idle` is the silence that is allowed on its stream; None: any. `first` are the seconds after
    which a call without any progress ends.
    """

    call: float
    ceiling: float
    idle: timedelta | None = None
    first: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", min(self.call, self.ceiling))

    def within(self, span: timedelta) -> "CallBounds":
        """Return the same timeouts, cut to `span`."""
        seconds = span.total_seconds()
        return CallBounds(min(self.call, seconds), min(self.ceiling, seconds), self.idle)


def briefly(span: timedelta) -> CallBounds:
    """Return the timeouts of a request of the gateway itself: it ends after `span`."""
    return CallBounds(span.total_seconds(), span.total_seconds())


class Patience:
    """The timeouts of calls to one server."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.usual = _bounds(settings)
        """The timeouts of a request that no rule changes."""
        self.has_rules = bool(settings.tools or settings.extensions.streams)
        """Whether a tool or a method may have other timeouts, so that `of` must be asked."""
        self._streams = settings.extensions.streams
        self._tools = tuple((rule.tool, _bounds(rule)) for rule in settings.tools)

    def of(self, tool: str | None = None, method: str = TOOLS_CALL) -> CallBounds:
        """Return the timeouts of a call to `tool`, by the first rule that matches; without a tool,
        of any request.

        A request of a method that lasts as long as its host listens has no timeout (X-EXT-32).
        """
        if tool is not None:
            for glob, bounds in self._tools:
                if fnmatchcase(tool, glob):
                    return bounds
        return self.usual if method not in self._streams else _ENDLESS


def _bounds(settings: UpstreamSettings | ToolTimeouts) -> CallBounds:
    return CallBounds(settings.call.total_seconds(), settings.ceiling.total_seconds(), settings.idle)


_ENDLESS: Final = briefly(timedelta(days=3650))
"""Longer than any process lives, and short enough for every clock."""


@dataclass(slots=True)
class Running:
    """Number of requests that wait for an answer of one server now."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamContext:
    """Shared state of all legacy sessions with one server.

    `ids` gives the request ids, which are progress tokens too and unique among all sessions.
    `alarms` are the timers of calls, `patience` has their timeouts, and `running` counts the calls.
    `reception` logs how the server answers `initialize`. `transport` is one session's own if the
    server needs its principal (`sending`). `outlives`: the server and its state of a call survive
    the end of this process, so another process can resume the call.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: LegacyUpstream
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: TimerWheel
    patience: Patience
    running: Running = field(default_factory=Running)
    reception: Reception = field(default_factory=Reception)
    outlives: bool = True


class UpstreamRequest(NamedTuple):
    """A request before it has an id; `write` returns its text under an id.

    `write` is called once for each attempt, right before it is sent. `listener` gets what the
    server sends about it besides the answer. `log_level` None leaves the log level unchanged.
    """

    method: str
    write: Callable[[int], str]
    bounds: CallBounds
    listener: CallListener | None = None
    principal: Principal | None = None
    log_level: str | None = None


class Call(CancelScope):
    """A request that waits for its answer in the block `with call`, with its timers.

    When the time is up, or by `cancel`, the block raises ScopeCancelled. Then `answer`,
    `was_let_go`, or neither (the time is up) tells why. Only the wait is cancelled: the server is
    told by the code around the block.

    - `sent`: some of the request may have reached the server. False while the connection is made.
    - `answer` is an answer that arrived outside of the request's own stream.
    - `was_let_go`: the gateway ends the call itself, by closing the session.
    - `was_refused`: the answer came under an HTTP error status.
    - `resumes` is the round that a modern call starts with, if that is not its first.
    - `spent` is how many seconds of its time were used before `begin`.
    - `told` is its last progress notification.
    - `is_task`: the server made a task of the call, so it did act.
    - `is_lasting`: it is a legacy `tools/call`. With each event of its stream, the listener gets a
      resume point.
    """

    resumes: NextRound | None = None
    sent = False
    answer: Response | None = None
    was_let_go = False
    was_refused = False
    told: Notification | None = None
    is_task = False
    is_lasting = False
    _alarms: TimerWheel | None = None
    _open_questions = 0
    # Loop times. Equal as long as there was no progress.
    _began_at = _progressed_at = 0.0

    def __init__(
        self,
        id: int,
        listener: CallListener | None,
        bounds: CallBounds,
        *,
        principal: Principal | None = None,
        spent: float = 0,
    ) -> None:
        self.id = id
        self.listener = listener
        self.bounds = bounds
        self.principal = principal
        self.spent = spent

    def begin(self, alarms: TimerWheel) -> None:
        """Start the timers; the block must follow, and stops them at its end."""
        self._alarms = alarms
        self._began_at = self._progressed_at = asyncio.get_running_loop().time()
        # No subtraction in the usual case: it is on the way of every call.
        first = self.bounds.first
        self.drop_timer = alarms.call_later(first - self.spent if self.spent else first, self._on_alarm)

    def progressed(self) -> None:
        """Restart the timeout without progress: the server shows that it works on the call
        (V-INIT-9)."""
        self._progressed_at = asyncio.get_running_loop().time()

    def asks(self, questions: int) -> None:
        """Add `questions` to the number of open questions; negative for closed ones.

        While there are any, the timeout without progress does not run; the ceiling does.
        """
        self._open_questions += questions
        self.progressed()

    def _on_alarm(self) -> None:
        """End the wait if the time is up; if there was progress, set the timer again."""
        assert self._alarms is not None, "only a started call can time out"
        now = asyncio.get_running_loop().time()
        if self._open_questions:
            self._progressed_at = now
        if self._progressed_at == self._began_at:
            # The first timer had the whole time.
            self.cancel()
            return
        silence_ends = self._progressed_at + self.bounds.call
        end = min(silence_ends, self._began_at - self.spent + self.bounds.ceiling)
        left = end - now
        if left > _NO_TIME:
            self.drop_timer = self._alarms.call_later(left, self._on_alarm)
        else:
            self.cancel()


_NO_TIME: Final = 0.001
"""Seconds that are not worth another timer."""


def first_id(entropy: Entropy) -> int:
    """Return the random id that a process begins with: no host can guess ids and progress tokens
    (T17).

    It has 52 random bits. JavaScript servers read integers exactly only below 2**53, and a process
    never counts that far.
    """
    return int.from_bytes(entropy.token(7)) % _FIRST_IDS + 1


_FIRST_IDS: Final = 2**52
