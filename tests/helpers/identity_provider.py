"""A real identity provider for the length of a block: oidc-provider on Node.js, spoken to over HTTP.

It signs what it issues itself; nothing here makes or changes a token. No token is ever put into a message or a log.
One provider may be used from several event loops: no connection outlives the call that opened it.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from example.processes import running

from helpers.secrets import noted
from helpers.waiting import bounded
from provider import install

CLIENTS = ("host-a", "host-b")
SERVICES = ("taskgate",)
SCOPES = ("reports.read", "reports.run", "reports.admin")
RESOURCE = "https://gateway.example/reports/mcp"

_SERVER = install.HOME / "server.mjs"
_SERVING = rb'\{"issuer":[^\n]*\}'
_SUBJECT_GRANT = "urn:taskgate:test:grant-type:subject"


class TokenRefused(Exception):
    """The provider issued no token; says what it answered."""


class IdentityProvider:
    """`async with IdentityProvider() as provider:` — at the end of the block its process is gone.

    Every client may ask for any of the scopes; `services` are those that say who they are by HTTP's Basic scheme.
    Without `oauth_metadata` only OpenID Connect's discovery is answered.
    Entering raises ProviderNotInstalled where Node.js or the packages cannot be had.
    """

    def __init__(self, *, oauth_metadata: bool = True) -> None:
        methods = dict.fromkeys(CLIENTS, "client_secret_post") | dict.fromkeys(SERVICES, "client_secret_basic")
        self._secrets = {client: noted(f"the secret of {client}") for client in methods}
        metadata = [
            {"client_id": client, "client_secret": self._secrets[client], "token_endpoint_auth_method": method}
            for client, method in methods.items()
        ]
        self._configuration = {"clients": metadata, "scopes": list(SCOPES), "oauthMetadata": oauth_metadata}
        self._stack = AsyncExitStack()
        self._issuer: str | None = None

    @property
    def issuer(self) -> str:
        """The issuer's URL, as it stands in the tokens and in the discovery documents."""
        assert self._issuer is not None, "the provider is not running"
        return self._issuer

    @property
    def token_url(self) -> str:
        """Where it is asked for tokens."""
        return f"{self.issuer}/token"

    def secret_of(self, client: str) -> str:
        """What a client proves with who it is."""
        return self._secrets[client]

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(install.ensure)
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            command = ("node", _SERVER, json.dumps(self._configuration))
            child = await stack.enter_async_context(running(command, log=folder / "provider.log"))
            async with bounded():
                told = await child.said(_SERVING)
            self._issuer = json.loads(told[0])["issuer"]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._issuer = None
        await self._stack.aclose()

    async def token(
        self,
        client: str = "host-a",
        *,
        subject: str | None = None,
        scopes: Sequence[str] = ("reports.read", "reports.run"),
        resource: str = RESOURCE,
        lifetime: int | None = None,
        algorithm: str = "RS256",
        claims: Mapping[str, object] | None = None,
        shape: Mapping[str, Mapping[str, object]] | None = None,
    ) -> str:
        """A new access token for one resource, signed with the newest key; raises TokenRefused.

        Without a subject it comes of the client credentials grant and its subject is the client. `lifetime` is in
        seconds, the provider's default 300; one below zero has passed already. `algorithm` is RS256, ES256 or EdDSA.
        `claims` are further ones for the token to carry. Scopes that the provider does not know are left out. `shape`
        has the `claims` of a token of another product, which are then the only ones, and the `typ` of its `header`.
        """
        form = {"client_id": client, "client_secret": self._secrets.get(client, "of nobody")}
        form |= {"grant_type": "client_credentials", "scope": " ".join(scopes)}
        form |= {"resource": resource, "algorithm": algorithm}
        if subject is not None:
            form |= {"grant_type": _SUBJECT_GRANT, "subject": subject}
        if lifetime is not None:
            form["lifetime"] = str(lifetime)
        if claims is not None:
            form["claims"] = json.dumps(claims)
        if shape is not None:
            form["shape"] = json.dumps(shape)
        status, body = await self._post("/token", form)
        answer = json.loads(body)
        if status != 200:
            raise TokenRefused(f"{status}: {answer.get('error')}: {answer.get('error_description')}")
        return noted(answer["access_token"])

    async def rotate(self) -> None:
        """New keys sign from now on, and the old ones are no longer published."""
        await self.publish_new_keys()
        await self.retire_old_keys()

    async def publish_new_keys(self) -> None:
        """New keys sign from now on; the old ones stay published beside them."""
        await self._change("/test/publish-new-keys")

    async def retire_old_keys(self) -> None:
        """Only the keys that sign are still published."""
        await self._change("/test/retire-old-keys")

    async def _change(self, path: str) -> None:
        status, _ = await self._post(path, {})
        assert status == 204, f"{path} was answered with {status}"

    async def _post(self, path: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        url = self.issuer + path
        async with bounded(), aiohttp.ClientSession() as session, session.post(url, data=form) as response:
            return response.status, await response.read()
