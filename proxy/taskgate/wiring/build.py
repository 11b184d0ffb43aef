"""The objects of a gateway, created from its configuration: `build_runtime` returns a `Runtime`.

`Service` calls it once, and then opens and closes the parts; nothing is open here yet. A reload
creates no new runtime, but changes parts of it. `core` creates what both eras share, this module
the rest of the gateway. Clock, entropy, store and transports can be passed in by an `Environment`,
so that a simulation runs the same gateway.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.admission.coalescing import RequestCoalescer
from taskgate.admission.lookup_guard import PenaltyBox
from taskgate.admission.lookups import Lookups, ResultReader
from taskgate.admission.memory_pressure import MemoryPressure, memory_limit, resident
from taskgate.admission.polls import PollLimiter
from taskgate.admission.quota import QuotaSubjects
from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock, Entropy, SharedClock, SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.settings import admission_rules
from taskgate.gateway.extension_requests import ExtensionRequests
from taskgate.gateway.legacy import InSessionMessages, LegacyServices
from taskgate.gateway.listen import GetStreams
from taskgate.gateway.modern.calls import Calls, HoldTimes
from taskgate.gateway.modern.requests import ModernRequests
from taskgate.gateway.modern.session_pool import SessionPool
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.gateway.modern.task_requests import TaskRequests
from taskgate.gateway.notes import ClientNotifications
from taskgate.gateway.outbound_calls import CallSender
from taskgate.gateway.pipeline import Gateway, GatewayRules
from taskgate.gateway.relay import PlainCallProxy
from taskgate.gateway.resuming import Resuming
from taskgate.gateway.session_messages import SessionMessageHandler
from taskgate.gateway.sweeper import HostWaits, Sweeper
from taskgate.lifecycle.following import ResultWaiter
from taskgate.lifecycle.offers import InputDelivery
from taskgate.lifecycle.retrievals import Unfetched
from taskgate.lifecycle.runner import Runner
from taskgate.listener.listener import PublicListener
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import Store
from taskgate.stores.open import open_shared, open_store
from taskgate.stores.shared import SharedBackend
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.telemetry.tracing import NO_TRACING
from taskgate.upstream.base import Upstream
from taskgate.upstream.http import HttpUpstream, UpstreamObserver, UpstreamSettings
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.transport_choice import choose_transport
from taskgate.wiring.authentication import build_penalties, metadata_documents
from taskgate.wiring.core import Cluster, Core, Dependencies, build_core
from taskgate.wiring.mounting import MakeUpstream, UpstreamRegistry
from taskgate.wiring.observation import TelemetryPipeline
from taskgate.wiring.reloadable_authenticator import ReloadableAuthenticator, SealedStates


def upstream_maker(nurse: Nurse, entropy: Entropy) -> MakeUpstream:
    """Return the factory of upstreams. `nurse` starts server programs."""

    def made(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
        extensions = settings.extensions
        legacy, modern = LegacyUpstream(__version__, extensions), ModernUpstream(__version__, extensions)
        transport = choose_transport(settings, observer, nurse)
        return HttpUpstream(
            settings, dialect=legacy, modern=modern, observer=observer, clock=clock, entropy=entropy, way=transport
        )

    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The parts that the creator of a gateway may supply in place of the usual ones.

    A supplied store is closed with the gateway. Without `store` and `make_upstream`, those of the
    configuration are used.
    """

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    store: Store | SharedBackend | None = None
    make_upstream: MakeUpstream | None = None
    pressure: MemoryPressure = field(default_factory=lambda: MemoryPressure(limit=memory_limit(), resident=resident))


