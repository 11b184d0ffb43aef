"""The base of the listeners of one request of a host: `HostListener`, with its `Keepalives`.

While a request waits for its server, its listener sends the server's messages to the host. The
answer is one JSON document unless the host has to wait. The first message before the answer, or the
first keep-alive interval without it, turns the answer into an event stream (H-MOD-13).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from taskgate.domain.record import RequestId
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import text_of_progress
from taskgate.streams.exchange import Exchange
from taskgate.system.timer_wheel import Cancel, TimerWheel
from taskgate.upstream.call_listener import UnsavedCallListener

STEP: Final = 1e-6
"""The increment of progress in a keep-alive. Progress must grow, and the step is too small to pass
the numbers of a server."""

EncodeProgress = Callable[[RequestId, float, str], str]
"""Encodes a progress notification: token, number and text (`progress` of the dialects)."""


class Keepalives(NamedTuple):
    """The keep-alives of an era: the timers of all requests, and the seconds between two of one."""

    wheel: TimerWheel
    interval: float
    encode_progress: EncodeProgress


@dataclass(slots=True, eq=False)
class HostListener(UnsavedCallListener):
    """The listener of one request. The host gets keep-alives within its `with` block.

    - `token`: the host's progress token; None if it wants no progress.
    - `_last_progress`: the newest number that the host got; a keep-alive may have invented it.
    - `_has_invented`: a keep-alive has sent a number of the gateway's own.
    - `_has_sent`: something was sent since the last keep-alive.
    """

    exchange: Exchange
    token: RequestId | None
    keepalives: Keepalives
    _last_progress: float | None = field(default=None, init=False)
    _has_invented: bool = field(default=False, init=False)
    _has_sent: bool = field(default=False, init=False)
    _cancel_alarm: Cancel | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        head = self.exchange.head
        if head.accepts_stream:
            if not head.accepts_json:
                # This host can read an answer only as an event.
                self.exchange.stream()
            self._cancel_alarm = self.keepalives.wheel.call_later(self.keepalives.interval, self._on_alarm)
        return self

    def __exit__(self, *_: object) -> None:
        if self._cancel_alarm is not None:
            self._cancel_alarm()
            self._cancel_alarm = None

    def live(self) -> None:
        """Keep the host waiting: called once in each keep-alive interval.

        Turns the answer into an event stream, and sends progress if nothing was sent since the last
        interval. Without a progress token nothing is sent.
        """
        feed = self.exchange.stream()
        if self.token is not None and not self._has_sent:
            self._last_progress = 0.0 if self._last_progress is None else self._last_progress + STEP
            self._has_invented = True
            feed.send_now(self.keepalives.encode_progress(self.token, self._last_progress, "Still running"))
        self._has_sent = False

    def clog(self) -> Awaitable[None] | None:
        return self.exchange.stream().backpressure() if self.exchange.is_streaming else None

    def reword(self, notification: Notification) -> str | None:
        """Return the server's text with a number of the gateway, which grows.

        For progress whose own number does not grow beyond that of a keep-alive. Returns None if the
        host has no number yet, or the notification has no text.
        """
        text = text_of_progress(notification)
        if text is None or self.token is None or self._last_progress is None:
            return None
        self._last_progress += STEP
        return self.keepalives.encode_progress(self.token, self._last_progress, text)

    def _on_alarm(self) -> None:
        self.live()
        self._cancel_alarm = self.keepalives.wheel.call_later(self.keepalives.interval, self._on_alarm)
