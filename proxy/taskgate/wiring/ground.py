"""What hosts of both eras stand on: tasks, sessions, and who may use how much; built here, once, for `assembly`.

What must not live here: what is one era's alone, what has to do with sockets, and rules of any floor.
"""

from typing import NamedTuple

from taskgate import __version__
from taskgate.admission.access import Access
from taskgate.admission.incidents import Incidents
from taskgate.admission.joining import Joining
from taskgate.admission.lookups import Lookups
from taskgate.admission.misses import Misses
from taskgate.admission.mounts import Mounts
from taskgate.admission.outcomes import Outcomes
from taskgate.admission.penalties import Penalties
from taskgate.admission.polls import Polls
from taskgate.admission.rates import RateGate
from taskgate.admission.rules import Live
from taskgate.admission.shared_rates import SharedRates
from taskgate.admission.sieve import Sieve
from taskgate.admission.standing import Standings
from taskgate.admission.streams import OpenStreams
from taskgate.clock import Clock, Entropy, SharedClock
from taskgate.cluster.correspondence import Correspondence
from taskgate.cluster.numbers import name_of_numbered
from taskgate.cluster.seals import Told
from taskgate.config import GatewayConfig
from taskgate.gateway.denied_extensions import DeniedExtensions
from taskgate.lifecycle.afar import Afar
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.hearing import Hearing
from taskgate.lifecycle.leasing import LeaseRules, Leasing
from taskgate.lifecycle.measured import MeasuredLeases, MeasuredRates
from taskgate.lifecycle.news import TaskNews
from taskgate.lifecycle.offers import Offers
from taskgate.lifecycle.rests import Rests
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.task_streams import TaskStreams
from taskgate.lifecycle.terms import Terms
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.sessions.registry import HostSessions, Ways
from taskgate.stores.base import Store
from taskgate.stores.rates import MemoryRateStore
from taskgate.stores.sharing import Shared
from taskgate.streams.event_log import EventBudget
from taskgate.streams.shared_trails import SharedTrails
from taskgate.telemetry.audit import Audit
from taskgate.wiring.gate import Gate, SealedCursors, SealedRests, SealedWords


class Base(NamedTuple):
    """What everything is built from. `store` is the one of `shared`, where that is there; then `clock` is its time."""

    config: GatewayConfig
    live: Live
    standings: Standings
    store: Store
    shared: Shared | None
    callers: Gate
    penalties: Penalties | None
    mounts: Mounts
    audit: Audit
    clock: Clock
    entropy: Entropy
    outcomes: Outcomes


class Company(NamedTuple):
    """What a process has that serves the same hosts as others; `holder` is what it is called among them."""

    holder: str
    leasing: Leasing | None = None
    correspondence: Correspondence | None = None
    shared_trails: SharedTrails | None = None

    @property
    def processes(self) -> int:
        """How many were alive a moment ago, this one included."""
        return 1 if self.leasing is None else self.leasing.processes


class Admission(NamedTuple):
    """Who may use how much: what both eras ask before they do something."""

    standings: Standings
    gate: RateGate
    streams: OpenStreams
    polls: Polls
    joining: Joining


def _company(base: Base) -> Company:
    shared, holder = base.shared, name_of_numbered(base.entropy)
    if shared is None:
        return Company(holder)
    assert isinstance(base.clock, SharedClock), "who shares a store goes by its time"
    lease = base.config.store.lease
    leasing = Leasing(
        holder=holder,
        leases=MeasuredLeases(shared.leases, audit=base.audit, clock=base.clock),
        apart=shared.apart,
        rules=LeaseRules(lease.ttl, lease.heartbeat),
        clock=base.clock,
        audit=base.audit,
    )
    correspondence = Correspondence(
        post=shared.post,
        seals=Told(SealedWords(base.callers), base.clock.elapsed),
        holder=holder,
        entropy=base.entropy,
        now=base.clock.now,
        company=lambda: leasing.processes > 1,
    )
    shared_trails = SharedTrails(log=shared.streams, company=correspondence, clock=base.clock)
    return Company(holder, leasing, correspondence, shared_trails)


