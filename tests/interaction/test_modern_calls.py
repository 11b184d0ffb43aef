"""Plain requests of the modern era: how long they are waited for, what is told meanwhile, and who gives them up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.modern_schema import LEVEL, TASKS
from helpers.package_objects import counted, expect_no_growth, no_collections
from helpers.server import (
    FORM,
    Hold,
    Rounds,
    ScriptedServer,
    TalkingTool,
    asks,
    breaks_off,
    note,
    progress_note,
    stream,
)
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, DONE, ELICIT
from interaction.refusals import refused
from requirements import covers

ASKABLE = {"elicitation": {}}
CALLS = 6
QUESTION = {"jsonrpc": "2.0", "id": "q-1", "method": ELICIT, "params": FORM}
QUICK = {"sse_keepalive": "20ms"}
PROGRESS, MESSAGE = "notifications/progress", "notifications/message"


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host without tasks that cannot be asked anything."""
    return gateway.modern(tasks=False)


def told(answer: Answer, method: str) -> list[dict[str, Any]]:
    """The parameters of what was told by that method."""
    return [note["params"] for note in answer.notices if note["method"] == method]


# --- how an answer is written ----------------------------------------------------------------------------------------


@covers("H-MOD-13")
async def test_a_silent_call_begins_a_document_after_a_while_and_its_error_no_status(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, server=QUICK)) as gateway:
        async with gateway.modern(tasks=False).asking("tools/call", {"name": "report", "arguments": {}}) as asked:
            await asked.kept_waiting()
            await tool.say({"jsonrpc": "2.0", "id": tool.called.id, "error": {"code": -32602, "message": "no year"}})
            answer = await asked.answer()
        assert (answer.streamed, answer.notices, answer.status, answer.code) == (False, (), 200, -32602)


@covers("M-PROG-1")
async def test_a_host_with_a_token_is_shown_that_a_silent_call_still_runs(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, server=QUICK)) as gateway:
        call = {"name": "report", "arguments": {}}
        async with gateway.modern(tasks=False).asking("tools/call", call, meta={"progressToken": "p"}) as asked:
            await asked.until(PROGRESS, times=2)
            # What is behind that is not told: progress grows.
            await tool.say(progress_note(tool.called.token, 0))
            await tool.say(progress_note(tool.called.token, 5))
            await tool.finish(DONE)
            answer = await asked.answer()
        found = [params["progress"] for params in told(answer, PROGRESS)]
        assert found == sorted(set(found))
        assert 5 in found


