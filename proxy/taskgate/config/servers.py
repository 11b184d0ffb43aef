"""What the floors below make of `upstreams`: the configuration as values of theirs.

What lives here: that translation and nothing else. What must not: opening, reading or asking what the values name.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from taskgate.config.credential_models import CredentialsSection
from taskgate.config.extension_models import ExtensionSection, ExtensionsSection
from taskgate.config.models import GatewayConfig
from taskgate.config.protection_models import CircuitBreakerSection, HealthSection, RetriesSection
from taskgate.config.transport_coherence import STDIO
from taskgate.config.upstream_models import TimeoutsSection, UpstreamSection
from taskgate.domain.versions import Era, Revision
from taskgate.protocol.catalogue import CatalogueBounds
from taskgate.protocol.extensions import ALLOWED_BY_DEFAULT, BUILT_IN, Extension, ExtensionPolicy
from taskgate.upstream.settings import (
    Breaker,
    FixedHeader,
    GrantKind,
    GrantSettings,
    HealthSettings,
    IdentityHeaders,
    Retries,
    ToolTimeouts,
    TransportKind,
    UpstreamSettings,
    UpstreamTls,
)
from taskgate.upstream.stdio.settings import StdioSettings

ERAS: Final = {"legacy": Era.LEGACY, "modern": Era.MODERN}
"""The eras, by what the file calls them."""
_LISTS: Final = ("notifications", "filters", "result_types", "cacheable")
_USUAL_CEILING: Final = timedelta(hours=24)


def upstream_settings(config: GatewayConfig, name: str) -> UpstreamSettings:
    """The server of that name."""
    section = config.upstreams[name]
    tls = section.tls
    return UpstreamSettings(
        name=name,
        transport=TransportKind(section.transport),
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
        tls=UpstreamTls(
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            server_name=tls.server_name,
            insecure_skip_verify=tls.insecure_skip_verify,
        ),
        retries=None if section.transport == STDIO else _retries(section.retries),
        breaker=_breaker(section.circuit_breaker),
        health=_health(section.health),
        extensions=extension_policy(section.extensions),
    )


def extension_policy(section: ExtensionsSection) -> ExtensionPolicy:
    """What crosses of extensions."""
    allowed = {name: BUILT_IN[name] for name in ALLOWED_BY_DEFAULT if section.named.get(name) != "deny"}
    denied = {name for name, decision in section.named.items() if decision == "deny"}
    for name, decision in section.named.items():
        if decision == "allow":
            allowed[name] = BUILT_IN.get(name, Extension())
        elif isinstance(decision, ExtensionSection):
            allowed[name] = _extension(name, decision)
    return ExtensionPolicy(allowed=allowed, denied=frozenset(denied), others=section.default == "allow")


def carried_methods(config: GatewayConfig) -> frozenset[str]:
    """The methods of extensions that cross any upstream."""
    policies = [extension_policy(section.extensions) for section in config.upstreams.values()]
    return frozenset(method for policy in policies for each in policy.allowed.values() for method in each.methods)


def _extension(name: str, section: ExtensionSection) -> Extension:
    """What is written of one; but for methods, what is not written is as it is known."""
    known = BUILT_IN.get(name, Extension())
    written = section.model_fields_set
    lists: dict[str, Any] = {key: frozenset(getattr(section, key)) for key in _LISTS if key in written}
    lists["methods"] = frozenset(section.methods)
    found = replace(known, **lists)
    if section.eras is not None:
        found = replace(found, eras=frozenset(ERAS[era] for era in section.eras))
    return replace(found, streams=found.streams & found.methods, cacheable=found.cacheable & found.methods)


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


def _health(section: HealthSection | None) -> HealthSettings | None:
    if section is None:
        return None
    return HealthSettings(
        method=section.method,
        interval=section.interval,
        timeout=section.timeout,
        unhealthy_after=section.unhealthy_after,
        healthy_after=section.healthy_after,
    )
