"""Rate limits: the operator's policies, and the cell rate algorithm (GCRA) that meters each budget.

`RatePolicies` finds the policies for a request or an event, and returns a `Demand` for each budget
that it takes from. `gcra` decides whether a budget has enough; the stores keep the state of
budgets. The cost of a look-up does not grow with policies that are for other requests.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2s
from math import inf
from typing import Final, NamedTuple

# --- the cell rate algorithm ------------------------------------------------------------------------------------------

TOLERANCE: Final = 1e-6
"""Seconds within which two moments count as equal, because sums of fractions are inexact."""
_SLACK: Final = 10 * TOLERANCE
"""Seconds by which a debt that was taken ahead may exceed what it can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most `burst` units, of which one comes back `every` so many seconds, more than none.

    Units that come back within `ahead` seconds may be taken already: whatever takes them waits for
    them.
    """

    every: float
    burst: int
    ahead: float = 0.0


class RateVerdict(NamedTuple):
    """Whether enough units were there; `remaining` are the whole units that are there now.

    Times are seconds from now. If nothing else is taken, the units are there after `retry_after` and
    not before. It is 0 if they are there now, infinite for a demand above the burst. A demand that is
    allowed ahead has its turn after `retry_after`. After `reset_after` all units are there.
    """

    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float


def gcra(tat: float | None, now: float, limit: RateLimit, cost: int = 1) -> tuple[RateVerdict, float]:
    """Take `cost` units if they are there, or will be within `ahead`, else none: the verdict, and the
    new state.

    The state is the theoretical arrival time: the moment from which on no unit is missing. None
    stands for any past moment. `now` and the state are seconds of one monotonic clock. A debt above
    what the limit can owe dates from another limit, and is cut to the burst. So the new state must be
    stored after a refusal too.
    """
    every, burst = limit.every, limit.burst
    owed = now if tat is None or tat < now else tat
    debt = owed - now
    most, ahead = burst * every, limit.ahead
    if debt > most and debt > most + (ahead and ahead + _SLACK):
        owed, debt = now + most, most
    wait = debt - (burst - cost) * every if cost <= burst else inf
    allowed = wait <= ahead + TOLERANCE
    if allowed:
        owed += cost * every
        debt = owed - now
    if wait <= TOLERANCE:
        wait = 0.0
    units = int(burst - (debt - TOLERANCE) / every)
    return RateVerdict(allowed, burst if units > burst else max(units, 0), wait, debt), owed


# --- policies ---------------------------------------------------------------------------------------------------------


class RateScope(StrEnum):
    """The callers that share a budget."""

    IP = "ip"
    SUBJECT = "subject"
    """All clients of one person or service."""
    CONTEXT = "context"
    TENANT = "tenant"
    UPSTREAM = "upstream"
    TOOL = "tool"
    GLOBAL = "global"

    # The hash of an enumeration is slow, and every request looks metrics up by scope.
    __hash__ = str.__hash__


class RateEvent(StrEnum):
    """An event that takes from a budget when it happens; its policies take nothing for a request."""

    AUTH_FAILURE = "auth_failure"
    """A token was refused."""
    LOOKUP_FAILURE = "lookup_failure"
    """A caller asked for a task that it does not have."""
    LARGE_BODY = "large_body"
    """A caller sends a body that is parsed in a thread; it costs its KiB."""


OTHER_METHODS: Final = ("*",)
"""`methods` of a policy for the methods that no other policy of its scope names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """One rate policy; it is for a request if all of its conditions hold, None means any.

    The method must match one of the globs `methods`, the server must be `upstream`, and the called
    tool must match the glob `tool`. Globs are case-sensitive, and their `*` matches slashes. Scope
    TENANT applies only to callers with a tenant, scope TOOL only to calls of a tool.

    OTHER_METHODS stands for the methods that no other policy of the same scope names. CONTEXT and
    SUBJECT count as one scope for this. Policies narrowed by `tool` or `upstream` do not count. A
    policy in shadow takes methods only from another one in shadow.

    With an `event` the policy is for no request: the event takes from it. While it has nothing,
    requests that could cause a failure are refused, and a large body waits or is refused. With
    `before_auth` it applies before authentication, so that neither caller nor method is known. In
    `shadow` it only reports.
    """

    name: str
    scope: RateScope
    limit: RateLimit
    methods: tuple[str, ...] | None = None
    upstream: str | None = None
    tool: str | None = None
    event: RateEvent | None = None
    cost: int = 1
    before_auth: bool = False
    shadow: bool = False


