"""An issuer in this process: keys in a file, and tokens for a gateway as the test wants them."""

import json
import time
from pathlib import Path
from typing import Any

import jwt

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.key_server import signing_key
from helpers.secrets import noted


class TokenIssuer:
    """Signs with one key, the one of `number`; a gateway knows it by `section`."""

    def __init__(self, folder: Path, *, issuer: str = "https://idp.example.com/", number: int = 0) -> None:
        self.issuer = issuer
        self.number = number
        self.file = folder / f"keys-{number}.json"
        self.file.write_text(json.dumps({"keys": [self.jwk()]}))

    @property
    def section(self) -> dict[str, Any]:
        """What a configuration says of it: its keys are in a file."""
        return {"issuer": self.issuer, "jwks_file": str(self.file)}

    def jwk(self) -> dict[str, Any]:
        """The public key."""
        return signing_key("EC", self.number).jwk(f"key-{self.number}", alg="ES256")

    def token(
        self,
        audience: object,
        scope: str = "",
        *,
        subject: str = "alice",
        header_typ: str | None = "at+jwt",
        **claims: Any,
    ) -> str:
        """A token for whoever is at `audience`, good for five minutes; `...` leaves a claim out.

        `header_typ` is the `typ` of its header; None leaves that out.
        """
        now = int(time.time())
        usual = {
            "iss": self.issuer,
            "sub": subject,
            "client_id": "desk",
            "aud": audience,
            "iat": now - 1,
            "exp": now + 300,
            "scope": scope,
        }
        payload = {name: value for name, value in (usual | claims).items() if value is not ...}
        head = {"kid": f"key-{self.number}", "typ": header_typ}
        return noted(jwt.encode(payload, signing_key("EC", self.number).private, algorithm="ES256", headers=head))


def guarded(servers: dict[str, str], *issuers: TokenIssuer, auth: Any = None, **sections: Any) -> GatewayConfig:
    """A configuration that asks for tokens of these issuers, the first of them called corp; see `configuration`."""
    names = ("corp", "other")
    known = {name: issuer.section for name, issuer in zip(names, issuers, strict=False)}
    return configuration(servers, auth={"mode": "required", "issuers": known, **(auth or {})}, **sections)
