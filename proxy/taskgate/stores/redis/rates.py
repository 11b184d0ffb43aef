"""What is left of the budgets of rates, where all replicas find it: one script a request, by the server's own clock.

What must not live here: which budgets a request is for (`domain/rates`), and what is done while the server cannot be
reached (`admission/shared_rates`). What holds: the arithmetic is that of `domain/gcra`; a budget that is full
has no key.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from taskgate.domain.gcra import RateVerdict
from taskgate.stores.base import RateJudgement, RateStep, RateStore
from taskgate.stores.redis.client import RedisClient, read_script
from taskgate.stores.redis.keys import KeyNames

_TAKE: Final = read_script("take.lua")
_ASKED: Final = Struct("<BBBddd")
"""A demand: the number of its step, its way, whether it is in shadow, then seconds per unit, burst, cost."""
_SAID: Final = Struct("<Bddd")
"""A verdict, as its fields."""
_NAMES: Final = 65_536
_MICRO: Final = 1_000_000


class RedisRateStore:
    """A RateStore. Time is the server's, which all replicas share; or the callers', where those have one clock."""

    def __init__(self, client: RedisClient, keys: KeyNames, *, callers_time: bool = False) -> None:
        self._client = client
        self._callers_time = callers_time
        self._name = lru_cache(_NAMES)(lambda budget: keys.of("rate", budget))

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """See RateStore. Raises StoreUnavailable; it may have been taken then."""
        names = [self._name(each.key) for step in steps for each in step.demands]
        if not names:
            return RateJudgement([() for _ in steps])
        time = round(now * _MICRO) if self._callers_time else ""
        said = await self._client.run(_TAKE, names, [_pack(steps), time])
        return _unpack(steps, said)


def _pack(steps: Sequence[RateStep]) -> bytes:
    return b"".join(
        _ASKED.pack(number, way, demand.policy.shadow, demand.limit.every, demand.limit.burst, demand.cost)
        for number, (way, demands) in enumerate(steps)
        for demand in demands
    )


def _unpack(steps: Sequence[RateStep], said: bytes) -> RateJudgement:
    """The first byte is the number of the step that refused, or 255; verdicts follow, as far as there are any."""
    refused = None if said[0] == _NOBODY else said[0]
    verdicts = _verdicts(said)
    reached = steps if refused is None else steps[: refused + 1]
    return RateJudgement([tuple([next(verdicts) for _ in demands]) for _, demands in reached], refused)


def _verdicts(said: bytes) -> Iterator[RateVerdict]:
    for allowed, remaining, wait, debt in _SAID.iter_unpack(memoryview(said)[1:]):
        yield RateVerdict(bool(allowed), int(remaining), wait, debt)


_NOBODY: Final = 255

_: type[RateStore] = RedisRateStore
