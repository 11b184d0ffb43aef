"""A JWK set as an issuer publishes it: `KeySet`, its usable keys by key id and algorithm."""

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError

MAX_KEYS: Final = 100
"""Keys of a set.

A larger one is refused whole, because a part of it would make good tokens unknown.
"""
MAX_CANDIDATES: Final = 8
"""Keys that are tried for one token, with or without a key id; the first of the set count."""
MIN_RSA_BITS: Final = 2048
MAX_MODULUS: Final = 1368
MAX_EXPONENT: Final = 12
"""Characters of an RSA key's numbers, for 8192 and 64 bits: longer ones cost too much time."""

_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of each type of key and curve: asymmetric ones, so that a verifier cannot sign."""


class KeySetRefused(ValueError):
    """No key set, one with too many keys, or one without a usable key; `problem` says which.

    The text has nothing of it, nor has `problem`.
    """

    reason: Final = "key_set"

    def __init__(self, problem: str) -> None:
        super().__init__("There is no usable key set")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of one issuer, `count` of them and at least one."""

    count: int
    _candidates: Mapping[tuple[str | None, str], tuple[PyJWK, ...]] = field(repr=False)

    @classmethod
    def read(cls, text: bytes, algorithms: tuple[str, ...]) -> "KeySet":
        """Read the keys of a JWK set (RFC 7517) that fit one of `algorithms`; raises KeySetRefused.

        Keys that are not for signatures, secret, weak, or for another algorithm are left out.
        """
        candidates: dict[tuple[str | None, str], list[PyJWK]] = {}
        count = 0
        for jwk in _read_set(text):
            kid = jwk.get("kid")
            keys = list(_usable(jwk, algorithms))
            if not keys or not isinstance(kid, str | None):
                continue
            count += 1
            for key in keys:
                for name in {kid, None}:
                    candidates.setdefault((name, key.algorithm_name), []).append(key)
        if not count:
            raise KeySetRefused(f"has no public key for {', '.join(algorithms)}")
        return cls(count, {place: tuple(keys[:MAX_CANDIDATES]) for place, keys in candidates.items()})

    def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys with that id, each bound to the algorithm; without an id, every key for it.

        Several keys may have one id. At most MAX_CANDIDATES, () if there is none.
        """
        return self._candidates.get((kid, algorithm), ())


def _read_set(text: bytes) -> list[dict[str, Any]]:
    try:
        document = orjson.loads(text.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError:
        raise KeySetRefused("is no JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise KeySetRefused("is no JSON object with an array `keys`")
    if len(keys) > MAX_KEYS:
        raise KeySetRefused(f"has more than {MAX_KEYS} keys")
    return [jwk for jwk in keys if isinstance(jwk, dict)]


def _usable(jwk: dict[str, Any], algorithms: tuple[str, ...]) -> Iterator[PyJWK]:
    """The key, once for each of the algorithms for which it may be used."""
    if _PRIVATE & jwk.keys() or not _is_for_signatures(jwk):
        return
    possible = _possible_algorithms(jwk)
    declared = possible if jwk.get("alg") is None else (jwk["alg"],)
    for algorithm in possible:
        if algorithm in algorithms and algorithm in declared:
            try:
                key = PyJWK(jwk, algorithm)
            except PyJWTError:
                return
            if key.key_type == "RSA" and key.key.key_size < MIN_RSA_BITS:
                return
            yield key


def _is_for_signatures(jwk: dict[str, Any]) -> bool:
    operations = jwk.get("key_ops")
    return jwk.get("use") in (None, "sig") and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )


def _possible_algorithms(jwk: dict[str, Any]) -> tuple[str, ...]:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return ()
    if kind == "RSA" and not (_is_short(jwk.get("n"), MAX_MODULUS) and _is_short(jwk.get("e"), MAX_EXPONENT)):
        return ()
    return ALGORITHMS.get((kind, curve), ())


def _is_short(value: object, longest: int) -> bool:
    return isinstance(value, str) and len(value) <= longest
