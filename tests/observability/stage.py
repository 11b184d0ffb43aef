"""The stage of the scenario: a gateway with every feature that it has, in a process of its own, and who is around it.

What must not live here: what happens there (`acts`, `drive`).
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from example.processes import bound_to_us, end

from helpers.gateway.process import TASKGATE
from helpers.identity_provider import IdentityProvider
from helpers.key_server import KeyServer
from helpers.secrets import noted
from helpers.server import AWKWARD_PROGRAM, Hold, ScriptedServer, Turn, error, result
from helpers.waiting import bounded

AUDIENCE = "https://gateway.example"
BEARER = noted("the-token-of-the-operators-of-the-scenario")
NO_SECRET = noted("no secret that the provider knows of")
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
KEYS = "/keys"
NOWHERE = "http://127.0.0.1:1/mcp"
OF_PROGRAM = noted("what the program alone is told")
OF_SERVERS = ("echo", "faulty", "slow", "stuck", "sleepy", "joined", "early", "late")
OF_RULES = ("quick", "shadowed", "forbidden", "watched", "again")

_OFTEN = {"method": "ping", "interval": "500ms", "timeout": "400ms", "unhealthy_after": 2, "healthy_after": 1}
_SERVERS = {"protocol_version": "2025-11-25", "health": None}
_BREAKER = {"failures": 2, "window": "10s", "open_for": "300ms", "half_open": 1}
_ENDED_WITHIN = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where the servers are: two on released SDKs, and two that do as they are told."""

    reports: str
    asking: str
    desk: ScriptedServer
    moody: ScriptedServer


def upstreams(servers: Servers, provider: IdentityProvider) -> dict[str, Any]:
    """Every server that the gateway has, some of them more than once."""
    desk = {"url": servers.desk.url, **_SERVERS}
    credentials = {
        "mode": "client_credentials",
        "token_url": provider.token_url,
        "client_id": "taskgate",
        "client_secret": provider.secret_of("taskgate"),
        "resource": "https://bank.example",
        "scopes": ["reports.run"],
        "cache": False,
    }
    sections: dict[str, Any] = {
        "reports": {"url": servers.reports, "health": _OFTEN},
        "asking": {"url": servers.asking, "health": None},
        "desk": desk,
        "narrow": {**desk, "concurrency": 1, "queue": {"size": 1, "max_wait": "300ms"}},
        "single": {**desk, "concurrency": 1},
        "moody": {
            "url": servers.moody.url,
            **_SERVERS,
            "retries": {"attempts": 1},
            "circuit_breaker": _BREAKER,
            "health": _OFTEN,
        },
        "gone": {"url": NOWHERE, "health": _OFTEN, "circuit_breaker": None},
        "local": {
            "transport": "stdio",
            "command": [sys.executable, "-I", "-S", AWKWARD_PROGRAM],
            "env": {"API_KEY": OF_PROGRAM},
            "restart": {"backoff": "50ms", "max_backoff": "100ms"},
            "pool": {"idle_timeout": "500ms"},
        },
        "bank": {**desk, "credentials": credentials},
        "bust": {**desk, "credentials": {**credentials, "client_secret": NO_SECRET}},
    }
    return {name: {"path": f"/{name}/mcp", **section} for name, section in sections.items()}


def tasks() -> dict[str, Any]:
    """Rules of every kind, and times that a test can wait for."""
    return {
        "upgrade": [
            {"tool": "shadowed", "mode": "always", "shadow": True},
            {"tool": "shadowed", "mode": "sync"},
            {"tool": "joined", "mode": "sync", "join_retries": "5s"},
            {"tool": "sleepy", "mode": "sync"},
            {"tool": "quick", "mode": "auto", "inline_grace": "3s"},
            {"tool": "again", "mode": "always", "on_lost": "rerun"},
            # Those that a test lets run until they are too old.
            {"tool": "stuck", "mode": "always", "ttl": "3s", "ttl_max": "3s"},
            {"tool": "echo", "mode": "always", "ttl": "1500ms", "ttl_max": "2s"},
            {"tool": "*", "mode": "always"},
        ],
        "ttl": {"default": "5s", "min": "400ms", "max": "20s", "keep": "1s"},
        "poll_interval": {"base": "100ms", "min": "50ms", "max": "200ms", "adaptive": True},
        "early_poll": {"reject_above": 3.0},
        "input_required": {"max_wait": "1500ms"},
    }


LIMITS: dict[str, Any] = {
    # Callers come far faster than the built-in policies let them.
    "replace_defaults": True,
    "rate": [
        {"name": "auth_failures", "scope": "ip", "event": "auth_failure", "rate": "2/s", "burst": 6},
        {"name": "tight", "scope": "context", "methods": ["prompts/list"], "rate": "1/m", "burst": 2},
        {"name": "heavy", "scope": "context", "methods": ["tools/call"], "rate": "1/m", "burst": 1, "mode": "shadow"},
    ],
    "concurrency": {"tasks_per_context": 50},
    "overrides": [
        {"match": {"tenant": "small"}, "concurrency": {"tasks_per_context": 1}},
        # A task of this user ends while its question is open.
        {"match": {"claims": {"sub": ["hasty"]}}, "ttl_max": "1s"},
    ],
}
RULES = [
    {"name": "nobody", "tool": "forbidden", "effect": "deny"},
    {"name": "soon-nobody", "tool": "watched", "effect": "deny", "shadow": True},
]


