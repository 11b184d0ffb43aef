"""What the keys about limits say together, and which of them need tenants or tokens."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.model import DEFAULTS, conflicts

Tells = Callable[..., list[str]]
Loads = Callable[..., GatewayConfig]

POLICIES = [
    ("scope: context, event: auth_failure",
     "scope: must be ip with event auth_failure: the caller of such a request is unknown"),
    ("scope: context, before_auth: true", "scope: must be ip with before_auth: the caller is not known yet"),
    ("scope: ip, before_auth: true, event: auth_failure", "before_auth: must be false with an event"),
    ("scope: tool, event: lookup_failure",
     "scope: must not be tool with event lookup_failure: what was not found has none"),
    ("scope: ip, event: auth_failure, methods: [tools/call]",
     "methods: must be null with an event, which is no request"),
    ("scope: context, event: lookup_failure, tool: a", "tool: must be null with an event, which is no request"),
    ("scope: ip, before_auth: true, methods: ['*']", "methods: must be null with before_auth: nothing is read yet"),
    ("scope: ip, before_auth: true, tool: a", "tool: must be null with before_auth: nothing is read yet"),
    ("scope: ip, methods: ['*', tools/call]",
     "methods: must not hold more than *, which means what no other policy of the scope names"),
    ("scope: ip, cost: 2",
     "cost: must be at most the number of the rate, where burst is not given, or nothing would ever pass"),
    ("scope: ip, cost: 4, burst: 3", "cost: must be at most limits.rate[0].burst, or nothing would ever pass"),
    ("scope: ip, upstream: report", "upstream: must be the name of an upstream of this file"),
    ("scope: tenant", "scope: must not be tenant unless an issuer has claims.tenant: callers have no tenant"),
]  # fmt: skip
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
OVERRIDES = [
    ("match: {}, rate: {call: 1/s}", "rate.call: must be the name of a policy of limits.rate"),
    ("match: {}, rate: {ip: 1/s}",
     "rate.ip: must be the name of a policy of scope subject, context or tenant: others have no caller"),
    ("match: {tenant: gold}", "match.tenant: must be null unless an issuer has claims.tenant: callers have no tenant"),
    ("match: {}, concurrency: {tasks_per_tenant: 1}",
     "concurrency.tasks_per_tenant: must be null unless an issuer has claims.tenant: callers have no tenant"),
]  # fmt: skip
WITH_TENANTS = (
    "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/', claims: {tenant: org}}}}\n"
    "upstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)


@pytest.mark.parametrize(("policy", "told"), POLICIES)
def test_a_policy_that_could_never_do_what_it_says_is_refused(
    tells: Tells, with_tokens: str, policy: str, told: str
) -> None:
    text = f"{with_tokens}limits:\n  rate:\n    - {{name: a, rate: 1/s, {policy}}}\n"
    assert tells(text) == [f"f:7: limits.rate[0].{told}"]


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


def test_a_policy_with_the_name_of_a_built_in_one_takes_its_place_as_a_whole(loads: Loads, minimal: str) -> None:
    calls = loads(f"{minimal}limits: {{rate: [{{name: calls, scope: context, rate: 9/s}}]}}\n").limits.rate[0]
    assert (str(calls.rate), calls.burst, calls.methods) == ("9/s", None, None)


def test_merged_policies_are_written_and_read_again_as_they_are(loads: Loads, minimal: str) -> None:
    config = loads(f"{minimal}limits: {{rate: [{{name: a, scope: global, rate: 1/s}}]}}\n")
    assert loads(effective(config)) == config


def test_a_name_is_given_once(tells: Tells, minimal: str) -> None:
    twice = "    - {name: a, scope: ip, rate: 1/s}\n" * 2
    assert tells(f"{minimal}limits:\n  rate:\n{twice}") == [
        "f:8: limits.rate[1].name: must not be the name of another policy"
    ]


@pytest.mark.parametrize(("override", "told"), OVERRIDES)
def test_an_override_that_could_never_count_is_refused(
    tells: Tells, with_tokens: str, override: str, told: str
) -> None:
    text = f"{with_tokens}limits:\n  overrides:\n    - {{{override}}}\n"
    assert tells(text) == [f"f:7: limits.overrides[0].{told}"]


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


def test_without_authentication_nobody_has_a_tenant_or_claims(tells: Tells, minimal: str) -> None:
    override = "{match: {tenant: gold, claims: {a: [b]}}, concurrency: {tasks_per_tenant: 1}, ttl_max: 2h}"
    rate = "{name: a, scope: tenant, rate: 1/s}"
    assert tells(f"{minimal}limits:\n  rate: [{rate}]\n  overrides: [{override}]\n") == [
        "f:6: limits.rate[0].scope: must not be tenant with auth.mode none, where callers have no tenant",
        "f:7: limits.overrides[0].concurrency.tasks_per_tenant: "
        "must be null with auth.mode none, where callers have no tenant",
        "f:7: limits.overrides[0].match.claims: must be empty with auth.mode none, where callers have no claims",
        "f:7: limits.overrides[0].match.tenant: must be null with auth.mode none, where callers have no tenant",
    ]


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


@pytest.mark.parametrize("rule", ["open", "closed"])
def test_what_counts_without_the_store_is_asked_where_there_is_one_for_several_gateways(
    tells: Tells, loads: Loads, minimal: str, rule: str
) -> None:
    chosen = f"limits: {{on_store_error: {rule}}}\n"
    assert tells(minimal + chosen) == [
        "f:5: limits.on_store_error: must be local unless store.backend is redis: no other gateway counts"
    ]
    shared = "store: {backend: redis, redis: {url: 'redis://127.0.0.1'}}\naudit: {enabled: false}\n"
    named = minimal.replace("{mode: none}", "{mode: none, context: {key_file: /k}}")
    assert loads(named + shared + chosen).limits.on_store_error == rule
    assert loads(minimal + "limits: {on_store_error: local}\n").limits.on_store_error == "local"
