"""The rate budgets of all replicas: `RedisRateStore`, with one script per request by the server's
clock.

A request has some *steps*, each with demands on budgets. They are done in order, up to a step that
refuses. The script has the arithmetic of `domain/rates`. A full budget has no key.
`admission/rates` handles an unreachable server.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from taskgate.domain.rates import RateVerdict
from taskgate.stores.base import RateJudgement, RateStep, RateStore
from taskgate.stores.redis.client import RedisClient, read_script
from taskgate.stores.redis.options import KeyNames

_TAKE: Final = read_script("take.lua")
_DEMAND: Final = Struct("<BBBdddd")
"""A demand: the number of its step, the mode, whether it is a shadow, then seconds per unit, burst,
seconds ahead, cost.
"""
_VERDICT: Final = Struct("<Bddd")
"""A verdict: the fields of RateVerdict."""
_NAMES: Final = 65_536
"""Key names in the cache."""
_MICRO: Final = 1_000_000


class RedisRateStore:
    """A RateStore by the server's clock; with `callers_time` by that of the callers, who must share
    one.
    """

    def __init__(self, client: RedisClient, keys: KeyNames, *, callers_time: bool = False) -> None:
        self._client = client
        self._callers_time = callers_time
        self._name = lru_cache(_NAMES)(lambda budget: keys.of("rate", budget))

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        # If this raises StoreUnavailable, the budgets may have been charged.
        names = [self._name(each.key) for step in steps for each in step.demands]
        if not names:
            return RateJudgement([() for _ in steps])
        # Empty for the server's clock.
        time = round(now * _MICRO) if self._callers_time else ""
        said = await self._client.run(_TAKE, names, [_pack(steps), time])
        return _unpack(steps, said)


def _pack(steps: Sequence[RateStep]) -> bytes:
    """Encode the demands of all steps, in the order of their keys."""
    return b"".join(
        _DEMAND.pack(number, mode, policy.shadow, limit.every, limit.burst, limit.ahead, cost)
        for number, (mode, demands) in enumerate(steps)
        for _, limit, cost, policy in demands
    )


def _unpack(steps: Sequence[RateStep], said: bytes) -> RateJudgement:
    """Decode a reply: the number of the step that refused, or 255, and the verdicts up to that
    step.
    """
    refused = None if said[0] == _NONE_REFUSED else said[0]
    verdicts = _verdicts(said)
    reached = steps if refused is None else steps[: refused + 1]
    return RateJudgement([tuple([next(verdicts) for _ in demands]) for _, demands in reached], refused)


def _verdicts(said: bytes) -> Iterator[RateVerdict]:
    for allowed, remaining, wait, debt in _VERDICT.iter_unpack(memoryview(said)[1:]):
        yield RateVerdict(bool(allowed), int(remaining), wait, debt)


_NONE_REFUSED: Final = 255

_: type[RateStore] = RedisRateStore
