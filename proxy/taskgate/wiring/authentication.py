"""Who is let in, and to what: from a GatewayConfig to the objects it means.

What must not live here: everything that is the same whoever asks (`build`).
"""

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from taskgate.admission.callers import Bearers, Callers, Everybody
from taskgate.admission.incidents import Incidents
from taskgate.admission.penalties import Penalties
from taskgate.auth.context import ContextKeys
from taskgate.auth.fetch import HttpFetcher
from taskgate.auth.jwks import IssuerKeys
from taskgate.auth.jwt import OTHER, TokenVerifier
from taskgate.auth.key_file import DeploymentKeys, KeyFileRefused, read_keys, read_or_make_keys
from taskgate.auth.metadata import WELL_KNOWN, canonical_url, document_url, metadata_path, resource_document, root_mount
from taskgate.auth.settings import IssuerSettings
from taskgate.clock import Clock, Entropy
from taskgate.cluster.message_auth import SealKeys
from taskgate.config import GatewayConfig
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.request_state import RequestStateKeys
from taskgate.system.secret_files import ADVICE, is_exposed
from taskgate.telemetry.events import EventSink, KeysFetched, TokenChecked

KEY_FILE: Final = "context.key"
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 4096
_TOKEN: Final = re.compile(rb"[!-~]+")
_LISTING: Final = b"taskgate: cursors of tasks/list"
_ROUNDS: Final = b"taskgate: requestState"
_WORDS: Final = b"taskgate: words between gateways"
_RESTS: Final = b"taskgate: rounds in records"


class Issuer(NamedTuple):
    """An issuer, its keys, and what they are fetched with."""

    settings: IssuerSettings
    keys: IssuerKeys
    fetch: HttpFetcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """What tells callers apart. Its issuers have a beginning and an end; there may be none.

    One that takes the place of another has the issuers of that which are set in the same way: their keys stay, also
    while they are away. `deployment` is what contexts are bound with, None where there are none. `heard` is set
    whenever keys were to be fetched.
    """

    callers: Callers
    cursors: CursorKeys
    states: RequestStateKeys
    words: SealKeys
    checkpoints: SealKeys = field(default_factory=SealKeys)
    deployment: DeploymentKeys | None = None
    issuers: tuple[Issuer, ...] = ()
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, before: "Authenticator | None" = None) -> None:
        """Begin to fetch the issuers' keys, but for those of `before`, which are fetched."""
        for issuer in self._alone(before):
            issuer.keys.start()

    async def close(self, other: "Authenticator | None" = None) -> None:
        """Fetch nothing any more, but for what `other` has too."""
        for issuer in self._alone(other):
            await issuer.keys.close()
            await issuer.fetch.close()

    @property
    def ready(self) -> bool:
        """Whether every issuer's keys were had once, so that its tokens can be judged."""
        return all(issuer.keys.has_keys for issuer in self.issuers)

    def _alone(self, other: "Authenticator | None") -> list[Issuer]:
        shared = () if other is None else other.issuers
        return [issuer for issuer in self.issuers if all(issuer.keys is not each.keys for each in shared)]


def build_penalties(config: GatewayConfig) -> Penalties | None:
    """The penalty box; None where everybody is one caller."""
    failures = config.auth.lookup_failures
    if config.auth.mode == "none":
        return None
    return Penalties(failures.threshold, failures.window, failures.penalty)


def operators_token(config: GatewayConfig) -> bytes | None:
    """What operators show who change something; None where nobody may. Raises KeyFileRefused."""
    named = config.admin.token_file
    if named is None:
        return None
    try:
        with named.open("rb") as file:
            exposed = is_exposed(named, os.fstat(file.fileno()).st_mode, "admin.token_file")
            token = file.read(_LONGEST_TOKEN + 1).strip()
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", 0) or 0)
        raise KeyFileRefused(f"admin.token_file: cannot be read: {reason}") from None
    if exposed:
        raise KeyFileRefused(f"admin.token_file: {ADVICE}")
    if not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN or not _TOKEN.fullmatch(token):
        raise KeyFileRefused(
            f"admin.token_file: must hold one token of {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} visible characters"
        )
    return token


