"""Access rules: `AccessPolicy` decides whether a verified identity may send a request.

Rules match method, upstream, tool and claims, and ask for scopes. Decisions are pure; `admission`
turns a refusal into an answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from taskgate.auth.context import Identity
from taskgate.domain.limits import claim_text


class AccessEffect(StrEnum):
    """The effect of a rule on the requests that it matches."""

    ALLOW = "allow"
    DENY = "deny"


class AccessRefusal(NamedTuple):
    """A refusal by a rule: all scopes that it asks for, or none if it refuses any request."""

    rule: str
    missing_scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Whether a request is allowed.

    `rule` is the name of the rule that decided, None for the default. If scopes were missing,
    `missing_scopes` has all that the operation needs, so that a host asks for them once; else it is
    empty. `shadow_refusals` are what the matching shadow rules would have refused, in order.
    """

    allowed: bool
    missing_scopes: frozenset[str] = frozenset()
    rule: str | None = None
    shadow_refusals: tuple[AccessRefusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """One rule: the requests that it matches, and its effect.

    A request matches if all of these hold; None and no claims match any:

    - The method matches one of the globs `methods`.
    - The upstream is `upstream`.
    - The request names a tool that matches the glob `tool`.
    - Each claim in `claims` has one of the given values, or is a list with one of them. Numbers and
      booleans are written as in JSON. Without an identity there are no claims.

    Globs are case-sensitive, and their `*` matches slashes. A matching request is allowed if the
    identity has all of `require_scopes`. `deny` refuses it in any case; such a rule has no scopes. A
    `shadow` rule only reports what it would have refused.
    """

    name: str
    methods: tuple[str, ...] | None = None
    upstream: str | None = None
    tool: str | None = None
    claims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    require_scopes: frozenset[str] = frozenset()
    effect: AccessEffect = AccessEffect.ALLOW
    shadow: bool = False

    def matches(self, identity: Identity | None, *, method: str, upstream: str, tool: str | None) -> bool:
        """Whether the rule is for that request."""
        return (
            (self.methods is None or any(fnmatchcase(method, glob) for glob in self.methods))
            and self.upstream in (None, upstream)
            and (self.tool is None or (tool is not None and fnmatchcase(tool, self.tool)))
            and all(_has_claim(identity, claim, values) for claim, values in self.claims.items())
        )

    def refusal(self, scopes: frozenset[str]) -> AccessRefusal | None:
        """The refusal of a matching request with those scopes; None if it is allowed."""
        if self.effect is AccessEffect.ALLOW and self.require_scopes <= scopes:
            return None
        return AccessRefusal(self.name, self.require_scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """The rules in order: the first match that is no shadow rule decides, else the default.

    Shadow rules before the deciding one are reported, those behind it are not evaluated. `implied`
    maps a scope to the scopes that it includes, transitively; scopes in a circle include each other
    (A-AUTH-8).
    """

    rules: tuple[AccessRule, ...] = ()
    default: AccessEffect = AccessEffect.ALLOW
    implied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    only_listed: frozenset[str] = frozenset()
    """Upstreams whose unlisted tools are refused: a server may accept `drop ` for `drop`."""
    allows_all: bool = field(init=False, repr=False, compare=False)
    """Whether there are no rules, and everything is allowed: so it is for most gateways."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allows_all", not self.rules and self.default is AccessEffect.ALLOW)

    def decide(self, identity: Identity | None, *, method: str, upstream: str, tool: str | None) -> AccessDecision:
        """Decide on a request of `identity`; None has neither scopes nor claims.

        `tool` is the tool that a `tools/call` names, or that of the task in a `tasks/*` request. It
        is None for every other request.
        """
        scopes = self.scopes(identity)
        shadow_refusals: list[AccessRefusal] = []
        for rule in self.rules:
            if not rule.matches(identity, method=method, upstream=upstream, tool=tool):
                continue
            refusal = rule.refusal(scopes)
            if not rule.shadow:
                return AccessDecision(
                    allowed=refusal is None,
                    missing_scopes=refusal.missing_scopes if refusal else frozenset(),
                    rule=rule.name,
                    shadow_refusals=tuple(shadow_refusals),
                )
            if refusal:
                shadow_refusals.append(refusal)
        return AccessDecision(allowed=self.default is AccessEffect.ALLOW, shadow_refusals=tuple(shadow_refusals))

    def scopes(self, identity: Identity | None) -> frozenset[str]:
        """The scopes of an identity, with those that they include."""
        scopes = set(identity.scopes) if identity else set()
        unread = list(scopes)
        while unread:
            more = self.implied.get(unread.pop(), frozenset()) - scopes
            scopes |= more
            unread.extend(more)
        return frozenset(scopes)


def _has_claim(identity: Identity | None, claim: str, values: frozenset[str]) -> bool:
    found = identity.claims.get(claim) if identity else None
    listed = found if isinstance(found, list) else [found]
    return any(claim_text(one) in values for one in listed)
