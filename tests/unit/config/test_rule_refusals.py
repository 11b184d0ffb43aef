"""Keys of rules for tasks, of rates and of overrides, with values that they refuse: the place and the words."""

from collections.abc import Callable

import pytest

Tells = Callable[..., list[str]]
WithKey = Callable[[str, str], str]

# What is said, where in the list, about which values.
LISTS: list[tuple[str, str, list[str]]] = [
    (
        "must be true or false",
        "tasks.upgrade[0].hints.readOnlyHint",
        ["[{tool: a, mode: auto, hints: {readOnlyHint: 1}}]"],
    ),
    (
        "must be 'readOnlyHint', 'destructiveHint', 'idempotentHint' or 'openWorldHint'",
        "tasks.upgrade[0].hints.readonly",
        ["[{tool: a, mode: auto, hints: {readonly: true}}]"],
    ),
    ("must be 'fail' or 'rerun'", "tasks.upgrade[0].on_lost", ["[{tool: a, mode: auto, on_lost: retry}]"]),
    ("must be at most 7d", "tasks.upgrade[0].ttl", ["[{tool: a, mode: auto, ttl: 8d}]"]),
    ("must be at least 1", "tasks.upgrade[0].cap", ["[{tool: a, mode: auto, cap: 0}]"]),
    (
        "must be a rate such as 5/s, 10/m or 100/h: a whole number and one unit",
        "limits.rate[0].rate",
        [
            f"[{{name: a, scope: ip, rate: {rate}}}]"
            for rate in ("5", "0/s", "0.5/s", "5/d", "5 / s", "-1/s", "'5/s '", "5/S", "null", "[]")
        ],
    ),
    ("is required", "limits.rate[0].name", ["[{scope: ip, rate: 1/s}]"]),
    ("is required", "limits.rate[0].scope", ["[{name: a, rate: 1/s}]"]),
    ("is required", "limits.rate[0].rate", ["[{name: a, scope: ip}]"]),
    (
        "must be a name of a-z, 0-9, _ and -, at most 64 long, with a letter or digit first",
        "limits.rate[0].name",
        ["[{name: A, scope: ip, rate: 1/s}]", "[{name: '', scope: ip, rate: 1/s}]"],
    ),
    (
        "must be 'ip', 'context', 'tenant', 'upstream', 'tool' or 'global'",
        "limits.rate[0].scope",
        ["[{name: a, scope: user, rate: 1/s}]"],
    ),
    (
        "must match a request that hosts can send, such as tools/call, tasks/* or resources/read",
        "limits.rate[0].methods[0]",
        [
            "[{name: a, scope: ip, rate: 1/s, methods: [tools/calls]}]",
            "[{name: a, scope: context, rate: 1/s, methods: [notifications/cancelled]}]",
        ],
    ),
    ("must not be empty", "limits.rate[0].methods", ["[{name: a, scope: ip, rate: 1/s, methods: []}]"]),
    ("must be 'enforce' or 'shadow'", "limits.rate[0].mode", ["[{name: a, scope: ip, rate: 1/s, mode: off}]"]),
    ("must be at least 1", "limits.rate[0].cost", ["[{name: a, scope: ip, rate: 1/s, cost: 0}]"]),
    ("unknown key (did you mean burst?)", "limits.rate[0].bursts", ["[{name: a, scope: ip, rate: 1/s, bursts: 1}]"]),
    ("is required", "limits.overrides[0].match", ["[{rate: {calls: 1/s}}]"]),
    (
        "must be a rate such as 5/s, 10/m or 100/h: a whole number and one unit",
        "limits.overrides[0].rate.calls",
        ["[{match: {}, rate: {calls: fast}}]"],
    ),
    ("unknown key", "limits.overrides[0].concurrency.tasks", ["[{match: {}, concurrency: {tasks: 1}}]"]),
    ("must be 'connect'", "upstreams.reports.retries.when[0]", ["[timeout]"]),
    ("must not hold the same twice", "upstreams.reports.retries.when", ["[connect, connect]"]),
]


@pytest.mark.parametrize(
    ("path", "value", "words"), [(path, value, words) for words, path, values in LISTS for value in values]
)
def test_a_bad_value_in_a_rule_is_told_on_its_line_and_nothing_else_is(
    tells: Tells, with_key: WithKey, path: str, value: str, words: str
) -> None:
    key = path.partition("[")[0]
    text = with_key(key, value)
    written = f"{key.rpartition('.')[2]}: {value}"
    [line] = [number for number, each in enumerate(text.splitlines(), 1) if each.lstrip() == written]
    assert tells(text) == [f"f:{line}: {path}: {words}"]
