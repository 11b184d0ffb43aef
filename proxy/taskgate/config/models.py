"""The configuration: every key that a file may hold, with its type, its default and its bounds.

What lives here: the sections as frozen models, but for those about who may do what (auth_models), about servers
(upstream_models), about tasks (task_models), about limits (limits_models), about a store that is shared (shared_models)
and about what operators see (audit_models, metrics_models, tracing_models). What must not: reading files; anything that
lower floors import, since the composition root hands each of them values of its own. What holds: a GatewayConfig can be
served as it is, and its `model_dump(mode="json")` is in the words of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskgate.config.addresses import BindAddress, DatabasePath, FilePath, Host, ListenAddress, Origin, PublicUrl
from taskgate.config.audit_coherence import with_files
from taskgate.config.audit_models import AuditSection
from taskgate.config.auth_models import AuthorizationSection, AuthSection
from taskgate.config.coherence import contradictions
from taskgate.config.fields import (
    GIB,
    HOUR,
    KIB,
    MIB,
    SECOND,
    Count,
    Flag,
    Held,
    Name,
    Positive,
    Section,
    ZeroOrMore,
)
from taskgate.config.limits_models import LimitsSection
from taskgate.config.metrics_models import MetricsSection
from taskgate.config.networks import Network
from taskgate.config.protection_coherence import without_health
from taskgate.config.protection_models import RetriesSection
from taskgate.config.retention import completed, usual_longest
from taskgate.config.shared_models import LeaseSection, RedisSection
from taskgate.config.task_models import TasksSection
from taskgate.config.tls import TlsSection
from taskgate.config.tracing_models import TracingSection
from taskgate.config.transport_coherence import without_checks
from taskgate.config.units import DurationIn, SizeIn
from taskgate.config.upstream_models import UpstreamSection


def _only_one(written: object) -> object:
    if written is True or not isinstance(written, int) or written != 1:
        raise ValueError("must be 1")
    return written


class DrainSection(Section):
    """What happens between SIGTERM and the end of the process."""

    delay: ZeroOrMore = 5 * SECOND
    """How long all is served as before while /readyz is 503; none where /readyz was never asked for."""
    timeout: ZeroOrMore = 60 * SECOND
    """How long requests in flight and running tasks are waited for."""
    running_tasks: Literal["wait", "fail"] = "wait"
    """wait: running tasks may end within the timeout; fail: they end as failed at once."""


class ServerSection(Section):
    """The listener that hosts use."""

    listen: ListenAddress = BindAddress(host="127.0.0.1", port=8080)
    """HOST:PORT, a loopback address with auth.mode none unless auth.allow_insecure; port 0 takes a free one."""
    public_url: PublicUrl | None = None
    """The base URL that hosts know the gateway by; null means http://, with TLS https://, and the listen address."""
    tls: TlsSection = TlsSection()
    trusted_proxies: tuple[Network, ...] = ()
    """Networks of proxies that may say, in forwarded_header, which address a request comes from.

    Rates of scope ip count by it.
    """
    forwarded_header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The header that is read of them, and no other: the one that they set themselves."""
    max_body: Held = 4 * MIB
    """Largest body of a request."""
    max_header: Annotated[int, SizeIn(least=KIB, most=MIB)] = 16 * KIB
    """Largest head of a request."""
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    """Deepest nesting of a JSON message."""
    max_json_members: Annotated[int, Field(strict=True, ge=1000, le=65_536)] = 4096
    """Most members of a message, of its parameters, and of each object in them that taskgate reads.

    Arrays and objects in all: one for each 40 bytes, at least 100,000.
    """
    max_connections: Count = 10_000
    """Connections of hosts that may be open at once; a third of the limit of open files, where that is less."""
    max_connections_per_address: Count = 512
    """Those of one address (IPv6: of a /64), but of one in trusted_proxies; the log tells at 80 %."""
    max_streams_per_context: Count = 16
    """Event streams of one caller that may be open at once: GET streams and subscriptions."""
    require_task_name: Flag = False
    """Whether requests of 2026-07-28 about a task must repeat its id in Mcp-Name, which a released host does not."""
    read_timeout: Positive = 30 * SECOND
    """How long a host may take to send a request."""
    idle_timeout: Positive = 75 * SECOND
    """How long a connection without a request stays open."""
    session_idle: Positive = HOUR
    """A host session without request, open stream or unfinished task ends after this."""
    sse_keepalive: Positive = 15 * SECOND
    """Silence on an event stream after which it gets a comment, and a host that asked for progress a sign of life."""
    allowed_hosts: tuple[Host, ...] = ()
    """Accepted values of the Host header, with the port where the header has one.

    [] means the host of public_url and, on a loopback address, localhost, 127.0.0.1 and [::1] with its port.
    """
    allowed_origins: tuple[Origin, ...] = ()
    """Accepted values of the Origin header; [] means the same hosts as allowed_hosts."""
    drain: DrainSection = DrainSection()


class AdminSection(Section):
    """The listener that operators use: probes and metrics."""

    listen: ListenAddress = BindAddress(host="127.0.0.1", port=9464)
    """HOST:PORT, a loopback address with auth.mode none unless auth.allow_insecure; port 0 takes a free one."""
    token_file: FilePath | None = None
    """The file with the token that POST /-/reload and /-/drain ask for; null means that there are no such requests."""


class SqliteSection(Section):
    """The embedded database."""

    path: DatabasePath | None = None
    """Its file; null means taskgate.db in the data directory."""
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL: an acknowledged task outlives a power cut; NORMAL: only the end of the process."""
    # SQLite counts this in a C int of milliseconds.
    busy_timeout: Annotated[timedelta, DurationIn(least=timedelta(), most=HOUR)] = 5 * SECOND
    """How long a locked file is waited for."""
    max_size: Annotated[int, SizeIn(least=MIB, most=2**10 * GIB)] = 4 * GIB
    """Largest size of the file; a task that does not fit is refused, and `/readyz` is 503 until there is room."""


