"""The objects of a gateway, created from its configuration: `build_runtime` returns a `Runtime`.

`build_runtime` reads from top to bottom: servers, replicas, limits, legacy sessions, tasks, calls,
the adapters of the eras, the pipeline. `Service` calls it once, and then opens and closes the
parts; nothing is open here yet. A reload creates no new runtime, but changes parts of it. Clock,
entropy, store and transports can be passed in by an `Environment`, so that a simulation runs the
same gateway.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.admission.access import AccessControl
from taskgate.admission.coalescing import RequestCoalescer
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.connected_hosts import ConnectedHosts
from taskgate.admission.lookup_guard import LookupGuard, PenaltyBox
from taskgate.admission.lookups import Lookups, ResultReader
from taskgate.admission.memory_pressure import MemoryPressure, memory_limit, resident
from taskgate.admission.polls import PollLimiter
from taskgate.admission.rates import FallbackRateStore, LocalRateCache, QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.security_alerts import SecurityLog
from taskgate.clock import Clock, Entropy, SharedClock, SystemClock, SystemEntropy
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.message_auth import LoggedSeals, new_replica_name, reads_encrypted
from taskgate.config import GatewayConfig
from taskgate.config.model import admission_rules
from taskgate.gateway.calls import Calls
from taskgate.gateway.extensions import DeniedExtensions, ExtensionRequests
from taskgate.gateway.get_streams import GetRequests, GetStreams
from taskgate.gateway.legacy import LegacyAdapter
from taskgate.gateway.listeners import ResponseWaiter
from taskgate.gateway.modern.adapter import ModernAdapter
from taskgate.gateway.modern.retries import HostRetries
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.gateway.pipeline import Gateway, GatewayRules
from taskgate.gateway.session_messages import ClientNotifications, SessionMessageHandler
from taskgate.gateway.sweeper import HostWaits, Sweeper
from taskgate.gateway.task_requests import HandleRequests, TaskRequests
from taskgate.lifecycle.checkpoints import CheckpointSeals
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.leases import LeaseRules, Leasing
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.retrievals import Retrievals, Unfetched
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.status_notifications import StatusNotifier
from taskgate.lifecycle.task_listener import TaskListeners
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.task_streams import RemoteNotifications, TaskStreams
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.sessions.host_session import SessionServices
from taskgate.sessions.registry import HostSessions
from taskgate.sessions.session_pool import SessionPool
from taskgate.stores.base import Store
from taskgate.stores.open import open_shared, open_store
from taskgate.stores.rates import MemoryRateStore
from taskgate.stores.references import ReferenceOf
from taskgate.stores.shared import SharedBackend
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_log import EventBudget
from taskgate.streams.handover import SharedResumableStreams
from taskgate.telemetry.events import EventSink
from taskgate.telemetry.tracing import NO_TRACING
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.wiring.authentication import ReloadableAuthenticator, build_penalties
from taskgate.wiring.measured_stores import MeasuredLeases, MeasuredRates
from taskgate.wiring.observability import TelemetryPipeline
from taskgate.wiring.upstreams import UpstreamRegistry, upstream_maker


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The parts that the creator of a gateway may supply in place of the usual ones.

    A supplied store is closed with the gateway. Without one, that of the configuration is used.
    """

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    store: Store | SharedBackend | None = None
    pressure: MemoryPressure = field(default_factory=lambda: MemoryPressure(limit=memory_limit(), resident=resident))


