"""The pods of the manifests for Kubernetes, started as kustomize renders them, each as a process of this machine.

What the comment of each configuration says has to be edited is edited: the public URL, the server, the issuer and the
Valkey are those of the test. Volumes have the layout and the modes that the kubelet gives them.
"""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from example.processes import UVICORN_LISTENS, running
from ruamel.yaml import YAML

from helpers import secrets, told
from helpers.certificates import Authority
from helpers.gateway.process import GatewayProcess, serving
from helpers.store_server import SharedServer
from helpers.waiting import bounded, eventually, until
from packages.containers import PROGRAMS, ROOT, ContainerFiles, loopback_addresses, require_ports

pytestmark = [pytest.mark.program, pytest.mark.timeout(300)]

OVERLAYS = ("single", "replicas")
REPORT = "Report for Q3: revenue, costs, staff, forecast, summary."
EDITED = {
    "single": {"https://mcp.example.com", "http://reports.default.svc:3000/mcp", "https://idp.example.com/"},
    "replicas": {
        "https://mcp.example.com", "http://reports.default.svc:3000/mcp", "https://idp.example.com/",
        "valkey.example.com:6379",
    },
}  # fmt: skip
ISSUED_AT = rb"Tokens are issued at (http://\S+)\n"
PASSWORD = "of-the-valkey-of-the-pods"
# The kubelet lets the group of the pod write a volume, and all users an emptyDir. Both are mounts there, where the
# gateway accepts it. Here they are folders, where it would not.
_VOLUME = 0o2755


