"""Section `limits`: rates, concurrency and sizes that callers may use, and overrides for some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from taskgate.config.fields import (
    GIB,
    KIB,
    MIB,
    MINUTE,
    NOT_EMPTY,
    SECOND,
    Count,
    DurationIn,
    Flag,
    Glob,
    MemorySize,
    Name,
    Rate,
    RateText,
    Section,
    SizeIn,
    Text,
    read_rate,
)
from taskgate.config.problems import Conflict, Location, dotted, list_at, mapping_at
from taskgate.config.sections.auth import auth_mode, has_tenants, without_tenants
from taskgate.config.sections.tasks import MAX_TTL
from taskgate.domain.limits import Caps, Override, Overrides
from taskgate.domain.rates import RateEvent, RateLimit, RatePolicies, RatePolicy, RateScope
from taskgate.protocol.discovery import CatalogueBounds

_RATES: Final = ("limits", "rate")
_OVERRIDES: Final = ("limits", "overrides")
_CAPS: Final = (
    "tasks_per_context",
    "tasks_per_subject",
    "tasks_per_tenant",
    "tasks_per_tool",
    "tasks_per_upstream",
    "tasks_global",
    "kept_per_context",
    "kept_per_subject",
    "kept_global",
)

_StoredSize = Annotated[int, SizeIn(least=KIB, most=2**10 * GIB)]


def _default_in_schema(default: str | None) -> Any:
    # pydantic writes the default of a nullable size as a number into the JSON Schema.
    return Field(json_schema_extra={"default": default})


# --- rates ----------------------------------------------------------------------------------------------------------


class RatePolicySection(Section):
    """A rate limit: a token bucket for each address, person, caller, tenant, upstream or tool.

    A request takes a token from every policy that applies to it, or none where one of them refuses.
    """

    name: Name
    """The unique name of the policy in refusals, metrics and overrides."""
    scope: Literal["ip", "subject", "context", "tenant", "upstream", "tool", "global"]
    """Which requests share a bucket: those of one address, person, caller or tenant, or to one
    upstream or tool, or all.

    subject: all clients of one subject of an issuer; context: one of its clients; ip: IPv6 addresses
    count by their /64; tenant: does not apply to callers without a tenant; tool:
    applies to tools/call alone.
    """
    rate: RateText
    """The sustained rate: 5/s, 10/m or 100/h."""
    burst: Count | None = None
    """The size of the bucket; null means the number of the rate."""
    methods: Annotated[tuple[Glob, ...], *NOT_EMPTY] | None = None
    """Globs over the methods of requests and notifications that the policy applies to; null means
    all.

    notifications/initialized and cancellations are never limited. ["*"] alone means the rest: the
    methods that no other policy of the same scope names, and GET streams. Here, subject and
    context are the same scope.
    """
    upstream: Text | None = None
    """Name of the upstream that the policy applies to; null means every one."""
    tool: Glob | None = None
    """Glob over names of tools: the policy applies to calls of those; null means every request."""
    event: Literal["auth_failure", "lookup_failure", "large_body"] | None = None
    """What it counts instead of requests: refused tokens, look-ups of tasks that were not found, or
    KiB of bodies above 256 KiB.

    Beyond the rate, auth_failure refuses every request of the address unless its token was accepted
    before; lookup_failure refuses requests about tasks. With large_body nothing more than the head
    of a request is read until its turn comes.
    """
    cost: Count = 1
    """How many tokens of the bucket one request, or one KiB with large_body, takes."""
    before_auth: Flag = False
    """Whether it is checked before authentication, by address alone."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """enforce: requests beyond the rate wait for their turn (limits.wait), or are refused; shadow: they
    are counted and pass.
    """

    @property
    def max_burst(self) -> int:
        """Return `burst`, or its default."""
        return self.rate.count if self.burst is None else self.burst

    def burst_at(self, rate: Rate) -> int:
        """Return the burst of an override, in the proportion of the rates.

        It is rounded up and at least `cost`, so that one request can pass.
        """
        numerator, denominator = rate.count * self.rate.seconds, self.rate.count * rate.seconds
        return max(self.cost, -(-self.max_burst * numerator // denominator))

    def ahead(self, wait: timedelta) -> float:
        """Return the seconds that a request may wait for its turn, of `limits.wait`.

        What protects refuses at once: policies before authentication, and those of failures.
        """
        is_waited_for = self.event in (None, "large_body") and not self.before_auth and self.mode == "enforce"
        return wait.total_seconds() if is_waited_for else 0.0

    def to_policy(self, wait: timedelta = timedelta()) -> RatePolicy:
        """Return the policy of the rate limiter; a request may wait for its turn so long."""
        return RatePolicy(
            name=self.name,
            scope=RateScope(self.scope),
            limit=RateLimit(every=self.rate.every, burst=self.max_burst, ahead=self.ahead(wait)),
            methods=self.methods,
            upstream=self.upstream,
            tool=self.tool,
            event=None if self.event is None else RateEvent(self.event),
            cost=self.cost,
            before_auth=self.before_auth,
            shadow=self.mode == "shadow",
        )


def _per_second(count: int) -> Rate:
    return Rate(count=count, unit="s")


_HANDSHAKE: Final = ("initialize", "ping", "server/discover", "notifications/initialized")
_DEFAULT_RATES = (
    RatePolicySection(name="ip", scope="ip", rate=_per_second(1000), burst=2000, before_auth=True),
    RatePolicySection(name="auth_failures", scope="ip", rate=_per_second(1), burst=20, event="auth_failure"),
    RatePolicySection(name="handshake", scope="subject", rate=_per_second(50), burst=500, methods=_HANDSHAKE),
    RatePolicySection(name="calls", scope="subject", rate=_per_second(10), burst=60, methods=("tools/call",)),
    RatePolicySection(name="polls", scope="subject", rate=_per_second(20), burst=60, methods=("tasks/*",)),
    RatePolicySection(name="rest", scope="subject", rate=_per_second(40), burst=400, methods=("*",)),
    # KiB. Parsing takes 5 to 20 ms for each MiB, so 16 MiB a second of a person take a third of the thread for it.
    RatePolicySection(name="bodies", scope="subject", rate=_per_second(16 * KIB), burst=64 * KIB, event="large_body"),
)


# --- concurrency and sizes ------------------------------------------------------------------------------------------


class ConcurrencySection(Section):
    """Limits of what exists or runs at once."""

    tasks_per_context: Count = 10
    """Unfinished tasks of one caller; with auth.mode none all hosts are one caller."""
    tasks_per_subject: Count | None = None
    """Unfinished tasks of all clients of one subject of an issuer; null means twice tasks_per_context."""
    tasks_per_tenant: Count | None = 100
    """Unfinished tasks of one tenant; null means any number."""
    tasks_per_tool: Count | None = None
    """Unfinished tasks of one tool of one upstream; null means any number."""
    tasks_per_upstream: Count | None = None
    """Unfinished tasks of one upstream; null means any number."""
    tasks_global: Count | None = 1000
    """Unfinished tasks altogether; null means any number."""
    calls_per_context: Count = 8
    """The most calls, those of tasks included, that one subject of an issuer runs at one upstream, with
    all of its clients, while a subject with fewer waits.

    If none waits, it may run more. Of eight permits and more, an eighth is for callers without any;
    a caller that calls alone gets all but one of these, too.
    """
    kept_per_context: Annotated[_StoredSize | None, _default_in_schema("256MiB")] = 256 * MIB
    """Stored bytes of one caller's tasks, from which no new task is made; null means any size."""
    kept_per_subject: Annotated[_StoredSize | None, _default_in_schema(None)] = None
    """The same for all clients of one subject of an issuer; null means twice kept_per_context."""
    kept_global: Annotated[_StoredSize | None, _default_in_schema("2GiB")] = 2 * GIB
    """Stored bytes of all tasks, from which no new task is made; null means any size."""
    sessions_per_context: Count = 100
    """Sessions of one caller's hosts. One more ends the session that is idle for longest: no stream, request or
    unfinished task. If all are in use, it is refused."""
    sessions_per_subject: Count | None = None
    """Sessions of all clients of one subject of an issuer; null means twice sessions_per_context."""
    waits_per_context: Count = 64
    """Requests of one caller that wait for results of tasks (tasks/result)."""
    waits_per_subject: Count | None = None
    """The same for all clients of one subject of an issuer; null means twice waits_per_context."""
    waits_global: Count | None = 2048
    """Requests that wait for results of tasks altogether; null means any number."""
    bytes_in_flight_per_context: _StoredSize = 32 * MIB
    """Bytes of one caller's large messages in flight, beyond which a large request is refused."""
    bytes_in_flight_per_subject: Annotated[_StoredSize | None, _default_in_schema(None)] = None
    """The same for all clients of one subject of an issuer; null means twice bytes_in_flight_per_context."""
    bytes_in_flight_global: _StoredSize = 256 * MIB
    """Bytes of all large messages in flight, beyond which a large request is refused."""
    streams_kept_per_context: _StoredSize = 16 * MIB
    """Bytes of events stored for the resumable streams of one subject of an issuer, with all of its
    clients; beyond it the oldest ended streams are dropped first.
    """
    streams_kept_global: _StoredSize = 256 * MIB
    """Bytes of events stored for all resumable streams; beyond it the oldest ended streams are
    dropped first.
    """

    def to_caps(self) -> Caps:
        """Return the caps of tasks."""
        return Caps(**{name: getattr(self, name) for name in _CAPS})


