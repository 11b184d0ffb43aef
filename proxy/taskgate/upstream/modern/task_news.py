"""What a server tells of its tasks by itself, where it does: a reason to look at one sooner than it would be looked at.

A stream each, while it is followed; nothing depends on them. What must not live here: looks (`followed`), and how a
stream is held (`listen_stream`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.protocol.envelope import Notification
from taskgate.protocol.modern_server import Listened
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.listen_stream import SubscriptionStream

RARE: Final = 2.0
"""Seconds between two looks from which on news are worth a connection."""


class ServerTaskNews:
    """The streams of one session. Where its server has none, or does not tell of tasks, it is asked for no other."""

    def __init__(self, upstream_context: ModernUpstreamContext, host: Peer | None, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._clock = clock
        self._streams: set[SubscriptionStream] = set()
        self._are_told = True

    def listen(self, task: str, interval: float | None, tell: Callable[[], None]) -> SubscriptionStream | None:
        """A stream that calls `tell` for news of that task, to be stopped; None where there is no use in one.

        `interval` is how rarely it is looked at.
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

        wants = Listened(tasks=(task,))
        stream = SubscriptionStream(
            self._upstream_context, wants, self._host, hear=_ignore, news=heard, stands=stands, clock=self._clock
        )
        self._streams.add(stream)
        stream.when_over(self._end)
        return stream

    async def close(self) -> None:
        """Listen to nothing any more."""
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    def _end(self, stream: SubscriptionStream) -> None:
        self._streams.discard(stream)
        if stream.is_refused:
            self._are_told = False


def _ignore(notification: Notification) -> None:
    """Nothing else was asked for."""