@cache
def rendered(overlay: str) -> Mapping[str, Any]:
    """The documents of an overlay by their kind, as `kubectl apply -k` sends them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here, so the overlays are not rendered")
    command = (kubectl, "kustomize", ROOT / "deploy" / "kubernetes" / overlay)
    text = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    return {document["kind"]: document for document in YAML(typ="safe").load_all(text)}


def workload(overlay: str) -> Any:
    kinds = rendered(overlay)
    return (kinds.get("StatefulSet") or kinds["Deployment"])["spec"]


def secret_of_the_page(folder: Path) -> dict[str, str]:
    """The Secret that the commands of the page make, its password with the line end that an editor leaves."""
    [made] = re.findall(r"^(for key in .*?^done)$", (ROOT / "docs" / "install.md").read_text(), re.M | re.S)
    subprocess.run(["bash", "-euc", made], cwd=folder, timeout=30, check=True)
    (folder / "valkey-password").write_text(f"{PASSWORD}\n")
    names = ("context.key", "audit.key", "operator.token", "valkey-password")
    return {name: (folder / name).read_text() for name in names}


class Pod:
    """One pod of an overlay: its volumes, and its only container."""

    def __init__(self, folder: Path, overlay: str, edits: Mapping[str, str], secret: Mapping[str, str]) -> None:
        [self.address] = loopback_addresses("pod").values()
        require_ports(self.address, 8080, 9464)
        self.public_url = f"http://{self.address}:8080"
        kinds, self.spec = rendered(overlay), workload(overlay)["template"]["spec"]
        [self.container] = self.spec["containers"]
        texts = {**edits, "https://mcp.example.com": self.public_url}
        assert texts.keys() == EDITED[overlay]
        self._files = ContainerFiles(folder / "root", self.address, texts)
        self._folder = folder
        self._volumes = {name: folder / "volumes" / name for name in self._names_of_volumes(overlay)}
        for mounted in self.container["volumeMounts"]:
            self._volumes[mounted["name"]].mkdir(parents=True)
            self._files.mount(mounted["mountPath"], self._volumes[mounted["name"]])
        self._config = kinds["ConfigMap"]["data"]
        assert [text for text in texts if text not in self._config["taskgate.yaml"]] == []
        self._fill(overlay, secret)

    def _names_of_volumes(self, overlay: str) -> set[str]:
        claims = workload(overlay).get("volumeClaimTemplates", [])
        return {each["name"] for each in self.spec["volumes"]} | {each["metadata"]["name"] for each in claims}

    def _fill(self, overlay: str, secret: Mapping[str, str]) -> None:
        for volume in self.spec["volumes"]:
            match volume:
                case {"configMap": {"name": name}}:
                    assert name == rendered(overlay)["ConfigMap"]["metadata"]["name"]
                    self.publish("taskgate.yaml", self._config["taskgate.yaml"])
                case {"secret": {"items": items, "defaultMode": mode}}:
                    for each in items:
                        file = self._volumes[volume["name"]] / each["path"]
                        file.write_text(secret[each["key"]])
                        file.chmod(mode)
                case {"emptyDir": _}:
                    self._volumes[volume["name"]].chmod(_VOLUME)
                case other:
                    raise AssertionError(f"no folder of this machine takes the place of {other}")
        for claim in workload(overlay).get("volumeClaimTemplates", []):
            self._volumes[claim["metadata"]["name"]].chmod(_VOLUME)

    def publish(self, name: str, text: str) -> None:
        """Put a ConfigMap into its volume as the kubelet does: a folder of its own, and a link that is swapped."""
        [volume] = (self._volumes[each["name"]] for each in self.spec["volumes"] if "configMap" in each)
        made = volume / f"..{len([*volume.iterdir()])}"
        made.mkdir()
        (made / name).write_text(self._files.here(text))
        beside = volume / "..data_tmp"
        beside.symlink_to(made.name)
        beside.replace(volume / "..data")
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")

    def change(self, old: str, new: str) -> None:
        """Apply a ConfigMap with another text."""
        assert old in self._config["taskgate.yaml"]
        self.publish("taskgate.yaml", self._config["taskgate.yaml"].replace(old, new))

    def url(self, port: str, path: str = "") -> str:
        """The URL of a port by its name."""
        ports = {each["name"]: each["containerPort"] for each in self.container["ports"]}
        return f"http://{self.address}:{ports[port]}{path}"

    async def asked(self, http: aiohttp.ClientSession, probe: str) -> int | None:
        """The status that a probe gets, with the address of the pod as its Host; None where nothing listens."""
        get = self.container[f"{probe}Probe"]["httpGet"]
        try:
            async with http.get(self.url(get["port"], get["path"])) as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return None

    @asynccontextmanager
    async def running(self, more: Mapping[str, str]) -> AsyncIterator[GatewayProcess]:
        """The container for the length of a block, once it serves; with its own variables, and more."""
        variables = {each["name"]: each["value"] for each in self.container.get("env", [])}
        command = self._files.command(self.container["args"], {**variables, **more})
        log = self._folder / "log"
        try:
            async with running(command, log=log) as child:
                yield await serving(child)
        finally:
            told.now().hear(log.read_text(errors="replace"))


class Cluster:
    """What pods are edited to use: a server, an issuer, and a Redis with TLS and a password."""

    def __init__(self, folder: Path, server: str, issuer: str, valkey: SharedServer, authority: Authority) -> None:
        self._folder = folder
        self._issuer = issuer
        self.edits = {"http://reports.default.svc:3000/mcp": server, "https://idp.example.com/": issuer}
        self.shared = {"valkey.example.com:6379": valkey.address}
        self.trusted = {"SSL_CERT_FILE": str(authority.file)}

    def pod(self, overlay: str) -> Pod:
        edits = {**self.edits, **(self.shared if overlay == "replicas" else {})}
        folder = self._folder / overlay
        folder.mkdir()
        return Pod(folder, overlay, edits, secret_of_the_page(folder))

    async def token(self, pod: Pod) -> Path:
        """A file with a token of alice for the server of a pod."""
        form = {"grant_type": "password", "username": "alice", "password": "alice"}
        form["resource"] = f"{pod.public_url}/reports/mcp"
        async with bounded(), aiohttp.ClientSession() as http, http.post(f"{self._issuer}/token", data=form) as answer:
            token = (await answer.json())["access_token"]
        file = self._folder / "token"
        file.write_text(secrets.noted(token))
        file.chmod(0o600)
        return file


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = Authority(tmp_path)
    programs = {"server": ["server.py", "--port", "0"], "issuer": ["issuer.py"]}
    says = {"server": UVICORN_LISTENS, "issuer": ISSUED_AT}
    async with AsyncExitStack() as stack:
        urls = {}
        for name, (script, *options) in programs.items():
            command = (sys.executable, ROOT / "example" / script, *options)
            child = await stack.enter_async_context(running(command, log=tmp_path / f"{name}.log"))
            async with bounded():
                urls[name] = (await child.said(says[name]))[1].decode()
        valkey = SharedServer(tmp_path, "redis", durable=True, tls=authority, password=secrets.noted(PASSWORD))
        await stack.enter_async_context(valkey)
        yield Cluster(tmp_path, f"{urls['server']}/mcp", urls["issuer"], valkey, authority)


async def called(pod: Pod, token: Path, *arguments: str) -> str:
    """The output of `taskgate call` as a host of the pod."""
    command = (PROGRAMS / "taskgate", "call", "/reports/mcp", *arguments, "--url", pod.url("http"), "--token", token)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with bounded():
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_a_pod_answers_its_probes_makes_a_task_and_ends_before_it_is_killed(
    cluster: Cluster, overlay: str
) -> None:
    pod = cluster.pod(overlay)
    async with pod.running(cluster.trusted) as gateway, aiohttp.ClientSession() as http:
        for probe in ("startup", "liveness", "readiness"):
            await until(lambda probe=probe: pod.asked(http, probe), lambda status: status == 200)
        report = ("generate_report", "--arg", "quarter=Q3", "--arg", "seconds=0.1", "--task")
        assert await called(pod, await cluster.token(pod), *report) == f"{REPORT}\n"
        gateway.ask(signal.SIGTERM)
        # Kubernetes takes its hosts away while it answers still.
        await until(lambda: pod.asked(http, "readiness"), lambda status: status == 503)
        assert await pod.asked(http, "liveness") == 200
        async with asyncio.timeout(pod.spec["terminationGracePeriodSeconds"]):
            assert await gateway.child.process.wait() == 0
        assert "drained" in {line["event"] for line in gateway.log_lines()}


async def test_a_pod_reads_a_config_map_that_was_changed_without_a_restart(cluster: Cluster) -> None:
    pod = cluster.pod("single")
    async with pod.running(cluster.trusted) as gateway, aiohttp.ClientSession() as http:
        await until(lambda: pod.asked(http, "readiness"), lambda status: status == 200)
        pod.change("    path: /reports/mcp\n", "    path: /reports/mcp\n    timeouts: {call: 7m}\n")
        await eventually(lambda: "configuration reloaded" in {line["event"] for line in gateway.log_lines()})
