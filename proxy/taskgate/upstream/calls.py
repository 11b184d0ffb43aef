"""A request to a server, `UpstreamCall`, and its wait for the answer, `Call`, with its timeouts.

A session gets an `UpstreamCall`, and sends it under the id of a `Call`. After `begin` it waits for
the answer in the block `with call`. The block ends early if the time is up, or by `cancel`.
A session asks `context.Patience` for its timeouts.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from taskgate.protocol.messages import Notification, Params, Response
from taskgate.system.cancel_scope import CancelScope
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import NextRound, Resumes


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


@dataclass(slots=True)
class UpstreamCall:
    """One request to a server, as its host or task wants it. It has no id, and knows no era.

    The session that gets it takes it over: it may set `bounds`.

    - `method` and `params` are in the words of the legacy era, whatever the era of the server.
    - `tool` is the tool of a `tools/call`, whose timeouts may differ.
    - `principal` is the caller that the request is made for, None for that of the session.
    - `log_level` is the least severe log line that the host wants with this request. The listener
      may get others too.
    - `repeated` are the `Mcp-Param-*` headers of the host's request, which repeat arguments, by the
      rest of their names in lower case. Those that the tool is not known to want go to a modern
      server as they came (H-MOD-6); the gateway writes the others itself.
    - `as_task`: the `tools/call` of a task. The gateway always asks the server for progress, so
      `params` hold no progress token.
    - `within` is the time that a task has for it, if its own timeouts are not sooner. None: these
      alone apply.
    - `resumes`: the call of a task goes on that another process began. Then the next round of a
      modern call is sent, or nothing is sent and the answer is awaited.
    - `bounds` are its timeouts; None until the session knows them.
    """

    method: str
    params: Params | None = None
    tool: str | None = None
    principal: Principal | None = None
    log_level: str | None = None
    repeated: Mapping[str, str] | None = None
    as_task: bool = False
    within: timedelta | None = None
    resumes: Resumes | None = None
    bounds: "CallBounds | None" = None


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

    @property
    def is_left(self) -> bool:
        """Whether another process will resume this call, if its wait ends here now.

        Sessions read it when they end a call. If true, the call runs on at the server: no
        cancellation is sent, and its server session stays open. Its listener decides it (`leaves`);
        a call without a listener is never left.
        """
        return self.listener is not None and self.listener.leaves

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
