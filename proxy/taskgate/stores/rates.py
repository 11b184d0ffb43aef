"""The rate budgets of one process, in memory: `MemoryRateStore`. After a restart all budgets are
full again.

`domain/rates` has the arithmetic, and decides which budgets a request is charged to. The state of a
budget is one time, its *tat* (theoretical arrival time): until then it owes something. A budget
whose tat has passed is full.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from taskgate.domain.rates import Demand, RateVerdict, gcra
from taskgate.stores.base import RateCheck, RateJudgement, RateStep, RateStepMode, RateStore

SIZE: Final = 200_000
"""Stored budgets: at most some 30 MB."""
_TRIES: Final = 8
"""Budgets that are checked for a full one, which a new budget may replace."""


class MemoryRateStore:
    """A RateStore of at most `size` budgets, one or more. The cost of an operation does not depend
    on their number.

    When it is full, a new budget replaces a full one, the least recently used first. While there is
    no full one, all new callers of a policy share one budget: an attacker with many identities
    cannot evict a debt. With `is_lenient` the least recently used budget is evicted whatever it
    owes. That is for a cache in front of another rate store.
    """

    def __init__(self, size: int = SIZE, *, is_lenient: bool = False) -> None:
        self._size = size
        self._is_lenient = is_lenient
        # The least recently used first. A plain dict would have to search for its first entry.
        self._tats: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tats)

    def permits(self, check: RateCheck, now: float) -> bool:
        """Take for a check, and return True, if that needs no judgement: each of its budgets has room.

        Otherwise nothing is taken, and `judge` has to decide. So a budget that may be a little short
        counts as short, and a new one of a full store too.
        """
        tats = self._tats
        for key, most, _ in check.budgets:
            tat = tats.get(key)
            if tat is None:
                if most < 0.0 or len(tats) >= self._size:
                    return False
            elif tat - now > most:
                return False
        for key in check.looked:
            if key in tats:
                tats.move_to_end(key)
        for key, _, charge in check.taken:
            tat = tats.get(key)
            tats[key] = (now if tat is None or tat < now else tat) + charge
            tats.move_to_end(key)
        if self._is_lenient:
            self._evict()
        return True

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        results: list[tuple[RateVerdict, ...]] = []
        for way, demands in steps:
            if way is RateStepMode.NOTE:
                results.append(tuple([self.take((each,), now=now)[0] for each in demands]))
                continue
            verdicts = (self.take if way is RateStepMode.TAKE else self.peek)(demands, now=now)
            results.append(verdicts)
            for demand, verdict in zip(demands, verdicts, strict=True):
                if not (verdict.allowed or demand.policy.shadow):
                    return RateJudgement(results, len(results) - 1)
        return RateJudgement(results)

    def take(self, demands: Sequence[Demand], *, now: float) -> tuple[RateVerdict, ...]:
        """A verdict for each demand, in one step.

        If an enforcing budget has no room, no enforcing budget is charged.
        """
        verdicts, taken = [], []
        for demand in demands:
            key, limit, cost, policy = demand
            stored = self._tats.get(key)
            if stored is None and len(self._tats) >= self._size:
                key = self._key_of_new(demand, now)
                stored = self._tats.get(key)
            verdict, tat = gcra(stored, now, limit, cost)
            verdicts.append(verdict)
            if verdict.allowed:
                taken.append((key, tat))
            elif not policy.shadow:
                return self._refused(demands, now)
            elif stored is not None:
                self._tats[key] = min(tat, stored)
        for key, tat in taken:
            self._tats[key] = tat
            self._tats.move_to_end(key)
        if self._is_lenient:
            self._evict()
        return tuple(verdicts)

    def peek(self, demands: Sequence[Demand], *, now: float) -> tuple[RateVerdict, ...]:
        """The verdicts that `take` would give; charges nothing."""
        return tuple([self._look(each, now) for each in demands])

    def correct(self, demand: Demand, *, given_back: bool, owed_until: float) -> None:
        """Correct a budget from another store that counts it for all processes.

        With `given_back` the last charge here was not made there, and is undone. `owed_until` is
        the time until which the other store counts a debt, at least.
        """
        stored = self._tats.get(demand.key)
        if stored is None:
            stored = owed_until
        elif given_back:
            stored -= demand.cost * demand.limit.every
        self._tats[demand.key] = max(stored, owed_until)
        self._tats.move_to_end(demand.key)
        if self._is_lenient:
            self._evict()

    def _refused(self, demands: Sequence[Demand], now: float) -> tuple[RateVerdict, ...]:
        """The verdicts of a refused step: `remaining` is the rest before it."""
        verdicts = self.peek(demands, now=now)
        untouched = self.peek([each._replace(cost=0) for each in demands], now=now)
        return tuple(there if one.allowed else one for one, there in zip(verdicts, untouched, strict=True))

    def _look(self, demand: Demand, now: float) -> RateVerdict:
        key, tats = demand.key, self._tats
        stored = tats.get(key)
        if stored is None and len(tats) >= self._size and not self._is_lenient:
            key = self._key_of_new(demand, now)
            stored = tats.get(key)
        verdict, tat = gcra(stored, now, demand.limit, demand.cost)
        if stored is not None:
            tats.move_to_end(key)
            if not verdict.allowed:
                # A debt to a slower limit is reduced once, not again at every look.
                tats[key] = min(tat, stored)
        return verdict

    def _evict(self) -> None:
        while len(self._tats) > self._size:
            self._tats.popitem(last=False)

    def _key_of_new(self, demand: Demand, now: float) -> str:
        """The key that a new budget of a full store counts under: its own if room can be made, else
        the shared one.

        There is one shared budget for each policy, beyond `size`.
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
        # A caller's key is longer than the policy name, so it never equals this.
        return f"{demand.policy.name}\n\n"


_: type[RateStore] = MemoryRateStore
