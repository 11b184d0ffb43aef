"""What the keys of a rule for tasks say together, and the rules among each other, and those about polls."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.model import DEFAULTS, conflicts

Loads = Callable[..., GatewayConfig]


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
