"""A server that is spoken to over Streamable HTTP, with what it is made from: the door of this floor.

Puts the parts together; what each does is in its own module. Only the composition root comes here.
"""

from dataclasses import replace
from itertools import count
from logging import getLogger

from taskgate.alarms import Alarms
from taskgate.clock import Clock
from taskgate.dialects.base import UpstreamDialect
from taskgate.mcp.versions import Peer
from taskgate.upstream.base import Hearer, Speaks, Transport
from taskgate.upstream.calls import Means
from taskgate.upstream.credentials.speaking import Credentials, SpeakingTransport
from taskgate.upstream.patience import Patience
from taskgate.upstream.session import HttpSession
from taskgate.upstream.settings import IdentityHeaders, UpstreamObserver, UpstreamSettings
from taskgate.upstream.wire.transport import HttpTransport

__all__ = ["HttpTransport", "HttpUpstream", "UpstreamObserver", "UpstreamSettings"]

log = getLogger("taskgate.upstream")


class HttpUpstream:
    """One configured server; see Upstream. `transport` is for those who move bytes in another way.

    Raises TlsFileRefused.
    """

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
        shows = settings.credentials is not None or settings.identity != IdentityHeaders()
        self._credentials = Credentials(settings, observer=observer, clock=clock) if shows else None
        self._alarms = Alarms(settings.call.total_seconds())
        self._means = Means(
            transport=self._transport,
            settings=settings,
            dialect=dialect,
            observer=observer,
            ids=count(1),
            alarms=self._alarms,
            patience=Patience(settings),
        )
        if settings.tls.insecure_skip_verify:
            log.warning("the certificate of a server is not verified", extra={"upstream": settings.name})

    def session(self, hearer: Hearer, speaks: Speaks, host: Peer | None = None) -> HttpSession:
        """A new session; see Upstream."""
        means = self._means
        if self._credentials is not None:
            means = replace(means, transport=SpeakingTransport(self._transport, self._credentials, speaks))
        return HttpSession(means, hearer=hearer, host=host, clock=self._clock)

    async def close(self) -> None:
        """Let go of every connection; what still waits for an answer fails."""
        await self._transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()
