"""The rates, applied: budgets are taken from, refusals raised and counted, and what shadows would have refused too.

What must not live here: which rates are for what (`limits/rates`), and what is left of them (the RateStore).
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from ipaddress import IPv6Network
from math import ceil, inf
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.engine.admission.rules import Live
from taskgate.engine.admission.standing import Standings
from taskgate.engine.messages import Exchange
from taskgate.engine.suspicions import Suspicions
from taskgate.errors import RateLimited
from taskgate.limits.gcra import RateLimit, Verdict
from taskgate.limits.rates import Demand, Event, RatePolicies, RatePolicy, Subject
from taskgate.mcp.vocabulary import NOTE_CANCELLED, NOTE_INITIALIZED
from taskgate.stores.base import RateStore
from taskgate.telemetry.audit import Audit, RateJudged

Quota = tuple[tuple[str, str], ...]
"""HTTP fields that tell what is left; none where the operator does not want that told."""

LONGEST: Final = timedelta(days=1)
"""What is told of a wait that has no end."""
_ABOUT_TASKS: Final = "tasks/"
_ENDS: Final = frozenset({NOTE_INITIALIZED, NOTE_CANCELLED})
"""What ends something that was let in: refused, it would cost released hosts their connection, or a server a call."""
_NONE: Final[Mapping[str, RateLimit]] = {}


class OverRate(RateLimited):
    """A rate refused the request; `quota` are the fields that tell what is left."""

    def __init__(self, retry_after: timedelta, policy: str, quota: Quota) -> None:
        super().__init__(retry_after, policy)
        self.quota = quota


class RateGate:
    """Lets through what the rates have room for. One step is one take: from all policies that refuse, or from none."""

    def __init__(self, *, live: Live, standings: Standings, store: RateStore, audit: Audit, clock: Clock) -> None:
        self._live = live
        self._standings = standings
        self._store = store
        self._audit = audit
        self._clock = clock
        self._suspicions = Suspicions(audit, clock)

    async def arrived(self, exchange: Exchange, mount: str) -> None:
        """A request came, of which nothing is known but where from and where to. Raises RateLimited.

        Also while too many tokens were not accepted that came from there.
        """
        rates = self._live.now.rates
        if not rates.heed_arrivals:
            return
        address = block_of(exchange.address)
        try:
            await self._expect_room(rates.of_event(Event.AUTH_FAILURE, Subject("", None, address), {}, mount))
        except RateLimited:
            self._suspicions.raise_once("auth_bruteforce", address, mount)
            raise
        await self._take(rates.before_auth(address, mount))

    async def failed_auth(self, exchange: Exchange, mount: str) -> None:
        """A token that came was not accepted."""
        rates = self._live.now.rates
        if rates.heed_arrivals:
            of = Subject("", None, block_of(exchange.address))
            await self._note(rates.of_event(Event.AUTH_FAILURE, of, {}, mount))

    async def request(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None = None
    ) -> Quota:
        """A caller sent a message with a method; `tool` is the one that it calls. Raises RateLimited.

        The end of a handshake and cancels take from nothing, and pass.
        """
        rates = self._live.now.rates
        if not rates.heed_requests or method in _ENDS:
            return ()
        subject, own = self._stands(caller, exchange, rates)
        if method.startswith(_ABOUT_TASKS) and (event := rates.of_event(Event.LOOKUP_FAILURE, subject, own, mount)):
            await self._expect_room(event)
        return await self._take(rates.demands(subject, own, mount, method, tool))

    async def before_lookups(self, caller: AuthContext, exchange: Exchange, mount: str) -> None:
        """A caller names tasks in a request whose method does not tell. Raises RateLimited."""
        await self._expect_room(self._of_lookup(caller, exchange, mount))

    async def failed_lookup(self, caller: AuthContext, exchange: Exchange, mount: str) -> bool:
        """A caller asked for a task that it does not have; whether there was room for that."""
        return await self._note(self._of_lookup(caller, exchange, mount))

    def _of_lookup(self, caller: AuthContext, exchange: Exchange, mount: str) -> tuple[Demand, ...]:
        rates = self._live.now.rates
        subject, own = self._stands(caller, exchange, rates)
        return rates.of_event(Event.LOOKUP_FAILURE, subject, own, mount)

    def _stands(
        self, caller: AuthContext, exchange: Exchange, rates: RatePolicies
    ) -> tuple[Subject, Mapping[str, RateLimit]]:
        """Who asks, and the limits of its own."""
        standing = self._standings.of(caller)
        address = block_of(exchange.address) if rates.heed_addresses else ""
        own = standing.override.rates if standing.override is not None else _NONE
        return Subject(caller.key, standing.tenant, address), own

    # --- the steps --------------------------------------------------------------------------------------------------

    async def _take(self, demands: Sequence[Demand]) -> Quota:
        if not demands:
            return ()
        verdicts = await self._store.take(demands, now=self._clock.elapsed())
        all_allowed, record = True, self._audit.record
        for (_, _, _, policy), verdict in zip(demands, verdicts, strict=True):
            if verdict.allowed:
                record(RateJudged(policy.name, policy.scope, "allowed"))
            else:
                all_allowed = False
                self._tell_refused(policy)
        quota = quota_fields(demands, verdicts) if self._live.now.exposes_quota else ()
        if not all_allowed:
            _check(demands, verdicts, quota)
        return quota

    async def _expect_room(self, demands: Sequence[Demand]) -> None:
        """Refuse what may make an event happen that has no room."""
        if not demands:
            return
        verdicts = await self._store.peek(demands, now=self._clock.elapsed())
        has_room = True
        for demand, verdict in zip(demands, verdicts, strict=True):
            if not verdict.allowed:
                has_room = False
                self._tell_refused(demand.policy)
        if not has_room:
            _check(demands, verdicts, ())

    async def _note(self, demands: Sequence[Demand]) -> bool:
        """Take for what has happened already: each from its own budget, whatever the others have.

        Whether all had room that refuse.
        """
        had_room = True
        for demand in demands:
            (verdict,) = await self._store.take((demand,), now=self._clock.elapsed())
            had_room = had_room and (verdict.allowed or demand.policy.shadow)
        return had_room

    def _tell_refused(self, policy: RatePolicy) -> None:
        self._audit.record(RateJudged(policy.name, policy.scope, "shadow" if policy.shadow else "rejected"))


def _check(demands: Sequence[Demand], verdicts: Sequence[Verdict], quota: Quota) -> None:
    """Raise RateLimited for the policy that will refuse for longest, if any refuses: after that all have room."""
    longest, name = -inf, None
    for demand, verdict in zip(demands, verdicts, strict=True):
        if not (verdict.allowed or demand.policy.shadow) and verdict.retry_after > longest:
            longest, name = verdict.retry_after, demand.policy.name
    if name is not None:
        raise OverRate(_wait(longest), name, quota)


def _wait(seconds: float) -> timedelta:
    return LONGEST if seconds >= LONGEST.total_seconds() else timedelta(seconds=seconds)


def quota_fields(demands: Sequence[Demand], verdicts: Sequence[Verdict]) -> Quota:
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
