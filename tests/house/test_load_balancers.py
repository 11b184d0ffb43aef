"""What the page of balancers sets on both sides fits together, and tells the address of a host."""

import re
from datetime import timedelta
from itertools import count

import pytest
from ruamel.yaml import YAML

from house.documents import DOCS, fences
from taskgate.config.model import GatewayConfig
from taskgate.domain.polling import PollPolicy, advised_interval
from taskgate.listener.peers import Peers

PAGE = DOCS / "how-to" / "load-balancers.md"
HOST = "198.51.100.4"
SECTIONS = (
    "AWS: Application Load Balancer",
    "Google Cloud: external Application Load Balancer",
    "Azure: Application Gateway",
)
SILENCE = ("idle_timeout.timeout_seconds", "backend service: timeout", "backend setting: request timeout")
"""How long each of them lets an answer be silent."""
DRAINING = ("deregistration_delay.timeout_seconds", "connection draining timeout", "connection draining")
KEPT = ("idle_timeout.timeout_seconds", "keep-alive to backends")
"""How long they keep an idle connection to a gateway; of Azure nothing is known."""


def section(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"### {name}\n")[1].split("\n#")[0]


def configured(name: str) -> GatewayConfig:
    """The configuration that a section shows, with what else a file needs."""
    [shown] = [each.text for each in fences(PAGE) if each.language == "yaml" and each.text in section(name)]
    upstreams = {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}}
    rest = {"version": 1, "auth": {"mode": "none"}, "upstreams": upstreams}
    return GatewayConfig.model_validate(rest | YAML(typ="safe").load(shown))


def set_to(name: str, setting: str) -> int:
    """The number that the table of a section sets."""
    found = re.search(rf"^\| `?{re.escape(setting)}`? \|[^|]*\| ([\d]+)(?: s)? \|", section(name), re.MULTILINE)
    assert found is not None, setting
    return int(found[1])


def checks(name: str) -> timedelta:
    """How long a replica fails its checks until nothing comes any more."""
    what = "probe" if name.startswith("Azure") else "health check"
    return timedelta(seconds=set_to(name, f"{what}: interval") * set_to(name, f"{what}: unhealthy threshold"))


@pytest.mark.parametrize(("name", "setting"), [*zip(SECTIONS, SILENCE, strict=True)])
def test_a_stream_gets_a_comment_before_its_balancer_gives_it_up(name: str, setting: str) -> None:
    assert 2 * configured(name).server.sse_keepalive < timedelta(seconds=set_to(name, setting))


@pytest.mark.parametrize("name", SECTIONS)
def test_a_replica_that_drains_serves_until_its_balancer_has_noticed(name: str) -> None:
    assert configured(name).server.drain.delay >= checks(name) > timedelta()


@pytest.mark.parametrize(("name", "setting"), [*zip(SECTIONS, DRAINING, strict=True)])
def test_a_balancer_waits_for_as_long_as_a_drain_takes(name: str, setting: str) -> None:
    drain = configured(name).server.drain
    assert drain.delay + drain.timeout + timedelta(seconds=10) < timedelta(seconds=set_to(name, setting))


@pytest.mark.parametrize(("name", "setting"), [*zip(SECTIONS[:2], KEPT, strict=True)])
def test_a_gateway_keeps_an_idle_connection_for_longer_than_its_balancer(name: str, setting: str) -> None:
    assert configured(name).server.idle_timeout > timedelta(seconds=set_to(name, setting))


@pytest.mark.parametrize(
    ("name", "peer", "appended"),
    [
        (SECTIONS[0], "10.0.3.9", HOST),
        (SECTIONS[1], "35.191.1.2", f"{HOST},203.0.113.7"),
        (SECTIONS[1], "130.211.1.2", f"{HOST},203.0.113.7"),
        (SECTIONS[2], "10.0.1.9", f"{HOST}:50123"),
    ],
)
def test_the_address_of_a_host_is_found_behind_each_balancer_whatever_the_host_sends(
    name: str, peer: str, appended: str
) -> None:
    server = configured(name).server
    peers = Peers(server.trusted_proxies, server.forwarded_header)
    assert peers.address_of(peer, [appended]) == HOST
    assert peers.address_of(peer, [f"192.0.2.1, {appended}"]) == HOST


SECONDS = (10, 60, 600, 3600)


def polls(policy: PollPolicy, seconds: float) -> int:
    """How many polls a host makes, as advised, of a task that ends at that age at an idle server."""
    age, last = 0.0, None
    for made in count(1):
        last = advised_interval(policy, utilization=0.0, age=age, last=last, chance=0.5)
        age = max(age + last / 1000, min(policy.grace.total_seconds(), seconds))
        if age >= seconds:
            return made
    raise AssertionError


def test_the_polls_that_a_gateway_bills_are_those_that_are_advised() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## Gateways that bill by the request\n")[1].split("\n#")[0]
    shown = {}
    computed = {}
    for written, row in re.findall(r"^\| `(\{.*\})`[^|]*\|(.*)\|$", text, re.MULTILINE):
        upstreams = {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}}
        tasks = {"poll_interval": YAML(typ="safe").load(written)}
        config = GatewayConfig.model_validate(
            {"version": 1, "auth": {"mode": "none"}, "upstreams": upstreams, "tasks": tasks}
        )
        shown[written] = [int(cell) for cell in row.split("|")]
        computed[written] = [polls(config.tasks.to_polling(), each) for each in SECONDS]
    assert shown == computed
    assert len(shown) == 3
