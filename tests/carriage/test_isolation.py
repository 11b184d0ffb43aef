"""What a server says to one caller never reaches another, over sessions that callers have to themselves or share."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from requirements import covers

from . import links, probe_sockets
from .labelled_server import CHANGED, FILTER, LEGACY, MODERN, THING, UPDATED, LabelledLine, labels, place_of
from .probe_server import CAPABILITIES, CLIENT, REVISIONS, VERSION

PROGRAM: Final = str(Path(__file__).with_name("labelled_server.py"))
CALLERS: Final = ("alice", "bob")
AT_ONCE: Final = 6
"""Calls of one host at the same time."""
LEAST: Final = 10_000
"""What is heard in all, at least."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
PROGRESS: Final = "notifications/progress"


@dataclass(slots=True)
class Host:
    """A host of a caller; `heard` has what came, by what it came for: a call, by its number, or a stream."""

    era: str
    who: str
    token: str
    calls: int
    link: Any = None
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _ids: Any = field(default_factory=lambda: count(1))

    def hear(self, message: dict[str, Any], stream: str) -> None:
        """Take what is no answer."""
        self.heard.append((stream, message))

    def of(self, method: str) -> list[dict[str, Any]]:
        """What was heard of that method."""
        return [message for _, message in self.heard if message.get("method") == method]

    async def greet(self, start: links.Start) -> None:
        """Begin, and have a stream for what answers no request."""
        if self.era == LEGACY:
            about = {"protocolVersion": REVISIONS[LEGACY], "capabilities": {"extensions": {THING: {}}}}
            await self.ask("initialize", {**about, "clientInfo": {"name": "host", "version": "1"}})
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.link.send(note, self._head({}))
            await self.link.open(self._head({}))
            assert "result" in await self.ask("resources/subscribe", {"uri": place_of(self.who)})
            return
        wishes = {"resourceSubscriptions": [place_of(self.who)], FILTER: True}
        start(self.ask("subscriptions/listen", {"notifications": wishes}, stream="listen"))
        await eventually(lambda: self.of(ACKNOWLEDGED))

    async def work(self) -> None:
        """Make all calls, some at a time."""
        numbers = iter(range(self.calls))

        async def worker() -> None:
            for number in numbers:
                # The last ones wait for no others, which might not come.
                arguments = {"who": self.who, "number": number, "now": number >= self.calls - AT_ONCE}
                params = {"name": "work", "arguments": arguments, "_meta": {"progressToken": number}}
                answer = await self.ask("tools/call", params, stream=f"call {number}")
                self.heard.append((f"call {number}", answer))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(worker())

    async def ask(self, method: str, params: dict[str, Any], stream: str = "") -> dict[str, Any]:
        """The answer to a request."""
        if self.era == MODERN:
            capabilities: dict[str, Any] = {"extensions": {THING: {}}}
            about = {VERSION: REVISIONS[MODERN], CAPABILITIES: capabilities, CLIENT: {"name": "host", "version": "1"}}
            params = {**params, "_meta": {**params.get("_meta", {}), **about}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        _, answer = await self.link.ask(message, self._head(message), stream)
        found: dict[str, Any] = answer
        return found

    def _head(self, message: dict[str, Any]) -> dict[str, str]:
        head = {"Authorization": f"Bearer {self.token}", "MCP-Protocol-Version": REVISIONS[self.era]}
        if self.era == MODERN:
            head["Mcp-Method"] = message["method"]
            if message["method"] == "tools/call":
                head["Mcp-Name"] = message["params"]["name"]
        return head


@asynccontextmanager
async def hosts(gateway: Gateway, issuer: TokenIssuer, eras: tuple[str, ...], calls: int) -> AsyncIterator[list[Host]]:
    """Two hosts of each caller, of these eras, which have begun."""
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(links.background())
        found = []
        for who in CALLERS:
            for era in eras:
                host = Host(era, who, issuer.token(gateway.url("probe"), subject=who), calls)
                host.link = await stack.enter_async_context(links.over_http(gateway.url("probe"), host.hear))
                await host.greet(start)
                found.append(host)
        yield found


@asynccontextmanager
async def server(era: str, transport: str, sessions: str | None) -> AsyncIterator[dict[str, Any]]:
    """A labelled server, as an upstream of a file."""
    section: dict[str, Any] = {"path": "/probe/mcp", "transport": transport, "protocol_version": REVISIONS[era]}
    if sessions != "shared":
        both = {"eras": [LEGACY, MODERN], "filters": [FILTER], "notifications": [CHANGED]}
        section["extensions"] = {THING: both}
    if transport == "http":
        async with probe_sockets.over_http(era, LabelledLine) as (url, _):
            yield section | {"url": url}
    else:
        command = [sys.executable, "-S", PROGRAM, era]
        # Those who share programs spread over as many as there may be.
        yield section | {"command": command, "sessions": sessions, "processes": 1 if sessions == "shared" else 8}


@dataclass(frozen=True, slots=True)
class Kind:
    """A server, the hosts of each caller, and how much one of them hears for each of its calls."""

    era: str
    transport: str
    sessions: str | None
    eras: tuple[str, str]
    heard: int

    def __str__(self) -> str:
        hosts = " and ".join(self.eras)
        return f"{hosts} hosts, {self.era} server over {' '.join(filter(None, (self.sessions, self.transport)))}"


KINDS: Final = (
    Kind(MODERN, "http", None, (MODERN, MODERN), 7),
    Kind(MODERN, "http", None, (LEGACY, MODERN), 7),
    Kind(LEGACY, "http", None, (LEGACY, MODERN), 4),
    Kind(LEGACY, "stdio", "isolated", (LEGACY, MODERN), 6),
    Kind(LEGACY, "stdio", "shared", (LEGACY, MODERN), 4),
    Kind(MODERN, "stdio", "shared", (MODERN, MODERN), 4),
)


@covers("X-EXT-42")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_callers_hear_what_is_theirs_and_nothing_else(kind: Kind, tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    calls = 1 + LEAST // (2 * len(CALLERS) * kind.heard)
    async with (
        server(kind.era, kind.transport, kind.sessions) as upstream,
        serve(guarded({}, issuer, upstreams={"probe": upstream})) as gateway,
        hosts(gateway, issuer, kind.eras, calls) as all_hosts,
    ):
        async with bounded(100), asyncio.TaskGroup() as tasks:
            for host in all_hosts:
                tasks.create_task(host.work())
        # What answers no request may come last.
        await eventually(lambda: sum(len(host.heard) for host in all_hosts) >= LEAST)
    for host in all_hosts:
        assert [said for _, said in host.heard if {who for who, _ in labels(said)} - {host.who}] == []
        _hold_calls_apart(host, carried_with=int(kind.transport == "http"))
        assert bool(host.of(CHANGED)) is (kind.sessions != "shared")
        assert host.of(UPDATED) != []


def _hold_calls_apart(host: Host, *, carried_with: int) -> None:
    """Each call has its own answer and its own progress, and notifications of the extension where it has a stream."""
    found: dict[str, list[dict[str, Any]]] = {}
    for stream, message in host.heard:
        found.setdefault(stream, []).append(message)
    for number in range(host.calls):
        of_call = found[f"call {number}"]
        assert [each for each in of_call if labels(each) != {(host.who, number)}] == []
        told = Counter(each.get("method", "answer") for each in of_call)
        assert (told["answer"], told[PROGRESS], told[CHANGED]) == (1, 1, carried_with)
