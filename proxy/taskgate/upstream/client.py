"""One configured server: `UpstreamClient`, the `Upstream` for every transport and era.

It connects the parts: transport (`choose_transport`), circuit breaker, credentials, health checks, and
the sessions of both eras. `wiring` creates one for each configured server. What sessions of one server
share is here; `session` makes a session.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from logging import getLogger
from typing import NamedTuple

from taskgate.clock import Clock, Entropy
from taskgate.domain.breaker import CircuitState
from taskgate.domain.versions import Era, Peer
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport, UpstreamSession, Vitals
from taskgate.upstream.calls import PrincipalSource, SessionCallListener
from taskgate.upstream.context import (
    EraReason,
    Lasting,
    ModernUpstreamContext,
    Patience,
    Running,
    UpstreamContext,
    request_ids,
    secrets_of,
)
from taskgate.upstream.credentials.speaking import Credentials, Look, look_nowhere
from taskgate.upstream.descriptions import LastWelcomes, Welcome, key_of, knows_callers
from taskgate.upstream.duplex.passive_health import PassiveHealth
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.era import EraFinder, preferred_era
from taskgate.upstream.health import DEAF, GATEWAY, QUIET, Checks, HealthProbe, ProbeResult, Reaches
from taskgate.upstream.legacy.resumption import AdoptedSessions
from taskgate.upstream.legacy.session import LegacySession
from taskgate.upstream.modern.session import ModernSession
from taskgate.upstream.session import CircuitGuard, Makers, ServerSession, SessionTransport, SessionUsage
from taskgate.upstream.settings import (
    GrantKind,
    GrantSettings,
    HealthSettings,
    IdentityHeaders,
    StdioSettings,
    TransportKind,
    UpstreamObserver,
    UpstreamSettings,
)
from taskgate.upstream.sse.channel import SseChannelProvider
from taskgate.upstream.stdio.pool import StdioChannels
from taskgate.upstream.stdio.starting import Program
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.wire.transport import HttpTransport


def _nobody_knows() -> bool | None:
    return None


def _no_programs() -> int | None:
    return None


class TransportChoice(NamedTuple):
    """The transport to one server. `asks_whose`: every request must name its principal.

    `up` returns whether the server is up, as far as the transport has noticed; None if unknown.
    `processes` returns the number of programs; None for a server that the gateway does not start.
    `reaches` tries to connect, without a request; None if there is nothing to connect to.
    """

    transport: Transport | ChannelTransport
    asks_whose: bool = False
    up: Callable[[], bool | None] = _nobody_knows
    processes: Callable[[], int | None] = _no_programs
    reaches: Reaches | None = None


def choose_transport(settings: UpstreamSettings, observer: UpstreamObserver, supervisor: Supervisor) -> TransportChoice:
    """Return the transport of these settings; `supervisor` starts programs. Raises TlsFileRefused."""
    if settings.stdio is not None:
        return _to_program(settings, settings.stdio, observer, supervisor)
    if settings.transport is TransportKind.SSE:
        provider = SseChannelProvider(settings, observer.retried)
        return TransportChoice(ChannelTransport(provider, is_modern=False), reaches=provider.reaches)
    return _over_http(settings, observer)


def _over_http(settings: UpstreamSettings, observer: UpstreamObserver) -> TransportChoice:
    transport = HttpTransport(settings, observer.retried)
    return TransportChoice(transport, reaches=transport.reaches)


def _to_program(
    settings: UpstreamSettings, stdio: StdioSettings, observer: UpstreamObserver, supervisor: Supervisor
) -> TransportChoice:
    program = Program(
        name=settings.name,
        settings=stdio,
        limit=settings.max_result,
        connect=settings.connect,
        restarted=lambda cause: observer.restarted(cause.value),
        running=observer.programs,
    )
    health = PassiveHealth(observer.sought)
    channels = StdioChannels(program, supervisor)
    transport = ChannelTransport(channels, health)
    return TransportChoice(transport, asks_whose=True, up=lambda: health.up, processes=lambda: channels.processes)


__all__ = ["HttpTransport", "UpstreamClient", "UpstreamObserver", "UpstreamSettings"]

log = getLogger("taskgate.upstream")


class UpstreamClient:
    """An `Upstream` made from its settings. `way` is its transport, None for Streamable HTTP.

    `look` looks for replaced secrets. `dialect` encodes messages for the legacy era, `modern` for the
    modern era. Raises TlsFileRefused.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        dialect: LegacyUpstream,
        modern: ModernUpstream,
        observer: UpstreamObserver,
        clock: Clock,
        entropy: Entropy,
        way: TransportChoice | None = None,
        look: Look = look_nowhere,
    ) -> None:
        self.name = settings.name
        self._way = way or _over_http(settings, observer)
        breaker, moved, reaches = settings.breaker, observer.circuit, self._way.reaches
        self._guard = None if breaker is None else CircuitGuard(breaker, moved=moved, clock=clock, reaches=reaches)
        self._clock = clock
        has_credentials = bool(settings.credentials or settings.headers or settings.identity != IdentityHeaders())
        self._credentials: Credentials | None = None
        if has_credentials:
            self._credentials = Credentials(settings, observer=observer, clock=clock, entropy=entropy, look=look)
        self._alarms = TimerWheel(settings.call.total_seconds())
        self._upstream_context = UpstreamContext(
            transport=SessionTransport(self._way.transport, self._guard, lambda: GATEWAY),
            settings=settings,
            dialect=dialect,
            observer=observer,
            ids=request_ids(entropy),
            alarms=self._alarms,
            patience=Patience(settings),
            # The state of programs and SSE streams ends with the process that has the connection.
            outlives=settings.transport is TransportKind.HTTP,
        )
        self._modern = modern
        self._adopted_sessions = AdoptedSessions()
        self._era = settings.era
        self._finder = EraFinder(modern)
        # Whether health checks have opened the circuit since they last found the server up. They do
        # so once; later it opens and closes by requests.
        self._was_tripped = False
        self._welcomes = LastWelcomes()
        self._checks = self._new_checks(settings.health)
        if settings.tls.insecure_skip_verify:
            log.warning(
                "the certificate of a server is not verified: tls.insecure_skip_verify is set",
                extra={"upstream": settings.name},
            )

    def open(self) -> None:
        """Report that the upstream is served, and start health checks."""
        self._upstream_context.observer.begun()
        if self._era is not None:
            settings = self._upstream_context.settings
            reason = EraReason.TRANSPORT if settings.revision is None else EraReason.CONFIGURED
            self._upstream_context.reception.decided(settings, (self._era,), reason, settings.revision)
        if self._checks is not None:
            self._checks.begin()

    def renew(self, settings: UpstreamSettings) -> None:
        """Use the secrets of these settings from the next request on, if its own are of that form."""
        mine, others = self._upstream_context.settings.without_secrets(), settings.without_secrets()
        if self._credentials is not None and (mine.credentials, mine.headers) == (others.credentials, others.headers):
            self._credentials.use(settings)
            self._upstream_context.reception.secrets = secrets_of(settings)

    def vitals(self) -> Vitals:
        up = self._way.up() if self._checks is None else self._checks.up
        guard, processes = self._guard, self._way.processes()
        if guard is None:
            return Vitals(up, CircuitState.CLOSED.value, processes)
        return Vitals(up, guard.state, processes, guard.reason)

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        return self.counted_session(SessionUsage(self.name), listener, principal_source, host)

    def counted_session(
        self,
        usage: SessionUsage,
        listener: SessionCallListener,
        principal_source: PrincipalSource,
        host: Peer | None = None,
    ) -> UpstreamSession:
        """Return a session as `session` does, whose calls `usage` counts and traces."""
        transport = SessionTransport(
            self._way.transport,
            self._guard,
            principal_source,
            asks_whose=self._way.asks_whose,
            credentials=self._credentials,
        )
        upstream_context = replace(self._upstream_context, transport=transport)
        return self._session(usage, upstream_context, self._finder, listener, host, principal_source)

    def _session(
        self,
        usage: SessionUsage,
        upstream_context: UpstreamContext,
        finder: EraFinder,
        listener: SessionCallListener,
        host: Peer | None,
        principal_source: PrincipalSource,
    ) -> UpstreamSession:
        """Return a session of the configured era, or one that finds the era first."""
        clock, lasting = self._clock, Lasting()
        welcome = Welcome(
            self._welcomes,
            partial(self._welcome_key, host, principal_source),
            era=preferred_era(host),
            heard=listener.met,
            is_down=partial(self._is_down, principal_source),
        )

        def legacy(unwelcome: Callable[[], None]) -> LegacySession:
            return LegacySession(
                upstream_context,
                listener=listener,
                host=host,
                clock=clock,
                lasting=lasting,
                welcome=welcome,
                unwelcome=unwelcome,
                adopted_sessions=self._adopted_sessions,
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

        return ServerSession(
            self._era,
            finder,
            host=host,
            upstream_context=upstream_context,
            makers=Makers(legacy=legacy, modern=modern),
            welcome=welcome,
            usage=usage,
        )

    def _is_down(self, principal_source: PrincipalSource) -> bool:
        """Whether the server is known to be down for a caller: by its checks, its circuit, or the last
        request. That of another caller counts only if it found no connection."""
        guard = self._guard
        return self.vitals().up is False or (guard is not None and guard.is_failing(principal_source().counted_as))

    def _welcome_key(self, host: Peer | None, principal_source: PrincipalSource, era: Era) -> bytes:
        """Return the key of the server's last welcome in an era, for such a session.

        It is made from what the server is told in either era, and from the caller if the server can
        tell callers apart.
        """
        declared = self._upstream_context.dialect.handshake(0, host), self._modern.discover(0, host).message
        caller = principal_source().context if knows_callers(self._upstream_context.settings) else None
        return key_of(era, *declared, caller=caller)

    def _new_checks(self, health: HealthSettings | None) -> Checks | None:
        """Return the health checks; None if none are configured.

        None too if credentials can only be made from a caller's token: checks have no caller.
        """
        settings = self._upstream_context.settings
        if health is None or _needs_caller_token(settings):
            return None
        sentinel = HealthProbe()
        transport = SessionTransport(
            self._way.transport,
            sentinel,
            lambda: GATEWAY,
            asks_whose=self._way.asks_whose,
            credentials=self._credentials,
            checks=True,
        )
        upstream_context = replace(self._upstream_context, transport=transport, observer=QUIET, running=Running())
        # Checks find the era for themselves alone: they have no host, and time out sooner.
        new_session = partial(
            self._session,
            SessionUsage(self.name),
            upstream_context,
            EraFinder(self._modern),
            DEAF,
            None,
            lambda: GATEWAY,
        )
        return Checks(health, self.name, sentinel=sentinel, new_session=new_session, found=self._act_on)

    def _act_on(self, result: ProbeResult) -> None:
        """Adjust the circuit to the result of a check. Called after every check with a result.

        A good check closes it while the server counts as up. A failed check opens it once, when the
        server counts as down. Silence does not open it while a call runs: a server that does one
        thing at a time is only slow.
        """
        assert self._checks is not None, "health checks are on"
        up, guard = self._checks.up, self._guard
        self._upstream_context.observer.health(result.good, up, result.cause)
        if guard is None:
            return
        if result.good and up:
            self._was_tripped = False
            guard.mend()
        elif (
            not result.good
            and up is False
            and not (self._was_tripped or (result.silent and self._upstream_context.running.count))
        ):
            self._was_tripped = True
            guard.trip(result.cause, is_unreachable=result.is_unreachable)

    async def close(self) -> None:
        """Close every connection; requests that still wait for an answer fail."""
        if self._checks is not None:
            await self._checks.close()
        if self._guard is not None:
            await self._guard.close()
        await self._way.transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()


def _needs_caller_token(settings: UpstreamSettings) -> bool:
    """Whether the credentials for the server can only be made from a caller's token."""
    grant = settings.credentials
    return isinstance(grant, GrantSettings) and grant.kind is GrantKind.TOKEN_EXCHANGE
