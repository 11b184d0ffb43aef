"""A small issuer of tokens for the example: `python example/issuer.py` says where it listens, on loopback alone.

It has what taskgate and a host look for: metadata (RFC 8414), a key set, and a token endpoint. A real one sends a
person to a page where they sign in; this one believes whoever knows that a user's password is the user's name.
"""

import argparse
import socket
import time
import uuid

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

LIFETIME = 3600  # seconds that a token is good for
ALGORITHM = "ES256"
SCOPES = {"alice": "reports.read", "bob": "reports.read reports.admin"}


class Issuer:
    """One issuer with one key, which is made anew at each start."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._kid = uuid.uuid4().hex

    def application(self) -> web.Application:
        """What is served where."""
        application = web.Application()
        application.router.add_get("/.well-known/oauth-authorization-server", self.metadata)
        application.router.add_get("/jwks", self.keys)
        application.router.add_post("/token", self.token)
        return application

    async def metadata(self, _: web.Request) -> web.Response:
        """Where everything else is."""
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
                "token_endpoint": f"{self.url}/token",
                "grant_types_supported": ["password"],
                "response_types_supported": [],
            }
        )

    async def keys(self, _: web.Request) -> web.Response:
        """The key that tokens are checked with."""
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return web.json_response({"keys": [{**public, "kid": self._kid, "alg": ALGORITHM, "use": "sig"}]})

    async def token(self, request: web.Request) -> web.Response:
        """A token for the resource that the form names (RFC 8707), or a refusal in the words of RFC 6749."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        user, resource = form.get("username", ""), form.get("resource")
        if form.get("grant_type") != "password":
            return _refusal("unsupported_grant_type")
        if user not in SCOPES or form.get("password") != user:
            return _refusal("invalid_grant")
        if not resource:
            return _refusal("invalid_target")
        token = self.signed(user, form.get("client_id", "example"), resource)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME, "scope": SCOPES[user]}
        return web.json_response(answer, headers={"Cache-Control": "no-store"})

    def signed(self, user: str, client: str, resource: str) -> str:
        """An access token as RFC 9068 has it."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": user,
            "aud": resource,
            "client_id": client,
            "scope": SCOPES[user],
            "iat": now,
            "exp": now + LIFETIME,
            "jti": uuid.uuid4().hex,
        }
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self._kid, "typ": "at+jwt"})


def _refusal(error: str) -> web.Response:
    return web.json_response({"error": error}, status=400)


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description="Issues tokens to alice and bob, for the example.")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    with socket.create_server(("127.0.0.1", parser.parse_args().port)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        print(f"Tokens are issued at {url}", flush=True)
        web.run_app(Issuer(url).application(), sock=listening, access_log=None, print=None)


if __name__ == "__main__":
    main()
