"""The authentication of callers, from the configuration: `Authenticator`, made by
`build_authenticator`.

It has the verifier of tokens, with the issuers' keys, and that of API keys. It also has the keys that seal texts of the
gateway, so that no other party can make one. `open` starts to fetch the issuers' keys, `close` stops
it. The module also makes the documents by which hosts find the authorization server (RFC 9728).

The pipeline identifies callers with the `ReloadableAuthenticator`, which has the present one. A reload
calls `opened` for another authenticator, then `switch`. A replaced one still identifies the callers of
requests that had begun, and is then closed.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from taskgate.admission.callers import BearerCallers, Callers
from taskgate.admission.lookup_guard import PenaltyBox
from taskgate.admission.mounts import Mount
from taskgate.admission.security_alerts import SecurityLog
from taskgate.auth.claims import API_KEYS, IssuerSettings
from taskgate.auth.context import ANONYMOUS, AuthContext, ContextKeys
from taskgate.auth.fetch import HttpFetcher
from taskgate.auth.jwt import OTHER, TokenVerifier
from taskgate.auth.key_file import DeploymentKeys, KeyFileRefused, read_keys, read_or_make_keys
from taskgate.auth.metadata import WELL_KNOWN, canonical_url, document_url, metadata_path, resource_document, root_mount
from taskgate.clock import Clock, Entropy
from taskgate.cluster.message_auth import SealKeys
from taskgate.config import GatewayConfig
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.request_state import RequestStateKeys
from taskgate.operators.access import Operator, OperatorAccess, Role
from taskgate.streams.exchange import Exchange
from taskgate.system.background import Background
from taskgate.system.secret_files import ADVICE, read_secret
from taskgate.telemetry.events import EventSink, KeysFetched, TokenChecked, TokenRecognized

if TYPE_CHECKING:
    from taskgate.auth.api_keys import KeyVerifier
    from taskgate.auth.jwks import IssuerKeys, KeysState

KEY_FILE: Final = "context.key"
_LONGEST_TOKEN: Final = 4096
_TOKEN: Final = re.compile(rb"(?:[0-9a-fA-F]{32,}|(?![0-9a-fA-F]*\Z)[!-~]{22,})")
"""A token that can have 128 random bits: 4 in each hexadecimal digit, at most 6 in another character."""
_TOKEN_FORM: Final = (
    "must hold one token that can have 128 random bits: at least 22 visible characters, or 32 hexadecimal digits, "
    f"and at most {_LONGEST_TOKEN}; make one with: openssl rand -hex 32"
)
_CURSORS: Final = b"taskgate: cursors of tasks/list"
_STATES: Final = b"taskgate: requestState"
_MESSAGES: Final = b"taskgate: words between gateways"
_CHECKPOINTS: Final = b"taskgate: rounds in records"
_LISTS: Final = b"taskgate: cursors of operators"


class Issuer(NamedTuple):
    """An issuer, its keys, and the HTTP client that fetches them."""

    settings: IssuerSettings
    keys: "IssuerKeys"
    fetch: HttpFetcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """The authentication under one configuration.

    A reloaded one takes over the issuers whose settings are unchanged: their keys stay, also while
    an issuer is unavailable.

    - `cursors`, `states`, `messages` and `checkpoints` seal cursors of `tasks/list`, `requestState`
      texts, messages of the cluster bus, and checkpoints in task records.
    - `deployment` are the secret keys from which those are derived, and that bind tasks to callers.
      None without authentication and a key file.
    - `heard` is set after each attempt to fetch keys of an issuer.
    - `api_keys` verifies the API keys of hosts; None if there are none.
    """

    callers: Callers | None
    cursors: CursorKeys
    states: RequestStateKeys
    messages: SealKeys
    checkpoints: SealKeys = field(default_factory=SealKeys)
    deployment: DeploymentKeys | None = None
    issuers: tuple[Issuer, ...] = ()
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    api_keys: "KeyVerifier | None" = None

    def open(self, before: "Authenticator | None" = None) -> None:
        """Start to fetch the issuers' keys, except of issuers shared with `before`, which is open."""
        for issuer in self._not_shared_with(before):
            issuer.keys.start()

    async def close(self, other: "Authenticator | None" = None) -> None:
        """Stop fetching, except for issuers shared with `other`."""
        for issuer in self._not_shared_with(other):
            await issuer.keys.close()
            await issuer.fetch.close()

    async def reread_files(self) -> tuple[str, ...]:
        """Read the key sets in files again; return the names of issuers with other keys now.

        A file that is no key set is logged, and the earlier keys stay. The time is that of `jwks.timeout`.
        """
        of_files = [issuer for issuer in self.issuers if issuer.settings.keys.file is not None]
        changed = await asyncio.gather(*(issuer.keys.reread() for issuer in of_files))
        return tuple(issuer.settings.name for issuer, is_new in zip(of_files, changed, strict=True) if is_new)

    @property
    def ready(self) -> bool:
        """Whether every issuer's keys were fetched once, so that its tokens can be verified."""
        return all(issuer.keys.has_keys for issuer in self.issuers)

    def keys_states(self) -> Mapping[str, "KeysState"]:
        """Return the state of the keys of each issuer, by its name."""
        return {issuer.settings.name: issuer.keys.state for issuer in self.issuers}

    def _not_shared_with(self, other: "Authenticator | None") -> list[Issuer]:
        shared = () if other is None else other.issuers
        return [issuer for issuer in self.issuers if all(issuer.keys is not each.keys for each in shared)]


