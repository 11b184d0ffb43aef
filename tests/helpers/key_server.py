"""A server of key sets on a loopback socket that does everything a server should not, byte by byte.

    async with KeyServer() as server:
        server.publish(signing_key("EC").jwk("k1"))             # at server.url("/keys")
        server.serve("/keys", redirect(elsewhere.url("/keys"))) # from now on
        ...
        assert server.count("/keys") == 1

An answer is `async (Exchange) -> None` and writes what it likes; after it the connection is closed. Those that tests
want are here: `answer`, `document`, `redirect`, `status`, `drips`, `breaks_off`, `raw`, `hangs_up`, `Endless`, `Held`.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from helpers.waiting import bounded

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrived; header names are in small letters."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the way back."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, text: bytes) -> None:
        """Write it; ConnectionError once the other side has left."""
        self.writer.write(text)
        await self.writer.drain()

    async def until_left(self) -> None:
        """Return once the other side has left."""
        while await self.reader.read(2**16):
            pass


Answer = Callable[[Exchange], Awaitable[None]]


class KeyServer:
    """Listens for the length of a block, over TLS if it is given. What is not served is a 404."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Request] = []
        self._answers: dict[str, Answer] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def issuer(self) -> str:
        """Its origin, which makes a good issuer."""
        return f"http{'' if self._tls is None else 's'}://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        """The address of something here."""
        return self.issuer + path

    def count(self, path: str) -> int:
        """How often that was asked for."""
        return sum(request.path == path for request in self.requests)

    def serve(self, path: str, answer: Answer) -> None:
        """What is answered there from now on."""
        self._answers[path] = answer

    def publish(self, *jwks: dict[str, Any], path: str = "/keys", **headers: str) -> None:
        """Serve a key set."""
        self.serve(path, document({"keys": list(jwks)}, **headers))

    def describe(
        self,
        path: str = "/.well-known/oauth-authorization-server",
        *,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        """Serve an issuer's metadata; they name this server and its /keys, unless `members` say otherwise."""
        self.serve(path, document({"issuer": self.issuer, "jwks_uri": self.url("/keys")} | members, **(headers or {})))

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        """Listen, again at the same port after `down`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Listen no more, and break every connection off. May be called again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in self._open:
                task.cancel()
            async with bounded():
                await asyncio.gather(*self._open, return_exceptions=True)
                await server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        # A cancelled handler would be reported as one that failed: `down` is the only one to cancel.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
            method, path, _ = first.split(" ")
            named = (field.partition(":") for field in fields)
            request = Request(method, path, {name.lower(): value.strip() for name, _, value in named})
            self.requests.append(request)
            await self._answers.get(path, status(404))(Exchange(request, reader, writer))
        self._open.discard(task)
        writer.close()


# --- answers


def answer(
    body: bytes, *, code: int = 200, type: str | None = JSON, length: int | None = None, **headers: str
) -> Answer:
    """A response with that body; `length` is what it says of the body's length. `a_b` is the header `a-b`."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    fields |= {"content-length": str(len(body) if length is None else length)}
    if type is not None:
        fields["content-type"] = type

    async def say(exchange: Exchange) -> None:
        await exchange.say(_head(code, fields) + body)

    return say


def document(value: object, **headers: str) -> Answer:
    """A JSON document."""
    return answer(json.dumps(value).encode(), **headers)


def status(code: int) -> Answer:
    """An HTTP error with a body that would do."""
    return answer(b'{"keys": []}', code=code)


def redirect(to: str, *, code: int = 302) -> Answer:
    """It is elsewhere."""
    return answer(b"", code=code, location=to)


def raw(text: bytes) -> Answer:
    """These bytes and no others."""

    async def say(exchange: Exchange) -> None:
        await exchange.say(text)

    return say


def hangs_up() -> Answer:
    """Nothing at all."""
    return raw(b"")


def breaks_off(body: bytes, *, promised: int) -> Answer:
    """A response that ends before its end."""
    return answer(body, length=promised)


def drips(body: bytes) -> Answer:
    """A response that never ends: a first piece at once, and then nothing until the client leaves."""

    async def say(exchange: Exchange) -> None:
        await exchange.say(_head(200, {"content-type": JSON, "content-length": str(2 * len(body))}) + body)
        await exchange.until_left()

    return say


class Endless:
    """A response without an end, as fast as the client takes it. `sent` counts its bytes, `left` is set at the end."""

    def __init__(self, *, piece: int = 2**14) -> None:
        self._piece = b"%x\r\n%b\r\n" % (piece, b" " * piece)
        self._size = piece
        self.sent = 0
        self.left = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        exchange.writer.transport.set_write_buffer_limits(0)
        try:
            await exchange.say(_head(200, {"content-type": JSON, "transfer-encoding": "chunked"}))
            while True:
                await exchange.say(self._piece)
                self.sent += self._size
                # Who shares the loop with it is to see the pieces one by one.
                await asyncio.sleep(0)
        finally:
            self.left.set()


class Held:
    """Keeps everybody waiting until `release`, and then answers; `begun` is set when somebody waits."""

    def __init__(self, then: Answer) -> None:
        self._then = then
        self._released = asyncio.Event()
        self.begun = asyncio.Event()

    def release(self) -> None:
        """Answer who waits, and everybody after them at once."""
        self._released.set()

    async def __call__(self, exchange: Exchange) -> None:
        self.begun.set()
        async with bounded():
            await self._released.wait()
        await self._then(exchange)


def _head(code: int, fields: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Whatever", *(f"{name}: {value}" for name, value in fields.items()), "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


# --- keys


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key; `private` is what PyJWT signs with."""

    private: Any
    public: dict[str, Any]

    def jwk(self, kid: str | None = None, **members: Any) -> dict[str, Any]:
        """Its public half as issuers publish it."""
        return self.public | ({} if kid is None else {"kid": kid}) | members


@cache
def signing_key(kind: str = "EC", number: int = 0) -> SigningKey:
    """A key of that kind: RSA, RSA-1024, EC, P-384, P-521, Ed25519. The same for the same arguments: keys take time."""
    private: Any
    if kind.startswith("RSA"):
        private = rsa.generate_private_key(65537, int(kind.partition("-")[2] or 2048))
        return SigningKey(private, _public(RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)))
    if kind == "Ed25519":
        private = ed25519.Ed25519PrivateKey.generate()
        return SigningKey(private, _public(OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)))
    curves = {"EC": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    private = ec.generate_private_key(curves[kind])
    return SigningKey(private, _public(ECAlgorithm.to_jwk(private.public_key(), as_dict=True)))


def _public(jwk: dict[str, Any]) -> dict[str, Any]:
    # `key_ops` and the like are for the test that wants them to say.
    return {name: value for name, value in jwk.items() if name in ("kty", "crv", "x", "y", "n", "e")}
