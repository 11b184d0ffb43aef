"""Evaluation of the rules for one caller and one tool: the explanation as plain values.

The values become JSON as they are, in the words of the file. Most are mappings with `value`, the
key that it comes from (`from`), and whether that is a default (`default`). The rules are the
objects that a running gateway asks. `taskgate explain` prints the result, as JSON or by `render`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import BaseModel

from taskgate.admission.rules import AdmissionRules
from taskgate.auth.context import Identity
from taskgate.config import GatewayConfig
from taskgate.config.fields import write_duration, write_size
from taskgate.config.model import admission_rules, upstream_settings
from taskgate.config.problems import Location, dotted
from taskgate.config.sections.extensions import ERAS, MAX_IDENTIFIER
from taskgate.config.sections.tasks import DEFAULT_TTL_MAX
from taskgate.domain.limits import Cap, CapScope, Override
from taskgate.domain.policy import PromotionDecision, PromotionMode
from taskgate.domain.rates import Demand, RateEvent, RateSubject
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.extensions import AUTHORIZATION, BUILT_IN, Extension, ExtensionPolicy, is_declared
from taskgate.protocol.handoff import LIST
from taskgate.protocol.vocabulary import TASKS_EXTENSION, TASKS_GET, TOOLS_CALL

MAX_DECLARED: Final = 64
"""Identifiers of a server's declaration that are listed."""

_RULES: Final = ("tasks", "upgrade")
_SERVER: Final = ("concurrency", "queue.size", "queue.max_wait", "timeouts.connect")
_PROGRAM: Final = ("timeouts.first_byte", "processes", "sessions")
_BREAKER: Final = ("circuit_breaker.failures", "circuit_breaker.window", "circuit_breaker.open_for")
_LOOKUPS: Final = ("threshold", "window", "penalty")
_EXTENSION_LISTS: Final = ("methods", "notifications", "filters", "result_types", "cacheable")


def explanation(
    config: GatewayConfig,
    upstream: str,
    tool: str,
    *,
    identity: Identity | None,
    hints: Mapping[str, bool],
    server: Peer | None = None,
) -> dict[str, Any]:
    """Return what decides over `tools/call` of a tool, polls of its task, and extensions.

    `identity` is None with `auth.mode: none`. `hints` are the annotations that the server lists for
    the tool. `server` is what the server says of itself, if it was asked.
    """
    rules = admission_rules(config)
    tenant, claims = (None, {}) if identity is None else (identity.tenant, identity.claims)
    override = rules.overrides.find(tenant, claims)
    number = next((number for number, each in enumerate(rules.overrides) if each is override), None)
    decision = rules.policy.decide(upstream, tool, hints)
    found = _Evaluation(config, rules, upstream, tool, hints, identity, override, number, decision)
    return {
        "caller": found.caller(),
        "call": found.call(),
        "promotion": found.promotion(),
        "authorization": found.authorization(),
        "rates": found.rates(),
        "caps": found.caps(),
        "open": _open_at_once(config),
        "polls": {
            "grace": value_at(config, "tasks", "poll_grace"),
            "interval": value_at(config, "tasks", "poll_interval", "base"),
            "reject_above": value_at(config, "tasks", "early_poll", "reject_above"),
        },
        "lookups": _lookups(config),
        "server": found.server(),
        "extensions": _extensions(config, upstream, server),
        "refusals": value_at(config, "limits", "reject_as"),
    }


