"""Who may call what: the operator's rules over the scopes and claims of a verified identity, as pure decisions.

Knows neither the file the rules came from nor how a refusal is told. What is not here: whether a token is good.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from taskgate.auth.context import Identity
from taskgate.domain.limits import claim_text


class Effect(StrEnum):
    """What becomes of a request."""

    ALLOW = "allow"
    DENY = "deny"


class AccessRefusal(NamedTuple):
    """That a rule refuses: for want of scopes, all of which are named, or whatever the scopes, which names none."""

    rule: str
    missing_scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Whether a request may go on.

    `rule` is the name of the rule that decided, None for the default. `missing_scopes` are all scopes the operation
    needs where it was refused for want of any of them, so that a host need ask only once; else empty. `shadowed` is
    what the shadow rules on the way would have refused, in the order of the rules.
    """

    allowed: bool
    missing_scopes: frozenset[str] = frozenset()
    rule: str | None = None
    shadowed: tuple[AccessRefusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """One rule: which requests it matches, and what becomes of them.

    It matches when all of these hold; None and no claims mean any:
    the method matches one of the globs `methods`; the upstream is `upstream`; the request names a tool, and that
    matches the glob `tool`; for each of `claims` the verified claim of that name is one of the values, or a list that
    has one of them, where numbers and booleans are written as in JSON. Globs heed case, and their `*` passes a slash.
    Without an identity there are no claims.

    What it matches is allowed if all of `require_scopes` are there, else refused; `deny` refuses whatever is there, and
    then no scopes may be named (ValueError). A `shadow` rule only tells what it would have refused.
    """

    name: str
    methods: tuple[str, ...] | None = None
    upstream: str | None = None
    tool: str | None = None
    claims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    require_scopes: frozenset[str] = frozenset()
    effect: Effect = Effect.ALLOW
    shadow: bool = False

    def __post_init__(self) -> None:
        if self.effect is Effect.DENY and self.require_scopes:
            raise ValueError("a rule that denies cannot require scopes")

    def matches(self, identity: Identity | None, *, method: str, upstream: str, tool: str | None) -> bool:
        """Whether the rule speaks of that request."""
        return (
            (self.methods is None or any(fnmatchcase(method, glob) for glob in self.methods))
            and self.upstream in (None, upstream)
            and (self.tool is None or (tool is not None and fnmatchcase(tool, self.tool)))
            and all(_has(identity, claim, values) for claim, values in self.claims.items())
        )

    def refusal(self, scopes: frozenset[str]) -> AccessRefusal | None:
        """What the rule says against a request that it matches, if anything."""
        if self.effect is Effect.ALLOW and self.require_scopes <= scopes:
            return None
        return AccessRefusal(self.name, self.require_scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """The rules in the order of the file. The first that matches and is no shadow rule decides, else the default.

    A shadow rule decides nothing: what it would have refused is reported, and the search goes on behind it. Shadow
    rules behind the one that decides are not asked. `implied` names the scopes that a scope stands for; what those
    imply is implied too, and a circle means that all of it stand for each other (A-AUTH-8).
    """

    rules: tuple[AccessRule, ...] = ()
    default: Effect = Effect.ALLOW
    implied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    only_listed: frozenset[str] = frozenset()
    """The upstreams of which no tool is called that they do not list: one may take `drop ` for `drop`."""

    def judge(self, identity: Identity | None, *, method: str, upstream: str, tool: str | None) -> AccessDecision:
        """Whether `identity` may send that request; None has neither scopes nor claims.

        `tool` is what a `tools/call` names, and for a method of `tasks/*` about one task the tool that the task runs;
        None for every other request.
        """
        scopes = self.scopes(identity)
        shadowed: list[AccessRefusal] = []
        for rule in self.rules:
            if not rule.matches(identity, method=method, upstream=upstream, tool=tool):
                continue
            refusal = rule.refusal(scopes)
            if not rule.shadow:
                missing = refusal.missing_scopes if refusal else frozenset()
                return AccessDecision(
                    allowed=refusal is None, missing_scopes=missing, rule=rule.name, shadowed=tuple(shadowed)
                )
            if refusal:
                shadowed.append(refusal)
        return AccessDecision(allowed=self.default is Effect.ALLOW, shadowed=tuple(shadowed))

    def scopes(self, identity: Identity | None) -> frozenset[str]:
        """Every scope the identity has, by its token or because a broader one implies it."""
        held = set(identity.scopes) if identity else set()
        unread = list(held)
        while unread:
            more = self.implied.get(unread.pop(), frozenset()) - held
            held |= more
            unread.extend(more)
        return frozenset(held)


def _has(identity: Identity | None, claim: str, values: frozenset[str]) -> bool:
    """Whether a claim has one of the values, or a list has one that does; see `text_of`."""
    found = identity.claims.get(claim) if identity else None
    listed = found if isinstance(found, list) else [found]
    return any(claim_text(one) in values for one in listed)
