"""The compose file starts what its configuration names, and the image's lock fits the requirements."""

import re
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from ruamel.yaml import YAML

from requirements import covers
from taskgate import config as settings
from taskgate.cli import main
from taskgate.operators.access import OperatorAccess
from taskgate.wiring.shutdown import GRACE

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = YAML(typ="safe").load(ROOT / "compose.yaml")
SERVICES, NETWORKS = COMPOSE["services"], COMPOSE["networks"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def config(tmp_path: Path) -> settings.GatewayConfig:
    """The configuration of the compose file, with keys that are made up."""
    for name in ("context", "audit"):
        (tmp_path / f"taskgate-{name}.key").write_text("A" * 43)
    file = tmp_path / "taskgate.yaml"
    (tmp_path / "password").write_text("p4ssword\n")
    (tmp_path / "password").chmod(0o600)
    text = (ROOT / "deploy/compose/taskgate.yaml").read_text()
    for place in ("/var/lib/taskgate", "/run/store"):
        text = text.replace(place, str(tmp_path))
    file.write_text(text)
    return settings.load(file, {})


def networks_of(service: str) -> set[str]:
    """The networks that a service is in; one that names none is in the network of all."""
    said = SERVICES[service]
    return set() if said.get("network_mode") == "none" else set(said.get("networks", ["default"]))


@covers("T25")
def test_a_server_reaches_neither_the_store_nor_the_listener_of_operators(config: settings.GatewayConfig) -> None:
    assert networks_of("server") == {"servers"}
    assert {name for name in SERVICES if "servers" in networks_of(name)} == {"taskgate", "server"}
    assert networks_of("valkey") == {"store"}
    assert NETWORKS["store"] == {"internal": True}
    assert networks_of("prometheus") == networks_of("grafana") == {"operators"}
    assert networks_of("taskgate") == {"servers", "store", "operators"}
    assert "default" not in set().union(*map(networks_of, SERVICES))
    own = SERVICES["taskgate"]["networks"]["operators"]["ipv4_address"]
    [subnet] = NETWORKS["operators"]["ipam"]["config"]
    assert ip_address(own) in ip_network(subnet["subnet"])
    assert ip_address(own) not in ip_network(subnet["ip_range"]), "a service that starts first would get it"
    assert ip_network(subnet["ip_range"]).subnet_of(ip_network(subnet["subnet"]))
    assert str(config.admin.listen) == f"{own}:9464", "no other network reaches it"
    assert SERVICES["taskgate"]["environment"] == {"TASKGATE_ADMIN_URL": f"http://{own}:9464"}


@covers("T25")
def test_the_store_wants_the_password_that_the_gateway_has(config: settings.GatewayConfig) -> None:
    assert config.store.redis.password == "p4ssword"
    program, file, *options = SERVICES["valkey"]["command"].split()
    assert (program, file) == ("valkey-server", "/run/store/valkey.conf")
    assert "--protected-mode yes" in " ".join(options)
    mounts = [each for name in SERVICES for each in SERVICES[name].get("volumes", []) if "store-password" in each]
    assert sorted(mounts) == ["store-password:/run/store", *["store-password:/run/store:ro"] * 2]


def test_the_configuration_names_services_of_the_file(config: settings.GatewayConfig) -> None:
    assert str(config.store.redis.url) == "redis://valkey:6379/0"
    assert [each.url for each in config.upstreams.values()] == ["http://server:3000/mcp"]
    assert {"taskgate", "valkey", "server", "prometheus"} <= SERVICES.keys()
    [scraped] = YAML(typ="safe").load(ROOT / "deploy/compose/prometheus.yml")["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"taskgate:{config.admin.listen.port}"]}]


def test_no_sample_has_prometheus_ask_for_a_name_which_the_listener_of_operators_refuses(
    config: settings.GatewayConfig,
) -> None:
    """It sends the target as `Host`, and a name that the configuration does not allow gets 421."""
    access = OperatorAccess(lambda: 0.0)
    access.allowed_hosts = config.admin.allowed_hosts
    files = [ROOT / "deploy/compose/prometheus.yml", ROOT / "grafana/prometheus.yml"]
    jobs = [job for file in files for job in YAML(typ="safe").load(file)["scrape_configs"]]
    targets = [target for job in jobs for each in job.get("static_configs", []) for target in each["targets"]]
    assert [target for target in targets if not access.allows_host(target)] == []


def test_grafana_is_there_on_request_alone_and_shows_this_machine_the_dashboards_without_a_login() -> None:
    grafana, provisioning = SERVICES["grafana"], YAML(typ="safe")
    assert [name for name, said in SERVICES.items() if "profiles" in said] == ["grafana"]
    assert grafana["ports"] == ["127.0.0.1:3001:3000"]
    mounted = {target: ROOT / source for source, target, _ in (each.split(":") for each in grafana["volumes"])}
    [provider] = provisioning.load(mounted["/etc/grafana/provisioning/dashboards/taskgate.yml"])["providers"]
    boards = mounted[provider["options"]["path"]]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (str(home.parent), (boards / home.name).is_file()) == (provider["options"]["path"], True)
    [source] = provisioning.load(mounted["/etc/grafana/provisioning/datasources/taskgate.yml"])["datasources"]
    scraping = provisioning.load(ROOT / "deploy/compose/prometheus.yml")["global"]
    assert (source["url"], source["type"]) == ("http://prometheus:9090", "prometheus")
    assert source["jsonData"]["timeInterval"] == scraping["scrape_interval"]
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert {grafana["environment"][f"GF_AUTH_{key}"] for key in ("BASIC_ENABLED", "ANONYMOUS_ENABLED")} == {
        "false",
        "true",
    }


def test_the_port_is_for_this_machine_alone_since_hosts_are_not_authenticated(config: settings.GatewayConfig) -> None:
    assert (config.auth.mode, SERVICES["taskgate"]["ports"]) == ("none", ["127.0.0.1:8080:8080"])
    assert config.server.listen.port == 8080


def test_the_gateway_has_ended_before_it_is_killed(config: settings.GatewayConfig) -> None:
    longest = config.server.drain.delay + config.server.drain.timeout + GRACE
    assert int(SERVICES["taskgate"]["stop_grace_period"].removesuffix("s")) > longest.total_seconds()


def test_the_files_that_are_mounted_are_there() -> None:
    mounted = [each.split(":")[0] for service in SERVICES.values() for each in service.get("volumes", [])]
    assert [each for each in mounted if each.startswith(".") and not (ROOT / each).exists()] == []


def test_each_image_is_built_by_one_service() -> None:
    """Compose builds side by side, and two builds of one name fail now and then: the image exists already."""
    built = [service["image"] for service in SERVICES.values() if "build" in service]
    assert built == ["taskgate"]


def test_the_keys_are_made_by_a_command_that_there_is() -> None:
    command, *options = SERVICES["keys"]["command"]
    context = main.commands[command].make_context(command, options)
    assert (context.params["file"].parent, context.params["force"]) == (Path("/var/lib/taskgate"), True)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("image", ["redis", "tracing", "uvloop"]), ("dev", [*PROJECT["optional-dependencies"]])],
)
def test_a_lock_has_every_requirement_in_a_release_that_is_accepted(lock: str, extras: list[str]) -> None:
    text = (ROOT / f"deploy/locks/{lock}.txt").read_text()
    locked = {name: Version(version) for name, version in re.findall(r"^([\w-]+)==([^\s;\\]+)", text, re.MULTILINE)}
    more = [each for name in extras for each in PROJECT["optional-dependencies"][name]]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *more]):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name == "taskgate" or locked[name] in requirement.specifier, requirement


def test_every_line_of_the_lock_has_hashes() -> None:
    for name in ("image", "build", "dev"):
        entries = re.split(r"^(?=[\w-]+==)", (ROOT / f"deploy/locks/{name}.txt").read_text(), flags=re.MULTILINE)[1:]
        assert entries
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