def _rate_gate(base: Base, standings: Standings, company: Company) -> RateGate:
    live, audit, clock = base.live, base.audit, base.clock
    if base.shared is None:
        return RateGate(live=live, standings=standings, store=MemoryRateStore(), audit=audit, clock=clock)
    asked = MeasuredRates(base.shared.rates, audit=audit, clock=clock)
    rates = SharedRates(asked, live=live, processes=lambda: company.processes, audit=audit, clock=clock)
    return RateGate(live=live, standings=standings, store=rates, audit=audit, clock=clock, sieve=Sieve())


def _admission(base: Base, company: Company) -> Admission:
    live, audit, clock, entropy = base.live, base.audit, base.clock, base.entropy
    standings = base.standings
    return Admission(
        standings=standings,
        gate=_rate_gate(base, standings, company),
        streams=OpenStreams(live=live, audit=audit),
        polls=Polls(live=live, utilization=base.mounts.utilization, audit=audit, clock=clock, entropy=entropy),
        joining=Joining(store=base.store, audit=audit, clock=clock),
    )


class Ground(NamedTuple):
    """What both eras stand on: the tasks, whoever asked for them, and the sessions of those who have any."""

    company: Company
    admission: Admission
    dialect: LegacyDownstream
    access: Access
    sessions: HostSessions
    changes: Changes
    streams: TaskStreams
    offers: Offers
    runner: Runner
    news: TaskNews
    lookups: Lookups
    tasks: TaskService
    denied: DeniedExtensions


def build_ground(base: Base) -> Ground:
    """All of it; none has begun yet."""
    company = _company(base)
    admission, leasing = _admission(base, company), company.leasing
    config, live, store, audit = base.config, base.live, base.store, base.audit
    clock, entropy = base.clock, base.entropy
    holder, access = company.holder, Access(live, audit)
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    events = EventBudget(lambda: live.now.events)
    ways = Ways(dialect, live, clock, entropy, events, company.correspondence, company.shared_trails)
    sessions = HostSessions(store=store, ways=ways, entropy=entropy, idle=config.server.session_idle, audit=audit)
    changes = Changes(store=store, audit=audit, clock=clock)
    afar = None
    if company.shared_trails is not None:
        company.shared_trails.serve(sessions.peek)
        afar = Afar(company.shared_trails, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access, open=admission.streams, afar=afar)
    offers = Offers(holder=holder, changes=changes, dialect=dialect)
    of_runs = changes if leasing is None else changes.of_runs(leasing)
    rests = Rests(SealedRests(base.callers))
    outlives = base.shared is not None or config.store.backend != "memory"
    hearing = Hearing(changes=of_runs, streams=streams, dialect=dialect, live=live, rests=rests, outlives=outlives)
    runner = Runner(
        holder=holder, store=store, sessions=sessions, hearing=hearing, audit=audit, clock=clock, leasing=leasing
    )
    news = TaskNews(store=store, streams=streams, offers=offers, polls=admission.polls, dialect=dialect, clock=clock)
    lookups = Lookups(
        store=store,
        outcomes=base.outcomes,
        access=access,
        cursors=SealedCursors(base.callers),
        misses=Misses(
            penalties=base.penalties, gate=admission.gate, incidents=Incidents(clock), audit=audit, clock=clock
        ),
        polls=admission.polls,
        clock=clock,
        met=news.met,
    )
    tasks = TaskService(
        store=store,
        lookups=lookups,
        runner=runner,
        terms=Terms(
            live=live,
            standings=admission.standings,
            clock=clock,
            entropy=entropy,
            lease=None if leasing is None else leasing.rules.length,
        ),
        polls=admission.polls,
        joining=admission.joining,
        audit=audit,
        clock=clock,
    )
    denied = DeniedExtensions(audit)
    return Ground(
        company, admission, dialect, access, sessions, changes, streams, offers, runner, news, lookups, tasks, denied
    )