@covers("M-PROG-1")
async def test_progress_goes_out_under_the_hosts_own_token_and_never_back(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = tool = TalkingTool()
    calling = asyncio.create_task(host.call("report", meta={"progressToken": 7}))
    for done in (1, 1, 3, 2, 4):
        async with bounded():
            await tool.begun.wait()
        await tool.say(progress_note(tool.called.token, done))
    await tool.finish(DONE)
    async with bounded():
        answer = await calling
    assert [(params["progressToken"], params["progress"]) for params in told(answer, PROGRESS)] == [
        (7, 1),
        (7, 3),
        (7, 4),
    ]


@covers("M-PROG-1")
async def test_without_a_token_no_progress_is_told(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = stream(DONE, progress=2)
    answer = await host.call("report")
    assert (answer.notices, answer.streamed) == ((), False)


@covers("M-LOG-1")
@pytest.mark.parametrize(("level", "heard"), [(None, []), ("warning", ["warning", "error"]), ("error", ["error"])])
async def test_log_lines_go_to_the_request_that_wants_them(
    server: ScriptedServer, host: Host, level: str | None, heard: list[str]
) -> None:
    lines = [note(MESSAGE, level=each, data="x") for each in ("debug", "warning", "error")]
    server.capabilities["logging"] = {}
    server.script["report"] = stream(DONE, before=lines)
    answer = await host.call("report", meta={} if level is None else {LEVEL: level})
    assert [params["level"] for params in told(answer, MESSAGE)] == heard


async def test_what_is_not_about_the_request_is_not_told_on_its_stream(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = stream(DONE, before=[note("notifications/tools/list_changed")])
    assert (await host.call("report")).notices == ()


@covers("M-MRTR-2")
async def test_a_host_that_cannot_be_asked_is_not(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = tool = TalkingTool()
    calling = asyncio.create_task(host.call("report"))
    await tool.ask("q-1")
    assert (await tool.told("q-1"))["error"]["code"] == -32601
    await tool.finish(DONE)
    async with bounded():
        assert (await calling).result["content"] == DONE["content"]


# --- who gives a call up ---------------------------------------------------------------------------------------------


@covers("H-MOD-9")
@pytest.mark.parametrize("capabilities", [{}, ASKABLE], ids=["plain", "askable"])
async def test_a_host_that_leaves_has_cancelled_its_call(
    server: ScriptedServer, gateway: Gateway, capabilities: dict[str, Any]
) -> None:
    server.script["report"] = hold = Hold()
    host = gateway.modern(capabilities=capabilities, tasks=False)
    async with host.asking("tools/call", {"name": "report", "arguments": {}}) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    await eventually(lambda: server.cancelled == [hold.turns[0].id])


@pytest.mark.parametrize("capabilities", [{}, ASKABLE], ids=["plain", "askable"])
async def test_a_call_that_runs_when_the_gateway_ends_is_told_so(
    server: ScriptedServer, capabilities: dict[str, Any]
) -> None:
    server.script["report"] = hold = Hold()
    drain = {"drain": {"delay": "0s", "timeout": "100ms"}}
    async with serve(configuration({"reports": server.url}, server=drain)) as gateway:
        calling = asyncio.create_task(gateway.modern(capabilities=capabilities, tasks=False).call("report"))
        async with bounded():
            await hold.begun.wait()
        await gateway.drain()
        error = refused(await calling, 200, -32603)
        assert error["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}
    await eventually(lambda: server.cancelled == [hold.turns[0].id])


@pytest.mark.parametrize("capabilities", [{}, ASKABLE], ids=["plain", "askable"])
async def test_a_call_that_fails_is_told_so(
    server: ScriptedServer, gateway: Gateway, capabilities: dict[str, Any]
) -> None:
    server.script["report"] = breaks_off()
    answer = await gateway.modern(capabilities=capabilities, tasks=False).call("report")
    assert refused(answer, 200, -32603)["data"] == {"origin": "upstream", "reason": "closed", "dispatched": True}


# --- rounds of servers of the same era -------------------------------------------------------------------------------


@pytest.fixture
async def modern() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("modern") as server:
        yield server


@pytest.fixture
async def before_modern(modern: ScriptedServer) -> AsyncIterator[Host]:
    """A host without tasks that can be asked, before a server of its own era."""
    upstreams = {"reports": {"path": "/reports/mcp", "url": modern.url, "protocol_version": "2026-07-28"}}
    async with serve(configuration({}, upstreams=upstreams)) as gateway:
        yield gateway.modern(capabilities=ASKABLE, tasks=False)


def question(key: str) -> dict[str, Any]:
    return {key: {"method": ELICIT, "params": FORM}}


@covers("M-MRTR-3", "M-MRTR-4")
async def test_a_round_of_a_server_goes_to_the_host_as_it_is_but_for_its_state(
    modern: ScriptedServer, before_modern: Host
) -> None:
    modern.script["echo"] = rounds = Rounds(
        {"inputRequests": question("a"), "requestState": "first"},
        {"inputRequests": question("b"), "requestState": "second"},
        answer=DONE,
    )
    host, params = before_modern, {}
    for key in ("a", "b"):
        result = (await host.call("echo", **params)).result
        assert result["inputRequests"] == question(key)
        assert result["requestState"] not in ("first", "second")
        params = {"inputResponses": {key: ACCEPTED}, "requestState": result["requestState"]}
    assert (await host.call("echo", **params)).result["content"] == DONE["content"]
    assert rounds.states == ["first", "second"]
    assert rounds.answers == [{"a": ACCEPTED}, {"b": ACCEPTED}]


@covers("M-LOG-1")
@pytest.mark.parametrize("tasks", [{}, {"extensions": {TASKS: {}}}], ids=["plain", "with tasks"])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_how_loud_a_server_may_be_is_said_with_every_request(
    modern: ScriptedServer, before_modern: Host, method: str, tasks: dict[str, Any]
) -> None:
    await before_modern.ask(method, {"name": "echo"}, meta={LEVEL: "error"}, capabilities=tasks)
    assert modern.heard(method)[0]["params"]["_meta"][LEVEL] == "error"


async def test_a_round_without_a_state_needs_none(modern: ScriptedServer, before_modern: Host) -> None:
    modern.script["echo"] = rounds = Rounds({"inputRequests": question("a")}, answer=DONE)
    result = (await before_modern.call("echo")).result
    assert "requestState" not in result
    answer = await before_modern.call("echo", inputResponses={"a": ACCEPTED})
    assert answer.result["content"] == DONE["content"]
    assert (rounds.states, rounds.answers) == ([None], [{"a": ACCEPTED}])


@covers("M-MRTR-4")
async def test_a_state_of_a_server_comes_back_for_the_same_request_alone(
    modern: ScriptedServer, before_modern: Host
) -> None:
    modern.script["echo"] = Rounds({"inputRequests": question("a"), "requestState": "first"})
    result = (await before_modern.call("echo", {"x": 1})).result
    params = {"inputResponses": {"a": ACCEPTED}, "requestState": result["requestState"]}
    refused(await before_modern.call("echo", {"x": 2}, **params), 200, -32602)
    refused(await before_modern.call("echo", {"x": 1}, **{**params, "requestState": "first"}), 200, -32602)
    assert len(modern.heard("tools/call")) == 1


async def test_a_host_that_cannot_be_asked_is_passed_a_round_that_asks_nothing(modern: ScriptedServer) -> None:
    modern.script["echo"] = rounds = Rounds({"requestState": "later"}, answer=DONE)
    upstreams = {"reports": {"path": "/reports/mcp", "url": modern.url, "protocol_version": "2026-07-28"}}
    async with serve(configuration({}, upstreams=upstreams)) as gateway:
        host = gateway.modern(tasks=False)
        result = (await host.call("echo")).result
        assert "inputRequests" not in result
        answer = await host.call("echo", requestState=result["requestState"])
        assert answer.result["content"] == DONE["content"]
        assert rounds.states == ["later"]


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [{}, ASKABLE], ids=["plain", "askable"])
async def test_a_call_that_is_over_is_gone_at_once(gateway: Gateway, capabilities: dict[str, Any]) -> None:
    host = gateway.modern(capabilities=capabilities)
    for _ in range(CALLS):
        await host.call("echo")
    with no_collections():
        before = counted()
        for _ in range(CALLS):
            await host.call("echo")
        await expect_no_growth(before, CALLS)


async def test_a_call_that_waited_for_its_host_is_gone_at_once(server: ScriptedServer, gateway: Gateway) -> None:
    host = gateway.modern(capabilities=ASKABLE, tasks=False)

    async def calls() -> None:
        # What it asks has the same id each time.
        server.requests.clear()
        server.script["report"] = asks(QUESTION)
        result = (await host.call("report")).result
        answers = {"inputResponses": dict.fromkeys(result["inputRequests"], ACCEPTED)}
        await host.call("report", **answers, requestState=result["requestState"])

    for _ in range(CALLS):
        await calls()
    with no_collections():
        before = counted()
        for _ in range(CALLS):
            await calls()
        await expect_no_growth(before, CALLS)


async def test_of_a_call_whose_stream_breaks_off_no_more_is_left_than_its_reader(
    server: ScriptedServer, gateway: Gateway
) -> None:
    """What read it, and its connection, are in a cycle with the error that it ended with, of the HTTP library."""
    host = gateway.modern(capabilities=ASKABLE, tasks=False)
    server.script["broken"] = breaks_off()

    async def fail() -> None:
        for _ in range(CALLS):
            refused(await host.call("broken"), 200, -32603)

    await fail()
    with no_collections():
        before = counted()
        await fail()
        await expect_no_growth(before, CALLS, remembered={"Connection", "HttpIncoming", "EventDecoder"})