def build_penalties(config: GatewayConfig) -> PenaltyBox | None:
    """Create the penalties for callers that guess ids; None without authentication."""
    failures = config.auth.lookup_failures
    if config.auth.mode == "none":
        return None
    return PenaltyBox(failures.threshold, failures.window, failures.penalty)


def operator_tokens(config: GatewayConfig) -> Mapping[bytes, Operator]:
    """Read the tokens of operators. Raises KeyFileRefused."""
    admin, found = config.admin, dict[bytes, Operator]()
    files = [] if admin.token_file is None else [("admin.token_file", admin.token_file, _OF_TOKEN_FILE)]
    for index, each in enumerate(admin.tokens):
        files.append((f"admin.tokens[{index}].file", each.file, Operator(each.name, Role(each.role))))
    for key, file, operator in files:
        token = _operator_token(file, key)
        if token in found:
            raise KeyFileRefused(f"{key}: has the same token as {found[token].name}")
        found[token] = operator
    return found


def set_operators(access: OperatorAccess, config: GatewayConfig, tokens: Mapping[bytes, Operator]) -> bool:
    """Give operators the access of a configuration, and return whether `tokens` are others than before."""
    access.shows_payloads = config.admin.payloads
    access.show_names(names_callers=config.names_callers)
    access.allowed_hosts = frozenset(config.admin.allowed_hosts)
    return access.replace(tokens)


_OF_TOKEN_FILE: Final = Operator("token_file", Role.OPERATOR)


def _operator_token(file: Path, key: str) -> bytes:
    try:
        text, exposed = read_secret(file, _LONGEST_TOKEN, key)
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", 0) or 0)
        raise KeyFileRefused(f"{key}: cannot be read: {reason}") from None
    if exposed:
        raise KeyFileRefused(f"{key}: {ADVICE}")
    token = text.strip()
    if len(token) > _LONGEST_TOKEN or not _TOKEN.fullmatch(token):
        raise KeyFileRefused(f"{key}: {_TOKEN_FORM}")
    return token


def list_cursor_keys(keys: DeploymentKeys) -> tuple[bytes, bytes | None]:
    """Return the keys of cursors in the API of operators, which all replicas with these keys share."""
    return _keys_for(_LISTS, keys)


