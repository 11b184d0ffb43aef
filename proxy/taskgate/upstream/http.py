"""A server that is spoken to over Streamable HTTP, with what it is made from: the door of this floor.

Puts the parts together; what each does is in its own module. Only the composition root comes here.
"""

from itertools import count

from taskgate.alarms import Alarms
from taskgate.clock import Clock
from taskgate.dialects.base import UpstreamDialect
from taskgate.upstream.base import Notice, Transport
from taskgate.upstream.conversation import Means
from taskgate.upstream.session import HttpSession
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings
from taskgate.upstream.transport import HttpTransport

__all__ = ["HttpTransport", "HttpUpstream", "UpstreamObserver", "UpstreamSettings"]


class HttpUpstream:
    """One configured server; see Upstream. `transport` is for those who move bytes in another way."""

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        dialect: UpstreamDialect,
        observer: UpstreamObserver,
        clock: Clock,
        transport: Transport | None = None,
    ) -> None:
        self.name = settings.name
        self._transport: Transport = transport or HttpTransport(settings)
        self._clock = clock
        self._alarms = Alarms(settings.call.total_seconds())
        self._means = Means(
            transport=self._transport,
            settings=settings,
            dialect=dialect,
            observer=observer,
            ids=count(1),
            alarms=self._alarms,
        )

    def session(self, notice: Notice) -> HttpSession:
        """A new session; see Upstream."""
        return HttpSession(self._means, notice=notice, clock=self._clock)

    async def close(self) -> None:
        """Let go of every connection; what still waits for an answer fails."""
        await self._transport.close()
        self._alarms.close()
