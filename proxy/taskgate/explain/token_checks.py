"""The checks of a token, one by one: `inspect_token`, for `taskgate token inspect`.

The functions of the gateway decide (`auth.claims`, `auth.jwt`). Each check of a claim is made with
claims that are good otherwise, so that one wrong claim does not hide another. `TokenVerifier` has the
last word. Neither a token nor its signature is in a result.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from taskgate.auth.api_keys import KeyVerifier
from taskgate.auth.claims import (
    MAX_TOKEN,
    IssuerSettings,
    UnverifiedToken,
    bearer_token,
    check_header,
    parse_token,
    read_claims,
)
from taskgate.auth.context import Claims, ContextKeys, Identity
from taskgate.auth.fetch import FetchFailed, HttpFetcher
from taskgate.auth.jwks import fetch_key_set
from taskgate.auth.jwt import TokenVerifier, check_signature
from taskgate.auth.keyset import KeySet, KeySetRefused
from taskgate.auth.metadata import DiscoveryRefused
from taskgate.clock import Clock, SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.fields import write_duration
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from taskgate.explain.inputs import verify_key
from taskgate.wiring.authentication import resource_of

if TYPE_CHECKING:
    from jwt import PyJWK

_LONGEST: Final = 200
"""Characters of a value that are shown."""
_NONE: Final = "none"
_TYPES: Final = {"generic": "none, JWT or at+jwt", "rfc9068": "at+jwt"}


class TokenCheck(NamedTuple):
    """One check: whether it passed, what it expects, and what the token has.

    `passed` is None if it could not be made.
    """

    name: str
    passed: bool | None
    expected: str
    found: str


@dataclass(slots=True)
class InspectedToken:
    """The checks of a token, in the order of the gateway, and its verdict.

    `reason` is None for an accepted token.
    """

    checks: list[TokenCheck] = field(default_factory=list)
    reason: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether a gateway would accept the token."""
        return self.reason is None

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON members."""
        return {
            "accepted": self.is_accepted,
            "reason": self.reason,
            "checks": [each._asdict() for each in self.checks],
        }

    def render(self) -> str:
        """Return a line for each check, and one for the verdict."""
        words = {True: "ok", False: "REFUSED", None: "-"}
        lines = [
            f"{each.name:<10} {words[each.passed]:<8} expected {each.expected}; found {each.found}"
            for each in self.checks
        ]
        verdict = "accepted" if self.reason is None else f"refused ({self.reason})"
        # A claim with a line break in it stays in its line.
        return "".join(f"{' '.join(line.splitlines())}\n" for line in (*lines, f"verdict    {verdict}"))


async def inspect_token(config: GatewayConfig, upstream: str, token: str) -> InspectedToken:
    """Check a token as the gateway would at an upstream. The keys of its issuer are fetched.

    An API key has one check.
    """
    if KeyVerifier.is_key(token):
        return _inspect_key(config, token)
    found, clock, fetcher = InspectedToken(), SystemClock(), HttpFetcher(config.to_egress())
    audience = resource_of(config, config.server.listen.port, config.upstreams[upstream].path)
    try:
        issuers = config.auth.to_issuer_settings()
        sent = _parsed(token, found)
        if sent is None:
            return found
        settings = _issuer_of(sent, issuers, found)
        if settings is None:
            found.reason = AuthReason.ISSUER.value
            return found
        keys = await _fetched(settings, fetcher, clock, found)
        found.checks += _header_checks(token, sent, settings, keys)
        claims = _ClaimChecks(sent.claims, settings, audience, clock.wall(), config.auth.context.bind)
        found.checks += claims.made()
        await _judge(config, token, settings, keys, audience, clock, found)
    finally:
        await fetcher.close()
    return found


def _inspect_key(config: GatewayConfig, key: str) -> InspectedToken:
    names = ", ".join(config.auth.api_keys) or _NONE
    try:
        identity = verify_key(config, key)
    except Unauthenticated as refused:
        return InspectedToken([TokenCheck("api key", False, f"one of {names}", refused.reason)], refused.reason)
    found = f"{identity.claims['jti']}: {_caller(identity)}"
    return InspectedToken([TokenCheck("api key", True, f"one of {names}", found)])


def _parsed(token: str, found: InspectedToken) -> UnverifiedToken | None:
    expected = "a JWT in compact form, with alg and iss"
    try:
        parsed = parse_token(bearer_token([f"Bearer {token}"], ""))
    except Unauthenticated as refused:
        is_long = len(token) > MAX_TOKEN
        length = f"{len(token)} characters: a token has at most {MAX_TOKEN}"
        found.checks.append(TokenCheck("form", False, expected, length if is_long else refused.reason))
        found.reason = refused.reason
        return None
    found.checks.append(TokenCheck("form", True, expected, f"{len(token)} characters"))
    return parsed


def _issuer_of(
    token: UnverifiedToken, issuers: Collection[IssuerSettings], found: InspectedToken
) -> IssuerSettings | None:
    """Return the issuer that the token names, or the only one that there is."""
    named = next((each for each in issuers if each.issuer == token.issuer), None)
    expected = " or ".join(each.issuer for each in issuers)
    found.checks.append(TokenCheck("iss", named is not None, expected, _shown(token.issuer)))
    return named or (next(iter(issuers)) if len(issuers) == 1 else None)


async def _fetched(
    settings: IssuerSettings, fetcher: HttpFetcher, clock: Clock, found: InspectedToken
) -> KeySet | None:
    expected = f"the keys of {settings.name}"
    try:
        keys = await fetch_key_set(settings, fetcher, clock)
    except (FetchFailed, DiscoveryRefused, KeySetRefused) as failed:
        found.checks.append(TokenCheck("keys", False, expected, f"none ({failed.reason})"))
        return None
    found.checks.append(TokenCheck("keys", True, expected, f"{keys.count} usable"))
    return keys


def _header_checks(
    token: str, sent: UnverifiedToken, settings: IssuerSettings, keys: KeySet | None
) -> Iterator[TokenCheck]:
    any_algorithm = replace(settings, algorithms=(sent.algorithm,))
    algorithms = " or ".join(settings.algorithms)
    is_known = _reason(lambda: check_header(sent, settings)) != AuthReason.ALG
    yield TokenCheck("alg", is_known, algorithms, _shown(sent.algorithm))
    has_type = _reason(lambda: check_header(sent, any_algorithm)) is None
    yield TokenCheck("typ", has_type, _TYPES[settings.profile], _shown(sent.header.get("typ")))
    kid = _shown(sent.kid)
    if keys is None:
        yield TokenCheck("kid", None, "a key of the issuer", kid)
        return
    candidates = keys.find(sent.kid, sent.algorithm)
    yield TokenCheck("kid", bool(candidates), "a key of the issuer for the alg", kid)
    if candidates:
        reason = _reason(lambda: check_signature(token, sent, candidates, settings))
        yield TokenCheck("signature", reason is None, "one of that key", "a good one" if reason is None else reason)


def _reason(check: Callable[[], object]) -> str | None:
    """Return the reason of a refusal; None if the check passes."""
    try:
        check()
    except Unauthenticated as refused:
        return refused.reason
    return None


@dataclass(frozen=True, slots=True)
class _ClaimChecks:
    """The checks of claims, each by `read_claims` on claims that are good but for those it is about."""

    claims: Claims
    settings: IssuerSettings
    audience: str
    now: datetime
    bound: Collection[str]

    def made(self) -> Iterator[TokenCheck]:
        settings, leeway = self.settings, write_duration(self.settings.leeway)
        yield self._check("aud", " or ".join(settings.audience or (self.audience,)), ("aud",))
        yield self._check("sub", "a name", ("sub",))
        at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        yield self._check("exp", f"after {at}, leeway {leeway}", ("exp",), is_time=True)
        yield self._check("nbf", f"none, or before {at}, leeway {leeway}", ("nbf",), is_time=True)
        age = settings.max_token_age
        oldest = "" if age is None else f" and at most {write_duration(age)} ago"
        yield self._check("iat", f"before {at}{oldest}, leeway {leeway}", ("iat",), is_time=True)
        missing = [name for name in settings.required_claims if self._reason((name,)) and name not in self.claims]
        wanted = " ".join(settings.required_claims)
        yield TokenCheck("required", not missing, wanted, f"without {' '.join(missing)}" if missing else "all")
        clients, scopes = settings.client_id_claims, settings.scope_claims
        yield self._kind((*clients, *scopes))
        yield self._check("client", f"{' or '.join(clients) or _NONE}", clients)
        yield self._check("scopes", f"{' or '.join(scopes) or _NONE}, as words", scopes)
        if settings.tenant_claim is not None:
            yield self._check("tenant", f"a name in {settings.tenant_claim}", (settings.tenant_claim,))

    def _kind(self, of_access_tokens: tuple[str, ...]) -> TokenCheck:
        """Check that it is no ID token. Of the claims that say nothing of it, only their presence counts here."""
        telling = ("typ", "token_use", "kubernetes.io")  # By their values.
        present = [name for name in (*telling, "nonce", "at_hash", "c_hash", *of_access_tokens) if name in self.claims]
        mixed = {name: value for name, value in self._good().items() if name not in (*telling, *of_access_tokens)}
        mixed |= {name: self.claims[name] if name in telling else "x" for name in present}
        reason = self._reason_of(mixed, bound=())
        return TokenCheck(
            "kind", reason is None, "an access token, no ID token", f"claims {' '.join(present) or _NONE}"
        )

    def _check(self, name: str, expected: str, claims: tuple[str, ...], *, is_time: bool = False) -> TokenCheck:
        present = [claim for claim in claims if claim in self.claims]
        shown = [_moment(self.claims[claim]) if is_time else _shown(self.claims[claim]) for claim in present]
        found = ", ".join(
            text if len(claims) == 1 else f"{claim} {text}" for claim, text in zip(present, shown, strict=True)
        )
        reason = self._reason(claims)
        return TokenCheck(name, reason is None, expected, found or _NONE)

    def _reason(self, claims: tuple[str, ...]) -> str | None:
        good = self._good()
        mixed = {name: value for name, value in good.items() if name not in claims}
        mixed |= {name: self.claims[name] for name in claims if name in self.claims}
        return self._reason_of(mixed, self.bound)

    def _reason_of(self, claims: Claims, bound: Collection[str]) -> str | None:
        return _reason(lambda: read_claims(claims, self.settings, audience=self.audience, now=self.now, bound=bound))

    def _good(self) -> dict[str, object]:
        """Claims that the issuer's settings accept."""
        settings, now = self.settings, self.now.timestamp()
        names = [*settings.required_claims, *settings.client_id_claims[:1]]
        names += [] if settings.tenant_claim is None else [settings.tenant_claim]
        accepted = settings.audience or (self.audience,)
        return {
            **dict.fromkeys(names, "x"),
            **dict.fromkeys(settings.scope_claims[:1], "x"),
            "typ": "Bearer",
            "iss": settings.issuer,
            "sub": "x",
            "aud": accepted[0],
            "exp": now + 60,
            "iat": now,
        }