def build_authenticator(
    config: GatewayConfig,
    deployment: DeploymentKeys | None,
    event_sink: EventSink,
    clock: Clock,
    entropy: Entropy,
    *,
    before: Authenticator | None = None,
) -> Authenticator:
    """Create an authenticator, not yet open.

    `deployment` is the result of `deployment_keys`. At a reload `before` is the present one.
    """
    # Without a key file, sealed texts are valid as long as the process lives. Checkpoints in the store
    # must outlive it, so they are not sealed then.
    keys = deployment or DeploymentKeys(entropy.token(32), None)
    seals = Authenticator(
        callers=None,
        cursors=CursorKeys(*_keys_for(_CURSORS, keys)),
        states=RequestStateKeys(*_keys_for(_STATES, keys)),
        messages=SealKeys(*_keys_for(_MESSAGES, keys), _deployment(config)),
        checkpoints=SealKeys() if deployment is None else SealKeys(*_keys_for(_CHECKPOINTS, keys), _deployment(config)),
        deployment=deployment,
    )
    if config.auth.mode == "none":
        return seals
    assert deployment is not None, "authentication needs the keys that bind tasks to callers"
    bind, cache = config.auth.context.bind, config.auth.token_cache
    heard = asyncio.Event() if before is None else before.heard
    issuers = _issuers(config, before, _FetchReport(event_sink, heard), clock)

    def listener(issuer: str, reason: str, caller: AuthContext | None = None) -> None:
        event_sink.emit(TokenChecked(issuer, reason, known=False, caller=caller))

    context_keys = ContextKeys(deployment.current, deployment.previous, bind)
    verifier = TokenVerifier(
        [(issuer.settings, issuer.keys) for issuer in issuers],
        bind=context_keys.bind,
        bound=bind,
        clock=clock,
        listener=listener,
        on_recall=lambda issuer: partial(event_sink.emit, TokenRecognized(issuer)),
        cache_size=cache.size,
        cache_ttl=cache.max_ttl,
    )
    api_keys = None
    if config.auth.api_keys:
        # Most gateways have none, and load nothing for them.
        from taskgate.auth.api_keys import KeyVerifier  # noqa: PLC0415

        api_keys = KeyVerifier(
            config.auth.to_api_key_settings(),
            bind=context_keys.bind,
            clock=clock,
            listener=listener,
            on_recall=partial(event_sink.emit, TokenRecognized(API_KEYS)),
        )
    return replace(
        seals,
        callers=BearerCallers(
            verifier, lambda reason: event_sink.emit(TokenChecked(OTHER, reason.value)), SecurityLog(clock), api_keys
        ),
        issuers=issuers,
        heard=heard,
        api_keys=api_keys,
    )


def resource_of(config: GatewayConfig, port: int, path: str) -> str:
    """Return the URL of a mount, as hosts know it."""
    return canonical_url(base_url(config, port), path)


def base_url(config: GatewayConfig, port: int) -> str:
    """Return the URL of the gateway, as hosts know it. `port` is the listener's."""
    listen = config.server.listen
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    scheme = "http" if config.server.tls.cert_file is None else "https"
    return config.server.public_url or f"{scheme}://{host}:{port}"


def metadata_url(config: GatewayConfig, resource: str) -> str | None:
    """Return the URL of a resource's metadata; None if none is served."""
    return document_url(resource) if _has_metadata(config) else None


def _has_metadata(config: GatewayConfig) -> bool:
    """Whether the issuers are named to hosts. Without any, as with API keys alone, a document would lead nowhere."""
    auth = config.auth
    return auth.mode == "required" and bool(auth.issuers) and auth.protected_resource_metadata.enabled


def metadata_documents(config: GatewayConfig, port: int) -> Mapping[str, bytes]:
    """Return the documents of RFC 9728 by path; none without issuers."""
    metadata = config.auth.protected_resource_metadata
    if not _has_metadata(config):
        return {}
    servers = [section.issuer for section in config.auth.issuers.values()]
    paths = [section.path for section in config.upstreams.values()]
    by_mount = {
        path: resource_document(
            resource_of(config, port, path),
            authorization_servers=servers,
            scopes=metadata.scopes_supported,
            documentation=metadata.documentation,
            extra=metadata.extra,
        )
        for path in paths
    }
    documents: dict[str, bytes] = {}
    # A public URL with a path means a proxy in front. It may or may not remove its path from the
    # well-known one.
    for path, document in by_mount.items():
        documents[urlsplit(document_url(resource_of(config, port, path))).path] = document
    for path, document in by_mount.items():
        documents.setdefault(metadata_path(path), document)
    # As the paths of mounts.
    for path, document in tuple(documents.items()):
        documents.setdefault(f"{path}/", document)
    alone = root_mount(paths)
    if alone is not None:
        documents[WELL_KNOWN] = by_mount[alone]
    return documents


