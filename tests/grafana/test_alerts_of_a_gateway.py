"""The alert rules in a real Prometheus that scrapes a real gateway: what happens there is what fires, and nothing else.

The rules are those of the project, but that those wait for nothing (`for`) which do not judge how fast a machine is.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from helpers.alert_rules import Rule, write_changed
from helpers.gateway.configuration import write_configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.gateway.process import gateway_process
from helpers.host.host import Host
from helpers.ports import free_port
from helpers.prometheus_server import PrometheusServer, require_prometheus
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually

CALLERS = [f"user-{number}" for number in range(14)]
CHECKED = {"method": "tools/list", "interval": "100ms", "timeout": "1s", "unhealthy_after": 1, "healthy_after": 1}
SHUT_OUT = {"name": "auth_failures", "scope": "ip", "event": "auth_failure", "rate": "1/h", "burst": 12}
TIGHT = {"name": "tight", "scope": "context", "methods": ["tools/list"], "rate": "1/h", "burst": 3}
NOBODYS = "U" * 31
MANY_POLLS = 25
FROM_WRONG_TOKENS = {"TaskgateAuthBruteForce"}
FROM_SERVERS = {"TaskgateUpstreamDown", "TaskgateCircuitOpen"}
FROM_CALLERS = {
    "TaskgateCrossContextAccess",
    "TaskgateEnumerationSuspected",
    "TaskgateExcessivePolling",
    "TaskgateHeaderMismatch",
    "TaskgateInputKeyUnknown",
    "TaskgateRateLimitRejectionsHigh",
}
OF_THE_MACHINE = {"TaskgateEventLoopBlocked", "TaskgateLatencyHigh", "TaskgateOverheadHigh", "TaskgateStoreSlow"}
"""What a slow or busy one may deserve for a moment, whatever the gateway does."""


pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def prometheus_installed() -> None:
    """Skips the test where Prometheus is not there."""
    require_prometheus()


@pytest.fixture
def rules(tmp_path: Path) -> list[Path]:
    """All rules, but that none waits which does not judge the machine."""

    def at_once(rule: Rule) -> Rule:
        if rule["alert"] in OF_THE_MACHINE:
            return rule
        return {name: value for name, value in rule.items() if name != "for"}

    folder = tmp_path / "rules"
    folder.mkdir()
    write_changed(folder, at_once)
    return [folder / "*.yml"]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server whose `echo` answers at once, and whose `slow` does not before its end."""
    hold = Hold()
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow")]
        server.script["slow"] = hold
        yield server
        hold.release({"content": []})


class Scene:
    """A gateway before that server and one that is not there, a Prometheus that saw it, and those who use it."""

    def __init__(self, gateway: Gateway, issuer: TokenIssuer, prometheus: PrometheusServer) -> None:
        self.gateway = gateway
        self.prometheus = prometheus
        self._issuer = issuer

    def host(self, user: str = "alice", mount: str = "reports") -> Host:
        """A host of that user."""
        return self.gateway.modern(mount, self._issuer.token(self.gateway.url(mount), subject=user))


@pytest.fixture
async def scene(server: ScriptedServer, tmp_path: Path, rules: list[Path]) -> AsyncIterator[Scene]:
    issuer = TokenIssuer(tmp_path)
    config = guarded(
        {"reports": server.url, "gone": "http://127.0.0.1:1/mcp"},
        issuer,
        auth={"lookup_failures": {"threshold": 8, "window": "1m", "penalty": "1m"}},
        tasks={"upgrade": [{"tool": "*", "mode": "always"}], "early_poll": {"reject_above": 1}},
        limits={"rate": [SHUT_OUT, TIGHT]},
        upstreams={
            "reports": {"path": "/reports/mcp", "url": server.url, "health": CHECKED},
            "gone": {"path": "/gone/mcp", "url": "http://127.0.0.1:1/mcp", "health": CHECKED},
        },
    )
    async with serve(config) as gateway:
        host, port = gateway.service.admin_address
        async with PrometheusServer(tmp_path, f"{host}:{port}", rules=rules) as prometheus:
            await prometheus.has_seen_all()
            yield Scene(gateway, issuer, prometheus)


