"""The configuration: every key that a file may hold, with its type, its default and its bounds.

What lives here: the sections as frozen models, but for those about who may do what (auth_models) and about servers
(upstream_models). What must not: reading files; anything that lower floors import, since the composition root hands
each of them values of its own. What holds: a GatewayConfig can be served as it is, and its `model_dump(mode="json")` is
in the words of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskgate.config.addresses import DatabasePath, Host, Listen, ListenAddress, Origin, PublicUrl
from taskgate.config.auth_models import AuthorizationSection, AuthSection
from taskgate.config.coherence import contradictions
from taskgate.config.fields import (
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    SECOND,
    Count,
    Flag,
    Glob,
    Held,
    Name,
    Positive,
    Section,
    Text,
    Words,
    ZeroOrMore,
)
from taskgate.config.networks import Network
from taskgate.config.retention import LONGEST, completed, usual_longest
from taskgate.config.tls import TlsSection
from taskgate.config.units import DurationIn, SizeIn
from taskgate.config.upstream_models import UpstreamSection
from taskgate.tasks.policy import USUAL_RESPONSE

_Retention = Annotated[timedelta, DurationIn(most=LONGEST)]


def _only_one(written: object) -> object:
    if written is True or not isinstance(written, int) or written != 1:
        raise ValueError("must be 1")
    return written


class DrainSection(Section):
    """What happens between SIGTERM and the end of the process."""

    delay: ZeroOrMore = 5 * SECOND
    """How long /readyz is 503 before the listener closes."""
    timeout: ZeroOrMore = 60 * SECOND
    """How long requests in flight and running tasks are waited for."""
    running_tasks: Literal["wait", "fail"] = "wait"
    """wait: running tasks may end within the timeout; fail: they end as failed at once."""


class ServerSection(Section):
    """The listener that hosts use."""

    listen: ListenAddress = Listen(host="127.0.0.1", port=8080)
    """HOST:PORT, a loopback address with auth.mode none unless auth.allow_insecure; port 0 takes a free one."""
    public_url: PublicUrl | None = None
    """The base URL that hosts know the gateway by; null means http://, with TLS https://, and the listen address."""
    tls: TlsSection = TlsSection()
    trusted_proxies: tuple[Network, ...] = ()
    """Networks of proxies that may say, in Forwarded or X-Forwarded-For, which address a request comes from.

    It is told to operators and nothing is decided by it.
    """
    max_body: Held = 4 * MIB
    """Largest body of a request."""
    max_header: Annotated[int, SizeIn(least=KIB, most=MIB)] = 16 * KIB
    """Largest head of a request."""
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    """Deepest nesting of a JSON message."""
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

    listen: ListenAddress = Listen(host="127.0.0.1", port=9464)
    """HOST:PORT, a loopback address with auth.mode none unless auth.allow_insecure; port 0 takes a free one."""


class UpgradeRule(Section):
    """Which calls may become tasks."""

    upstream: Text | None = None
    """Name of the upstream that the rule is for; null means every one."""
    tool: Glob
    """Glob over names of tools: * is any text, ? any character, [ab] one of those."""
    mode: Literal["sync", "auto", "always", "required"]
    """sync: never a task; auto and always: a task when the host asks; required: only as a task.

    Hosts of 2026-07-28 do not ask but say that they know tasks: then auto makes a call a task when it has not ended
    within tasks.inline_grace, always and required do so at once.
    """
    immediate_response: Words | None = USUAL_RESPONSE
    """What a model may be told when its call became a task, {tool} being the tool's name; null or "" tells nothing."""


class TtlSection(Section):
    """How long a task is kept, counted from its creation. What a host asks for is brought within min and max."""

    default: _Retention = HOUR
    """For hosts that ask for nothing."""
    min: _Retention = MINUTE
    """The least that is given."""
    max: _Retention | None = None
    """The most that is given; null means 24h, and with auth.mode none 1h, which no other value may exceed then."""


class PollIntervalSection(Section):
    """How often hosts are asked to poll."""

    base: Positive = 2 * SECOND
    """What a task suggests as its poll interval."""


class InputRequiredSection(Section):
    """Questions of servers to hosts."""

    max_wait: Positive = 30 * MINUTE
    """How long a question waits for the host's answer; then its server is told that there is none.

    Of hosts of 2026-07-28: also how long a call waits for its host to bring answers; then it is cancelled.
    """
    max_outstanding: Count = 8
    """How many questions of one task, or of one host session outside of tasks, may wait at once.

    Of hosts of 2026-07-28: of one call, and how many of one caller's calls may wait for answers at once.
    """


class TasksSection(Section):
    """Which calls become tasks, and how those are kept."""

    upgrade: tuple[UpgradeRule, ...] = (UpgradeRule(tool="*", mode="auto"),)
    """Which calls may become tasks: the first rule that matches decides, and without one a call is never a task."""
    ttl: TtlSection = TtlSection()
    inline_grace: ZeroOrMore = 5 * SECOND
    """How long a call of a host of 2026-07-28 with tasks is waited for before mode auto makes it one."""
    poll_interval: PollIntervalSection = PollIntervalSection()
    input_required: InputRequiredSection = InputRequiredSection()
    max_result: Held = 16 * MIB
    """Largest result of a call that is kept."""


class ConcurrencySection(Section):
    """How much may go on at once."""

    tasks_per_context: Count = 10
    """Unfinished tasks of one caller; with auth.mode none all hosts are one caller."""


class LimitsSection(Section):
    """What callers may use up."""

    concurrency: ConcurrencySection = ConcurrencySection()


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
    """Largest size of the file; a task that does not fit is refused."""


class StoreSection(Section):
    """Where tasks and sessions rest."""

    backend: Literal["sqlite", "memory"] = "sqlite"
    """sqlite: one file; memory: everything is lost with the process."""
    sqlite: SqliteSection = SqliteSection()
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
    logging: LoggingSection = LoggingSection()

    @property
    def longest_ttl(self) -> timedelta:
        """`tasks.ttl.max`, or what null means there."""
        return self.tasks.ttl.max or usual_longest(self.auth.mode)

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, written: object) -> object:
        return completed(written)

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
}
"""The defaults that `contradictions` needs, in the words of the file."""
