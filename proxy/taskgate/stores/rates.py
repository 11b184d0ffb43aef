"""The rate budgets of one process, in memory: `MemoryRateStore`. After a restart all budgets are
full again.

`domain/rates` has the arithmetic, and decides which budgets a request is charged to. The state of a
budget is one time, its *tat* (theoretical arrival time): until then it owes something. A budget
whose tat has passed is full.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from typing import Final

from taskgate.domain.rates import Demand, RateVerdict, gcra
from taskgate.stores.base import RateBudget, RateCheck, RateJudgement, RateStep, RateStepMode, RateStore

SIZE: Final = 200_000
"""Stored budgets: at most some 40 MB."""
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
        self._budgets: OrderedDict[str, RateBudget] = OrderedDict()
        self._use = self._budgets.move_to_end

    def __len__(self) -> int:
        return len(self._budgets)

    def permits(self, check: RateCheck, now: float) -> bool:
        """Take for a check, and return True, if that needs no judgement: each of its budgets has room.

        Otherwise nothing is taken, and `judge` has to decide. So a budget that may be a little short
        counts as short, and a new one of a full store too.
        """
        for key, most in check.looked:
            budget = self._budgets.get(key)
            if budget is None:
                if most < 0.0 or len(self._budgets) >= self._size:
                    return False
            elif budget.tat - now > most:
                return False
            else:
                self._use(key)
        for budget, most, _ in check.taken:
            if budget.tat - now > most:
                if budget.tat < inf or not self._has_room(check, now):
                    return False
                break
        for budget, _, charge in check.taken:
            tat = budget.tat
            budget.tat = (now if tat < now else tat) + charge
            self._use(budget.key)
        return True

    def _has_room(self, check: RateCheck, now: float) -> bool:
        """Whether all budgets of a check have room to take from, now that this store has them all."""
        present, new = self._budgets, 0
        for budget, most, _ in check.taken:
            stored = present.get(budget.key)
            if (0.0 if stored is None else stored.tat - now) > most:
                return False
            new += stored is None
        if len(present) + new > self._size:
            return False
        check.taken = tuple(
            [(present.get(each.key) or self._add(each.key, now), most, charge) for each, most, charge in check.taken]
        )
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
            budget = self._budgets.get(key)
            if budget is None and len(self._budgets) >= self._size:
                key = self._key_of_new(demand, now)
                budget = self._budgets.get(key)
            verdict, tat = gcra(None if budget is None else budget.tat, now, limit, cost)
            verdicts.append(verdict)
            if verdict.allowed:
                taken.append((key, tat))
            elif not policy.shadow:
                return self._refused(demands, now)
            elif budget is not None:
                budget.tat = min(tat, budget.tat)
        for key, tat in taken:
            self._set(key, tat)
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
        budget = self._budgets.get(demand.key)
        tat = owed_until if budget is None else budget.tat
        if given_back and budget is not None:
            tat -= demand.cost * demand.limit.every
        self._set(demand.key, max(tat, owed_until))
        if self._is_lenient:
            self._evict()

    def _refused(self, demands: Sequence[Demand], now: float) -> tuple[RateVerdict, ...]:
        """The verdicts of a refused step: `remaining` is the rest before it."""
        verdicts = self.peek(demands, now=now)
        untouched = self.peek([each._replace(cost=0) for each in demands], now=now)
        return tuple(there if one.allowed else one for one, there in zip(verdicts, untouched, strict=True))

    def _look(self, demand: Demand, now: float) -> RateVerdict:
        key = demand.key
        budget = self._budgets.get(key)
        if budget is None and len(self._budgets) >= self._size and not self._is_lenient:
            key = self._key_of_new(demand, now)
            budget = self._budgets.get(key)
        verdict, tat = gcra(None if budget is None else budget.tat, now, demand.limit, demand.cost)
        if budget is not None:
            self._use(key)
            if not verdict.allowed:
                # A debt to a slower limit is reduced once, not again at every look.
                budget.tat = min(tat, budget.tat)
        return verdict

    def _set(self, key: str, tat: float) -> None:
        """Have a budget, as the last used one."""
        budget = self._budgets.get(key)
        if budget is None:
            self._add(key, tat)
        else:
            budget.tat = tat
            self._use(key)

    def _add(self, key: str, tat: float) -> RateBudget:
        budget = self._budgets[key] = RateBudget(key, tat)
        return budget

    def _drop(self, key: str) -> None:
        # Checks may still have it.
        self._budgets.pop(key).tat = inf

    def _evict(self) -> None:
        while len(self._budgets) > self._size:
            self._drop(next(iter(self._budgets)))

    def _key_of_new(self, demand: Demand, now: float) -> str:
        """The key that a new budget of a full store counts under: its own if room can be made, else
        the shared one.

        There is one shared budget for each policy, beyond `size`.
        """
        if self._is_lenient:
            return demand.key
        for _ in range(_TRIES):
            key = next(iter(self._budgets))
            if self._budgets[key].tat <= now:
                self._drop(key)
                return demand.key
            self._use(key)
        # A caller's key is longer than the policy name, so it never equals this.
        return f"{demand.policy.name}\n\n"


_: type[RateStore] = MemoryRateStore
