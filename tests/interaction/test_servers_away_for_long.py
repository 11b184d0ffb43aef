"""Servers that health checks have found away: what hosts get meanwhile, and from when they are called again."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from helpers.virtual_time import pass_time
from interaction.deployments import outcome, plain

CHECKS: dict[str, Any] = {"method": "tools/list", "interval": "15s", "unhealthy_after": 3}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_checks_found_away_is_called_as_soon_as_it_is_back(era: str) -> None:
    async with ScriptedServer(era) as server:  # type: ignore[arg-type]
        section = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto", "health": CHECKS}
        rules = {"upgrade": [{"tool": "*", "mode": "always"}]}
        async with serve(configuration({}, upstreams={"reports": section}, tasks=rules)) as gateway:
            hosts = [await gateway.greeted(), gateway.modern()]
            tasks = [(host, (await host.start("echo", {"n": 1}))["taskId"]) for host in hosts]
            await gateway.upstream_is(up=True, in_use=0)
            await server.stop()
            await pass_time(60)
            assert (await gateway.upstream())["up"] is False
            tasks += [(host, (await host.start("echo", {"n": 1}))["taskId"]) for host in hosts]
            refused = [(await host.call("echo", **plain(host))).error["data"] for host in hosts]
            assert [(error["reason"], error["dispatched"]) for error in refused] == [("unreachable", False)] * 2
            await server.come_back()
            calls = [(await host.call("echo", {"n": 2}, **plain(host))).result for host in hosts]
            assert [each["structuredContent"] for each in calls] == [{"n": 2}] * 2
            assert (await gateway.upstream())["circuit"] == "closed"
            assert [(await outcome(*task))["structuredContent"] for task in tasks] == [{"n": 1}] * 4
