"""Event streams as they are on the wire: every event with its id and its pause, and connections that break off.

Unlike `Host`, which reads messages, this sees what carries them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from helpers.host.host import Host
from helpers.waiting import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: its fields as they were written, and the message that its data is, if it is one."""

    id: str | None = None
    retry: str | None = None
    data: str | None = None

    @property
    def message(self) -> dict[str, Any]:
        assert self.data, self
        message: dict[str, Any] = json.loads(self.data)
        return message


def read_event(block: str) -> Event | None:
    """An event of its lines; None for a comment."""
    fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
    assert fields.keys() <= {"id", "retry", "data", "event"}, block
    fields.pop("event", None)
    return Event(**fields) if fields else None


@dataclass(slots=True)
class Wire:
    """One open answer, an event stream; `seen` are its events so far."""

    response: aiohttp.ClientResponse
    seen: list[Event] = field(default_factory=list)
    broke: bool = False
    """Whether the connection was lost before the end of the answer."""
    _rest: str = ""

    async def next(self) -> Event | None:
        """The next event; None at the end."""
        while True:
            block, gap, rest = self._rest.partition("\n\n")
            if gap:
                self._rest = rest
                event = read_event(block)
                if event is None:
                    continue
                self.seen.append(event)
                return event
            try:
                async with bounded():
                    chunk = await self.response.content.readany()
            except aiohttp.ClientPayloadError:
                self.broke = True
                return None
            if not chunk:
                assert not self._rest
                return None
            self._rest += chunk.decode()

    async def until(self, method: str) -> Event:
        """The next event with a message of that method, those before it passed over."""
        while (event := await self.next()) is not None:
            if event.data and event.message.get("method") == method:
                return event
        raise AssertionError(f"the stream ended without {method}: {self.seen}")

    async def to_end(self) -> list[Event]:
        """All events that are still to come."""
        before = len(self.seen)
        while await self.next() is not None:
            pass
        return self.seen[before:]

    def cut(self) -> None:
        """Lose the connection without a word."""
        assert self.response.connection is not None
        assert self.response.connection.transport is not None
        self.response.connection.transport.abort()
        self.response.close()


def head_of(host: Host, **more: str) -> dict[str, str]:
    """What the host sends with every message, and more with underscores for dashes."""
    return {**host.head(), **{name.replace("_", "-"): value for name, value in more.items()}}


@asynccontextmanager
async def asked(host: Host, method: str, params: Mapping[str, Any], *, id: object = 7) -> AsyncIterator[Wire]:
    """A request whose answer is an event stream from the start, for the length of the block."""
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    head = head_of(host, Content_Type="application/json", Accept="text/event-stream")
    async with host.http.post(host.url, json=message, headers=head, timeout=_LONG) as response:
        assert response.content_type == "text/event-stream", await response.text()
        yield Wire(response)


@asynccontextmanager
async def got(host: Host, last: str | None = None) -> AsyncIterator[Wire]:
    """A GET stream, one that goes on after the event `last` where that is given, for the length of the block."""
    more = {} if last is None else {"Last-Event-ID": last}
    head = head_of(host, Accept="text/event-stream", **more)
    async with host.http.get(host.url, headers=head, timeout=_LONG) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Wire(response)


async def refused(host: Host, *last: str) -> tuple[int, str]:
    """Status and body of a GET that goes on after events, each in a header of its own."""
    head = [*head_of(host, Accept="text/event-stream").items(), *(("Last-Event-ID", each) for each in last)]
    async with bounded(), host.http.get(host.url, headers=head) as response:
        assert response.content_type != "text/event-stream"
        return response.status, await response.text()


async def gone(host: Host) -> None:
    """Wait a few turns of the loop, in which the gateway hears of a connection that was lost."""
    for _ in range(20):
        await asyncio.sleep(0)


_LONG = aiohttp.ClientTimeout(total=None)
