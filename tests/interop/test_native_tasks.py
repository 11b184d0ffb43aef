"""Real servers that make tasks of calls themselves, before hosts of both eras: on the SDKs for Python and TypeScript.

Every call of them is counted by the server itself, so that none is made twice, whatever becomes of the gateway.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, both_eras
from helpers.waiting import bounded, eventually
from interop.hosts import OFFICIAL
from interop.native import Native, native_server
from interop.peers import require_peers
from interop.programs import upstreams
from interop.released import HTTP

# The servers are started once, and their output is read by the loop that started them.
pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module")]

RELATED = "io.modelcontextprotocol/related-task"
ELICIT = "elicitation/create"
CAPABLE = {"elicitation": {"form": {}}}
ALWAYS = {"tasks": {"upgrade": [{"tool": "*", "mode": "always"}], "early_poll": {"reject_above": 1000}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Native]:
    async with native_server(tmp_path_factory.mktemp("native")) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(native: Native) -> AsyncIterator[Gateway]:
    """Before that server."""
    async with serve(configuration({"reports": native.url})) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def always(native: Native) -> AsyncIterator[Gateway]:
    """The same, with a task of every call of a host that knows tasks."""
    async with serve(configuration({"reports": native.url}, **ALWAYS)) as gateway:
        yield gateway


def text(result: dict[str, Any]) -> str:
    """What a result says."""
    return " ".join(block["text"] for block in result["content"])


async def said(host: Host, task: str) -> list[str | None]:
    """What a task said of itself until it ended, each once."""
    seen: list[str | None] = []
    async with bounded():
        while True:
            found = await host.task(task)
            if found.get("statusMessage") not in seen:
                seen.append(found.get("statusMessage"))
            if found["status"] not in ("working", "input_required"):
                return seen
            await asyncio.sleep(0.01)


# --- on the SDK for Python -----------------------------------------------------------------------------------------


async def test_a_tool_that_is_only_run_as_a_task_is_called_plainly_by_hosts_of_both_eras(
    native: Native, gateway: Gateway
) -> None:
    old, new = await gateway.greeted("2025-06-18"), await gateway.greeted()
    modern = gateway.modern(tasks=False)
    given = [{"topic": topic, "steps": 2} for topic in ("plain old", "plain new", "plain none")]
    answers = await asyncio.gather(
        old.call("research", given[0]), new.call("research", given[1]), modern.call("research", given[2])
    )
    for answer, asked in zip(answers, given, strict=True):
        assert text(answer.result) == f"all about {asked['topic']}"
        assert RELATED not in json.dumps(answer.result)
        assert native.did(f"began {asked['topic']}") == 1


async def test_a_tool_that_may_be_a_task_is_none_for_a_plain_call(native: Native, gateway: Gateway) -> None:
    assert text((await (await gateway.greeted()).call("index")).result) == "plainly"


async def test_a_task_is_one_of_the_servers_too_and_says_what_that_says(native: Native, gateway: Gateway) -> None:
    host = await gateway.greeted()
    task = (await host.start("research", {"topic": "steps", "steps": 2, "pause": 0.4}))["taskId"]
    assert "steps: 1 of 2" in await said(host, task)
    result = (await host.ask("tasks/result", {"taskId": task})).result
    assert (text(result), result["_meta"]) == ("all about steps", {RELATED: {"taskId": task}})
    assert native.did("began steps") == 1


async def test_a_task_of_a_modern_host_is_one_of_the_servers_too(native: Native, always: Gateway) -> None:
    host = always.modern()
    task = (await host.start("index", {"topic": "modern"}))["taskId"]
    assert text((await host.until(task, "completed"))["result"]) == "all about modern"
    assert native.did("began modern") == 1


async def test_what_it_asks_for_its_task_is_answered_by_a_host_of_the_legacy_era(
    native: Native, gateway: Gateway
) -> None:
    host = gateway.host()
    await host.initialize(capabilities=CAPABLE)
    task = (await host.start("consult"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        for number in (1, 2):
            asked = await stream.until(ELICIT, times=number)
            assert asked["params"]["message"] == f"Word {number}?"
            assert asked["params"]["_meta"] == {RELATED: {"taskId": task}}
            await host.respond(asked["id"], {"action": "accept", "content": {"word": f"w{number}"}})
        assert text(await stream.result()) == "w1 w2"


async def test_what_it_asks_for_its_task_is_answered_by_a_modern_host(native: Native, always: Gateway) -> None:
    host = always.modern(capabilities=CAPABLE)
    task = (await host.start("consult", {"rounds": 2}))["taskId"]
    for number in (1, 2):
        async with bounded():
            while not (inputs := (await host.until(task, "input_required")).get("inputRequests")):
                await asyncio.sleep(0.01)
        (key,) = inputs
        assert inputs[key]["params"]["message"] == f"Word {number}?"
        await host.update(task, {key: {"action": "accept", "content": {"word": f"m{number}"}}})
        await eventually(lambda: native.did(f"heard m{number}") == 1)  # noqa: B023  it is awaited at once
    assert text((await host.until(task, "completed"))["result"]) == "m1 m2"


@both_eras
async def test_a_cancelled_task_stops_at_the_server(
    native: Native, gateway: Gateway, always: Gateway, era: str
) -> None:
    given = {"topic": f"long {era}", "steps": 100, "pause": 0.05}
    if era == "legacy":
        host = await gateway.greeted()
        task = (await host.start("research", given))["taskId"]
        await eventually(lambda: native.did(f"began long {era}") == 1)
        await host.ask("tasks/cancel", {"taskId": task})
    else:
        other = always.modern()
        task = (await other.start("research", given))["taskId"]
        await eventually(lambda: native.did(f"began long {era}") == 1)
        await other.cancel(task)
    await eventually(lambda: native.did(f"stopped long {era}") == 1)


async def test_a_task_that_failed_there_says_why(native: Native, gateway: Gateway) -> None:
    host = await gateway.greeted()
    task = (await host.start("stumble"))["taskId"]
    assert (await said(host, task))[-1] == "over a stone"
    result = (await host.ask("tasks/result", {"taskId": task})).result
    assert (text(result), result["isError"]) == ("over a stone", True)
    assert native.did("stumbled") == 1


# --- on the SDK for TypeScript -------------------------------------------------------------------------------------


async def test_finding_the_era_of_a_server_does_not_stop_its_tasks_as_the_end_of_a_session_does(tmp_path: Path) -> None:
    async with native_server(tmp_path, "--as-it-comes") as native:
        upstream = {"path": "/reports/mcp", "url": native.url, "protocol_version": "auto"}
        await ends_well(configuration({}, upstreams={"reports": upstream}))


async def ends_well(config: Any) -> None:
    """Tasks of a host in one session end with their results."""
    async with serve(config) as gateway:
        host = await gateway.greeted()
        for number in range(3):
            task = (await host.start("research", {"topic": f"it {number}", "steps": 5}))["taskId"]
            result = (await host.ask("tasks/result", {"taskId": task})).result
            assert text(result) == f"all about it {number}"


async def test_the_reference_server_asks_for_its_own_task_who_can_be_asked_and_nobody_else(tmp_path: Path) -> None:
    require_peers()
    given = {"topic": "python", "ambiguous": True}
    async with (
        upstreams({"reports": ("everything-2026-08", HTTP)}, tmp_path) as written,
        serve(configuration({}, upstreams=written)) as gateway,
    ):
        host, other = gateway.host(), gateway.modern(tasks=False)
        await host.initialize(capabilities=CAPABLE)
        unasked = asyncio.create_task(other.call("simulate-research-query", given))
        task = (await host.start("simulate-research-query", given))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            question = await stream.until(ELICIT)
            assert "python" in question["params"]["message"]
            await host.respond(question["id"], {"action": "accept", "content": {"interpretation": "snake"}})
            assert "# Research Report: python (snake)\n" in text(await stream.result())
        assert "# Research Report: python\n" in text((await unasked).result)
