"""A token endpoint that takes nothing on trust: client credentials (RFC 6749, 4.4), token exchange (RFC 8693), and
the on-behalf-of flow of Entra.

Every member of a request is held against what the test says it should be; whatever is missing, wrong, there twice or
there besides is refused with the error that the RFCs name, and kept in `refusals`. It counts, and it can be told to
answer anything else instead.
"""

import asyncio
import socket
import ssl
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, unquote_plus

import jwt
from aiohttp import web

from helpers.secrets import noted

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ON_BEHALF_OF = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a request must say; None and () mean that it must not say it.

    `client_auth` is the only way by which the client may show itself. `key` verifies signed assertions for
    `assertion_audience`; without it the assertion must be the second part of `client`.
    """

    grant_type: str = EXCHANGE
    client: tuple[str, str] = ("taskgate", "the client's secret")
    client_auth: str = "basic"
    key: Any = None
    assertion_audience: str | None = None
    resource: str | None = None
    audience: str | None = "https://reports.internal"
    scopes: tuple[str, ...] = ("reports.run",)


class _Wrong(Exception):
    """What RFC 6749, 5.2 calls it, and which member it is about."""

    def __init__(self, error: str, about: str, status: int = 400) -> None:
        super().__init__(f"{error}: {about}")
        self.error, self.about, self.status = error, about, status


class ExchangeServer:
    """The endpoint. `subjects` says whose the tokens are that may be exchanged; `issued` has every token given out.

    `tls` is what it speaks over, None for plain HTTP.
    `lifetime` is what `expires_in` says, None leaves it out; `instead` answers in place of the endpoint.
    """

    def __init__(self, terms: Terms | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.terms = terms or Terms()
        noted(self.terms.client[1])
        self.subjects: dict[str, str] = {}
        self.lifetime: Any = 300
        self.more: dict[str, Any] = {}
        """Members of the answer, in place of its own."""
        self.instead: Answer | None = None
        self.gate: asyncio.Event | None = None
        """What is waited for before an answer."""
        self.asked = 0
        self.begun = asyncio.Event()
        self.issued: list[str] = []
        self.owners: dict[str, str] = {}
        """Whose a token is that was given out."""
        self.refusals: list[str] = []
        self.assertions: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Header and claims of each signed assertion."""
        self.url = ""
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'' if self._tls is None else 's'}://127.0.0.1:{listening.getsockname()[1]}/oauth/token"
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.SockSite(self._runner, listening, backlog=512, ssl_context=self._tls).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Go away. May be called again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        body = await request.read()
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.instead is not None:
            return await self.instead(request)
        try:
            return self._granted(self._judge(request, body))
        except _Wrong as wrong:
            self.refusals.append(str(wrong))
            return web.json_response({"error": wrong.error, "error_description": wrong.about}, status=wrong.status)

    def _granted(self, subject: str) -> web.Response:
        token = noted(f"issued-{len(self.issued) + 1}.for_{subject}")
        self.issued.append(token)
        self.owners[token] = subject
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        if self.terms.grant_type == EXCHANGE:
            answer["issued_token_type"] = ACCESS_TOKEN
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        return web.json_response(answer | self.more, headers={"Cache-Control": "no-store"})

    def _judge(self, request: web.BaseRequest, body: bytes) -> str:
        """For whom a token may be given. Raises _Wrong."""
        if request.method != "POST" or request.path_qs != "/oauth/token":
            raise _Wrong("invalid_request", "the request line", 405)
        if request.content_type != "application/x-www-form-urlencoded":
            raise _Wrong("invalid_request", "the media type")
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        form = dict(pairs)
        if len(form) != len(pairs):
            raise _Wrong("invalid_request", "a member that is there twice")
        if not self._is_the_client(request.headers.getall("Authorization", ()), form):
            raise _Wrong("invalid_client", "the client", 401)
        if form.pop("grant_type", None) != self.terms.grant_type:
            raise _Wrong("unsupported_grant_type", "grant_type")
        subject = self.terms.client[0] if self.terms.grant_type == "client_credentials" else self._subject(form)
        for name, wanted, error in (
            ("resource", self.terms.resource, "invalid_target"),
            ("audience", self.terms.audience, "invalid_target"),
            ("scope", " ".join(self.terms.scopes) or None, "invalid_scope"),
        ):
            if form.pop(name, None) != wanted:
                raise _Wrong(error, name)
        if form:
            raise _Wrong("invalid_request", f"members of no use: {sorted(form)}")
        return subject

    def _is_the_client(self, authorization: Sequence[str], form: dict[str, str]) -> bool:
        terms = self.terms
        if terms.client_auth == "basic":
            return _client_of(authorization) == terms.client
        if authorization or form.pop("client_id", None) != terms.client[0]:
            return False
        if terms.client_auth == "post":
            return form.pop("client_secret", None) == terms.client[1]
        assertion = form.pop("client_assertion", "")
        if form.pop("client_assertion_type", None) != ASSERTION:
            return False
        return assertion == terms.client[1] if terms.key is None else self._is_signed(assertion)

    def _is_signed(self, assertion: str) -> bool:
        client, audience = self.terms.client[0], self.terms.assertion_audience or self.url
        try:
            claims = jwt.decode(
                assertion,
                self.terms.key,
                ["RS256", "PS256", "ES256", "ES384", "EdDSA"],
                audience=audience,
                options={
                    "require": ["iss", "sub", "aud", "jti", "iat", "exp"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError:
            return False
        is_new = claims["jti"] not in [before["jti"] for _, before in self.assertions]
        self.assertions.append((jwt.get_unverified_header(assertion), claims))
        return is_new and claims["iss"] == claims["sub"] == client

    def _subject(self, form: dict[str, str]) -> str:
        if self.terms.grant_type == ON_BEHALF_OF:
            if form.pop("requested_token_use", None) != "on_behalf_of":
                raise _Wrong("invalid_request", "requested_token_use")
            return self._known(form.pop("assertion", ""), "assertion")
        if form.pop("subject_token_type", None) != ACCESS_TOKEN:
            raise _Wrong("invalid_request", "subject_token_type")
        if form.pop("requested_token_type", None) != ACCESS_TOKEN:
            raise _Wrong("invalid_request", "requested_token_type")
        return self._known(form.pop("subject_token", ""), "subject_token")

    def _known(self, token: str, member: str) -> str:
        if token not in self.subjects:
            raise _Wrong("invalid_grant", member)
        return self.subjects[token]


def _client_of(authorization: Sequence[str]) -> tuple[str, str] | None:
    """Who the client says it is, by the Basic scheme of RFC 6749, 2.3.1."""
    if len(authorization) != 1 or not authorization[0].startswith("Basic "):
        return None
    name, _, secret = b64decode(authorization[0][6:], validate=True).decode("ascii").partition(":")
    return unquote_plus(name), unquote_plus(secret)
