"""The configuration of what callers may use up: the section `limits`.

What lives here: its keys with types, defaults and bounds. What must not: rules between keys (limit_coherence), what
floors below make of them (rules).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from taskgate.config.fields import GIB, KIB, MIB, SOME, Count, Flag, Glob, Held, Name, Section, Text
from taskgate.config.numbers import Rate, RateText
from taskgate.config.retention import LONGEST
from taskgate.config.units import DurationIn, SizeIn

_Kept = Annotated[int, SizeIn(least=KIB, most=2**10 * GIB)]


def _shown(default: str) -> Any:
    # The JSON Schema of what may be null has its default as a number.
    return Field(json_schema_extra={"default": default})


class RatePolicySection(Section):
    """How often something may happen. A request takes from every policy that is for it, or is refused by one."""

    name: Name
    """What the policy is called in refusals, metrics and overrides; each has its own."""
    scope: Literal["ip", "context", "tenant", "upstream", "tool", "global"]
    """Whose requests it counts together: those of an address, caller or tenant, or to an upstream or tool, or all.

    ip: IPv6 addresses count by their /64; tenant: callers without one are passed over; tool: calls alone.
    """
    rate: RateText
    """How many there may be, in the long run: 5/s, 10/m or 100/h."""
    burst: Count | None = None
    """How many there may be at once; null means the number of the rate."""
    methods: Annotated[tuple[Glob, ...], *SOME] | None = None
    """Globs over methods, of notifications too, one of which must match; null means every request.

    The end of a handshake and cancels take from nothing and always pass. ["*"] alone means the rest: the methods that
    no other policy of the same scope names, and GET streams, which have none.
    """
    upstream: Text | None = None
    """Name of the upstream that it is for; null means every one."""
    tool: Glob | None = None
    """Glob over names of tools, of requests that name one; null means every request."""
    event: Literal["auth_failure", "lookup_failure"] | None = None
    """What it counts instead of requests: refused tokens, or look-ups of tasks that were not found.

    While there are too many, requests are refused: all but those with a token that was found good before, or those
    about tasks.
    """
    cost: Count = 1
    """How much one takes."""
    before_auth: Flag = False
    """Whether it is asked before anybody knows whose request it is."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """enforce: requests are refused; shadow: those that would have been are counted, and go on."""

    @property
    def most_at_once(self) -> int:
        """`burst`, or what null means there."""
        return self.rate.count if self.burst is None else self.burst

    def burst_at(self, rate: Rate) -> int:
        """The burst that is to its own as `rate` is to its own, rounded up, so that at least one may pass."""
        more, less = rate.count * self.rate.seconds, self.rate.count * rate.seconds
        return max(self.cost, -(-self.most_at_once * more // less))


class ConcurrencySection(Section):
    """How much there may be at once."""

    tasks_per_context: Count = 10
    """Unfinished tasks of one caller; with auth.mode none all hosts are one caller."""
    tasks_per_tenant: Count | None = 100
    """Unfinished tasks of one tenant; null means any number."""
    tasks_per_tool: Count | None = None
    """Unfinished tasks of one tool of one upstream; null means any number."""
    tasks_per_upstream: Count | None = None
    """Unfinished tasks of one upstream; null means any number."""
    tasks_global: Count | None = 1000
    """Unfinished tasks altogether; null means any number."""
    calls_per_context: Count = 8
    """Places at one upstream of one caller, its tasks' included, while callers with fewer wait for one."""
    kept_per_context: Annotated[_Kept | None, _shown("256MiB")] = 256 * MIB
    """What is kept of one caller's tasks: with so much, no new one is made; null means any size."""
    kept_global: Annotated[_Kept | None, _shown("2GiB")] = 2 * GIB
    """What is kept of all tasks: with so much, no new one is made; null means any size."""
    sessions_per_context: Count = 100
    """Sessions of one caller's hosts."""
    waits_per_context: Count = 64
    """Requests of one caller that wait for results of tasks (tasks/result)."""
    waits_global: Count | None = 2048
    """Requests that wait for results of tasks altogether; null means any number."""
    bytes_in_flight_per_context: _Kept = 32 * MIB
    """Bytes of one caller's large messages that are being served: with so many, a large request is refused."""
    bytes_in_flight_global: _Kept = 256 * MIB
    """Bytes of all large messages that are being served: with so many, a large request is refused."""
    streams_kept_per_context: _Kept = 16 * MIB
    """What one caller's resumable streams keep; beyond it the oldest that have ended are forgotten first."""
    streams_kept_global: _Kept = 256 * MIB
    """What all resumable streams keep; beyond it the oldest that have ended are forgotten first."""


