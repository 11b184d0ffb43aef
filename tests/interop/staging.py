"""The stage of the tests of refusals: two real servers, a gateway for each way to refuse, and all hosts before them.

Which limit a caller meets is said by the claim `scene` of its token, through the overrides of the configuration; what
is limited for a whole server has a mount of its own.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.ports import free_port
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from interop.peers import python_server
from interop.refusals import KINDS, Kind
from interop.stepped import Connected, SteppedHost, Told, stepped_host

RELEASES = {"initialize": "1.23.3", "stateless": "2.3.0"}
"""Of the server that hosts of an era have behind the gateway."""
WAYS = ("jsonrpc", "http", "tool_error")
AUDIENCE = "taskgate"
MANY = 1000
LITTLE = 1024
"""Bytes that may be kept for who may keep little."""
SESSIONS = 4
"""Of one caller."""
MOMENT = "1s"
"""How long a call may wait for its turn where that is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs. `gateways` has them by the way they refuse, `servers` an origin by era."""

    hosts: Mapping[str, SteppedHost]
    gateways: Mapping[str, GatewayProcess]
    servers: Mapping[str, str]
    issuer: TokenIssuer
    folder: Path

    @asynccontextmanager
    async def connected(
        self, kind: Kind, scene: str, *, way: str = "jsonrpc", mount: str = ""
    ) -> AsyncIterator[Connected]:
        """That host as the caller of that scene, from an address of its own."""
        url, headers = self._as_caller(kind, scene, way, mount)
        async with self.hosts[kind.name].connected(url, headers) as connection:
            yield connection

    async def connect(self, kind: Kind, scene: str) -> Told:
        """What that host is told when it only tries to connect."""
        return await self.hosts[kind.name].step("tried", "connect", *self._as_caller(kind, scene, "jsonrpc", ""))

    def _as_caller(self, kind: Kind, scene: str, way: str, mount: str) -> tuple[str, dict[str, str]]:
        token = self.issuer.token(AUDIENCE, subject=f"{kind.name} {scene}", scene=scene)
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"192.0.2.{1 + KINDS.index(kind)}"}
        return f"http://{self.gateways[way].listen}/{mount or kind.era}/mcp", headers

    async def ask(self, kind: Kind, what: str, key: str) -> str:
        """Of the server about the runs of a key: `began` waits for one, `let_go` ends them, `runs` counts."""
        async with bounded(), httpx.AsyncClient(trust_env=False) as http:
            return (await http.get(f"{self.servers[kind.era]}/{what}/{key}")).text

    async def refused(self, way: str) -> int:
        """How many calls were refused there for their rate."""
        async with bounded(), httpx.AsyncClient(trust_env=False) as http:
            page = (await http.get(f"http://{self.gateways[way].admin}/metrics")).text
        found = re.search(r'decisions_total{decision="rejected",policy="calls",scope="context"} (\d+)', page)
        return int(found[1]) if found else 0

    @property
    def store(self) -> Path:
        """The file of the gateway that refuses by errors of JSON-RPC."""
        return self.folder / "jsonrpc" / "taskgate.db"


def configured(servers: Mapping[str, str], issuer: TokenIssuer, way: str, folder: Path) -> Path:
    """A gateway's configuration."""
    folder.mkdir()
    listen = f"127.0.0.1:{free_port()}"
    return write_configuration(
        folder,
        "",
        server={
            "listen": listen,
            "trusted_proxies": ["127.0.0.0/8"],
            "max_streams_per_context": 1,
            "drain": {"delay": "0s", "timeout": "5s"},
        },
        auth={
            "mode": "required",
            "issuers": {"corp": {**issuer.section, "audience": [AUDIENCE]}},
            "lookup_failures": {"threshold": 2, "window": "1m", "penalty": "1s"},
        },
        authorization={
            "rules": [
                {"methods": ["tools/call"], "tool": "forbidden", "effect": "deny"},
                {"methods": ["tools/call"], "tool": "privileged", "require_scopes": ["admin"]},
            ]
        },
        upstreams=upstreams(servers),
        tasks={
            "upgrade": [{"tool": tool, "mode": mode} for tool, mode in MODES.items()],
            "poll_interval": {"base": "50ms", "min": "50ms", "adaptive": False},
            "early_poll": {"reject_above": MANY},
        },
        limits=limits(way),
        store={"sqlite": {"path": str(folder / "taskgate.db"), "busy_timeout": "100ms"}},
        logging={"level": "debug"},
    )


MODES = {"hold": "always", "report": "always", "*": "sync"}


def upstreams(servers: Mapping[str, str]) -> dict[str, Any]:
    """Of each server one mount, one that is asked too often, and for each of its hosts two with room for one call."""
    told: dict[str, Any] = {}
    for era, server in servers.items():
        told |= {era: {}, f"door-{era}": {}}
        for kind in KINDS:
            if kind.era == era:
                told[f"full-{kind.name}"] = {"concurrency": 1, "queue": {"size": 0}}
                told[f"slow-{kind.name}"] = {"concurrency": 1, "queue": {"size": 8, "max_wait": MOMENT}}
        for name, more in told.items():
            if "url" not in more:
                more |= {"path": f"/{name}/mcp", "url": f"{server}/mcp", "health": None}
    return told


def limits(way: str) -> dict[str, Any]:
    """Limits that nobody meets but whose scene it is."""
    wide = {"scope": "context", "rate": f"{MANY}/s", "burst": MANY}
    doors = [
        {
            "name": f"door-{era}",
            "scope": "ip",
            "rate": "1/s",
            "burst": 10,
            "upstream": f"door-{era}",
            "before_auth": True,
        }
        for era in RELEASES
    ]
    own: dict[str, Any] = {
        "calls": {"rate": {"calls": "1/s"}},
        "polls": {"rate": {"polls": "2/s"}},
        "concurrency": {"concurrency": {"tasks_per_context": 1}},
        "greetings": {"rate": {"greetings": "1/s"}},
        "bytes": {"concurrency": {"kept_per_context": f"{LITTLE // 1024}KiB"}},
    }
    return {
        "reject_as": way,
        "wait": "0s",
        "concurrency": {"sessions_per_context": SESSIONS},
        "rate": [
            {"name": "calls", "methods": ["tools/call"], **wide},
            {"name": "polls", "methods": ["tasks/*"], **wide},
            {"name": "greetings", "methods": ["initialize", "server/discover"], **wide},
            *doors,
        ],
        "overrides": [{"match": {"claims": {"scene": [scene]}}, **more} for scene, more in own.items()],
    }


@asynccontextmanager
async def stage_in(folder: Path) -> AsyncIterator[Stage]:
    """All of it, for the length of the block."""
    issuer = TokenIssuer(folder)
    async with AsyncExitStack() as running:
        servers = {}
        for era, release in RELEASES.items():
            url = await running.enter_async_context(python_server("refusals_server.py", release, folder))
            servers[era] = url.removesuffix("/mcp")
        hosts = {kind.name: await running.enter_async_context(stepped_host(kind, folder)) for kind in KINDS}
        gateways = {}
        for way in WAYS:
            file = configured(servers, issuer, way, folder / way)
            log = folder / way / "gateway.log"
            gateways[way] = await running.enter_async_context(gateway_process(["--config", file], log=log))
        yield Stage(hosts=hosts, gateways=gateways, servers=servers, issuer=issuer, folder=folder)
