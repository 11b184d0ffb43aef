"""The objects that both eras share: `build_core` returns a `Core` with tasks, sessions and
admission.

`build` calls it once. It also creates the `Cluster`, which connects a process to the other replicas
of a shared store.
"""

from typing import NamedTuple

from taskgate import __version__
from taskgate.admission.access import AccessControl
from taskgate.admission.coalescing import RequestCoalescer
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.lookup_guard import LookupGuard, PenaltyBox
from taskgate.admission.lookups import Lookups, ResultReader
from taskgate.admission.mounts import Mounts
from taskgate.admission.polls import PollLimiter
from taskgate.admission.quota import QuotaSubjects
from taskgate.admission.rates import FallbackRateStore, LocalRateCache, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.security_alerts import SecurityLog
from taskgate.clock import Clock, Entropy, SharedClock
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.message_auth import LoggedSeals, new_replica_name
from taskgate.config import GatewayConfig
from taskgate.gateway.denied_extensions import DeniedExtensions
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import CheckpointSeals
from taskgate.lifecycle.hearing import TaskListeners
from taskgate.lifecycle.leasing import LeaseRules, Leasing
from taskgate.lifecycle.measured import MeasuredLeases, MeasuredRates
from taskgate.lifecycle.news import StatusNotifier
from taskgate.lifecycle.offers import InputDelivery
from taskgate.lifecycle.remote_notifications import RemoteNotifications
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.task_streams import TaskStreams
from taskgate.lifecycle.terms import TaskTerms
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.sessions.host_session import SessionServices
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import Store
from taskgate.stores.rates import MemoryRateStore
from taskgate.stores.shared import SharedBackend
from taskgate.streams.event_log import EventBudget
from taskgate.streams.handover import SharedResumableStreams
from taskgate.telemetry.events import EventSink
from taskgate.wiring.reloadable_authenticator import (
    ReloadableAuthenticator,
    SealedCheckpoints,
    SealedCursors,
    SealedMessages,
)


class Dependencies(NamedTuple):
    """The inputs of all builders.

    `shared` is what the store offers to replicas that share it; None if it is not shared. `clock`
    is that of a shared store. `standings` finds the tenants and the own limits of callers. `mounts`
    is filled later, by `UpstreamRegistry.switch`. `outcomes` reads results of tasks.
    """

    config: GatewayConfig
    live: RuntimeConfig
    standings: QuotaSubjects
    store: Store
    shared: SharedBackend | None
    callers: ReloadableAuthenticator
    penalties: PenaltyBox | None
    mounts: Mounts
    event_sink: EventSink
    clock: Clock
    entropy: Entropy
    outcomes: ResultReader


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


class Admission(NamedTuple):
    """The limits that both eras check before they serve a request.

    `gate` has the rate limits, `streams` the open streams, `polls` the polling of tasks. `joining`
    answers equal calls with one.
    """

    standings: QuotaSubjects
    gate: RateLimiter
    streams: OpenStreams
    polls: PollLimiter
    joining: RequestCoalescer


def _build_cluster(base: Dependencies) -> Cluster:
    shared, holder = base.shared, new_replica_name(base.entropy)
    if shared is None:
        return Cluster(holder)
    assert isinstance(base.clock, SharedClock), "a shared store needs a shared clock"
    lease = base.config.store.lease
    leasing = Leasing(
        holder=holder,
        leases=MeasuredLeases(shared.leases, event_sink=base.event_sink, clock=base.clock),
        apart=shared.open_leases,
        rules=LeaseRules(lease.ttl, lease.heartbeat),
        clock=base.clock,
        event_sink=base.event_sink,
    )
    bus = ClusterBus(
        log=shared.bus,
        seals=LoggedSeals(SealedMessages(base.callers), base.clock.elapsed),
        holder=holder,
        entropy=base.entropy,
        now=base.clock.now,
        has_peers=lambda: leasing.processes > 1,
    )
    shared_resumable = SharedResumableStreams(log=shared.streams, bus=bus, clock=base.clock)
    return Cluster(holder, leasing, bus, shared_resumable)


def _build_rate_limiter(base: Dependencies, standings: QuotaSubjects, cluster: Cluster) -> RateLimiter:
    live, event_sink, clock = base.live, base.event_sink, base.clock
    if base.shared is None:
        return RateLimiter(live=live, subjects=standings, store=MemoryRateStore(), event_sink=event_sink, clock=clock)
    shared_rates = MeasuredRates(base.shared.rates, event_sink=event_sink, clock=clock)
    rates = FallbackRateStore(
        shared_rates, live=live, processes=lambda: cluster.processes, event_sink=event_sink, clock=clock
    )
    return RateLimiter(
        live=live, subjects=standings, store=rates, event_sink=event_sink, clock=clock, local_cache=LocalRateCache()
    )


