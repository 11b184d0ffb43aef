"""One configured server: `HttpUpstream`, the `Upstream` for every transport and era.

It connects the parts: transport (`transport_choice`), circuit breaker, credentials, health checks,
and the sessions of both eras. Despite its name it is used for stdio too. `wiring.build` creates it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from logging import getLogger

from taskgate.clock import Clock, Entropy
from taskgate.domain.breaker import CircuitState
from taskgate.domain.versions import Era, Peer
from taskgate.protocol.dialects import LegacyUpstreamDialect, ModernUpstreamDialect
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.attributed import AttributedTransport
from taskgate.upstream.base import Transport, UpstreamSession, Vitals
from taskgate.upstream.call_listener import SessionCallListener
from taskgate.upstream.calls import Running, UpstreamContext, first_id
from taskgate.upstream.credentials.speaking import Credentials, SpeakingTransport
from taskgate.upstream.era import EraFinder
from taskgate.upstream.guarded import GuardedTransport
from taskgate.upstream.health import DEAF, GATEWAY, QUIET, Checks, HealthProbe, ProbeResult
from taskgate.upstream.last_welcomes import LastWelcomes, Welcome, key_of, knows_callers
from taskgate.upstream.lasting import Lasting
from taskgate.upstream.legacy.adopting import Adoptions
from taskgate.upstream.legacy.session import HttpSession
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.session import ModernSession
from taskgate.upstream.patience import Patience
from taskgate.upstream.principal import PrincipalSource
from taskgate.upstream.session_of_any_era import EraSession, Makers
from taskgate.upstream.settings import (
    GrantKind,
    GrantSettings,
    HealthSettings,
    IdentityHeaders,
    TransportKind,
    UpstreamObserver,
    UpstreamSettings,
)
from taskgate.upstream.transport_choice import TransportChoice
from taskgate.upstream.wire.transport import HttpTransport

__all__ = ["HttpTransport", "HttpUpstream", "UpstreamObserver", "UpstreamSettings"]

log = getLogger("taskgate.upstream")


class HttpUpstream:
    """An `Upstream` made from its settings. `way` is its transport, None for Streamable HTTP.

    `dialect` encodes messages for the legacy era, `modern` for the modern era. Raises
    TlsFileRefused.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        dialect: LegacyUpstreamDialect,
        modern: ModernUpstreamDialect,
        observer: UpstreamObserver,
        clock: Clock,
        entropy: Entropy,
        way: TransportChoice | None = None,
    ) -> None:
        self.name = settings.name
        self._way = way or TransportChoice(HttpTransport(settings, observer.retried))
        self._guard = _guard(self._way.transport, settings, observer, clock)
        self._transport: Transport = self._guard or self._way.transport
        self._clock = clock
        shows = settings.credentials is not None or settings.identity != IdentityHeaders()
        self._credentials = Credentials(settings, observer=observer, clock=clock) if shows else None
        self._alarms = TimerWheel(settings.call.total_seconds())
        self._upstream_context = UpstreamContext(
            transport=self._transport,
            settings=settings,
            dialect=dialect,
            observer=observer,
            ids=count(first_id(entropy)),
            alarms=self._alarms,
            patience=Patience(settings),
            # The state of programs and SSE streams ends with the process that has the connection.
            outlives=settings.transport is TransportKind.HTTP,
        )
        self._modern = modern
        self._adoptions = Adoptions()
        self._era = settings.era
        self._finder = EraFinder(modern)
        self._was_left = False
        self._welcomes = LastWelcomes()
        self._checks = self._checked(settings.health)
        if settings.tls.insecure_skip_verify:
            log.warning(
                "the certificate of a server is not verified: tls.insecure_skip_verify is set",
                extra={"upstream": settings.name},
            )

    def open(self) -> None:
        """Report that the upstream is served, and start health checks."""
        self._upstream_context.observer.begun()
        if self._checks is not None:
            self._checks.begin()

    def vitals(self) -> Vitals:
        up = self._way.up() if self._checks is None else self._checks.up
        return Vitals(up, CircuitState.CLOSED.value if self._guard is None else self._guard.state)

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        upstream_context, transport = self._upstream_context, self._spoken(self._transport, principal_source)
        if transport is not self._transport:
            upstream_context = replace(upstream_context, transport=transport)
        return self._session(upstream_context, self._finder, listener, host, principal_source)

    def _spoken(self, transport: Transport, principal_source: PrincipalSource) -> Transport:
        """Return the transport of one session, which knows the principal where that matters."""
        if self._way.asks_whose:
            transport = AttributedTransport(transport, principal_source)
        if self._credentials is not None:
            transport = SpeakingTransport(transport, self._credentials, principal_source)
        return transport

    def _session(
        self,
        upstream_context: UpstreamContext,
        finder: EraFinder,
        listener: SessionCallListener,
        host: Peer | None,
        principal_source: PrincipalSource,
    ) -> UpstreamSession:
        clock, lasting = self._clock, Lasting()
        welcome = Welcome(
            self._welcomes, partial(self._key, host, principal_source), heard=listener.met, is_down=self._is_down
        )

        def legacy(unwelcome: Callable[[], None]) -> HttpSession:
            return HttpSession(
                upstream_context,
                listener=listener,
                host=host,
                clock=clock,
                lasting=lasting,
                welcome=welcome,
                unwelcome=unwelcome,
                adoptions=self._adoptions,
            )

        def modern(era_lost: Callable[[], None]) -> ModernSession:
            return ModernSession(
                ModernUpstreamContext(
                    transport=upstream_context.transport,
                    settings=upstream_context.settings,
                    dialect=self._modern,
                    observer=upstream_context.observer,
                    ids=upstream_context.ids,
                    alarms=upstream_context.alarms,
                    patience=upstream_context.patience,
                    running=upstream_context.running,
                    outlives=upstream_context.outlives,
                    era_lost=era_lost,
                ),
                listener=listener,
                host=host,
                clock=clock,
                lasting=lasting,
                welcome=welcome,
            )

        match self._era:
            case None:
                makers = Makers(legacy=legacy, modern=modern)
                return EraSession(finder, upstream_context=upstream_context, makers=makers, welcome=welcome)
            case Era.LEGACY:
                return legacy(_stays)
            case Era.MODERN:
                return modern(_stays)

    def _is_down(self) -> bool:
        """Whether the server is known to be down, by its checks or because it failed the last
        request."""
        return self.vitals().up is False or (self._guard is not None and self._guard.failing)

    def _key(self, host: Peer | None, principal_source: PrincipalSource) -> bytes:
        """Return the key of the server's last welcome: what it is told in either era, and by whom
        if it may know."""
        declared = self._upstream_context.dialect.handshake(0, host), self._modern.discover(0, host).message
        caller = principal_source().context if knows_callers(self._upstream_context.settings) else None
        return key_of(*declared, caller=caller)

    def _checked(self, health: HealthSettings | None) -> Checks | None:
        settings = self._upstream_context.settings
        if health is None or _needs_somebody(settings):
            return None
        sentinel = HealthProbe(self._way.transport)
        transport = self._spoken(sentinel, lambda: GATEWAY)
        upstream_context = replace(self._upstream_context, transport=transport, observer=QUIET, running=Running())
        # Checks find the era for themselves alone: they have no host, and time out sooner.
        new_session = partial(self._session, upstream_context, EraFinder(self._modern), DEAF, None, lambda: GATEWAY)
        return Checks(health, self.name, sentinel=sentinel, new_session=new_session, found=self._find)

    def _find(self, finding: ProbeResult) -> None:
        """Adjust the circuit to a check: one that marks the server up closes it, one that marks it
        down opens it.

        Silence does not open it while a call runs: a server that does one thing at a time is only
        slow.
        """
        assert self._checks is not None, "health checks are on"
        up, guard = self._checks.up, self._guard
        self._upstream_context.observer.health(finding.good, up)
        if guard is None:
            return
        if finding.good and up:
            self._was_left = False
            guard.mend()
        elif (
            not finding.good
            and up is False
            and not (self._was_left or (finding.silent and self._upstream_context.running.count))
        ):
            self._was_left = True
            guard.trip()

    async def close(self) -> None:
        """Close every connection; requests that still wait for an answer fail."""
        if self._checks is not None:
            await self._checks.close()
        await self._transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()


def _guard(
    transport: Transport, settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock
) -> GuardedTransport | None:
    breaker = settings.breaker
    return None if breaker is None else GuardedTransport(transport, breaker, moved=observer.circuit, clock=clock)


def _needs_somebody(settings: UpstreamSettings) -> bool:
    """Whether the credentials for the server can only be made from a caller's token."""
    grant = settings.credentials
    return isinstance(grant, GrantSettings) and grant.kind is GrantKind.TOKEN_EXCHANGE


def _stays() -> None:
    """Do nothing: a configured era stays, whatever the server answers."""
