"""Sections `server` and `admin`: the listeners for hosts and for operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Annotated, Literal

from pydantic import Field

from taskgate.config.addresses import (
    BindAddress,
    FilePath,
    Host,
    HostName,
    ListenAddress,
    Network,
    Origin,
    PublicUrl,
    read_listen,
)
from taskgate.config.fields import (
    HOUR,
    KIB,
    MIB,
    MINUTE,
    SECOND,
    Count,
    Duration,
    Flag,
    Glob,
    MemorySize,
    Name,
    PositiveDuration,
    Section,
    SizeIn,
    TcpKeepalive,
)
from taskgate.config.problems import Conflict, conflict_between, list_at, mapping_at, value_at
from taskgate.listener.connection_limits import ConnectionBounds
from taskgate.listener.door import allowed_hosts, allowed_origins
from taskgate.listener.listener import ListenerSettings
from taskgate.listener.tls import TlsSettings
from taskgate.operators.access import OWN_TOKEN
from taskgate.streams.event_limits import EVENT_LIMITS, EventLimit, EventLimits

_LISTEN, _ADMIN_LISTEN = ("server", "listen"), ("admin", "listen")


class TlsSection(Section):
    """TLS of a listener. Changed files are read again without a restart."""

    cert_file: FilePath | None = None
    """The certificate and its intermediate certificates, in PEM; null means plain HTTP."""
    key_file: FilePath | None = None
    """The private key of the certificate, in PEM and without a passphrase."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest accepted version of TLS, in quotes."""
    client_auth: Literal["none", "optional", "require"] = "none"
    """Whether clients must show a certificate. It replaces no token, and has no part in who owns a task."""
    client_ca_file: FilePath | None = None
    """The certificate authorities for certificates of clients, in PEM."""

    def to_settings(self, section: Literal["server.tls", "admin.tls"]) -> TlsSettings | None:
        """Return the settings of TLS, None for plain HTTP. `section` is the place of this one in the file."""
        if self.cert_file is None or self.key_file is None:
            return None
        return TlsSettings(
            section=section,
            cert_file=self.cert_file,
            key_file=self.key_file,
            min_version=self.min_version,
            client_auth=self.client_auth,
            client_ca_file=self.client_ca_file,
        )


class DrainSection(Section):
    """The shutdown: what happens between SIGTERM and the end of the process."""

    delay: Duration = 5 * SECOND
    """How long requests are served as before while /readyz is 503; no time if /readyz was never
    requested.
    """
    timeout: Duration = 60 * SECOND
    """How long the shutdown waits for requests in flight and running tasks."""
    running_tasks: Literal["wait", "fail"] = "wait"
    """wait: running tasks may complete within the timeout; fail: they fail at once."""


