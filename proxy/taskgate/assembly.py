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
from taskgate.config.servers import upstream_settings
from taskgate.config.tls import TlsSection
from taskgate.dialects.base import DownstreamDialect
from taskgate.dialects.legacy.downstream import LegacyDownstream
from taskgate.dialects.legacy.upstream import LegacyUpstream
from taskgate.downstream.listener import ListenerSettings, PublicListener
from taskgate.downstream.names import allowed_hosts, allowed_origins
from taskgate.downstream.tls import TlsSettings
from taskgate.engine.changes import Changes
from taskgate.engine.gateway import Gateway, Rooms
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.inputs import Bounds
from taskgate.engine.listen import Listening
from taskgate.engine.mounts import Mount
from taskgate.engine.notes import Notes
from taskgate.engine.relay import Relaying
from taskgate.engine.resuming import Resuming
from taskgate.engine.runner import Runner
from taskgate.engine.sessions import HostSessions, Ways
from taskgate.engine.sweeper import Sweeper
from taskgate.engine.task_service import TaskService
from taskgate.engine.telling.following import Following
from taskgate.engine.telling.hearing import Hearing
from taskgate.engine.telling.news import TaskNews
from taskgate.engine.telling.offers import Offers
from taskgate.engine.telling.task_streams import TaskStreams
from taskgate.gatehouse import Gatehouse, metadata_documents, metadata_url, resource_of
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.tasks.policy import Mode, Policy, Rule
from taskgate.telemetry.audit import Audit, CredentialsGot, SessionLost, StreamEnded, StreamOpened, UpstreamAnswered
from taskgate.upstream.base import Upstream
from taskgate.upstream.http import HttpUpstream, UpstreamObserver, UpstreamSettings
from taskgate.upstream.wire.trust import TlsFileRefused

MakeUpstream = Callable[[UpstreamSettings, UpstreamObserver, Clock], Upstream]


