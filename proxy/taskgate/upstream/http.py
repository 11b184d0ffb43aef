"""A server that is spoken to over Streamable HTTP, with what it is made from: the door of this floor.

Puts the parts together; what each does is in its own module. Only the composition root comes here.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from logging import getLogger

from taskgate.alarms import Alarms
from taskgate.clock import Clock
from taskgate.dialects.base import UpstreamDialect
from taskgate.dialects.stateless_server import StatelessServerDialect
from taskgate.mcp.versions import Era, Peer, era_of
from taskgate.upstream.base import Hearer, Speaks, Transport, UpstreamSession
from taskgate.upstream.calls import Means
from taskgate.upstream.credentials.speaking import Credentials, SpeakingTransport
from taskgate.upstream.era import EraFinder
from taskgate.upstream.initialize.session import HttpSession
from taskgate.upstream.lasting import Lasting
from taskgate.upstream.patience import Patience
from taskgate.upstream.session_of_any_era import EraSession, Makers
from taskgate.upstream.settings import IdentityHeaders, UpstreamObserver, UpstreamSettings
from taskgate.upstream.stateless.means import StatelessMeans
from taskgate.upstream.stateless.session import StatelessSession
from taskgate.upstream.wire.transport import HttpTransport

__all__ = ["HttpTransport", "HttpUpstream", "UpstreamObserver", "UpstreamSettings"]

log = getLogger("taskgate.upstream")


class HttpUpstream:
    """One configured server; see Upstream. `transport` is for those who move bytes in another way.

    It is spoken to in `dialect` or in `modern`, by its era. Raises TlsFileRefused.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        dialect: UpstreamDialect,
        modern: StatelessServerDialect,
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
        self._modern = modern
        self._era = None if settings.revision is None else era_of(settings.revision)
        self._finder = EraFinder(modern)
        if settings.tls.insecure_skip_verify:
            log.warning("the certificate of a server is not verified", extra={"upstream": settings.name})

    def session(self, hearer: Hearer, speaks: Speaks, host: Peer | None = None) -> UpstreamSession:
        """A new session; see Upstream."""
        means, clock, modern, lasting = self._means, self._clock, self._modern, Lasting()
        if self._credentials is not None:
            means = replace(means, transport=SpeakingTransport(self._transport, self._credentials, speaks))

        def legacy(unwelcome: Callable[[], None]) -> HttpSession:
            return HttpSession(means, hearer=hearer, host=host, clock=clock, lasting=lasting, unwelcome=unwelcome)

        def stateless(era_lost: Callable[[], None]) -> StatelessSession:
            return StatelessSession(
                StatelessMeans(
                    transport=means.transport,
                    settings=means.settings,
                    dialect=modern,
                    observer=means.observer,
                    ids=means.ids,
                    alarms=means.alarms,
                    patience=means.patience,
                    era_lost=era_lost,
                ),
                hearer=hearer,
                host=host,
                clock=clock,
                lasting=lasting,
            )

        match self._era:
            case None:
                return EraSession(self._finder, means=means, makers=Makers(legacy=legacy, stateless=stateless))
            case Era.INITIALIZE:
                return legacy(_stays)
            case Era.STATELESS:
                return stateless(_stays)

    async def close(self) -> None:
        """Let go of every connection; what still waits for an answer fails."""
        await self._transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()


def _stays() -> None:
    """A configured era is kept to, whatever the server says."""
