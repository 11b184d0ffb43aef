"""Who is let in, and to what: from a GatewayConfig to the objects it means.

What must not live here: everything that is the same whoever asks (`assembly`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from taskgate.auth.authorization import AccessPolicy
from taskgate.auth.binding import ContextKeys
from taskgate.auth.fetching import AiohttpFetch
from taskgate.auth.jwks import IssuerKeys
from taskgate.auth.jwt import OTHER, Verifier
from taskgate.auth.keyfile import DeploymentKeys, KeyFileRefused, made_keys, read_keys
from taskgate.auth.metadata import WELL_KNOWN, canonical, document_url, metadata_path, resource_document, root_mount
from taskgate.clock import Clock, Entropy
from taskgate.config import GatewayConfig
from taskgate.config.access import access_policy, issuer_settings
from taskgate.engine.guard.callers import Bearers, Callers, Everybody
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.penalties import Penalties
from taskgate.tasks.cursors import CursorKeys
from taskgate.tasks.states import StateKeys
from taskgate.telemetry.audit import Audit, KeysFetched, TokenJudged

KEY_FILE: Final = "context.key"
_LISTING: Final = b"taskgate: cursors of tasks/list"
_ROUNDS: Final = b"taskgate: requestState"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatehouse:
    """What tells callers apart. `keys` and `fetch` have a beginning and an end; there may be none."""

    callers: Callers
    policy: AccessPolicy
    penalties: Penalties | None
    cursors: CursorKeys
    states: StateKeys
    keys: tuple[IssuerKeys, ...] = ()
    fetch: AiohttpFetch | None = None

    def open(self) -> None:
        """Begin to fetch the issuers' keys."""
        for keys in self.keys:
            keys.start()

    async def close(self) -> None:
        """Fetch nothing any more."""
        for keys in self.keys:
            await keys.close()
        if self.fetch is not None:
            await self.fetch.close()

    @property
    def ready(self) -> bool:
        """Whether every issuer's keys were had once, so that its tokens can be judged."""
        return all(keys.usable for keys in self.keys)


def build_gatehouse(
    config: GatewayConfig, data_directory: Path | None, audit: Audit, clock: Clock, entropy: Entropy
) -> Gatehouse:
    """The gatehouse, not yet open. Raises KeyFileRefused."""
    if config.auth.mode == "none":
        return Gatehouse(
            callers=Everybody(),
            policy=access_policy(config),
            penalties=None,
            # Nobody is given a list, so nobody has to open what this seals.
            cursors=CursorKeys(entropy.token(32)),
            # There is no key that outlives the process, so what this seals does not either.
            states=StateKeys(entropy.token(32)),
        )
    deployment = _deployment_keys(config, data_directory, entropy)
    bind, cache, failures = config.auth.context.bind, config.auth.token_cache, config.auth.lookup_failures
    fetch = AiohttpFetch()
    issuers = [(settings, IssuerKeys(settings, fetch, clock, _Heard(audit))) for settings in issuer_settings(config)]
    verifier = Verifier(
        issuers,
        bind=ContextKeys(deployment.current, deployment.previous, bind).bind,
        bound=bind,
        clock=clock,
        heard=lambda issuer, reason: audit.record(TokenJudged(issuer, reason)),
        cache_size=cache.size,
        cache_ttl=cache.max_ttl,
    )
    return Gatehouse(
        callers=Bearers(verifier, lambda reason: audit.record(TokenJudged(OTHER, reason.value)), Incidents(clock)),
        policy=access_policy(config),
        penalties=Penalties(failures.threshold, failures.window, failures.penalty),
        cursors=CursorKeys(*_keys_for(_LISTING, deployment)),
        states=StateKeys(*_keys_for(_ROUNDS, deployment)),
        keys=tuple(keys for _, keys in issuers),
        fetch=fetch,
    )


def resource_of(config: GatewayConfig, port: int, path: str) -> str:
    """The address of what is mounted at a path, as hosts know it."""
    return canonical(base_url(config, port), path)


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


@dataclass(frozen=True, slots=True)
class _Heard:
    audit: Audit

    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        self.audit.record(KeysFetched(issuer, outcome, keys))


def _deployment_keys(config: GatewayConfig, data_directory: Path | None, entropy: Entropy) -> DeploymentKeys:
    named = config.auth.context.key_file
    try:
        if named is not None:
            return read_keys(named)
        if data_directory is not None:
            return made_keys(data_directory / KEY_FILE, entropy)
    except KeyFileRefused as refusal:
        place = f"{KEY_FILE} in the data directory" if named is None else "auth.context.key_file"
        raise KeyFileRefused(f"{place}: {refusal}") from None
    # Nothing outlives the process, so its key need not either.
    return DeploymentKeys(entropy.token(32), None)


def _keys_for(purpose: bytes, deployment: DeploymentKeys) -> tuple[bytes, bytes | None]:
    """Keys of its own, so that nothing sealed for one purpose is good for another."""
    current, previous = deployment
    return digest(current, purpose, sha256), None if previous is None else digest(previous, purpose, sha256)