class CatalogueSection(Section):
    """Limits of a server's list of tools, all pages together; a larger one is refused as a whole."""

    max_tools: Count = 10_000
    """Tools of one server."""
    max_bytes: MemorySize = 16 * MIB
    """Bytes of the answers that list them."""

    def to_bounds(self) -> CatalogueBounds:
        """Return the bounds of a list of tools."""
        return CatalogueBounds(self.max_tools, self.max_bytes)


# --- overrides ------------------------------------------------------------------------------------------------------


class OverrideMatchSection(Section):
    """The callers that an override applies to: those that match every key."""

    tenant: Text | None = None
    """The tenant, of any issuer (match the claim iss to name one); null means any tenant, or none.
    """
    claims: Mapping[Text, Annotated[tuple[Text, ...], *NOT_EMPTY]] = {}
    """Claims, and for each the values of which the token must have one; {} means every token.

    Numbers and booleans are written as text: "5", "true".
    """


class OverrideConcurrencySection(Section):
    """Values in place of those of limits.concurrency; null keeps those."""

    tasks_per_context: Count | None = None
    """Replaces limits.concurrency.tasks_per_context; null keeps it."""
    tasks_per_subject: Count | None = None
    """Replaces limits.concurrency.tasks_per_subject; null keeps it."""
    tasks_per_tenant: Count | None = None
    """Replaces limits.concurrency.tasks_per_tenant; null keeps it."""
    tasks_per_tool: Count | None = None
    """Replaces limits.concurrency.tasks_per_tool; null keeps it."""
    tasks_per_upstream: Count | None = None
    """Replaces limits.concurrency.tasks_per_upstream; null keeps it."""
    tasks_global: Count | None = None
    """Replaces limits.concurrency.tasks_global; null keeps it."""
    calls_per_context: Count | None = None
    """Replaces limits.concurrency.calls_per_context; null keeps it."""
    kept_per_context: _StoredSize | None = None
    """Replaces limits.concurrency.kept_per_context; null keeps it."""
    kept_per_subject: _StoredSize | None = None
    """Replaces limits.concurrency.kept_per_subject; null keeps it."""
    kept_global: _StoredSize | None = None
    """Replaces limits.concurrency.kept_global; null keeps it."""


