"""How long servers may take: what may be written, and what is left open."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.fields import write_duration
from taskgate.config.model import DEFAULTS, conflicts, upstream_settings
from taskgate.config.sections.upstreams import DEFAULT_CALL, TimeoutsSection
from taskgate.upstream.settings import ToolTimeouts

Loads = Callable[..., GatewayConfig]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def written(timeouts: str) -> str:
    return (
        "version: 1\nauth: {mode: none}\nupstreams:\n  reports:\n    path: /reports/mcp\n"
        f"    url: http://127.0.0.1:3000/mcp\n    timeouts: {timeouts}\n"
    )


@pytest.mark.parametrize(
    ("timeouts", "call", "ceiling"),
    [
        ("{}", HOUR, 24 * HOUR),
        ("{call: 25h}", 25 * HOUR, 25 * HOUR),
        ("{call: 1m}", MINUTE, 24 * HOUR),
        ("{call: 1m, ceiling: 1m}", MINUTE, MINUTE),
        ("{ceiling: 1h}", HOUR, HOUR),
        ("{ceiling: null, call: 2h}", 2 * HOUR, 24 * HOUR),
    ],
)
def test_the_ceiling_is_a_day_unless_it_is_given(
    loads: Loads, timeouts: str, call: timedelta, ceiling: timedelta
) -> None:
    settings = upstream_settings(loads(written(timeouts)), "reports")
    assert (settings.call, settings.ceiling, settings.tools) == (call, ceiling, ())


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("{tool: a}", ("a", HOUR, 2 * HOUR, MINUTE)),
        ("{tool: 'a*', call: 3m}", ("a*", 3 * MINUTE, 2 * HOUR, MINUTE)),
        ("{tool: a, call: 3h}", ("a", 3 * HOUR, 3 * HOUR, MINUTE)),
        ("{tool: a, ceiling: 3m}", ("a", HOUR, 3 * MINUTE, MINUTE)),
        ("{tool: a, call: 3m, ceiling: 5h, idle: 7m}", ("a", 3 * MINUTE, 5 * HOUR, 7 * MINUTE)),
    ],
)
def test_what_a_rule_leaves_open_is_as_for_other_tools(
    loads: Loads, rule: str, found: tuple[str, timedelta, timedelta, timedelta]
) -> None:
    config = loads(written(f"{{ceiling: 2h, idle: 1m, tools: [{rule}]}}"))
    tool, call, ceiling, idle = found
    [made] = upstream_settings(config, "reports").tools
    assert made == ToolTimeouts(tool=tool, call=call, ceiling=ceiling, idle=idle)


def test_the_usual_call_is_the_one_of_the_model() -> None:
    assert write_duration(TimeoutsSection().call) == DEFAULT_CALL
    assert list(conflicts({"upstreams": {"a": {"url": "b", "timeouts": {"ceiling": "1h"}}}}, defaults=DEFAULTS)) == []
