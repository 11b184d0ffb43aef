"""compose.yaml started as it says: its commands, its files, its order, each service as a process of this machine.

The images are not here: the programs of this machine take their place, and Prometheus finds the gateway by a fixed
target in place of the DNS of Docker.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from example import prometheus
from example.processes import Child, running
from ruamel.yaml import YAML

from helpers import told
from helpers.gateway.process import GatewayProcess, serving
from helpers.prometheus_server import require_prometheus
from helpers.store_server import valkey_binary
from helpers.waiting import bounded, until
from packages.containers import PROGRAMS, ROOT, ContainerFiles, in_order, loopback_addresses, require_ports, words_of

pytestmark = [pytest.mark.program, pytest.mark.timeout(300)]

EVERY_SERVICE = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
SERVICES = {name: said for name, said in EVERY_SERVICE.items() if "profiles" not in said}
PORTS = (3000, 6379, 8080, 9464)
KEYS = ("taskgate-context.key", "taskgate-audit.key")
REPORT = "Report for Q3: revenue, costs, staff, forecast, summary."
# In place of a name that Docker's DNS knows, and looked at often enough for a test.
TARGET = "taskgate:9464"
EVERY = ("15s", "500ms")


class ComposeServices:
    """The services, started one by one or all in their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses = loopback_addresses(*SERVICES)
        require_ports(self._addresses["taskgate"], *PORTS)
        self.files = {name: self._files(name) for name in SERVICES}

    def _files(self, name: str) -> ContainerFiles:
        published = {
            each.rpartition(":")[0]: f"{self._addresses[service]}:{each.rpartition(':')[2]}"
            for service, said in SERVICES.items()
            for each in said.get("ports", [])
        }
        fixed = {TARGET: f"{self._addresses['taskgate']}:9464", EVERY[0]: EVERY[1]} if name == "prometheus" else {}
        hosts = {f"//{each}": f"//{address}" for each, address in self._addresses.items()}
        for each, said in SERVICES.items():
            for network in dict(said["networks"]).values() if isinstance(said.get("networks"), dict) else ():
                if "ipv4_address" in network:
                    hosts[network["ipv4_address"]] = self._addresses[each]
        files = ContainerFiles(self._folder / name, self._addresses[name], {**published, **hosts, **fixed})
        for each in SERVICES[name].get("volumes", []):
            source, target = each.split(":")[:2]
            place = ROOT / source if source.startswith(".") else self._folder / "volumes" / source
            if not source.startswith("."):
                place.mkdir(parents=True, exist_ok=True)
            files.mount(target, place)
        return files

    def published(self, name: str) -> str:
        """The address at which hosts of this machine reach a service."""
        [port] = SERVICES[name]["ports"]
        return f"{self._addresses[name]}:{port.rpartition(':')[2]}"

    def address(self, name: str) -> str:
        """The address of a service in the networks of the file."""
        return self._addresses[name]

    def command(self, name: str) -> list[str | Path]:
        """The command of a service, with the program of this machine in place of that of its image."""
        said, files = SERVICES[name], self.files[name]
        words = words_of(said.get("command"))
        match said["image"].rpartition("/")[2].partition(":")[0]:
            case "taskgate":
                return [*files.command(words, said.get("environment", {}))]
            case "python":
                # pip finds the release that is here, and must fetch nothing.
                return ["env", f"PATH={PROGRAMS}:/usr/bin:/bin", "PIP_NO_INDEX=1", *map(files.here, words)]
            case "valkey" if words[0] == "sh":
                # Compose reads two dollar signs as one.
                return [*words[:-1], files.here(words[-1]).replace("$$", "$")]
            case "valkey":
                program, *options = map(files.here, words)
                assert program == "valkey-server"
                return [valkey_binary(), *options, "--bind", files.address, "--dir", files.at("/data")]
            case "prometheus":
                # On a free port: the service of Debian's package may have its own.
                return prometheus.command(files.at("/etc/prometheus/prometheus.yml"), files.at("/prometheus"))
            case other:
                raise AssertionError(f"no program of this machine takes the place of {other}")

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[Child]:
        """One service for the length of a block."""
        log = self._folder / f"{name}.log"
        try:
            async with running(self.command(name), log=log) as child:
                yield child
        finally:
            if name == "taskgate":
                told.now().hear(log.read_text(errors="replace"))

    async def to_its_end(self, name: str) -> None:
        """Run a service that has to end well."""
        async with self.one(name) as child, bounded():
            assert await child.process.wait() == 0, child.log.read_text()

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Mapping[str, Child]]:
        """All services for the length of a block, each started as soon as those that it depends on allow."""
        ends = {
            needed
            for said in SERVICES.values()
            for needed, how in said.get("depends_on", {}).items()
            if how["condition"] == "service_completed_successfully"
        }
        async with AsyncExitStack() as stack:
            started: dict[str, Child] = {}
            for name in in_order(SERVICES):
                if name in ends:
                    await self.to_its_end(name)
                else:
                    started[name] = await stack.enter_async_context(self.one(name))
            yield started