class Kept(NamedTuple):
    """The open store of a gateway.

    `shared` is what the store offers to replicas that share it; None if it is not shared. `clock`
    is the clock for the times in records: that of a shared store.
    """

    store: Store
    shared: SharedBackend | None
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The parts of one gateway that are opened, closed, drained or reloaded.

    - `live` has the rules of the present configuration.
    - `nurse` starts server programs; `mounting` has the servers and their mounts.
    - `cluster` is the connection to other replicas, `callers` the present authenticator.
    - `sessions` are those of legacy hosts, `lines` the upstream sessions of modern hosts.
    - `listening` serves GET streams, `relaying` plain calls of legacy hosts, `calls` modern ones.
    - `following` waits for results of tasks, `offers` delivers questions of tasks to hosts.
    - `joining` answers equal calls with one. `unfetched` are results not fetched during a drain.
    """

    live: RuntimeConfig
    nurse: Nurse
    cluster: Cluster
    callers: ReloadableAuthenticator
    penalties: PenaltyBox | None
    mounting: UpstreamRegistry
    sessions: HostSessions
    lines: SessionPool
    lookups: Lookups
    polls: PollLimiter
    unfetched: Unfetched
    runner: Runner
    sweeper: Sweeper
    listening: GetStreams
    offers: InputDelivery
    relaying: PlainCallProxy
    following: ResultWaiter
    joining: RequestCoalescer
    calls: Calls
    subscriptions: Subscriptions
    gateway: Gateway


async def open_configured_store(
    config: GatewayConfig, data_directory: Path | None, clock: SharedClock
) -> Store | SharedBackend:
    """Open the configured store. A shared one sets `clock`. Raises StoreUnavailable."""
    if config.store.backend == "memory":
        return await open_store("memory", None)
    if config.store.backend == "redis":
        return await open_shared(config.store.redis.to_options(), clock)
    return await open_store("sqlite", config.store.sqlite.to_options(data_directory))


def build_listener(
    config: GatewayConfig, runtime: Runtime, port: int, telemetry: TelemetryPipeline, environment: Environment
) -> PublicListener:
    """Create the public listener, which is bound to `port`."""
    return PublicListener(
        config.server.to_settings(port),
        answer=runtime.gateway.answer,
        documents=metadata_documents(config, port),
        paths=runtime.mounting.mounts.paths,
        event_sink=telemetry.event_sink,
        trail=telemetry.trail,
        clock=environment.clock,
        entropy=environment.entropy,
    )


async def build_runtime(
    config: GatewayConfig,
    kept: Kept,
    callers: ReloadableAuthenticator,
    telemetry: TelemetryPipeline,
    environment: Environment,
    port: int,
) -> Runtime:
    """Create all parts, not yet open. `port` is the public listener's. Raises TlsFileRefused.

    The mounts take effect last (`switch`), because that opens the upstreams and cannot fail.
    """
    (store, shared, clock), event_sink, rules = kept, telemetry.event_sink, admission_rules(config)
    live, nurse = RuntimeConfig(rules), Nurse()
    make = environment.make_upstream or upstream_maker(nurse, environment.entropy)
    standings = QuotaSubjects(live)
    mounting = UpstreamRegistry(
        live=live,
        standings=standings,
        make=make,
        tracing=telemetry.tracing,
        event_sink=event_sink,
        clock=clock,
        port=port,
    )
    prepared = await mounting.prepare(config, rules)
    penalties = build_penalties(config)
    in_flight = BytesInFlight(lambda: live.current.in_flight)
    outcomes = ResultReader(store=store, clock=clock, in_flight=in_flight, pressure=environment.pressure)
    mounts, entropy = mounting.mounts, environment.entropy
    # In the order of its fields.
    base = Dependencies(
        config, live, standings, store, shared, callers, penalties, mounts, event_sink, clock, entropy, outcomes
    )
    core = build_core(base)
    sender = CallSender(coalescer=core.admission.joining, event_sink=event_sink)
    in_session, relaying, listening, following = _build_in_session(base, core, sender)
    lines = SessionPool(clock=clock, idle=config.server.session_idle, denied=core.denied)
    modern = _build_modern(base, core, lines, sender)
    mounting.switch(prepared)
    sweeper = _build_sweeper(base, core, HostWaits(core.sessions, lines, modern.calls))
    gateway = Gateway(
        mounts=mounting.mounts.by_path,
        callers=callers,
        gate=core.admission.gate,
        rules=_gateway_rules(config, live, in_flight, environment.pressure),
        in_session=in_session,
        modern=modern,
        event_sink=event_sink,
        clock=clock,
    )
    if telemetry.tracing is not NO_TRACING:
        gateway.trace(telemetry.tracing)
    return Runtime(
        live=live,
        nurse=nurse,
        cluster=core.cluster,
        callers=callers,
        penalties=base.penalties,
        mounting=mounting,
        sessions=core.sessions,
        lines=lines,
        lookups=core.lookups,
        polls=core.admission.polls,
        unfetched=core.changes.retrievals.unfetched,
        runner=core.runner,
        sweeper=sweeper,
        listening=listening,
        offers=core.offers,
        relaying=relaying,
        following=following,
        joining=core.admission.joining,
        calls=modern.calls,
        subscriptions=modern.subscriptions,
        gateway=gateway,
    )


def _gateway_rules(
    config: GatewayConfig, live: RuntimeConfig, in_flight: BytesInFlight, pressure: MemoryPressure
) -> GatewayRules:
    return GatewayRules(
        max_depth=config.server.max_json_depth,
        max_members=config.server.max_json_members,
        strict_names=config.server.require_task_name,
        live=live,
        in_flight=in_flight,
        pressure=pressure,
    )


def _build_sweeper(base: Dependencies, core: Core, waiting: HostWaits) -> Sweeper:
    return Sweeper(
        store=base.store,
        runner=core.runner,
        waiting=waiting,
        mounts=base.mounts.by_name,
        event_sink=base.event_sink,
        clock=base.clock,
        interval=base.config.store.purge_interval,
        leasing=core.cluster.leasing,
    )


def _build_in_session(
    base: Dependencies, core: Core, sender: CallSender
) -> tuple[InSessionMessages, PlainCallProxy, GetStreams, ResultWaiter]:
    dialect, admission, clock = core.dialect, core.admission, base.clock
    following = ResultWaiter(
        store=base.store,
        changes=core.changes,
        lookups=core.lookups,
        access=core.access,
        streams=core.streams,
        offers=core.offers,
        dialect=dialect,
        clock=clock,
    )
    relaying = PlainCallProxy(
        dialect=dialect,
        patience=base.config.server.sse_keepalive,
        sender=sender,
    )
    bus = core.cluster.bus
    if bus is not None:
        session_messages = SessionMessageHandler(
            sessions=core.sessions, relaying=relaying, runner=core.runner, dialect=dialect
        )
        # From here on the bus keeps it and calls it.
        session_messages.hear(bus)
    listening = GetStreams(news=core.news, offers=core.offers, clock=clock)
    services = LegacyServices(
        sessions=core.sessions,
        gate=admission.gate,
        streams=admission.streams,
        access=core.access,
        lookups=core.lookups,
        tasks=core.tasks,
        following=following,
        notes=ClientNotifications(
            following=following,
            relaying=relaying,
            runner=core.runner,
            dialect=dialect,
            bus=bus,
        ),
        relaying=relaying,
        extensions=ExtensionRequests(streams=admission.streams, clock=base.clock),
        denied=core.denied,
        resuming=Resuming(listening=listening, following=following, shared=core.cluster.shared_resumable),
    )
    return (
        InSessionMessages(services=services, dialect=dialect, event_sink=base.event_sink),
        relaying,
        listening,
        following,
    )


def _build_modern(base: Dependencies, core: Core, lines: SessionPool, sender: CallSender) -> ModernRequests:
    store, lookups, access, clock = base.store, core.lookups, core.access, base.clock
    dialect, polls = ModernDownstream(__version__, base.mounts.is_server_named), core.admission.polls
    calls = Calls(
        dialect=dialect,
        tasks=core.tasks,
        states=SealedStates(base.callers),
        waits=HoldTimes(base.live, base.config.server.sse_keepalive),
        sender=sender,
        event_sink=base.event_sink,
        clock=clock,
        entropy=base.entropy,
    )
    if core.cluster.bus is not None:
        calls.correspond(core.cluster.bus, base.entropy)
    tasks = TaskRequests(
        dialect=dialect,
        tasks=core.tasks,
        lookups=lookups,
        changes=core.changes,
        runner=core.runner,
    )
    return ModernRequests(
        dialect=dialect,
        gate=core.admission.gate,
        streams=core.admission.streams,
        access=access,
        lines=lines,
        calls=calls,
        runner=core.runner,
        tasks=tasks,
        extensions=ExtensionRequests(streams=core.admission.streams, clock=clock),
        denied=core.denied,
        subscriptions=Subscriptions(
            dialect=dialect,
            store=store,
            lookups=lookups,
            access=access,
            polls=polls,
            changes=core.changes,
            clock=clock,
        ),
    )
