"""Settings of an upstream: `UpstreamSettings`, its parts, and the `UpstreamObserver` of its events.

Values only. `config` builds the settings; `wiring` connects the observer to telemetry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from taskgate.domain.versions import Era, Revision, era_of
from taskgate.egress import DIRECT, Egress
from taskgate.protocol.discovery import CatalogueBounds
from taskgate.protocol.extensions import ExtensionPolicy

_USUAL_CATALOGUE: Final = CatalogueBounds()


class TransportKind(StrEnum):
    """Transport of messages to and from a server."""

    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    """HTTP+SSE of 2024-11-05: one event stream, and POSTs beside it."""
    STDIO = "stdio"
    """The standard streams of a process on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedHeader:
    """Credentials that do not change: one header of every request."""

    name: str
    value: str = field(repr=False)


class GrantKind(StrEnum):
    """OAuth grant by which a token for the server is requested."""

    CLIENT_CREDENTIALS = "client_credentials"
    """For the gateway itself: one token for all callers (RFC 6749, 4.4)."""
    TOKEN_EXCHANGE = "token_exchange"  # noqa: S105 - a way to a token, not one
    """For the token of a caller: one token per caller."""


class ExchangeProfile(StrEnum):
    """Form of a request that exchanges the token of a caller."""

    RFC8693 = "rfc8693"
    ENTRA = "entra"
    """The on-behalf-of flow of Microsoft Entra ID: a `jwt-bearer` grant with extra fields."""


class ClientAuth(StrEnum):
    """Way by which the gateway authenticates at a token endpoint."""

    BASIC = "basic"
    """The secret by HTTP Basic."""
    POST = "post"
    """The secret in the form."""
    PRIVATE_KEY_JWT = "private_key_jwt"
    """An assertion that the gateway signs (RFC 7523)."""
    FEDERATED = "federated"
    """A token that a platform writes into a file, as an assertion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionKey:
    """The private key that signs assertions, and how.

    `id` is its `kid`. `algorithm` None means the usual one of the key, `audience` None the token
    endpoint.
    """

    file: Path
    id: str | None = None
    algorithm: str | None = None
    audience: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """Credentials that are requested: a bearer token of at most `max_token` characters.

    `ca_file` has the authorities that are trusted for the endpoint; None means those of the system.
    `client_auth` says which of `client_secret`, `assertion_key` and `assertion_file` is set.
    `keeps`: a token is reused as long as it is valid. If not, each request gets a new one.
    """

    kind: GrantKind
    profile: ExchangeProfile = ExchangeProfile.RFC8693
    token_url: str = field(repr=False)
    ca_file: Path | None = None
    client_id: str
    client_auth: ClientAuth = ClientAuth.BASIC
    client_secret: str | None = field(default=None, repr=False)
    assertion_key: AssertionKey | None = None
    assertion_file: Path | None = None
    max_token: int = 16 * 1024
    resource: str | None = None
    audience: str | None = None
    scopes: tuple[str, ...] = ()
    keeps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityHeaders:
    """Headers that name the caller of a request to the server; None sends none."""

    context: str | None = None
    subject: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """TLS towards a server.

    `ca_file` None means the system's authorities, `server_name` None the host of the URL. Without
    `cert_file` the gateway shows no certificate.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeouts:
    """Timeouts of calls to tools whose name matches the glob `tool`, case-sensitive.

    They are as in UpstreamSettings.
    """

    tool: str
    call: timedelta
    ceiling: timedelta
    idle: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Attempts to connect for one request, before anything of it is sent: `attempts` in all.

    The pause before the second is at most `backoff`, and doubles up to `max_backoff`.
    """

    attempts: int = 2
    backoff: timedelta = timedelta(milliseconds=200)
    max_backoff: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Circuit breaker (`domain.breaker`): open after `failures` within `window`, for `open_for`.

    Then `half_open` trial requests may pass.
    """

    failures: int = 5
    window: timedelta = timedelta(seconds=30)
    open_for: timedelta = timedelta(seconds=30)
    half_open: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """Health checks of a server.

    With `lists_tools` each of them is a `tools/list`. The server is down after `unhealthy_after` failed checks in
    a row, up after `healthy_after` good ones.
    """

    lists_tools: bool = False
    interval: timedelta = timedelta(seconds=15)
    timeout: timedelta = timedelta(seconds=5)
    unhealthy_after: int = 3
    healthy_after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioSettings:
    """A server that is spoken to over the standard streams of a process.

    - `command` is the program and its arguments; no shell is involved.
    - `env` is added to the basic environment (`supervisor_client.environment`); its values are secret.
    - `cwd` is its directory, None for the gateway's own.
    - `processes` is how many run at most. A program that no session holds is ended after `idle`.
    - `backoff` is the delay after a program that ended soon after its start; it doubles up to
      `max_backoff`.
    - `shared`: the server keeps no state of callers, so all with the same declaration share
      programs.
    """

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    processes: int = 8
    idle: timedelta = timedelta(seconds=60)
    backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(seconds=60)
    shared: bool = False


