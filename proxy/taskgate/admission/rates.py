"""Rate limits: `RateLimiter` checks requests against the configured policies. `QuotaSubjects` finds
what a caller counts as.

A policy is a configured rate; for each address, caller or tenant it has a budget in a RateStore. A
request consumes from the budgets of all policies that apply (`domain/rates`), or is refused by one.
It may consume what comes back soon; then it waits for its turn (`rate_queue`). A policy in shadow
mode refuses nothing and only reports.

`Gateway` checks a request before authentication, and each message after it. Nearly all pass at once
(`admits_connection`, `admits`). The others are judged: `on_connection` and `on_request` refuse, or
wait for a store. `on_auth_failure` counts an invalid token. At last `Gateway` calls `flush` if
anything is left in `passed_in_cache`. There are two parts around a store that replicas share:

- `LocalRateCache` answers for it before authentication, without a round trip.
- `FallbackRateStore` replaces it while it is unavailable (`limits.on_store_error`).
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2s
from ipaddress import IPv6Network
from math import ceil, inf
from typing import Final, NamedTuple

from taskgate.admission.rate_queue import QueuedRequest, RateQueue
from taskgate.admission.rules import AdmissionRules, OnStoreError, RuntimeConfig
from taskgate.admission.security_alerts import SecurityAlerts
from taskgate.auth.context import AuthContext, Identity
from taskgate.clock import Clock
from taskgate.domain.limits import Override
from taskgate.domain.rates import Demand, RateEvent, RateLimit, RatePolicy, RateSubject, RateVerdict
from taskgate.errors import RateLimited, StoreUnavailable
from taskgate.protocol.vocabulary import NOTE_CANCELLED, NOTE_INITIALIZED
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode, RateStore
from taskgate.stores.rates import SIZE, MemoryRateStore
from taskgate.streams.exchange import Exchange
from taskgate.streams.rate_checks import PreparedCheck, allowed
from taskgate.telemetry.events import EventSink, RateFallbackUsed, RateLimitChecked

LONGEST_WAIT: Final = timedelta(days=1)
"""The wait that a host is told if it has no end."""
FALLBACK_PAUSE: Final = 60.0
"""Seconds between two events about an unavailable store."""
_TASK_METHODS: Final = "tasks/"
UNNAMED: Final = ""
"""The method of what names none: a response, and a message that could not be read."""
_UNLIMITED: Final = frozenset({NOTE_INITIALIZED, NOTE_CANCELLED})
"""Messages that end something: a refusal would cost a released host its connection, or a server a
call.
"""
_ALLOWED: Final = RateJudgement(()).counted_as
_NOW: Final = (0.0, "")
"""The turn of what may go on at once, and no policy."""
_REMEMBERED: Final = 10_000
_CHECKS: Final = 4096
"""Checks that are remembered of each kind. Then all are forgotten, as hosts choose what tells them apart."""
_MAX_NAMES: Final = 256
"""Characters of method and tool of a remembered check."""
_NO_RATES: Final[Mapping[str, RateLimit]] = {}

QuotaFields = tuple[tuple[str, str], ...]
"""The HTTP fields that report what is left; empty if the operator does not expose them."""


class RateLimitExceeded(RateLimited):
    """A rate refused the request; `quota` are the fields that report what is left."""

    def __init__(self, retry_after: timedelta, policy: str, quota: QuotaFields) -> None:
        super().__init__(retry_after, policy)
        self.quota = quota


class QuotaSubject(NamedTuple):
    """The tenant and the override of a caller, each None if there is none, and its own rates.

    `tenant` is an opaque reference, which differs for equal names of two issuers. `rates` replace
    limits of policies, by name.
    """

    tenant: str | None
    override: Override | None
    rates: Mapping[str, RateLimit] = _NO_RATES


class RateUsage(NamedTuple):
    """The units of a rate that one caller has used and that have not come back, and the most at once."""

    policy: str
    used: int
    most: int


class QuotaSubjects:
    """The subjects of callers by the present configuration. The most recent `size` are cached."""

    def __init__(self, live: RuntimeConfig, *, size: int = _REMEMBERED) -> None:
        self._live = live
        self._size = size
        self._overrides = live.current.overrides
        self._anonymous = _subject(None, self._overrides.find(None, {}))
        # The key has only what the subject depends on, so callers share entries.
        self._cache: OrderedDict[_CacheKey, QuotaSubject] = OrderedDict()

    def of(self, caller: AuthContext) -> QuotaSubject:
        """The subject of a caller."""
        if self._live.current.overrides is not self._overrides:
            self._overrides = self._live.current.overrides
            self._anonymous = _subject(None, self._overrides.find(None, {}))
            self._cache.clear()
        identity = caller.identity
        if identity is None:
            return self._anonymous
        key = (identity.issuer, identity.tenant, self._overrides.relevant_claims(identity.claims))
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        subject = _subject(_reference(identity), self._overrides.find(identity.tenant, identity.claims))
        if len(self._cache) >= self._size:
            self._cache.popitem(last=False)
        self._cache[key] = subject
        return subject

    def concurrency_share(self, caller: AuthContext) -> int | None:
        """The caller's own share of a server's slots; None for the usual one."""
        override = self.of(caller).override
        return None if override is None else override.calls


_CacheKey = tuple[str, str | None, tuple[frozenset[str], ...]]


def _subject(tenant: str | None, override: Override | None) -> QuotaSubject:
    return QuotaSubject(tenant, override, _NO_RATES if override is None else override.rates)


def _reference(identity: Identity) -> str | None:
    if identity.tenant is None:
        return None
    named = json.dumps([identity.issuer, identity.tenant], separators=(",", ":")).encode()
    return blake2s(named, digest_size=16).hexdigest()


class RateLimiter:
    """The checks of requests, in steps. The mode of a step says what it does with its budgets:

    - TAKE consumes from all of them, or refuses the request and consumes nothing.
    - LOOK consumes nothing, and refuses the request if one is empty. It is for rates of failures.
    - NOTE consumes for a failure that has happened, and refuses nothing.

    With a `local_cache` the store is shared, and each request asks it once. Before authentication
    only the cache is asked; the same steps then go to the store together with those after it.

    What is checked of a request is found out once for all requests alike, and remembered until the
    rules change. Before authentication these have the same address and mount, after it the same
    caller, mount, method and tool. At most `max_checks` of either kind are remembered. An admission
    remembers the last check of each: the next request with its head comes from the same address and
    caller.

    - `_near`: the budgets in this process that are asked before authentication
    - `_own`: those that are asked after it; None if the store is shared, or hosts are told what is
      left
    """

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        subjects: QuotaSubjects,
        store: RateStore,
        event_sink: EventSink,
        clock: Clock,
        local_cache: "LocalRateCache | None" = None,
        max_checks: int = _CHECKS,
    ) -> None:
        self._live = live
        self._max_checks = max_checks
        self._subjects = subjects
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._local_cache = local_cache
        self._memory = store if local_cache is None and isinstance(store, MemoryRateStore) else None
        self._near = self._memory if local_cache is None else local_cache.budgets
        self._rules: AdmissionRules | None = None
        self._connections: dict[tuple[str, str], PreparedCheck] = {}
        self._requests: dict[tuple[str, str, str, str | None, str], PreparedCheck] = {}
        self._alerts = SecurityAlerts(event_sink, clock)
        self.queue = RateQueue()
        """The requests that wait for their turn."""
        self.passed_in_cache: dict[int, tuple[RateStep, ...]] = {}
        """With a cache: the steps that an exchange has passed there and not yet in the store, by the
        `id()` of the exchange. `on_request` or `flush` takes them."""

    def admits_connection(self, exchange: Exchange, mount: str, now: float) -> bool:
        """Check a request before authentication, by its address and mount, at this monotonic time.

        False if it is not clear at once that it passes. Then nothing was consumed, and
        `on_connection` has to judge. `flush` must follow.
        """
        if self._near is None:
            return not self._live.current.rates.has_before_auth
        check = exchange.head.connection_check
        if check is None or check.rules is not self._live.current or check.mount != mount:
            check = self._connection_check(exchange, mount)
        if not self._near.permits(check, now):
            return False
        if self._local_cache is None:
            for event in check.events:
                self._event_sink.emit(event)
        elif check.looked or check.taken:
            self.passed_in_cache[id(exchange)] = self._connection_steps(exchange, mount)
        return True

    async def on_connection(self, exchange: Exchange, mount: str, is_known: Callable[[], bool] | None = None) -> None:
        """Check a request before authentication that is not admitted at once. Raises RateLimited.

        It is also refused if its address sent too many invalid tokens, unless `is_known` returns
        True: its own token was accepted before. `flush` must follow, also if this raises.
        """
        store = self._store if self._local_cache is None else self._local_cache
        await self._judge(store, self._connection_steps(exchange, mount), exchange, mount, is_known)

    async def on_auth_failure(self, exchange: Exchange, mount: str) -> None:
        """Count an invalid token. Raises RateLimited, in place of the 401, beyond the rate."""
        rates = self._live.current.rates
        if rates.has_before_auth:
            subject = RateSubject("", "", None, address_block(exchange.address))
            failures = rates.event_demands(RateEvent.AUTH_FAILURE, subject, {}, mount)
            await self._judge(self._store, _steps((RateStepMode.NOTE, failures)), exchange, mount)

    def admits(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None, now: float
    ) -> bool:
        """Check a message of an authenticated caller that came at this monotonic time; `tool` is the one that
        it calls.

        False if it is not clear at once that it passes, or if its host is told what is left. Then
        nothing was consumed, and `on_request` has to judge.
        """
        rules, head = self._live.current, exchange.head
        if self._memory is None or rules.exposes_quota:
            return False
        check = head.request_check
        if (
            check is None
            or head.caller is not caller
            or check.rules is not rules
            or check.method != method
            or check.tool != tool
            or check.mount != mount
        ):
            check = self._request_check(caller, exchange, mount, method, tool)
        if not self._memory.permits(check, now):
            return False
        for event in check.events:
            self._event_sink.emit(event)
        return True

    async def on_request(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None = None
    ) -> tuple[QuotaFields, QueuedRequest | None]:
        """Check a message that is not admitted at once. Raises RateLimited.

        The end of a handshake and cancellations consume nothing, and pass. A message whose turn comes
        later is queued: the caller of this waits for it at once.
        """
        steps = self._request_steps(caller, self._subjects.of(caller), exchange, mount, method, tool)
        return await self._take(steps, caller, exchange, mount)

    async def on_unread(self, caller: AuthContext, exchange: Exchange, mount: str) -> None:
        """Count a body that is no message, as a message of a method that no policy names. Raises RateLimited.

        It waits for no later turn: all that is left to do is to refuse it.
        """
        steps = self._request_steps(caller, self._subjects.of(caller), exchange, mount, UNNAMED, None)
        await self._judge(self._store, steps, exchange, mount, _always_known)

    async def on_large_body(self, caller: AuthContext, exchange: Exchange, mount: str, size: int) -> None:
        """Take so many bytes of a large body from the rates of its caller; the body may wait for its turn.

        Raises RateLimited, and ScopeCancelled if its host leaves.
        """
        quota, address = self._subjects.of(caller), address_block(exchange.address)
        subject = RateSubject(caller.key, caller.subject, quota.tenant, address)
        demands = self._live.current.rates.body_demands(size, subject, quota.rates, mount)
        if demands:
            _, queued = await self._take(_steps((RateStepMode.TAKE, demands)), caller, exchange, mount)
            if queued is not None:
                await queued.wait(exchange, None, None)

    async def _take(
        self, steps: tuple[RateStep, ...], caller: AuthContext, exchange: Exchange, mount: str
    ) -> tuple[QuotaFields, QueuedRequest | None]:
        """Take these steps for a caller. Raises RateLimited. What gets a later turn is queued."""
        if steps and self.queue.is_full(caller.subject):
            await self._refuse_later_turns(steps)
        quota, turn, policy = await self._judge(self._store, steps, exchange, mount, _always_known)
        if not turn:
            return quota, None
        if self.queue.is_full(caller.subject):
            # Others became its last ones while a shared store judged.
            raise RateLimitExceeded(timedelta(seconds=turn), policy, quota)
        return quota, self.queue.enter(caller.subject, turn)

    async def _refuse_later_turns(self, steps: Sequence[RateStep]) -> None:
        """Refuse a message that no budget lets through at once; consume nothing. Raises RateLimited."""
        looks = [RateStep(RateStepMode.LOOK, each.demands) for each in steps]
        judged = await self._store.judge(looks, now=self._clock.elapsed())
        for (_, demands), verdicts in zip(steps, judged.verdicts, strict=False):
            late = [
                demand.policy
                for demand, verdict in zip(demands, verdicts, strict=True)
                if verdict.retry_after and not demand.policy.shadow
            ]
            if late:
                for policy in late:
                    self._event_sink.emit(RateLimitChecked(policy.name, policy.scope, "rejected"))
                raise _exceeded(demands, verdicts, ())

    async def check_lookups(self, caller: AuthContext, exchange: Exchange, mount: str) -> None:
        """Check the rate of failed look-ups, for a request that names tasks in its body. Raises
        RateLimited.
        """
        steps = _steps((RateStepMode.LOOK, self._lookup_demands(caller, exchange, mount)))
        await self._judge(self._store, steps, exchange, mount, _always_known)

    async def on_lookup_failure(self, caller: AuthContext, exchange: Exchange, mount: str) -> bool:
        """Count a failed look-up of a task; return whether it was within the rate."""
        demands = self._lookup_demands(caller, exchange, mount)
        if not demands:
            return True
        judged = await self._store.judge((RateStep(RateStepMode.NOTE, demands),), now=self._clock.elapsed())
        return all(one.allowed or each.policy.shadow for each, one in zip(demands, judged.verdicts[0], strict=True))

    async def flush(self, exchange: Exchange, mount: str) -> None:
        """Consume from the store what an exchange has passed in the cache only. Raises nothing.

        It has an effect if no `on_request` came: the exchange was refused before, or brought a
        response.
        """
        if id(exchange) in self.passed_in_cache:
            with suppress(RateLimited, StoreUnavailable):
                await self._judge(self._store, (), exchange, mount)

    async def usage(self, context: str, subject: str | None, quota: QuotaSubject) -> tuple[RateUsage, ...]:
        """What a caller has used of each rate for callers; consumes nothing. Raises StoreUnavailable.

        `subject` is that of `AuthContext`; without it the rates of its person are left out.
        """
        demands = self._live.current.rates.caller_demands(context, subject, quota.rates)
        if not demands:
            return ()
        judged = await self._store.judge((RateStep(RateStepMode.LOOK, demands),), now=self._clock.elapsed())
        return tuple(
            RateUsage(each.policy.name, each.limit.burst - verdict.remaining, each.limit.burst)
            for each, verdict in zip(demands, judged.verdicts[0], strict=True)
        )

    def _lookup_demands(self, caller: AuthContext, exchange: Exchange, mount: str) -> tuple[Demand, ...]:
        rates = self._live.current.rates
        quota = self._subjects.of(caller)
        address = address_block(exchange.address) if rates.has_addresses else ""
        subject = RateSubject(caller.key, caller.subject, quota.tenant, address)
        return rates.event_demands(RateEvent.LOOKUP_FAILURE, subject, quota.rates, mount)

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _follow_rules(self) -> None:
        """Forget what was remembered for other rules than the present ones."""
        self._rules = self._live.current
        self._connections.clear()
        self._requests.clear()

    def _connection_steps(self, exchange: Exchange, mount: str) -> tuple[RateStep, ...]:
        """The steps of a request before authentication."""
        rates = self._live.current.rates
        if not rates.has_before_auth:
            return ()
        address = address_block(exchange.address)
        failures = rates.event_demands(RateEvent.AUTH_FAILURE, RateSubject("", "", None, address), {}, mount)
        return _steps((RateStepMode.LOOK, failures), (RateStepMode.TAKE, rates.before_auth(address, mount)))

    def _connection_check(self, exchange: Exchange, mount: str) -> PreparedCheck:
        """The check of these steps, from now on remembered."""
        rules = self._live.current
        if self._rules is not rules:
            self._follow_rules()
        key = exchange.address if rules.rates.has_before_auth else "", mount
        check = self._connections.get(key)
        if check is None:
            check = PreparedCheck(self._connection_steps(exchange, mount), rules, mount)
            if len(self._connections) >= self._max_checks:
                self._connections.clear()
            self._connections[key] = check
        exchange.head.connection_check = check
        return check

    def _request_steps(
        self, caller: AuthContext, quota: QuotaSubject, exchange: Exchange, mount: str, method: str, tool: str | None
    ) -> tuple[RateStep, ...]:
        """The steps of a message of an authenticated caller, whose subject is `quota`."""
        rates = self._live.current.rates
        if not rates.has_after_auth or method in _UNLIMITED:
            return ()
        address = address_block(exchange.address) if rates.has_addresses else ""
        subject = RateSubject(caller.key, caller.subject, quota.tenant, address)
        steps = _steps((RateStepMode.TAKE, rates.demands(subject, quota.rates, mount, method, tool)))
        if rates.has_lookup_failures and method.startswith(_TASK_METHODS):
            failures = rates.event_demands(RateEvent.LOOKUP_FAILURE, subject, quota.rates, mount)
            steps = (*_steps((RateStepMode.LOOK, failures)), *steps)
        return steps

    def _request_check(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None
    ) -> PreparedCheck:
        """The check of these steps, from now on remembered for callers with this key and subject."""
        rules = self._live.current
        if self._rules is not rules:
            self._follow_rules()
        key = caller.key, mount, method, tool, exchange.address if rules.rates.has_addresses else ""
        check, subject = self._requests.get(key), self._subjects.of(caller)
        if check is None or check.subject is not subject:
            steps = self._request_steps(caller, subject, exchange, mount, method, tool)
            check = PreparedCheck(steps, rules, mount, method, tool, subject)
            if len(method) + len(tool or "") > _MAX_NAMES:
                return check
            if len(self._requests) >= self._max_checks:
                self._requests.clear()
            self._requests[key] = check
        if exchange.head.caller is caller:
            exchange.head.request_check = check
        return check

    async def _judge(
        self,
        store: RateStore,
        steps: tuple[RateStep, ...],
        exchange: Exchange,
        mount: str,
        is_known: Callable[[], bool] | None = None,
    ) -> tuple[QuotaFields, float, str]:
        """Have `store` judge these steps, after those that were passed in the cache only. `store` is
        the cache itself before authentication.

        The first step that refuses raises RateLimited. Returns the fields that report what is left,
        the seconds until the turn of what was consumed ahead, and the policy that lets it wait.
        If `is_known` returns True, the request is not refused for invalid tokens of its address.
        What each policy decided is emitted; of a step that only looks, the refusals.
        """
        if self.passed_in_cache:
            steps = self.passed_in_cache.pop(id(exchange), ()) + steps
        if not steps:
            return (), *_NOW
        asked = self._clock.elapsed()
        judged = await store.judge(steps, now=asked)
        if is_known is not None and judged.refused is not None and _is_token_step(steps[judged.refused]) and is_known():
            # A caller behind a shared address is not locked out by its neighbours.
            steps = _without_token_steps(steps)
            judged = await store.judge(steps, now=asked)
        if store is self._local_cache:
            if judged.refused is None:
                self.passed_in_cache[id(exchange)] = steps
                return (), *_NOW
        elif self._local_cache is not None and judged.counted_as == _ALLOWED:
            self._local_cache.learn(steps, judged, asked=asked)
        quota: QuotaFields = ()
        turn, policy = _NOW
        for number, (way, demands) in enumerate(steps):
            verdicts = judged.verdicts[number]
            if way is not RateStepMode.NOTE:
                latest = self._report(way, demands, verdicts, judged)
                if latest[0] > turn:
                    turn, policy = latest
            is_refused = number == judged.refused
            if (
                way is RateStepMode.TAKE
                and self._live.current.exposes_quota
                and (is_refused or not demands[0].policy.before_auth)
            ):
                quota = quota_fields(demands, verdicts)
            if is_refused:
                if demands[0].policy.event is RateEvent.AUTH_FAILURE:
                    self._alerts.raise_once("auth_bruteforce", address_block(exchange.address), mount)
                raise _exceeded(demands, verdicts, quota if way is RateStepMode.TAKE else ())
        return quota, turn, policy

    def _report(
        self,
        way: RateStepMode,
        demands: Sequence[Demand],
        verdicts: Sequence[RateVerdict],
        judged: RateJudgement,
    ) -> tuple[float, str]:
        """Report what each policy decided in a step.

        Returns the seconds until the latest turn that it granted, and its policy.
        """
        emit, latest = self._event_sink.emit, _NOW
        for (_, _, _, policy), verdict in zip(demands, verdicts, strict=True):
            if not verdict.allowed:
                emit(RateLimitChecked(policy.name, policy.scope, "shadow" if policy.shadow else "rejected"))
            elif way is not RateStepMode.TAKE:
                continue
            elif verdict.retry_after and judged.refused is None:
                emit(RateLimitChecked(policy.name, policy.scope, "delayed"))
                latest = max(latest, (verdict.retry_after, policy.name))
            elif judged.counted_as == _ALLOWED:
                emit(allowed(policy))
            else:
                emit(RateLimitChecked(policy.name, policy.scope, judged.counted_as))
        return latest


def _always_known() -> bool:
    return True


def _without_token_steps(steps: Sequence[RateStep]) -> tuple[RateStep, ...]:
    return tuple(step for step in steps if not _is_token_step(step))


def _is_token_step(step: RateStep) -> bool:
    """Whether a step checks the rate of invalid tokens."""
    return step.way is RateStepMode.LOOK and step.demands[0].policy.event is RateEvent.AUTH_FAILURE


def _steps(*pairs: tuple[RateStepMode, Sequence[Demand]]) -> tuple[RateStep, ...]:
    return tuple([RateStep(way, demands) for way, demands in pairs if demands])


def _exceeded(demands: Sequence[Demand], verdicts: Sequence[RateVerdict], quota: QuotaFields) -> RateLimitExceeded:
    """The error for the policy that refuses for longest: after its wait all policies allow the
    request.
    """
    longest, name = -inf, ""
    for demand, verdict in zip(demands, verdicts, strict=True):
        if verdict.retry_after > max(longest, 0.0) and not demand.policy.shadow:
            longest, name = verdict.retry_after, demand.policy.name
    wait = LONGEST_WAIT if longest >= LONGEST_WAIT.total_seconds() else timedelta(seconds=longest)
    return RateLimitExceeded(wait, name, quota)


def address_block(address: str) -> str:
    """What counts as one address: of IPv6 the /64 of a site, which can change its address at will."""
    return address if ":" not in address else _site(address)


@lru_cache(maxsize=4096)
def _site(address: str) -> str:
    return str(IPv6Network((address, 64), strict=False))


# --- rates that replicas share ----------------------------------------------------------------------------------------


class LocalRateCache:
    """A copy in this process of the shared budgets of addresses, at most `size` of them.

    It passes each request that it has no reason to refuse; the shared store judges the same steps
    later. It refuses nothing that the store would allow, because everything consumed here is
    consumed there. What came while the store was unavailable is the exception: it counts only here
    until it expires.
    """

    def __init__(self, size: int = SIZE) -> None:
        self.budgets = MemoryRateStore(size, is_lenient=True)
        """The budgets of this process; `learn` corrects what they are charged."""

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """The judgement of this process; `learn` corrects what it consumes."""
        return await self.budgets.judge(steps, now=now)

    def learn(self, steps: Sequence[RateStep], judged: RateJudgement, *, asked: float) -> None:
        """Set these budgets as the shared store has them after it judged the steps, at `asked`.

        What was consumed here and not there is given back.
        """
        for number, (way, demands) in enumerate(steps):
            was_reached = judged.refused is None or number <= judged.refused
            gives_back = way is RateStepMode.TAKE and (not was_reached or number == judged.refused)
            for place, demand in enumerate(demands):
                if _is_before_auth(demand.policy):
                    owed = judged.verdicts[number][place].reset_after if was_reached else 0.0
                    self.budgets.correct(demand, given_back=gives_back, owed_until=asked + owed)


def _is_before_auth(policy: RatePolicy) -> bool:
    return not policy.shadow and (policy.before_auth or policy.event is RateEvent.AUTH_FAILURE)


class FallbackRateStore:
    """A RateStore: the shared one or, while that is unavailable, what the configuration chooses.

    That is to refuse everything, to allow everything, or to judge in this process alone
    (`OnStoreError`). `processes` returns how many replicas share the budgets: alone, each has only
    its part of them.
    """

    def __init__(
        self,
        store: RateStore,
        *,
        live: RuntimeConfig,
        processes: Callable[[], int],
        event_sink: EventSink,
        clock: Clock,
    ) -> None:
        self._store = store
        self._live = live
        self._processes = processes
        self._event_sink = event_sink
        self._clock = clock
        self._own = MemoryRateStore()
        self._emitted_at = -inf

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        # Raises StoreUnavailable if the configuration refuses everything meanwhile.
        try:
            return await self._store.judge(steps, now=now)
        except StoreUnavailable:
            rule = self._live.current.on_store_error
            self._emit(rule)
            if rule is OnStoreError.CLOSED:
                raise
        if rule is OnStoreError.OPEN:
            return RateJudgement([tuple(map(_allow, each.demands)) for each in steps], counted_as="fail_open")
        share = max(1, self._processes())
        judged = await self._own.judge([_part(each, share) for each in steps], now=now)
        return judged._replace(counted_as="fail_local")

    def _emit(self, rule: OnStoreError) -> None:
        now = self._clock.elapsed()
        if now - self._emitted_at >= FALLBACK_PAUSE:
            self._emitted_at = now
            self._event_sink.emit(RateFallbackUsed(rule.value))


def _allow(demand: Demand) -> RateVerdict:
    return RateVerdict(True, demand.limit.burst, 0.0, 0.0)


def _part(step: RateStep, share: int) -> RateStep:
    """The step with the part of each limit that one of `share` processes has.

    A part is enough for at least one request.
    """
    if share == 1:
        return step
    return RateStep(step.way, [each._replace(limit=_part_of(each.limit, share, each.cost)) for each in step.demands])


def _part_of(limit: RateLimit, share: int, cost: int) -> RateLimit:
    return RateLimit(every=limit.every * share, burst=max(cost, limit.burst // share), ahead=limit.ahead)


# --- the HTTP fields --------------------------------------------------------------------------------------------------


def quota_fields(demands: Sequence[Demand], verdicts: Sequence[RateVerdict]) -> QuotaFields:
    """The fields of draft-ietf-httpapi-ratelimit-headers-11 for all enforced policies, the scarcest
    first.
    """
    enforced = [pair for pair in zip(demands, verdicts, strict=True) if not pair[0].policy.shadow]
    if not enforced:
        return ()
    enforced.sort(key=lambda pair: (pair[1].remaining, -pair[1].reset_after))
    policies = (f'"{each.policy.name}";q={each.limit.burst};w={_seconds(_window(each))}' for each, _ in enforced)
    left = (
        f'"{each.policy.name}";r={verdict.remaining};t={_seconds(verdict.reset_after)}' for each, verdict in enforced
    )
    return (("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(left)))


def _window(demand: Demand) -> float:
    """The seconds in which an empty budget fills up."""
    return demand.limit.every * demand.limit.burst


def _seconds(seconds: float) -> int:
    """Whole seconds, rounded up except for a rounding error of the arithmetic."""
    return max(0, ceil(seconds - 1e-6))


_: type[RateStore] = FallbackRateStore
