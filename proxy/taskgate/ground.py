"""What hosts of both eras stand on: tasks, sessions, and who may use how much; built here, once, for `assembly`.

What must not live here: what is one era's alone, what has to do with sockets, and rules of any floor.
"""

from typing import NamedTuple

from taskgate import __version__
from taskgate.clock import Clock, Entropy, SharedClock
from taskgate.config import GatewayConfig
from taskgate.dialects.legacy.downstream import LegacyDownstream
from taskgate.engine.admission.joining import Joining
from taskgate.engine.admission.polls import Polls
from taskgate.engine.admission.rates import RateGate
from taskgate.engine.admission.rules import Live
from taskgate.engine.admission.shared_rates import SharedRates
from taskgate.engine.admission.sieve import Sieve
from taskgate.engine.admission.standing import Standings
from taskgate.engine.admission.streams import OpenStreams
from taskgate.engine.changes import Changes
from taskgate.engine.denied_extensions import DeniedExtensions
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.guard.misses import Misses
from taskgate.engine.guard.penalties import Penalties
from taskgate.engine.leasing import LeaseRules, Leasing
from taskgate.engine.measured import MeasuredLeases, MeasuredRates
from taskgate.engine.mounts import Mounts
from taskgate.engine.outcomes import Outcomes
from taskgate.engine.replicas.correspondence import Correspondence
from taskgate.engine.replicas.numbers import name_of_numbered
from taskgate.engine.replicas.seals import Told
from taskgate.engine.rests import Rests
from taskgate.engine.runner import Runner
from taskgate.engine.sessions import HostSessions, Ways
from taskgate.engine.streams.event_log import EventBudget
from taskgate.engine.streams.shared_trails import SharedTrails
from taskgate.engine.task_service import TaskService
from taskgate.engine.telling.afar import Afar
from taskgate.engine.telling.hearing import Hearing
from taskgate.engine.telling.news import TaskNews
from taskgate.engine.telling.offers import Offers
from taskgate.engine.telling.task_streams import TaskStreams
from taskgate.engine.terms import Terms
from taskgate.gate import Gate, SealedCursors, SealedRests, SealedWords
from taskgate.stores.base import Store
from taskgate.stores.rates import MemoryRateStore
from taskgate.stores.sharing import Shared
from taskgate.telemetry.audit import Audit


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
