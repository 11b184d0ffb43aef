"""Plain calls of the modern era whose servers ask what the request did not declare that its host can be asked."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import FORM, ScriptedServer, TalkingTool, progress_note
from helpers.waiting import bounded
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, ROOTS, SAMPLE, URL
from interaction.refusals import refused
from requirements import covers

FAILED = {"content": [{"type": "text", "text": "nobody to ask"}], "isError": True}
FORMS, PAGES = {"elicitation": {}}, {"elicitation": {"url": {}}}
QUESTIONS: list[tuple[dict[str, Any], list[tuple[str, Any]], dict[str, Any]]] = [
    ({}, [(ELICIT, FORM)], FORMS),
    ({}, [(ELICIT, URL)], PAGES),
    (FORMS, [(ELICIT, URL)], PAGES),
    ({}, [(SAMPLE, ASKED)], {"sampling": {}}),
    ({"sampling": {}}, [(SAMPLE, {**ASKED, "tools": []})], {"sampling": {"tools": {}}}),
    ({}, [(ROOTS, {})], {"roots": {}}),
    ({}, [(ELICIT, FORM), (ROOTS, {}), (ELICIT, URL)], {"elicitation": {"form": {}, "url": {}}, "roots": {}}),
]
"""What a request declares, what its server asks, and what the request lacks."""


def lacking(answer: Answer, status: int = 400) -> Any:
    """What a request is told that it does not declare."""
    return refused(answer, status, -32021)["data"]["requiredCapabilities"]


async def asked_in_vain(tool: TalkingTool, *questions: tuple[str, Any]) -> None:
    """The server asks, and is refused each time."""
    for number, (method, params) in enumerate(questions):
        await tool.ask(f"q-{number}", method, params)
        assert (await tool.told(f"q-{number}"))["error"]["code"] in (-32601, -32602)


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes no tasks."""
    tasks = {"upgrade": [{"tool": "*", "mode": "sync"}]}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        yield gateway


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked nothing."""
    return gateway.modern()


@covers("V-META-5")
@pytest.mark.parametrize(("declared", "questions", "required"), QUESTIONS)
@pytest.mark.parametrize("with_roots", [False, True], ids=["waited for", "in flight"])
async def test_a_call_that_failed_for_want_of_a_capability_is_told_which(
    host: Host,
    tool: TalkingTool,
    declared: dict[str, Any],
    questions: list[tuple[str, Any]],
    required: dict[str, Any],
    with_roots: bool,
) -> None:
    if with_roots:
        # A host that can be asked anything at all has its call held for that.
        declared, questions = {"roots": {}, **declared}, [each for each in questions if each[0] != ROOTS]
        required = {name: value for name, value in required.items() if name != "roots"}
    called = {"name": "report", "arguments": {}}
    async with host.asking("tools/call", called, capabilities=declared) as asked:
        await asked_in_vain(tool, *questions)
        await tool.finish(FAILED)
        answer = await asked.answer()
    if required:
        assert lacking(answer) == required
    else:
        assert answer.result["isError"]


@covers("V-META-5")
async def test_a_call_that_succeeds_all_the_same_is_answered_as_it_is(host: Host, tool: TalkingTool) -> None:
    calling = asyncio.create_task(host.call("report"))
    await asked_in_vain(tool, (SAMPLE, ASKED))
    await tool.finish(DONE)
    assert (await calling).result["content"] == DONE["content"]


async def test_a_call_that_failed_without_a_question_is_answered_as_it_is(host: Host, tool: TalkingTool) -> None:
    calling = asyncio.create_task(host.call("report"))
    await tool.finish(FAILED)
    assert (await calling).result["isError"]


async def test_a_question_that_no_host_could_be_asked_lacks_nothing(host: Host, tool: TalkingTool) -> None:
    calling = asyncio.create_task(host.call("report"))
    await asked_in_vain(tool, ("tools/call", {"name": "echo"}), (ELICIT, {**FORM, "mode": "other"}))
    await tool.finish(FAILED)
    assert (await calling).result["isError"]


@covers("V-META-5")
@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "daily"}), ("resources/read", {"uri": "file:///x"})]
)
async def test_a_prompt_or_a_resource_that_failed_for_it_is_told_so_too(
    server: ScriptedServer, host: Host, method: str, params: dict[str, Any]
) -> None:
    server.methods[method] = tool = TalkingTool()
    asking = asyncio.create_task(host.ask(method, params))
    await asked_in_vain(tool, (SAMPLE, ASKED))
    await tool.say({"jsonrpc": "2.0", "id": tool.called.id, "error": {"code": -32603, "message": "no model"}})
    await tool.vanish()
    assert lacking(await asking) == {"sampling": {}}


async def test_what_was_said_before_is_a_stream_that_ends_with_the_refusal(host: Host, tool: TalkingTool) -> None:
    called = {"name": "report", "arguments": {}}
    async with host.asking("tools/call", called, meta={"progressToken": "p"}) as asked:
        async with bounded():
            await tool.begun.wait()
        await tool.say(progress_note(tool.called.token, 1))
        await asked.opened()
        await asked_in_vain(tool, (SAMPLE, ASKED))
        await tool.finish(FAILED)
        answer = await asked.answer()
    assert answer.streamed
    assert lacking(answer, 200) == {"sampling": {}}


async def test_a_call_that_was_held_meanwhile_is_told_what_it_lacked_before(host: Host, tool: TalkingTool) -> None:
    tool.begun.set()
    await tool.ask("q-0", SAMPLE, ASKED)
    await tool.ask("q-1")
    result = (await host.call("report", capabilities=FORMS)).result
    assert [each["method"] for each in result["inputRequests"].values()] == [ELICIT]
    answers = {"inputResponses": dict.fromkeys(result["inputRequests"], ACCEPTED), **_state(result)}
    coming = asyncio.create_task(host.call("report", **answers, capabilities=FORMS))
    await tool.told("q-1")
    await tool.finish(FAILED)
    assert lacking(await coming) == {"sampling": {}}


async def test_a_task_that_failed_for_it_has_its_servers_outcome(server: ScriptedServer, tool: TalkingTool) -> None:
    tasks = {"upgrade": [{"tool": "*", "mode": "auto"}], "inline_grace": "0s"}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = gateway.modern()
        task = await host.start("report")
        await asked_in_vain(tool, (SAMPLE, ASKED))
        await tool.finish(FAILED)
        ended = await host.until(task["taskId"], "completed")
    assert ended["result"]["isError"]


async def test_nothing_is_said_of_it_to_a_host_of_the_other_era(gateway: Gateway, tool: TalkingTool) -> None:
    host = await gateway.greeted()
    calling = asyncio.create_task(host.call("report"))
    await asked_in_vain(tool, (SAMPLE, ASKED))
    await tool.finish(FAILED)
    assert (await calling).result == FAILED


def _state(result: dict[str, Any]) -> dict[str, Any]:
    return {"requestState": result["requestState"]}
