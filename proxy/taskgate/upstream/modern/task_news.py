"""Task notifications of a modern server: `ServerTaskNews` opens a stream per task, for early polls.

A report only brings the next poll forward. Polls remain in any case, and nothing depends on the
streams. `FollowedTask` asks for one after its first poll, and stops it at its end.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import ServerSubscription
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.listen_stream import SubscriptionStream

RARE: Final = 2.0
"""Seconds between two polls from which on a stream is worth its connection."""


class ServerTaskNews:
    """The streams of one session. No more are opened after the server has refused one, or does not
    report the task of one."""

    def __init__(self, upstream_context: ModernUpstreamContext, host: Peer | None, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._clock = clock
        self._streams: set[SubscriptionStream] = set()
        # Whether a stream may be of use, as far as known.
        self._are_told = True

    def listen(self, task: str, interval: float | None, tell: Callable[[], None]) -> SubscriptionStream | None:
        """Open a stream that calls `tell` for each report on the task; None if it is of no use. The
        caller must stop it.

        `interval` is the poll interval in seconds.
        """
        if not self._are_told or interval is None or interval < RARE:
            return None

        def heard(about: str) -> None:
            if about == task:
                tell()

        def stands(stream: SubscriptionStream, *, again: bool) -> None:
            if task not in stream.tasks:
                self._are_told = False
                stream.stop()

        wants = ServerSubscription(tasks=(task,))
        stream = SubscriptionStream(
            self._upstream_context, wants, self._host, hear=_ignore, news=heard, stands=stands, clock=self._clock
        )
        self._streams.add(stream)
        stream.when_over(self._end)
        return stream

    async def close(self) -> None:
        """End all streams."""
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    def _end(self, stream: SubscriptionStream) -> None:
        self._streams.discard(stream)
        if stream.is_refused:
            self._are_told = False


def _ignore(notification: Notification) -> None:
    """Ignored: only tasks were asked for."""
