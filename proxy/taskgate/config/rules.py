"""What may change while the gateway runs: the configuration as one generation of rules.

What lives here: that translation and nothing else. What must not: what a rule means.
"""

from __future__ import annotations

from typing import Final

from taskgate.admission.bulkhead import BulkheadSettings
from taskgate.admission.rules import AdmissionRules, OnStoreError, RejectAs
from taskgate.config.access import access_policy
from taskgate.config.limits_models import ConcurrencySection, OverrideSection, RatePolicySection
from taskgate.config.models import GatewayConfig
from taskgate.config.parts import question_bounds
from taskgate.config.task_models import UpgradeRule
from taskgate.domain.caps import Caps
from taskgate.domain.gcra import RateLimit
from taskgate.domain.overrides import Override, Overrides
from taskgate.domain.policy import Mode, OnLost, Policy, Rule
from taskgate.domain.polling import Polling
from taskgate.domain.rates import RateEvent, RatePolicies, RatePolicy, Scope
from taskgate.streams.bytes_in_flight import ByteBounds
from taskgate.streams.event_log import EventBounds

_CAPS: Final = (
    "tasks_per_context",
    "tasks_per_tenant",
    "tasks_per_tool",
    "tasks_per_upstream",
    "tasks_global",
    "kept_per_context",
    "kept_global",
)


def rules_of(config: GatewayConfig) -> AdmissionRules:
    """The rules that the configuration says."""
    limits = config.limits
    return AdmissionRules(
        policy=task_policy(config),
        polling=_polling(config),
        access=access_policy(config),
        rates=RatePolicies(tuple(map(_rate_policy, limits.rate))),
        caps=_caps(limits.concurrency),
        overrides=_overrides(config),
        questions=question_bounds(config),
        reject_as=RejectAs(limits.reject_as),
        exposes_quota=limits.expose_quota,
        on_store_error=OnStoreError(limits.on_store_error),
        sessions=limits.concurrency.sessions_per_context,
        streams=config.server.max_streams_per_context,
        in_flight=ByteBounds(limits.concurrency.bytes_in_flight_per_context, limits.concurrency.bytes_in_flight_global),
        events=EventBounds(limits.concurrency.streams_kept_per_context, limits.concurrency.streams_kept_global),
        waits=limits.concurrency.waits_per_context,
        all_waits=limits.concurrency.waits_global,
    )


def bulkhead_settings(config: GatewayConfig, upstream: str) -> BulkheadSettings:
    """How many calls the server of that name has at once, and how many wait for their turn."""
    section = config.upstreams[upstream]
    return BulkheadSettings(
        concurrency=section.concurrency,
        queue=section.queue.size,
        max_wait=section.queue.max_wait,
        share=config.limits.concurrency.calls_per_context,
        is_shared=config.auth.mode != "none",
    )


def task_policy(config: GatewayConfig) -> Policy:
    """The operator's rules for tasks, in the order of the file."""
    tasks = config.tasks
    return Policy(
        rules=tuple(map(_upgrade_rule, tasks.upgrade)),
        ttl_default=tasks.ttl.default,
        ttl_min=tasks.ttl.min,
        ttl_max=config.longest_ttl,
        inline_grace=tasks.inline_grace,
    )


def _upgrade_rule(rule: UpgradeRule) -> Rule:
    return Rule(
        upstream=rule.upstream,
        tool=rule.tool,
        hints=dict(rule.hints.items()),
        mode=Mode(rule.mode),
        inline_grace=rule.inline_grace,
        ttl=rule.ttl,
        ttl_min=rule.ttl_min,
        ttl_max=rule.ttl_max,
        deadline=rule.deadline,
        cap=rule.cap,
        on_lost=OnLost(rule.on_lost),
        join_retries=rule.join_retries,
        immediate_response=rule.immediate_response,
        shadow=rule.shadow,
    )


def _polling(config: GatewayConfig) -> Polling:
    interval, early = config.tasks.poll_interval, config.tasks.early_poll
    return Polling(
        base=interval.base,
        least=interval.min,
        most=interval.max,
        adaptive=interval.adaptive,
        jitter=interval.jitter,
        target=interval.target_utilization,
        tolerance=early.tolerance,
        reject_above=early.reject_above,
    )


def _rate_policy(section: RatePolicySection) -> RatePolicy:
    return RatePolicy(
        name=section.name,
        scope=Scope(section.scope),
        limit=RateLimit(every=section.rate.every, burst=section.most_at_once),
        methods=section.methods,
        upstream=section.upstream,
        tool=section.tool,
        event=None if section.event is None else RateEvent(section.event),
        cost=section.cost,
        before_auth=section.before_auth,
        shadow=section.mode == "shadow",
    )


def _caps(section: ConcurrencySection) -> Caps:
    return Caps(**{name: getattr(section, name) for name in _CAPS})


def _overrides(config: GatewayConfig) -> Overrides:
    policies = {policy.name: policy for policy in config.limits.rate}
    return Overrides(_override(section, policies) for section in config.limits.overrides)


def _override(section: OverrideSection, policies: dict[str, RatePolicySection]) -> Override:
    caps = {name: getattr(section.concurrency, name) for name in _CAPS}
    return Override(
        tenant=section.match.tenant,
        claims={claim: frozenset(values) for claim, values in section.match.claims.items()},
        rates={
            name: RateLimit(every=rate.every, burst=policies[name].burst_at(rate))
            for name, rate in section.rate.items()
        },
        caps={name: cap for name, cap in caps.items() if cap is not None},
        calls=section.concurrency.calls_per_context,
        ttl_max=section.ttl_max,
    )
