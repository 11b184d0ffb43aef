"""The configuration: every key that a file may hold, with its type, its default and its bounds.

What lives here: the sections as frozen models. What must not: reading files; anything that lower floors import, since
the composition root hands each of them values of its own. What holds: a GatewayConfig can be served as it is, and its
`model_dump(mode="json")` is in the words of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskgate.config.addresses import (
    FilePath,
    Host,
    Listen,
    LoopbackAddress,
    MountPath,
    Origin,
    PublicUrl,
    Url,
)
from taskgate.config.coherence import contradictions
from taskgate.config.units import DurationIn, SizeIn

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_KIB = 2**10
_MIB = 2**20
_GIB = 2**30

# As fnmatch reads it: a ] that stands first in a set, or first after its !, is one of the set and closes nothing.
_GLOB = re.compile(r"(?:[^\[]|\[!?+\]?+[^\]]*+\])*+")


def _readable(written: str) -> str:
    if not written.isprintable():
        raise ValueError("must not hold control characters or line ends")
    return written


def _glob(written: str) -> str:
    # fnmatch takes a [ that nothing closes for itself, so the rule would name no tool that its author meant.
    if not _GLOB.fullmatch(written):
        raise ValueError("must have a ] for every [ (the character [ itself is written [[])")
    return written


def _only_one(written: object) -> object:
    if written is True or not isinstance(written, int) or written != 1:
        raise ValueError("must be 1")
    return written


def _only_none(written: object) -> object:
    if written != "none":
        raise ValueError("must be none: no other mode exists so far")
    return written


_Positive = Annotated[timedelta, DurationIn()]
_ZeroOrMore = Annotated[timedelta, DurationIn(least=timedelta())]
# Without authentication every host is the same anonymous one, so nothing may stay readable for long.
_Retention = Annotated[timedelta, DurationIn(most=_HOUR, reason="with auth.mode none")]
# What is held in memory as a whole is bounded, so that a slip of the unit is told at the start.
_Held = Annotated[int, SizeIn(least=_KIB, most=_GIB)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_readable)]
_Count = Annotated[int, Field(strict=True, ge=1)]
_Name = Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")]


class Section(BaseModel):
    """A mapping of the file: nothing in it changes, and a key that it does not name is refused.

    The text under a key, or else of its section, is its description in the JSON Schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DrainSection(Section):
    """What happens between SIGTERM and the end of the process."""

    delay: _ZeroOrMore = 5 * _SECOND
    """How long /readyz is 503 before the listener closes."""
    timeout: _ZeroOrMore = 60 * _SECOND
    """How long requests in flight and running tasks are waited for."""
    running_tasks: Literal["wait", "fail"] = "wait"
    """wait: running tasks may end within the timeout; fail: they end as failed at once."""


class ServerSection(Section):
    """The listener that hosts use."""

    listen: LoopbackAddress = Listen(host="127.0.0.1", port=8080)
    """HOST:PORT, a loopback address with auth.mode none; port 0 takes a free one."""
    public_url: PublicUrl | None = None
    """The base URL that hosts know the gateway by; null means http:// and the listen address."""
    max_body: _Held = 4 * _MIB
    """Largest body of a request."""
    max_header: Annotated[int, SizeIn(least=_KIB, most=_MIB)] = 16 * _KIB
    """Largest head of a request."""
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    """Deepest nesting of a JSON message."""
    read_timeout: _Positive = 30 * _SECOND
    """How long a host may take to send a request."""
    idle_timeout: _Positive = 75 * _SECOND
    """How long a connection without a request stays open."""
    session_idle: _Positive = _HOUR
    """A host session without request, open stream or unfinished task ends after this."""
    sse_keepalive: _Positive = 15 * _SECOND
    """Silence on an event stream after which it gets a comment."""
    allowed_hosts: tuple[Host, ...] = ()
    """Accepted values of the Host header, with the port where the header has one.

    [] means the host of public_url and, on a loopback address, localhost, 127.0.0.1 and [::1] with its port.
    """
    allowed_origins: tuple[Origin, ...] = ()
    """Accepted values of the Origin header; [] means the same hosts as allowed_hosts."""
    drain: DrainSection = DrainSection()


