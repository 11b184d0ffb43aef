"""What hosts of both eras stand on: tasks, sessions, and who may use how much; built here, once, for `assembly`.

What must not live here: what is one era's alone, what has to do with sockets, and rules of any floor.
"""

from typing import NamedTuple

from taskgate import __version__
from taskgate.clock import Clock, Entropy
from taskgate.config import GatewayConfig
from taskgate.dialects.legacy.downstream import LegacyDownstream
from taskgate.engine.admission.joining import Joining
from taskgate.engine.admission.polls import Polls
from taskgate.engine.admission.rates import RateGate
from taskgate.engine.admission.rules import Live
from taskgate.engine.admission.standing import Standings
from taskgate.engine.admission.streams import OpenStreams
from taskgate.engine.changes import Changes
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.guard.misses import Misses
from taskgate.engine.guard.penalties import Penalties
from taskgate.engine.mounts import Mounts
from taskgate.engine.runner import Runner
from taskgate.engine.sessions import HostSessions, Ways
from taskgate.engine.task_service import TaskService
from taskgate.engine.telling.hearing import Hearing
from taskgate.engine.telling.news import TaskNews
from taskgate.engine.telling.offers import Offers
from taskgate.engine.telling.task_streams import TaskStreams
from taskgate.engine.terms import Terms
from taskgate.gate import Gate, SealedCursors
from taskgate.stores.base import Store
from taskgate.stores.rates import MemoryRateStore
from taskgate.telemetry.audit import Audit


class Base(NamedTuple):
    """What everything is built from."""

    config: GatewayConfig
    live: Live
    store: Store
    callers: Gate
    penalties: Penalties | None
    mounts: Mounts
    audit: Audit
    clock: Clock
    entropy: Entropy


class Admission(NamedTuple):
    """Who may use how much: what both eras ask before they do something."""

    standings: Standings
    gate: RateGate
    streams: OpenStreams
    polls: Polls
    joining: Joining


def _admission(base: Base) -> Admission:
    live, audit, clock, entropy = base.live, base.audit, base.clock, base.entropy
    standings = Standings(live)
    return Admission(
        standings=standings,
        gate=RateGate(live=live, standings=standings, store=MemoryRateStore(), audit=audit, clock=clock),
        streams=OpenStreams(live=live, audit=audit),
        polls=Polls(live=live, utilization=base.mounts.utilization, audit=audit, clock=clock, entropy=entropy),
        joining=Joining(store=base.store, audit=audit, clock=clock),
    )


class Ground(NamedTuple):
    """What both eras stand on: the tasks, whoever asked for them, and the sessions of those who have any."""

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


def build_ground(base: Base) -> Ground:
    """All of it; none has begun yet."""
    admission = _admission(base)
    config, live, store, audit = base.config, base.live, base.store, base.audit
    clock, entropy = base.clock, base.entropy
    holder, access = entropy.token(8).hex(), Access(live, audit)
    dialect = LegacyDownstream(__version__, lists=config.auth.mode == "required")
    ways = Ways(dialect, live, clock, entropy)
    sessions = HostSessions(store=store, ways=ways, entropy=entropy, idle=config.server.session_idle, audit=audit)
    changes = Changes(store=store, audit=audit, clock=clock)
    streams = TaskStreams(sessions=sessions, access=access)
    offers = Offers(holder=holder, changes=changes, dialect=dialect)
    hearing = Hearing(changes=changes, streams=streams, dialect=dialect, live=live)
    runner = Runner(holder=holder, store=store, sessions=sessions, hearing=hearing, audit=audit, clock=clock)
    news = TaskNews(store=store, streams=streams, offers=offers, polls=admission.polls, dialect=dialect, clock=clock)
    lookups = Lookups(
        store=store,
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
        terms=Terms(live=live, standings=admission.standings, clock=clock, entropy=entropy),
        polls=admission.polls,
        joining=admission.joining,
        audit=audit,
        clock=clock,
    )
    return Ground(admission, dialect, access, sessions, changes, streams, offers, runner, news, lookups, tasks)
