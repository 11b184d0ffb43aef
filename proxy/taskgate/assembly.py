"""From a GatewayConfig to the objects it means: built here, opened and closed by `app`.

Names every implementation but the metrics, which `app` shares between both listeners. What a simulation must own
(clock, entropy, store, transports) can be handed in, so the same gateway runs in one. What must not live here: opening,
closing, rules of any floor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.clock import Clock, Entropy, SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.parts import listener_settings, question_bounds, sqlite_options, task_policy
from taskgate.config.servers import upstream_settings
from taskgate.dialects.legacy.downstream import LegacyDownstream
from taskgate.dialects.legacy.upstream import LegacyUpstream
from taskgate.dialects.modern.downstream import ModernDownstream
from taskgate.dialects.modern.upstream import ModernUpstream
from taskgate.downstream.listener import PublicListener
from taskgate.engine.changes import Changes
from taskgate.engine.gateway import Gateway, Rules
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.in_session import InSessionMessages, Rooms
from taskgate.engine.listen import Listening
from taskgate.engine.mounts import Mount
from taskgate.engine.notes import Notes
from taskgate.engine.relay import Relaying
from taskgate.engine.resuming import Resuming
from taskgate.engine.runner import Runner
from taskgate.engine.sessions import HostSessions, Ways
from taskgate.engine.stateless.calls import Calls, Waits
from taskgate.engine.stateless.lines import Lines
from taskgate.engine.stateless.requests import StatelessRequests
from taskgate.engine.stateless.subscriptions import Subscriptions
from taskgate.engine.stateless.task_requests import TaskRequests
from taskgate.engine.sweeper import Sweeper, Waiting
from taskgate.engine.task_service import TaskService
from taskgate.engine.telling.following import Following
from taskgate.engine.telling.hearing import Hearing
from taskgate.engine.telling.news import TaskNews
from taskgate.engine.telling.offers import Offers
from taskgate.engine.telling.task_streams import TaskStreams
from taskgate.gatehouse import Gatehouse, metadata_documents, metadata_url, resource_of
from taskgate.stores.base import Store
from taskgate.stores.open import open_store
from taskgate.tasks.policy import Policy
from taskgate.telemetry.audit import Audit, CredentialsGot, SessionLost, StreamEnded, StreamOpened, UpstreamAnswered
from taskgate.upstream.base import Upstream
from taskgate.upstream.http import HttpUpstream, UpstreamObserver, UpstreamSettings
from taskgate.upstream.wire.trust import TlsFileRefused

MakeUpstream = Callable[[UpstreamSettings, UpstreamObserver, Clock], Upstream]


def over_http(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
    """A server of either era that is spoken to over Streamable HTTP."""
    legacy, modern = LegacyUpstream(__version__), ModernUpstream(__version__)
    return HttpUpstream(settings, dialect=legacy, modern=modern, observer=observer, clock=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the gateway does not make itself. A store that is handed in is closed together with the gateway."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    store: Store | None = None
    make_upstream: MakeUpstream = over_http


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The parts of one gateway that have a beginning and an end."""

    mounts: Mapping[str, Mount]
    sessions: HostSessions
    lines: Lines
    runner: Runner
    sweeper: Sweeper
    listening: Listening
    offers: Offers
    relaying: Relaying
    calls: Calls
    subscriptions: Subscriptions
    gateway: Gateway


async def open_configured_store(config: GatewayConfig, data_directory: Path | None) -> Store:
    """The configured store, open. Raises StoreUnavailable."""
    if config.store.backend == "memory":
        return await open_store("memory", None)
    return await open_store("sqlite", sqlite_options(config, data_directory))


def build_listener(config: GatewayConfig, gateway: Gateway, port: int, audit: Audit, clock: Clock) -> PublicListener:
    """The public listener of a gateway that is bound to `port`."""
    return PublicListener(
        listener_settings(config, port),
        answer=gateway.answer,
        documents=metadata_documents(config, port),
        is_mount=frozenset(section.path for section in config.upstreams.values()).__contains__,
        audit=audit,
        clock=clock,
    )


def build_house(
    config: GatewayConfig, store: Store, gatehouse: Gatehouse, audit: Audit, around: Surroundings, port: int
) -> House:
    """Every part over `store`, behind `gatehouse`; none has begun yet. `port` is the public listener's."""
    clock, policy = around.clock, task_policy(config)
    mounts = {name: _mount(config, name, policy, audit, around, port) for name in config.upstreams}
    ground = _build_ground(config, store, gatehouse, audit, around)
    in_session, relaying, listening = _build_in_session(config, ground)
    lines = Lines(clock=clock, idle=config.server.session_idle)
    stateless = _build_stateless(config, ground, lines, gatehouse)
    sweeper = Sweeper(
        store=store,
        runner=ground.runner,
        waiting=Waiting(ground.sessions, lines, stateless.calls),
        mounts=mounts,
        audit=audit,
        clock=clock,
        interval=config.store.purge_interval,
    )
    gateway = Gateway(
        mounts={mount.path: mount for mount in mounts.values()},
        callers=gatehouse.callers,
        rules=Rules(max_depth=config.server.max_json_depth, strict_names=config.server.require_task_name),
        in_session=in_session,
        stateless=stateless,
        audit=audit,
        clock=clock,
    )
    return House(
        mounts=mounts,
        sessions=ground.sessions,
        lines=lines,
        runner=ground.runner,
        sweeper=sweeper,
        listening=listening,
        offers=ground.offers,
        relaying=relaying,
        calls=stateless.calls,
        subscriptions=stateless.subscriptions,
        gateway=gateway,
    )


