"""Released hosts make usual mistakes, and show their users what `docs/reference/mistakes.md` says.

With MISTAKES=write the table is what they show now. Each host makes one mistake after the other, as a caller of its
own; all hosts make the same one at once.
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from signal import SIGTERM
from typing import Any

import httpx
import pytest
from aiohttp import web

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.ports import free_port
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded, eventually
from interaction.operators import OPS, tokens
from interop.mistakes import HOSTS, MISTAKES, NO_TASKS, PAGE, SHOWN, page, settled, stored
from interop.peers import python_server, require_peers
from interop.refusals import Kind
from interop.stepped import ENVIRONMENTS, Connected, SteppedHost, Told, stepped_host

UNKNOWN = "A" * 32
"""What could be the id of a task."""
REASON = "the database is down"


@dataclass(slots=True, kw_only=True)
class Desk:
    """All that runs, for one host."""

    kind: Kind
    host: SteppedHost
    gateway: GatewayProcess
    origin: str
    issuer: TokenIssuer
    folder: Path
    numbers: Iterator[int]
    alone: asyncio.Lock
    """Held by a host whose task is the only one that runs."""

    def url(self, mount: str = "work", *, name: str = "127.0.0.1") -> str:
        return f"http://{name}:{self.gateway.listen.rpartition(':')[2]}/{mount}/mcp"

    def headers(self, mount: str = "work", **claims: Any) -> dict[str, str]:
        """A token of this host alone."""
        audience = claims.pop("audience", self.url(mount))
        token = self.issuer.token(audience, **{"subject": self.kind.name, "tenant": self.kind.name, **claims})
        # From an address of its own: wrong tokens count for an address.
        return {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"192.0.2.{1 + HOSTS.index(self.kind)}"}

    async def attempt(self, url: str, headers: Mapping[str, str], tool: str = "echo", **given: object) -> Told:
        """What is told first: of a connection, or else of a call."""
        on = f"attempt {next(self.numbers)}"
        told = await self.host.step(on, "connect", url, dict(headers))
        if told == {"connected": True}:
            told = await self.host.step(on, "call", tool, given or {"word": "one"})
            await self.host.step(on, "leave")
        return told

    @asynccontextmanager
    async def connected(self, mount: str = "work", **claims: Any) -> AsyncIterator[Connected]:
        async with self.host.connected(self.url(mount), self.headers(mount, **claims)) as connection:
            yield connection

    async def ask(self, what: str, key: str) -> None:
        async with bounded(), httpx.AsyncClient(trust_env=False) as http:
            await http.get(f"{self.origin}/{what}/{key}")

    async def held(self, host: Connected, key: str) -> str:
        """A task whose call runs at the server until it is let go."""
        task: str = (await host.task("hold", key=key))["task"]
        await self.ask("began", key)
        return task


def shown(told: Told) -> str:
    """What the user of a host sees of that."""
    if "error" in told:
        return settled(told["error"]["message"])
    if "thrown" in told:
        return settled(f"{told['thrown'][0]}: {told['thrown'][1]}")
    return settled(told["gone"] if "gone" in told else told["text"])


# --- the mistakes -----------------------------------------------------------------------------------------------------


async def path(desk: Desk) -> Told:
    return await desk.attempt(desk.url("wrok"), desk.headers())


async def host(desk: Desk) -> Told:
    return await desk.attempt(desk.url(name="localhost"), desk.headers())


async def no_token(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), {})


async def expired(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(exp=int(time.time()) - 60))


async def audience(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(audience="api://default"))


async def issuer(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(iss="https://other.example.com/"))


async def scope(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(), "privileged", word="one")


async def rule(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(), "forbidden", word="one")


async def body(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(), word="x" * 80_000)


async def rate(desk: Desk) -> Told:
    async with desk.connected("rated") as host:
        for _ in range(20):
            told = await host.call("echo", word="one")
            if told.get("text") != "echo one" or told.get("is_error"):
                return told
    raise AssertionError("no call was too many")


async def queue(desk: Desk) -> Told:
    mount, key = f"slow-{desk.kind.name}", f"{desk.kind.name} queue"
    async with desk.connected(mount) as host:
        holding = asyncio.create_task(host.call("hold", key=key))
        await desk.ask("began", key)
        async with desk.connected(mount, subject=f"{desk.kind.name} second") as second:
            told = await second.call("echo", word="one")
        await desk.ask("let_go", key)
        await holding
    return told


async def tasks(desk: Desk) -> Told:
    key = f"{desk.kind.name} tasks"
    async with desk.connected(subject=f"{desk.kind.name} tasks", scene="tasks") as host:
        await desk.held(host, key)
        told = await host.task("hold", key=key)
        await desk.ask("let_go", key)
    return told


async def tool(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(), "ehco", word="one")


async def arguments(desk: Desk) -> Told:
    return await desk.attempt(desk.url(), desk.headers(), wrod="one")


async def task(desk: Desk) -> Told:
    async with desk.connected() as host:
        return await host.look(UNKNOWN)


async def cancelled(desk: Desk) -> Told:
    async with desk.connected() as host:
        task = await desk.held(host, f"{desk.kind.name} cancelled")
        await host.cancel(task)
        return await host.outcome(task)


async def operator(desk: Desk) -> Told:
    async with (
        desk.alone,
        desk.connected() as host,
        httpx.AsyncClient(
            base_url=f"http://{desk.gateway.admin}/api/v1", headers={"Authorization": OPS}, trust_env=False
        ) as api,
    ):
        task = await desk.held(host, f"{desk.kind.name} operator")
        select = {"tool": "hold"}
        counted = (await api.post("/tasks/cancel", json={**select, "dry_run": True})).json()
        assert counted["matched"] == 1, counted
        confirmed = {"confirm": 1, "selection": counted["selection"], "reason": REASON}
        assert (await api.post("/tasks/cancel", json={**select, **confirmed})).json()["cancelled"] == 1
        return await host.outcome(task)


async def down(desk: Desk) -> Told:
    return await desk.attempt(desk.url("down"), desk.headers("down"))


async def refusing(desk: Desk) -> Told:
    return await desk.attempt(desk.url("refusing"), desk.headers("refusing"))


async def html(desk: Desk) -> Told:
    return await desk.attempt(desk.url("html"), desk.headers("html"))


Made = Callable[[Desk], Awaitable[Told]]
AT_ONCE: dict[str, Made] = {
    "path": path,
    "host": host,
    "no token": no_token,
    "expired": expired,
    "audience": audience,
    "issuer": issuer,
    "scope": scope,
    "rule": rule,
    "body": body,
    "rate": rate,
    "queue": queue,
    "tasks": tasks,
    "tool": tool,
    "arguments": arguments,
    "task": task,
    "cancelled": cancelled,
    "operator": operator,
    "down": down,
    "refusing": refusing,
    "html": html,
}


async def without_the_store(desks: list[Desk]) -> dict[str, str]:
    """What hosts show of a task while another process has locked the store."""
    told = {}
    async with AsyncExitStack() as running:
        hosts = {desk.kind: await running.enter_async_context(desk.connected()) for desk in desks}
        with closing(sqlite3.connect(desks[0].folder / "taskgate.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for kind, each in hosts.items():
                told[kind.name] = shown(await each.task("hold", key="store")) if kind.makes_tasks else NO_TASKS
    return told


async def while_it_drains(desks: list[Desk]) -> dict[str, str]:
    """What hosts show of a call while the gateway drains, which a running call of another host keeps open."""
    async with AsyncExitStack() as running:
        hosts = {desk.kind: await running.enter_async_context(desk.connected()) for desk in desks}
        first = await running.enter_async_context(desks[0].connected(subject="last"))
        holding = asyncio.create_task(first.call("hold", key="drain"))
        await desks[0].ask("began", "drain")
        gateway = desks[0].gateway
        gateway.ask(SIGTERM)
        await eventually(lambda: any(line["event"] == "draining" for line in gateway.log_lines()))
        told = {kind.name: shown(await each.call("echo", word="one")) for kind, each in hosts.items()}
        await desks[0].ask("let_go", "drain")
        await holding
    return told


# --- the stage --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def wrong_servers() -> AsyncIterator[str]:
    """A server that wants a token at /refusing, and one with a web page at /html; their address."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>Welcome</title>", content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/refusing", refuse)
    application.router.add_route("*", "/html", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def configured(folder: Path, server: str, wrong: str, issuer: TokenIssuer) -> Path:
    """The gateway's configuration."""
    urls = {"work": server, "rated": server, "down": f"http://127.0.0.1:{free_port()}/mcp"}
    urls |= {name: f"{wrong}/{name}" for name in ("refusing", "html")}
    mounts: dict[str, dict[str, Any]] = {name: {"url": url} for name, url in urls.items()}
    for kind in HOSTS:
        mounts[f"slow-{kind.name}"] = {"url": server, "concurrency": 1, "queue": {"size": 8, "max_wait": "1s"}}
    for name, mount in mounts.items():
        mount |= {"path": f"/{name}/mcp", "health": None}
    return write_configuration(
        folder,
        "",
        server={
            "listen": f"127.0.0.1:{free_port()}",
            "allowed_hosts": ["127.0.0.1"],
            "trusted_proxies": ["127.0.0.0/8"],
            "max_body": "64KiB",
            "drain": {"delay": "0s", "timeout": "30s"},
        },
        admin=tokens(folder),
        auth={"mode": "required", "issuers": {"corp": {**issuer.section, "claims": {"tenant": "tenant"}}}},
        authorization={
            "rules": [
                {"methods": ["tools/call"], "tool": "forbidden", "effect": "deny"},
                {"methods": ["tools/call"], "tool": "privileged", "require_scopes": ["reports.admin"]},
            ]
        },
        upstreams=mounts,
        tasks={
            "upgrade": [{"tool": "hold", "mode": "always"}, {"tool": "*", "mode": "sync"}],
            "poll_interval": {"base": "50ms", "min": "50ms", "adaptive": False},
            "early_poll": {"reject_above": 1000},
        },
        limits={
            "wait": "0s",
            "rate": [
                {
                    "name": "calls",
                    "methods": ["tools/call"],
                    "scope": "context",
                    "upstream": "rated",
                    "rate": "1/m",
                    "burst": 2,
                }
            ],
            "overrides": [{"match": {"claims": {"scene": ["tasks"]}}, "concurrency": {"tasks_per_context": 1}}],
        },
        store={"sqlite": {"path": str(folder / "taskgate.db"), "busy_timeout": "100ms"}},
    )


@asynccontextmanager
async def desks_in(folder: Path) -> AsyncIterator[list[Desk]]:
    """All of it, for the length of the block."""
    async with AsyncExitStack() as running:
        server = await running.enter_async_context(python_server("refusals_server.py", "2.3.0", folder))
        wrong = await running.enter_async_context(wrong_servers())
        issuer = TokenIssuer(folder)
        file = configured(folder, server, wrong, issuer)
        gateway = await running.enter_async_context(gateway_process(["--config", file], log=folder / "gateway.log"))
        numbers, alone = count(), asyncio.Lock()
        yield [
            Desk(
                kind=kind,
                host=await running.enter_async_context(stepped_host(kind, folder)),
                gateway=gateway,
                origin=server.removesuffix("/mcp"),
                issuer=issuer,
                folder=folder,
                numbers=numbers,
                alone=alone,
            )
            for kind in HOSTS
        ]


def test_the_page_is_what_hosts_showed() -> None:
    assert {mistake.name for mistake in MISTAKES} == {*AT_ONCE, "store", "draining"}
    assert PAGE.read_text(encoding="utf-8") == page(stored()), "make mistakes writes it anew"


@pytest.mark.interop
@pytest.mark.timeout(300)
async def test_each_host_shows_its_user_what_the_page_says(tmp_path: Path) -> None:
    require_peers(*ENVIRONMENTS)
    found: dict[str, dict[str, str]] = {}
    needs_tasks = {mistake.name for mistake in MISTAKES if mistake.needs_tasks}
    async with desks_in(tmp_path) as desks:
        for name, make in AT_ONCE.items():
            playing = [desk for desk in desks if desk.kind.makes_tasks or name not in needs_tasks]
            came = await asyncio.gather(*(make(desk) for desk in playing), return_exceptions=True)
            found[name] = dict.fromkeys((desk.kind.name for desk in desks), NO_TASKS)
            for desk, told in zip(playing, came, strict=True):
                found[name][desk.kind.name] = f"BROKEN {told!r}" if isinstance(told, BaseException) else shown(told)
        found["store"] = await without_the_store(desks)
        found["draining"] = await while_it_drains(desks)
    if os.environ.get("MISTAKES") == "write":
        SHOWN.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert "BROKEN" not in str(found), found
    assert found == stored()
