"""What is left of the budgets of rates, in this process: after a restart all are full again.

What must not live here: arithmetic (`limits/gcra`), and which budgets a request is for (`limits/rates`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from taskgate.limits.gcra import Verdict, gcra
from taskgate.limits.rates import Demand
from taskgate.stores.base import Judgement, RateStore, Step, Way

SIZE: Final = 200_000
"""Budgets that are remembered: some 30 MB at the most."""


class MemoryRateStore:
    """A RateStore. Of more than `size` budgets, one or more, the one asked for longest ago is forgotten: is full again.

    What it costs does not depend on how many budgets are known.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        # The one asked for longest ago in front. A plain dict would have to search for its front.
        self._tats: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tats)

    async def judge(self, steps: Sequence[Step], *, now: float) -> Judgement:
        """See RateStore."""
        told: list[tuple[Verdict, ...]] = []
        for way, demands in steps:
            if way is Way.NOTE:
                told.append(tuple([self.take((each,), now=now)[0] for each in demands]))
                continue
            verdicts = (self.take if way is Way.TAKE else self.peek)(demands, now=now)
            told.append(verdicts)
            if refuses(demands, verdicts):
                return Judgement(told, len(told) - 1)
        return Judgement(told)

    def take(self, demands: Sequence[Demand], *, now: float) -> tuple[Verdict, ...]:
        """A verdict for each demand, in one step. Where one that enforces has no room, none of those is charged."""
        verdicts, taken = [], []
        for key, limit, cost, policy in demands:
            kept = self._tats.get(key)
            verdict, tat = gcra(kept, now, limit, cost)
            verdicts.append(verdict)
            if verdict.allowed:
                taken.append((key, tat))
            elif not policy.shadow:
                return self._nothing(demands, now)
            elif kept is not None:
                self._tats[key] = min(tat, kept)
        for key, tat in taken:
            self._keep(key, tat)
        return tuple(verdicts)

    def peek(self, demands: Sequence[Demand], *, now: float) -> tuple[Verdict, ...]:
        """What `take` would say; charges nothing."""
        return tuple([self._look(each, now) for each in demands])

    def correct(self, demand: Demand, *, given_back: bool, owed_until: float) -> None:
        """Another store counts the same budget, too, and for all.

        What was taken here last was not taken there, if it is `given_back`; and there something is owed until some
        time at the least.
        """
        kept = self._tats.get(demand.key)
        if kept is None:
            kept = owed_until
        elif given_back:
            kept -= demand.cost * demand.limit.every
        self._keep(demand.key, max(kept, owed_until))

    def _nothing(self, demands: Sequence[Demand], now: float) -> tuple[Verdict, ...]:
        """The verdicts where nothing is taken: what remains is what there was."""
        verdicts = self.peek(demands, now=now)
        untouched = self.peek([each._replace(cost=0) for each in demands], now=now)
        return tuple(there if one.allowed else one for one, there in zip(verdicts, untouched, strict=True))

    def _look(self, demand: Demand, now: float) -> Verdict:
        key, tats = demand.key, self._tats
        kept = tats.get(key)
        verdict, tat = gcra(kept, now, demand.limit, demand.cost)
        if kept is not None:
            tats.move_to_end(key)
            if not verdict.allowed:
                # What was owed to a slower limit is forgiven once, not at every look anew.
                tats[key] = min(tat, kept)
        return verdict

    def _keep(self, key: str, tat: float) -> None:
        tats = self._tats
        if key in tats:
            tats.move_to_end(key)
        elif len(tats) >= self._size:
            tats.popitem(last=False)
        tats[key] = tat


def refuses(demands: Sequence[Demand], verdicts: Sequence[Verdict]) -> bool:
    """Whether one that enforces has no room."""
    return any(not (one.allowed or each.policy.shadow) for each, one in zip(demands, verdicts, strict=True))


_: type[RateStore] = MemoryRateStore