async def _judge(
    config: GatewayConfig,
    token: str,
    settings: IssuerSettings,
    keys: KeySet | None,
    audience: str,
    clock: Clock,
    found: InspectedToken,
) -> None:
    """Have the verifier of the gateway judge the token, and add the caller if it accepts it."""
    bind = config.auth.context.bind
    verifier = TokenVerifier(
        [(settings, _FetchedKeys(settings.name, keys))],
        bind=ContextKeys(SystemEntropy().token(32), bind=bind).bind,
        bound=bind,
        clock=clock,
        listener=lambda *_: None,
        on_recall=lambda _: lambda: None,
    )
    try:
        identity = (await verifier.verify(token, audience=audience)).context.identity
    except (Unauthenticated, KeysUnavailable) as refused:
        found.reason = refused.reason
        return
    assert identity is not None, "a token has an identity"
    found.checks.append(TokenCheck("caller", True, f"bound by {' '.join(bind)}", _caller(identity)))


@dataclass(frozen=True, slots=True)
class _FetchedKeys:
    """Keys that were fetched, or could not be."""

    issuer: str
    keys: KeySet | None

    async def find(self, kid: str | None, algorithm: str) -> "tuple[PyJWK, ...]":
        if self.keys is None:
            raise KeysUnavailable(self.issuer)
        return self.keys.find(kid, algorithm)


# --- texts ------------------------------------------------------------------------------------------------------------


def _caller(identity: Identity) -> str:
    words = [f"{_shown(identity.subject)} of {identity.issuer_name}"]
    words += [f"{name} {_shown(value)}" for name in ("client_id", "tenant") if (value := getattr(identity, name))]
    words.append(f"scopes {_shown(' '.join(sorted(identity.scopes)))}" if identity.scopes else "no scopes")
    return ", ".join(words)


def _shown(value: object) -> str:
    """Return a value of a token on one line, cut at a bound."""
    if value is None:
        return _NONE
    text = value if isinstance(value, str) and value.isprintable() and value else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _moment(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _shown(value)
