"""Whom a question is for, and who gets to see it: the user whose call it is, and nobody else, the operator included."""

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.secrets import noted
from helpers.server import FORM, ScriptedServer, TalkingTool, note
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, ASKED, CAPABLE, DONE, ELICIT, GIVEN_UP, ROOTS, SAMPLE, URL, capable
from requirements import covers

LOG = "notifications/message"
MAX_QUESTION = 4 * 1024 * 1024
STOLEN = {"action": "accept", "content": {"it": "stolen"}}


async def come(gateway: Gateway, issuer: TokenIssuer, subject: str) -> Host:
    """A host of that user that can be asked everything."""
    host = gateway.host(token=issuer.token(gateway.url(), subject=subject))
    await host.initialize(capabilities=CAPABLE)
    return host


@covers("S-SEC-2", "S-SEC-8", "I-ISO-2", "I-ISO-5", "L-INPUT-5", "T21")
async def test_a_tasks_question_is_asked_of_its_own_user_alone_and_answered_by_nobody_else(
    server: ScriptedServer, issuer: TokenIssuer, tool: TalkingTool
) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        alice, other = await come(gateway, issuer, "alice"), await come(gateway, issuer, "alice")
        mallory = await come(gateway, issuer, "mallory")
        await server.streaming(3)
        async with mallory.listen() as foreign:
            task = (await alice.start("report"))["taskId"]
            await tool.ask(1, SAMPLE, ASKED)
            await alice.until(task, "input_required")
            assert (await mallory.ask("tasks/result", {"taskId": task})).code == -32602
            async with alice.asking("tasks/result", {"taskId": task}) as stream:
                asked = await stream.until(SAMPLE)
                assert (await mallory.respond(asked["id"], STOLEN)).status == 202
                assert (await alice.task(task))["status"] == "input_required"
                # Another session of the same user may have the answer.
                assert (await other.respond(asked["id"], ACCEPTED)).status == 202
                assert (await tool.told(1))["result"] == ACCEPTED
                await tool.finish(DONE)
                await stream.result()
            await server.push(note(LOG, level="info", data="mark"))
            await foreign.until(LOG)
            assert [message["method"] for message in foreign.heard] == [LOG]
    assert len(server.replies) == 1


@covers("S-SEC-2", "S-SEC-8", "I-ISO-2")
async def test_a_plain_calls_question_is_its_own_sessions(
    server: ScriptedServer, issuer: TokenIssuer, tool: TalkingTool
) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        alice, mallory = await come(gateway, issuer, "alice"), await come(gateway, issuer, "mallory")
        intruder = gateway.host(token=mallory.token)
        intruder.session, intruder.revision = alice.session, alice.revision
        async with mallory.listen() as foreign, alice.asking("tools/call", {"name": "report"}) as stream:
            await tool.ask(1)
            asked = await stream.until(ELICIT)
            assert (await mallory.respond(asked["id"], STOLEN)).status == 202
            assert (await intruder.respond(asked["id"], STOLEN)).status == 404
            await alice.respond(asked["id"], ACCEPTED)
            assert (await tool.told(1))["result"] == ACCEPTED
            await tool.finish(DONE)
            await stream.result()
            assert foreign.heard == []
    assert len(server.replies) == 1


@covers("S-SEC-1", "S-SEC-2", "L-INPUT-9")
@pytest.mark.parametrize("as_task", [False, True])
async def test_an_address_that_a_user_is_to_open_is_opened_and_told_by_nobody_else(
    server: ScriptedServer, tool: TalkingTool, as_task: bool
) -> None:
    # What is told is judged when the test ends: the secret must be in no line of the log, and in no label.
    opening = {**URL, "url": f"{server.origin}/open?state={noted('a-secret-of-the-user')}", "message": "Sign in"}
    rules = {"input_required": {"max_wait": "200ms"}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await capable(gateway)
        params = {"name": "report"}
        if as_task:
            params = {"taskId": (await host.start("report"))["taskId"]}
        async with host.asking("tasks/result" if as_task else "tools/call", params) as stream:
            await tool.ask(1, ELICIT, opening)
            asked = await stream.until(ELICIT)
            asked["params"].pop("_meta", None)
            assert asked["params"] == opening
            # Nobody answered: the server hears just that, and never that the user agreed.
            assert (await tool.told(1))["result"] == {"action": "cancel"}
            await stream.until(GIVEN_UP)
            await tool.finish(DONE)
            await stream.result()
    assert {request.path for request in server.requests} == {server.path}


@covers("R-RES-7")
@pytest.mark.parametrize("as_task", [False, True])
async def test_a_question_that_is_too_large_is_refused_and_the_next_one_asked(
    gateway: Gateway, tool: TalkingTool, as_task: bool
) -> None:
    host = await capable(gateway)
    params = {"name": "report"}
    if as_task:
        params = {"taskId": (await host.start("report"))["taskId"]}
    async with host.asking("tasks/result" if as_task else "tools/call", params) as stream:
        await tool.ask(1, ELICIT, {**FORM, "message": "x" * MAX_QUESTION})
        assert (await tool.told(1))["result"] == {"action": "cancel"}
        await tool.ask(2, ROOTS, {})
        await host.respond((await stream.until(ROOTS))["id"], {"roots": []})
        assert (await tool.told(2))["result"] == {"roots": []}
        await tool.finish(DONE)
        await stream.result()
        assert stream.of(ELICIT) == []


@covers("S-SEC-3", "S-SEC-4")
async def test_what_a_server_says_of_its_tools_is_passed_on_and_nothing_in_it_is_fetched(
    server: ScriptedServer, gateway: Gateway
) -> None:
    elsewhere = f"{server.origin}/elsewhere"
    said = {
        "name": "report",
        "title": "<b>Trusted</b>",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": f"{elsewhere}#/$defs/a"}}},
        "outputSchema": {"type": "object", "$ref": elsewhere},
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False},
        "icons": [{"src": f"{elsewhere}.png", "mimeType": "image/png"}],
    }
    server.tools = [said]
    host = await gateway.greeted()
    (listed,) = (await host.ask("tools/list")).result["tools"]
    assert listed.pop("execution") == {"taskSupport": "optional"}
    assert listed == said
    assert (await host.call("report", {"a": 1})).result["structuredContent"] == {"a": 1}
    task = (await host.start("report", {"a": 2}))["taskId"]
    assert (await host.ask("tasks/result", {"taskId": task})).result["structuredContent"] == {"a": 2}
    await eventually(lambda: len(server.heard("tools/call")) == 2)
    assert {request.path for request in server.requests} == {server.path}
