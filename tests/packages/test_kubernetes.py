"""The manifests for Kubernetes are valid, restricted, and name ports, paths and arguments that the gateway has."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.waiting import bounded
from taskgate import config as settings
from taskgate.cli import main
from taskgate.wiring.shutdown import GRACE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("single", "replicas")
WORKLOADS = {"single": FOLDER / "single" / "stateful-set.yaml", "replicas": FOLDER / "replicas" / "deployment.yaml"}
KEY = "A" * 43


def load(file: Path) -> Any:
    return YAML(typ="safe").load(file)


def resources() -> list[Path]:
    """The files of all resources that Kubernetes itself knows."""
    kustomizations = [folder / "kustomization.yaml" for folder in FOLDER.iterdir()]
    named = [file.parent / name for file in kustomizations for name in load(file)["resources"]]
    return sorted(file for file in named if file.is_file() and file.parent.name != "monitoring")


def pod_of(overlay: str) -> Any:
    return load(WORKLOADS[overlay])["spec"]["template"]["spec"]


def container_of(overlay: str) -> Any:
    [container] = pod_of(overlay)["containers"]
    return container


def configuration(overlay: str, folder: Path) -> settings.GatewayConfig:
    """The configuration of an overlay as its pod reads it, with keys that are made up."""
    for name in ("context.key", "audit.key", "valkey-password"):
        (folder / name).write_text(KEY)
        (folder / name).chmod(0o600)
    text = (FOLDER / overlay / "taskgate.yaml").read_text().replace("/etc/taskgate-keys", str(folder))
    (folder / "taskgate.yaml").write_text(text)
    return settings.load(folder / "taskgate.yaml", {})


@pytest.mark.parametrize("file", resources(), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_resource_fits_the_published_schema(file: Path) -> None:
    kubernetes_validate.validate(load(file), "1.37", strict=True)


def test_a_resource_that_does_not_fit_is_seen() -> None:
    broken = load(WORKLOADS["single"])
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


def test_every_file_of_a_folder_is_in_its_kustomization() -> None:
    for file in FOLDER.glob("*/kustomization.yaml"):
        made = load(file)
        named = {*made["resources"], *(name for each in made.get("configMapGenerator", []) for name in each["files"])}
        others = {each.name for each in file.parent.iterdir()} - {file.name}
        assert {name for name in named if not name.startswith("..")} == others


@pytest.mark.program
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_renders_an_overlay_with_the_configuration(overlay: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here, so the overlays are not rendered")
    command = (kubectl, "kustomize", FOLDER / overlay)
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    kinds = {document["kind"]: document for document in YAML(typ="safe").load_all(rendered)}
    assert kinds["ConfigMap"]["metadata"]["name"] == "taskgate"
    assert kinds["ConfigMap"]["data"]["taskgate.yaml"] == (FOLDER / overlay / "taskgate.yaml").read_text()
    for document in kinds.values():
        kubernetes_validate.validate(document, "1.37", strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_is_as_restricted_as_its_namespace_demands(overlay: str) -> None:
    pod, container = pod_of(overlay), container_of(overlay)
    labels = load(FOLDER / "base" / "namespace.yaml")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_of_the_user_and_the_volume_of_the_image(overlay: str) -> None:
    lines = (ROOT / "Dockerfile").read_text()
    context = pod_of(overlay)["securityContext"]
    assert f"\nUSER {context['runAsUser']}:{context['runAsGroup']}\n" in lines
    mounts = {each["name"]: each["mountPath"] for each in container_of(overlay)["volumeMounts"]}
    assert (
        re.findall(r"TASKGATE_DATA_DIR=(\S+)", lines) == re.findall(r"^VOLUME (\S+)", lines, re.M) == [mounts["data"]]
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_arguments_are_a_command_line_that_names_the_mounted_configuration(overlay: str) -> None:
    command, *options = container_of(overlay)["args"]
    context = main.commands[command].make_context(command, options)
    mounts = {each["name"]: each["mountPath"] for each in container_of(overlay)["volumeMounts"]}
    assert str(context.params["file"]) == f"{mounts['config']}/taskgate.yaml"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_ports_are_those_of_the_configuration(overlay: str, tmp_path: Path) -> None:
    config = configuration(overlay, tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container_of(overlay)["ports"]}
    assert ports == {"http": config.server.listen.port, "admin": config.admin.listen.port}
    assert (config.server.listen.host, config.admin.listen.host) == ("0.0.0.0", "0.0.0.0")
    service = load(FOLDER / "base" / "service.yaml")["spec"]["ports"]
    assert {each["name"]: each["port"] for each in service} == ports
    assert {each["targetPort"] for each in service} == {*ports}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_store_is_one_that_so_many_replicas_can_have(overlay: str, tmp_path: Path) -> None:
    replicas = load(WORKLOADS[overlay])["spec"]["replicas"]
    assert (configuration(overlay, tmp_path).store.backend == "redis") == (replicas > 1)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_has_ended_before_it_is_killed(overlay: str, tmp_path: Path) -> None:
    drain = configuration(overlay, tmp_path).server.drain
    longest = drain.delay + drain.timeout + GRACE
    assert pod_of(overlay)["terminationGracePeriodSeconds"] > longest.total_seconds()
    probe = container_of(overlay)["readinessProbe"]
    assert drain.delay.total_seconds() > probe["periodSeconds"] * probe["failureThreshold"]


def test_secrets_are_files_of_a_secret_alone() -> None:
    """Not variables: a file loses the line end that an editor or `echo` leaves in it."""
    [mounted] = (each["secret"]["items"] for each in pod_of("replicas")["volumes"] if "secret" in each)
    assert {each["key"] for each in mounted} == {"context.key", "audit.key", "operator.token", "valkey-password"}
    [mounted] = (each["secret"]["items"] for each in pod_of("single")["volumes"] if "secret" in each)
    assert {each["key"] for each in mounted} == {"operator.token"}
    for overlay in ("replicas", "single"):
        assert "env" not in container_of(overlay)


def test_the_two_pods_differ_in_their_store_alone() -> None:
    single, replicas = pod_of("single"), pod_of("replicas")
    for pod in (single, replicas):
        pod.pop("volumes")
        pod.pop("topologySpreadConstraints", None)
        [container] = pod["containers"]
        container["volumeMounts"] = container["volumeMounts"][:2]
    assert single == replicas


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_ingress_leads_to_hosts_of_the_public_url_and_not_to_operators(overlay: str, tmp_path: Path) -> None:
    spec = load(FOLDER / "ingress" / "ingress.yaml")["spec"]
    public = configuration(overlay, tmp_path).server.public_url
    assert public is not None
    [rule] = spec["rules"]
    [path] = rule["http"]["paths"]
    assert [rule["host"]] == spec["tls"][0]["hosts"] == [urlsplit(str(public)).hostname]
    service = load(FOLDER / "base" / "service.yaml")
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": "http"}}
    assert path["path"] == "/"


@pytest.mark.program
def test_kustomize_renders_the_ingress() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here, so the ingress is not rendered")
    command = (kubectl, "kustomize", FOLDER / "ingress")
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    [document] = YAML(typ="safe").load_all(rendered)
    assert (document["kind"], document["metadata"]["namespace"]) == ("Ingress", "taskgate")
    kubernetes_validate.validate(document, "1.37", strict=True)


def test_the_service_monitor_is_the_sample_of_the_dashboards() -> None:
    monitor = FOLDER / "monitoring" / "service-monitor.yaml"
    assert load(monitor) == load(ROOT / "grafana" / "provisioning" / "servicemonitor.yml")


@pytest.mark.program
async def test_the_probes_ask_for_what_a_gateway_answers(tmp_path: Path) -> None:
    probes = {
        (
            container_of(overlay)[f"{kind}Probe"]["httpGet"]["path"],
            container_of(overlay)[f"{kind}Probe"]["httpGet"]["port"],
        )
        for overlay in OVERLAYS
        for kind in ("startup", "liveness", "readiness")
    }
    [endpoint] = load(FOLDER / "monitoring" / "service-monitor.yaml")["spec"]["endpoints"]
    probes.add((endpoint["path"], endpoint["port"]))
    assert {port for _, port in probes} == {"admin"}
    file = write_configuration(tmp_path, "http://127.0.0.1:1/mcp")
    async with (
        gateway_process(["--config", file], log=tmp_path / "log") as gateway,
        aiohttp.ClientSession() as http,
        bounded(),
    ):
        answers = await asyncio.gather(*(http.get(f"http://{gateway.admin}{path}") for path, _ in probes))
        assert [answer.status for answer in answers] == [200] * len(probes), json.dumps(sorted(probes))
