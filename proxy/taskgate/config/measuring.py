"""What metrics make of the configuration: its names, its limits, and what is to be counted, as values of theirs.

What lives here: that translation and nothing else.
"""

from __future__ import annotations

from typing import Final

from taskgate.config.models import GatewayConfig
from taskgate.config.servers import carried_methods
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.telemetry.metrics.settings import Configured, MetricsSettings

_ASKING: Final = ("client_credentials", "token_exchange")


def measured(config: GatewayConfig) -> Configured:
    """The names and limits that a gateway of that configuration shows."""
    audit, in_file = config.audit, config.store.backend == "sqlite"
    return Configured(
        backend=config.store.backend,
        upstreams={name: name for name in config.upstreams},
        issuers=tuple(config.auth.issuers),
        policies=tuple(policy.name for policy in config.limits.rate),
        sinks=tuple(sink.name for sink in audit.sinks) if audit.enabled else (),
        extensions=tuple(sorted({name for each in config.upstreams.values() for name in each.extensions.named})),
        methods=tuple(sorted(carried_methods(config) - KNOWN_METHODS)),
        token_users=tuple(name for name, each in config.upstreams.items() if each.credentials.mode in _ASKING),
        programs=tuple(name for name, each in config.upstreams.items() if each.transport == "stdio"),
        task_limit=config.limits.concurrency.tasks_global,
        queue_limits={name: upstream.queue.size for name, upstream in config.upstreams.items()},
        store_limit=config.store.sqlite.max_size if in_file else None,
        audit_queue=audit.queue if audit.enabled else None,
        settings=_settings(config),
    )


def _settings(config: GatewayConfig) -> MetricsSettings:
    section = config.metrics
    return MetricsSettings(
        enabled=section.enabled,
        path=section.path,
        tool_label=section.tool_label,
        tool_histograms=section.tool_histograms,
        max_tools=section.max_tools,
        tenants=frozenset(section.tenants) if section.tenant_label else None,
        exemplars=section.exemplars,
        buckets=dict(section.buckets),
        shares_store=config.store.backend == "redis",
    )
