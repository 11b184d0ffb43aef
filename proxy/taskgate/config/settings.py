"""Settings that take keys of several sections: of upstreams, admission and metrics.

Settings from one section are made by its own `to_settings`.
"""

from __future__ import annotations

from taskgate.admission.concurrency import BulkheadSettings
from taskgate.admission.rules import AdmissionRules, OnStoreError, RejectAs
from taskgate.config.model import GatewayConfig
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.streams.bytes_in_flight import ByteBounds
from taskgate.streams.event_log import EventBounds
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.upstream.settings import UpstreamSettings


def upstream_settings(config: GatewayConfig, name: str) -> UpstreamSettings:
    """Return the settings of the upstream of that name."""
    return config.upstreams[name].to_settings(
        name, max_result=config.tasks.max_result, catalogue=config.limits.catalogue.to_bounds()
    )


def bulkhead_settings(config: GatewayConfig, name: str) -> BulkheadSettings:
    """Return the limits of concurrent and queued calls of the upstream of that name."""
    section = config.upstreams[name]
    return BulkheadSettings(
        concurrency=section.concurrency,
        queue=section.queue.size,
        max_wait=section.queue.max_wait,
        share=config.limits.concurrency.calls_per_context,
        is_shared=config.auth.mode != "none",
    )


def admission_rules(config: GatewayConfig) -> AdmissionRules:
    """Return one generation of the rules that may change while the gateway runs."""
    limits, concurrency = config.limits, config.limits.concurrency
    return AdmissionRules(
        policy=config.tasks.to_policy(config.longest_ttl),
        polling=config.tasks.to_polling(),
        access=config.authorization.to_policy(config.upstreams),
        rates=limits.to_rate_policies(),
        caps=concurrency.to_caps(),
        overrides=limits.to_overrides(),
        questions=config.tasks.input_required.to_bounds(),
        reject_as=RejectAs(limits.reject_as),
        exposes_quota=limits.expose_quota,
        on_store_error=OnStoreError(limits.on_store_error),
        sessions=concurrency.sessions_per_context,
        streams=config.server.max_streams_per_context,
        in_flight=ByteBounds(concurrency.bytes_in_flight_per_context, concurrency.bytes_in_flight_global),
        events=EventBounds(concurrency.streams_kept_per_context, concurrency.streams_kept_global),
        waits=concurrency.waits_per_context,
        all_waits=concurrency.waits_global,
    )


def extension_methods(config: GatewayConfig) -> frozenset[str]:
    """Return the methods of extensions that cross at any upstream."""
    policies = [section.extensions.to_policy() for section in config.upstreams.values()]
    return frozenset(method for policy in policies for each in policy.allowed.values() for method in each.methods)


def metrics_config(config: GatewayConfig) -> MetricsConfig:
    """Return the names and limits that the metrics of the gateway show."""
    audit, upstreams = config.audit, config.upstreams
    uses_tokens = ("client_credentials", "token_exchange")
    return MetricsConfig(
        backend=config.store.backend,
        upstreams={name: name for name in upstreams},
        issuers=tuple(config.auth.issuers),
        policies=tuple(policy.name for policy in config.limits.rate),
        sinks=tuple(sink.name for sink in audit.sinks) if audit.enabled else (),
        extensions=tuple(sorted({name for each in upstreams.values() for name in each.extensions.named})),
        methods=tuple(sorted(extension_methods(config) - KNOWN_METHODS)),
        token_users=tuple(name for name, each in upstreams.items() if each.credentials.mode in uses_tokens),
        programs=tuple(name for name, each in upstreams.items() if each.transport == "stdio"),
        task_limit=config.limits.concurrency.tasks_global,
        queue_limits={name: upstream.queue.size for name, upstream in upstreams.items()},
        store_limit=config.store.sqlite.max_size if config.store.backend == "sqlite" else None,
        audit_queue=audit.queue if audit.enabled else None,
        settings=config.metrics.to_settings(shares_store=config.store.backend == "redis"),
    )
