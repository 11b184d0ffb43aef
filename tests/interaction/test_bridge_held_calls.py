"""Questions of a server of the legacy era to hosts of the modern one: rounds of held calls, inputs of tasks."""

from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host, called
from helpers.manual_clock import ManualClock
from helpers.server import FORM, ScriptedServer, TalkingTool
from helpers.waiting import eventually
from interaction.bridges import requiring
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, ROOTS, SAID, SAMPLE, URL
from interaction.refusals import refused
from requirements import covers

ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ROOTS_OF_NONE = {"roots": []}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


@pytest.fixture(autouse=True)
def listening(tool: TalkingTool) -> None:
    """The tool may be told what to say before it is called."""
    tool.begun.set()


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked everything, without the tasks extension."""
    return gateway.modern(capabilities=ABLE, tasks=False)


@pytest.fixture
async def always(server: ScriptedServer) -> AsyncIterator[Host]:
    """A host all of whose calls become tasks."""
    async with serve(configuration({"reports": server.url}, tasks=ALWAYS)) as gateway:
        yield gateway.modern(capabilities=ABLE)


async def retry(
    host: Host, asked: dict[str, Any], answers: dict[str, Any], then: Awaitable[object] | None = None
) -> dict[str, Any]:
    """The result of the call with these answers; what is awaited meanwhile lets it end."""
    params = called("report", inputResponses=answers, requestState=asked["requestState"])
    async with host.asking("tools/call", params) as retrying:
        if then is not None:
            await then
        return (await retrying.answer()).result


async def end(tool: TalkingTool, id: Any, value: Any) -> None:
    """Let the tool have its answer, see that it is that one, and end."""
    assert (await tool.told(id))["result"] == value
    await tool.finish(DONE)


# --- held calls -------------------------------------------------------------------------------------------------------


@covers("M-MRTR-1", "M-MRTR-3", "M-MRTR-6", "B-CONV-6", "B-CONV-7", "M-MRTR-9")
async def test_a_question_ends_the_request_and_its_answer_goes_to_the_call_that_waits(
    server: ScriptedServer, host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    asked = (await host.call("report")).result
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key] == {"method": ELICIT, "params": FORM}
    assert tool.unanswered("q-1")
    answered = await retry(host, asked, {key: ACCEPTED}, end(tool, "q-1", ACCEPTED))
    assert answered["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1


@covers("M-MRTR-3", "M-MRTR-6")
@pytest.mark.parametrize(
    ("method", "params", "answer"), [(SAMPLE, ASKED, SAID), (ROOTS, {}, {"roots": [{"uri": "file:///a"}]})]
)
async def test_whatever_a_host_can_be_asked_comes_as_a_round(
    host: Host, tool: TalkingTool, method: str, params: dict[str, Any], answer: dict[str, Any]
) -> None:
    await tool.ask(1, method, params)
    asked = (await host.call("report")).result
    ((key, question),) = asked["inputRequests"].items()
    assert question["method"] == method
    assert (await retry(host, asked, {key: answer}, end(tool, 1, answer)))["content"] == DONE["content"]


@covers("M-MRTR-3", "M-MRTR-4")
async def test_a_call_may_ask_again_and_again(server: ScriptedServer, host: Host, tool: TalkingTool) -> None:
    await tool.ask("q-1")
    asked = (await host.call("report")).result
    seen = set()
    for number in (2, 3, 4):
        (key,) = asked["inputRequests"]
        seen.add(asked["requestState"])
        asked = await retry(host, asked, {key: ACCEPTED}, tool.ask(f"q-{number}"))
    (key,) = asked["inputRequests"]
    no = {"action": "decline"}
    assert (await retry(host, asked, {key: no}, end(tool, "q-4", no)))["content"] == DONE["content"]
    assert (await tool.told("q-3"))["result"] == ACCEPTED
    assert len(seen) == 3
    assert len(server.heard("tools/call")) == 1


@covers("M-MRTR-5")
async def test_what_was_not_answered_is_asked_again_and_what_was_not_asked_is_nothing(
    host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    asked = (await host.call("report")).result
    again = await retry(host, asked, {"unknown": ACCEPTED})
    assert again["resultType"] == "input_required"
    assert again["inputRequests"] == asked["inputRequests"]
    assert tool.unanswered("q-1")
    (key,) = again["inputRequests"]
    answered = await retry(host, again, {key: ACCEPTED, "unknown": ROOTS_OF_NONE}, end(tool, "q-1", ACCEPTED))
    assert answered["content"] == DONE["content"]


@covers("M-MRTR-5")
@pytest.mark.parametrize("answer", [{}, {"action": "maybe"}, {"roots": []}, {"action": 7}], ids=repr)
async def test_an_answer_that_is_none_to_its_question_is_refused(
    host: Host, tool: TalkingTool, answer: dict[str, Any]
) -> None:
    await tool.ask("q-1")
    asked = (await host.call("report")).result
    (key,) = asked["inputRequests"]
    params = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
    refused(await host.call("report", **params), 200, -32602)
    assert tool.unanswered("q-1")


@covers("M-MRTR-2", "L-INPUT-6")
@pytest.mark.parametrize(
    ("declared", "method", "params", "code"),
    [
        ({}, ELICIT, FORM, -32601),
        ({}, SAMPLE, ASKED, -32601),
        ({}, ROOTS, {}, -32601),
        ({"elicitation": {"form": {}}}, ELICIT, URL, -32602),
    ],
)
async def test_a_host_is_not_asked_what_it_did_not_declare(
    host: Host, tool: TalkingTool, declared: dict[str, Any], method: str, params: dict[str, Any], code: int
) -> None:
    await tool.ask("q-1", method, params)
    async with host.asking("tools/call", called("report"), capabilities=declared) as asked:
        await eventually(lambda: tool.turn)
        assert (await tool.told("q-1"))["error"]["code"] == code
        await tool.finish(DONE)
        assert (await asked.answer()).result["content"] == DONE["content"]


@covers("M-MRTR-7", "R-RES-7", "S-SEC-1", "L-INPUT-8")
@pytest.mark.parametrize(
    ("method", "params", "told"),
    [(ELICIT, FORM, ("result", "action", "cancel")), (SAMPLE, ASKED, ("error", "code", -1))],
)
async def test_a_host_that_never_comes_back_has_its_question_answered_for_it_and_its_call_cancelled(
    server: ScriptedServer, tool: TalkingTool, method: str, params: dict[str, Any], told: tuple[str, str, Any]
) -> None:
    clock = ManualClock()
    await tool.ask("q-1", method, params)
    config = configuration({"reports": server.url}, tasks={"input_required": {"max_wait": "5m"}})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = gateway.modern(capabilities=ABLE, tasks=False)
        assert (await host.call("report")).result["resultType"] == "input_required"
        clock.advance(timedelta(minutes=5, seconds=1))
        kind, member, value = told
        assert (await tool.told("q-1"))[kind][member] == value
        await eventually(lambda: server.cancelled == [server.heard("tools/call")[0]["id"]])


@covers("H-MOD-9", "M-MRTR-7")
async def test_a_host_that_leaves_its_retry_has_its_call_cancelled(
    server: ScriptedServer, host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    asked = (await host.call("report")).result
    (key,) = asked["inputRequests"]
    params = called("report", inputResponses={key: ACCEPTED}, requestState=asked["requestState"])
    async with host.asking("tools/call", params) as retrying:
        await tool.told("q-1")
        await retrying.leave()
    await eventually(lambda: server.cancelled == [server.heard("tools/call")[0]["id"]])


@covers("B-CONV-10", "M-MRTR-1")
@pytest.mark.parametrize(
    ("method", "params", "said"),
    [("prompts/get", {"name": "p"}, {"messages": []}), ("resources/read", {"uri": "file:///a"}, {"contents": []})],
)
async def test_a_prompt_and_a_resource_ask_as_a_tool_does(
    server: ScriptedServer,
    host: Host,
    tool: TalkingTool,
    method: str,
    params: dict[str, Any],
    said: dict[str, Any],
) -> None:
    server.capabilities |= {"prompts": {}, "resources": {}}
    server.methods[method] = tool
    await tool.ask("q-1")
    asked = (await host.ask(method, params)).result
    (key,) = asked["inputRequests"]
    answers = {"inputResponses": {key: ACCEPTED}, "requestState": asked["requestState"]}
    async with host.asking(method, {**params, **answers}) as retrying:
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        await tool.finish(said)
        result = (await retrying.answer()).result
    assert {name: result[name] for name in said} == said


@covers("B-CONV-8", "T-24", "M-MRTR-1")
async def test_a_required_elicitation_is_a_round_and_then_the_call_is_sent_again(
    server: ScriptedServer, host: Host
) -> None:
    server.script["report"] = requiring("e-1")
    asked = (await host.call("report")).result
    ((key, question),) = asked["inputRequests"].items()
    assert question["params"] == {name: value for name, value in URL.items() if name != "elicitationId"}
    assert (await retry(host, asked, {key: {"action": "accept"}}))["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 2


@covers("B-CONV-8", "T-24")
async def test_a_required_elicitation_that_is_declined_is_an_error(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = requiring("e-1")
    asked = (await host.call("report")).result
    (key,) = asked["inputRequests"]
    params = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
    answer = await host.call("report", **params)
    assert refused(answer, 200, -32603)["data"]["upstreamCode"] == -32042
    assert len(server.heard("tools/call")) == 1