class _Ground(NamedTuple):
    """What both eras stand on: the tasks, whoever asked for them, and the sessions of those who have any."""

    store: Store
    around: Surroundings
    audit: Audit
    dialect: LegacyDownstream
    access: Access
    policy: Policy
    sessions: HostSessions
    changes: Changes
    streams: TaskStreams
    offers: Offers
    runner: Runner
    news: TaskNews
    lookups: Lookups
    tasks: TaskService


def _build_ground(
    config: GatewayConfig, store: Store, gatehouse: Gatehouse, audit: Audit, around: Surroundings
) -> _Ground:
    clock, entropy, bounds = around.clock, around.entropy, question_bounds(config)
    holder, policy, access = entropy.token(8).hex(), task_policy(config), Access(gatehouse.policy, audit)
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    ways = Ways(dialect, bounds, clock, entropy)
    sessions = HostSessions(store=store, ways=ways, entropy=entropy, idle=config.server.session_idle)
    changes = Changes(store=store, audit=audit, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access)
    offers = Offers(holder=holder, changes=changes, dialect=dialect)
    hearing = Hearing(changes=changes, streams=streams, dialect=dialect, bounds=bounds)
    runner = Runner(holder=holder, store=store, sessions=sessions, hearing=hearing, audit=audit, clock=clock)
    news = TaskNews(store=store, streams=streams, offers=offers, dialect=dialect, clock=clock)
    lookups = Lookups(
        store=store,
        access=access,
        cursors=gatehouse.cursors,
        penalties=gatehouse.penalties,
        incidents=Incidents(clock),
        audit=audit,
        clock=clock,
        met=news.met,
    )
    tasks = TaskService(
        store=store, lookups=lookups, runner=runner, policy=policy, audit=audit, clock=clock, entropy=entropy
    )
    return _Ground(
        store, around, audit, dialect, access, policy, sessions, changes, streams, offers, runner, news, lookups, tasks
    )


def _build_in_session(config: GatewayConfig, ground: _Ground) -> tuple[InSessionMessages, Relaying, Listening]:
    dialect, clock = ground.dialect, ground.around.clock
    following = Following(
        store=ground.store,
        changes=ground.changes,
        lookups=ground.lookups,
        access=ground.access,
        streams=ground.streams,
        offers=ground.offers,
        dialect=dialect,
        clock=clock,
    )
    relaying = Relaying(dialect=dialect, patience=config.server.sse_keepalive)
    listening = Listening(news=ground.news, offers=ground.offers, clock=clock)
    rooms = Rooms(
        sessions=ground.sessions,
        access=ground.access,
        lookups=ground.lookups,
        tasks=ground.tasks,
        following=following,
        notes=Notes(following=following, relaying=relaying, runner=ground.runner, dialect=dialect),
        relaying=relaying,
        resuming=Resuming(listening=listening, following=following),
    )
    return InSessionMessages(rooms=rooms, dialect=dialect, audit=ground.audit), relaying, listening


def _build_stateless(config: GatewayConfig, ground: _Ground, lines: Lines, gatehouse: Gatehouse) -> StatelessRequests:
    store, lookups, clock, dialect = ground.store, ground.lookups, ground.around.clock, ModernDownstream(__version__)
    calls = Calls(
        dialect=dialect,
        tasks=ground.tasks,
        policy=ground.policy,
        states=gatehouse.states,
        waits=Waits(question_bounds(config), config.tasks.inline_grace, config.server.sse_keepalive),
        audit=ground.audit,
        clock=clock,
        entropy=ground.around.entropy,
    )
    tasks = TaskRequests(
        dialect=dialect,
        store=store,
        tasks=ground.tasks,
        lookups=lookups,
        changes=ground.changes,
        runner=ground.runner,
        clock=clock,
    )
    return StatelessRequests(
        dialect=dialect,
        access=ground.access,
        lines=lines,
        calls=calls,
        runner=ground.runner,
        tasks=tasks,
        subscriptions=Subscriptions(dialect=dialect, store=store, lookups=lookups, access=ground.access, clock=clock),
    )


def _mount(config: GatewayConfig, name: str, policy: Policy, audit: Audit, around: Surroundings, port: int) -> Mount:
    section = config.upstreams[name]
    resource = resource_of(config, port, section.path)
    return Mount(
        name=name,
        path=section.path,
        upstream=_upstream(config, name, audit, around),
        offers_tasks=policy.offers_tasks(name),
        support=partial(policy.support, name),
        resource=resource,
        metadata=metadata_url(config, resource),
        scopes=config.auth.protected_resource_metadata.scopes_supported,
    )


def _upstream(config: GatewayConfig, name: str, audit: Audit, around: Surroundings) -> Upstream:
    try:
        return around.make_upstream(upstream_settings(config, name), _observer(name, audit), around.clock)
    except TlsFileRefused as refused:
        raise TlsFileRefused(f"upstreams.{name}.{refused}") from None


def _observer(name: str, audit: Audit) -> UpstreamObserver:
    return UpstreamObserver(
        answered=lambda method, seconds, error: audit.record(UpstreamAnswered(name, method, seconds, error)),
        session_lost=lambda: audit.record(SessionLost(name)),
        stream_opened=lambda kind: audit.record(StreamOpened("upstream", kind)),
        stream_ended=lambda kind: audit.record(StreamEnded("upstream", kind)),
        credentials_got=lambda seconds, ok: audit.record(CredentialsGot(name, seconds, ok)),
    )
