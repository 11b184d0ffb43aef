"""Section `upstreams`: one MCP server each, with its transport, timeouts, retries, health checks,
circuit breaker and queue, and, with stdio, its program.

It stays whole, because the rules between keys are about most of them at once. `credentials` and
`extensions` have the sections that are about one subject.
`taskgate check` prints every key, and what it prints can be loaded once its masked secrets are filled
in. So a key that does not apply to a transport may be written with its default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from taskgate.config.addresses import FolderPath, MountPath, Url
from taskgate.config.fields import (
    HIDDEN,
    HOUR,
    KIB,
    MASK,
    MIB,
    MILLISECOND,
    MINUTE,
    SECOND,
    UNIQUE,
    Count,
    Glob,
    PositiveDuration,
    Secret,
    Section,
    SizeIn,
    TcpKeepalive,
    json_pattern,
    write_size,
)
from taskgate.config.problems import Conflict, Location, dotted, duration, list_at, mapping_at, order_conflict
from taskgate.config.sections.credentials import (
    CredentialsSection,
    HeaderName,
    IdentityHeadersSection,
    ServerTlsSection,
)
from taskgate.config.sections.extensions import ExtensionsSection
from taskgate.domain.versions import Revision
from taskgate.egress import DIRECT, Egress
from taskgate.protocol.discovery import CatalogueBounds
from taskgate.protocol.vocabulary import TOOLS_LIST
from taskgate.upstream.settings import (
    MAX_HEADER,
    Breaker,
    HealthSettings,
    Retries,
    StdioSettings,
    ToolTimeouts,
    TransportKind,
    UpstreamSettings,
)

# Below MAX_ARG_STRLEN of Linux, the bound of one argument or variable.
_MAX_ARGUMENT: Final = 65536
_VARIABLE: Final = r"^[!-<>-~]{1,256}$"
_DEFAULT_CEILING: Final = 24 * HOUR


# --- programs -------------------------------------------------------------------------------------------------------


def _check_no_zeros(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold the character U+0000")
    return text


def _check_list(written: object) -> object:
    if not isinstance(written, list | tuple):
        raise ValueError("must be a list of the program and its arguments, such as [python3, -m, some_server]")
    return written


def _check_program(command: Sequence[str]) -> Sequence[str]:
    if not command or not command[0].strip():
        raise ValueError("must begin with the name of a program")
    return command


def _check_variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise ValueError("must be named by 1 to 256 characters of ASCII without spaces and =")
    return name


def _check_value(value: str) -> str:
    if value == MASK:
        raise ValueError(f"must not be {MASK}, which stands for a secret that is not shown")
    return _check_no_zeros(value)


_Argument = Annotated[str, StringConstraints(max_length=_MAX_ARGUMENT), AfterValidator(_check_no_zeros)]
Command = Annotated[
    tuple[_Argument, ...],
    BeforeValidator(_check_list),
    AfterValidator(_check_program),
    Field(json_schema_extra={"minItems": 1}),
]
VariableName = Annotated[str, AfterValidator(_check_variable), json_pattern(_VARIABLE)]
VariableValue = Annotated[str, StringConstraints(max_length=_MAX_ARGUMENT), AfterValidator(_check_value), HIDDEN]


class RestartSection(Section):
    """Restarts of a program that ended soon after its start, or could not be started. Of transport
    stdio.
    """

    backoff: PositiveDuration = SECOND
    """The pause after the first failed start; it doubles with each further one."""
    max_backoff: PositiveDuration = 60 * SECOND
    """The longest pause."""


class PoolSection(Section):
    """Idle processes, which wait for the next session. Of transport stdio."""

    idle_timeout: PositiveDuration = 60 * SECOND
    """How long a process without a session is kept."""


# --- timeouts -------------------------------------------------------------------------------------------------------


class ToolTimeoutsSection(Section):
    """Timeouts for calls to some tools."""

    tool: Glob
    """Glob over names of tools: * is any text, ? any character, [ab] one of those."""
    call: PositiveDuration | None = None
    """Replaces timeouts.call; null keeps it."""
    ceiling: PositiveDuration | None = None
    """Replaces timeouts.ceiling; null keeps it, or means call where that is longer."""
    idle: PositiveDuration | None = None
    """Replaces timeouts.idle; null keeps it."""


class TimeoutsSection(Section):
    """Timeouts of an upstream server."""

    connect: PositiveDuration = 5 * SECOND
    """Until the connection is open; with stdio, until the program runs."""
    first_byte: PositiveDuration = 30 * SECOND
    """Until the first byte of an answer. For the handshake it includes the start of a program. It does
    not apply to tools/call.
    """
    idle: PositiveDuration | None = None
    """The longest silence within an answer; null means no limit."""
    call: PositiveDuration = HOUR
    """Until the answer to a request is complete; each progress notification for it restarts this time.
    """
    ceiling: PositiveDuration | None = None
    """Until the answer is complete, whatever the progress; null means 24h, or call where that is
    longer.
    """
    tools: tuple[ToolTimeoutsSection, ...] = ()
    """Timeouts for calls to some tools; the first rule that matches applies."""

    @property
    def longest(self) -> timedelta:
        """Return `ceiling`, or its default."""
        return self.ceiling or max(_DEFAULT_CEILING, self.call)

    def to_tool_timeouts(self) -> tuple[ToolTimeouts, ...]:
        """Return the rules for tools, with the general timeout for each one that is null."""
        return tuple(
            ToolTimeouts(
                tool=rule.tool,
                call=rule.call or self.call,
                ceiling=rule.ceiling or max(self.longest, rule.call or self.call),
                idle=rule.idle or self.idle,
            )
            for rule in self.tools
        )


# --- retries, health checks, circuit breaker, queue -------------------------------------------------------------------


_QueueSize = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
_Attempts = Annotated[int, Field(strict=True, ge=1, le=10)]


class RetriesSection(Section):
    """Retries of requests. A request that a server may have received is never sent again."""

    attempts: _Attempts = 2
    """The most attempts for a request, the first included."""
    when: Annotated[tuple[Literal["connect"], ...], *UNIQUE] = ("connect",)
    """The failures that are retried: connect, that no connection could be opened; [] means none."""
    backoff: PositiveDuration = 200 * MILLISECOND
    """The longest pause before the second attempt; it doubles with each further one."""
    max_backoff: PositiveDuration = 5 * SECOND
    """The longest pause before any attempt."""

    def to_settings(self) -> Retries | None:
        """Return the settings of retries, None where there are none."""
        if "connect" not in self.when:
            return None
        return Retries(attempts=self.attempts, backoff=self.backoff, max_backoff=self.max_backoff)


class HealthSection(Section):
    """Health checks: requests of the gateway that find out whether a server answers, also while it
    gets no calls.
    """

    method: Literal["auto", "tools/list", "ping"] = "auto"
    """The method of the request. Any answer counts as healthy, a JSON-RPC error as well.

    auto: `ping`, or `server/discover` in the modern era; ping: the same.
    """
    interval: PositiveDuration = 15 * SECOND
    """The time from the start of a check to that of the next, a tenth less or more. A failed check is
    repeated after a third of it, until the server counts as down."""
    timeout: PositiveDuration = 5 * SECOND
    """How long an answer may take."""
    unhealthy_after: Count = 3
    """Failures in a row after which the server is down."""
    healthy_after: Count = 1
    """Answers in a row after which the server is up again."""

    def to_settings(self) -> HealthSettings:
        """Return the settings of health checks."""
        return HealthSettings(
            lists_tools=self.method == TOOLS_LIST,
            interval=self.interval,
            timeout=self.timeout,
            unhealthy_after=self.unhealthy_after,
            healthy_after=self.healthy_after,
        )


class CircuitBreakerSection(Section):
    """A circuit breaker: calls are refused at once after earlier ones failed."""

    failures: Count = 5
    """Failures within the window that open the circuit, if more callers fail than succeed or no connection is made."""
    window: PositiveDuration = 30 * SECOND
    """For how long a failure counts."""
    open_for: PositiveDuration = 30 * SECOND
    """How long the circuit stays open, and requests are refused.

    Where no connection is made it is a second first, and twice as long each time.
    """
    half_open: Count = 1
    """How many requests at a time may probe the server afterwards."""

    def to_settings(self) -> Breaker:
        """Return the settings of the circuit breaker."""
        return Breaker(failures=self.failures, window=self.window, open_for=self.open_for, half_open=self.half_open)


class QueueSection(Section):
    """The queue of calls that wait for a permit. Callers take turns."""

    size: _QueueSize = 256
    """The most calls that wait; one caller may have at most eight times as many as there is room
    left.

    Further calls are refused.
    """
    max_wait: PositiveDuration = 300 * SECOND
    """How long a call may wait; at most 10s where its host waits for the answer."""


# --- the upstream ---------------------------------------------------------------------------------------------------


class UpstreamSection(Section):
    """One MCP server behind the gateway."""

    path: MountPath
    """The path of its endpoint for hosts; each upstream has its own."""
    transport: Literal["http", "sse", "stdio"] = "http"
    """The transport between gateway and server.

    http: Streamable HTTP; sse: HTTP+SSE, of servers from before March 2025; stdio: a program that
    the gateway starts.
    """
    url: Url | None = None
    """The server's endpoint, with sse that of its event stream; not used with stdio."""
    command: Command | None = None
    """With stdio: the program and its arguments, run without a shell. Other users of the machine may
    see them.
    """
    env: Mapping[VariableName, VariableValue] = Field(default={}, repr=False)
    """With stdio: the program's environment, beside PATH, HOME, USER, LOGNAME, SHELL, TERM, LANG,
    LC_*, TZ and TMPDIR of the gateway.
    """
    cwd: FolderPath | None = None
    """With stdio: the folder that the program runs in; null means the gateway's own."""
    processes: Annotated[int, Field(strict=True, ge=1, le=1000)] = 8
    """With stdio: the most processes of the program at once."""
    restart: RestartSection = RestartSection()
    pool: PoolSection = PoolSection()
    sessions: Literal["isolated", "shared"] = "isolated"
    """With stdio: who shares a process.

    isolated: sessions of one caller that declare the same capabilities; shared: sessions of any
    callers that do, so the program must store nothing about those it serves.
    """
    server_info: Literal["upstream", "gateway"] = "upstream"
    """Whose serverInfo hosts get.

    upstream: the server's own; gateway: that of taskgate. Instructions are the server's either way.
    """
    protocol_version: Literal["auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] = "auto"
    """The protocol revision that the gateway uses with it; auto finds out which it supports."""
    headers: Mapping[HeaderName, Secret] = Field(default={}, repr=False)
    """Fixed headers of every request to it, beside its credentials; the values are not shown."""
    credentials: CredentialsSection = CredentialsSection()
    identity_headers: IdentityHeadersSection = IdentityHeadersSection()
    tls: ServerTlsSection = ServerTlsSection()
    timeouts: TimeoutsSection = TimeoutsSection()
    retries: RetriesSection = RetriesSection()
    health: HealthSection | None = HealthSection()
    """Health checks; null means none, and is the default with transport stdio and with mode
    token_exchange.
    """
    circuit_breaker: CircuitBreakerSection | None = CircuitBreakerSection()
    """When calls are refused at once, because earlier ones failed; null means never, and is the
    default with transport stdio.
    """
    extensions: ExtensionsSection = ExtensionsSection()
    max_header: Annotated[int, SizeIn(least=8 * KIB, most=MIB)] = MAX_HEADER
    """Largest head of an answer of the server, with its session id and cookies; not used with stdio."""
    catalogue_age: PositiveDuration | None = 5 * MINUTE
    """How old its list of tools may be before a call has it read again, in the background. A list that
    says how long it may be cached (ttlMs) has that time, a minute at least; null means that none is
    read again.
    """
    tcp_keepalive: TcpKeepalive | None = MINUTE
    """Silence after which the system probes a connection to the server. One that answers no probe for
    as long again is lost; null means no probes. Not used with stdio.
    """
    concurrency: Count = 32
    """The most requests of hosts that run at it at once; lists and event streams do not count."""
    queue: QueueSection = QueueSection()

    def to_settings(
        self, name: str, *, max_result: int, catalogue: CatalogueBounds, egress: Egress = DIRECT
    ) -> UpstreamSettings:
        """Return the settings of the upstream of that name.

        `max_result` is the largest result of a call in bytes, `catalogue` bounds its list of tools.
        `egress` says which proxy leads to it.
        """
        return UpstreamSettings(
            name=name,
            transport=TransportKind(self.transport),
            url=self.url,
            stdio=self._stdio(),
            revision=None if self.protocol_version == "auto" else Revision(self.protocol_version),
            connect=self.timeouts.connect,
            first_byte=self.timeouts.first_byte,
            idle=self.timeouts.idle,
            call=self.timeouts.call,
            ceiling=self.timeouts.longest,
            tools=self.timeouts.to_tool_timeouts(),
            max_result=max_result,
            max_header=self.max_header,
            tcp_keepalive=self.tcp_keepalive,
            catalogue=catalogue,
            catalogue_age=self.catalogue_age,
            credentials=self.credentials.to_settings(),
            headers=self.headers,
            identity=self.identity_headers.to_settings(),
            tls=self.tls.to_settings(),
            retries=None if self.transport == "stdio" else self.retries.to_settings(),
            breaker=None if self.circuit_breaker is None else self.circuit_breaker.to_settings(),
            health=None if self.health is None else self.health.to_settings(),
            extensions=self.extensions.to_policy(),
            egress=egress,
        )

    def _stdio(self) -> StdioSettings | None:
        if self.command is None:
            return None
        return StdioSettings(
            command=self.command,
            env=self.env,
            cwd=self.cwd,
            processes=self.processes,
            idle=self.pool.idle_timeout,
            backoff=self.restart.backoff,
            max_backoff=self.restart.max_backoff,
            shared=self.sessions == "shared",
        )


def with_check_defaults(raw: object) -> object:
    """Fill in `null` for health checks and circuit breakers where they are off by default.

    They are off for programs. Health checks are also off where the token of a caller is exchanged.
    """
    upstreams = mapping_at(raw, "upstreams")
    filled = {name: {**_checks_off(each), **each} for name, each in upstreams.items() if isinstance(each, Mapping)}
    return {**raw, "upstreams": {**upstreams, **filled}} if isinstance(raw, Mapping) and filled else raw


def _checks_off(upstream: Mapping[str, object]) -> Mapping[str, None]:
    if upstream.get("transport") == "stdio":
        return {"health": None, "circuit_breaker": None}
    if mapping_at(upstream, "credentials").get("mode") == "token_exchange":
        return {"health": None}
    return {}


# --- rules between keys ---------------------------------------------------------------------------------------------


_RESTART_DEFAULTS: Final[Mapping[str, Any]] = RestartSection().model_dump(mode="json")
PROGRAM_DEFAULTS: Final[Mapping[tuple[str, ...], Any]] = {
    **{(key,): UpstreamSection.model_fields[key].default for key in ("env", "cwd", "processes", "sessions")},
    **{("restart", key): value for key, value in _RESTART_DEFAULTS.items()},
    **{("pool", key): value for key, value in PoolSection().model_dump(mode="json").items()},
}
"""Keys that only programs have a use for, with their defaults."""
_CONNECTION_DEFAULTS: Final[Mapping[tuple[str, ...], tuple[Any, str]]] = {
    ("url",): (None, "which has a command"),
    ("credentials", "mode"): ("none", "where credentials go into env"),
    ("headers",): ({}, "which has no headers"),
    ("identity_headers", "context"): (None, "which has no headers"),
    ("identity_headers", "subject"): (None, "which has no headers"),
    ("identity_headers", "issuer"): (None, "which has no headers"),
    **{
        ("tls", key): (value, "which has no connection")
        for key, value in ServerTlsSection().model_dump(mode="json").items()
    },
    ("max_header",): (write_size(MAX_HEADER), "which has no headers"),
    **{
        ("retries", key): (value, "where nothing is tried again")
        for key, value in RetriesSection().model_dump(mode="json").items()
    },
    ("health",): (None, "where it would take a process for that alone"),
}
"""Keys that programs have no use for, with their defaults and why."""
DEFAULT_CALL: Final = TimeoutsSection().model_dump(mode="json")["call"]
"""The default of `timeouts.call`, as it is written."""


def upstream_conflicts(raw: object) -> Iterator[Conflict]:
    """Find paths in common, keys that the transport has no use for, and timeouts out of order."""
    owners: dict[str, str] = {}
    for name, upstream in mapping_at(raw, "upstreams").items():
        if not isinstance(upstream, Mapping):
            continue
        here = ("upstreams", name)
        path = upstream.get("path")
        if isinstance(path, str) and owners.setdefault(path, name) != name:
            yield (*here, "path"), f"must not be the path of {dotted(('upstreams', owners[path]))}"
        kind = upstream.get("transport", "http")
        if kind in ("http", "sse"):
            yield from _http_conflicts(upstream, here, str(kind))
        elif kind == "stdio":
            yield from _stdio_conflicts(upstream, here)
        trees = {"upstreams": {name: upstream}}, {"upstreams": {name: {"restart": _RESTART_DEFAULTS}}}
        conflict = order_conflict(trees, (*here, "restart", "backoff"), (*here, "restart", "max_backoff"))
        if conflict:
            yield conflict
        yield from _timeout_conflicts(mapping_at(upstream, "timeouts"), (*here, "timeouts"))


def _http_conflicts(upstream: Mapping[str, object], here: Location, kind: str) -> Iterator[Conflict]:
    has_command = upstream.get("command") is not None
    if has_command:
        yield (*here, "command"), f"must be null with transport {kind}: write transport: stdio for a program"
    elif upstream.get("url") is None:
        yield (*here, "url"), f"is required with transport {kind}"
    for keys, default in PROGRAM_DEFAULTS.items():
        if _is_set(upstream, keys, default) and not has_command:
            yield (*here, *keys), f"must not be set with transport {kind}, which starts no program"
    if kind == "sse" and upstream.get("protocol_version") == "2026-07-28":
        yield (
            (*here, "protocol_version"),
            "must not be 2026-07-28 with transport sse, which that revision does not have",
        )


def _stdio_conflicts(upstream: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    if upstream.get("command") is None:
        yield (*here, "command"), "is required with transport stdio"
    for keys, (default, why) in _CONNECTION_DEFAULTS.items():
        if _is_set(upstream, keys, default):
            yield (*here, *keys), f"must not be set with transport stdio, {why}"


def _is_set(upstream: Mapping[str, object], keys: tuple[str, ...], default: object) -> bool:
    """Whether a key has another value than its default."""
    *above, last = keys
    return mapping_at(upstream, *above).get(last, default) != default


def _timeout_conflicts(timeouts: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    hint = "" if "call" in timeouts else f", which is {DEFAULT_CALL} unless given"
    yield from _ceiling_conflicts({"call": DEFAULT_CALL, **timeouts}, here, hint)
    for index, rule in enumerate(list_at(timeouts, "tools")):
        yield from _ceiling_conflicts(mapping_at(rule), (*here, "tools", index), "")


def _ceiling_conflicts(given: Mapping[str, object], here: Location, hint: str) -> Iterator[Conflict]:
    call, ceiling = duration(given.get("call")), duration(given.get("ceiling"))
    if call is not None and ceiling is not None and ceiling < call:
        yield (*here, "ceiling"), f"must be at least {dotted((*here, 'call'))}{hint}"


def retry_and_health_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts between keys of `retries`, and health checks without a token to exchange."""
    for name, upstream in mapping_at(raw, "upstreams").items():
        here = ("upstreams", name)
        is_exchanged = mapping_at(upstream, "credentials").get("mode") == "token_exchange"
        if is_exchanged and mapping_at(upstream).get("health") is not None:
            why = "with credentials.mode token_exchange: without a caller there is no token to exchange"
            yield (*here, "health"), f"must be null {why}"
        if mapping_at(upstream, "retries"):
            trees = raw, {"upstreams": {name: {"retries": mapping_at(defaults, "upstream", "retries")}}}
            keys = (*here, "retries", "backoff"), (*here, "retries", "max_backoff")
            conflict = order_conflict(trees, *keys)
            if conflict:
                yield conflict