def _issuers(
    config: GatewayConfig, before: Authenticator | None, fetch_report: "_FetchReport", clock: Clock
) -> tuple[Issuer, ...]:
    # A known issuer keeps its keys, so that a reload does not depend on its being available.
    known = () if before is None else before.issuers
    if not config.auth.issuers:
        return ()

    # It loads the libraries of signatures: 50 ms and 10 MiB that a gateway without issuers saves.
    from taskgate.auth.jwks import IssuerKeys  # noqa: PLC0415

    def new_issuer(settings: IssuerSettings) -> Issuer:
        fetch = HttpFetcher(config.to_egress())
        return Issuer(settings, IssuerKeys(settings, fetch, clock, fetch_report), fetch)

    return tuple(
        next((issuer for issuer in known if issuer.settings == settings), None) or new_issuer(settings)
        for settings in (replace(each, place=place_of_keys(config, each)) for each in config.auth.to_issuer_settings())
    )


def place_of_keys(config: GatewayConfig, issuer: IssuerSettings) -> str:
    """Return where the keys of an issuer are: a file, or a URL without what may be a secret in it."""
    if issuer.keys.file is not None:
        return config.references.hide(str(issuer.keys.file))
    # What came from references is found as it is written.
    shown = config.references.hide(issuer.keys.uri or issuer.issuer)
    return _USER("//", re.split("[?#]", shown, maxsplit=1)[0])


_USER: Final = re.compile("//[^/@]*@").sub


@dataclass(frozen=True, slots=True)
class _FetchReport:
    """The listener of `IssuerKeys`: reports each fetch, and wakes who waits for keys."""

    event_sink: EventSink
    event: asyncio.Event

    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        self.event_sink.emit(KeysFetched(issuer, outcome, keys))
        self.event.set()


def deployment_keys(
    config: GatewayConfig, data_directory: Path | None, entropy: Entropy, *, before: DeploymentKeys | None = None
) -> DeploymentKeys | None:
    """Return the keys that bind contexts; None without authentication and a key file.

    At a reload `before` are the present keys. Then no key file is created: with new keys, callers
    would lose their tasks. Without a file the present keys stay, if the store is in memory. Raises
    KeyFileRefused.
    """
    named = config.auth.context.key_file
    if config.auth.mode == "none" and named is None:
        return None
    try:
        if named is not None:
            return read_keys(named)
        if data_directory is not None:
            file = data_directory / KEY_FILE
            return read_or_make_keys(file, entropy) if before is None else read_keys(file)
    except KeyFileRefused as refusal:
        place = f"{KEY_FILE} in the data directory" if named is None else "auth.context.key_file"
        raise KeyFileRefused(f"{place}: {refusal}") from None
    if before is not None and config.store.backend != "memory":
        text = "must name a file, or restart the gateway: it runs without a data directory to keep a key in"
        raise KeyFileRefused(f"auth.context.key_file: {text}")
    # Nothing outlives the process, so neither must its key.
    return before or DeploymentKeys(entropy.token(32), None)


def _deployment(config: GatewayConfig) -> str:
    """Return what names the deployment in a shared store; "" for a store of its own."""
    return config.store.redis.key_prefix if config.store.backend == "redis" else ""


def _keys_for(purpose: bytes, deployment: DeploymentKeys) -> tuple[bytes, bytes | None]:
    """Derive the keys for one purpose, so that a sealed text is valid for that purpose only."""
    current, previous = deployment
    return digest(current, purpose, sha256), None if previous is None else digest(previous, purpose, sha256)


KEYS_WITHIN: Final = timedelta(seconds=5)
"""Time for a new authenticator to fetch its issuers' keys before it is used without them."""


