"""An issuer of tokens: one key of its own, and as many different tokens as are asked for, for subjects in turn."""

import itertools
import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://issuer.example"
_ALGORITHM = "RS256"  # what most identity providers sign with
_KEY_ID = "bench"
_GOOD_FOR = 3_600  # seconds; longer than a benchmark runs
SUBJECTS = 32


class Issuer:
    """Signs tokens for one audience."""

    def __init__(self, audience: str) -> None:
        self._audience = audience
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self._numbers = itertools.count()

    def key_set(self) -> str:
        """The public key as a JWK set."""
        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": _KEY_ID, "alg": _ALGORITHM, "use": "sig"}]})

    def tokens(self, count: int, subjects: int = 1) -> list[str]:
        """Tokens that are good for an hour, none of which was given before. `subjects` callers have them in turn."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "client_id": "bench",
            "aud": self._audience,
            "iat": now,
            "exp": now + _GOOD_FOR,
            "scope": "tools:read tools:call",
        }
        head = {"kid": _KEY_ID, "typ": "at+jwt"}
        return [
            jwt.encode(
                {**claims, "sub": f"caller {number % subjects}", "jti": f"{number:032x}"},
                self._key,
                algorithm=_ALGORITHM,
                headers=head,
            )
            for number in itertools.islice(self._numbers, count)
        ]
