"""A server that is away and callers that ask too often are in the log: named, with the reason, in few lines."""

import logging
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer, resets, status
from helpers.waiting import eventually

NOWHERE = "http://127.0.0.1:9/mcp"
OFTEN = {"method": "tools/list", "interval": "20ms", "timeout": "1s", "unhealthy_after": 2, "healthy_after": 1}
BREAKER = {"failures": 2, "window": "1m", "open_for": "1h"}
CALLS = {"name": "calls", "scope": "context", "rate": "1/m", "burst": 3, "methods": ["tools/call"]}
REFUSED = 100


def lines(caplog: pytest.LogCaptureFixture, *fields: str) -> list[tuple[Any, ...]]:
    """The message of each warning about conditions, and these of its fields."""
    loggers = {"taskgate.upstream", "taskgate.limits", "taskgate.runner"}
    found = [each for each in caplog.records if each.name in loggers and each.levelno == logging.WARNING]
    return [(each.getMessage(), *(vars(each).get(field) for field in fields)) for each in found]


async def test_a_server_that_is_away_and_a_caller_that_goes_on_asking_have_three_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    section = {
        "path": "/reports/mcp",
        "url": NOWHERE,
        "health": OFTEN,
        "retries": {"attempts": 1},
        "circuit_breaker": BREAKER,
    }
    config = configuration({}, upstreams={"reports": section}, limits={"rate": [CALLS]})
    async with serve(config) as gateway:
        await gateway.upstream_is(up=False)
        host = gateway.modern()
        for _ in range(CALLS["burst"] + REFUSED):  # type: ignore[operator]
            await host.call("echo")
        # Many checks more, and none of them has a line.
        checks = await failed_checks(gateway)
        await gateway.counted("taskgate_upstream_health_checks_total", checks + 5, result="error")
    away = "reports", "connection refused", None, None, None
    refused = "a limit refuses a caller", "reports", None, "c_anonymous", "calls"
    assert sorted(lines(caplog, "upstream", "reason", "caller", "policy", "left_out"), key=repr) == [
        (*refused, REFUSED - 2),
        (*refused, None),
        ("an upstream is down", *away),
    ]


async def failed_checks(gateway: Gateway) -> float:
    """How many checks of the server have failed so far."""
    return await gateway.count("taskgate_upstream_health_checks_total", upstream="reports", result="error")


async def test_a_server_that_comes_back_has_a_line_that_says_since_when_it_was_away(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.methods["tools/list"] = status(503)
    section = {"path": "/reports/mcp", "url": server.url, "health": OFTEN}
    async with serve(configuration({}, upstreams={"reports": section})) as gateway:
        await gateway.upstream_is(up=False)
        del server.methods["tools/list"]
        await gateway.upstream_is(up=True)
    found = lines(caplog, "upstream", "reason", "since")
    assert found[0][:3] == ("an upstream is down", "reports", "HTTP 503: the server cannot serve now")
    assert found[0][3].endswith("Z")


async def test_a_task_whose_server_breaks_off_is_named_by_its_reference(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script["report"] = resets()
    config = configuration({"reports": server.url}, tasks={"upgrade": [{"tool": "report", "mode": "always"}]})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        await eventually(lambda: bool(lines(caplog)))
    [(message, upstream, reason, reference)] = lines(caplog, "upstream", "reason", "task")
    assert (message, upstream, reason) == ("a task failed without a result of its tool", "reports", "closed")
    assert reference.startswith("t_")
    assert task["taskId"] not in caplog.text