class StoreSection(Section):
    """Where tasks and sessions rest."""

    backend: Literal["sqlite", "redis", "memory"] = "sqlite"
    """sqlite: one file; redis: Redis or Valkey, for several gateways; memory: everything is lost with the process."""
    sqlite: SqliteSection = SqliteSection()
    redis: RedisSection = RedisSection()
    lease: LeaseSection = LeaseSection()
    purge_interval: Positive = 2 * SECOND
    """How often expired tasks are removed."""


class LoggingSection(Section):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""
    format: Literal["json", "logfmt", "console"] = "json"
    """How a line looks."""


class GatewayConfig(Section):
    """Configuration of taskgate."""

    version: Annotated[Literal[1], BeforeValidator(_only_one)]
    """Version of this vocabulary."""
    server: ServerSection = ServerSection()
    admin: AdminSection = AdminSection()
    upstreams: Annotated[Mapping[Name, UpstreamSection], Field(min_length=1)]
    """The MCP servers behind the gateway by name; the names appear in metrics and logs."""
    tasks: TasksSection = TasksSection()
    auth: AuthSection
    authorization: AuthorizationSection = AuthorizationSection()
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    audit: AuditSection = AuditSection()
    metrics: MetricsSection = MetricsSection()
    tracing: TracingSection = TracingSection()
    logging: LoggingSection = LoggingSection()

    @property
    def longest_ttl(self) -> timedelta:
        """`tasks.ttl.max`, or what null means there."""
        return self.tasks.ttl.max or usual_longest(self.auth.mode)

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, written: object) -> object:
        return with_files(without_checks(without_health(completed(written))))

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        found = [
            InitErrorDetails(
                type=PydanticCustomError("contradiction", "{is_so}", {"is_so": message}), loc=loc, input=None
            )
            for loc, message in contradictions(self.model_dump(mode="json"), usual={})
        ]
        if found:
            raise ValidationError.from_exception_data(type(self).__name__, found)
        return self


USUAL: Mapping[str, Any] = {
    "server": ServerSection().model_dump(mode="json"),
    "admin": AdminSection().model_dump(mode="json"),
    "tasks": TasksSection().model_dump(mode="json"),
    "limits": LimitsSection().model_dump(mode="json"),
    "store": StoreSection().model_dump(mode="json"),
    "upstream": {"retries": RetriesSection().model_dump(mode="json")},
}
"""The defaults that `contradictions` needs, in the words of the file."""
