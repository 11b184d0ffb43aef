"""A request that waits for its answer, `Call`, with its timeouts.

A legacy session makes an `UpstreamRequest`, a modern one a `RequestDraft`
(`protocol.server_messages`). Both send it under the id of a `Call`. Between `begin` and `stop` they
wait for the answer in the block `with call.wait`. The block ends early if the time is up, or by
`wake`. `Patience` has the timeouts of each tool; sessions of both eras ask it for each request.
`UpstreamContext` is the state shared by all legacy sessions with one server; modern sessions have
`modern.context`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from taskgate.clock import Entropy
from taskgate.protocol.dialects import LegacyUpstreamDialect
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.system.cancel_scope import CancelScope
from taskgate.system.timer_wheel import Cancel, TimerWheel
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
        self._usual = _bounds(settings)
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
        return self._usual if method not in self._streams else _ENDLESS


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
    `reception` logs how the server answers `initialize`. `outlives`: the server and its state of a
    call survive the end of this process, so another process can resume the call.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: LegacyUpstreamDialect
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


class Call:
    """A request that waits for its answer, with its timers.

    - `wait` is the scope in which the answer is awaited. When the time is up, or by `wake`, it
      raises ScopeCancelled. Then `answer`, `was_let_go`, or neither (the time is up) tells why.
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

    __slots__ = (
        "_alarms",
        "_began_at",
        "_cancel_alarm",
        "_open_questions",
        "_progressed_at",
        "_running",
        "answer",
        "bounds",
        "id",
        "is_lasting",
        "is_task",
        "listener",
        "principal",
        "resumes",
        "sent",
        "spent",
        "told",
        "wait",
        "was_let_go",
        "was_refused",
    )  # fmt: skip

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
        self.resumes: NextRound | None = None
        self.wait = CancelScope()
        self.sent = False
        self.answer: Response | None = None
        self.was_let_go = False
        self.was_refused = False
        self.told: Notification | None = None
        self.is_task = False
        self.is_lasting = False
        self._alarms: TimerWheel | None = None
        self._cancel_alarm: Cancel | None = None
        self._running: Running | None = None
        self._open_questions = 0
        # Loop times. Equal as long as there was no progress.
        self._began_at = self._progressed_at = 0.0

    def leave(self) -> None:
        """Mark the request as sent: its first byte is about to be written."""
        self.sent = True

    def wake(self) -> None:
        """End the wait: `wait` raises ScopeCancelled. The caller has set the reason before."""
        self.wait.cancel()

    def begin(self, alarms: TimerWheel, running: Running | None = None) -> None:
        """Start the timers, and count the call in `running` if given; `stop` must follow."""
        self._alarms = alarms
        if running is not None:
            self._running = running
            running.count += 1
        self._began_at = self._progressed_at = asyncio.get_running_loop().time()
        # No subtraction in the usual case: it is on the way of every call.
        first = self.bounds.first
        self._cancel_alarm = alarms.call_later(first - self.spent if self.spent else first, self._on_alarm)

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

    def stop(self) -> None:
        """Stop the timers and the count."""
        if self._running is not None:
            self._running.count -= 1
            self._running = None
        if self._cancel_alarm is not None:
            self._cancel_alarm()
            self._cancel_alarm = None

    def _on_alarm(self) -> None:
        """End the wait if the time is up; if there was progress, set the timer again."""
        assert self._alarms is not None, "only a started call can time out"
        now = asyncio.get_running_loop().time()
        if self._open_questions:
            self._progressed_at = now
        if self._progressed_at == self._began_at:
            # The first timer had the whole time.
            self.wake()
            return
        silence_ends = self._progressed_at + self.bounds.call
        end = min(silence_ends, self._began_at - self.spent + self.bounds.ceiling)
        left = end - now
        if left > _NO_TIME:
            self._cancel_alarm = self._alarms.call_later(left, self._on_alarm)
        else:
            self.wake()


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
