"""Inputs of an explanation: hints, a token or claims and their identity, and what a server says of itself."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from logging import NullHandler, getLogger
from pathlib import Path
from typing import Any, Final, get_args

import orjson

from taskgate.auth.api_keys import KeyVerifier
from taskgate.auth.claims import MAX_TOKEN, bearer_token, read_claims
from taskgate.auth.context import ContextKeys, Identity
from taskgate.auth.fetch import HttpFetcher
from taskgate.auth.jwks import IssuerKeys
from taskgate.auth.jwt import TokenVerifier
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.model import upstream_settings
from taskgate.config.sections.tasks import Hint
from taskgate.domain.policy import APP_ONLY
from taskgate.domain.versions import Peer
from taskgate.errors import KeysUnavailable, Unauthenticated, UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ListedTool
from taskgate.system.secret_files import ADVICE, read_secret
from taskgate.telemetry.upstream_condition import in_words
from taskgate.upstream.calls import Principal
from taskgate.upstream.health import DEAF, QUIET
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.authentication import resource_of
from taskgate.wiring.upstreams import upstream_maker

HINTS: Final = (*get_args(Hint), APP_ONLY)
"""The names of hints."""
_FLAGS: Final = {"true": True, "false": False}
_HOUR: Final = timedelta(hours=1)

# --- hints and tokens on the command line ---------------------------------------------------------------------------


def read_hints(options: Iterable[str]) -> dict[str, bool]:
    """Read hints such as `readOnlyHint=true`. Raises ValueError with a message for the operator."""
    hints: dict[str, bool] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in HINTS or value not in _FLAGS:
            raise ValueError(f"--hint must be NAME=true or NAME=false, where NAME is one of {', '.join(HINTS)}")
        hints[name] = _FLAGS[value]
    return hints


def read_token(file: Path | None) -> str | None:
    """Read the token in a file, without white space around it; None without a file.

    Raises ValueError with a message for the operator.
    """
    if file is None:
        return None
    try:
        content, exposed = read_secret(file, 2 * MAX_TOKEN, "--token")
    except OSError as error:
        raise ValueError(f"--token: {file} cannot be read: {error.strerror}") from None
    if exposed:
        raise ValueError(f"--token: {file} {ADVICE}")
    try:
        return content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise ValueError(f"--token: {file} does not hold a token") from None


def parse_claims(option: str | None) -> dict[str, Any] | None:
    """Read claims such as `sub=bob,scope=read write`, or a JSON object; None without an option.

    Raises ValueError with a message for the operator.
    """
    if option is None:
        return None
    try:
        if option.lstrip().startswith("{"):
            return dict(orjson.loads(option))
        pairs = list(_pairs(option))
    except ValueError:
        raise ValueError("--claims must be NAME=VALUE, with commas between several, or a JSON object") from None
    if len(dict(pairs)) < len(pairs):
        raise ValueError("--claims has one name twice")
    return dict(pairs)


def _pairs(option: str) -> Iterator[tuple[str, str]]:
    for pair in option.split(","):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError("no pair")
        yield name.strip(), value.strip()


# --- the identity of a token ----------------------------------------------------------------------------------------


REASONS: Final[Mapping[str, str]] = {
    "missing": "auth.mode is required, and there is no token",
    "malformed": "it is no JWT, or one that asks for what is never done",
    "typ": "its typ is none that the issuer's profile takes",
    "alg": "its algorithm is none of the issuer's algorithms",
    "unknown_kid": "the issuer has no such key",
    "signature": "its signature is wrong",
    "expired": "it has expired, or is older than max_token_age",
    "not_yet_valid": "it is not valid yet",
    "issuer": "its iss is no issuer of the file",
    "audience": "its aud names neither the upstream's path on this gateway nor one of the issuer's audience",
    "claim": "a claim that it must have is missing or malformed",
    "api_key": "it is none of auth.api_keys",
}
"""The text for each reason of a refusal."""


class TokenRefused(Exception):
    """A token that a gateway would answer with HTTP 401, or 503 where it cannot be judged."""


def verify_key(config: GatewayConfig, key: str) -> Identity:
    """Return the identity of an API key. Raises Unauthenticated."""
    bind = ContextKeys(SystemEntropy().token(32), bind=config.auth.context.bind).bind
    keys = config.auth.to_api_key_settings()
    verifier = KeyVerifier(keys, bind=bind, clock=SystemClock(), listener=lambda *_: None, on_recall=lambda: None)
    identity = verifier.verify(key).context.identity
    assert identity is not None, "an API key has an identity"
    return identity


def _identity_of(config: GatewayConfig, claims: Mapping[str, Any], audience: str) -> Identity:
    """Return the identity of a token with these claims. Raises TokenRefused.

    The claims are checked as those of a token. Issuer, audience, times and client may be left out: then they
    are such as the gateway accepts. `iss` may be the name of the issuer in the file.
    """
    issuers, named = config.auth.to_issuer_settings(), claims.get("iss")
    chosen = [each for each in issuers if named in (each.name, each.issuer) or (named is None and len(issuers) == 1)]
    if not chosen:
        if not issuers:
            raise TokenRefused("claims are those of tokens, and all callers have API keys: give the key by --token")
        raise TokenRefused(f"the claim iss must name one of the issuers: {', '.join(each.name for each in issuers)}")
    settings, now = chosen[0], SystemClock().wall()
    usual: dict[str, Any] = {
        "aud": list(settings.audience) or audience,
        "iat": now.timestamp(),
        "exp": (now + _HOUR).timestamp(),
    }
    has_client = not settings.client_id_claims or bool(claims.keys() & set(settings.client_id_claims))
    if not has_client:
        # Without one it would pass for an ID token.
        usual[settings.client_id_claims[0]] = "explain"
    payload = {**usual, **claims, "iss": settings.issuer}
    try:
        found = read_claims(payload, settings, audience=audience, now=now, bound=config.auth.context.bind)
        if has_client:
            return found
        given = {name: value for name, value in payload.items() if name != settings.client_id_claims[0]}
        return replace(found, client_id=None, claims=given)
    except Unauthenticated as refusal:
        text = f"a token of the issuer {settings.name} with these claims is refused ({refusal.reason})"
        raise TokenRefused(f"{text}: {refusal.detail or REASONS[refusal.reason]}") from None


class _IgnoredKeyEvents:
    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        """Ignore the event."""


async def identify(
    config: GatewayConfig,
    upstream: str,
    token: str | None,
    claims: Mapping[str, Any] | None = None,
    *,
    port: int | None = None,
) -> Identity | None:
    """Verify a token or an API key as a gateway does; None with `auth.mode: none`. Raises TokenRefused.

    With `claims` the identity is that of a token which has them. Otherwise the keys of issuers are fetched.
    Contexts are not needed here, so the key for their references is a random one. `port` is the port of a
    running listener, None for the configured one.
    """
    if config.auth.mode == "none":
        return None
    audience = resource_of(config, port or config.server.listen.port, config.upstreams[upstream].path)
    if claims is not None:
        return _identity_of(config, claims, audience)
    clock, fetch = SystemClock(), HttpFetcher(config.to_egress())
    issuers = config.auth.to_issuer_settings()
    keys = [(settings, IssuerKeys(settings, fetch, clock, _IgnoredKeyEvents())) for settings in issuers]
    bind = config.auth.context.bind
    verifier = TokenVerifier(
        keys,
        bind=ContextKeys(SystemEntropy().token(32), bind=bind).bind,
        bound=bind,
        clock=clock,
        listener=lambda *_: None,
        on_recall=lambda _: lambda: None,
    )
    try:
        sent = bearer_token([] if token is None else [f"Bearer {token}"], "")
        if KeyVerifier.is_key(sent):
            return verify_key(config, sent)
        return (await verifier.verify(sent, audience=audience)).context.identity
    except Unauthenticated as refusal:
        if not refusal.token_sent:
            raise TokenRefused(f"refused (missing): {REASONS['missing']}") from None
        of = "" if refusal.issuer is None else f" of the issuer {refusal.issuer}"
        what = "an API key" if KeyVerifier.is_key(token or "") else "a token"
        raise TokenRefused(f"{what}{of} is refused ({refusal.reason}): {REASONS[refusal.reason]}") from None
    except KeysUnavailable as error:
        raise TokenRefused(f"the token cannot be judged: {error}") from None
    finally:
        for _, each in keys:
            await each.close()
        await fetch.close()


# --- the declaration of a server ------------------------------------------------------------------------------------


class ServerNotAsked(Exception):
    """A server whose handshake or discovery failed; the text says why."""


async def ask_server(
    config: GatewayConfig, upstream: str, identity: Identity | None, token: str | None, *, lists_tools: bool = False
) -> tuple[Peer, Mapping[str, ListedTool]]:
    """Open a session at the server for that caller, and return what it says of itself.

    With `lists_tools` its tools are returned too, else none. The wait is bounded by the
    timeouts of the upstream. The header for the reference of the caller's context is left out, because it
    needs a key of the deployment. Raises ServerNotAsked.
    """
    settings = upstream_settings(config, upstream)
    settings = replace(settings, identity=replace(settings.identity, context=None))
    within = settings.connect + 2 * settings.first_byte
    # The exception says what the log would say.
    log, silent = getLogger("taskgate"), NullHandler()
    log.addHandler(silent)
    supervisor, entropy = Supervisor(), SystemEntropy()
    try:
        server = upstream_maker(supervisor, entropy)(settings, QUIET, SystemClock())
        session = server.session(DEAF, lambda: _principal(identity, token))
        try:
            async with asyncio.timeout(within.total_seconds()):
                return (await session.open()).peer, (await session.tools() if lists_tools else {})
        finally:
            await session.close()
            await server.close()
    except TlsFileRefused as refused:
        raise ServerNotAsked(f"upstreams.{upstream}.{refused}") from None
    except UpstreamFailed as failure:
        # The text of a program that ended has its status already.
        cause = None if failure.reason is UpstreamReason.CLOSED else failure.cause
        text = f"{failure}{_cause(cause)}"
        raise ServerNotAsked(f"upstreams.{upstream} was asked in vain ({failure.reason}): {text}") from None
    except TimeoutError:
        raise ServerNotAsked(f"upstreams.{upstream} was asked in vain (timeout): it said nothing in time") from None
    finally:
        await supervisor.close()
        log.removeHandler(silent)


def _cause(cause: str | None) -> str:
    """The cause of a failure in words, behind a colon; with the name that the system has for it."""
    if cause is None:
        return ""
    words = in_words(cause)
    return f": {words}" if cause in words or not cause.isupper() else f": {words} ({cause})"


def _principal(identity: Identity | None, token: str | None) -> Principal:
    if identity is None:
        return Principal(context="explain")
    return Principal(
        context="explain",
        subject=identity.subject,
        issuer=identity.issuer,
        client=identity.client_id,
        token=token,
        scopes=identity.scopes,
        good_until=identity.expires_at,
    )
