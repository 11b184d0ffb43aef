"""What the floors below make of `upstreams`: the configuration as values of theirs.

What lives here: that translation and nothing else. What must not: opening, reading or asking what the values name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from taskgate.config.credential_models import CredentialsSection
from taskgate.config.models import GatewayConfig
from taskgate.config.protection_models import CircuitBreakerSection, HealthSection, RetriesSection
from taskgate.config.transport_coherence import STDIO
from taskgate.config.upstream_models import TimeoutsSection, UpstreamSection
from taskgate.dialects.catalogue import CatalogueBounds
from taskgate.mcp.versions import Revision
from taskgate.upstream.settings import (
    Breaker,
    FixedHeader,
    GrantKind,
    GrantSettings,
    Health,
    IdentityHeaders,
    Kind,
    Retries,
    TlsSettings,
    ToolTimeouts,
    UpstreamSettings,
)
from taskgate.upstream.stdio.settings import StdioSettings

_USUAL_CEILING: Final = timedelta(hours=24)


def upstream_settings(config: GatewayConfig, name: str) -> UpstreamSettings:
    """The server of that name."""
    section = config.upstreams[name]
    tls = section.tls
    return UpstreamSettings(
        name=name,
        transport=Kind(section.transport),
        url=section.url,
        stdio=_stdio(section),
        revision=None if section.protocol_version == "auto" else Revision(section.protocol_version),
        connect=section.timeouts.connect,
        first_byte=section.timeouts.first_byte,
        idle=section.timeouts.idle,
        call=section.timeouts.call,
        ceiling=_ceiling(section.timeouts),
        tools=_tools(section.timeouts),
        max_result=config.tasks.max_result,
        catalogue=CatalogueBounds(config.limits.catalogue.max_tools, config.limits.catalogue.max_bytes),
        credentials=_credentials(section.credentials),
        identity=IdentityHeaders(context=section.identity_headers.context, subject=section.identity_headers.subject),
        tls=TlsSettings(
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            server_name=tls.server_name,
            insecure_skip_verify=tls.insecure_skip_verify,
        ),
        retries=None if section.transport == STDIO else _retries(section.retries),
        breaker=_breaker(section.circuit_breaker),
        health=_health(section.health),
    )


def _stdio(section: UpstreamSection) -> StdioSettings | None:
    if section.command is None:
        return None
    return StdioSettings(
        command=section.command,
        env=section.env,
        cwd=section.cwd,
        processes=section.processes,
        idle=section.pool.idle_timeout,
        backoff=section.restart.backoff,
        max_backoff=section.restart.max_backoff,
        shared=section.sessions == "shared",
    )


def _ceiling(timeouts: TimeoutsSection) -> timedelta:
    return timeouts.ceiling or max(_USUAL_CEILING, timeouts.call)


def _tools(timeouts: TimeoutsSection) -> tuple[ToolTimeouts, ...]:
    """The rules for tools with nothing left open."""
    return tuple(
        ToolTimeouts(
            tool=rule.tool,
            call=rule.call or timeouts.call,
            ceiling=rule.ceiling or max(_ceiling(timeouts), rule.call or timeouts.call),
            idle=rule.idle or timeouts.idle,
        )
        for rule in timeouts.tools
    )


def _credentials(section: CredentialsSection) -> FixedHeader | GrantSettings | None:
    if section.mode == "header":
        assert section.header is not None, "the mode needs it"
        assert section.value is not None, "the mode needs it"
        return FixedHeader(name=section.header, value=section.value)
    if section.mode in ("client_credentials", "token_exchange"):
        assert section.token_url is not None, "the mode needs it"
        assert section.client_id is not None, "the mode needs it"
        assert section.client_secret is not None, "the mode needs it"
        return GrantSettings(
            kind=GrantKind(section.mode),
            token_url=section.token_url,
            client_id=section.client_id,
            client_secret=section.client_secret,
            resource=section.resource,
            audience=section.audience,
            scopes=section.scopes,
            keeps=section.cache,
        )
    return None


def _retries(section: RetriesSection) -> Retries | None:
    if "connect" not in section.when:
        return None
    return Retries(attempts=section.attempts, backoff=section.backoff, max_backoff=section.max_backoff)


def _breaker(section: CircuitBreakerSection | None) -> Breaker | None:
    if section is None:
        return None
    return Breaker(
        failures=section.failures, window=section.window, open_for=section.open_for, half_open=section.half_open
    )


def _health(section: HealthSection | None) -> Health | None:
    if section is None:
        return None
    return Health(
        method=section.method,
        interval=section.interval,
        timeout=section.timeout,
        unhealthy_after=section.unhealthy_after,
        healthy_after=section.healthy_after,
    )
