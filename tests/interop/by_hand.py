"""A host of either era without an SDK and without a schema, for methods of extensions.

It gives each answer as it came, to the byte. It retries and repairs nothing.
"""

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from helpers import told
from helpers.waiting import bounded

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
INFO = {"name": "host", "version": "1"}
_PREFIX = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer: its HTTP status, and the message as a text."""

    status: int
    text: str

    @property
    def result(self) -> dict[str, Any]:
        """Its result; an AssertionError with what came instead."""
        message = json.loads(self.text)
        assert "result" in message, self
        result: dict[str, Any] = message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        """Its error; an AssertionError with what came instead."""
        message = json.loads(self.text)
        assert "error" in message, self
        error: dict[str, Any] = message["error"]
        return error

    def member(self, name: str) -> str:
        """The text of that member of the result, as it was written."""
        start = self.text.index(f'"{name}":') + len(name) + 3
        start += len(self.text[start:]) - len(self.text[start:].lstrip())
        _, end = json.JSONDecoder().raw_decode(self.text, start)
        return self.text[start:end]


class ByHand:
    """One host. `welcome` is the result of `initialize` or of `server/discover`."""

    def __init__(self, http: aiohttp.ClientSession, url: str, era: str, extensions: Mapping[str, Any]) -> None:
        self._http = http
        self._url = url
        self._era = era
        self._capabilities = {"extensions": dict(extensions)} if extensions else {}
        self._session: dict[str, str] = {}
        self._ids = itertools.count(1)
        self.welcome: dict[str, Any] = {}

    @property
    def declared(self) -> dict[str, Any]:
        """The capabilities that the other side declares."""
        capabilities: dict[str, Any] = self.welcome["capabilities"]
        return capabilities

    async def ask(self, method: str, **params: Any) -> Heard:
        """Sends one request and reads its answer to the end."""
        headers = {**ACCEPT, **self._session}
        if self._era == "modern":
            headers |= {"MCP-Protocol-Version": REVISIONS["modern"], "Mcp-Method": method}
            if method == "resources/read":
                headers["Mcp-Name"] = params["uri"]
            params["_meta"] = {
                f"{_PREFIX}protocolVersion": REVISIONS["modern"],
                f"{_PREFIX}clientCapabilities": self._capabilities,
                f"{_PREFIX}clientInfo": INFO,
            }
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        async with bounded(), self._http.post(self._url, json=message, headers=headers) as response:
            text = await response.text()
            if response.content_type == "text/event-stream":
                # `splitlines` would also split at separators of Unicode.
                lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: {")]
                text = lines[-1].rstrip("\r")
            if "Mcp-Session-Id" in response.headers:
                self._session["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        if '"error"' in text:
            told.now().hear(text)
        return Heard(response.status, text)

    async def begin(self) -> None:
        """Sends `server/discover`, or does the handshake of the older era."""
        if self._era == "modern":
            self.welcome = (await self.ask("server/discover")).result
            return
        asked = {"protocolVersion": REVISIONS["legacy"], "capabilities": self._capabilities, "clientInfo": INFO}
        self.welcome = (await self.ask("initialize", **asked)).result
        self._session["MCP-Protocol-Version"] = self.welcome["protocolVersion"]
        over = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with bounded(), self._http.post(self._url, json=over, headers={**ACCEPT, **self._session}) as response:
            assert response.status == 202


@asynccontextmanager
async def by_hand(url: str, era: str, **extensions: Any) -> AsyncIterator[ByHand]:
    """A host of that era for the length of the block. It declares these extensions."""
    async with aiohttp.ClientSession() as http:
        host = ByHand(http, url, era, extensions)
        await host.begin()
        yield host