class ReloadableAuthenticator:
    """The present authenticator, as `Callers`, and replaced ones that still identify callers.

    `cursors`, `states`, `messages` and `checkpoints` have the keys of the present one.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._present = _InUse(authenticator)
        # Copies: their users keep them, so a reload sets the keys in them.
        self.cursors, self.states = replace(authenticator.cursors), replace(authenticator.states)
        self.messages, self.checkpoints = replace(authenticator.messages), replace(authenticator.checkpoints)
        # Replaced ones with their successors: issuers that both share must not be closed.
        self._replaced: dict[_InUse, Authenticator] = {}
        self._background = Background()
        self._was_ready = False

    def open(self) -> None:
        """Start to fetch the issuers' keys."""
        self._present.authenticator.open()

    @property
    def authenticator(self) -> Authenticator:
        """The present authenticator."""
        return self._present.authenticator

    @property
    def ready(self) -> bool:
        """Whether the keys of all issuers were there at least once.

        It stays True when a reload adds an issuer that is unavailable: the others are still served.
        """
        self._was_ready = self._was_ready or self.authenticator.ready
        return self._was_ready

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """Identify the caller, by the authenticator that is present when the request arrives."""
        in_use = self._present
        callers = in_use.authenticator.callers
        if callers is None:
            return ANONYMOUS
        in_use.requests += 1
        try:
            return await callers.identify(exchange, mount)
        finally:
            in_use.requests -= 1
            if not in_use.requests and in_use is not self._present:
                in_use.is_idle.set()

    def is_known(self, exchange: Exchange, mount: Mount) -> bool:
        callers = self.authenticator.callers
        # Without authentication no request is refused for its token.
        return callers is not None and callers.is_known(exchange, mount)

    def recent(self) -> Iterable[AuthContext]:
        callers = self.authenticator.callers
        return (ANONYMOUS,) if callers is None else callers.recent()

    def switch(self, authenticator: Authenticator) -> None:
        """Replace the authenticator by an open one. The old one closes when it is idle.

        API keys that the new one has not, or has otherwise, are revoked.
        """
        before, self._present = self._present, _InUse(authenticator)
        if before.authenticator.api_keys is not None:
            before.authenticator.api_keys.revoke(authenticator.api_keys)
        messages, checkpoints = authenticator.messages, authenticator.checkpoints
        cursors, states = authenticator.cursors, authenticator.states
        self.messages.current, self.messages.previous = messages.current, messages.previous
        self.checkpoints.current, self.checkpoints.previous = checkpoints.current, checkpoints.previous
        self.cursors.current, self.cursors.previous = cursors.current, cursors.previous
        self.states.current, self.states.previous = states.current, states.previous
        self._replaced[before] = authenticator
        self._background.run(lambda: self._close_when_idle(before))

    async def close(self) -> None:
        """Close the present and the replaced authenticators."""
        await self._background.close()
        for in_use in (*self._replaced, self._present):
            await in_use.authenticator.close()

    async def _close_when_idle(self, in_use: "_InUse") -> None:
        while in_use.requests:
            in_use.is_idle.clear()
            await in_use.is_idle.wait()
        # In the dict until it has ended, so that a `close` meanwhile finds it.
        await in_use.authenticator.close(self._replaced[in_use])
        del self._replaced[in_use]


class _InUse:
    """An authenticator in use. `requests` is the number of those whose caller it identifies now.

    `is_idle` is set when a replaced one has no such request any more.
    """

    __slots__ = ("authenticator", "is_idle", "requests")

    def __init__(self, authenticator: Authenticator) -> None:
        self.authenticator = authenticator
        self.requests = 0
        self.is_idle = asyncio.Event()


async def opened(authenticator: Authenticator, before: Authenticator, within: timedelta = KEYS_WITHIN) -> None:
    """Open an authenticator in place of `before`, and wait for its keys, at most `within`.

    The wait is limited: an unavailable issuer must not keep the other callers out.
    """
    authenticator.open(before)
    with suppress(TimeoutError):
        async with asyncio.timeout(within.total_seconds()):
            while not authenticator.ready:
                authenticator.heard.clear()
                await authenticator.heard.wait()
