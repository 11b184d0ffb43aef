"""An issuer of tokens: one key of its own, and as many different tokens as are asked for, all for the same caller."""

import itertools
import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://issuer.example"
_ALGORITHM = "ES256"  # its signatures are dearer to check than those of RS256
_KEY_ID = "bench"
_GOOD_FOR = 3_600  # seconds; longer than a benchmark runs


class Issuer:
    """Signs tokens for one audience."""

    def __init__(self, audience: str) -> None:
        self._audience = audience
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._numbers = itertools.count()

    def key_set(self) -> str:
        """The public key as a JWK set."""
        key = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": _KEY_ID, "alg": _ALGORITHM, "use": "sig"}]})

    def tokens(self, count: int) -> list[str]:
        """Tokens that are good for an hour, none of which was given before."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "the one caller",
            "client_id": "bench",
            "aud": self._audience,
            "iat": now,
            "exp": now + _GOOD_FOR,
            "scope": "tools:read tools:call",
        }
        head = {"kid": _KEY_ID, "typ": "at+jwt"}
        return [
            jwt.encode({**claims, "jti": f"{number:032x}"}, self._key, algorithm=_ALGORITHM, headers=head)
            for number in itertools.islice(self._numbers, count)
        ]