def tools_under_rules(
    config: GatewayConfig, upstream: str, tools: Mapping[str, ListedTool], identity: Identity | None
) -> list[dict[str, Any]]:
    """Return what decides over calls of each tool of a server by that caller, by the names of the tools.

    `task_support` is the server's own. `mode` is that of the rule, or of no rule. A tool that never becomes a
    task has no `announce`.
    """
    rules = admission_rules(config)
    found = []
    for name, tool in sorted(tools.items()):
        decision = rules.policy.decide(upstream, name, tool.hints)
        judged = rules.access.decide(identity, method=TOOLS_CALL, upstream=upstream, tool=name)
        found.append(
            {
                "tool": name,
                "task_support": None if tool.support is None else tool.support.value,
                "hints": dict(tool.hints),
                "mode": decision.mode.value,
                "announce": None
                if decision.mode is PromotionMode.SYNC
                else "always"
                if decision.announces
                else "never",
                "rule": None if decision.rule is None else f"tasks.upgrade[{decision.rule}]",
                "allowed": judged.allowed,
                "access_rule": judged.rule,
            }
        )
    return found


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One caller and one tool under the rules; a public method makes one part of the explanation.

    `override` has the limits that the operator gives to this caller, None for the general ones.
    `number` is its index in `limits.overrides`. `decision` is what `tasks.upgrade` says of the tool.
    """

    config: GatewayConfig
    rules: AdmissionRules
    upstream: str
    tool: str
    hints: Mapping[str, bool]
    identity: Identity | None
    override: Override | None
    number: int | None
    decision: PromotionDecision

    def caller(self) -> dict[str, Any]:
        override = None if self.number is None else f"limits.overrides[{self.number}]"
        if self.identity is None:
            return {"anonymous": True, "override": override}
        return {
            "anonymous": False,
            "issuer": self.identity.issuer_name,
            "subject": self.identity.subject,
            "client": self.identity.client_id,
            "tenant": self.identity.tenant,
            "scopes": sorted(self.rules.access.scopes(self.identity)),
            "override": override,
        }

    def call(self) -> dict[str, Any]:
        path, hints = self.config.upstreams[self.upstream].path, dict(self.hints)
        called = {"upstream": self.upstream, "path": path, "tool": self.tool, "hints": hints}
        tasks = self.config.tasks
        if self.tool in tasks.to_reserved(self.rules.policy):
            tools = tasks.handoff.to_tools()
            keys = {
                tools.wait.name: ("handoff", "tools", "wait", "name"),
                tools.cancel.name: ("handoff", "tools", "cancel", "name"),
                LIST.name: ("inbox",) if tasks.inbox else ("upgrade",),
            }
            # No server gets a call of it.
            called["reserved"] = {"value": True, **source(self.config, "tasks", *keys[self.tool])}
        return called

    def _override_source(self, *keys: str) -> dict[str, Any]:
        assert self.number is not None, "only a caller with an override has values of one"
        return source(self.config, "limits", "overrides", self.number, *keys)

    # --- promotion ---

    def promotion(self) -> dict[str, Any]:
        decision, number = self.decision, self.decision.rule
        before = range(len(self.rules.policy.rules) if number is None else number)
        return {
            "rule": None if number is None else f"tasks.upgrade[{number}]",
            "mode": {"value": decision.mode.value, **self._rule_source("mode")},
            "announce": {
                "value": "always" if decision.announces else "never",
                **self._rule_source("announce", "announce"),
            },
            "inline_grace": _duration(decision.inline_grace, self._rule_source("inline_grace", "inline_grace")),
            "ttl": self._default_ttl(),
            "ttl_min": _duration(decision.ttl_min, self._min_source()),
            "ttl_max": self._max_ttl(),
            "ttl_keep": _duration(self.rules.policy.ttl_keep, source(self.config, "tasks", "ttl", "keep")),
            "deadline": _duration(decision.deadline, self._rule_source("deadline")),
            "cap": {"value": decision.cap, **self._rule_source("cap")},
            "on_lost": {"value": decision.on_lost.value, **self._rule_source("on_lost")},
            "join_retries": _duration(decision.join_retries, self._rule_source("join_retries")),
            "handoff": _duration(
                None if decision.handoff is None else decision.handoff.after, self._rule_source("handoff")
            ),
            **self._handoff(),
            "shadow": [self._other_rule(each) for each in before if self._matches(each)],
            "hints_wanted": [self._other_rule(each) for each in before if self._would_match(each)],
        }

    def _handoff(self) -> dict[str, Any]:
        """Return what else applies to calls of hosts without tasks, if the rule hands these off."""
        terms, number, rules = self.decision.handoff, self.decision.rule, self.rules.handoff
        if terms is None:
            return {}
        own = number is not None and terms.ceiling is not None
        ceiling_key = (*_RULES, number, "handoff", "ceiling") if own else ("tasks", "handoff", "ceiling")
        ceiling = _duration(terms.ceiling or rules.usual, source(self.config, *ceiling_key))
        never = _duration(None, self._rule_source("join_retries"))
        window = _duration(rules.retry_window, source(self.config, "tasks", "handoff", "retry_window"))
        return {"handoff_ceiling": ceiling, "handoff_retry_window": window if terms.joins else never}

    def _default_ttl(self) -> dict[str, Any]:
        """Return the time to live of tasks whose hosts ask for none."""
        longest = None if self.override is None else self.override.ttl_max
        if longest is not None and longest < self.decision.ttl_default:
            return self._max_ttl()
        return _duration(self.decision.clamp_ttl(None, longest), self._rule_source("ttl", "ttl", "default"))

    def _min_source(self) -> dict[str, Any]:
        """Return the source of the shortest time to live, which is the usual one unless it is given."""
        number, config = self.decision.rule, self.config
        if config.tasks.ttl.min is None and (number is None or config.tasks.upgrade[number].ttl_min is None):
            return self._rule_source("ttl", "ttl", "default")
        return self._rule_source("ttl_min", "ttl", "min")

    def _max_ttl(self) -> dict[str, Any]:
        if self.override is not None and self.override.ttl_max is not None:
            return _duration(self.override.ttl_max, self._override_source("ttl_max"))
        where, longest = self._rule_source("ttl_max", "ttl", "max"), self.decision.ttl_max
        # A configuration has this value whether the file has it or not.
        left_out = where["from"] == "tasks.ttl.max" and longest == DEFAULT_TTL_MAX
        return _duration(longest, where | {"default": where["default"] or left_out})

    def _rule_source(self, key: str, *fallback: str) -> dict[str, Any]:
        """Return the source of a value of the decision: the rule, or the key of `tasks` that it falls back to."""
        config, number = self.config, self.decision.rule
        if number is None and not fallback:
            return source(config, *_RULES)
        if number is None or (fallback and getattr(config.tasks.upgrade[number], key) is None):
            return source(config, "tasks", *fallback)
        return source(config, *_RULES, number, key)

    def _matches(self, number: int) -> bool:
        """Whether a rule before the one that decides matches: then it is in shadow."""
        return self.rules.policy.rules[number].matches(self.upstream, self.tool, self.hints)

    def _would_match(self, number: int) -> bool:
        """Whether a rule would match if the server listed hints that are not given."""
        rule = self.rules.policy.rules[number]
        matches = rule.matches(self.upstream, self.tool, {**rule.hints, **self.hints})
        return matches and not self._matches(number)

    def _other_rule(self, number: int) -> dict[str, Any]:
        rule = self.rules.policy.rules[number]
        return {
            "rule": f"tasks.upgrade[{number}]",
            "mode": rule.mode.value,
            "shadow": rule.shadow,
            "hints": {name: value for name, value in rule.hints.items() if name not in self.hints},
        }

    # --- authorization ---

    def authorization(self) -> dict[str, Any]:
        access, request = self.rules.access, {"method": TOOLS_CALL, "upstream": self.upstream, "tool": self.tool}
        judged = access.decide(self.identity, **request)
        matching = [number for number, rule in enumerate(access.rules) if rule.matches(self.identity, **request)]
        number = next((each for each in matching if not access.rules[each].shadow), None)
        where = ("default",) if number is None else ("rules", number)
        return {
            "allowed": judged.allowed,
            "name": judged.rule,
            "missing_scopes": sorted(judged.missing_scopes),
            **source(self.config, "authorization", *where),
            "shadow": [
                {"rule": f"authorization.rules[{each}]", "missing_scopes": sorted(refusal.missing_scopes)}
                for each in matching
                if (number is None or each < number)
                and (refusal := access.rules[each].refusal(access.scopes(self.identity)))
            ],
            "only_listed_tools": {
                "value": self.upstream in access.only_listed,
                **source(self.config, "authorization", "only_listed_tools"),
            },
        }

    # --- rates and caps ---

    def rates(self) -> dict[str, list[dict[str, Any]]]:
        policies, override = self.rules.rates, {} if self.override is None else self.override.rates
        subject = RateSubject("", "", None if self.identity is None else self.identity.tenant, "")
        demands: dict[str, Iterable[Demand]] = {
            "before_auth": policies.before_auth("", self.upstream),
            TOOLS_CALL: policies.demands(subject, override, self.upstream, TOOLS_CALL, self.tool),
            TASKS_GET: policies.demands(subject, override, self.upstream, TASKS_GET, None),
            **{each.value: policies.event_demands(each, subject, override, self.upstream) for each in RateEvent},
        }
        return {key: [self._rate(demand) for demand in each] for key, each in demands.items()}

    def _rate(self, demand: Demand) -> dict[str, Any]:
        limits, name = self.config.limits, demand.policy.name
        number = next(number for number, each in enumerate(limits.rate) if each.name == name)
        where = {"from": dotted(("limits", "rate", number)), "default": limits.is_built_in(number)}
        rate = limits.rate[number].rate
        if self.number is not None and name in limits.overrides[self.number].rate:
            rate, where = limits.overrides[self.number].rate[name], self._override_source("rate", name)
        return {
            "policy": name,
            "scope": demand.policy.scope.value,
            "rate": str(rate),
            "burst": demand.limit.burst,
            "wait": write_duration(timedelta(seconds=demand.limit.ahead)) if demand.limit.ahead else None,
            "cost": demand.cost,
            "shadow": demand.policy.shadow,
            **where,
        }

    def caps(self) -> list[dict[str, Any]]:
        has_tenant = self.identity is not None and self.identity.tenant is not None
        overridden = {} if self.override is None else self.override.caps
        return [self._cap(cap) for cap in self.rules.caps.applicable(overridden, self.decision.cap, has_tenant)]

    def _cap(self, cap: Cap) -> dict[str, Any]:
        scope = "global" if cap.scope is CapScope.GLOBAL else f"per_{cap.scope.value}"
        key = f"{'kept' if cap.bytes else 'tasks'}_{scope}"
        if cap.scope is CapScope.TOOL and self.decision.cap is not None:
            where = self._rule_source("cap")
        elif self.override is not None and key in self.override.caps:
            where = self._override_source("concurrency", key)
        else:
            where = source(self.config, "limits", "concurrency", key)
        return {"key": key, "value": write_size(cap.limit) if cap.bytes else cap.limit, **where}

    # --- the server ---

    def server(self) -> dict[str, Any]:
        """Return how many calls the server gets, the timeouts for the tool, and the circuit breaker."""
        config, here = self.config, ("upstreams", self.upstream)
        section = config.upstreams[self.upstream]
        keys = _SERVER if section.command is None else (*_SERVER, *_PROGRAM)
        found = {key: value_at(config, *here, *key.split(".")) for key in keys}
        if config.auth.mode != "none":
            has_calls = self.override is not None and self.override.calls is not None
            whose = ("overrides", self.number) if has_calls and self.number is not None else ()
            found["calls_per_context"] = value_at(config, "limits", *whose, "concurrency", "calls_per_context")
        found.update(self._timeouts())
        breaker = _BREAKER if section.circuit_breaker is not None else ("circuit_breaker",)
        return found | {key: value_at(config, *here, *key.split(".")) for key in breaker}

    def _timeouts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Iterate over the timeouts of calls of the tool, without those that are unbounded."""
        settings = upstream_settings(self.config, self.upstream)
        written = self.config.upstreams[self.upstream].timeouts
        matching = (number for number, each in enumerate(settings.tools) if fnmatchcase(self.tool, each.tool))
        number = next(matching, None)
        bounds = settings if number is None else settings.tools[number]
        for key in ("idle", "call", "ceiling"):
            where: tuple[str | int, ...] = ("timeouts", key)
            if number is not None and getattr(written.tools[number], key) is not None:
                where = ("timeouts", "tools", number, key)
            value = getattr(bounds, key)
            if value is not None:
                yield f"timeouts.{key}", with_source(self.config, value, "upstreams", self.upstream, *where)