class OverrideSection(Section):
    """Limits that replace the general ones for some callers."""

    match: OverrideMatchSection
    rate: Mapping[Name, RateText] = {}
    """Rates by the names of policies, in place of theirs; the burst changes in the same proportion.
    """
    concurrency: OverrideConcurrencySection = OverrideConcurrencySection()
    ttl_max: Annotated[timedelta, DurationIn(most=MAX_TTL)] | None = None
    """The longest time to live, and the age at which running tasks end, in place of tasks.ttl.max and the
    ttl_max of rules; null keeps those.
    """

    def to_override(self, policies: Mapping[str, RatePolicySection], wait: timedelta) -> Override:
        """Return the override; `policies` are those of `limits.rate` by name, and `wait` is `limits.wait`."""
        caps = {name: getattr(self.concurrency, name) for name in _CAPS}
        return Override(
            tenant=self.match.tenant,
            claims={claim: frozenset(values) for claim, values in self.match.claims.items()},
            rates={
                name: RateLimit(every=rate.every, burst=policies[name].burst_at(rate), ahead=policies[name].ahead(wait))
                for name, rate in self.rate.items()
            },
            caps={name: cap for name, cap in caps.items() if cap is not None},
            calls=self.concurrency.calls_per_context,
            ttl_max=self.ttl_max,
        )