def audit(folder: Path) -> dict[str, Any]:
    """A file for all of it, one that loses a line, and standard output, which tells of requests too."""
    return {
        "chain": {"checkpoint_events": 200, "checkpoint_interval": "2s"},
        "sinks": [
            {"name": "file", "type": "file"},
            {"name": "spare", "type": "file", "path": str(folder / "spare.jsonl"), "events": ["task.*"]},
            {"name": "stdout", "type": "stdout", "events": ["audit.checkpoint", "rpc.*"]},
        ],
        "queue": 600,
        "on_full": "drop",
    }


def configuration(
    folder: Path, servers: Servers, provider: IdentityProvider, dark: KeyServer, ports: tuple[int, int]
) -> dict[str, Any]:
    """The whole configuration, with two issuers."""
    token = folder / "operators-token"
    token.write_text(BEARER)
    jwks = {"refresh": "5m", "cooldown": "500ms", "timeout": "1s"}
    claims = {"tenant": "tenant"}
    listen, admin = (f"127.0.0.1:{port}" for port in ports)
    return {
        "version": 1,
        "server": {
            "listen": listen,
            "trusted_proxies": ["127.0.0.0/8"],
            "max_body": "64KiB",
            "max_streams_per_context": 2,
            "drain": {"delay": "1200ms", "timeout": "5s", "running_tasks": "fail"},
        },
        "admin": {"listen": admin, "token_file": str(token)},
        "upstreams": upstreams(servers, provider),
        "tasks": tasks(),
        "auth": {
            "mode": "required",
            "issuers": {
                "corp": {"issuer": provider.issuer, "audience": [AUDIENCE], "claims": claims, "jwks": jwks},
                "dark": {
                    "issuer": dark.issuer,
                    "audience": [AUDIENCE],
                    "claims": claims,
                    "jwks_uri": dark.url(KEYS),
                    "jwks": jwks,
                },
            },
            "lookup_failures": {"threshold": 5, "window": "1m", "penalty": "2s"},
        },
        # Tools that no server lists are called, too: they have a label of their own.
        "authorization": {"rules": RULES, "only_listed_tools": False},
        "limits": LIMITS,
        "store": {"sqlite": {"synchronous": "NORMAL", "busy_timeout": "100ms"}, "purge_interval": "200ms"},
        "audit": audit(folder),
        "metrics": {"tenant_label": True, "tenants": ["acme"], "max_tools": 5},
    }


async def _late(turn: Turn) -> web.StreamResponse:
    await asyncio.sleep(0.4)
    return await result(DONE)(turn)


async def _sleepy(turn: Turn) -> web.StreamResponse:
    await asyncio.sleep(0.8)
    return await result(DONE)(turn)


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedServer]:
    """A server with all the tools: `slow` and `stuck` wait for its end, `faulty` cannot do what it is to."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*OF_SERVERS, *OF_RULES)]
        hold = Hold()
        server.script |= dict.fromkeys(("slow", "stuck", "again"), hold)
        server.script |= {"faulty": error(-32000, "It broke"), "joined": _late, "sleepy": _sleepy}
        server.methods["prompts/list"] = result({"prompts": []})
        try:
            yield server
        finally:
            hold.release(DONE)


class Gateway:
    """`taskgate serve` with its standard output apart from its log; `stdout` has what was read of it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._reads = asyncio.Event()
        self._reads.set()
        self.stdout = b""

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def stop_reading(self) -> None:
        """Whoever reads its standard output does no more, so that the pipe fills."""
        self._reads.clear()

    def read_on(self) -> None:
        """And does again."""
        self._reads.set()

    def ask(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit status, once it is gone."""
        async with asyncio.timeout(_ENDED_WITHIN):
            return await self._process.wait()

    async def serves(self) -> None:
        """Waits until it does; AssertionError where it ended instead."""
        async with bounded():
            while '"event":"serving"' not in self.log():
                assert self._process.returncode is None, self.log()
                await asyncio.sleep(0.02)

    async def follow(self) -> None:
        """Reads its standard output to the end."""
        assert self._process.stdout is not None
        while True:
            await self._reads.wait()
            chunk = await self._process.stdout.read(65536)
            if not chunk:
                return
            self.stdout += chunk


@asynccontextmanager
async def gateway(folder: Path, name: str, config: dict[str, Any]) -> AsyncIterator[Gateway]:
    """One for the length of a block; its data are in the folder, and its log is called by that name."""
    file, log = folder / "taskgate.yaml", folder / f"{name}.log"
    file.write_text(json.dumps(config))
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *bound_to_us([TASKGATE, "serve", "--no-watch", "--config", file]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "TASKGATE_DATA_DIR": str(folder / "data")},
            start_new_session=True,
            limit=4096,
        )
    running = Gateway(process, log)
    following = asyncio.create_task(running.follow())
    try:
        await running.serves()
        yield running
    finally:
        running.read_on()
        await end(process, signal.SIGINT)
        await following


async def scraped(operator: aiohttp.ClientSession, admin: str) -> str:
    """The page of metrics that a gateway has at HOST:PORT, as text."""
    async with bounded(), operator.get(f"http://{admin}/metrics", headers={"Accept": "text/plain"}) as response:
        return await response.text()
