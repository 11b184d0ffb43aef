"""What an upstream is made with: where its server is, what is shown to it, how patient we are, who hears how it does.

Values only. Where they come from is the configuration's business. What a program is run with is in `stdio`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from taskgate.domain.versions import Era, Revision, era_of
from taskgate.protocol.catalogue import CatalogueBounds
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.vocabulary import TOOLS_LIST
from taskgate.upstream.stdio.settings import StdioSettings

_USUAL_CATALOGUE: Final = CatalogueBounds()


class TransportKind(StrEnum):
    """How messages get to a server and back."""

    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    """HTTP+SSE, as 2024-11-05 has it: one event stream, and POSTs beside it."""
    STDIO = "stdio"
    """The standard streams of a process of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedHeader:
    """Credentials that never change: one header of every request."""

    name: str
    value: str = field(repr=False)


class GrantKind(StrEnum):
    """How a token for the server is asked for."""

    CLIENT_CREDENTIALS = "client_credentials"
    """For the gateway itself: one token for everybody (RFC 6749, 4.4)."""
    TOKEN_EXCHANGE = "token_exchange"  # noqa: S105 - a way to a token, not one
    """For the token that a caller came with: one for each caller (RFC 8693)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """Credentials that are asked for: a bearer token. `keeps` is whether one serves as long as it lasts."""

    kind: GrantKind
    token_url: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    resource: str | None = None
    audience: str | None = None
    scopes: tuple[str, ...] = ()
    keeps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityHeaders:
    """The headers by which a server is told for whom a request is; None tells nothing."""

    context: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """How a server is recognised, and what the gateway shows of itself.

    `ca_file` None means the system's authorities, `server_name` None the host of the URL. Without `cert_file` nothing
    is shown.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeouts:
    """The bounds of calls to the tools that a glob names, with regard to case; see UpstreamSettings."""

    tool: str
    call: timedelta
    ceiling: timedelta
    idle: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a connection is tried for one request: `attempts` in all.

    The pause before the second is `backoff` at most, and doubles up to `max_backoff`.
    """

    attempts: int = 2
    backoff: timedelta = timedelta(milliseconds=200)
    max_backoff: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a server that fails is left alone, and for how long; see `limits.breaker`."""

    failures: int = 5
    window: timedelta = timedelta(seconds=30)
    open_for: timedelta = timedelta(seconds=30)
    half_open: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """How often a server is asked whether it is well, and when what it says is believed.

    `method` is `tools/list` or `ping`. It is down after `unhealthy_after` bad checks in a row, up after `healthy_after`
    good ones.
    """

    method: str = TOOLS_LIST
    interval: timedelta = timedelta(seconds=15)
    timeout: timedelta = timedelta(seconds=5)
    unhealthy_after: int = 3
    healthy_after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """One configured server.

    `url` is of one that is spoken to over HTTP, `stdio` of a program; neither has the other.
    `revision` is what it is spoken to in, None what it is found to speak.
    `connect` bounds the way to a connection, `first_byte` the wait for an answer's head (never for `tools/call`),
    `idle` the silence within an answer (None: any), `call` a call without a sign of progress, `ceiling` any call. In
    `tools` the first that names a tool counts. `max_result` is in bytes of one message, `catalogue`
    bounds the list of tools. Without `retries` one try has to do, without `breaker` the server is never left alone,
    without `health` nobody asks whether it is well. `extensions` is what crosses of those.
    """

    name: str
    transport: TransportKind = TransportKind.HTTP
    url: str | None = field(default=None, repr=False)
    stdio: StdioSettings | None = None
    revision: Revision | None = None
    connect: timedelta
    first_byte: timedelta
    idle: timedelta | None
    call: timedelta
    max_result: int
    catalogue: CatalogueBounds = _USUAL_CATALOGUE
    ceiling: timedelta = timedelta(hours=24)
    tools: tuple[ToolTimeouts, ...] = ()
    credentials: FixedHeader | GrantSettings | None = None
    identity: IdentityHeaders = IdentityHeaders()
    tls: UpstreamTls = UpstreamTls()
    retries: Retries | None = None
    breaker: Breaker | None = None
    health: HealthSettings | None = None
    extensions: ExtensionPolicy = field(default_factory=ExtensionPolicy)

    @property
    def place(self) -> tuple[str, ...]:
        """What tells the server from another: its URL, or the command that runs it."""
        if self.stdio is not None:
            return self.stdio.command
        return () if self.url is None else (self.url,)

    @property
    def era(self) -> Era | None:
        """The era that needs not be found: what is configured, and that of which alone a transport is (U-SSE-1)."""
        if self.transport is TransportKind.SSE:
            return Era.LEGACY
        return None if self.revision is None else era_of(self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamObserver:
    """Hears how a server does. None of these may raise or wait.

    `answered`: method, seconds, and the JSON-RPC code or the reason of the failure, None for a result.
    `session_lost`: the server ended a session. `stream_opened` and `stream_ended`: `get` or `response`.
    `credentials_got`: the seconds that a token endpoint took, and whether a token came of it. `begun`: it is served
    from now on. `retried`: another try is made, for the reason `connect`. `circuit`: closed, open or half_open from now
    on. `health`: whether a check was good, and whether the server is thought to be up after it, None where nobody knows
    yet. `restarted`: a program was started in the place of one that had ended by itself, and why that had. `sought`:
    whether a program answered, or could be had at all, when one was needed, if that is news. `programs`: how many there
    are now.
    """

    answered: Callable[[str, float, str | None], None]
    session_lost: Callable[[], None]
    stream_opened: Callable[[str], None]
    stream_ended: Callable[[str], None]
    credentials_got: Callable[[float, bool], None] = lambda seconds, ok: None
    begun: Callable[[], None] = lambda: None
    retried: Callable[[str], None] = lambda reason: None
    circuit: Callable[[str], None] = lambda state: None
    health: Callable[[bool, bool | None], None] = lambda ok, up: None
    restarted: Callable[[str], None] = lambda cause: None
    sought: Callable[[bool], None] = lambda up: None
    programs: Callable[[int], None] = lambda count: None
