"""Gateways that ask who is there, what somebody owns behind them, and answers down to the last byte."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helpers import told
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import ACCEPT, Host
from helpers.identity_provider import IdentityProvider
from helpers.manual_clock import ManualClock
from helpers.secrets import noted
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded
from taskgate.config.model import GatewayConfig
from taskgate.wiring.build import Environment

PUBLIC = "https://gateway.example"
MOUNTS = ("reports", "orders")
ONE_PAGE = 100
"""Tasks of one page of `tasks/list`."""
DONE: dict[str, object] = {"content": []}


def resource(mount: str) -> str:
    """What tokens for a mount are made for."""
    return f"{PUBLIC}/{mount}/mcp"


def guarded(
    server: ScriptedServer,
    *providers: IdentityProvider,
    auth: Mapping[str, Any] | None = None,
    tasks: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    leeway: str = "30s",
) -> GatewayConfig:
    """Two mounts before one server, for whoever has a token of one of the providers."""
    issuers = {f"issuer-{number}": {"issuer": each.issuer, "leeway": leeway} for number, each in enumerate(providers)}
    return configuration(
        dict.fromkeys(MOUNTS, server.url),
        folder=folder,
        auth={"mode": "required", "issuers": issuers, **(auth or {})},
        server={"public_url": PUBLIC, "allowed_hosts": ["127.0.0.1"]},
        limits={"concurrency": {"tasks_per_context": 2 * ONE_PAGE}},
        **({} if tasks is None else {"tasks": tasks}),
    )


def key_file(path: Path, *names: str) -> Path:
    """A file of deployment keys, one for each name, the present one first."""
    lines = [noted(urlsafe_b64encode(name.encode().ljust(32, b".")).decode()) for name in names]
    path.touch(mode=0o600)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedServer]:
    """A server whose `echo` answers at once, and whose `slow` waits for `let_go`."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow")]
        server.script["slow"] = Hold()
        yield server


def let_go(server: ScriptedServer) -> None:
    """Every call of `slow` is answered. Once."""
    hold = server.script["slow"]
    assert isinstance(hold, Hold)
    hold.release(DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """What an owner has: a session, a task that runs and one that has ended, and the cursor of its second page."""

    session: str
    revision: str
    running: str
    ended: str
    cursor: str | None


async def acquire(owner: Host, *, cursor: bool = False, runs: bool = True) -> Belongings:
    """Make them; without `runs` what should run has ended, without `cursor` there is none."""
    ended = await end(owner, await begin(owner, "echo"))
    following = None
    if cursor:
        for _ in range(ONE_PAGE):
            await begin(owner, "echo")
        following = (await owner.ask("tasks/list")).result["nextCursor"]
    running = await begin(owner, "slow") if runs else ended
    assert owner.session is not None
    assert owner.revision is not None
    return Belongings(session=owner.session, revision=owner.revision, running=running, ended=ended, cursor=following)


async def begin(host: Host, tool: str = "slow") -> str:
    """The id of a new task."""
    task: str = (await host.start(tool, {}, ttl=60_000))["taskId"]
    return task


async def end(host: Host, task: str) -> str:
    """Wait for a task's result."""
    assert "content" in (await host.ask("tasks/result", {"taskId": task})).result
    return task


async def ended_task(host: Host) -> str:
    """The id of a new task that has ended."""
    return await end(host, await begin(host, "echo"))


def inside(host: Host, owned: Belongings) -> Host:
    """The same host in the owner's session."""
    other = host.again()
    other.session, other.revision = owned.session, owned.revision
    return other


async def exactly(
    gateway: Gateway,
    verb: str,
    token: str | None,
    *,
    method: str = "ping",
    params: Mapping[str, object] | None = None,
    session: str | None = None,
    mount: str = "reports",
) -> bytes:
    """The whole answer as it came over the wire, but for the time of day. Each question has the same JSON-RPC id."""
    url = urlsplit(gateway.url(mount))
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    body = json.dumps(message).encode() if verb == "POST" else b""
    head = {
        "Host": url.netloc,
        "Accept": "text/event-stream" if verb == "GET" else ACCEPT,
        "Connection": "close",
        "Content-Length": str(len(body)),
    }
    head |= {"Content-Type": "application/json"} if verb == "POST" else {}
    head |= {} if token is None else {"Authorization": f"Bearer {token}"}
    head |= {} if session is None else {"Mcp-Session-Id": session}
    lines = [f"{verb} {url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    async with bounded():
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        try:
            writer.write("\r\n".join(lines).encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
    if not answer.startswith(b"HTTP/1.1 2") or b'"error"' in answer:
        told.now().hear(answer.decode())
    return b"\r\n".join(line for line in answer.split(b"\r\n") if not line.startswith(b"Date: "))


class Stage:
    """A gateway, and Alice and Bob, who have one session each at `reports`, and Alice one at `orders`."""

    def __init__(self, gateway: Gateway, clock: ManualClock, tokens: Sequence[str]) -> None:
        self.gateway = gateway
        self.clock = clock
        self.alices, self.bobs, self.alices_at_orders = tokens

    async def greet(self) -> "Stage":
        self.alice = await self.gateway.greeted(token=self.alices)
        self.bob = await self.gateway.greeted(token=self.bobs)
        self.alice_at_orders = await self.gateway.greeted(mount="orders", token=self.alices_at_orders)
        return self

    async def about_task(self, method: str, task: object) -> bytes:
        """What Alice is told of a task at `reports`."""
        return await exactly(
            self.gateway, "POST", self.alices, method=method, params={"taskId": task}, session=self.alice.session
        )

    async def about_session(self, verb: str, session: str) -> bytes:
        """What Alice is told of a session at `reports`."""
        return await exactly(self.gateway, verb, self.alices, session=session)

    async def page_at(self, cursor: str) -> bytes:
        """What Alice is told of her list at `reports`, from a cursor on."""
        return await exactly(
            self.gateway,
            "POST",
            self.alices,
            method="tasks/list",
            params={"cursor": cursor},
            session=self.alice.session,
        )


@asynccontextmanager
async def stage_of(provider: IdentityProvider, *, folder: Path | None = None) -> AsyncIterator[Stage]:
    """A gateway whose clock stands still, which puts nobody into the penalty box. Tasks live for a minute."""
    clock = ManualClock(datetime.now(UTC))
    people = (("alice", "reports"), ("bob", "reports"), ("alice", "orders"))
    tokens = [await provider.token(subject=name, resource=resource(mount)) for name, mount in people]
    auth = {"lookup_failures": {"threshold": 1_000_000}}
    async with scripted() as server:
        tasks = {"ttl": dict.fromkeys(("default", "max", "keep"), "1m")}
        config = guarded(server, provider, auth=auth, tasks=tasks, folder=folder)
        async with serve(config, Environment(clock=clock)) as gateway:
            yield await Stage(gateway, clock, tokens).greet()
