"""Gateways as programs before servers that misbehave, and what operators see of them: `playing`, `Scene`.

All programs run at once. One Prometheus scrapes them and has the rules as they are shipped.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process, taskgate
from helpers.gateway.replicas import key_file, store_section
from helpers.host.host import Host
from helpers.prometheus_server import PrometheusServer
from helpers.server import Hold, Reply, ScriptedServer, raw, status
from helpers.small_disk import SmallDisk, small_disk
from helpers.store_server import SharedServer
from observability.incidents import Incident

PLACES: Final = ("log", "readyz", "doctor", "upstreams", "alert")
SCRAPED: Final = "5s"
"""How often Prometheus scrapes the gateways and evaluates the rules."""
PAUSE: Final = 1.0
"""Seconds between two calls of a host."""
SERVERS: Final = ("dead", "hanging", "busy", "limited", "revoked", "login", "full", "stuck")
TOKEN: Final = "0123456789abcdef" * 4
LARGE: Final = {"text": "x" * 20_000}


@dataclass(frozen=True, slots=True)
class Said:
    """What the places say at one moment of one gateway: log lines, documents, output, and the alerts that fire."""

    lines: Sequence[Mapping[str, Any]]
    readyz: str
    doctor: str
    upstreams: str
    alerts: Mapping[str, Sequence[Mapping[str, str]]]


class Scene:
    """The programs by name, the servers by name, and disks; all are well until `break_all`."""

    def __init__(
        self,
        folder: Path,
        http: aiohttp.ClientSession,
        servers: Mapping[str, ScriptedServer],
        disks: Sequence[SmallDisk],
        gateways: Mapping[str, GatewayProcess],
        prometheus: PrometheusServer,
    ) -> None:
        self._folder = folder
        self._http = http
        self._servers = servers
        self._disks = disks
        self._gateways = gateways
        self._prometheus = prometheus
        self._hold = Hold()

    async def break_all(self) -> None:
        """Have all incidents begin."""
        await self._servers["dead"].stop()
        _answers("hanging", self._servers, self._hold)
        _answers("busy", self._servers, status(503))
        _answers("limited", self._servers, status(429))
        _answers("revoked", self._servers, status(401))
        _answers("login", self._servers, raw(b"<html>", content_type="text/html"))
        self._servers["full"].script["echo"] = self._servers["stuck"].script["echo"] = self._hold
        await Host(self._http, self._gateways["main"].url("stuck"), era="modern").start("echo")
        for disk in self._disks:
            disk.fill()
        self._gateways["first"].kill()

    def end(self) -> None:
        """Have servers answer what they still hold."""
        self._hold.release({"content": []})

    async def call_repeatedly(self, mount: str, gateway: str, pause: float) -> None:
        """Call a tool again and again, until cancelled; a call waits for no other."""
        host = Host(self._http, self._gateways[gateway].url(mount), era="modern")
        async with asyncio.TaskGroup() as calls:
            while True:
                calls.create_task(_try_to_call(host))
                await asyncio.sleep(pause)

    async def look(self, gateway: str) -> Said:
        """Return what all places say now of a gateway."""
        process, token = self._gateways[gateway], str(self._folder / "operator.token")
        admin = f"http://{process.admin}"
        async with self._http.get(f"{admin}/readyz?verbose") as response:
            readyz = await response.text()
        return Said(
            lines=process.log_lines(),
            readyz=readyz,
            doctor=await self._command("doctor", "--admin", admin),
            upstreams=await self._command("upstreams", "ls", "--admin", admin, "--token", token),
            alerts=await self._prometheus.firing(),
        )

    def showing(self, incident: Incident, said: Said) -> set[str]:
        """Return the places that show an incident, with the name of its server if it is about one."""
        name, instance = incident.upstream, self._gateways[incident.scraped or incident.gateway].admin
        rows = [row for row in said.upstreams.splitlines() if row.startswith(f"{name}\t")]
        state = said.readyz if name is None else said.readyz.partition(f'"{name}":')[2].partition("}")[0]
        lines = [line for line in said.lines if line["event"] == incident.log]
        firing = [each for each in said.alerts.get(incident.alert, ()) if each["instance"] == instance]
        shown = {
            "log": any(name in (None, line.get("upstream")) for line in lines),
            "readyz": incident.readyz in state,
            "doctor": incident.doctor in said.doctor,
            "upstreams": name is None or any(incident.cause in row for row in rows),
            "alert": bool(incident.later) or any(name in (None, each.get("upstream")) for each in firing),
        }
        return {place for place, is_shown in shown.items() if is_shown}

    async def _command(self, *command: str) -> str:
        return (await asyncio.to_thread(taskgate, *command, folder=self._folder)).stdout


@asynccontextmanager
async def playing(folder: Path, store: SharedServer) -> AsyncIterator[Scene]:
    """The scene, once every program serves, every server has answered a call, and Prometheus has seen all."""
    token = folder / "operator.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        servers = {name: await stack.enter_async_context(ScriptedServer("modern")) for name in SERVERS}
        tasks, audit = (stack.enter_context(small_disk(folder / name)) for name in ("tasks", "audit"))
        gateways: dict[str, GatewayProcess] = {}
        for name, sections in _sections(folder, servers, tasks, audit, store).items():
            own = folder / f"gateway-{name}"
            own.mkdir()
            admin = {"listen": "127.0.0.1:0", "token_file": str(token)}
            file = write_configuration(own, servers["full"].url, **{"admin": admin, **sections})
            program = gateway_process(["--config", file], log=own / "gateway.log")
            gateways[name] = await stack.enter_async_context(program)
        targets = [gateway.admin for gateway in gateways.values()]
        prometheus = await stack.enter_async_context(PrometheusServer(folder, *targets, interval=SCRAPED))
        for name in SERVERS:
            await Host(http, gateways["main"].url(name), era="modern").call("echo")
        await prometheus.has_seen_all()
        scene = Scene(folder, http, servers, (tasks, audit), gateways, prometheus)
        async with asyncio.TaskGroup() as hosts:
            # A queue with room for one call is full only if another call comes as soon as one leaves.
            paces = {**dict.fromkeys(SERVERS[:-1], PAUSE), "full": PAUSE / 5}
            calling = [hosts.create_task(scene.call_repeatedly(name, "main", pace)) for name, pace in paces.items()]
            calling.append(hosts.create_task(scene.call_repeatedly("reports", "disks", PAUSE)))
            try:
                yield scene
            finally:
                scene.end()
                for each in calling:
                    each.cancel()


def _sections(
    folder: Path, servers: Mapping[str, ScriptedServer], tasks: SmallDisk, audit: SmallDisk, store: SharedServer
) -> dict[str, dict[str, Any]]:
    """The configuration of each program, by its name, beside what all have."""
    upstreams: dict[str, dict[str, Any]] = {
        name: {"path": f"/{name}/mcp", "url": server.url, "protocol_version": "auto"}
        for name, server in servers.items()
    }
    upstreams["full"] |= {"concurrency": 1, "queue": {"size": 1}}
    upstreams["stuck"] |= {"timeouts": {"call": "20s", "ceiling": "20s"}}
    issuer = {"issuer": "https://idp.example.com/", "jwks_uri": "http://127.0.0.1:1/keys"}
    replica = {
        "store": store_section(store.options(), heartbeat="500ms"),
        "auth": {"mode": "none", "context": {"key_file": str(key_file(folder))}},
        "audit": {"enabled": False},
    }
    return {
        "main": {"upstreams": upstreams, "tasks": {"upgrade": [{"upstream": "stuck", "tool": "*", "mode": "always"}]}},
        "guarded": {"auth": {"mode": "required", "issuers": {"corp": issuer}}},
        "disks": {
            "store": {"sqlite": {"path": str(tasks.folder / "taskgate.db")}},
            "audit": {"sinks": [{"name": "file", "type": "file", "path": str(audit.folder / "audit.jsonl")}]},
            "tasks": {"upgrade": [{"tool": "*", "mode": "always"}]},
        },
        "first": replica,
        "second": replica,
    }


def _answers(name: str, servers: Mapping[str, ScriptedServer], reply: Reply) -> None:
    """Have a server answer each request so."""
    methods = ("initialize", "ping", "server/discover", "tools/list", "tools/call")
    servers[name].methods.update(dict.fromkeys(methods, reply))


async def _try_to_call(host: Host) -> None:
    # A host gives up after a while.
    with suppress(TimeoutError):
        await host.call("echo", LARGE)
