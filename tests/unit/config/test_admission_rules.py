"""The rules that may change while the gateway runs, as the floors below are told of them."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from taskgate.admission.rules import OnStoreError, QuestionBounds, RejectAs
from taskgate.config import GatewayConfig, load
from taskgate.config.model import admission_rules, bulkhead_settings
from taskgate.domain.limits import Caps, Override
from taskgate.domain.policy import DEFAULT_RESPONSE, OnLost, PromotionMode, PromotionPolicy, PromotionRule
from taskgate.domain.polling import PollPolicy
from taskgate.domain.rates import RateEvent, RateLimit, RatePolicy, RateScope

Loads = Callable[..., GatewayConfig]

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LIMITS = Path(__file__).parents[3] / "config" / "limits.yaml"
WRITTEN = """\
version: 1
auth: {mode: required, issuers: {corp: {issuer: "https://a", claims: {tenant: org}}}}
upstreams: {reports: {path: /a, url: "http://a"}}
server: {max_streams_per_context: 3}
tasks:
  upgrade:
    - upstream: reports
      tool: "a*"
      hints: {readOnlyHint: true, openWorldHint: false}
      mode: auto
      inline_grace: 1s
      ttl: 2h
      ttl_min: 1h
      ttl_max: 3h
      deadline: 4s
      cap: 5
      on_lost: rerun
      join_retries: 6s
      immediate_response: null
      shadow: true
    - {tool: "*", mode: sync}
  ttl: {min: 1m, default: 2m, max: 3m}
  inline_grace: 7s
  poll_interval: {base: 2s, min: 1s, max: 3s, adaptive: false, jitter: 0.2, target_utilization: 0.3}
  early_poll: {tolerance: 0.4, reject_above: 5}
  input_required: {max_wait: 8s, max_outstanding: 9}
limits:
  reject_as: tool_error
  expose_quota: true
  replace_defaults: true
  rate:
    - {name: a, scope: tenant, rate: 120/m, methods: [tools/call], upstream: reports, tool: "b*", cost: 2, mode: shadow}
    - {name: b, scope: ip, rate: 1/h, burst: 4, before_auth: true}
    - {name: c, scope: context, rate: 2/s, burst: 3, event: lookup_failure}
  concurrency:
    tasks_per_context: 1
    tasks_per_tenant: 2
    tasks_per_tool: 3
    tasks_per_upstream: 4
    tasks_global: 5
    kept_per_context: 6KiB
    kept_global: 7KiB
    sessions_per_context: 8
    calls_per_context: 11
    bytes_in_flight_per_context: 15KiB
    bytes_in_flight_global: 16KiB
    waits_per_context: 12
    waits_global: 13
  overrides:
    - match: {tenant: gold, claims: {kind: [a, b]}}
      rate: {a: 240/m, c: 3/s}
      concurrency: {tasks_global: 9, kept_global: 10KiB, calls_per_context: 14}
      ttl_max: 7d
