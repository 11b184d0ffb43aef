"""Hosts without tasks on raw sockets, of either era, and what stands in for a model: it does what it reads.

A host opens a connection for each request, and can break it at any moment. The stand-in calls a tool, uses the tool
that a handle names, and makes the same call again when it got neither a result nor a handle.
"""

import asyncio
import json
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import aiohttp

from handoff.server import PLAIN, result_members
from helpers.host.event_decoder import EventDecoder
from helpers.host.host import Era, Host, called
from helpers.host.raw import post

WAIT = "taskgate_wait"
PATH = "/reports/mcp"
_HANDLE = re.compile(r'\{"handle": "([A-Za-z0-9_-]+)"\}')


async def taskless(http: aiohttp.ClientSession, address: str, era: Era, name: str = "host") -> Host:
    """A host of that name that knows no tasks, with a session where its era has any."""
    host = Host(http, f"http://{address}{PATH}", era=era, name=name, tasks=False)
    await host.open()
    return host


def request_of(host: Host, address: str, id: int, tool: str, arguments: Mapping[str, Any]) -> bytes:
    """A `tools/call` of a host, as it is sent."""
    message = host.written("tools/call", called(tool, arguments), id=id)
    # A host asks for the end of the connection, so the end of its answer shows.
    headers = {**host.head(), **host.routing(message), "Connection": "close"}
    fields = {name.replace("-", "_"): value for name, value in headers.items()}
    return post(json.dumps(message), path=PATH, host=address, **fields)


@dataclass(slots=True)
class Answer:
    """What came back for one request; `text` is the whole message."""

    text: str

    @property
    def words(self) -> str:
        """The text for the model in a result, or of an error."""
        try:
            message = json.loads(self.text)
        except ValueError:
            return self.text
        if "error" in message:
            return str(message["error"]["message"])
        return "".join(block.get("text", "") for block in message["result"]["content"])

    @property
    def handle(self) -> str | None:
        """The handle in it, if it is not the result."""
        found = _HANDLE.search(self.words)
        return None if found is None else found[1]


class Connection:
    """One connection, with one request on it."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._received = b""

    async def exchange(self, request: bytes, cut_after: float | None, may_reset: Callable[[], bool]) -> Answer | None:
        """Send a request, and return the answer; None if the connection was broken before.

        After `cut_after` seconds this side breaks the connection: by a reset if `may_reset`, else by the end of
        its own direction. An answer that was sent before the gateway saw that is returned: it is delivered.
        Raises OSError if nothing listens.
        """
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, (self._host, self._port))
            receiving = asyncio.create_task(self._receive(connection))
            try:
                await loop.sock_sendall(connection, request)
                done, _ = await asyncio.wait([receiving], timeout=cut_after)
                if not done:
                    if may_reset():
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return None
                    connection.shutdown(socket.SHUT_WR)
                    await asyncio.wait([receiving])
                await receiving
            except ConnectionError:
                return None
            finally:
                receiving.cancel()
                await asyncio.wait([receiving])
        return _answer_in(self._received)

    async def _receive(self, connection: socket.socket) -> None:
        """Receive to the end."""
        loop = asyncio.get_running_loop()
        while chunk := await loop.sock_recv(connection, 65536):
            self._received += chunk


def _answer_in(received: bytes) -> Answer | None:
    """The answer in what a connection brought; None if that broke off before."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return None
    fields = head.lower()
    if b"transfer-encoding: chunked" in fields:
        chunks = _chunks_of(body)
        if chunks is None:
            return None
        body = chunks
    else:
        length = re.search(rb"content-length: (\d+)", fields)
        if length is None or len(body) < int(length[1]):
            return None
    if b"text/event-stream" in fields:
        events = [*EventDecoder().feed(body)]
        answers = [event for event in events if '"method"' not in _text(event)]
        return Answer(_text(answers[-1])) if answers else None
    return Answer(body.decode()) if body else None


def _text(event: bytes | str) -> str:
    return event.decode() if isinstance(event, bytes) else event


def _chunks_of(body: bytes) -> bytes | None:
    """The bytes of a chunked body; None if it has no end."""
    whole = b""
    while True:
        size, found, body = body.partition(b"\r\n")
        if not found:
            return None
        if (length := int(size, 16)) == 0:
            return whole
        if len(body) < length + 2:
            return None
        whole, body = whole + body[:length], body[length + 2 :]


@dataclass(slots=True)
class Conversation:
    """A call of a model until it has its result, or an error of the tool, or of the gateway."""

    number: int
    tool: str = PLAIN
    seconds: float = 0.0
    turns: int = 0
    """How many requests were answered, or lost with their gateway."""
    cuts: int = 0
    """How many connections the host broke."""
    handles: int = 0
    """How many answers were handles."""
    may_be_lost: bool = False
    """Whether a gateway was killed meanwhile: one may answer then before the server does."""
    end: Answer | None = None
    slowest: float = 0.0
    """Seconds of the longest request that was answered."""
    began: float = 0.0
    """When the first request was sent, by the clock of the loop."""

    @property
    def is_delivered(self) -> bool:
        """Whether the end is the result, to the byte."""
        return self.end is not None and result_members(self.number) in self.end.text


Cut = Callable[[Conversation], float | None]
"""Returns after how many seconds the connection of the next request is broken; None if never."""


class Model:
    """What stands in for a model that uses a host."""

    def __init__(self, host: Host, address: Callable[[], str], cut: Cut, chance: Random) -> None:
        """`address` returns where the host connects next."""
        self._host, self._address, self._cut, self._chance = host, address, cut, chance
        self._ids = 0

    async def get(self, call: Conversation, has_answered: Callable[[int], bool]) -> None:
        """Call, and go on until there is an end. `has_answered` is whether the server has answered that call."""
        first: tuple[str, dict[str, Any]] = (call.tool, {"number": call.number, "seconds": call.seconds})
        following, call.began = first, asyncio.get_running_loop().time()
        while call.end is None:
            self._ids += 1
            address, cut_after = self._address(), self._cut(call)
            request = request_of(self._host, address, self._ids, *following)
            began = asyncio.get_running_loop().time()
            may_reset = partial(self._may_reset, call, has_answered)
            try:
                answer = await Connection(address).exchange(request, cut_after, may_reset)
            except OSError:
                # Nothing listens: the gateway is not there yet.
                await asyncio.sleep(0.02)
                continue
            taken = asyncio.get_running_loop().time() - began
            if answer is None:
                is_cut = cut_after is not None and taken >= cut_after
                call.cuts, call.turns = call.cuts + is_cut, call.turns + (not is_cut)
                # The model tries the same again, or forgets the handle and makes the call again.
                if self._chance.random() < 0.5:
                    following = first
                continue
            call.turns, call.slowest = call.turns + 1, max(call.slowest, taken)
            if answer.handle is None:
                call.end = answer
            else:
                call.handles += 1
                following = (WAIT, {"handle": answer.handle})

    def _may_reset(self, call: Conversation, has_answered: Callable[[int], bool]) -> bool:
        """Draw whether a connection is broken by a reset.

        That loses an answer on its way, and neither side can know. So there is none once there may be an answer.
        """
        return self._chance.random() < 0.5 and not has_answered(call.number) and not call.may_be_lost