def _duration(length: timedelta | None, where: dict[str, Any]) -> dict[str, Any]:
    return {"value": None if length is None else write_duration(length), **where}


# --- bounds that are the same for every tool ------------------------------------------------------------------------


def _open_at_once(config: GatewayConfig) -> dict[str, Any]:
    """Return how much of a caller may be open at once."""
    limits = ("limits", "concurrency")
    return {
        "sessions": value_at(config, *limits, "sessions_per_context"),
        "streams": value_at(config, "server", "max_streams_per_context"),
        "waits": value_at(config, *limits, "waits_per_context"),
        "large_messages": _size(value_at(config, *limits, "bytes_in_flight_per_context")),
        "kept_by_streams": _size(value_at(config, *limits, "streams_kept_per_context")),
    }


def _size(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"value": write_size(found["value"])}


def _lookups(config: GatewayConfig) -> dict[str, Any]:
    """Return the penalty for failed look-ups; nothing where all hosts are one caller."""
    if config.auth.mode == "none":
        return {}
    return {key: value_at(config, "auth", "lookup_failures", key) for key in _LOOKUPS}


# --- extensions -----------------------------------------------------------------------------------------------------


def _extensions(config: GatewayConfig, upstream: str, server: Peer | None) -> dict[str, Any]:
    """Return which extensions cross: built-in ones, those of the file, and those that `server` declares."""
    section = config.upstreams[upstream].extensions
    policy = section.to_policy()
    names = [*BUILT_IN, TASKS_EXTENSION, *sorted(AUTHORIZATION)]
    names += [name for name in section.named if name not in names]
    return {
        "default": value_at(config, "upstreams", upstream, "extensions", "default"),
        "each": {name: _extension(config, upstream, policy, name) for name in names},
        "declared": None if server is None else _declared(policy, server),
    }


