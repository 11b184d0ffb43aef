"""Questions of a server outside of tasks: on the stream of the plain call, else on a GET stream of its session."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import FORM, ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, GIVEN_UP, ROOTS, SAMPLE, URL, capable
from requirements import covers

CALL = {"name": "report"}


def question(id: Any, method: str = ROOTS, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


@covers("H-LEG-9", "U-HTTP-3", "V-INIT-10")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_plain_calls_question_is_on_its_own_stream_under_an_id_of_ours(
    gateway: Gateway, tool: TalkingTool, revision: str
) -> None:
    host = await capable(gateway, revision)
    async with host.listen() as get, host.asking("tools/call", CALL) as stream:
        await tool.ask("their-id")
        asked = await stream.until(ELICIT)
        assert asked["params"] == FORM
        assert asked["id"] != "their-id"
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told("their-id"))["result"] == ACCEPTED
        await tool.ask("their-id", ROOTS, {})
        again = await stream.until(ROOTS)
        assert again["id"] != asked["id"]
        await host.respond(again["id"], error={"code": -32603, "message": "no"})
        await eventually(lambda: len(tool.called.server.replies) == 2)
        assert tool.called.server.replies[1]["error"] == {"code": -32603, "message": "no"}
        await tool.finish(DONE)
        assert await stream.result() == DONE
        assert get.heard == []


@covers("L-INPUT-9")
async def test_a_question_by_url_passes_whole_and_so_does_the_news_that_it_is_done(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    other = await capable(gateway)
    async with host.listen() as get, other.listen() as foreign, host.asking("tools/call", CALL) as stream:
        await tool.ask(1, ELICIT, URL)
        asked = await stream.until(ELICIT)
        assert asked["params"] == URL
        await host.respond(asked["id"], {"action": "accept"})
        await tool.told(1)
        await tool.note("notifications/elicitation/complete", elicitationId="e-1")
        done = await stream.until("notifications/elicitation/complete")
        assert done["params"] == {"elicitationId": "e-1"}
        await tool.finish(DONE)
        await stream.result()
        assert (get.heard, foreign.heard) == ([], [])


@covers("U-HTTP-3", "L-INPUT-7")
async def test_a_question_on_the_servers_own_stream_belongs_to_the_only_call_in_flight(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await capable(gateway)
    await server.streaming()
    async with host.asking("tools/call", {**CALL, "_meta": {"progressToken": 1}}) as stream:
        async with bounded():
            await tool.begun.wait()
        await server.push(question(1))
        asked = await stream.until(ROOTS)
        await host.respond(asked["id"], {"roots": []})
        assert (await tool.told(1))["result"] == {"roots": []}
        await tool.finish(DONE)
        await stream.result()


@covers("U-HTTP-3", "L-INPUT-7")
async def test_what_is_asked_for_no_call_waits_for_a_get_stream(gateway: Gateway, server: ScriptedServer) -> None:
    host = await capable(gateway)
    await server.streaming()
    await server.push(question("r"))
    async with host.listen() as get:
        asked = await get.until(ROOTS)
    # Its stream died: it is asked again on the next one.
    async with host.listen() as get:
        assert await get.until(ROOTS) == asked
        await host.respond(asked["id"], {"roots": []})
    await eventually(lambda: server.replies)
    assert server.replies == [{"jsonrpc": "2.0", "id": "r", "result": {"roots": []}}]


@covers("I-ISO-2", "L-INPUT-5")
async def test_another_session_cannot_answer_a_plain_question(gateway: Gateway, tool: TalkingTool) -> None:
    host, other = await capable(gateway), await capable(gateway)
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        assert (await other.respond(asked["id"], {"action": "decline"})).status == 202
        assert tool.unanswered(1)
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
        assert (await host.respond(asked["id"], ACCEPTED)).status == 202
        await tool.finish(DONE)
        await stream.result()
    assert len(tool.called.server.replies) == 1


async def test_a_plain_question_that_the_server_withdraws_is_withdrawn_from_the_host(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        await tool.withdraw(1)
        gone = await stream.until(GIVEN_UP)
        assert gone["params"]["requestId"] == asked["id"]
        assert (await host.respond(asked["id"], ACCEPTED)).status == 202
        await tool.finish(DONE)
        await stream.result()
    assert tool.called.server.replies == []


@covers("L-INPUT-8", "R-RES-7", "S-SEC-1")
async def test_a_plain_question_is_bounded_in_time_and_in_number(server: ScriptedServer, tool: TalkingTool) -> None:
    rules = {"input_required": {"max_wait": "200ms", "max_outstanding": 1}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await capable(gateway)
        async with host.asking("tools/call", CALL) as stream:
            await tool.ask(1)
            await stream.until(ELICIT)
            await tool.ask(2, SAMPLE, {"messages": [], "maxTokens": 1})
            assert (await tool.told(2))["error"]["code"] == -1
            assert (await tool.told(1))["result"] == {"action": "cancel"}
            await stream.until(GIVEN_UP)
            await tool.finish(DONE)
            await stream.result()


@covers("S-SEC-1")
async def test_a_session_that_ends_leaves_no_question_open(gateway: Gateway, server: ScriptedServer) -> None:
    host = await capable(gateway)
    await server.streaming()
    await server.push(question("r"), question("e", ELICIT, FORM))
    async with host.listen() as get:
        await get.until(ELICIT)
        await host.leave()
        await get.end()
    await eventually(lambda: len(server.replies) == 2)
    told = {reply["id"]: reply for reply in server.replies}
    assert told["r"]["error"]["code"] == -32603
    assert told["e"]["result"] == {"action": "cancel"}


async def test_a_host_that_takes_no_stream_is_asked_on_its_get_stream(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"report"}}'
    async with host.listen() as get:
        calling = asyncio.create_task(host.post(body, headers={"Accept": "application/json"}))
        await tool.ask(1)
        asked = await get.until(ELICIT)
        await host.respond(asked["id"], ACCEPTED)
        await tool.told(1)
        await tool.finish(DONE)
        async with bounded():
            assert (await calling).result == DONE


async def test_what_a_host_tells_of_its_roots_reaches_its_server(gateway: Gateway, server: ScriptedServer) -> None:
    host, other = await capable(gateway), gateway.host()
    await other.initialize()
    for each in (other, host):
        assert (await each.tell("notifications/roots/list_changed")).status == 202
    await eventually(lambda: server.heard("notifications/roots/list_changed"))
    assert len(server.heard("notifications/roots/list_changed")) == 1


@covers("H-LEG-10")
async def test_a_plain_calls_question_outlives_its_stream_where_the_host_has_another(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway, "2025-06-18")
    async with host.listen() as get:
        async with host.asking("tools/call", CALL) as stream:
            await tool.ask(1)
            asked = await stream.until(ELICIT)
        assert await get.until(ELICIT) == asked
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
        await tool.finish(DONE)


@pytest.mark.parametrize("as_task", [False, True])
async def test_the_time_that_a_host_takes_is_not_its_servers(
    server: ScriptedServer, tool: TalkingTool, as_task: bool
) -> None:
    reports = {"path": "/reports/mcp", "url": server.url, "timeouts": {"call": "300ms"}}
    async with serve(configuration({}, upstreams={"reports": reports})) as gateway:
        host = await capable(gateway)
        asking = host.asking("tools/call", {"name": "report"})
        if as_task:
            asking = host.asking("tasks/result", {"taskId": (await host.start("report"))["taskId"]})
        async with asking as stream:
            await tool.ask(1)
            asked = await stream.until(ELICIT)
            # Far longer than the call may be silent.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await stream.end()
            await host.respond(asked["id"], ACCEPTED)
            await tool.told(1)
            await tool.finish(DONE)
            assert (await stream.result())["content"] == DONE["content"]