class Cluster(NamedTuple):
    """The connection to the other replicas; all but `holder` is None without a shared store.

    `holder` is the name of this process. `leasing` renews the leases of its tasks. `bus` carries
    messages, and `shared_resumable` has event streams that other replicas can continue.
    """

    holder: str
    leasing: Leasing | None = None
    bus: ClusterBus | None = None
    shared_resumable: SharedResumableStreams | None = None

    @property
    def processes(self) -> int:
        """The number of live processes a moment ago, including this one."""
        return 1 if self.leasing is None else self.leasing.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The parts of one gateway that are opened, closed, drained or reloaded.

    - `live` has the rules of the present configuration.
    - `supervisor` starts server programs; `upstreams` has the servers and their mounts.
    - `cluster` is the connection to other replicas, `callers` the present authenticator.
    - `sessions` are those of legacy hosts, `session_pool` the upstream sessions of modern hosts.
    - `get_streams` serves GET streams, `calls` the calls of hosts, `retries` the held ones.
    - `result_waiter` waits for results of tasks, `input_delivery` delivers questions of tasks to hosts.
    - `transitions` writes the changes that hosts and operators make to tasks.
    - `rate_limiter`, `quota_subjects` and `open_streams` know what callers use of their limits.
    - `coalescer` answers equal calls with one. `unfetched` are results not fetched during a drain.
    """

    live: RuntimeConfig
    supervisor: Supervisor
    cluster: Cluster
    callers: ReloadableAuthenticator
    penalties: PenaltyBox | None
    upstreams: UpstreamRegistry
    sessions: HostSessions
    session_pool: SessionPool
    lookups: Lookups
    poll_limiter: PollLimiter
    unfetched: Unfetched
    runner: Runner
    transitions: Transitions
    rate_limiter: RateLimiter
    quota_subjects: QuotaSubjects
    open_streams: OpenStreams
    sweeper: Sweeper
    get_streams: GetStreams
    input_delivery: InputDelivery
    result_waiter: ResultWaiter
    coalescer: RequestCoalescer
    calls: Calls
    retries: HostRetries
    subscriptions: Subscriptions
    gateway: Gateway


async def open_configured_store(
    config: GatewayConfig, data_directory: Path | None, clock: SharedClock, reference_of: ReferenceOf
) -> Store | SharedBackend:
    """Open the configured store. A shared one sets `clock`; `reference_of` is as in `open_store`.

    Raises StoreUnavailable.
    """
    if config.store.backend == "memory":
        return await open_store("memory", None, reference_of)
    if config.store.backend == "redis":
        return await open_shared(config.store.redis.to_options(), clock, reference_of)
    return await open_store("sqlite", config.store.sqlite.to_options(data_directory), reference_of)


async def build_runtime(
    config: GatewayConfig,
    *,
    store: Store,
    shared: SharedBackend | None,
    clock: Clock,
    callers: ReloadableAuthenticator,
    telemetry: TelemetryPipeline,
    environment: Environment,
    port: int,
    look: Callable[[], Awaitable[None]],
) -> Runtime:
    """Create all parts, not yet open. Raises TlsFileRefused.

    `look` reads changed files of the configuration; upstreams call it when credentials are refused.

    `shared` is what the store offers to replicas that share it; None if it is not shared. `clock`
    is the clock for the times in records: that of a shared store. `port` is the public listener's.
    The mounts take effect last (`switch`), because that opens the upstreams and cannot fail.
    """
    event_sink, entropy, pressure = telemetry.event_sink, environment.entropy, environment.pressure
    rules = admission_rules(config)
    live = RuntimeConfig(rules)

    # Servers.
    supervisor, quota_subjects = Supervisor(), QuotaSubjects(live)
    upstreams = UpstreamRegistry(
        live=live,
        quota_subjects=quota_subjects,
        make=upstream_maker(supervisor, entropy, look),
        tracing=telemetry.tracing,
        event_sink=event_sink,
        clock=clock,
        port=port,
    )
    prepared = await upstreams.prepare(config, rules)
    mounts = upstreams.mounts

    # Other replicas.
    cluster = build_cluster(config, shared=shared, callers=callers, event_sink=event_sink, clock=clock, entropy=entropy)
    holder, leasing, bus, shared_resumable = cluster

    # Limits of callers and of the process.
    rate_limiter = build_rate_limiter(
        live=live, quota_subjects=quota_subjects, shared=shared, cluster=cluster, event_sink=event_sink, clock=clock
    )
    access, penalties = AccessControl(live, event_sink), build_penalties(config)
    in_flight = BytesInFlight(lambda: live.current.in_flight, lambda: pressure.level > 0)
    open_streams = OpenStreams(live=live, event_sink=event_sink)
    poll_limiter = PollLimiter(
        live=live, utilization=mounts.utilization, event_sink=event_sink, clock=clock, entropy=entropy
    )
    coalescer = RequestCoalescer(store=store, event_sink=event_sink, clock=clock)
    hosts = ConnectedHosts(bus)
    denied = DeniedExtensions(event_sink)

    # Sessions of legacy hosts.
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    events = EventBudget(lambda: live.current.events)
    session_pool = SessionPool(clock=clock, idle=config.server.session_idle, report_host=denied.of_host)
    sessions = HostSessions(
        store=store,
        services=SessionServices(dialect, live, clock, entropy, events, bus, shared_resumable),
        entropy=entropy,
        idle=config.server.session_idle,
        event_sink=event_sink,
        pool=session_pool if config.server.sessions == "optional" else None,
    )

    # Tasks.
    transitions = Transitions(store=store, event_sink=event_sink, clock=clock, live=live)
    retrievals = Retrievals(transitions=transitions, event_sink=event_sink, clock=clock)
    remote_notifications = None
    if shared_resumable is not None:
        shared_resumable.connect(sessions.get)
        remote_notifications = RemoteNotifications(shared_resumable, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access, open=open_streams, remote=remote_notifications)
    input_delivery = InputDelivery(
        holder=holder, store=store, transitions=transitions, access=access, dialect=dialect, clock=clock
    )
    of_runs = transitions
    if leasing is not None:
        # Calls that run here change no task of another process.
        of_runs = Transitions(store=store, event_sink=event_sink, clock=clock, hold=leasing, live=live)
    runner = Runner(
        holder=holder,
        store=store,
        transitions=of_runs,
        retrievals=retrievals,
        sessions=sessions,
        listeners=TaskListeners(
            transitions=of_runs,
            streams=streams,
            dialect=dialect,
            live=live,
            checkpoints=CheckpointSeals(
                callers.checkpoints, entropy, encrypts=lambda: leasing is None or reads_encrypted(leasing.peers)
            ),
            # Whether records outlive this process, so that checkpoints in them are of use.
            outlives=shared is not None or config.store.backend != "memory",
        ),
        event_sink=event_sink,
        clock=clock,
        leasing=leasing,
    )
    status_notifier = StatusNotifier(
        store=store, streams=streams, offers=input_delivery, polls=poll_limiter, dialect=dialect, clock=clock
    )
    lookups = Lookups(
        store=store,
        results=ResultReader(store=store, clock=clock, in_flight=in_flight, pressure=pressure),
        access=access,
        cursors=callers.cursors,
        guard=LookupGuard(
            penalties=penalties, rates=rate_limiter, security_log=SecurityLog(clock), event_sink=event_sink, clock=clock
        ),
        polls=poll_limiter,
        clock=clock,
        held_questions=status_notifier,
    )
    tasks = TaskService(
        store=store,
        transitions=transitions,
        lookups=lookups,
        runner=runner,
        retrievals=retrievals,
        live=live,
        quota_subjects=quota_subjects,
        joining=coalescer,
        hosts=hosts,
        event_sink=event_sink,
        clock=clock,
        entropy=entropy,
        lease=None if leasing is None else leasing.rules.length,
    )

    # Calls and requests about tasks, of both eras.
    modern_dialect = ModernDownstream(__version__, mounts.is_server_named)
    event_limits = config.server.to_event_limits()
    waiter = ResponseWaiter(config.server.sse_keepalive, event_limits)
    result_waiter = ResultWaiter(
        store=store,
        retrievals=retrievals,
        lookups=lookups,
        streams=streams,
        offers=input_delivery,
        dialect=dialect,
        clock=clock,
        document_wait=waiter.document_wait,
    )
    handles = HandleRequests(
        modern=modern_dialect,
        results=result_waiter,
        retrievals=retrievals,
        offers=input_delivery,
        waiter=waiter,
        live=live,
        hosts=hosts,
        sessions=sessions,
        clock=clock,
        bus=bus,
    )
    calls = Calls(
        tasks=tasks,
        polls=poll_limiter,
        coalescer=coalescer,
        extensions=ExtensionRequests(streams=open_streams, clock=clock),
        live=live,
        event_sink=event_sink,
        clock=clock,
        waiter=waiter,
        handles=handles,
        hosts=hosts,
    )
    task_requests = TaskRequests(
        legacy=dialect,
        modern=modern_dialect,
        tasks=tasks,
        lookups=lookups,
        results=result_waiter,
        transitions=transitions,
        retrievals=retrievals,
        runner=runner,
        handles=handles,
    )

    # The legacy era.
    if bus is not None:
        # From here on the bus keeps it and calls it.
        SessionMessageHandler(sessions=sessions, calls=calls, runner=runner, dialect=dialect).subscribe(bus)
    get_streams = GetStreams(status_notifier=status_notifier, input_delivery=input_delivery, clock=clock)
    legacy = LegacyAdapter(
        sessions=sessions,
        gate=rate_limiter,
        streams=open_streams,
        access=access,
        calls=calls,
        task_requests=task_requests,
        results=result_waiter,
        notifications=ClientNotifications(
            input_delivery=input_delivery, calls=calls, runner=runner, handles=handles, dialect=dialect, bus=bus
        ),
        denied=denied,
        get_requests=GetRequests(get_streams=get_streams, results=result_waiter, shared=shared_resumable),
        dialect=dialect,
    )

    # The modern era.
    retries = HostRetries(
        dialect=modern_dialect,
        calls=calls,
        states=callers.states,
        live=live,
        clock=clock,
        entropy=entropy,
    )
    subscriptions = Subscriptions(
        dialect=modern_dialect,
        store=store,
        lookups=lookups,
        access=access,
        polls=poll_limiter,
        retrievals=retrievals,
        clock=clock,
    )
    modern = ModernAdapter(
        clock=clock,
        gate=rate_limiter,
        streams=open_streams,
        access=access,
        pool=session_pool,
        calls=calls,
        retries=retries,
        runner=runner,
        task_requests=task_requests,
        subscriptions=subscriptions,
        denied=denied,
        event_sink=event_sink,
        dialect=modern_dialect,
    )
    if bus is not None:
        modern.correspond(bus, entropy)

    # The pipeline, which both go through.
    upstreams.switch(prepared)
    gateway = Gateway(
        mounts=mounts.by_path,
        callers=callers,
        gate=rate_limiter,
        rules=GatewayRules(
            max_depth=config.server.max_json_depth,
            max_members=config.server.max_json_members,
            strict_names=config.server.require_task_name,
            live=live,
            access=access,
            in_flight=in_flight,
            pressure=pressure,
            event_limits=event_limits,
        ),
        legacy=legacy,
        modern=modern,
        task_requests=task_requests,
        event_sink=event_sink,
        clock=clock,
    )
    if telemetry.tracing is not NO_TRACING:
        gateway.trace(telemetry.tracing)
    sweeper = Sweeper(
        store=store,
        runner=runner,
        waiting=HostWaits(sessions, session_pool, retries),
        mounts=mounts.by_name,
        event_sink=event_sink,
        clock=clock,
        interval=config.store.purge_interval,
        leasing=leasing,
    )
    return Runtime(
        live=live,
        supervisor=supervisor,
        cluster=cluster,
        callers=callers,
        penalties=penalties,
        upstreams=upstreams,
        sessions=sessions,
        session_pool=session_pool,
        lookups=lookups,
        poll_limiter=poll_limiter,
        unfetched=retrievals.unfetched,
        runner=runner,
        transitions=transitions,
        rate_limiter=rate_limiter,
        quota_subjects=quota_subjects,
        open_streams=open_streams,
        sweeper=sweeper,
        get_streams=get_streams,
        input_delivery=input_delivery,
        result_waiter=result_waiter,
        coalescer=coalescer,
        calls=calls,
        retries=retries,
        subscriptions=subscriptions,
        gateway=gateway,
    )


def build_cluster(
    config: GatewayConfig,
    *,
    shared: SharedBackend | None,
    callers: ReloadableAuthenticator,
    event_sink: EventSink,
    clock: Clock,
    entropy: Entropy,
) -> Cluster:
    """Create the connection to the other replicas: a name alone, if the store is not shared."""
    holder = new_replica_name(entropy)
    if shared is None:
        return Cluster(holder)
    assert isinstance(clock, SharedClock), "a shared store needs a shared clock"
    leasing = Leasing(
        holder=holder,
        leases=MeasuredLeases(shared.leases, event_sink=event_sink, clock=clock),
        apart=shared.open_leases,
        rules=LeaseRules(config.store.lease.ttl, config.store.lease.heartbeat),
        clock=clock,
        event_sink=event_sink,
    )
    bus = ClusterBus(
        log=shared.bus,
        seals=LoggedSeals(callers.messages, clock.elapsed),
        holder=holder,
        entropy=entropy,
        now=clock.now,
        peers=lambda: leasing.peers,
    )
    return Cluster(holder, leasing, bus, SharedResumableStreams(log=shared.streams, bus=bus, clock=clock))


def build_rate_limiter(
    *,
    live: RuntimeConfig,
    quota_subjects: QuotaSubjects,
    shared: SharedBackend | None,
    cluster: Cluster,
    event_sink: EventSink,
    clock: Clock,
) -> RateLimiter:
    """Create the rate limits. Those of a shared store fall back to local ones when it fails."""
    if shared is None:
        return RateLimiter(
            live=live, subjects=quota_subjects, store=MemoryRateStore(), event_sink=event_sink, clock=clock
        )
    rates = FallbackRateStore(
        MeasuredRates(shared.rates, event_sink=event_sink, clock=clock),
        live=live,
        processes=lambda: cluster.processes,
        event_sink=event_sink,
        clock=clock,
    )
    return RateLimiter(
        live=live,
        subjects=quota_subjects,
        store=rates,
        event_sink=event_sink,
        clock=clock,
        local_cache=LocalRateCache(),
    )