def _build_admission(base: Dependencies, cluster: Cluster) -> Admission:
    live, event_sink, clock, entropy = base.live, base.event_sink, base.clock, base.entropy
    standings = base.standings
    return Admission(
        standings=standings,
        gate=_build_rate_limiter(base, standings, cluster),
        streams=OpenStreams(live=live, event_sink=event_sink),
        polls=PollLimiter(
            live=live, utilization=base.mounts.utilization, event_sink=event_sink, clock=clock, entropy=entropy
        ),
        joining=RequestCoalescer(store=base.store, event_sink=event_sink, clock=clock),
    )


class Core(NamedTuple):
    """The objects that both eras share.

    - `dialect` encodes and decodes messages of legacy hosts, `access` has the operator's rules.
    - `sessions` are those of legacy hosts. `streams` finds a stream for a message about a task.
    - `changes` writes changes of tasks to the store, `runner` runs the calls of tasks.
    - `tasks` creates and cancels tasks, `lookups` finds them for callers.
    - `offers` delivers questions of tasks on streams. `news` sends status notifications on GET
      streams, and has `offers` deliver the questions that wait for one.
    - `denied` reports extensions that are not forwarded.
    """

    cluster: Cluster
    admission: Admission
    dialect: LegacyDownstream
    access: AccessControl
    sessions: HostSessions
    changes: Changes
    streams: TaskStreams
    offers: InputDelivery
    runner: Runner
    news: StatusNotifier
    lookups: Lookups
    tasks: TaskService
    denied: DeniedExtensions


def build_core(base: Dependencies) -> Core:
    """Create the shared objects, not yet open."""
    cluster = _build_cluster(base)
    admission, leasing = _build_admission(base, cluster), cluster.leasing
    config, live, store, event_sink = base.config, base.live, base.store, base.event_sink
    clock, entropy = base.clock, base.entropy
    holder, access = cluster.holder, AccessControl(live, event_sink)
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    events = EventBudget(lambda: live.current.events)
    services = SessionServices(dialect, live, clock, entropy, events, cluster.bus, cluster.shared_resumable)
    sessions = HostSessions(
        store=store, services=services, entropy=entropy, idle=config.server.session_idle, event_sink=event_sink
    )
    changes = Changes(store=store, event_sink=event_sink, clock=clock)
    remote_notifications = None
    if cluster.shared_resumable is not None:
        cluster.shared_resumable.connect(sessions.get)
        remote_notifications = RemoteNotifications(cluster.shared_resumable, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access, open=admission.streams, afar=remote_notifications)
    offers = InputDelivery(holder=holder, changes=changes, dialect=dialect)
    of_runs = changes if leasing is None else changes.of_runs(leasing)
    checkpoints = CheckpointSeals(SealedCheckpoints(base.callers))
    # Whether records outlive this process, so that checkpoints in them are of use.
    outlives = base.shared is not None or config.store.backend != "memory"
    hearing = TaskListeners(
        changes=of_runs, streams=streams, dialect=dialect, live=live, checkpoints=checkpoints, outlives=outlives
    )
    runner = Runner(
        holder=holder,
        store=store,
        sessions=sessions,
        hearing=hearing,
        event_sink=event_sink,
        clock=clock,
        leasing=leasing,
    )
    news = StatusNotifier(
        store=store, streams=streams, offers=offers, polls=admission.polls, dialect=dialect, clock=clock
    )
    lookups = Lookups(
        store=store,
        results=base.outcomes,
        access=access,
        cursors=SealedCursors(base.callers),
        guard=LookupGuard(
            penalties=base.penalties,
            rates=admission.gate,
            security_log=SecurityLog(clock),
            event_sink=event_sink,
            clock=clock,
        ),
        polls=admission.polls,
        clock=clock,
        on_found=news.met,
    )
    tasks = TaskService(
        store=store,
        lookups=lookups,
        runner=runner,
        terms=TaskTerms(
            live=live,
            standings=admission.standings,
            clock=clock,
            entropy=entropy,
            lease=None if leasing is None else leasing.rules.length,
        ),
        polls=admission.polls,
        joining=admission.joining,
        event_sink=event_sink,
        clock=clock,
    )
    denied = DeniedExtensions(event_sink)
    return Core(
        cluster, admission, dialect, access, sessions, changes, streams, offers, runner, news, lookups, tasks, denied
    )