class RateSubject(NamedTuple):
    """A caller as budgets identify it; none of the references is secret."""

    context: str
    subject: str
    tenant: str | None
    address: str


class Demand(NamedTuple):
    """The units that `policy` takes from one budget: `cost` of what `limit` allows for `key`."""

    key: str
    limit: RateLimit
    cost: int
    policy: RatePolicy


class _IndexedPolicy(NamedTuple):
    """A policy, and the index of its scope in `_SCOPES`."""

    policy: RatePolicy
    scope_index: int


_CACHE_SIZE: Final = 4096
_MAX_NAME: Final = 256
"""Characters up to which a name, which hosts choose, is cached or stands in a key unchanged."""
_NO_RATES: Final[Mapping[str, RateLimit]] = {}


class RatePolicies:
    """All rate policies, in the order of the configuration file; names are unique.

    Each reload makes a new object. Its methods return demands, () if no policy applies, and take
    nothing: the caller passes the demands to a store.
    """

    def __init__(self, policies: tuple[RatePolicy, ...]) -> None:
        self.policies = policies
        self._for_requests = tuple(each for each in policies if each.event is None and not each.before_auth)
        self._before_auth = _MountPolicies(each for each in policies if each.event is None and each.before_auth)
        self._events = {of: _MountPolicies(each for each in policies if each.event is of) for of in RateEvent}
        failures = self._events[RateEvent.LOOKUP_FAILURE].policies
        self._has_tools = any(each.tool is not None for each in self._for_requests)
        self.has_before_auth = bool(self._before_auth.policies or self._events[RateEvent.AUTH_FAILURE].policies)
        """Whether any policy applies before the caller is known."""
        later = (*self._for_requests, *failures)
        self.has_after_auth = bool(later)
        """Whether any policy applies once the caller is known."""
        self.has_lookup_failures = bool(failures)
        """Whether any policy counts failed look-ups of tasks."""
        self.has_addresses = any(each.scope is RateScope.IP for each in later)
        """Whether any of those after authentication counts by address."""
        self._cache: OrderedDict[tuple[str, str, str | None], tuple[_IndexedPolicy, ...]] = OrderedDict()

    def demands(
        self, subject: RateSubject, rates: Mapping[str, RateLimit], mount: str, method: str, tool: str | None
    ) -> tuple[Demand, ...]:
        """The demands of a request; `rates` replace limits of policies, by name."""
        key = (mount, method, tool if self._has_tools else None)
        found = self._cache.get(key)
        if found is None:
            found = _indexed(self.applicable(mount, method, tool))
            # Hosts choose the names in the key, so the cache has a bound, and long names stay out.
            if len(method) + len(tool or "") <= _MAX_NAME:
                if len(self._cache) >= _CACHE_SIZE:
                    self._cache.popitem(last=False)
                self._cache[key] = found
        return _demands(found, subject, rates, mount, tool)

    def event_demands(
        self, event: RateEvent, subject: RateSubject, rates: Mapping[str, RateLimit], mount: str
    ) -> tuple[Demand, ...]:
        """The demands of an event at `mount`, which has happened or may follow from a request."""
        policies = self._events[event]
        return _demands(policies.at(mount), subject, rates, mount, None) if policies.policies else ()

    def body_demands(
        self, size: int, subject: RateSubject, rates: Mapping[str, RateLimit], mount: str
    ) -> tuple[Demand, ...]:
        """The demands of so many bytes of a large body: its KiB.

        A budget that is full is enough for a body of any size, which then takes all of it.
        """
        demands = self.event_demands(RateEvent.LARGE_BODY, subject, rates, mount)
        kib = -(-size // 1024)
        return tuple([each._replace(cost=min(each.cost * kib, each.limit.burst)) for each in demands])

    def before_auth(self, address: str, mount: str) -> tuple[Demand, ...]:
        """The demands of a request of which only address and mount are known."""
        policies = self._before_auth
        if not policies.policies:
            return ()
        return _demands(policies.at(mount), RateSubject("", "", None, address), _NO_RATES, mount, None)

    def caller_demands(self, context: str, subject: str | None, rates: Mapping[str, RateLimit]) -> tuple[Demand, ...]:
        """A demand of nothing on each budget of one caller, to look at them; `rates` as in `demands`.

        Without `subject` those of its person are left out.
        """
        own = [each for each in self.policies if each.scope is RateScope.CONTEXT and not each.before_auth]
        if subject is not None:
            own += [each for each in self.policies if each.scope is RateScope.SUBJECT and not each.before_auth]
        found = _demands(_indexed(own), RateSubject(context, subject or "", None, ""), rates, "", None)
        return tuple(each._replace(cost=0) for each in found)

    def applicable(self, mount: str, method: str, tool: str | None) -> tuple[RatePolicy, ...]:
        """The policies for a request of any caller, in the order of the file."""
        return tuple(each for each in self._for_requests if self._is_for(each, mount, method, tool))

    def _is_for(self, policy: RatePolicy, mount: str, method: str, tool: str | None) -> bool:
        return (
            policy.upstream in (None, mount)
            and (policy.tool is None or (tool is not None and fnmatchcase(tool, policy.tool)))
            and self._has_method(policy, method)
        )

    def _has_method(self, policy: RatePolicy, method: str) -> bool:
        if policy.methods is None:
            return True
        if policy.methods == OTHER_METHODS:
            return not any(_claims_method(other, policy, method) for other in self._for_requests)
        return any(fnmatchcase(method, glob) for glob in policy.methods)


class _MountPolicies:
    """Policies without conditions but the server, by mount."""

    def __init__(self, policies: Iterable[RatePolicy]) -> None:
        self.policies = tuple(policies)
        # Bounded by the number of configured servers.
        self._cache: dict[str, tuple[_IndexedPolicy, ...]] = {}

    def at(self, mount: str) -> tuple[_IndexedPolicy, ...]:
        found = self._cache.get(mount)
        if found is None:
            found = _indexed(each for each in self.policies if each.upstream in (None, mount))
            self._cache[mount] = found
        return found


def _claims_method(other: RatePolicy, policy: RatePolicy, method: str) -> bool:
    """Whether `other` names a method, so that it is none of the other methods of `policy`."""
    if other.methods is None or other.methods == OTHER_METHODS or _breadth(other) is not _breadth(policy):
        return False
    is_narrow = other.tool is not None or other.upstream is not None
    # Methods of a policy in shadow must stay limited by the policies that refuse.
    if is_narrow or (other.shadow and not policy.shadow):
        return False
    return any(fnmatchcase(method, glob) for glob in other.methods)


def _breadth(policy: RatePolicy) -> RateScope:
    """The scope, where that of a client is that of its person."""
    return RateScope.SUBJECT if policy.scope is RateScope.CONTEXT else policy.scope


def _indexed(policies: Iterable[RatePolicy]) -> tuple[_IndexedPolicy, ...]:
    return tuple(_IndexedPolicy(each, _SCOPES.index(each.scope)) for each in policies)


def _tool_key(tool: str) -> str:
    """The name of a tool, or a digest of a long one."""
    if len(tool) <= _MAX_NAME:
        return tool
    return f"\n{blake2s(tool.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


_SCOPES: Final = (
    RateScope.CONTEXT,
    RateScope.SUBJECT,
    RateScope.TENANT,
    RateScope.IP,
    RateScope.UPSTREAM,
    RateScope.TOOL,
    RateScope.GLOBAL,
)
"""The scopes; the first ones are in the order of the members of a RateSubject."""
_SUBJECT_SCOPES: Final = len(RateSubject._fields)


def _demands(
    policies: tuple[_IndexedPolicy, ...],
    subject: RateSubject,
    rates: Mapping[str, RateLimit],
    mount: str,
    tool: str | None,
) -> tuple[Demand, ...]:
    demands = []
    for policy, index in policies:
        sharer = subject[index] if index < _SUBJECT_SCOPES else _sharer(policy.scope, mount, tool)
        # None: the scope has no budget for this request.
        if sharer is not None:
            limit = rates.get(policy.name, policy.limit) if rates else policy.limit
            demands.append(Demand(f"{policy.name}\n{sharer}", limit, policy.cost, policy))
    return tuple(demands)


def _sharer(scope: RateScope, mount: str, tool: str | None) -> str | None:
    """The part of a budget's key that does not depend on the caller; None for no budget."""
    if scope is RateScope.UPSTREAM:
        return mount
    if scope is RateScope.GLOBAL:
        return ""
    return None if tool is None else f"{mount}\n{_tool_key(tool)}"
