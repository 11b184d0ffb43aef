"""What the keys about limits say together, and which of them need tenants or tokens."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.model import DEFAULTS, conflicts

Tells = Callable[..., list[str]]
Loads = Callable[..., GatewayConfig]

GOOD = [
    "scope: ip, event: auth_failure, upstream: reports",
    "scope: ip, before_auth: true, upstream: reports",
    "scope: context, event: lookup_failure",
    "scope: ip, methods: ['*']",
    "scope: ip, methods: ['tasks/*', tools/call]",
    "scope: context, methods: ['notifications/*', notifications/progress]",
    "scope: ip, cost: 3, burst: 3",
    "scope: global, mode: shadow",
]
WITH_TENANTS = (
    "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/', claims: {tenant: org}}}}\n"
    "upstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)


@pytest.mark.parametrize("policy", GOOD)
def test_a_policy_that_makes_sense_is_taken(loads: Loads, with_tokens: str, policy: str) -> None:
    config = loads(f"{with_tokens}limits:\n  rate:\n    - {{name: a, rate: 1/s, {policy}}}\n")
    assert (config.limits.rate[0].name, str(config.limits.rate[0].rate)) == ("a", "1/s")


BUILT_IN = ["ip", "auth_failures", "handshake", "calls", "polls", "rest", "bodies"]
MERGED = [
    ("{rate: [{name: a, scope: global, rate: 1/s}]}", ["a", *BUILT_IN]),
    (
        "{rate: [{name: calls, scope: context, rate: 9/s}]}",
        ["calls", *(name for name in BUILT_IN if name != "calls")],
    ),
    ("{replace_defaults: true, rate: [{name: a, scope: global, rate: 1/s}]}", ["a"]),
    ("{replace_defaults: true}", []),
    ("{rate: []}", []),
    ("{}", BUILT_IN),
]


@pytest.mark.parametrize(("limits", "names"), MERGED)
def test_policies_are_merged_by_name_with_the_built_in_ones_unless_the_file_says_otherwise(
    loads: Loads, minimal: str, limits: str, names: list[str]
) -> None:
    assert [each.name for each in loads(f"{minimal}limits: {limits}\n").limits.rate] == names


def test_merged_policies_are_written_and_read_again_as_they_are(loads: Loads, minimal: str) -> None:
    config = loads(f"{minimal}limits: {{rate: [{{name: a, scope: global, rate: 1/s}}]}}\n")
    assert loads(effective(config)) == config


def test_an_override_names_built_in_policies_too_unless_they_are_replaced(tells: Tells, minimal: str) -> None:
    rate = "  rate: [{name: mine, scope: context, rate: 1/s}]\n"
    assert tells(f"{minimal}limits:\n{rate}  overrides: [{{match: {{}}, rate: {{mine: 2/s, calls: 2/s}}}}]\n") == []
    more = f"limits:\n  replace_defaults: true\n{rate}  overrides:\n"
    assert tells(f"{minimal}{more}    - {{match: {{}}, rate: {{mine: 2/s, calls: 2/s}}}}\n") == [
        "f:9: limits.overrides[0].rate.calls: must be the name of a policy of limits.rate"
    ]


def test_with_tenants_there_are_limits_of_theirs(loads: Loads) -> None:
    config = loads(
        WITH_TENANTS + "limits:\n  rate: [{name: a, scope: tenant, rate: 1/s}]\n"
        "  overrides: [{match: {tenant: gold}, rate: {a: 2/s}, concurrency: {tasks_per_tenant: 2}, ttl_max: 7d}]\n"
    )
    assert config.limits.overrides[0].match.tenant == "gold"


@pytest.mark.parametrize(
    "limits",
    [
        None,
        {"rate": {}},
        {"rate": [None, 1, {}, {"name": 1}, {"scope": []}, {"name": "a", "rate": 5, "cost": 9}]},
        {"rate": [{"rate": "1/s", "cost": "2"}, {"burst": "many", "cost": 2}, {"burst": 0, "cost": 2}]},
        {"rate": [{"methods": "*"}, {"methods": [1]}]},
        {"overrides": {}},
        {"overrides": [None, {}, {"match": 1, "rate": [], "concurrency": None, "ttl_max": "soon"}]},
    ],
    ids=str,
)
def test_malformed_limits_contradict_nothing(limits: object) -> None:
    assert conflicts({"limits": limits}, defaults=DEFAULTS) == []