class ServerSection(Section):
    """The listener that hosts use."""

    listen: ListenAddress = BindAddress(host="127.0.0.1", port=8080)
    """HOST:PORT. With auth.mode none it must be a loopback address, unless auth.allow_insecure;
    port 0 means any free port.
    """
    public_url: PublicUrl | None = None
    """The base URL of the gateway for hosts; null means http://, with TLS https://, and the listen
    address.
    """
    tls: TlsSection = TlsSection()
    trusted_proxies: tuple[Network, ...] = ()
    """Networks of proxies that may say, in forwarded_header, which address a request comes from.

    Rates of scope ip count by it.
    """
    allowed_clients: tuple[Network, ...] = ()
    """Networks that requests may come from, judged by the address that trusted_proxies name; []
    means any. Others get 403.
    """
    forwarded_header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The one forwarding header that is read from these proxies: the one that they set themselves.
    """
    max_body: MemorySize = 4 * MIB
    """Largest body of a request."""
    max_header: Annotated[int, SizeIn(least=KIB, most=MIB)] = 16 * KIB
    """Largest head of a request."""
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    """Deepest nesting of a JSON message."""
    max_json_members: Annotated[int, Field(strict=True, ge=1000, le=65_536)] = 4096
    """The most members of a message, of its parameters, and of each object in them that taskgate
    reads.

    A message may hold one array or object for each 40 bytes, and at least 100,000 in all.
    """
    max_connections: Count = 10_000
    """The most open connections of hosts; at most a third of the limit of open files."""
    max_connections_per_address: Count = 512
    """The most open connections of one address (IPv6: of a /64). It does not apply to
    trusted_proxies. The log warns at 80 %.
    """
    max_streams_per_context: Count = 100
    """The most open event streams of one caller: GET streams and subscriptions."""
    max_streams_per_subject: Count | None = None
    """The same for all clients of one subject of an issuer; null means twice max_streams_per_context."""
    require_task_name: Flag = False
    """Whether requests of 2026-07-28 about a task must repeat its id in Mcp-Name, which a released
    host does not.
    """
    read_timeout: PositiveDuration = 30 * SECOND
    """How long a host may take to send a request."""
    idle_timeout: PositiveDuration = 75 * SECOND
    """How long a connection without a request stays open."""
    session_idle: PositiveDuration = HOUR
    """How long a host session is kept that has no request, open stream or unfinished task."""
    sessions: Literal["required", "optional"] = "required"
    """Whether legacy hosts must send the Mcp-Session-Id that initialize gave them.

    optional: calls, lists and tasks are served without it. What needs a session is refused.
    """
    sse_keepalive: PositiveDuration = 15 * SECOND
    """Silence after which a late answer begins, and an event stream has a comment. A host that asked for
    progress gets a progress notification instead.
    """
    tcp_keepalive: TcpKeepalive | None = MINUTE
    """Silence after which the system probes a connection of a host. One that answers no probe for as
    long again is closed; null means no probes.
    """
    event_limits: Mapping[Glob, MemorySize] = {}
    """The largest event that hosts take, by a glob over name/version of their clientInfo, or over their
    User-Agent. Built in, unless an entry has the same glob: what is known of released hosts
    (docs/reference/known-limits.md).
    """
    allowed_hosts: tuple[Host, ...] = ()
    """Accepted values of the Host header, with the port where the header has one.

    [] means the host of public_url and, on a loopback address, localhost, 127.0.0.1 and [::1] with
    its port.
    """
    allowed_origins: tuple[Origin, ...] = ()
    """Accepted values of the Origin header; [] means the same hosts as allowed_hosts.

    Browsers let pages of these origins call the gateway and read its answers (CORS).
    """
    drain: DrainSection = DrainSection()

    def to_settings(self, port: int) -> ListenerSettings:
        """Return the settings of the listener for hosts, which is bound to `port`."""
        hosts = allowed_hosts(self.public_url, self.listen.host, port, self.allowed_hosts)
        return ListenerSettings(
            allowed_hosts=hosts,
            allowed_origins=allowed_origins(hosts, self.allowed_origins),
            cors_origins=allowed_origins((), self.allowed_origins),
            max_body=self.max_body,
            max_header=self.max_header,
            read_timeout=self.read_timeout,
            idle_timeout=self.idle_timeout,
            sse_keepalive=self.sse_keepalive,
            tcp_keepalive=self.tcp_keepalive,
            allowed_clients=self.allowed_clients,
            trusted_proxies=self.trusted_proxies,
            forwarded_header=self.forwarded_header,
            tls=self.tls.to_settings("server.tls"),
        )

    def to_event_limits(self) -> EventLimits:
        """Return the limits of events, the built-in ones behind those of the file."""
        others = {host: most for host, most in EVENT_LIMITS.items() if host not in self.event_limits}
        return EventLimits((*starmap(EventLimit, {**self.event_limits, **others}.items()),))

    def to_connection_bounds(self) -> ConnectionBounds:
        """Return how many connections hosts may have."""
        return ConnectionBounds(
            total=self.max_connections, per_address=self.max_connections_per_address, exempt=self.trusted_proxies
        )


class AdminTokenSection(Section):
    """A token for the API of operators. Its file is read again at each reload."""

    file: FilePath
    """The file with the token: one line of 22 to 4096 visible characters, or at least 32 hexadecimal digits."""
    role: Literal["viewer", "operator"]
    """viewer: may look; operator: may also act, such as cancel a task."""
    name: Name
    """The name of the token in the audit log; each is given once, and none is token_file or own_token."""


class AdminSection(Section):
    """The listener that operators use: probes, metrics, and the API."""

    listen: ListenAddress = BindAddress(host="127.0.0.1", port=9464)
    """HOST:PORT. With auth.mode none it must be a loopback address, unless auth.allow_insecure;
    port 0 means any free port.
    """
    tls: TlsSection = TlsSection()
    allowed_hosts: tuple[HostName, ...] = ()
    """Accepted names in the Host header, with any port; *.example.com is all names below example.com.

    Addresses and localhost are always accepted.
    """
    identity: Literal["full", "pseudonymous"] | None = None
    """What operators see of callers, in the API, the console and the log. full: the subject, client and tenant of
    their tokens too; pseudonymous: references alone; null: as audit.identity. Tasks are stored with these names
    only under full.
    """
    token_file: FilePath | None = None
    """The file with one token of role operator, whose name is token_file."""
    tokens: tuple[AdminTokenSection, ...] = ()
    """The tokens for /api/v1, POST /-/reload and /-/drain. Without any token these requests are refused, unless
    the gateway makes one: if listen is of this machine alone.
    """
    payloads: Flag = False
    """Whether tokens of role operator may read arguments, results, questions and answers of tasks.
    Each look is a line of the audit log.
    """


def server_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts between the two listen addresses, and between the keys of TLS."""
    ours = value_at((raw, defaults), _LISTEN, read_listen)
    theirs = value_at((raw, defaults), _ADMIN_LISTEN, read_listen)
    if ours and theirs and ours.overlaps(theirs):
        words = "must not be" if ours == theirs else "must not take the address and port of"
        yield conflict_between(raw, defaults, _LISTEN, _ADMIN_LISTEN, (words, words))

    yield from _token_conflicts(raw)
    yield from _tls_conflicts(raw, "server")
    yield from _tls_conflicts(raw, "admin")