class LimitsSection(Section):
    """Limits of what callers may use."""

    reject_as: Literal["jsonrpc", "http", "tool_error"] = "jsonrpc"
    """How a request is refused that is over a limit.

    jsonrpc: a JSON-RPC error with HTTP 200; http: the same with HTTP 429; tool_error: for
    tools/call a result with isError, which models read, otherwise as jsonrpc.
    """
    expose_quota: Flag = False
    """Whether answers say how much is left, in RateLimit and RateLimit-Policy."""
    wait: Annotated[timedelta, DurationIn(least=timedelta(), most=MINUTE)] = 3 * SECOND
    """The longest time that a request waits for its turn at a rate for callers; 0s refuses at once.

    A request beyond the rate waits if its turn comes within this time, in the order of arrival. At
    most 256 requests of a caller wait at once, and 4096 of all. Rates of failures, and those with
    before_auth, refuse at once.
    """
    on_store_error: Literal["local", "open", "closed"] = "local"
    """What rate limits decide while the store that several gateways share is not available.

    local: each gateway allows its part, the rate divided by the number of gateways; open: all
    requests pass; closed: requests are refused with code 503.
    """
    replace_defaults: Flag = False
    """false: entries of rate add to the built-in policies, and one with the name of a built-in policy
    replaces it; true: only the entries of rate count.
    """
    rate: tuple[RatePolicySection, ...] = _DEFAULT_RATES
    """Rate limits, merged by name with the built-in ones; [] means none at all."""
    concurrency: ConcurrencySection = ConcurrencySection()
    catalogue: CatalogueSection = CatalogueSection()
    overrides: tuple[OverrideSection, ...] = ()
    """Limits that replace the general ones for some callers; the first that matches applies."""

    def is_built_in(self, number: int) -> bool:
        """Whether the policy at that index of `rate` is a built-in one that the file does not name."""
        return any(self.rate[number] is each for each in _DEFAULT_RATES)

    def to_rate_policies(self) -> RatePolicies:
        """Return the policies of `rate` in the order of the file."""
        return RatePolicies(tuple(policy.to_policy(self.wait) for policy in self.rate))

    def to_overrides(self) -> Overrides:
        """Return the overrides in the order of the file."""
        policies = {policy.name: policy for policy in self.rate}
        return Overrides(override.to_override(policies, self.wait) for override in self.overrides)


def with_built_in_rates(raw: object) -> object:
    """Add the built-in policies to `limits.rate` that it does not name, after its entries.

    An empty list stays empty. With `replace_defaults` nothing is added, and an absent list is empty.
    """
    limits = mapping_at(raw, "limits")
    rates = list_at(raw, *_RATES)
    if not isinstance(raw, Mapping) or not (rates or _drops_built_in(limits)):
        return raw
    if not _drops_built_in(limits):
        names = {mapping_at(each).get("name") for each in rates}
        rates = [*rates, *(each for each in _DEFAULT_RATES if each.name not in names)]
    elif "rate" in limits:
        return raw
    return {**raw, "limits": {**limits, "rate": rates}}


def _drops_built_in(limits: Mapping[str, object]) -> bool:
    return limits.get("replace_defaults") is True


# --- rules between keys ---------------------------------------------------------------------------------------------


