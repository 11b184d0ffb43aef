"""The rates, applied: budgets are taken from, refusals raised and counted, and what shadows would have refused too.

What must not live here: which rates are for what (`domain/rates`), and what is left of them (the RateStore).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from ipaddress import IPv6Network
from math import ceil, inf
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.sieve import LocalRateCache
from taskgate.admission.standing import QuotaSubjects
from taskgate.admission.suspicions import Suspicions
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.rates import Demand, RateEvent, RateLimit, RatePolicies, RateSubject, RateVerdict
from taskgate.errors import RateLimited, StoreUnavailable
from taskgate.protocol.vocabulary import NOTE_CANCELLED, NOTE_INITIALIZED
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode, RateStore
from taskgate.stores.rates import refuses
from taskgate.streams.exchange import Exchange
from taskgate.telemetry.events import EventSink, RateLimitChecked

Quota = tuple[tuple[str, str], ...]
"""HTTP fields that tell what is left; none where the operator does not want that told."""

LONGEST: Final = timedelta(days=1)
"""What is told of a wait that has no end."""
_ABOUT_TASKS: Final = "tasks/"
_ENDS: Final = frozenset({NOTE_INITIALIZED, NOTE_CANCELLED})
"""What ends something that was let in: refused, it would cost released hosts their connection, or a server a call."""
_ALLOWED: Final = RateJudgement(()).counted_as
_NONE: Final[Mapping[str, RateLimit]] = {}


class OverRate(RateLimited):
    """A rate refused the request; `quota` are the fields that tell what is left."""

    def __init__(self, retry_after: timedelta, policy: str, quota: Quota) -> None:
        super().__init__(retry_after, policy)
        self.quota = quota


class RateLimiter:
    """Lets through what the rates have room for. One step is one take: from all policies that refuse, or from none.

    With a `sieve` the store is one that replicas share, and is asked once for a request: what is asked of it before it
    is known who asks is then asked of the sieve alone, and of the store together with all else.
    """

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        standings: QuotaSubjects,
        store: RateStore,
        event_sink: EventSink,
        clock: Clock,
        sieve: LocalRateCache | None = None,
    ) -> None:
        self._live = live
        self._standings = standings
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._sieve = sieve
        self._suspicions = Suspicions(event_sink, clock)
        # With a sieve: what exchanges that it let through have yet to take, by their identity, until they depart.
        self._due: dict[int, tuple[RateStep, ...]] = {}

    async def arrived(self, exchange: Exchange, mount: str, known: Callable[[], bool] | None = None) -> None:
        """A request came, of which nothing is known but where from and where to. Raises RateLimited.

        Also while too many tokens were not accepted that came from there, unless `known` says that its own was. With a
        sieve, `departed` has to follow.
        """
        rates = self._live.now.rates
        if not rates.has_before_auth:
            return
        address = block_of(exchange.address)
        failures = rates.event_demands(RateEvent.AUTH_FAILURE, RateSubject("", None, address), {}, mount)
        steps = _steps((RateStepMode.LOOK, failures), (RateStepMode.TAKE, rates.before_auth(address, mount)))
        if self._sieve is None:
            await self._judge(steps, exchange, mount, known)
            return
        judged = await self._sieve.judge(steps, now=self._clock.elapsed())
        if known is not None and judged.refused is not None and _is_of_tokens(steps[judged.refused]) and known():
            # What many share one address for is locked out by none of them.
            steps = _but_for_tokens(steps)
            judged = await self._sieve.judge(steps, now=self._clock.elapsed())
        if judged.refused is not None:
            self._heed(steps, judged, exchange, mount)
        self._due[id(exchange)] = steps

    async def failed_auth(self, exchange: Exchange, mount: str) -> None:
        """A token that came was not accepted. Raises RateLimited where that is not to be told."""
        rates = self._live.now.rates
        if rates.has_before_auth:
            of = RateSubject("", None, block_of(exchange.address))
            failures = rates.event_demands(RateEvent.AUTH_FAILURE, of, {}, mount)
            await self._judge(_steps((RateStepMode.NOTE, failures)), exchange, mount)

    async def request(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None = None
    ) -> Quota:
        """A caller sent a message with a method; `tool` is the one that it calls. Raises RateLimited.

        The end of a handshake and cancels take from nothing, and pass.
        """
        rates = self._live.now.rates
        if not rates.has_after_auth or method in _ENDS:
            return await self._judge((), exchange, mount, _is_known)
        subject, own = self._stands(caller, exchange, rates)
        demands = rates.demands(subject, own, mount, method, tool)
        if not method.startswith(_ABOUT_TASKS):
            return await self._judge(_steps((RateStepMode.TAKE, demands)), exchange, mount, _is_known)
        event = rates.event_demands(RateEvent.LOOKUP_FAILURE, subject, own, mount)
        return await self._judge(
            _steps((RateStepMode.LOOK, event), (RateStepMode.TAKE, demands)), exchange, mount, _is_known
        )

    async def before_lookups(self, caller: AuthContext, exchange: Exchange, mount: str) -> None:
        """A caller names tasks in a request whose method does not tell. Raises RateLimited."""
        await self._judge(
            _steps((RateStepMode.LOOK, self._of_lookup(caller, exchange, mount))), exchange, mount, _is_known
        )

    async def failed_lookup(self, caller: AuthContext, exchange: Exchange, mount: str) -> bool:
        """A caller asked for a task that it does not have; whether there was room for that."""
        demands = self._of_lookup(caller, exchange, mount)
        if not demands:
            return True
        judged = await self._store.judge((RateStep(RateStepMode.NOTE, demands),), now=self._clock.elapsed())
        return not refuses(demands, judged.verdicts[0])

    async def departed(self, exchange: Exchange, mount: str) -> None:
        """An exchange is over that had arrived: what it has not taken yet is taken. Raises nothing.

        That is of those alone that came to no request: they were refused for something else, or had an answer to bring.
        """
        if id(exchange) in self._due:
            with suppress(RateLimited, StoreUnavailable):
                await self._judge((), exchange, mount)

    def _of_lookup(self, caller: AuthContext, exchange: Exchange, mount: str) -> tuple[Demand, ...]:
        rates = self._live.now.rates
        subject, own = self._stands(caller, exchange, rates)
        return rates.event_demands(RateEvent.LOOKUP_FAILURE, subject, own, mount)

    def _stands(
        self, caller: AuthContext, exchange: Exchange, rates: RatePolicies
    ) -> tuple[RateSubject, Mapping[str, RateLimit]]:
        """Who asks, and the limits of its own."""
        standing = self._standings.of(caller)
        address = block_of(exchange.address) if rates.has_addresses else ""
        own = standing.override.rates if standing.override is not None else _NONE
        return RateSubject(caller.key, standing.tenant, address), own

    # --- the steps --------------------------------------------------------------------------------------------------

    async def _judge(
        self, steps: tuple[RateStep, ...], exchange: Exchange, mount: str, known: Callable[[], bool] | None = None
    ) -> Quota:
        """What is left, after what was due and the steps are done in one: the first that refuses raises RateLimited.

        A caller who is `known` is not refused for tokens that were not accepted.
        """
        due = self._due.pop(id(exchange), ()) if self._due else ()
        steps = due + steps
        if not steps:
            return ()
        asked = self._clock.elapsed()
        judged = await self._store.judge(steps, now=asked)
        if known is not None and judged.refused is not None and _is_of_tokens(steps[judged.refused]) and known():
            steps = _but_for_tokens(steps)
            judged = await self._store.judge(steps, now=asked)
        if self._sieve is not None and judged.counted_as == _ALLOWED:
            self._sieve.learn(steps, judged, asked=asked)
        return self._heed(steps, judged, exchange, mount)

    def _heed(self, steps: Sequence[RateStep], judged: RateJudgement, exchange: Exchange, mount: str) -> Quota:
        quota: Quota = ()
        for number, (way, demands) in enumerate(steps):
            verdicts = judged.verdicts[number]
            self._tell(way, demands, verdicts, judged.counted_as)
            refuses_all = number == judged.refused
            if (
                way is RateStepMode.TAKE
                and self._live.now.exposes_quota
                and (refuses_all or not demands[0].policy.before_auth)
            ):
                quota = quota_fields(demands, verdicts)
            if refuses_all:
                if demands[0].policy.event is RateEvent.AUTH_FAILURE:
                    self._suspicions.raise_once("auth_bruteforce", block_of(exchange.address), mount)
                raise _refusal(demands, verdicts, quota if way is RateStepMode.TAKE else ())
        return quota

    def _tell(
        self, way: RateStepMode, demands: Sequence[Demand], verdicts: Sequence[RateVerdict], counted_as: str
    ) -> None:
        """Tell what each policy said; of one that was only looked at, what it refuses."""
        if way is RateStepMode.NOTE:
            return
        emit = self._event_sink.emit
        for (_, _, _, policy), verdict in zip(demands, verdicts, strict=True):
            if not verdict.allowed:
                emit(RateLimitChecked(policy.name, policy.scope, "shadow" if policy.shadow else "rejected"))
            elif way is RateStepMode.TAKE:
                emit(RateLimitChecked(policy.name, policy.scope, counted_as))


def _is_known() -> bool:
    """Who asks was found out."""
    return True


def _but_for_tokens(steps: Sequence[RateStep]) -> tuple[RateStep, ...]:
    return tuple(step for step in steps if not _is_of_tokens(step))


def _is_of_tokens(step: RateStep) -> bool:
    """Whether it looks at how many tokens were not accepted."""
    return step.way is RateStepMode.LOOK and step.demands[0].policy.event is RateEvent.AUTH_FAILURE


def _steps(*pairs: tuple[RateStepMode, Sequence[Demand]]) -> tuple[RateStep, ...]:
    return tuple([RateStep(way, demands) for way, demands in pairs if demands])


def _refusal(demands: Sequence[Demand], verdicts: Sequence[RateVerdict], quota: Quota) -> OverRate:
    """Of the policy that will refuse for longest: after that all have room."""
    longest, name = -inf, ""
    for demand, verdict in zip(demands, verdicts, strict=True):
        if not (verdict.allowed or demand.policy.shadow) and verdict.retry_after > longest:
            longest, name = verdict.retry_after, demand.policy.name
    return OverRate(_wait(longest), name, quota)


def _wait(seconds: float) -> timedelta:
    return LONGEST if seconds >= LONGEST.total_seconds() else timedelta(seconds=seconds)


def quota_fields(demands: Sequence[Demand], verdicts: Sequence[RateVerdict]) -> Quota:
    """The fields of draft-ietf-httpapi-ratelimit-headers-11, of all policies that refuse, the scarcest first."""
    told = [pair for pair in zip(demands, verdicts, strict=True) if not pair[0].policy.shadow]
    if not told:
        return ()
    told.sort(key=lambda pair: (pair[1].remaining, -pair[1].reset_after))
    policies = (f'"{each.policy.name}";q={each.limit.burst};w={_seconds(_window(each))}' for each, _ in told)
    left = (f'"{each.policy.name}";r={verdict.remaining};t={_seconds(verdict.reset_after)}' for each, verdict in told)
    return (("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(left)))


def _window(demand: Demand) -> float:
    """In how many seconds an empty budget is full again."""
    return demand.limit.every * demand.limit.burst


def _seconds(seconds: float) -> int:
    """Whole seconds that are not too few, but for a hair that comes of the arithmetic."""
    return max(0, ceil(seconds - 1e-6))


def block_of(address: str) -> str:
    """Who shares what is counted by address: of IPv6 all that one site has, which may change its address at will."""
    return address if ":" not in address else _site(address)


@lru_cache(maxsize=4096)
def _site(address: str) -> str:
    return str(IPv6Network((address, 64), strict=False))
