"""From a GatewayConfig to the objects it means: built here, opened and closed by `app`.

Names every implementation but the metrics, which `app` shares between both listeners. What a simulation must own
(clock, entropy, store, transports) can be handed in, so the same gateway runs in one. What must not live here: opening,
closing, rules of any floor.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.admission.joining import Joining
from taskgate.admission.lookups import Lookups
from taskgate.admission.memory_pressure import MemoryPressure, memory_limit, resident
from taskgate.admission.outcomes import Outcomes
from taskgate.admission.penalties import Penalties
from taskgate.admission.polls import Polls
from taskgate.admission.rules import Live
from taskgate.admission.standing import Standings
from taskgate.clock import Clock, Entropy, SharedClock, SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.parts import listener_settings, redis_options, sqlite_options
from taskgate.config.rules import rules_of
from taskgate.gateway.extension_requests import ExtensionRequests
from taskgate.gateway.hearsay import Hearsay
from taskgate.gateway.legacy import InSessionMessages, Rooms
from taskgate.gateway.listen import Listening
from taskgate.gateway.modern.calls import Calls, Waits
from taskgate.gateway.modern.lines import Lines
from taskgate.gateway.modern.requests import StatelessRequests
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.gateway.modern.task_requests import TaskRequests
from taskgate.gateway.notes import Notes
from taskgate.gateway.pipeline import Gateway, Rules
from taskgate.gateway.relay import Relaying
from taskgate.gateway.resuming import Resuming
from taskgate.gateway.sweeper import Sweeper, Waiting
from taskgate.lifecycle.following import Following
from taskgate.lifecycle.offers import Offers
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.unfetched import Unfetched
from taskgate.listener.listener import PublicListener
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.sessions.registry import HostSessions
from taskgate.sessions.traced import traced
from taskgate.stores.base import Store
from taskgate.stores.open import open_shared, open_store
from taskgate.stores.sharing import Shared
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.upstream.base import Upstream
from taskgate.upstream.http import HttpUpstream, UpstreamObserver, UpstreamSettings
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.ways import way_to
from taskgate.wiring.gate import Gate, SealedStates
from taskgate.wiring.gatehouse import build_penalties, metadata_documents
from taskgate.wiring.ground import Base, Company, Ground, build_ground
from taskgate.wiring.mounting import MakeUpstream, Mounting
from taskgate.wiring.observation import Observation


def upstream_maker(nurse: Nurse, entropy: Entropy) -> MakeUpstream:
    """What makes servers of either era, spoken to as their settings say; programs are started by `nurse`."""

    def made(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
        extensions = settings.extensions
        legacy, modern = LegacyUpstream(__version__, extensions), ModernUpstream(__version__, extensions)
        way = way_to(settings, observer, nurse)
        return HttpUpstream(
            settings, dialect=legacy, modern=modern, observer=observer, clock=clock, entropy=entropy, way=way
        )

    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the gateway does not make itself. A store that is handed in is closed together with the gateway.

    `make_upstream` None makes servers as they are configured.
    """

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    store: Store | Shared | None = None
    make_upstream: MakeUpstream | None = None
    pressure: MemoryPressure = field(default_factory=lambda: MemoryPressure(limit=memory_limit(), resident=resident))


