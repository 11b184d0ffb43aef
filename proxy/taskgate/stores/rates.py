"""What is left of the budgets of rates, in this process: after a restart all are full again.

What must not live here: arithmetic (`domain/gcra`), and which budgets a request is for (`domain/rates`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from taskgate.domain.gcra import RateVerdict, gcra
from taskgate.domain.rates import Demand
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode, RateStore

SIZE: Final = 200_000
"""Budgets that are remembered: some 30 MB at the most."""
_TRIES: Final = 8
"""Budgets that are looked at for one that is full again, so that another may have its place."""


class MemoryRateStore:
    """A RateStore that remembers `size` budgets, one or more. What it costs does not depend on how many are known.

    A budget is forgotten where it is full again, the one asked for longest ago first. While none is, all newcomers of a
    policy share one budget: many identities cannot have a debt forgotten. With `is_lenient` they can, as what is asked
    for longest ago is forgotten whatever it owes; that is for where another store counts, too.
    """

    def __init__(self, size: int = SIZE, *, is_lenient: bool = False) -> None:
        self._size = size
        self._is_lenient = is_lenient
        # The one asked for longest ago in front. A plain dict would have to search for its front.
        self._tats: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tats)

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """See RateStore."""
        told: list[tuple[RateVerdict, ...]] = []
        for way, demands in steps:
            if way is RateStepMode.NOTE:
                told.append(tuple([self.take((each,), now=now)[0] for each in demands]))
                continue
            verdicts = (self.take if way is RateStepMode.TAKE else self.peek)(demands, now=now)
            told.append(verdicts)
            if refuses(demands, verdicts):
                return RateJudgement(told, len(told) - 1)
        return RateJudgement(told)

    def take(self, demands: Sequence[Demand], *, now: float) -> tuple[RateVerdict, ...]:
        """A verdict for each demand, in one step. Where one that enforces has no room, none of those is charged."""
        verdicts, taken = [], []
        for demand in demands:
            key, limit, cost, policy = demand
            kept = self._tats.get(key)
            if kept is None and len(self._tats) >= self._size:
                key = self._place(demand, now)
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

    def peek(self, demands: Sequence[Demand], *, now: float) -> tuple[RateVerdict, ...]:
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

    def _nothing(self, demands: Sequence[Demand], now: float) -> tuple[RateVerdict, ...]:
        """The verdicts where nothing is taken: what remains is what there was."""
        verdicts = self.peek(demands, now=now)
        untouched = self.peek([each._replace(cost=0) for each in demands], now=now)
        return tuple(there if one.allowed else one for one, there in zip(verdicts, untouched, strict=True))

    def _look(self, demand: Demand, now: float) -> RateVerdict:
        key, tats = demand.key, self._tats
        kept = tats.get(key)
        if kept is None and len(tats) >= self._size and not self._is_lenient:
            key = self._place(demand, now)
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
        elif self._is_lenient and len(tats) >= self._size:
            tats.popitem(last=False)
        tats[key] = tat

    def _place(self, demand: Demand, now: float) -> str:
        """Under which key a newcomer to a full store counts: its own where there is room after all, else that of all.

        There are a few more budgets than `size`, then: one for each policy.
        """
        tats = self._tats
        if self._is_lenient:
            return demand.key
        for _ in range(_TRIES):
            key = next(iter(tats))
            if tats[key] <= now:
                del tats[key]
                return demand.key
            tats.move_to_end(key)
        # The keys of callers have more than the name alone.
        return f"{demand.policy.name}\n\n"


def refuses(demands: Sequence[Demand], verdicts: Sequence[RateVerdict]) -> bool:
    """Whether one that enforces has no room."""
    return any(not (one.allowed or each.policy.shadow) for each, one in zip(demands, verdicts, strict=True))


_: type[RateStore] = MemoryRateStore
