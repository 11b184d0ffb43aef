"""Rounds of a server of the modern era as questions to a host of the initialize one, in plain calls and in tasks."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.answers import Answer, Stream
from helpers.host.host import Host
from helpers.server import Rounds, ScriptedServer
from interaction.bridges import DONE, FORM, ROOTS, SAMPLE, bridge, modern
from interaction.questions import ACCEPTED, CAPABLE, ELICIT, SAID
from requirements import covers

__all__ = ["bridge", "modern"]

ROOT = {"roots": [{"uri": "file:///here"}]}
URL = {"method": ELICIT, "params": {"mode": "url", "message": "m", "url": "https://example.org/x"}}
CALL = {"name": "report", "arguments": {"a": 1}}


@pytest.fixture
async def host(bridge: Gateway) -> Host:
    """A host of 2025-11-25 that can be asked everything."""
    host = bridge.host()
    await host.initialize(capabilities=CAPABLE)
    return host


async def respond(host: Host, stream: Stream, method: str, value: Any, *, times: int = 1) -> dict[str, Any]:
    """Answer a question once it has come; the question."""
    asked = await stream.until(method, times=times)
    assert (await host.respond(asked["id"], value)).status == 202
    return asked


@covers("M-MRTR-3", "M-MRTR-6", "B-CONV-6", "B-CONV-7")
async def test_every_entry_of_a_round_is_a_question_and_the_call_is_sent_again_with_all_answers(
    modern: ScriptedServer, host: Host
) -> None:
    rounds = Rounds({"inputRequests": {"who": FORM, "roots": ROOTS, "why": SAMPLE}, "requestState": "s\\u00e9 1"})
    modern.script["report"] = rounds
    async with host.asking("tools/call", CALL) as stream:
        asked = await respond(host, stream, ELICIT, {**ACCEPTED, "_meta": {"mine": 1}})
        await respond(host, stream, "roots/list", {**ROOT, "_meta": {"mine": 1}})
        await respond(host, stream, "sampling/createMessage", SAID)
        result = await stream.result()
    assert asked["params"]["message"] == FORM["params"]["message"]
    assert result == {"content": [], "structuredContent": {"answers": rounds.answers}}
    assert rounds.answers == [{"who": ACCEPTED, "roots": ROOT, "why": SAID}]
    assert rounds.states == ["s\\u00e9 1"]
    first, second = modern.heard("tools/call")
    assert first["id"] != second["id"]
    assert second["params"]["arguments"] == first["params"]["arguments"] == {"a": 1}


@covers("M-MRTR-3")
async def test_round_follows_round_with_the_state_of_each(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM}, "requestState": "one"},
        {"inputRequests": {"a": FORM}},
        {"inputRequests": {"b": ROOTS}, "requestState": "three"},
    )
    async with host.asking("tools/call", CALL) as stream:
        await respond(host, stream, ELICIT, ACCEPTED)
        await respond(host, stream, ELICIT, {"action": "decline"}, times=2)
        await respond(host, stream, "roots/list", ROOT)
        await stream.result()
    assert rounds.states == ["one", None, "three"]
    assert rounds.answers == [{"a": ACCEPTED}, {"a": {"action": "decline"}}, {"b": ROOT}]


@covers("M-MRTR-3")
async def test_a_round_without_a_question_is_gone_through_at_once(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = rounds = Rounds({"requestState": "later"}, answer=DONE)
    assert (await host.ask("tools/call", CALL)).result == DONE
    assert rounds.states == ["later"]


@covers("L-INPUT-1", "L-INPUT-2", "M-MRTR-3", "T-13", "T-7")
async def test_a_round_of_a_task_waits_for_its_host(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM, "b": FORM}, "requestState": "s"})
    task = (await host.start("report"))["taskId"]
    await host.until(task, "input_required")
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        first = await respond(host, stream, ELICIT, ACCEPTED)
        second = await respond(host, stream, ELICIT, {"action": "cancel"}, times=2)
        await stream.result()
    assert first["id"] != second["id"]
    related = {"io.modelcontextprotocol/related-task": {"taskId": task}}
    assert [each["params"]["_meta"] for each in (first, second)] == [related] * 2
    (answers,) = rounds.answers
    assert sorted(answers) == ["a", "b"]
    assert sorted(each["action"] for each in answers.values()) == ["accept", "cancel"]


@covers("M-MRTR-3")
@pytest.mark.parametrize("as_task", [False, True])
@pytest.mark.parametrize("code", [-1, -32601])
async def test_an_answer_that_is_an_error_ends_the_call(
    modern: ScriptedServer, host: Host, code: int, as_task: bool
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"why": SAMPLE}, "requestState": "s"})
    if as_task:
        task = (await host.start("report"))["taskId"]
        asking = host.asking("tasks/result", {"taskId": task})
    else:
        asking = host.asking("tools/call", CALL)
    async with asking as stream:
        asked = await stream.until("sampling/createMessage")
        await host.respond(asked["id"], error={"code": code, "message": "no"})
        await stream.end()
    assert stream.heard[-1]["error"]["code"] == -32603
    assert len(rounds.turns) == 1


@covers("L-INPUT-6", "M-MRTR-2", "S-SEC-1")
@pytest.mark.parametrize(("capabilities", "question"), [({}, FORM), ({"elicitation": {}}, URL)])
async def test_where_the_host_takes_no_such_question_the_server_hears_that_nobody_chose(
    modern: ScriptedServer, bridge: Gateway, capabilities: dict[str, Any], question: dict[str, Any]
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": question}, "requestState": "s"})
    host = bridge.host()
    await host.initialize(capabilities=capabilities)
    answer: Answer = await host.ask("tools/call", CALL)
    assert answer.notices == ()
    assert rounds.answers == [{"a": {"action": "cancel"}}]


@covers("L-INPUT-6", "M-MRTR-2")
@pytest.mark.parametrize("question", [ROOTS, SAMPLE])
async def test_what_no_host_answers_and_no_answer_says_ends_the_call(
    modern: ScriptedServer, bridge: Gateway, question: dict[str, Any]
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": question}, "requestState": "s"})
    answer = await (await bridge.greeted()).ask("tools/call", CALL)
    assert answer.code == -32603
    assert answer.notices == ()
    assert len(rounds.turns) == 1


@covers("B-CONV-6")
async def test_a_question_in_url_mode_is_given_the_id_that_the_era_of_the_host_needs(
    modern: ScriptedServer, host: Host
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": URL}, "requestState": "s"})
    async with host.asking("tools/call", CALL) as stream:
        asked = await respond(host, stream, ELICIT, {"action": "accept"})
        await stream.result()
    id = asked["params"].pop("elicitationId")
    assert isinstance(id, str)
    assert id
    assert asked["params"] == URL["params"]
    assert rounds.answers == [{"a": {"action": "accept"}}]


@covers("B-CONV-10", "M-MRTR-1")
@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("prompts/get", {"name": "p"}, {"messages": []}),
        ("resources/read", {"uri": "file:///a"}, {"contents": [], "ttlMs": 0, "cacheScope": "private"}),
    ],
)
async def test_a_prompt_and_a_resource_ask_as_a_tool_does(
    modern: ScriptedServer, host: Host, method: str, params: dict[str, Any], said: dict[str, Any]
) -> None:
    modern.capabilities |= {"prompts": {}, "resources": {}}
    modern.methods[method] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"}, answer=said)
    async with host.asking(method, params) as stream:
        await respond(host, stream, ELICIT, ACCEPTED)
        result = await stream.result()
    assert result == {name: value for name, value in said.items() if name in ("messages", "contents")}
    assert rounds.answers == [{"a": ACCEPTED}]


@covers("M-MRTR-1")
async def test_a_list_that_asks_is_a_failure(modern: ScriptedServer, host: Host) -> None:
    modern.capabilities |= {"prompts": {}}
    modern.methods["prompts/list"] = Rounds({"inputRequests": {"a": FORM}})
    assert (await host.ask("prompts/list")).code == -32603


@covers("L-CANCEL-2", "M-MRTR-7")
async def test_a_task_that_waits_for_an_answer_is_cancelled_without_another_round(
    modern: ScriptedServer, host: Host
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"})
    task = (await host.start("report"))["taskId"]
    await host.until(task, "input_required")
    assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    await host.call("echo")
    assert len(rounds.turns) == 1