def _tls_conflicts(raw: object, listener: str) -> Iterator[Conflict]:
    """Find conflicts between the keys of `tls` of a listener."""
    where = (listener, "tls")
    tls, named = mapping_at(raw, *where), f"{listener}.tls"
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is not None and tls.get(other) is None:
            yield (*where, one), f"must not be given without {named}.{other}"
    asks = tls.get("client_auth") in ("optional", "require")
    if asks and tls.get("client_ca_file") is None:
        yield (*where, "client_auth"), f"must not be given without {named}.client_ca_file, unless it is none"
    elif asks and tls.get("cert_file") is None:
        yield (*where, "client_auth"), f"must not be given without {named}.cert_file, unless it is none"
    if tls.get("client_ca_file") is not None and tls.get("client_auth", "none") == "none":
        why = "which asks for no certificate"
        yield (*where, "client_ca_file"), f"must not be given with {named}.client_auth none, {why}"


def _token_conflicts(raw: object) -> Iterator[Conflict]:
    """Find tokens of one name: the audit log names a token by it."""
    names = {
        "token_file": "token_file, which is that of admin.token_file",
        OWN_TOKEN: f"{OWN_TOKEN}, which is that of a token of the gateway's own",
    }
    for index, token in enumerate(map(mapping_at, list_at(raw, "admin", "tokens"))):
        name = token.get("name")
        if isinstance(name, str):
            if name in names:
                yield ("admin", "tokens", index, "name"), f"must not be {names[name]}"
            names.setdefault(name, f"that of admin.tokens[{index}]")