def over_http(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
    """A server of the initialize era that is spoken to over Streamable HTTP."""
    return HttpUpstream(settings, dialect=LegacyUpstream(__version__), observer=observer, clock=clock)


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
    runner: Runner
    sweeper: Sweeper
    listening: Listening
    offers: Offers
    relaying: Relaying
    gateway: Gateway


async def open_configured_store(config: GatewayConfig, data_directory: Path | None) -> Store:
    """The configured store, open. Raises StoreUnavailable."""
    if config.store.backend == "memory":
        return await open_store("memory", None)
    section = config.store.sqlite
    assert section.path or data_directory, "a store in a file needs a place"
    options = SqliteOptions(
        path=section.path or (data_directory or Path()) / "taskgate.db",
        synchronous=section.synchronous,
        busy_timeout=section.busy_timeout,
        max_size=section.max_size,
    )
    return await open_store("sqlite", options)


def build_house(
    config: GatewayConfig, store: Store, gatehouse: Gatehouse, audit: Audit, around: Surroundings, port: int
) -> House:
    """Every part over `store`, behind `gatehouse`; none has begun yet. `port` is the public listener's."""
    clock, entropy = around.clock, around.entropy
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    policy, access = build_policy(config), Access(gatehouse.policy, audit)
    mounts = {name: _mount(config, name, policy, audit, around, port) for name in config.upstreams}
    calls = _build_calls(config, store, dialect, access, audit, around)
    sessions, runner = calls.sessions, calls.runner
    interval = config.store.purge_interval
    sweeper = Sweeper(
        store=store, runner=runner, sessions=sessions, mounts=mounts, audit=audit, clock=clock, interval=interval
    )
    news = TaskNews(store=store, streams=calls.streams, offers=calls.offers, dialect=dialect, clock=clock)
    listening = Listening(news=news, offers=calls.offers, clock=clock)
    lookups = _lookups(store, gatehouse, access, news, audit, clock)
    tasks = TaskService(
        store=store, lookups=lookups, runner=runner, policy=policy, audit=audit, clock=clock, entropy=entropy
    )
    following = Following(
        store=store,
        changes=calls.changes,
        lookups=lookups,
        access=access,
        streams=calls.streams,
        offers=calls.offers,
        dialect=dialect,
        clock=clock,
    )
    relaying = Relaying(dialect=dialect, patience=config.server.sse_keepalive)
    notes = Notes(following=following, relaying=relaying, runner=runner, dialect=dialect)
    gateway = Gateway(
        mounts={mount.path: mount for mount in mounts.values()},
        dialect=dialect,
        rooms=Rooms(
            sessions=sessions,
            access=access,
            lookups=lookups,
            tasks=tasks,
            following=following,
            notes=notes,
            relaying=relaying,
            resuming=Resuming(listening=listening, following=following),
        ),
        callers=gatehouse.callers,
        max_depth=config.server.max_json_depth,
        audit=audit,
        clock=clock,
    )
    return House(
        mounts=mounts,
        sessions=sessions,
        runner=runner,
        sweeper=sweeper,
        listening=listening,
        offers=calls.offers,
        relaying=relaying,
        gateway=gateway,
    )


def _lookups(store: Store, gatehouse: Gatehouse, access: Access, news: TaskNews, audit: Audit, clock: Clock) -> Lookups:
    return Lookups(
        store=store,
        access=access,
        cursors=gatehouse.cursors,
        penalties=gatehouse.penalties,
        incidents=Incidents(clock),
        audit=audit,
        clock=clock,
        met=news.met,
    )


class _Calls(NamedTuple):
    """The parts that run the calls of tasks, and carry what is said and asked meanwhile."""

    sessions: HostSessions
    changes: Changes
    streams: TaskStreams
    offers: Offers
    runner: Runner


def _build_calls(
    config: GatewayConfig, store: Store, dialect: DownstreamDialect, access: Access, audit: Audit, around: Surroundings
) -> _Calls:
    clock, asking, holder = around.clock, config.tasks.input_required, around.entropy.token(8).hex()
    ways = Ways(dialect, Bounds(asking.max_wait, asking.max_outstanding), clock, around.entropy)
    sessions = HostSessions(store=store, ways=ways, entropy=around.entropy, idle=config.server.session_idle)
    changes = Changes(store=store, audit=audit, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access)
    offers = Offers(holder=holder, changes=changes, dialect=dialect)
    hearing = Hearing(changes=changes, streams=streams, dialect=dialect, bounds=ways.bounds)
    runner = Runner(holder=holder, store=store, sessions=sessions, hearing=hearing, audit=audit, clock=clock)
    return _Calls(sessions, changes, streams, offers, runner)


def build_listener(config: GatewayConfig, gateway: Gateway, port: int, audit: Audit, clock: Clock) -> PublicListener:
    """The public listener of a gateway that is bound to `port`."""
    server = config.server
    hosts = allowed_hosts(server.public_url, server.listen.host, port, server.allowed_hosts)
    settings = ListenerSettings(
        allowed_hosts=hosts,
        allowed_origins=allowed_origins(hosts, server.allowed_origins),
        max_body=server.max_body,
        max_header=server.max_header,
        read_timeout=server.read_timeout,
        idle_timeout=server.idle_timeout,
        sse_keepalive=server.sse_keepalive,
        trusted_proxies=server.trusted_proxies,
        tls=_tls(server.tls),
    )
    paths = frozenset(section.path for section in config.upstreams.values())
    return PublicListener(
        settings,
        answer=gateway.answer,
        documents=metadata_documents(config, port),
        is_mount=paths.__contains__,
        audit=audit,
        clock=clock,
    )


def build_policy(config: GatewayConfig) -> Policy:
    """The operator's rules for tasks."""
    tasks = config.tasks
    return Policy(
        rules=tuple(
            Rule(
                upstream=rule.upstream,
                tool=rule.tool,
                mode=Mode(rule.mode),
                immediate_response=rule.immediate_response,
            )
            for rule in tasks.upgrade
        ),
        ttl_default=tasks.ttl.default,
        ttl_min=tasks.ttl.min,
        ttl_max=config.longest_ttl,
        poll_interval=tasks.poll_interval.base,
        tasks_per_context=config.limits.concurrency.tasks_per_context,
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


def _tls(section: TlsSection) -> TlsSettings | None:
    """None where the listener speaks plain HTTP."""
    if section.cert_file is None or section.key_file is None:
        return None
    return TlsSettings(
        cert_file=section.cert_file,
        key_file=section.key_file,
        min_version=section.min_version,
        client_auth=section.client_auth,
        client_ca_file=section.client_ca_file,
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