def build_authenticator(
    config: GatewayConfig,
    deployment: DeploymentKeys | None,
    event_sink: EventSink,
    clock: Clock,
    entropy: Entropy,
    *,
    before: Authenticator | None = None,
) -> Authenticator:
    """The gatehouse, not yet open, over the keys that `deployment_keys` gave; in the place of `before`, if of any."""
    if config.auth.mode == "none":
        # Without a named key what is sealed does not outlive the process.
        kept = deployment or DeploymentKeys(entropy.token(32), None)
        return Authenticator(
            callers=Everybody(),
            # Nobody is given a list, so nobody has to open what this seals.
            cursors=CursorKeys(*_keys_for(_LISTING, kept)),
            states=RequestStateKeys(*_keys_for(_ROUNDS, kept)),
            words=SealKeys(*_keys_for(_WORDS, kept)),
            # What rests in a store is to outlive the process.
            checkpoints=SealKeys() if deployment is None else SealKeys(*_keys_for(_RESTS, deployment)),
        )
    assert deployment is not None, "authentication needs the keys that bind tasks to callers"
    bind, cache = config.auth.context.bind, config.auth.token_cache
    heard = asyncio.Event() if before is None else before.heard
    issuers = _issuers(config, before, _Heard(event_sink, heard), clock)
    verifier = TokenVerifier(
        [(issuer.settings, issuer.keys) for issuer in issuers],
        bind=ContextKeys(deployment.current, deployment.previous, bind).bind,
        bound=bind,
        clock=clock,
        listener=lambda *judged: event_sink.emit(TokenChecked(*judged)),
        cache_size=cache.size,
        cache_ttl=cache.max_ttl,
    )
    return Authenticator(
        callers=Bearers(verifier, lambda reason: event_sink.emit(TokenChecked(OTHER, reason.value)), Incidents(clock)),
        cursors=CursorKeys(*_keys_for(_LISTING, deployment)),
        states=RequestStateKeys(*_keys_for(_ROUNDS, deployment)),
        words=SealKeys(*_keys_for(_WORDS, deployment)),
        checkpoints=SealKeys(*_keys_for(_RESTS, deployment)),
        deployment=deployment,
        issuers=issuers,
        heard=heard,
    )


def resource_of(config: GatewayConfig, port: int, path: str) -> str:
    """The address of what is mounted at a path, as hosts know it."""
    return canonical_url(base_url(config, port), path)


def base_url(config: GatewayConfig, port: int) -> str:
    """What hosts know the gateway by; `port` is the one it listens on."""
    listen = config.server.listen
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    scheme = "http" if config.server.tls.cert_file is None else "https"
    return config.server.public_url or f"{scheme}://{host}:{port}"


def metadata_url(config: GatewayConfig, resource: str) -> str | None:
    """Where hosts find the metadata of a resource; None where none is served."""
    metadata = config.auth.protected_resource_metadata
    return document_url(resource) if config.auth.mode == "required" and metadata.enabled else None


def metadata_documents(config: GatewayConfig, port: int) -> Mapping[str, bytes]:
    """The documents of RFC 9728, by the paths they are asked for at; none without authentication."""
    metadata = config.auth.protected_resource_metadata
    if config.auth.mode == "none" or not metadata.enabled:
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
    # A public URL with a path comes from a proxy in front, which may or may not take its path off the well-known one.
    for path, document in by_mount.items():
        documents[urlsplit(document_url(resource_of(config, port, path))).path] = document
    for path, document in by_mount.items():
        documents.setdefault(metadata_path(path), document)
    alone = root_mount(paths)
    if alone is not None:
        documents[WELL_KNOWN] = by_mount[alone]
    return documents


def _issuers(config: GatewayConfig, before: Authenticator | None, heard: "_Heard", clock: Clock) -> tuple[Issuer, ...]:
    known = () if before is None else before.issuers

    def made(settings: IssuerSettings) -> Issuer:
        fetch = HttpFetcher()
        return Issuer(settings, IssuerKeys(settings, fetch, clock, heard), fetch)

    return tuple(
        next((issuer for issuer in known if issuer.settings == settings), None) or made(settings)
        for settings in config.auth.to_issuer_settings()
    )


@dataclass(frozen=True, slots=True)
class _Heard:
    event_sink: EventSink
    event: asyncio.Event

    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        self.event_sink.emit(KeysFetched(issuer, outcome, keys))
        self.event.set()


def deployment_keys(
    config: GatewayConfig, data_directory: Path | None, entropy: Entropy, *, before: DeploymentKeys | None = None
) -> DeploymentKeys | None:
    """What contexts are bound with; None where everybody is one caller and no file is named. Raises KeyFileRefused.

    `before` is what they were bound with until now. Then none is made, for whoever has tasks would lose them. It stays
    where nothing outlives the process.
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
    # Nothing outlives the process, so its key need not either.
    return before or DeploymentKeys(entropy.token(32), None)


def _keys_for(purpose: bytes, deployment: DeploymentKeys) -> tuple[bytes, bytes | None]:
    """Keys of its own, so that nothing sealed for one purpose is good for another."""
    current, previous = deployment
    return digest(current, purpose, sha256), None if previous is None else digest(previous, purpose, sha256)
