"""Task notifications of a modern server: `ServerTaskNews` opens a stream per task, for early polls.

The gateway polls each task of a server. A *report* is the server's notification that a task has
changed: it only brings the next poll forward. Polls remain in any case, and nothing depends on the
streams. `FollowedTask` calls `listen` after its first poll, and stops the stream when it ends.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import ServerSubscription
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.modern.listen_stream import SubscriptionStream

RARE: Final = 2.0
"""Seconds between two polls from which on a stream is worth its connection."""


class ServerTaskNews:
    """The task streams of one upstream session, which closes it at its end.

    If the server refuses a stream, or opens one that will not report its task, no more are opened
    for this session.
    """

    def __init__(self, upstream_context: ModernUpstreamContext, host: Peer | None, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._clock = clock
        self._streams: set[SubscriptionStream] = set()
        # False once the server has refused a stream, or did not grant the task of one.
        self._are_told = True

    def listen(self, task: str, interval: float | None, tell: Callable[[], None]) -> SubscriptionStream | None:
        """Open a stream that calls `tell` for each report on the task, and return it at once. The
        caller must stop it.

        Returns None, and opens none, if it is of no use: the server gives no reports, or the task
        is polled often anyway. `interval` is the poll interval in seconds; None if unknown.
        """
        if not self._are_told or interval is None or interval < RARE:
            return None

        def heard(about: str) -> None:
            if about == task:
                tell()

        # Called whenever the server has opened the stream, and has said what it will report.
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
        """End all streams, and wait until they have ended."""
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    def _end(self, stream: SubscriptionStream) -> None:
        """Forget a stream that was stopped or refused."""
        self._streams.discard(stream)
        if stream.is_refused:
            self._are_told = False


def _ignore(notification: Notification) -> None:
    """Ignore a notification that is no report: the stream was opened for a task alone."""