class AdminSection(Section):
    """The listener that operators use: probes and metrics."""

    listen: LoopbackAddress = Listen(host="127.0.0.1", port=9464)
    """HOST:PORT, a loopback address with auth.mode none; port 0 takes a free one."""


class TimeoutsSection(Section):
    """How long an upstream server may take."""

    connect: _Positive = 5 * _SECOND
    """Until the connection stands."""
    first_byte: _Positive = 30 * _SECOND
    """Until an answer begins; never applies to tools/call."""
    idle: _Positive | None = None
    """Silence within an answer; null means any."""
    call: _Positive = _HOUR
    """Until the answer to a tools/call is complete."""


class UpstreamSection(Section):
    """One MCP server behind the gateway."""

    path: MountPath
    """The path that hosts use for it; each upstream has its own."""
    transport: Literal["http"] = "http"
    """How it is spoken to; http is Streamable HTTP."""
    url: Url
    """Its endpoint."""
    timeouts: TimeoutsSection = TimeoutsSection()


class UpgradeRule(Section):
    """Which calls may become tasks."""

    upstream: _Text | None = None
    """Name of the upstream that the rule is for; null means every one."""
    tool: Annotated[_Text, AfterValidator(_glob)]
    """Glob over names of tools: * is any text, ? any character, [ab] one of those."""
    mode: Literal["sync", "auto", "always", "required"]
    """sync: never a task; auto and always: a task when the host asks; required: only as a task."""


class TtlSection(Section):
    """How long a task is kept, counted from its creation. What a host asks for is brought within min and max."""

    default: _Retention = _HOUR
    """For hosts that ask for nothing."""
    min: _Retention = _MINUTE
    """The least that is given."""
    max: _Retention = _HOUR
    """The most that is given; itself at most 1h with auth.mode none."""


class PollIntervalSection(Section):
    """How often hosts are asked to poll."""

    base: _Positive = 2 * _SECOND
    """What a task suggests as its poll interval."""


class TasksSection(Section):
    """Which calls become tasks, and how those are kept."""

    upgrade: tuple[UpgradeRule, ...] = (UpgradeRule(tool="*", mode="auto"),)
    """Which calls may become tasks: the first rule that matches decides, and without one a call is never a task."""
    ttl: TtlSection = TtlSection()
    poll_interval: PollIntervalSection = PollIntervalSection()
    max_result: _Held = 16 * _MIB
    """Largest result of a call that is kept."""


class AuthSection(Section):
    """Who may use the gateway."""

    mode: Annotated[Literal["none"], BeforeValidator(_only_none)]
    """none: whoever reaches the listener, which must be a loopback address. No other mode exists so far."""


class ConcurrencySection(Section):
    """How much may go on at once."""

    tasks_per_context: _Count = 10
    """Unfinished tasks of one caller; with auth.mode none all hosts are one caller."""


class LimitsSection(Section):
    """What callers may use up."""

    concurrency: ConcurrencySection = ConcurrencySection()


class SqliteSection(Section):
    """The embedded database."""

    path: FilePath | None = None
    """Its file; null means taskgate.db in the data directory."""
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL: an acknowledged task outlives a power cut; NORMAL: only the end of the process."""
    # SQLite counts this in a C int of milliseconds.
    busy_timeout: Annotated[timedelta, DurationIn(least=timedelta(), most=_HOUR)] = 5 * _SECOND
    """How long a locked file is waited for."""
    max_size: Annotated[int, SizeIn(least=_MIB, most=2**10 * _GIB)] = 4 * _GIB
    """Largest size of the file; a task that does not fit is refused."""


class StoreSection(Section):
    """Where tasks and sessions rest."""

    backend: Literal["sqlite", "memory"] = "sqlite"
    """sqlite: one file; memory: everything is lost with the process."""
    sqlite: SqliteSection = SqliteSection()
    purge_interval: _Positive = 2 * _SECOND
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
    upstreams: Annotated[Mapping[_Name, UpstreamSection], Field(min_length=1)]
    """The MCP servers behind the gateway by name; the names appear in metrics and logs."""
    tasks: TasksSection = TasksSection()
    auth: AuthSection
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    logging: LoggingSection = LoggingSection()

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
