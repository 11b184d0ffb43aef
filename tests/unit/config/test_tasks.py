"""What the keys of a rule for tasks say together, and the rules among each other, and those about polls."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.model import DEFAULTS, conflicts

Tells = Callable[..., list[str]]
Loads = Callable[..., GatewayConfig]

NO_TASKS = "must be null with mode sync, which makes no tasks"
RULES = [
    ("mode: always, inline_grace: 1s", "inline_grace: must be null unless mode is auto"),
    *((f"mode: sync, {key}: {value}", f"{key}: {NO_TASKS}")
      for key, value in (("ttl", "1h"), ("ttl_min", "1h"), ("ttl_max", "1h"), ("deadline", "1h"), ("cap", "1"))),
    ("mode: sync, on_lost: rerun", "on_lost: must be fail with mode sync, which makes no tasks"),
    ("mode: auto, join_retries: 1s, handoff: {after: 45s}",
     "join_retries: must be null or never with handoff, under which equal calls join"),
    ("mode: auto, ttl_min: 2h, ttl: 3h, ttl_max: 90m",
     "ttl_min: must be at most tasks.upgrade[0].ttl_max"),
    ("mode: auto, ttl_min: 2h, ttl: 90m", "ttl_min: must be at most tasks.upgrade[0].ttl"),
    ("mode: auto, ttl: 2h, ttl_max: 90m", "ttl: must be at most tasks.upgrade[0].ttl_max"),
    ("mode: auto, ttl: 2d", "ttl: must be at most tasks.ttl.max where ttl_max is not given"),
    ("mode: auto, ttl_max: 30m", "ttl_max: must be at least tasks.ttl.default where ttl is not given"),
    ("mode: auto, ttl_min: 2h", "ttl_min: must be at most tasks.ttl.default where ttl is not given"),
]  # fmt: skip
GOOD = [
    "mode: auto, inline_grace: 0s, join_retries: 1s",
    "mode: sync, join_retries: 1s, on_lost: fail",
    "mode: always, ttl: 2h, ttl_max: 7d, ttl_min: 1ms, deadline: 365d, cap: 1, on_lost: rerun",
    "mode: required, ttl: 24h",
    "mode: auto, ttl: 59s",
    "mode: auto, join_retries: never, handoff: {after: 45s, on_disconnect: cancel}",
    "mode: auto, ttl_max: 1h",
    "mode: auto, ttl_min: 2h, ttl: 2h, ttl_max: 2h",
]
BEHIND = "can never match: tasks.upgrade[0] is for every tool"


@pytest.mark.parametrize(("rule", "told"), RULES)
def test_a_rule_that_contradicts_itself_is_refused(tells: Tells, with_tokens: str, rule: str, told: str) -> None:
    text = f"{with_tokens}tasks:\n  upgrade:\n    - {{tool: a, {rule}}}\n"
    assert tells(text) == [f"f:7: tasks.upgrade[0].{told}"]


@pytest.mark.parametrize("rule", GOOD)
def test_a_rule_that_makes_sense_is_taken(loads: Loads, with_tokens: str, rule: str) -> None:
    assert len(loads(f"{with_tokens}tasks:\n  upgrade:\n    - {{tool: a, {rule}}}\n").tasks.upgrade) == 1


def test_a_rule_that_is_shorter_than_the_shortest_is_refused(tells: Tells, with_tokens: str) -> None:
    more = "tasks:\n  ttl: {min: 1m}\n  upgrade:\n    - {tool: a, mode: auto, ttl: 59s}\n"
    assert tells(with_tokens + more) == [
        "f:8: tasks.upgrade[0].ttl: must be at least tasks.ttl.min where ttl_min is not given"
    ]


def test_what_a_rule_leaves_open_is_as_the_file_has_it(tells: Tells, with_tokens: str) -> None:
    more = "tasks:\n  ttl: {default: 2h, max: 3h}\n  upgrade:\n    - {tool: a, mode: auto, ttl: 4h}\n"
    assert tells(with_tokens + more) == [
        "f:8: tasks.upgrade[0].ttl: must be at most tasks.ttl.max where ttl_max is not given"
    ]


@pytest.mark.parametrize("key", ["ttl", "ttl_min"])
def test_without_authentication_no_rule_keeps_tasks_for_longer_than_an_hour(
    tells: Tells, minimal: str, key: str
) -> None:
    assert tells(f"{minimal}tasks:\n  upgrade:\n    - {{tool: a, mode: auto, {key}: 61m}}\n") == [
        f"f:7: tasks.upgrade[0].{key}: must be at most 1h with auth.mode none"
    ]


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ("tool: '*'", "tool: a", True),
        ("tool: '*'", "tool: a, shadow: true", True),
        ("tool: '*'", "tool: a, upstream: reports", True),
        ("tool: '*', upstream: reports", "tool: '*', upstream: reports", True),
        ("tool: '*', upstream: reports", "tool: a", False),
        ("tool: '*', upstream: reports", "tool: a, upstream: other", False),
        ("tool: '*', hints: {readOnlyHint: true}", "tool: a", False),
        ("tool: '*', shadow: true", "tool: a", False),
        ("tool: '?*'", "tool: a", False),
    ],
)
def test_no_rule_stands_where_it_can_never_match(
    loads: Loads, tells: Tells, minimal: str, first: str, second: str, is_refused: bool
) -> None:
    text = (
        f"{minimal}  other: {{path: /b, url: 'http://b'}}\n"
        f"tasks:\n  upgrade:\n    - {{mode: auto, {first}}}\n    - {{mode: auto, {second}}}\n"
    )
    if is_refused:
        assert tells(text) == [f"f:9: tasks.upgrade[1].tool: {BEHIND}"]
    else:
        assert len(loads(text).tasks.upgrade) == 2


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ("base: 100ms", "base: must be at least tasks.poll_interval.min, which is 500ms unless given"),
        ("base: 31s", "base: must be at most tasks.poll_interval.max, which is 30s unless given"),
        ("min: 3s", "min: must be at most tasks.poll_interval.base, which is 2s unless given"),
        ("max: 1s", "max: must be at least tasks.poll_interval.base, which is 2s unless given"),
        ("min: 2m, base: 2m", "min: must be at most tasks.poll_interval.max, which is 30s unless given"),
    ],
)
def test_the_intervals_are_in_order(tells: Tells, minimal: str, interval: str, told: str) -> None:
    assert tells(f"{minimal}tasks:\n  poll_interval: {{{interval}}}\n") == [f"f:6: tasks.poll_interval.{told}"]


@pytest.mark.parametrize(
    "tasks",
    [
        {"upgrade": [None, 1, {}, {"mode": 1, "ttl": "soon"}, {"tool": [], "upstream": {}, "mode": "sync"}]},
        {"upgrade": [{"tool": "*", "upstream": 1}, {"tool": "a", "upstream": [1]}]},
        {"upgrade": [{"tool": "a", "mode": "auto", "ttl": "1h"}], "ttl": {"min": "soon", "default": 1}},
        {"poll_interval": []},
        {"poll_interval": {"min": "soon", "base": 1, "max": None}},
    ],
    ids=str,
)
def test_malformed_rules_contradict_nothing(tasks: object) -> None:
    assert conflicts({"tasks": tasks}, defaults=DEFAULTS) == []


TEXT = "Waits for the result of a call, and returns it. "
TOO_LONG = "f:7: tasks.handoff.tools: must cost at most 400 tokens with names, titles and descriptions"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT * 3, []),
        (TEXT * 20, [TOO_LONG]),
        ("\u7b49" * 200, [TOO_LONG]),
    ],
)
def test_the_texts_of_the_tools_of_the_gateway_are_bounded_together(
    tells: Tells, minimal: str, text: str, told: list[str]
) -> None:
    found = tells(f"{minimal}tasks:\n  handoff:\n    tools:\n      wait: {{description: '{text}'}}\n")
    assert [each.partition(", not about")[0] for each in found] == told


def test_own_ceilings_come_before_the_built_in_ones(loads: Loads, minimal: str) -> None:
    tables = (
        "ceilings: {'acme-*': 5m, gemini-cli-mcp-client: 1m}, ceilings_with_progress: {'claude-*': 10m, acme-cli: 1h}"
    )
    rules = loads(f"{minimal}tasks: {{handoff: {{{tables}}}}}\n").tasks.handoff.to_rules()
    seldom, often = timedelta(minutes=20), timedelta(seconds=1)
    margin = timedelta(seconds=5)
    found = {
        client: [rules.patience(None, client, progress) + margin for progress in (seldom, often)]
        for client in ("claude-code", "acme-cli", "acme-x", "gemini-cli-mcp-client")
    }
    assert found == {
        "claude-code": [timedelta(minutes=5), timedelta(minutes=10)],
        "acme-cli": [timedelta(minutes=5), timedelta(hours=1)],
        "acme-x": [timedelta(minutes=5), timedelta(minutes=5)],
        "gemini-cli-mcp-client": [timedelta(minutes=1), timedelta(minutes=1)],
    }


def test_a_host_whose_ceiling_is_set_has_no_built_in_one_with_progress(loads: Loads, minimal: str) -> None:
    rules = loads(f"{minimal}tasks: {{handoff: {{ceilings: {{claude-code: 1m}}}}}}\n").tasks.handoff.to_rules()
    assert rules.patience(None, "claude-code", timedelta(seconds=1)) == timedelta(seconds=55)
