"""The operator's rates: which of them are for a request, and whose budget each is taken from. Pure.

What must not live here: arithmetic (`domain/gcra`), and what is left of a budget (`stores/rates`). What holds: what a
request costs to look up does not depend on policies that are not for it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2s
from typing import Final, NamedTuple

from taskgate.domain.gcra import RateLimit


class Scope(StrEnum):
    """Who shares a budget."""

    IP = "ip"
    CONTEXT = "context"
    TENANT = "tenant"
    UPSTREAM = "upstream"
    TOOL = "tool"
    GLOBAL = "global"

    # An enumeration's own is slow, and metrics are looked up by this for every request.
    __hash__ = str.__hash__


class RateEvent(StrEnum):
    """What costs something when it happens, not when it is asked for."""

    AUTH_FAILURE = "auth_failure"
    """A token was not accepted."""
    LOOKUP_FAILURE = "lookup_failure"
    """A task was asked for that the caller does not have."""


THE_REST: Final = ("*",)
"""`methods` of a policy for what no other policy of its scope names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """One rate. It is for a request when all of these hold; None means any.

    The method matches one of the globs `methods`; the server is `upstream`; the request calls a tool, and that matches
    the glob `tool`. THE_REST stands for the methods that no policy of the same scope names which neither `tool` nor
    `upstream` narrows; only one that refuses takes them away from another that does. Globs heed case, and their `*`
    passes a slash. Scope TENANT passes over callers without a tenant, scope TOOL over requests that call none.

    With an `event` it is for no request: it is taken from when the event happens, and while it has no room whoever
    would make it happen is refused. With `before_auth` it is taken before it is known who asks, and what they ask. In
    `shadow` it only tells.
    """

    name: str
    scope: Scope
    limit: RateLimit
    methods: tuple[str, ...] | None = None
    upstream: str | None = None
    tool: str | None = None
    event: RateEvent | None = None
    cost: int = 1
    before_auth: bool = False
    shadow: bool = False


class RateSubject(NamedTuple):
    """Who asks, as budgets know them: references that are no secrets."""

    context: str
    tenant: str | None
    address: str


class Demand(NamedTuple):
    """What is to be taken of one budget: `cost` units of what `limit` allows of `key`, because `policy` says so."""

    key: str
    limit: RateLimit
    cost: int
    policy: RatePolicy


class _Taken(NamedTuple):
    """A policy that something is taken from, and where its scope stands in `_PLACES`."""

    policy: RatePolicy
    place: int


_REMEMBERED: Final = 4096
_LONGEST: Final = 256
"""Letters of names, which hosts choose, that are kept as they are."""
_NO_OWN: Final[Mapping[str, RateLimit]] = {}


class RatePolicies:
    """All rates, in the order of the file. Names are unique."""

    def __init__(self, policies: tuple[RatePolicy, ...]) -> None:
        self.policies = policies
        self._of_requests = tuple(each for each in policies if each.event is None and not each.before_auth)
        self._before_auth = _AtMounts(each for each in policies if each.event is None and each.before_auth)
        self._auth_failures = _AtMounts(each for each in policies if each.event is RateEvent.AUTH_FAILURE)
        self._lookup_failures = _AtMounts(each for each in policies if each.event is RateEvent.LOOKUP_FAILURE)
        self._heed_tools = any(each.tool is not None for each in self._of_requests)
        self.heed_arrivals = bool(self._before_auth.policies or self._auth_failures.policies)
        """Whether anything is asked before it is known who asks."""
        later = (*self._of_requests, *self._lookup_failures.policies)
        self.heed_requests = bool(later)
        """Whether anything is asked after it is known who asks."""
        self.heed_addresses = any(each.scope is Scope.IP for each in later)
        """Whether anything that is asked later is counted by address."""
        self._found: OrderedDict[tuple[str, str, str | None], tuple[_Taken, ...]] = OrderedDict()

    def demands(
        self, subject: RateSubject, rates: Mapping[str, RateLimit], mount: str, method: str, tool: str | None
    ) -> tuple[Demand, ...]:
        """What a request takes. `rates` are other limits than the policies' own, by their names."""
        key = (mount, method, tool if self._heed_tools else None)
        found = self._found.get(key)
        if found is None:
            found = _taken(self.applicable(mount, method, tool))
            # Hosts choose the names that are looked up, so not all can be remembered, and none that is long.
            if len(method) + len(tool or "") <= _LONGEST:
                if len(self._found) >= _REMEMBERED:
                    self._found.popitem(last=False)
                self._found[key] = found
        return _demands(found, subject, rates, mount, tool)

    def of_event(
        self, event: RateEvent, subject: RateSubject, rates: Mapping[str, RateLimit], mount: str
    ) -> tuple[Demand, ...]:
        """What an event takes that happens at `mount`, or that a request may make happen there."""
        there = self._auth_failures if event is RateEvent.AUTH_FAILURE else self._lookup_failures
        return _demands(there.at(mount), subject, rates, mount, None) if there.policies else ()

    def before_auth(self, address: str, mount: str) -> tuple[Demand, ...]:
        """What a request takes of which nothing is known but where it comes from and where it goes."""
        there = self._before_auth
        if not there.policies:
            return ()
        return _demands(there.at(mount), RateSubject("", None, address), _NO_OWN, mount, None)

    def applicable(self, mount: str, method: str, tool: str | None) -> tuple[RatePolicy, ...]:
        """The policies that are for a request, whoever sends it, in the order of the file."""
        return tuple(each for each in self._of_requests if self._is_for(each, mount, method, tool))

    def _is_for(self, policy: RatePolicy, mount: str, method: str, tool: str | None) -> bool:
        return (
            policy.upstream in (None, mount)
            and (policy.tool is None or (tool is not None and fnmatchcase(tool, policy.tool)))
            and self._has_method(policy, method)
        )

    def _has_method(self, policy: RatePolicy, method: str) -> bool:
        if policy.methods is None:
            return True
        if policy.methods == THE_REST:
            return not any(_takes_from_the_rest(other, policy, method) for other in self._of_requests)
        return any(fnmatchcase(method, glob) for glob in policy.methods)


