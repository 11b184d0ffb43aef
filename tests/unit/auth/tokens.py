"""An issuer to test with: its keys, its rules, tokens of it, good ones and any other, and a verifier that knows it."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWK
from jwt.algorithms import get_default_algorithms

from helpers.manual_clock import EPOCH, ManualClock
from taskgate.auth.claims import IssuerSettings
from taskgate.auth.context import AuthContext, ContextKeys, Identity
from taskgate.auth.jwt import OK, OTHER, Keys, TokenVerifier
from taskgate.errors import KeysUnavailable, Unauthenticated

ISSUER = "https://idp.example.com/"
MOUNT = "https://mcp.example.com/reports"
ALGORITHMS = ("ES256", "EdDSA", "PS256", "RS256")
NOW = int(EPOCH.timestamp())
CORP = IssuerSettings(name="corp", issuer=ISSUER)
BINDING = ContextKeys(32 * b"k")

_FAMILIES = {"ES256": "EC", "EdDSA": "OKP", "PS256": "RSA", "RS256": "RSA"}


@cache
def secret(family: str, number: int = 0, bits: int = 2048) -> Any:
    """A private key, the same for the same question: making one takes long."""
    match family:
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case "OKP":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(65537, bits)


def public_jwk(algorithm: str, number: int = 0, bits: int = 2048) -> dict[str, Any]:
    """The public key for an algorithm, as an issuer publishes it."""
    private = secret(_FAMILIES[algorithm], number, bits)
    implementation: Any = get_default_algorithms()[algorithm]
    return {**implementation.to_jwk(private.public_key(), as_dict=True), "alg": algorithm, "kid": algorithm}


@cache
def public(algorithm: str, number: int = 0, bits: int = 2048) -> PyJWK:
    return PyJWK(public_jwk(algorithm, number, bits), algorithm)


def all_keys() -> tuple[PyJWK, ...]:
    """One key for each algorithm."""
    return tuple(public(algorithm) for algorithm in ALGORITHMS)


class KnownKeys:
    """The Keys protocol over what a test puts in. `asked` is what was looked for."""

    def __init__(self, *keys: PyJWK, unavailable: bool = False) -> None:
        self.keys = keys
        self.unavailable = unavailable
        self.asked: list[tuple[str | None, str]] = []

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        self.asked.append((kid, algorithm))
        if self.unavailable:
            raise KeysUnavailable("corp")
        return tuple(key for key in self.keys if kid in (None, key.key_id) and key.algorithm_name == algorithm)


class AnyKey(KnownKeys):
    """Keys that are handed out whatever is asked for: what stands behind the seam made a mistake."""

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        self.asked.append((kid, algorithm))
        return self.keys


def claims(**changes: Any) -> dict[str, Any]:
    """What a good token says, with changes; `...` leaves a claim out."""
    usual = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": [MOUNT],
        "exp": NOW + 300,
        "iat": NOW - 10,
        "client_id": "desk",
        "scope": "read write",
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not ...}


def header(algorithm: str = "ES256", **changes: Any) -> dict[str, Any]:
    usual = {"alg": algorithm, "kid": algorithm, "typ": "at+jwt"}
    return {name: value for name, value in {**usual, **changes}.items() if value is not ...}


def base64url(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def dumped(value: object) -> bytes:
    """JSON, or what a test wrote itself."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def token(
    head: Mapping[str, Any] | bytes | None = None,
    payload: Mapping[str, Any] | bytes | None = None,
    *,
    signed_as: str = "ES256",
    number: int = 0,
    bits: int = 2048,
) -> str:
    """A token that is signed right, whatever stands in it; text goes in as it is."""
    text = _joined(header(signed_as) if head is None else head, claims() if payload is None else payload)
    return signed(text, signed_as, number, bits)


def unsigned(
    head: Mapping[str, Any] | bytes | None = None,
    payload: Mapping[str, Any] | bytes | None = None,
    signature: str = "c2ln",
) -> str:
    """A token that looks right and that nobody signed."""
    return f"{_joined(header() if head is None else head, claims() if payload is None else payload)}.{signature}"


def signed(text: str, algorithm: str = "ES256", number: int = 0, bits: int = 2048) -> str:
    """`text` and the signature over it."""
    implementation: Any = get_default_algorithms()[algorithm]
    private = secret(_FAMILIES[algorithm], number, bits)
    return f"{text}.{base64url(implementation.sign(text.encode(), private))}"


def _joined(head: object, payload: object) -> str:
    return f"{base64url(dumped(head))}.{base64url(dumped(payload))}"


def identity(**changes: Any) -> Identity:
    usual: dict[str, Any] = {
        "issuer_name": "corp",
        "issuer": ISSUER,
        "subject": "alice",
        "client_id": "desk",
        "tenant": None,
        "scopes": frozenset[str](),
        "expires_at": EPOCH + timedelta(minutes=5),
        "claims": {},
    }
    return Identity(**{**usual, **changes})


class Gate:
    """A Verifier, what it asks and what it tells."""

    def __init__(self, *issuers: tuple[IssuerSettings, Keys], clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = clock or ManualClock()
        self.keys = KnownKeys(*all_keys())
        self.heard: list[tuple[str, str]] = []
        self.known: list[tuple[bool, AuthContext | None]] = []
        self.verifier = TokenVerifier(
            issuers or [(CORP, self.keys)],
            bind=BINDING.bind,
            clock=self.clock,
            listener=self._hear,
            on_recall=lambda issuer: lambda: self._hear(issuer, OK, known=True),
            **options,
        )

    def _hear(self, issuer: str, outcome: str, caller: AuthContext | None = None, *, known: bool = False) -> None:
        self.heard.append((issuer, outcome))
        self.known.append((known, caller))

    async def verify(self, token: str, audience: str = MOUNT) -> AuthContext:
        return (await self.verifier.verify(token, audience=audience)).context

    async def who(self, token: str, audience: str = MOUNT) -> Identity:
        found = (await self.verify(token, audience)).identity
        assert found is not None
        return found

    async def refused(self, token: str, audience: str = MOUNT) -> str:
        with pytest.raises(Unauthenticated) as refusal:
            await self.verify(token, audience)
        assert self.heard[-1] == (refusal.value.issuer or OTHER, refusal.value.reason)
        return refusal.value.reason