"""


def test_every_rule_is_what_the_file_says(loads: Loads) -> None:
    rules = admission_rules(loads(WRITTEN))
    assert rules.policy == PromotionPolicy(
        rules=(
            PromotionRule(
                upstream="reports",
                tool="a*",
                hints={"readOnlyHint": True, "openWorldHint": False},
                mode=PromotionMode.AUTO,
                inline_grace=SECOND,
                ttl=2 * HOUR,
                ttl_min=HOUR,
                ttl_max=3 * HOUR,
                deadline=4 * SECOND,
                cap=5,
                on_lost=OnLost.RERUN,
                join_retries=6 * SECOND,
                immediate_response=None,
                shadow=True,
            ),
            PromotionRule(upstream=None, tool="*", mode=PromotionMode.SYNC, immediate_response=DEFAULT_RESPONSE),
        ),
        ttl_default=2 * MINUTE,
        ttl_min=MINUTE,
        ttl_max=3 * MINUTE,
        inline_grace=7 * SECOND,
        ttl_keep=30 * MINUTE,
    )
    assert rules.polling == PollPolicy(
        base=2 * SECOND,
        least=SECOND,
        most=3 * SECOND,
        adaptive=False,
        jitter=0.2,
        target=0.3,
        tolerance=0.4,
        reject_above=5.0,
        grace=timedelta(milliseconds=500),
    )
    assert rules.questions == QuestionBounds(8 * SECOND, 9)
    assert (rules.reject_as, rules.exposes_quota) == (RejectAs.TOOL_ERROR, True)
    assert (rules.sessions, rules.streams, rules.waits, rules.all_waits) == ((8, 16), (3, 6), (12, 24), 13)
    assert rules.in_flight == (15 * 2**10, 30 * 2**10, 16 * 2**10)
    settings = bulkhead_settings(loads(WRITTEN), "reports")
    assert (settings.share, settings.is_shared, settings.reserved) == (11, True, 4)
    assert rules.on_store_error is OnStoreError.LOCAL


@pytest.mark.parametrize("rule", OnStoreError)
def test_what_counts_without_the_store_is_what_the_file_says(loads: Loads, rule: OnStoreError) -> None:
    shared = "store: {backend: redis, redis: {url: 'redis://a'}}\naudit: {enabled: false}\n"
    auth = "{mode: none, context: {key_file: /k}}"
    text = f"version: 1\nauth: {auth}\nupstreams: {{a: {{path: /a, url: 'http://a'}}}}\n{shared}"
    assert admission_rules(loads(f"{text}limits: {{on_store_error: {rule}}}\n")).on_store_error is rule


def test_every_limit_is_what_the_file_says(loads: Loads) -> None:
    rules = admission_rules(loads(WRITTEN))
    assert rules.rates.policies == (
        RatePolicy(
            name="a",
            scope=RateScope.TENANT,
            limit=RateLimit(every=0.5, burst=120),
            methods=("tools/call",),
            upstream="reports",
            tool="b*",
            cost=2,
            shadow=True,
        ),
        RatePolicy(name="b", scope=RateScope.IP, limit=RateLimit(every=3600.0, burst=4), before_auth=True),
        RatePolicy(
            name="c", scope=RateScope.CONTEXT, limit=RateLimit(every=0.5, burst=3), event=RateEvent.LOOKUP_FAILURE
        ),
    )
    assert rules.caps == Caps(
        tasks_per_context=1,
        tasks_per_tenant=2,
        tasks_per_tool=3,
        tasks_per_upstream=4,
        tasks_global=5,
        kept_per_context=6 * 2**10,
        kept_global=7 * 2**10,
    )
    assert rules.overrides == (
        Override(
            tenant="gold",
            claims={"kind": frozenset({"a", "b"})},
            # a is in shadow, and c counts an event: nothing waits for them.
            rates={"a": RateLimit(every=0.25, burst=240), "c": RateLimit(every=1 / 3, burst=5)},
            caps={"tasks_global": 9, "kept_global": 10 * 2**10},
            calls=14,
            ttl_max=timedelta(days=7),
        ),
    )


def test_the_burst_of_an_override_changes_with_the_rate_and_lets_one_pass_at_least(loads: Loads) -> None:
    policy = loads(WRITTEN).limits.rate[0]
    slower = type(policy.rate)(count=1, unit="h")
    assert policy.burst_at(policy.rate) == 120
    assert policy.burst_at(slower) == policy.cost


def test_with_the_defaults_there_are_budgets_for_calls_polls_and_the_rest(loads: Loads, minimal: str) -> None:
    rules = admission_rules(loads(minimal))

    def names(method: str) -> list[str]:
        return [policy.name for policy in rules.rates.applicable("reports", method, None)]

    methods = ("tools/call", "tasks/get", "tools/list", "initialize", "ping", "server/discover")
    assert {method: names(method) for method in methods} == {
        "tools/call": ["calls"],
        "tasks/get": ["polls"],
        "tools/list": ["rest"],
        "initialize": ["handshake"],
        "ping": ["handshake"],
        "server/discover": ["handshake"],
    }
    # Requests wait for what counts callers; what protects refuses at once.
    assert {policy.name: policy.limit.ahead for policy in rules.rates.policies} == {
        "ip": 0.0,
        "auth_failures": 0.0,
        "handshake": 3.0,
        "calls": 3.0,
        "polls": 3.0,
        "rest": 3.0,
        "bodies": 3.0,
    }
    assert [demand.policy.name for demand in rules.rates.before_auth("127.0.0.1", "reports")] == ["ip"]


def test_the_example_of_a_platform_means_what_it_says() -> None:
    rules = admission_rules(load(LIMITS, {}))
    decide = rules.policy.decide
    export = decide("reports", "export_year")
    assert (export.mode, export.ttl_default, export.ttl_max) == (PromotionMode.ALWAYS, 2 * HOUR, 48 * HOUR)
    assert (export.on_lost, export.join_retries, export.deadline) == (OnLost.RERUN, 30 * SECOND, 30 * MINUTE)
    assert decide("reports", "rebuild_index").cap == 2
    read_only = decide("search", "find", {"readOnlyHint": True})
    assert (read_only.mode, read_only.would_promote) == (PromotionMode.SYNC, True)
    gold = rules.overrides.find("gold", {})
    assert gold is not None
    assert gold.rates["calls"] == RateLimit(every=0.02, burst=200, ahead=2.0)
    robot = rules.overrides.find("tin", {"kind": "ci"})
    assert robot is not None
    assert robot.rates["calls"] == RateLimit(every=1.0, burst=4, ahead=2.0)
    assert rules.overrides.find("tin", {}) is None
    assert [each.name for each in rules.rates.policies if each.shadow] == ["exports"]