MAX_HEADER: Final = 64 * 1024
"""Bytes of the head of an answer, unless configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """One configured server.

    - `url` is for servers over HTTP, `stdio` for programs; only one of them is set.
    - `revision` is the configured revision; None detects the era.
    - `connect` bounds the way to a connection. `first_byte` bounds the wait for an answer's head,
      never for `tools/call`. `idle` bounds the silence within an answer; None: no bound.
    - `call` bounds a call without progress, `ceiling` any call. In `tools` the first rule that
      matches a tool counts.
    - `max_result` is bytes of one message, `max_header` of the head of one answer; `catalogue`
      limits the list of tools. `catalogue_age` is how old that may be before it is read again,
      where the server does not say; None: as old as the session.
    - `tcp_keepalive` is the silence after which the system probes a connection; None: never.
    - `headers` are on every request, beside `credentials`; their values are secret.
    - Without `retries` there is one attempt, without `breaker` no circuit breaker, without `health`
      no checks.
    - `extensions` says which methods and members of extensions pass.
    - `egress` says which proxy leads to the server, and to the endpoint of its tokens.
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
    max_header: int = MAX_HEADER
    tcp_keepalive: timedelta | None = None
    catalogue: CatalogueBounds = _USUAL_CATALOGUE
    catalogue_age: timedelta | None = timedelta(minutes=5)
    ceiling: timedelta = timedelta(hours=24)
    tools: tuple[ToolTimeouts, ...] = ()
    credentials: FixedHeader | GrantSettings | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: IdentityHeaders = IdentityHeaders()
    tls: UpstreamTls = UpstreamTls()
    retries: Retries | None = None
    breaker: Breaker | None = None
    health: HealthSettings | None = None
    extensions: ExtensionPolicy = field(default_factory=ExtensionPolicy)
    egress: Egress = DIRECT

    def without_secrets(self) -> Self:
        """Return these settings without secrets for the server: two that are equal differ in secrets
        alone. Those of a program are its environment, and stay."""
        credentials = self.credentials
        match credentials:
            case FixedHeader():
                credentials = replace(credentials, value="")
            case GrantSettings():
                credentials = replace(credentials, client_secret=None)
            case None:
                pass
        return replace(self, credentials=credentials, headers=dict.fromkeys(self.headers, ""))

    @property
    def has_credentials(self) -> bool:
        """Whether the gateway has anything to show to the server."""
        return self.credentials is not None or bool(self.headers) or self.tls.cert_file is not None

    @property
    def place(self) -> tuple[str, ...]:
        """The server's URL, or the command that runs it: by it one server is told from another."""
        if self.stdio is not None:
            return self.stdio.command
        return () if self.url is None else (self.url,)

    @property
    def era(self) -> Era | None:
        """The era that is known without detection: the configured one, or the only one of a
        transport (U-SSE-1)."""
        if self.transport is TransportKind.SSE:
            return Era.LEGACY
        return None if self.revision is None else era_of(self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamObserver:
    """Callbacks for the events of one upstream. None of them may raise or wait.

    - `answered`: method, seconds, the JSON-RPC code or the reason of the failure, None for a result, and
      whether the gateway made the request for itself.
    - `failed`: method, reason and cause of a failed request of a host, as in UpstreamFailed, after all attempts;
      and whether an error was its answer, under an HTTP status that is about the caller or the server.
    - `session_lost`: the server ended a session.
    - `stream_opened` and `stream_ended`: the kind of stream, `get`, `response` or `listen`.
    - `credentials_got`: the seconds that a token endpoint took, and whether it gave a token.
    - `begun`: the upstream is served from now on; once.
    - `skipped`: the bytes of what came on a stream, is no message and answers nothing.
    - `list_cut`: a list of tools ends where its pages repeat themselves, though the server names a
      further one.
    - `retried`: another attempt is made, for the reason `connect`.
    - `circuit`: the new state, closed, open or half_open, the cause of the latest failure, and whether it
      concerns all callers.
    - `health`: whether a check was good, whether the server is up after it (None: unknown), and why the
      check failed or was refused.
    - `restarted`: a program was started in place of one that ended by itself, and why that one
      ended.
    - `sought`: whether the server of a program is up, as known from its handshakes, and the cause if
      it is down; only changes.
    - `programs`: how many programs run now.
    """

    answered: Callable[[str, float, str | None, bool], None]
    session_lost: Callable[[], None]
    stream_opened: Callable[[str], None]
    stream_ended: Callable[[str], None]
    failed: Callable[[str, str, str, bool], None] = lambda method, reason, cause, is_answer: None
    skipped: Callable[[int], None] = lambda size: None
    list_cut: Callable[[], None] = lambda: None
    credentials_got: Callable[[float, bool], None] = lambda seconds, ok: None
    begun: Callable[[], None] = lambda: None
    retried: Callable[[str], None] = lambda reason: None
    circuit: Callable[[str, str | None, bool], None] = lambda state, cause, is_for_all: None
    health: Callable[[bool, bool | None, str | None], None] = lambda ok, up, cause: None
    restarted: Callable[[str], None] = lambda cause: None
    sought: Callable[[bool, str | None], None] = lambda up, cause: None
    programs: Callable[[int], None] = lambda count: None
