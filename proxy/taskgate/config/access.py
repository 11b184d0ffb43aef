"""What the floors below make of `auth` and `authorization`: the configuration as values of theirs.

What lives here: that translation and nothing else. What must not: opening, reading or fetching what the values name.
"""

from __future__ import annotations

from taskgate.auth.authorization import AccessPolicy, AccessRule, Effect
from taskgate.auth.settings import IssuerSettings, KeySettings, Profile
from taskgate.config.auth_models import AuthorizationRule, AuthorizationSection, IssuerSection
from taskgate.config.models import GatewayConfig


def issuer_settings(config: GatewayConfig) -> tuple[IssuerSettings, ...]:
    """The issuers in the order of the file; none with `auth.mode` none."""
    return tuple(_issuer(name, section) for name, section in config.auth.issuers.items())


def access_policy(config: GatewayConfig) -> AccessPolicy:
    """The rules in the order of the file. One without a name is called by its place: `rules[0]`."""
    section = config.authorization
    return AccessPolicy(
        rules=tuple(_rule(rule, f"rules[{index}]") for index, rule in enumerate(section.rules)),
        default=Effect(section.default),
        implied={scope: frozenset(implied) for scope, implied in section.scope_implies.items()},
        only_listed=frozenset(name for name in config.upstreams if _takes_only_listed(section, name)),
    )


def _takes_only_listed(section: AuthorizationSection, upstream: str) -> bool:
    if section.only_listed_tools != "auto":
        return section.only_listed_tools
    return any(
        rule.tool is not None
        and rule.upstream in (None, upstream)
        and not rule.shadow
        and (rule.effect == "deny" or bool(rule.require_scopes))
        for rule in section.rules
    )


def _issuer(name: str, section: IssuerSection) -> IssuerSettings:
    return IssuerSettings(
        name=name,
        issuer=section.issuer,
        audience=section.audience,
        profile=Profile(section.profile),
        algorithms=section.algorithms,
        leeway=section.leeway,
        max_token_age=section.max_token_age,
        required_claims=section.required_claims,
        client_id_claims=section.claims.client_id,
        scope_claims=section.claims.scope,
        tenant_claim=section.claims.tenant,
        keys=_keys(section),
    )


def _keys(section: IssuerSection) -> KeySettings:
    kept = section.jwks
    return KeySettings(
        uri=section.jwks_uri,
        file=section.jwks_file,
        refresh=kept.refresh,
        cooldown=kept.cooldown,
        stale_max=kept.stale_max,
        timeout=kept.timeout,
        max_size=kept.max_size,
    )


def _rule(rule: AuthorizationRule, place: str) -> AccessRule:
    return AccessRule(
        name=rule.name or place,
        methods=rule.methods,
        upstream=rule.upstream,
        tool=rule.tool,
        claims={claim: frozenset(values) for claim, values in rule.claims.items()},
        require_scopes=frozenset(rule.require_scopes),
        effect=Effect(rule.effect),
        shadow=rule.shadow,
    )