async def work(scene: Scene) -> None:
    """What hosts do that mean well."""
    host = scene.host()
    await host.until((await host.start("echo"))["taskId"], "completed")
    await host.ask("tools/list")


async def look_for_what_is_not_theirs(scene: Scene) -> None:
    """A task of somebody else by a few, and by one so many that nobody has that it is shut out."""
    task = (await scene.host().start("echo"))["taskId"]
    for user in CALLERS:
        await scene.host(user).ask("tasks/get", {"taskId": task})
    for number in range(10):
        await scene.host("thief").ask("tasks/get", {"taskId": f"{NOBODYS}{number}"})


async def misbehave(host: Host) -> None:
    """Answers to nothing, headers that contradict the body, methods that are none, too many requests and polls."""
    task = (await host.start("slow"))["taskId"]
    await host.update(task, {"never-asked": {"action": "accept"}})
    await host.ask("tools/list", headers={"Mcp-Method": "tools/call"})
    for _ in range(5):
        await host.ask("tools/list")
    await host.ask("a/method/of/their/own")
    for _ in range(MANY_POLLS):
        await host.ask("tasks/get", {"taskId": task})
    await host.cancel(task)


async def test_while_all_goes_well_no_alert_fires_but_that_a_server_is_not_there(scene: Scene) -> None:
    for _ in range(3):
        await work(scene)
        await scene.prometheus.has_seen_all()
    firing = await scene.prometheus.fires({"TaskgateUpstreamDown", "TaskgateCircuitOpen"})
    assert [each["upstream"] for alert in firing.values() for each in alert] == ["gone", "gone"]


async def test_what_callers_and_servers_do_wrong_is_what_fires_and_every_rule_works(scene: Scene) -> None:
    for callers in (CALLERS[:7], CALLERS[7:]):
        await look_for_what_is_not_theirs(scene)
        for user in callers:
            await misbehave(scene.host(user))
        for _ in range(30):
            await scene.host(mount="gone").ask("resources/read", {"uri": "a://b"})
        await scene.prometheus.has_seen_all()
    for _ in range(20):
        await scene.gateway.modern(token="not a token").ask("tools/list")
    await scene.prometheus.fires(FROM_CALLERS | FROM_SERVERS | FROM_WRONG_TOKENS)
    groups = (await scene.prometheus.get("/api/v1/rules"))["groups"]
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if rule["health"] != "ok"
    ] == []


async def test_a_process_that_is_killed_and_what_it_leaves_behind_are_seen(
    server: ScriptedServer, tmp_path: Path, rules: list[Path]
) -> None:
    """Recoveries are counted before the first scrape of the process that does them.

    Both processes have one data directory: an audit log that begins anew fires TaskgateAuditChainRewound, rightly.
    """
    admin = f"127.0.0.1:{free_port()}"
    config = write_configuration(tmp_path, server.url, admin={"listen": admin})
    arguments: Sequence[str | Path] = ["--config", config]
    both = {"TASKGATE_DATA_DIR": str(tmp_path / "data")}
    async with aiohttp.ClientSession() as http, PrometheusServer(tmp_path, admin, rules=rules) as prometheus:
        async with gateway_process(arguments, log=tmp_path / "first.log", environment=both) as gateway:
            await prometheus.has_seen_all()
            host = gateway.host(http)
            await host.initialize()
            await host.start("slow")
            await eventually(lambda: server.heard("tools/call"))
            gateway.kill()
            await gateway.exit_status()
            await prometheus.until('ALERTS{alertname="TaskgateDown", alertstate="firing"}')
        async with gateway_process(arguments, log=tmp_path / "second.log", environment=both) as gateway:
            [orphaned] = await prometheus.until('ALERTS{alertname="TaskgateOrphanedTasks", alertstate="firing"}')
            assert (orphaned.labels["upstream"], orphaned.labels["outcome"]) == ("reports", "failed")
            with config.open("a") as file:
                file.write("upstream: {}\n")
            await prometheus.fires({"TaskgateOrphanedTasks", "TaskgateConfigReloadFailed"})