class Said(NamedTuple):
    """The end of a command of taskgate: its exit status, and its standard output."""

    status: int | None
    output: str


async def taskgate(*arguments: str) -> Said:
    command = [PROGRAMS / "taskgate", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with bounded():
        printed, _ = await process.communicate()
    return Said(process.returncode, printed.decode())


async def said_without_password(address: str) -> bytes:
    """What Valkey answers a container that has no password."""
    async with bounded():
        reader, writer = await asyncio.open_connection(address, 6379)
        try:
            writer.write(b"KEYS *\r\n")
            return await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()


async def healthy(gateway: GatewayProcess) -> None:
    """Wait until the health check of the image says so, as Docker does."""
    await until(lambda: taskgate("health", "--admin", f"http://{gateway.admin}"), lambda said: said.status == 0)


async def test_a_task_is_made_through_the_services_and_their_prometheus_sees_it(tmp_path: Path) -> None:
    require_prometheus()
    services = ComposeServices(tmp_path)
    async with services.up() as started:
        async with bounded():
            await started["server"].said(rb"Uvicorn running on ")
        gateway = await serving(started["taskgate"])
        await healthy(gateway)
        url = f"http://{services.published('taskgate')}"
        called = await taskgate(
            "call", "/reports/mcp", "generate_report", "--arg", "quarter=Q3", "--arg", "seconds=0.1", "--task",
            "--url", url,
        )  # fmt: skip
        assert called == (0, f"{REPORT}\n")
        assert (await said_without_password(services.address("valkey"))).startswith(b"-NOAUTH ")
        async with bounded():
            seen = (await started["prometheus"].said(prometheus.LISTENS))[1].decode()
            await started["prometheus"].said(rb"Server is ready")
            [up] = await prometheus.wait_for(seen, 'up{job="taskgate"} == 1')
            [tasks] = await prometheus.wait_for(seen, "sum by (upstream) (taskgate_tasks_started_total) > 0")
            groups: Any = await prometheus.get(seen, "/api/v1/rules")
        assert (tasks.labels, tasks.value) == ({"upstream": "reports"}, 1)
        assert len(groups["groups"]) >= len([*(ROOT / "grafana" / "alerts").glob("*.yml")])
        assert up.labels["instance"] == gateway.admin
        gateway.ask(signal.SIGTERM)
        async with asyncio.timeout(float(SERVICES["taskgate"]["stop_grace_period"].removesuffix("s"))):
            assert await gateway.child.process.wait() == 0
        assert "drained" in {line["event"] for line in gateway.log_lines()}


async def test_keys_that_are_there_stay_as_they_are_when_the_services_start_again(tmp_path: Path) -> None:
    services = ComposeServices(tmp_path)
    files = services.files["taskgate"]
    made = [files.at("/var/lib/taskgate") / name for name in KEYS] + [files.at("/run/store") / "password"]
    for name in ("keys", "password"):
        await services.to_its_end(name)
    before = [file.read_bytes() for file in made]
    assert len(before[-1].strip()) > 32
    for name in ("keys", "password"):
        await services.to_its_end(name)
    assert [file.read_bytes() for file in made] == before
