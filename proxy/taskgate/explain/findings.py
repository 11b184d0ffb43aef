"""What the rules of a configuration say to one caller of one tool, each with where it is said.

The findings are plain values that become JSON as they are, in the words of the file. What must not live here: what a
rule means (`rules_of` gives the objects that a gateway asks), sentences for people (`wording`).
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskgate.admission.rules import AdmissionRules
from taskgate.auth.context import Identity
from taskgate.config import GatewayConfig
from taskgate.config.sections.tasks import default_ttl_max
from taskgate.config.settings import admission_rules
from taskgate.config.units import write_duration, write_size
from taskgate.domain.caps import Cap, CapScope
from taskgate.domain.overrides import Override
from taskgate.domain.policy import PromotionDecision
from taskgate.domain.rates import Demand, RateEvent, RateSubject
from taskgate.domain.versions import Peer
from taskgate.explain import bounds
from taskgate.explain.extensions import extensions
from taskgate.explain.places import ConfigPath, place
from taskgate.protocol.vocabulary import TASKS_GET, TOOLS_CALL

_RULES: Final = ("tasks", "upgrade")
_CONCURRENCY: Final = ("limits", "concurrency")


class _Asked(NamedTuple):
    config: GatewayConfig
    rules: AdmissionRules
    upstream: str
    tool: str
    hints: Mapping[str, bool]
    identity: Identity | None
    override: Override | None


def explained(
    config: GatewayConfig,
    upstream: str,
    tool: str,
    *,
    identity: Identity | None,
    hints: Mapping[str, bool],
    server: Peer | None = None,
) -> dict[str, Any]:
    """Everything that decides over `tools/call` of that tool, and over asking for the task that may come of it.

    And what becomes of the extensions of its upstream. `identity` is None for everybody with `auth.mode: none`; `hints`
    are what the server lists of the tool; `server` is what it says of itself, where it was asked.
    """
    rules = admission_rules(config)
    tenant, claims = (None, {}) if identity is None else (identity.tenant, identity.claims)
    asked = _Asked(config, rules, upstream, tool, hints, identity, rules.overrides.of(tenant, claims))
    decision = rules.policy.decide(upstream, tool, hints)
    return {
        "caller": _caller(asked),
        "call": {"upstream": upstream, "path": config.upstreams[upstream].path, "tool": tool, "hints": dict(hints)},
        "promotion": _promotion(asked, decision),
        "authorization": _authorization(asked),
        "rates": {
            "before_auth": _rates(asked, rules.rates.before_auth("", upstream)),
            TOOLS_CALL: _rates(asked, _demands(asked, TOOLS_CALL, tool)),
            TASKS_GET: _rates(asked, _demands(asked, TASKS_GET, None)),
            **{each.value: _rates(asked, _of_event(asked, each)) for each in RateEvent},
        },
        "caps": [_cap(asked, decision, cap) for cap in _caps(asked, decision)],
        "open": bounds.open_at_once(config),
        "polls": bounds.polls(config),
        "lookups": bounds.lookups(config),
        "server": bounds.server(config, upstream, tool, _of_calls(asked)),
        "extensions": extensions(config, upstream, server),
        "refusals": bounds.said(config, "limits", "reject_as"),
    }


def _caller(asked: _Asked) -> dict[str, Any]:
    identity = asked.identity
    override = None if asked.override is None else f"limits.overrides[{_number(asked)}]"
    if identity is None:
        return {"anonymous": True, "override": override}
    return {
        "anonymous": False,
        "issuer": identity.issuer_name,
        "subject": identity.subject,
        "client": identity.client_id,
        "tenant": identity.tenant,
        "scopes": sorted(asked.rules.access.scopes(identity)),
        "override": override,
    }


def _of_calls(asked: _Asked) -> int | None:
    """The override that says how many calls the caller has while others wait."""
    return None if asked.override is None or asked.override.calls is None else _number(asked)


def _number(asked: _Asked) -> int:
    return next(number for number, each in enumerate(asked.rules.overrides) if each is asked.override)


def _promotion(asked: _Asked, decision: PromotionDecision) -> dict[str, Any]:
    number = decision.rule
    return {
        "rule": None if number is None else f"tasks.upgrade[{number}]",
        "mode": {"value": decision.mode.value, **_at(asked, number, "mode")},
        "inline_grace": _span(decision.inline_grace, _at(asked, number, "inline_grace", "inline_grace")),
        "ttl": _usual(asked, decision),
        "ttl_min": _span(decision.ttl_min, _at(asked, number, "ttl_min", "ttl", "min")),
        "ttl_max": _most(asked, decision),
        "deadline": _span(decision.deadline, _at(asked, number, "deadline")),
        "cap": {"value": decision.cap, **_at(asked, number, "cap")},
        "on_lost": {"value": decision.on_lost.value, **_at(asked, number, "on_lost")},
        "join_retries": _span(decision.join_retries, _at(asked, number, "join_retries")),
        "shadow": [_met(asked, each) for each in _before(asked, number) if _is_shadow(asked, each)],
        "hints_wanted": [_met(asked, each) for each in _before(asked, number) if _may_match(asked, each)],
    }


def _longest(asked: _Asked) -> timedelta | None:
    return None if asked.override is None else asked.override.ttl_max


def _usual(asked: _Asked, decision: PromotionDecision) -> dict[str, Any]:
    """The time to live of hosts that ask for none."""
    longest = _longest(asked)
    if longest is not None and longest < decision.ttl_default:
        return _most(asked, decision)
    return _span(decision.clamp_ttl(None, longest), _at(asked, decision.rule, "ttl", "ttl", "default"))


def _most(asked: _Asked, decision: PromotionDecision) -> dict[str, Any]:
    longest = _longest(asked)
    if longest is None:
        where = _at(asked, decision.rule, "ttl_max", "ttl", "max")
        # A configuration has it whether it is written or not.
        left_out = where["from"] == "tasks.ttl.max" and decision.ttl_max == default_ttl_max(asked.config.auth.mode)
        return _span(decision.ttl_max, where | {"default": where["default"] or left_out})
    return _span(longest, _placed(place(asked.config, "limits", "overrides", _number(asked), "ttl_max")))


def _at(asked: _Asked, number: int | None, key: str, *otherwise: str) -> dict[str, Any]:
    """Where a value of a decision comes from: the rule, or the key of `tasks` that the rule leaves it to."""
    config = asked.config
    if number is None and not otherwise:
        return _placed(place(config, *_RULES))
    if number is None or (otherwise and getattr(config.tasks.upgrade[number], key) is None):
        return _placed(place(config, "tasks", *otherwise))
    return _placed(place(config, *_RULES, number, key))


def _placed(where: ConfigPath) -> dict[str, Any]:
    return {"from": where.path, "default": where.is_default}


def _span(length: timedelta | None, where: dict[str, Any]) -> dict[str, Any]:
    return {"value": None if length is None else write_duration(length), **where}


def _before(asked: _Asked, number: int | None) -> Iterable[int]:
    """The rules that are asked before the one that decides."""
    return range(len(asked.rules.policy.rules) if number is None else number)


def _is_shadow(asked: _Asked, number: int) -> bool:
    return asked.rules.policy.rules[number].matches(asked.upstream, asked.tool, asked.hints)


def _may_match(asked: _Asked, number: int) -> bool:
    """Whether a rule would match if the server listed what nobody said."""
    rule = asked.rules.policy.rules[number]
    matches = rule.matches(asked.upstream, asked.tool, {**rule.hints, **asked.hints})
    return matches and not rule.matches(asked.upstream, asked.tool, asked.hints)


def _met(asked: _Asked, number: int) -> dict[str, Any]:
    rule = asked.rules.policy.rules[number]
    return {
        "rule": f"tasks.upgrade[{number}]",
        "mode": rule.mode.value,
        "shadow": rule.shadow,
        "hints": {name: value for name, value in rule.hints.items() if name not in asked.hints},
    }


def _authorization(asked: _Asked) -> dict[str, Any]:
    access, request = asked.rules.access, {"method": TOOLS_CALL, "upstream": asked.upstream, "tool": asked.tool}
    judged = access.judge(asked.identity, **request)
    matching = [number for number, rule in enumerate(access.rules) if rule.matches(asked.identity, **request)]
    number = next((each for each in matching if not access.rules[each].shadow), None)
    where = ("default",) if number is None else ("rules", number)
    return {
        "allowed": judged.allowed,
        "name": judged.rule,
        "missing_scopes": sorted(judged.missing_scopes),
        **_placed(place(asked.config, "authorization", *where)),
        "shadow": [
            {"rule": f"authorization.rules[{each}]", "missing_scopes": sorted(refusal.missing_scopes)}
            for each in matching
            if (number is None or each < number)
            and (refusal := access.rules[each].refusal(access.scopes(asked.identity)))
        ],
        "only_listed_tools": {
            "value": asked.upstream in access.only_listed,
            **_placed(place(asked.config, "authorization", "only_listed_tools")),
        },
    }


def _demands(asked: _Asked, method: str, tool: str | None) -> tuple[Demand, ...]:
    rates = {} if asked.override is None else asked.override.rates
    return asked.rules.rates.demands(_subject(asked), rates, asked.upstream, method, tool)


def _of_event(asked: _Asked, event: RateEvent) -> tuple[Demand, ...]:
    rates = {} if asked.override is None else asked.override.rates
    return asked.rules.rates.of_event(event, _subject(asked), rates, asked.upstream)


def _subject(asked: _Asked) -> RateSubject:
    return RateSubject("", None if asked.identity is None else asked.identity.tenant, "")


def _rates(asked: _Asked, demands: Iterable[Demand]) -> list[dict[str, Any]]:
    return [_rate(asked, demand) for demand in demands]


def _rate(asked: _Asked, demand: Demand) -> dict[str, Any]:
    config, name = asked.config, demand.policy.name
    number = next(number for number, each in enumerate(config.limits.rate) if each.name == name)
    rate, where = config.limits.rate[number].rate, place(config, "limits", "rate", number)
    if asked.override is not None and name in asked.override.rates:
        rate = config.limits.overrides[_number(asked)].rate[name]
        where = place(config, "limits", "overrides", _number(asked), "rate", name)
    return {
        "policy": name,
        "scope": demand.policy.scope.value,
        "rate": str(rate),
        "burst": demand.limit.burst,
        "cost": demand.cost,
        "shadow": demand.policy.shadow,
        **_placed(where),
    }


def _caps(asked: _Asked, decision: PromotionDecision) -> tuple[Cap, ...]:
    has_tenant = asked.identity is not None and asked.identity.tenant is not None
    caps = {} if asked.override is None else asked.override.caps
    return asked.rules.caps.of(caps, decision.cap, has_tenant)


def _cap(asked: _Asked, decision: PromotionDecision, cap: Cap) -> dict[str, Any]:
    key = _key_of(cap)
    limit: int | str = write_size(cap.limit) if cap.bytes else cap.limit
    if cap.scope is CapScope.TOOL and decision.cap is not None:
        return {"key": key, "value": limit, **_at(asked, decision.rule, "cap")}
    if asked.override is not None and key in asked.override.caps:
        where = place(asked.config, "limits", "overrides", _number(asked), "concurrency", key)
    else:
        where = place(asked.config, *_CONCURRENCY, key)
    return {"key": key, "value": limit, **_placed(where)}


def _key_of(cap: Cap) -> str:
    scope = "global" if cap.scope is CapScope.GLOBAL else f"per_{cap.scope.value}"
    return f"{'kept' if cap.bytes else 'tasks'}_{scope}"
