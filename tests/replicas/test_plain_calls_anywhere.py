"""What belongs to a plain call of one replica comes to it from whatever replica its host comes to (T51)."""

import asyncio

from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, GIVEN_UP, ROOTS, capable

CALL = {"name": "report"}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ROOTS_CHANGED = "notifications/roots/list_changed"
ASKED = {"jsonrpc": "2.0", "id": "r", "method": ROOTS}


async def say_first(server: ScriptedServer, message: object) -> None:
    """Say something in the server's oldest session alone."""
    await server.push(message, streams=1)


async def test_a_question_of_a_call_is_answered_at_another_replica(three: list[Gateway], tool: TalkingTool) -> None:
    host = await capable(three[0])
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1)
        first = await stream.until(ELICIT)
        await tool.ask(2)
        second = await stream.until(ELICIT, times=2)
        assert (await three[1].again(host).respond(first["id"], ACCEPTED)).status == 202
        assert (await three[2].again(host).respond(second["id"], ACCEPTED)).status == 202
        assert (await tool.told(1))["result"] == ACCEPTED
        assert (await tool.told(2))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert await stream.result() == DONE


async def test_a_large_answer_arrives_too(three: list[Gateway], tool: TalkingTool) -> None:
    host = await capable(three[0])
    answer = {"action": "accept", "content": {"it": "x" * 100_000}}
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        await three[1].again(host).respond(asked["id"], answer)
        assert (await tool.told(1))["result"] == answer
        await tool.finish(DONE)
        await stream.result()


async def test_nobody_answers_a_question_of_another_session_through_another_replica(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host, other = await capable(three[0]), await capable(three[1])
    # It is alive where the question waits, too.
    await three[0].again(other).ask("ping")
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        assert (await other.respond(asked["id"], {"action": "decline"})).status == 202
        assert (await other.respond("question-nobody-1", {"action": "decline"})).status == 202
        assert (await three[1].again(host).respond(asked["id"], ACCEPTED)).status == 202
        assert (await tool.told(1))["result"] == ACCEPTED
        await tool.finish(DONE)
        await stream.result()


async def test_how_far_the_host_is_with_a_question_reaches_the_server(
    three: list[Gateway], tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await capable(three[0])
    params = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
    async with host.asking("tools/call", CALL) as stream:
        await tool.ask(1, params={**params, "_meta": {"progressToken": "theirs"}})
        asked = await stream.until(ELICIT)
        token = asked["params"]["_meta"]["progressToken"]
        await three[1].again(host).tell("notifications/progress", {"progressToken": token, "progress": 1})
        await eventually(lambda: server.heard("notifications/progress"))
        (told,) = server.heard("notifications/progress")
        assert told["params"] == {"progressToken": "theirs", "progress": 1}
        await three[1].again(host).respond(asked["id"], ACCEPTED)
        await tool.finish(DONE)
        await stream.result()


async def test_the_same_of_a_task_that_runs_at_another_replica(
    three: list[Gateway], tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    params = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
    there = three[1].again(host)
    async with there.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1, params={**params, "_meta": {"progressToken": "theirs"}})
        asked = await stream.until(ELICIT)
        token = asked["params"]["_meta"]["progressToken"]
        await three[2].again(host).tell("notifications/progress", {"progressToken": token, "progress": 1})
        await eventually(lambda: server.heard("notifications/progress"))
        (told,) = server.heard("notifications/progress")
        assert told["params"] == {"progressToken": "theirs", "progress": 1}
        await there.respond(asked["id"], ACCEPTED)
        await tool.finish(DONE)
        await stream.result()


async def test_a_call_is_cancelled_at_another_replica(three: list[Gateway], server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    host = await three[0].greeted()
    calling = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": {}}, id="mine"))
    async with bounded():
        await hold.begun.wait()
    assert (await three[1].again(host).tell(GIVEN_UP, {"requestId": "mine"})).status == 202
    async with bounded():
        assert (await calling).status == 202
        await hold.left.wait()
    await eventually(lambda: server.cancelled)


async def test_nobody_cancels_a_call_of_another_session_through_another_replica(
    three: list[Gateway], server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    host, other = await three[0].greeted(), await three[1].greeted()
    await three[0].again(other).ask("ping")
    calling = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": {}}, id=7))
    async with bounded():
        await hold.begun.wait()
    await other.tell(GIVEN_UP, {"requestId": 7})
    # Of the same host, but another type.
    await three[1].again(host).tell(GIVEN_UP, {"requestId": "7"})
    hold.release(DONE)
    async with bounded():
        assert (await calling).result["content"] == DONE["content"]
    assert server.cancelled == []


async def test_news_of_the_host_reach_every_session_at_the_server(three: list[Gateway], server: ScriptedServer) -> None:
    host = await capable(three[0])
    await three[1].again(host).call("echo")
    await three[2].again(host).tell(ROOTS_CHANGED)
    sessions: set[str] = set()

    def all_know() -> bool:
        heard = [request for request in server.requests if isinstance(request.message, dict)]
        told = [each for each in heard if each.message.get("method") == ROOTS_CHANGED]
        sessions.update(each.headers["mcp-session-id"] for each in told)
        return len(sessions) == 2

    await eventually(all_know)


async def test_what_the_server_says_of_no_call_goes_to_the_get_stream_wherever_that_is(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await capable(three[0])
    await server.streaming()
    for gateway in three[1:]:
        async with gateway.again(host).listen() as get, bounded():
            while not get.of(CHANGED["method"]):
                # Until the one that hears it knows where the stream is, nobody hears what it says.
                await say_first(server, CHANGED)
                await asyncio.sleep(0.01)


async def test_what_the_server_asks_for_no_call_goes_to_the_get_stream_wherever_that_is(
    three: list[Gateway], server: ScriptedServer
) -> None:
    """It is on one stream at a time, and asked again when that has died (H-LEG-8)."""
    host = await capable(three[0])
    await server.streaming()
    await say_first(server, ASKED)
    async with three[1].again(host).listen() as get:
        asked = await get.until(ROOTS)
        async with three[2].again(host).listen() as other:
            await three[2].again(host).ask("ping")
            assert other.of(ROOTS) == []
            still = len(get.of(ROOTS))
            assert still == 1
    async with three[2].again(host).listen() as get:
        assert await get.until(ROOTS) == asked
        await three[1].again(host).respond(asked["id"], {"roots": []})
        assert (await server.reply_to("r"))["result"] == {"roots": []}


async def test_a_question_on_the_stream_of_another_replica_is_taken_back_there(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await capable(three[0])
    await server.streaming()
    await say_first(server, ASKED)
    async with three[1].again(host).listen() as get:
        asked = await get.until(ROOTS)
        await say_first(server, {"jsonrpc": "2.0", "method": GIVEN_UP, "params": {"requestId": "r"}})
        assert (await get.until(GIVEN_UP))["params"]["requestId"] == asked["id"]
