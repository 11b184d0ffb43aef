"""A small MCP host of the legacy era (2025-11-25) over Streamable HTTP: `McpHost`.

It declares no capabilities, so a server may ask it nothing but `ping`. It follows no redirects, so
its token reaches the named address alone.
"""

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Final

import aiohttp

from taskgate import __version__
from taskgate.domain.versions import NEWEST_LEGACY
from taskgate.protocol.sse import EventDecoder, EventTooLarge
from taskgate.protocol.vocabulary import INITIALIZE, PING

MAX_MESSAGE: Final = 64 * 2**20
"""Bytes of one message of the gateway."""
_CHUNK: Final = 64 * 2**10
_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0
_METHOD_NOT_FOUND: Final = -32601
_RETRIABLE: Final = frozenset({429, 502, 503, 504})

OnNotification = Callable[[str, dict[str, Any]], None]
"""Takes the method and the parameters of a notification."""


class CallFailed(Exception):
    """A request got no result; the text is for the operator.

    `is_transient` says whether the same request may succeed later: the connection failed, or the
    gateway refuses for now.
    """

    def __init__(self, text: str, *, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient


class McpHost:
    """A session with one MCP endpoint. `open_host` opens and closes it."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None) -> None:
        self._http = http
        self._url = url
        self._ids = count(1)
        self._headers = {"Accept": "application/json, text/event-stream"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def initialize(self) -> None:
        """Open the session. Raises CallFailed."""
        params = {
            "protocolVersion": str(NEWEST_LEGACY),
            "capabilities": {},
            "clientInfo": {"name": "taskgate-call", "version": __version__},
        }
        result = await self.request(next(self._ids), INITIALIZE, params)
        self._headers["MCP-Protocol-Version"] = str(result.get("protocolVersion"))
        await self.notify("notifications/initialized", {})

    def next_id(self) -> int:
        """An id for a request, which is its progress token too."""
        return next(self._ids)

    async def request(
        self, id: int, method: str, params: dict[str, Any], on_notification: OnNotification | None = None
    ) -> dict[str, Any]:
        """Send a request, and return its result. Raises CallFailed."""
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        try:
            async with self._post(message) as response:
                if (session := response.headers.get("Mcp-Session-Id")) is not None:
                    self._headers["Mcp-Session-Id"] = session
                if response.status in (401, 404, 405):
                    await self._expect_success(response)
                async for received in self._messages(response):
                    # Without an id: an error about a request that was not read.
                    if "method" not in received and received.get("id") in (id, None):
                        return _result(received)
                    await self._handle(received, on_notification)
                await self._expect_success(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from None
        raise CallFailed("the connection ended before the answer", is_transient=True)

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification. Raises CallFailed."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def listen(self, on_notification: OnNotification) -> None:
        """Read the GET stream until it ends or fails; what it would have said is then not heard."""
        try:
            async with self._http.get(self._url, headers=self._headers, allow_redirects=False) as response:
                if response.status == 200:
                    async for received in self._messages(response):
                        await self._handle(received, on_notification)
        except (aiohttp.ClientError, OSError, TimeoutError, CallFailed):
            return

    async def close(self) -> None:
        """End the session, if there is one. A failure is ignored: an idle session ends by itself."""
        if "Mcp-Session-Id" not in self._headers:
            return
        try:
            async with self._http.delete(self._url, headers=self._headers, allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError):
            return

    def _post(self, message: dict[str, Any]) -> Any:
        return self._http.post(self._url, json=message, headers=self._headers, allow_redirects=False)

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            async with self._post(message) as response:
                await self._expect_success(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from None

    async def _handle(self, received: dict[str, Any], on_notification: OnNotification | None) -> None:
        """Hand on a notification, and answer a request of the server."""
        method, params = received.get("method"), received.get("params")
        if not isinstance(method, str):
            return
        if "id" not in received:
            if on_notification is not None and isinstance(params, dict):
                on_notification(method, params)
        elif method == PING:
            await self._send({"jsonrpc": "2.0", "id": received["id"], "result": {}})
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "this host answers no questions"}
            await self._send({"jsonrpc": "2.0", "id": received["id"], "error": error})

    async def _messages(self, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        """The messages of a response, of an event stream as they come."""
        if response.content_type != "text/event-stream":
            body = await _body(response)
            message = _message(body)
            if message is not None and ("jsonrpc" in message or response.status == 200):
                yield message
            return
        decoder = EventDecoder(MAX_MESSAGE)
        try:
            async for chunk in response.content.iter_chunked(_CHUNK):
                for data in decoder.feed(chunk):
                    message = _message(data)
                    if message is not None:
                        yield message
        except EventTooLarge:
            raise CallFailed("the answer is larger than 64 MiB") from None

    async def _expect_success(self, response: aiohttp.ClientResponse) -> None:
        """Raise CallFailed for a status that is no success, with what to do."""
        status = response.status
        if 200 <= status < 300:
            return
        if status == 401:
            raise CallFailed("the gateway did not accept the token: give --token FILE with a valid one")
        if status in (404, 405):
            raise CallFailed(f"there is no MCP endpoint at {self._url} (HTTP status {status})")
        raise CallFailed(f"the gateway refused the request: HTTP status {status}", is_transient=status in _RETRIABLE)

    def _unreachable(self, error: BaseException) -> CallFailed:
        return CallFailed(f"cannot reach {self._url}: {_words(error)}", is_transient=True)


@asynccontextmanager
async def open_host(url: str, token: str | None) -> AsyncIterator[McpHost]:
    """A session with the endpoint at a URL for the length of a block. Raises CallFailed."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        host = McpHost(http, url, token)
        await host.initialize()
        try:
            yield host
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await host.close()


def _words(error: BaseException) -> str:
    """Why there is no answer. The texts of the libraries have values of Python in them."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, TimeoutError):
        return "no connection in time"
    if isinstance(cause, socket.gaierror):
        return "the host name is not known"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {(cause.reason or 'no handshake').replace('_', ' ').lower()}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return "the connection ended without an answer"


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > MAX_MESSAGE:
            raise CallFailed("the answer is larger than 64 MiB")
    return bytes(body)


def _message(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _result(received: dict[str, Any]) -> dict[str, Any]:
    result, error = received.get("result"), received.get("error")
    if isinstance(result, dict):
        return result
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    raise CallFailed(
        f"{message or 'the answer has neither a result nor an error'} (code {code})", is_transient=code == 429
    )