class _AtMounts:
    """Policies that only a server may narrow, by where they are met."""

    def __init__(self, policies: Iterable[RatePolicy]) -> None:
        self.policies = tuple(policies)
        # There are as many servers as the operator has, so this does not grow.
        self._found: dict[str, tuple[_Taken, ...]] = {}

    def at(self, mount: str) -> tuple[_Taken, ...]:
        """Those that are met at `mount`."""
        found = self._found.get(mount)
        if found is None:
            found = _taken(each for each in self.policies if each.upstream in (None, mount))
            self._found[mount] = found
        return found


def _takes_from_the_rest(other: RatePolicy, rest: RatePolicy, method: str) -> bool:
    """Whether a method is no part of `rest` because `other` names it."""
    if other.methods is None or other.methods == THE_REST or other.scope is not rest.scope:
        return False
    is_narrow = other.tool is not None or other.upstream is not None
    # What a policy in shadow names stays limited by those that are not.
    if is_narrow or (other.shadow and not rest.shadow):
        return False
    return any(fnmatchcase(method, glob) for glob in other.methods)


def _taken(policies: Iterable[RatePolicy]) -> tuple[_Taken, ...]:
    return tuple(_Taken(each, _PLACES.index(each.scope)) for each in policies)


def _short(tool: str) -> str:
    """What stands for the name of a tool in a key."""
    if len(tool) <= _LONGEST:
        return tool
    return f"\n{blake2s(tool.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


_PLACES: Final = (Scope.CONTEXT, Scope.TENANT, Scope.IP, Scope.UPSTREAM, Scope.TOOL, Scope.GLOBAL)
"""The scopes, of which the first are in the order of the members of a Subject, who share their budgets."""
_OF_SUBJECTS: Final = len(RateSubject._fields)


def _demands(
    taken: tuple[_Taken, ...], subject: RateSubject, rates: Mapping[str, RateLimit], mount: str, tool: str | None
) -> tuple[Demand, ...]:
    demands = []
    for policy, place in taken:
        sharer = subject[place] if place < _OF_SUBJECTS else _sharer(policy.scope, mount, tool)
        # A scope may have no budget for this request.
        if sharer is not None:
            limit = rates.get(policy.name, policy.limit) if rates else policy.limit
            demands.append(Demand(f"{policy.name}\n{sharer}", limit, policy.cost, policy))
    return tuple(demands)


def _sharer(scope: Scope, mount: str, tool: str | None) -> str | None:
    """Who shares a budget, whoever asks; None where nobody does."""
    if scope is Scope.UPSTREAM:
        return mount
    if scope is Scope.GLOBAL:
        return ""
    return None if tool is None else f"{mount}\n{_short(tool)}"