class Kept(NamedTuple):
    """What is kept where: `store` may be that of `shared`, and then `clock` is its time."""

    store: Store
    shared: Shared | None
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The parts of one gateway that have a beginning and an end."""

    live: Live
    nurse: Nurse
    company: Company
    callers: Gate
    penalties: Penalties | None
    mounting: Mounting
    sessions: HostSessions
    lines: Lines
    lookups: Lookups
    polls: Polls
    unfetched: Unfetched
    runner: Runner
    sweeper: Sweeper
    listening: Listening
    offers: Offers
    relaying: Relaying
    following: Following
    joining: Joining
    calls: Calls
    subscriptions: Subscriptions
    gateway: Gateway


async def open_configured_store(
    config: GatewayConfig, data_directory: Path | None, clock: SharedClock
) -> Store | Shared:
    """The configured store, open; `clock` becomes that of one that is shared. Raises StoreUnavailable."""
    if config.store.backend == "memory":
        return await open_store("memory", None)
    if config.store.backend == "redis":
        return await open_shared(redis_options(config), clock)
    return await open_store("sqlite", sqlite_options(config, data_directory))


def build_listener(
    config: GatewayConfig, house: House, port: int, sight: Observation, around: Surroundings
) -> PublicListener:
    """The public listener of a house, that is bound to `port`."""
    return PublicListener(
        listener_settings(config, port),
        answer=house.gateway.answer,
        documents=metadata_documents(config, port),
        is_mount=house.mounting.mounts.serve,
        audit=sight.audit,
        trail=sight.trail,
        clock=around.clock,
        entropy=around.entropy,
    )


async def build_house(
    config: GatewayConfig, kept: Kept, callers: Gate, sight: Observation, around: Surroundings, port: int
) -> House:
    """Every part over what is `kept`, for `callers`; none has begun yet. `port` is the public listener's.

    Raises TlsFileRefused.
    """
    (store, shared, clock), audit, rules = kept, sight.audit, rules_of(config)
    live, nurse = Live(rules), Nurse()
    make = around.make_upstream or upstream_maker(nurse, around.entropy)
    standings = Standings(live)
    make = traced(make, sight.tracing)
    mounting = Mounting(live=live, standings=standings, make=make, audit=audit, clock=clock, port=port)
    prepared = await mounting.prepare(config, rules)
    penalties = build_penalties(config)
    in_flight = BytesInFlight(lambda: live.now.in_flight)
    outcomes = Outcomes(store=store, clock=clock, in_flight=in_flight, pressure=around.pressure)
    mounts, entropy = mounting.mounts, around.entropy
    base = Base(config, live, standings, store, shared, callers, penalties, mounts, audit, clock, entropy, outcomes)
    ground = build_ground(base)
    in_session, relaying, listening, following = _build_in_session(base, ground)
    lines = Lines(clock=clock, idle=config.server.session_idle, denied=ground.denied)
    stateless = _build_stateless(base, ground, lines)
    mounting.switch(prepared)
    sweeper = _build_sweeper(base, ground, Waiting(ground.sessions, lines, stateless.calls))
    gateway = Gateway(
        mounts=mounting.mounts.by_path,
        callers=callers,
        gate=ground.admission.gate,
        rules=_gateway_rules(config, live, in_flight, around.pressure),
        in_session=in_session,
        stateless=stateless,
        audit=audit,
        clock=clock,
    )
    gateway.trace(sight.tracing)
    return House(
        live=live,
        nurse=nurse,
        company=ground.company,
        callers=callers,
        penalties=base.penalties,
        mounting=mounting,
        sessions=ground.sessions,
        lines=lines,
        lookups=ground.lookups,
        polls=ground.admission.polls,
        unfetched=ground.changes.retrievals.unfetched,
        runner=ground.runner,
        sweeper=sweeper,
        listening=listening,
        offers=ground.offers,
        relaying=relaying,
        following=following,
        joining=ground.admission.joining,
        calls=stateless.calls,
        subscriptions=stateless.subscriptions,
        gateway=gateway,
    )


def _gateway_rules(config: GatewayConfig, live: Live, in_flight: BytesInFlight, pressure: MemoryPressure) -> Rules:
    return Rules(
        max_depth=config.server.max_json_depth,
        max_members=config.server.max_json_members,
        strict_names=config.server.require_task_name,
        live=live,
        in_flight=in_flight,
        pressure=pressure,
    )


def _build_sweeper(base: Base, ground: Ground, waiting: Waiting) -> Sweeper:
    return Sweeper(
        store=base.store,
        runner=ground.runner,
        waiting=waiting,
        mounts=base.mounts.by_name,
        audit=base.audit,
        clock=base.clock,
        interval=base.config.store.purge_interval,
        leasing=ground.company.leasing,
    )


def _build_in_session(base: Base, ground: Ground) -> tuple[InSessionMessages, Relaying, Listening, Following]:
    dialect, admission, clock = ground.dialect, ground.admission, base.clock
    following = Following(
        store=base.store,
        changes=ground.changes,
        lookups=ground.lookups,
        access=ground.access,
        streams=ground.streams,
        offers=ground.offers,
        dialect=dialect,
        clock=clock,
    )
    relaying = Relaying(
        dialect=dialect, patience=base.config.server.sse_keepalive, joining=admission.joining, audit=base.audit
    )
    correspondence = ground.company.correspondence
    if correspondence is not None:
        hearsay = Hearsay(sessions=ground.sessions, relaying=relaying, runner=ground.runner, dialect=dialect)
        hearsay.hear(correspondence)
    listening = Listening(news=ground.news, offers=ground.offers, clock=clock)
    rooms = Rooms(
        sessions=ground.sessions,
        gate=admission.gate,
        streams=admission.streams,
        access=ground.access,
        lookups=ground.lookups,
        tasks=ground.tasks,
        following=following,
        notes=Notes(
            following=following,
            relaying=relaying,
            runner=ground.runner,
            dialect=dialect,
            correspondence=correspondence,
        ),
        relaying=relaying,
        extensions=ExtensionRequests(streams=admission.streams, clock=base.clock),
        denied=ground.denied,
        resuming=Resuming(listening=listening, following=following, shared=ground.company.shared_trails),
    )
    return InSessionMessages(rooms=rooms, dialect=dialect, audit=base.audit), relaying, listening, following


def _build_stateless(base: Base, ground: Ground, lines: Lines) -> StatelessRequests:
    store, lookups, access, clock = base.store, ground.lookups, ground.access, base.clock
    dialect, polls = ModernDownstream(__version__, base.mounts.names_server), ground.admission.polls
    calls = Calls(
        dialect=dialect,
        tasks=ground.tasks,
        states=SealedStates(base.callers),
        waits=Waits(base.live, base.config.server.sse_keepalive),
        joining=ground.admission.joining,
        audit=base.audit,
        clock=clock,
        entropy=base.entropy,
    )
    if ground.company.correspondence is not None:
        calls.correspond(ground.company.correspondence, base.entropy)
    tasks = TaskRequests(
        dialect=dialect,
        tasks=ground.tasks,
        lookups=lookups,
        changes=ground.changes,
        runner=ground.runner,
    )
    return StatelessRequests(
        dialect=dialect,
        gate=ground.admission.gate,
        streams=ground.admission.streams,
        access=access,
        lines=lines,
        calls=calls,
        runner=ground.runner,
        tasks=tasks,
        extensions=ExtensionRequests(streams=ground.admission.streams, clock=clock),
        denied=ground.denied,
        subscriptions=Subscriptions(
            dialect=dialect,
            store=store,
            lookups=lookups,
            access=access,
            polls=polls,
            changes=ground.changes,
            clock=clock,
        ),
    )
