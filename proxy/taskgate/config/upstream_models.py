"""The configuration of one server: where it is, what it speaks, and how long it may take.

What lives here: the keys of `upstreams` with types, defaults and bounds, but for what is shown to a server
(credential_models), how it is spared (protection_models) and how a program is run (program_models). What must not:
rules between keys (timeout_coherence, transport_coherence), what floors below make of them (servers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from taskgate.config.addresses import FolderPath, MountPath, Url
from taskgate.config.credential_models import CredentialsSection, IdentityHeadersSection, ServerTlsSection
from taskgate.config.extension_models import ExtensionsSection
from taskgate.config.fields import HOUR, SECOND, Count, Glob, Positive, Section
from taskgate.config.program_models import Command, PoolSection, Processes, RestartSection, VariableName, VariableValue
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
    """Until the connection stands, with stdio until the program runs."""
    first_byte: Positive = 30 * SECOND
    """Until an answer begins, that to the handshake with the start of a program before it; never of tools/call."""
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
    transport: Literal["http", "sse", "stdio"] = "http"
    """How it is spoken to.

    http: Streamable HTTP; sse: HTTP+SSE, of servers from before March 2025; stdio: a program that the gateway starts.
    """
    url: Url | None = None
    """Its endpoint, with sse that of its event stream; with stdio it has none."""
    command: Command | None = None
    """With stdio: the program and its arguments, which no shell reads. Others of the machine may see them."""
    env: Mapping[VariableName, VariableValue] = Field(default={}, repr=False)
    """With stdio: the program's environment, beside PATH, HOME, USER, LANG, LC_*, TZ and TMPDIR of the gateway."""
    cwd: FolderPath | None = None
    """With stdio: the folder that the program runs in; null means the gateway's own."""
    processes: Processes = 8
    """With stdio: how many processes of it may run at once."""
    restart: RestartSection = RestartSection()
    pool: PoolSection = PoolSection()
    sessions: Literal["isolated", "shared"] = "isolated"
    """With stdio: who shares a process.

    isolated: what one caller sends with the same capabilities; shared: everybody who declares the same capabilities, so
    the program must be one that keeps nothing of whom it serves.
    """
    server_info: Literal["upstream", "gateway"] = "upstream"
    """Whose serverInfo hosts get.

    upstream: the server's own; gateway: that of taskgate. Instructions are the server's either way.
    """
    protocol_version: Literal["auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] = "auto"
    """The revision it is spoken to in; auto finds out which it speaks."""
    credentials: CredentialsSection = CredentialsSection()
    identity_headers: IdentityHeadersSection = IdentityHeadersSection()
    tls: ServerTlsSection = ServerTlsSection()
    timeouts: TimeoutsSection = TimeoutsSection()
    retries: RetriesSection = RetriesSection()
    health: HealthSection | None = HealthSection()
    """How it is asked whether it is well; null asks nothing, and is meant with stdio and mode token_exchange."""
    circuit_breaker: CircuitBreakerSection | None = CircuitBreakerSection()
    """When calls are refused at once, because those before them failed; null means never, and is meant with stdio."""
    extensions: ExtensionsSection = ExtensionsSection()
    concurrency: Count = 32
    """How many requests it has at once: tools/call, prompts/get and resources/read."""
    queue: QueueSection = QueueSection()