def _extension(config: GatewayConfig, upstream: str, policy: ExtensionPolicy, name: str) -> dict[str, Any]:
    servers_by_host = {host: [each for each in ERAS if policy.allows(name, ERAS[host], ERAS[each])] for host in ERAS}
    allowed = policy.allowed.get(name, Extension())
    return {
        "becomes": _outcome(name, crosses=any(servers_by_host.values())),
        "servers_by_host": servers_by_host,
        **{key: sorted(getattr(allowed, key)) for key in _EXTENSION_LISTS},
        **source(config, "upstreams", upstream, "extensions", name),
    }


def _declared(policy: ExtensionPolicy, server: Peer) -> dict[str, Any]:
    """Return the extensions that a server declares, with the eras of hosts that each crosses to."""
    era, capabilities = era_of(server.revision), server.capabilities
    written = capabilities.get("extensions")
    names = list(written) if isinstance(written, dict) else []
    names += [name for name, each in BUILT_IN.items() if name not in names and is_declared(name, each, capabilities)]
    return {
        "revision": server.revision.value,
        "era": next(word for word, each in ERAS.items() if each is era),
        "each": {_printable(name): _declared_extension(policy, name, era) for name in names[:MAX_DECLARED]},
        "left_out": max(0, len(names) - MAX_DECLARED),
    }


