"""The configuration of one server: where it is, what it speaks, and how long it may take.

What lives here: the keys of `upstreams` with types, defaults and bounds, but for what is shown to a server
(credential_models) and how it is spared (protection_models). What must not: rules between keys (timeout_coherence),
what floors below make of them (servers).
"""

from __future__ import annotations

from typing import Literal

from taskgate.config.addresses import MountPath, Url
from taskgate.config.credential_models import CredentialsSection, IdentityHeadersSection, ServerTlsSection
from taskgate.config.fields import HOUR, SECOND, Count, Glob, Positive, Section
from taskgate.config.protection_models import CircuitBreakerSection, HealthSection, QueueSection, RetriesSection


class ToolTimeoutsSection(Section):
    """Other bounds for calls to some tools."""

    tool: Glob
    """Glob over names of tools: * is any text, ? any character, [ab] one of those."""
    call: Positive | None = None
    """As timeouts.call, which null means."""
    ceiling: Positive | None = None
    """As timeouts.ceiling, which null means, or call where that is more."""
    idle: Positive | None = None
    """As timeouts.idle, which null means."""


class TimeoutsSection(Section):
    """How long an upstream server may take."""

    connect: Positive = 5 * SECOND
    """Until the connection stands."""
    first_byte: Positive = 30 * SECOND
    """Until an answer begins; never applies to tools/call."""
    idle: Positive | None = None
    """Silence within an answer; null means any."""
    call: Positive = HOUR
    """Until the answer to a request is complete; each progress notification of its call begins this time anew."""
    ceiling: Positive | None = None
    """Until the answer is complete, whatever the progress; null means 24h, or call where that is more."""
    tools: tuple[ToolTimeoutsSection, ...] = ()
    """Other bounds for calls to some tools: of the rules, the first that matches counts."""


class UpstreamSection(Section):
    """One MCP server behind the gateway."""

    path: MountPath
    """The path that hosts use for it; each upstream has its own."""
    transport: Literal["http"] = "http"
    """How it is spoken to; http is Streamable HTTP."""
    url: Url
    """Its endpoint."""
    protocol_version: Literal["auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] = "auto"
    """The revision it is spoken to in; auto finds out which it speaks."""
    credentials: CredentialsSection = CredentialsSection()
    identity_headers: IdentityHeadersSection = IdentityHeadersSection()
    tls: ServerTlsSection = ServerTlsSection()
    timeouts: TimeoutsSection = TimeoutsSection()
    retries: RetriesSection = RetriesSection()
    health: HealthSection | None = HealthSection()
    """How it is asked whether it is well; null asks nothing, and is meant with credentials.mode token_exchange."""
    circuit_breaker: CircuitBreakerSection | None = CircuitBreakerSection()
    """When calls are refused at once, because those before them failed; null means never."""
    concurrency: Count = 32
    """How many requests it has at once: tools/call, prompts/get and resources/read."""
    queue: QueueSection = QueueSection()
