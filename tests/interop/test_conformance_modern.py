"""The official conformance suite of 2026-07-28, with its ten scenarios of tasks, judges servers through taskgate.

Two servers stand behind it. One speaks no revision that the suite does: it blocks, and asks in the middle of its calls.
So nothing is to be compared with; `conformance_modern_baseline.json` names what fails of it, and why it has to. The
other speaks 2026-07-28 and asks before it answers, but knows nothing of tasks: whatever it passes directly it passes
through the gateway. Each list must be exactly true: what is named there and passes after all has to be taken out.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from interop.hosts import assert_log_is_discreet
from interop.peers import HOME, python_server, require_peers
from interop.suite import complaints, judged, passes

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BASELINE = json.loads(Path(__file__).with_name("conformance_modern_baseline.json").read_text())
SUITE = HOME / "node_modules/conformance-next/dist/index.js"
REVISION = ("--requirements", "2026-07-28")
BLOCKING, ASKING = ("conformance_server.py", "1.23.3"), ("modern_questions_server.py", "2.3.0")
WITHIN = 60.0
"""Seconds for the suite; some scenarios of tasks wait for a second or two."""

TASKS = """{
  poll_interval: {base: 100ms, min: 100ms, adaptive: false}, inline_grace: 300ms,
  upgrade: [{tool: failing_job, mode: required}, {tool: "*", mode: auto}],
}"""
"""One tool may be called as a task alone, as the suite wants it; the others are tasks when they are slow."""

Judgement = Mapping[str, list[dict[str, Any]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judgements(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Judgement]]:
    """What the suite says of the asking server `directly`, and of `blocking` and `asking` through a gateway."""
    require_peers(f"mcp-{BLOCKING[1]}", f"mcp-{ASKING[1]}")
    folder = tmp_path_factory.mktemp("conformance")
    log = folder / "gateway.log"
    async with AsyncExitStack() as running:
        blocking = await running.enter_async_context(python_server(*BLOCKING, folder))
        asking = await running.enter_async_context(python_server(*ASKING, folder))
        upstreams = {
            name: {"path": f"/{name}/mcp", "url": url} for name, url in (("blocking", blocking), ("asking", asking))
        }
        file = write_configuration(folder, "", upstreams=upstreams, tasks=TASKS, logging={"level": "debug"})
        gateway = await running.enter_async_context(gateway_process(["--config", file], log=log))
        places = {name: f"http://{gateway.listen}/{name}/mcp" for name in upstreams} | {"directly": asking}
        # One after the other: some checks give a server half a second.
        yield {name: await judged(SUITE, url, folder / name, *REVISION, within=WITHIN) for name, url in places.items()}
    for url in (blocking, asking):
        assert_log_is_discreet(log, url)


def failing(judgement: Judgement) -> dict[str, list[str]]:
    """What is held against a server, by the scenarios that it does not pass."""
    return {name: complaints(checks) for name, checks in sorted(judgement.items()) if not passes(checks)}


async def test_a_server_that_only_blocks_passes_all_but_what_is_known_to_fail(
    judgements: dict[str, Judgement],
) -> None:
    found = failing(judgements["blocking"])
    assert {*found} == {*BASELINE["blocking"]}, found


async def test_a_server_that_asks_passes_through_the_gateway_whatever_it_passes_directly(
    judgements: dict[str, Judgement],
) -> None:
    directly = failing(judgements["directly"])
    found = {name: said for name, said in failing(judgements["asking"]).items() if name not in directly}
    assert sorted(found) == sorted(BASELINE["asking"]), found


async def test_a_server_that_asks_passes_through_the_gateway_what_takes_tasks_too(
    judgements: dict[str, Judgement],
) -> None:
    assert "tasks-mrtr-composition" in failing(judgements["directly"])
    assert complaints(judgements["asking"]["tasks-mrtr-composition"]) == []


async def test_every_scenario_of_the_revision_and_of_tasks_is_judged(judgements: dict[str, Judgement]) -> None:
    scenarios = {*judgements["blocking"]}
    assert len([name for name in scenarios if name.startswith("tasks-")]) == len(BASELINE["tasks"]) == 10
    assert scenarios == {*judgements["asking"]} == {*judgements["directly"]} >= {*BASELINE["tasks"]}
    assert len(scenarios) == 50