def _declared_extension(policy: ExtensionPolicy, name: str, server: Era) -> dict[str, Any]:
    hosts = [host for host in ERAS if policy.allows(name, ERAS[host], server)]
    return {"becomes": _outcome(name, crosses=bool(hosts)), "hosts": hosts}


def _outcome(name: str, *, crosses: bool) -> str:
    if name == TASKS_EXTENSION:
        return "own"
    return "crosses" if crosses else "denied"


def _printable(name: str) -> str:
    """Cut and escape an identifier, which a server may have filled with anything."""
    cut = name[:MAX_IDENTIFIER]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


# --- the keys that values come from -----------------------------------------------------------------------------------


def source(config: GatewayConfig, *location: str | int) -> dict[str, Any]:
    """Return the source of the key at a location."""
    return {"from": dotted(location), "default": _is_default(config, location)}


def with_source(config: GatewayConfig, value: Any, *location: str | int) -> dict[str, Any]:
    """Return a value, a duration as the file writes it, with the source of the key at a location."""
    return {"value": write_duration(value) if isinstance(value, timedelta) else value, **source(config, *location)}


def value_at(config: GatewayConfig, *location: str | int) -> dict[str, Any]:
    """Return the value of the key at a location, with its source."""
    value: Any = config
    for part in location:
        value = value[part] if isinstance(part, int) or isinstance(value, Mapping) else getattr(value, part)
    return with_source(config, value, *location)


def _is_default(node: object, location: Location) -> bool:
    for part in location:
        if isinstance(node, BaseModel) and isinstance(part, str):
            if part not in node.model_fields_set:
                return True
            node = getattr(node, part)
        elif isinstance(node, Mapping | Sequence):
            node = node[part]  # type: ignore[index]  # a mapping has names, a sequence numbers
    return False