def limit_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts in and between rate policies and overrides, and keys that need tenants or
    tokens.
    """
    is_shared = mapping_at(raw, "store").get("backend") == "redis"
    if mapping_at(raw, "limits").get("on_store_error") in ("open", "closed") and not is_shared:
        yield ("limits", "on_store_error"), "must be local unless store.backend is redis: no other gateway counts"
    policies: dict[str, Mapping[str, object]] = {}
    for index, policy in enumerate(map(mapping_at, list_at(raw, *_RATES))):
        here = (*_RATES, index)
        name = policy.get("name")
        if isinstance(name, str) and policies.setdefault(name, policy) is not policy:
            yield (*here, "name"), "must not be the name of another policy"
        yield from _policy_conflicts(policy, here)
        if policy.get("scope") == "tenant" and not has_tenants(raw):
            yield (*here, "scope"), f"must not be tenant {without_tenants(raw)}"
    limits = mapping_at(raw, "limits")
    if not _drops_built_in(limits) and ("rate" not in limits or policies):
        built_in = {str(each["name"]): each for each in map(mapping_at, list_at(defaults, *_RATES))}
        policies = built_in | policies
    for index, override in enumerate(map(mapping_at, list_at(raw, *_OVERRIDES))):
        yield from _override_conflicts(override, (*_OVERRIDES, index), policies, raw)


def _policy_conflicts(policy: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    event, before = policy.get("event"), policy.get("before_auth") is True
    if event == "auth_failure" and policy.get("scope") != "ip":
        yield (*here, "scope"), "must be ip with event auth_failure: the caller of such a request is unknown"
    if event == "lookup_failure" and policy.get("scope") == "tool":
        yield (*here, "scope"), "must not be tool with event lookup_failure: what was not found has none"
    if event == "large_body" and policy.get("scope") == "tool":
        yield (*here, "scope"), "must not be tool with event large_body: the tool is not read yet"
    if before and event is not None:
        yield (*here, "before_auth"), "must be false with an event"
    elif before and policy.get("scope") != "ip":
        yield (*here, "scope"), "must be ip with before_auth: the caller is not known yet"
    for key in ("methods", "tool"):
        if policy.get(key) is not None and (event is not None or before):
            why = "with an event, which is no request" if event is not None else "with before_auth: nothing is read yet"
            yield (*here, key), f"must be null {why}"
    methods = list_at(policy, "methods")
    if "*" in methods and len(methods) > 1:
        yield (*here, "methods"), "must not hold more than *, which means what no other policy of the scope names"
    yield from _burst_conflicts(policy, here)


def _burst_conflicts(policy: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    cost, burst = policy.get("cost", 1), policy.get("burst")
    if burst is None:
        try:
            most, what = read_rate(policy.get("rate")).count, "the number of the rate, where burst is not given"
        except ValueError:
            return
    elif isinstance(burst, int):
        most, what = burst, dotted((*here, "burst"))
    else:
        return
    if isinstance(cost, int) and cost > most >= 1:
        yield (*here, "cost"), f"must be at most {what}, or nothing would ever pass"


def _override_conflicts(
    override: Mapping[str, object], here: Location, policies: Mapping[str, Mapping[str, object]], raw: object
) -> Iterator[Conflict]:
    match = mapping_at(override, "match")
    if match.get("tenant") is not None and not has_tenants(raw):
        yield (*here, "match", "tenant"), f"must be null {without_tenants(raw)}"
    if mapping_at(match, "claims") and auth_mode(raw) == "none":
        yield (*here, "match", "claims"), "must be empty with auth.mode none, where callers have no claims"
    if mapping_at(override, "concurrency").get("tasks_per_tenant") is not None and not has_tenants(raw):
        yield (*here, "concurrency", "tasks_per_tenant"), f"must be null {without_tenants(raw)}"
    for name in mapping_at(override, "rate"):
        where = (*here, "rate", name)
        if name not in policies:
            yield where, "must be the name of a policy of limits.rate"
        elif policies[name].get("scope") not in ("subject", "context", "tenant"):
            yield where, "must be the name of a policy of scope subject, context or tenant: others have no caller"
