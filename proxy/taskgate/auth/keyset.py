"""What an issuer publishes as its keys, read with suspicion: which of them may verify which tokens. Pure.

What must not live here: where a key set comes from, and how long it holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError

MAX_KEYS: Final = 100
"""A set of more keys is refused whole: to read a part would make strangers of tokens signed with the rest."""
MAX_CANDIDATES: Final = 8
"""How many keys are tried for one token at most, whether it names a key or none; the first of the set win."""
MIN_RSA_BITS: Final = 2048
MAX_MODULUS: Final = 1368
MAX_EXPONENT: Final = 12
"""Characters that an RSA key's numbers may have: 8192 and 64 bits. What is longer costs too much for each token."""

_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_FITTING: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}


class KeySetRefused(ValueError):
    """Not a key set, too many keys, or none that can be used. The text says nothing of what was read."""

    reason: Final = "key_set"

    def __init__(self) -> None:
        super().__init__("There is no usable key set")


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of one issuer, `count` of them, at least one. To find some costs one look."""

    count: int
    _candidates: Mapping[tuple[str | None, str], tuple[PyJWK, ...]] = field(repr=False)

    @classmethod
    def read(cls, text: bytes, algorithms: tuple[str, ...]) -> "KeySet":
        """The keys in a JWK set (RFC 7517) that fit one of `algorithms`. Raises KeySetRefused where none does.

        Left out is what is no key for signatures, is secret, is weak, or is meant for another algorithm.
        """
        candidates: dict[tuple[str | None, str], list[PyJWK]] = {}
        count = 0
        for jwk in _listed(text):
            kid = jwk.get("kid")
            keys = list(_usable(jwk, algorithms))
            if not keys or not isinstance(kid, str | None):
                continue
            count += 1
            for key in keys:
                for name in {kid, None}:
                    candidates.setdefault((name, key.algorithm_name), []).append(key)
        if not count:
            raise KeySetRefused
        return cls(count, {place: tuple(keys[:MAX_CANDIDATES]) for place, keys in candidates.items()})

    def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys of that id, each bound to the algorithm; every key that fits it where no id is named.

        An id may stand for several keys. MAX_CANDIDATES at most, () where there is none.
        """
        return self._candidates.get((kid, algorithm), ())


def _listed(text: bytes) -> list[dict[str, Any]]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise KeySetRefused from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise KeySetRefused
    return [jwk for jwk in keys if isinstance(jwk, dict)]


def _usable(jwk: dict[str, Any], algorithms: tuple[str, ...]) -> Iterator[PyJWK]:
    """The key, once for each of the algorithms that it may be used with."""
    if _PRIVATE & jwk.keys() or not _is_for_signatures(jwk):
        return
    fitting = _fitting(jwk)
    meant = fitting if jwk.get("alg") is None else (jwk["alg"],)
    for algorithm in fitting:
        if algorithm in algorithms and algorithm in meant:
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


def _fitting(jwk: dict[str, Any]) -> tuple[str, ...]:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return ()
    if kind == "RSA" and not (_is_text(jwk.get("n"), MAX_MODULUS) and _is_text(jwk.get("e"), MAX_EXPONENT)):
        return ()
    return _FITTING.get((kind, curve), ())


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and len(value) <= longest
