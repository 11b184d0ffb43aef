"""What stands between callers and tasks, with all its parts: look-ups, polls, and misses."""

from typing import Any

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.auth.authorization import AccessPolicy, AccessRule
from taskgate.engine.admission.polls import Polls
from taskgate.engine.admission.rates import RateGate
from taskgate.engine.admission.rules import Live
from taskgate.engine.admission.standing import Standings
from taskgate.engine.bytes_in_flight import BytesInFlight
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.guard.misses import Misses
from taskgate.engine.guard.penalties import Penalties
from taskgate.engine.memory_pressure import MemoryPressure
from taskgate.engine.outcomes import Outcomes
from taskgate.stores.rates import MemoryRateStore
from taskgate.tasks.cursors import CursorKeys, Cursors
from taskgate.tasks.polling import Polling
from unit.engine.admission.live_rules import live
from unit.engine.facts import Facts

CURSORS = CursorKeys(32 * b"c")


class Guard:
    """Look-ups by these access rules over a store; `busy` is how much of its server is used, by mount.

    `polled` is what is reported of polls, apart from everything else.
    """

    def __init__(
        self,
        store: Any,
        clock: ManualClock,
        facts: Facts,
        *rules: AccessRule,
        threshold: int | None = None,
        cursors: Cursors = CURSORS,
        **changes: Any,
    ) -> None:
        self.live = live(access=AccessPolicy(rules=rules), **{"polling": self.polling(), **changes})
        self.busy: dict[str, float] = {}
        self.access = Access(self.live, facts)
        self.polled = Facts()
        self.polls = new_polls(self.live, clock, self.polled, self.busy)
        self.gate = RateGate(
            live=self.live, standings=Standings(self.live), store=MemoryRateStore(), audit=facts, clock=clock
        )
        misses = Misses(
            penalties=None if threshold is None else Penalties(threshold),
            gate=self.gate,
            incidents=Incidents(clock),
            audit=facts,
            clock=clock,
        )
        self.pressure = MemoryPressure(limit=1, resident=lambda: 0)
        self.in_flight = BytesInFlight()
        outcomes = Outcomes(store=store, clock=clock, in_flight=self.in_flight, pressure=self.pressure)
        self.lookups = Lookups(
            store=store,
            outcomes=outcomes,
            access=self.access,
            cursors=cursors,
            misses=misses,
            polls=self.polls,
            clock=clock,
        )

    @staticmethod
    def polling(**changes: Any) -> Polling:
        """Two seconds for everybody, unless a test says otherwise."""
        usual: dict[str, Any] = {"adaptive": False}
        of_live = live().now.polling
        usual |= {"base": of_live.base, "least": of_live.least, "most": of_live.most}
        return Polling(**usual | changes)


def new_polls(
    rules: Live, clock: ManualClock, facts: Facts, busy: dict[str, float] | None = None, **more: Any
) -> Polls:
    """Polls of servers that have nothing to do, but for those that are busy."""
    used = {} if busy is None else busy
    return Polls(
        live=rules,
        utilization=lambda mount: used.get(mount, 0.0),
        audit=facts,
        clock=clock,
        entropy=SeededEntropy(),
        **more,
    )