class CatalogueSection(Section):
    """How large a server's list of tools may be, all pages together; a larger one is refused as a whole."""

    max_tools: Count = 10_000
    """Tools of one server."""
    max_bytes: Held = 16 * MIB
    """Bytes of the answers that list them."""


class OverrideMatchSection(Section):
    """Whom an override is for: callers for whom all of it is so."""

    tenant: Text | None = None
    """The tenant, of whichever issuer (the claim iss tells them apart); null means any, and none."""
    claims: Mapping[Text, Annotated[tuple[Text, ...], *SOME]] = {}
    """Claims and the values, one of which the token must have; {} means every token.

    Numbers and booleans are written as text: "5", "true".
    """


class OverrideConcurrencySection(Section):
    """What takes the place of limits.concurrency; null leaves it."""

    tasks_per_context: Count | None = None
    """As limits.concurrency.tasks_per_context, which null means."""
    tasks_per_tenant: Count | None = None
    """As limits.concurrency.tasks_per_tenant, which null means."""
    tasks_per_tool: Count | None = None
    """As limits.concurrency.tasks_per_tool, which null means."""
    tasks_per_upstream: Count | None = None
    """As limits.concurrency.tasks_per_upstream, which null means."""
    tasks_global: Count | None = None
    """As limits.concurrency.tasks_global, which null means."""
    calls_per_context: Count | None = None
    """As limits.concurrency.calls_per_context, which null means."""
    kept_per_context: _Kept | None = None
    """As limits.concurrency.kept_per_context, which null means."""
    kept_global: _Kept | None = None
    """As limits.concurrency.kept_global, which null means."""


class OverrideSection(Section):
    """Other limits for some callers."""

    match: OverrideMatchSection
    rate: Mapping[Name, RateText] = {}
    """Names of rate policies and what their rate is instead; their burst changes in the same proportion."""
    concurrency: OverrideConcurrencySection = OverrideConcurrencySection()
    ttl_max: Annotated[timedelta, DurationIn(most=LONGEST)] | None = None
    """The most that is given as time to live, in place of tasks.ttl.max and ttl_max of rules; null leaves those."""


_PER_ADDRESS, _PER_CALLER = Rate(count=1000, unit="s"), Rate(count=20, unit="s")
_USUAL_RATES = (
    RatePolicySection(name="ip", scope="ip", rate=_PER_ADDRESS, burst=2000, before_auth=True),
    RatePolicySection(name="auth_failures", scope="ip", rate=Rate(count=1, unit="s"), burst=20, event="auth_failure"),
    RatePolicySection(name="calls", scope="context", rate=Rate(count=5, unit="s"), burst=20, methods=("tools/call",)),
    RatePolicySection(name="polls", scope="context", rate=_PER_CALLER, burst=60, methods=("tasks/*",)),
    RatePolicySection(name="rest", scope="context", rate=_PER_CALLER, burst=60, methods=("*",)),
)


class LimitsSection(Section):
    """What callers may use up."""

    reject_as: Literal["jsonrpc", "http", "tool_error"] = "jsonrpc"
    """How a limit is told.

    jsonrpc: an error of JSON-RPC with HTTP 200; http: the same with HTTP 429; tool_error: of tools/call a result with
    isError, which models read, else as jsonrpc.
    """
    expose_quota: Flag = False
    """Whether answers say how much is left, in RateLimit and RateLimit-Policy."""
    on_store_error: Literal["local", "open", "closed"] = "local"
    """What rates say while the store cannot be asked that several gateways share.

    local: each gateway allows its part, the rate divided by the number of gateways; open: all requests pass; closed:
    requests are refused with code 503.
    """
    rate: tuple[RatePolicySection, ...] = _USUAL_RATES
    """How often requests may come; [] means as often as they like."""
    concurrency: ConcurrencySection = ConcurrencySection()
    catalogue: CatalogueSection = CatalogueSection()
    overrides: tuple[OverrideSection, ...] = ()
    """Other limits for some callers: the first that matches counts."""
