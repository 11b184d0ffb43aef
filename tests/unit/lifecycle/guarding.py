"""What stands between callers and tasks, with all its parts: look-ups, polls, and misses."""

from typing import Any

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.admission.access import AccessControl
from taskgate.admission.lookup_guard import LookupGuard, PenaltyBox
from taskgate.admission.lookups import Lookups, ResultReader
from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.admission.polls import PollLimiter
from taskgate.admission.rates import QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.security_alerts import SecurityLog
from taskgate.auth.authorization import AccessPolicy, AccessRule
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.polling import PollPolicy
from taskgate.stores.rates import MemoryRateStore
from taskgate.streams.bytes_in_flight import BytesInFlight
from unit.admission.live_rules import live
from unit.lifecycle.recorded_events import RecordedEvents

CURSORS = CursorKeys(32 * b"c")


class Guard:
    """Look-ups by these access rules over a store; `busy` is how much of its server is used, by mount.

    `polled` is what is reported of polls, apart from everything else.
    """

    def __init__(
        self,
        store: Any,
        clock: ManualClock,
        emitted: RecordedEvents,
        *rules: AccessRule,
        threshold: int | None = None,
        cursors: CursorKeys = CURSORS,
        **changes: Any,
    ) -> None:
        self.live = live(access=AccessPolicy(rules=rules), **{"polling": self.polling(), **changes})
        self.busy: dict[str, float] = {}
        self.access = AccessControl(self.live, emitted)
        self.polled = RecordedEvents()
        self.polls = new_polls(self.live, clock, self.polled, self.busy)
        self.limiter = RateLimiter(
            live=self.live, subjects=QuotaSubjects(self.live), store=MemoryRateStore(), event_sink=emitted, clock=clock
        )
        misses = LookupGuard(
            penalties=None if threshold is None else PenaltyBox(threshold),
            rates=self.limiter,
            security_log=SecurityLog(clock),
            event_sink=emitted,
            clock=clock,
        )
        self.pressure = MemoryPressure(limit=1, resident=lambda: 0)
        self.in_flight = BytesInFlight()
        outcomes = ResultReader(store=store, clock=clock, in_flight=self.in_flight, pressure=self.pressure)
        self.lookups = Lookups(
            store=store,
            results=outcomes,
            access=self.access,
            cursors=cursors,
            guard=misses,
            polls=self.polls,
            clock=clock,
        )

    @staticmethod
    def polling(**changes: Any) -> PollPolicy:
        """Two seconds for everybody, unless a test says otherwise."""
        usual: dict[str, Any] = {"adaptive": False}
        of_live = live().current.polling
        usual |= {"base": of_live.base, "least": of_live.least, "most": of_live.most}
        return PollPolicy(**usual | changes)


def new_polls(
    rules: RuntimeConfig, clock: ManualClock, emitted: RecordedEvents, busy: dict[str, float] | None = None, **more: Any
) -> PollLimiter:
    """Polls of servers that have nothing to do, but for those that are busy."""
    used = {} if busy is None else busy
    return PollLimiter(
        live=rules,
        utilization=lambda mount: used.get(mount, 0.0),
        event_sink=emitted,
        clock=clock,
        entropy=SeededEntropy(),
        **more,
    )
