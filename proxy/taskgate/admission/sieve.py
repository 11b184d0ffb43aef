"""Rates that replicas share, asked before anybody knows who asks: what this process knows of them, at no price.

A request is let through here that this process has no reason to refuse, and is judged by the shared store later,
together with all else (see `rates`). What must not live here: what is refused, and the shared store. What holds:
nothing is refused that the shared store would not refuse, too, since whatever is taken here is taken there. But for
what came while that could not be asked: it counts here alone, until it is forgiven.
"""

from collections.abc import Sequence

from taskgate.domain.rates import RateEvent, RatePolicy
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode
from taskgate.stores.rates import SIZE, MemoryRateStore


class LocalRateCache:
    """Budgets of addresses, of which at most `size` are known."""

    def __init__(self, size: int = SIZE) -> None:
        self._known = MemoryRateStore(size, is_lenient=True)

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """What this process says to steps that look and take. What they take is given back where `learn` says so."""
        return await self._known.judge(steps, now=now)

    def learn(self, steps: Sequence[RateStep], judged: RateJudgement, *, asked: float) -> None:
        """The shared store said so to steps of which those from arrivals were let through here; it was `asked` then."""
        for number, (way, demands) in enumerate(steps):
            was_reached = judged.refused is None or number <= judged.refused
            takes_back = way is RateStepMode.TAKE and (not was_reached or number == judged.refused)
            for place, demand in enumerate(demands):
                if _is_asked_at_arrival(demand.policy):
                    owed = judged.verdicts[number][place].reset_after if was_reached else 0.0
                    self._known.correct(demand, given_back=takes_back, owed_until=asked + owed)


def _is_asked_at_arrival(policy: RatePolicy) -> bool:
    return not policy.shadow and (policy.before_auth or policy.event is RateEvent.AUTH_FAILURE)
