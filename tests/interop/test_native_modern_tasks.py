"""A real server of 2026-07-28 that makes tasks of calls itself, before hosts of both eras: FastMCP 4, unmodified.

Every call is counted by the server itself, so that none is made twice, whatever becomes of the gateway. No host hears
of its ids.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yarl import URL

from helpers.cutter import Cutter
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, both_eras
from helpers.waiting import bounded, eventually
from interop.hosts import OFFICIAL
from interop.native import Native
from interop.native_modern import native_modern_program, native_modern_server

# The server is started once, and its output is read by the loop that started it.
pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module")]

ELICIT = "elicitation/create"
CAPABLE = {"elicitation": {"form": {}}}
ALWAYS = {"tasks": {"upgrade": [{"tool": "*", "mode": "always"}], "early_poll": {"reject_above": 1000}}}
MODERN = {"protocol_version": "auto"}
ITS_ID = re.compile(r"[\w-]{43}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Native]:
    async with native_modern_server(tmp_path_factory.mktemp("native")) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(native: Native) -> AsyncIterator[Gateway]:
    """Before that server, whose era it finds out."""
    upstream = {"path": "/reports/mcp", "url": native.url, **MODERN}
    async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def always(native: Native) -> AsyncIterator[Gateway]:
    """The same, with a task of every call of a host that knows tasks."""
    upstream = {"path": "/reports/mcp", "url": native.url, **MODERN}
    async with serve(configuration({}, upstreams={"reports": upstream}, **ALWAYS)) as gateway:
        yield gateway


def text(result: dict[str, Any]) -> str:
    """What a result says."""
    return " ".join(block["text"] for block in result["content"])


def accepted(field: str, word: str) -> dict[str, Any]:
    return {"action": "accept", "content": {field: word}}


def field_of(question: dict[str, Any]) -> str:
    """What a form asks for."""
    (field,) = question["params"]["requestedSchema"]["properties"]
    return str(field)


async def test_a_tool_that_is_only_run_as_a_task_is_called_plainly_by_hosts_of_both_eras(
    native: Native, gateway: Gateway
) -> None:
    old, new, modern = await gateway.greeted("2025-06-18"), await gateway.greeted(), gateway.modern(tasks=False)
    names = ("plain old", "plain new", "plain none")
    answers = await asyncio.gather(
        old.call("report", {"name": names[0]}),
        new.call("report", {"name": names[1]}),
        modern.call("report", {"name": names[2]}),
    )
    for answer, name in zip(answers, names, strict=True):
        assert text(answer.result) == f"report {name}"
        assert answer.result["structuredContent"] == {"result": f"report {name}"}
        assert not ITS_ID.search(answer.text)
        assert native.did(f"began {name}") == 1


async def test_a_tool_that_may_be_a_task_is_called_plainly_by_a_host_without_tasks(
    native: Native, gateway: Gateway
) -> None:
    answer = await gateway.modern(tasks=False).call("sums", {"a": 2, "b": 3})
    assert answer.result["structuredContent"] == {"result": 5}
    assert native.did("sums 2 3") == 1


@pytest.mark.parametrize("kind", ["legacy", "modern", "directly"])
async def test_a_plain_call_of_a_host_without_tasks_hears_all_progress(
    native: Native, gateway: Gateway, kind: str
) -> None:
    host: Any = gateway.modern(tasks=False) if kind != "legacy" else await gateway.greeted()
    if kind == "directly":
        host.url = native.url
    meta = {"progressToken": "p"}
    answer = await (host.call("stepped", _meta=meta) if kind == "legacy" else host.call("stepped", meta=meta))
    said = [note["params"]["message"] for note in answer.notices if "message" in note["params"]]
    assert said == ["step 1", "step 2", "step 3", "step 4"]


async def test_what_its_task_says_of_itself_is_progress_of_a_plain_call(gateway: Gateway) -> None:
    host = gateway.modern(tasks=False)
    answer = await host.call("report", {"name": "told", "steps": 2}, meta={"progressToken": "p"})
    said = [note["params"]["message"] for note in answer.notices if "message" in note["params"]]
    assert said == ["page 1 of 2", "page 2 of 2"]


@both_eras
async def test_a_task_is_one_of_the_servers_too_and_says_what_that_says(
    native: Native, gateway: Gateway, always: Gateway, era: str
) -> None:
    host: Any = always.modern() if era == "modern" else await gateway.greeted()
    steps = 20
    task = (await host.start("report", {"name": era, "steps": steps}))["taskId"]
    seen: list[Any] = []
    async with bounded():
        while (found := await _get(host, task))["status"] == "working":
            seen.append(found.get("statusMessage"))
            await asyncio.sleep(0.01)
    # What comes in the second after the first of them is written together: the task takes three.
    said = {message for message in seen if message is not None}
    assert said
    assert said <= {f"page {step} of {steps}" for step in range(1, steps + 1)}
    result = found["result"] if era == "modern" else (await host.ask("tasks/result", {"taskId": task})).result
    assert text(result) == f"report {era}"
    assert native.did(f"began {era}") == 1


async def _get(host: Host, task: str) -> dict[str, Any]:
    return await host.task(task)


async def test_what_it_asks_for_its_task_is_answered_by_a_host_of_the_legacy_era(gateway: Gateway) -> None:
    host = gateway.host()
    await host.initialize(capabilities=CAPABLE)
    task = (await host.start("ask"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        for number in (1, 2, 3):
            asked = await stream.until(ELICIT, times=number)
            await host.respond(asked["id"], accepted(field_of(asked), f"w-{field_of(asked)}"))
        assert text(await stream.result()) == "w-first w-second w-third"
    assert not ITS_ID.search(json.dumps(stream.heard))


async def test_what_it_asks_for_a_plain_call_is_asked_on_the_calls_stream(gateway: Gateway) -> None:
    host = gateway.host()
    await host.initialize(capabilities=CAPABLE)
    async with host.asking("tools/call", {"name": "ask", "arguments": {}}) as stream:
        for number in (1, 2, 3):
            asked = await stream.until(ELICIT, times=number)
            await host.respond(asked["id"], accepted(field_of(asked), f"p-{field_of(asked)}"))
        assert text(await stream.result()) == "p-first p-second p-third"


async def test_what_it_asks_for_its_task_is_answered_by_a_modern_host_word_by_word(
    native: Native, always: Gateway
) -> None:
    host = always.modern(capabilities=CAPABLE)
    before = native.did("asked")
    task = (await host.start("ask"))["taskId"]
    answered: set[str] = set()
    for count in (2, 1, 1):
        async with bounded():
            while len((await host.until(task, "input_required"))["inputRequests"].keys() - answered) < count:
                await asyncio.sleep(0.01)
        inputs = (await host.task(task))["inputRequests"]
        assert not ITS_ID.search(json.dumps(inputs))
        key = min(inputs.keys() - answered)
        await host.update(task, {key: accepted(field_of(inputs[key]), f"m-{field_of(inputs[key])}")})
        answered.add(key)
    assert text((await host.until(task, "completed"))["result"]) == "m-first m-second m-third"
    # The server enters the tool anew for each round that it has all answers to.
    assert native.did("asked") - before == 3


async def test_what_it_asks_a_host_without_tasks_is_a_round_of_a_held_call(gateway: Gateway) -> None:
    host = gateway.modern(tasks=False, capabilities=CAPABLE)
    result = (await host.call("ask")).result
    rounds = 0
    while result["resultType"] == "input_required":
        rounds += 1
        assert not ITS_ID.search(json.dumps(result["inputRequests"]))
        asked = result["inputRequests"].items()
        answers = {key: accepted(field_of(each), f"h-{field_of(each)}") for key, each in asked}
        params = {"inputResponses": answers, "requestState": result["requestState"]}
        result = (await host.call("ask", **params)).result
    assert (rounds, text(result)) == (2, "h-first h-second h-third")


async def looks(gateway: Gateway) -> float:
    """How often tasks of servers were looked at."""
    return await gateway.count("mcp_client_operation_duration_seconds_count", mcp_method_name="tasks/get")


async def looked_at(gateway: Gateway, before: float) -> None:
    """Return once one more was: a call that ends before its server has answered with a task may leave it that."""
    async with bounded():
        while await looks(gateway) == before:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("era", ["legacy", "modern", "a plain call"])
async def test_a_cancelled_call_stops_at_the_server(
    native: Native, gateway: Gateway, always: Gateway, era: str
) -> None:
    given = {"name": f"long {era}"}
    if era == "legacy":
        host = await gateway.greeted()
        task = (await host.start("waits", given))["taskId"]
        await eventually(lambda: native.did(f"began long {era}"))
        await host.ask("tasks/cancel", {"taskId": task})
    elif era == "modern":
        other = always.modern()
        task = (await other.start("waits", given))["taskId"]
        await eventually(lambda: native.did(f"began long {era}"))
        await other.cancel(task)
    else:
        before = await looks(gateway)
        async with gateway.modern(tasks=False).asking("tools/call", {"name": "waits", "arguments": given}) as asked:
            await eventually(lambda: native.did(f"began long {era}"))
            await looked_at(gateway, before)
            await asked.leave()
    await eventually(lambda: native.did(f"stopped long {era}") == 1)


async def test_a_call_that_is_given_up_while_the_handle_of_its_task_is_on_its_way_stops_at_the_server(
    native: Native,
) -> None:
    server = URL(native.url)
    async with Cutter() as way:
        way.address, way.holds = (str(server.host), int(server.port or 0)), b'"resultType":"task"'
        upstream = {"path": "/reports/mcp", "url": str(server.with_port(way.port)), **MODERN}
        async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
            given = {"name": "waits", "arguments": {"name": "given up"}}
            async with gateway.modern(tasks=False).asking("tools/call", given) as asked:
                async with bounded():
                    await way.held.wait()
                # Of a task that is cancelled before its tool runs, the ledger has nothing.
                await eventually(lambda: native.did("began given up"))
                await asked.leave()
            way.goes_on.set()
            await eventually(lambda: native.did("stopped given up") == 1)


async def test_a_tools_own_error_and_one_of_the_protocol_are_what_they_are(always: Gateway) -> None:
    host, legacy = always.modern(), await always.greeted()
    stumbled = await host.until((await host.start("stumbles"))["taskId"], "completed")
    assert (text(stumbled["result"]), stumbled["result"]["isError"]) == ("there is no paper", True)
    broke = await host.until((await host.start("breaks"))["taskId"], "failed")
    assert broke["error"] == {"code": -32001, "message": "no such printer", "data": {"printer": 3}}
    task = (await legacy.start("breaks"))["taskId"]
    answer = await legacy.ask("tasks/result", {"taskId": task})
    assert answer.error == broke["error"]


async def test_a_program_is_followed_as_well(tmp_path: Path) -> None:
    native = Native("", tmp_path / "ledger")
    program = {"transport": "stdio", "command": native_modern_program(native.ledger), "protocol_version": "2026-07-28"}
    async with serve(configuration({}, upstreams={"reports": {"path": "/reports/mcp", **program}})) as gateway:
        host = gateway.modern(tasks=False)
        assert text((await host.call("report", {"name": "plain", "steps": 1})).result) == "report plain"
        before = await looks(gateway)
        async with host.asking("tools/call", {"name": "waits", "arguments": {"name": "long"}}) as asked:
            await eventually(lambda: native.did("began long"))
            await looked_at(gateway, before)
            await asked.leave()
        await eventually(lambda: native.did("stopped long"))
    assert [native.did(f"began {name}") for name in ("plain", "long")] == [1, 1]
