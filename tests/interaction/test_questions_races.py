"""Questions of a server when streams, sessions, tokens and bounds come and go at the same moment: none is lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from helpers.exchange_server import ExchangeServer
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import FORM, Hold, ScriptedServer, TalkingTool, Turn
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, CAPABLE, DONE, ELICIT, RELATED, capable
from requirements import covers

STATUS = "notifications/tasks/status"
CANCELLED = {"action": "cancel"}
OWN: Any = {"requests": {"elicitation": {"create": {}}}}
THEIRS = {
    "taskId": "host-1",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "lastUpdatedAt": "2026-01-01T00:00:00.000Z",
    "ttl": 60_000,
}


class BusyServer(ScriptedServer):
    """A server that refuses the first answer to what it asked, for now."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        self.refused = 0

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST" and not self.refused and b'"method"' not in await request.read():
            self.refused += 1
            return web.Response(status=503)
        return await super().serve(request)


async def identified(gateway: Gateway, token: str) -> Host:
    """A host that can be asked everything, with a token."""
    host = gateway.host(token=token)
    await host.initialize(capabilities=CAPABLE)
    return host


# --- streams


@covers("L-INPUT-3")
async def test_a_get_stream_that_goes_before_its_question_was_due_leaves_it_to_the_result(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    async with host.listen() as get:
        task = (await host.start("report"))["taskId"]
        waiting = host.asking("tasks/result", {"taskId": task})
        result = await waiting.__aenter__()
        await tool.ask(1)
        await get.until(STATUS)
    try:
        asked = await result.until(ELICIT)
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
        await tool.finish(DONE)
        await result.result()
    finally:
        await waiting.__aexit__(None, None, None)


@covers("L-INPUT-3")
async def test_a_new_stream_finds_its_question_however_many_others_wait(
    tool: TalkingTool, server: ScriptedServer
) -> None:
    """More than are looked at together."""
    others: list[TalkingTool] = []

    async def one_more(turn: Turn) -> web.StreamResponse:
        others.append(TalkingTool())
        return await others[-1](turn)

    server.script["broken"] = one_more
    many = {"rate": [], "concurrency": {"tasks_per_context": 200}}
    upstream = {"path": "/reports/mcp", "url": server.url, "concurrency": 200}
    async with serve(configuration({}, upstreams={"reports": upstream}, limits=many)) as gateway:
        host, *hosts = [await capable(gateway) for _ in range(3)]
        first = (await host.start("report"))["taskId"]
        await tool.ask(1)
        await host.until(first, "input_required")
        tasks = [(await other.start("broken"))["taskId"] for _ in range(55) for other in hosts]
        await eventually(lambda: len(others) == len(tasks))
        for number, each in enumerate(others):
            await each.ask(f"other-{number}")
        for task in tasks:
            await host.until(task, "input_required")
        async with host.listen() as get:
            await host.task(first)
            await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
            assert (await tool.told(1))["result"] == ACCEPTED
            assert len(get.of(ELICIT)) == 1
        for each in (tool, *others):
            await each.finish(DONE)
        for task in (first, *tasks):
            await host.ask("tasks/result", {"taskId": task})


@covers("L-INPUT-7", "L-INPUT-8")
async def test_a_question_for_no_call_is_of_the_newest_one_when_its_session_has_ended(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer
) -> None:
    server.script["broken"] = hold = Hold()
    host = await capable(gateway)
    await server.streaming()
    tasks = [(await host.start(name))["taskId"] for name in ("report", "broken")]
    await eventually(lambda: tool.turn and hold.turns)
    await host.leave()
    await server.push({"jsonrpc": "2.0", "id": "late", "method": ELICIT, "params": FORM})
    other = await capable(gateway)
    await other.until(tasks[1], "input_required")
    async with other.asking("tasks/result", {"taskId": tasks[1]}) as stream:
        await other.respond((await stream.until(ELICIT))["id"], ACCEPTED)
        assert (await server.reply_to("late"))["result"] == ACCEPTED
        await tool.finish(DONE)
        hold.release(DONE)
        await stream.result()
    for task in tasks:
        await other.ask("tasks/result", {"taskId": task})


# --- who may answer, and for whom


@covers("A-AUTH-12")
@pytest.mark.parametrize("denied", ["tasks/result", "tasks/get"])
async def test_a_stream_is_asked_only_where_its_host_may_answer(
    server: ScriptedServer, tool: TalkingTool, issuer: TokenIssuer, denied: str
) -> None:
    rules: dict[str, Any] = {
        "authorization": {"rules": [{"methods": [denied], "effect": "deny"}]},
        "tasks": {"input_required": {"max_wait": "2s"}},
    }
    async with serve(guarded({"reports": server.url}, issuer, **rules)) as gateway:
        host = await identified(gateway, issuer.token(gateway.url()))
        async with host.listen() as get:
            task = (await host.start("report"))["taskId"]
            await tool.ask(1)
            await host.ask("tasks/get", {"taskId": task})
            if denied == "tasks/get":
                await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
            reply = (await tool.told(1))["result"]
            assert reply == (CANCELLED if denied == "tasks/result" else ACCEPTED)
            assert len(get.of(ELICIT)) == (0 if denied == "tasks/result" else 1)
            await tool.finish(DONE)
            await gateway.shows("taskgate_tasks_running", 0)


@pytest.fixture
async def endpoint() -> AsyncIterator[ExchangeServer]:
    """A token endpoint whose tokens are good for one use."""
    async with ExchangeServer() as endpoint:
        endpoint.lifetime = 0
        yield endpoint


async def test_an_answer_is_spoken_with_the_token_of_who_gave_it_and_not_of_who_began_the_task(
    server: ScriptedServer, tool: TalkingTool, issuer: TokenIssuer, endpoint: ExchangeServer
) -> None:
    client, secret = endpoint.terms.client
    credentials = {
        "mode": "token_exchange",
        "token_url": endpoint.url,
        "client_id": client,
        "client_secret": secret,
        "audience": endpoint.terms.audience,
        "scopes": list(endpoint.terms.scopes),
    }
    upstream = {"path": "/reports/mcp", "url": server.url, "credentials": credentials}
    async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
        tokens = [issuer.token(gateway.url(), jti=str(number)) for number in range(2)]
        endpoint.subjects[tokens[0]] = "alice"
        task = (await (await identified(gateway, tokens[0])).start("report"))["taskId"]
        await eventually(lambda: tool.turn)
        # The first token is over; its owner comes back with another one, in a session of its own.
        endpoint.subjects = {tokens[1]: "alice"}
        host = await identified(gateway, tokens[1])
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.ask(1)
            await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
            assert (await tool.told(1))["result"] == ACCEPTED
            await tool.finish(DONE)
            await stream.result()
        assert endpoint.refusals == []


@pytest.mark.parametrize("as_task", [False, True], ids=["call", "task"])
async def test_an_answer_that_the_server_does_not_take_for_now_is_sent_again(as_task: bool) -> None:
    async with BusyServer() as server, serve(configuration({"reports": server.url})) as gateway:
        server.script["report"] = tool = TalkingTool()
        host = await capable(gateway)
        params = {"taskId": (await host.start("report"))["taskId"]} if as_task else {"name": "report"}
        async with host.asking("tasks/result" if as_task else "tools/call", params) as stream:
            await tool.ask(1)
            await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
            assert (await tool.told(1))["result"] == ACCEPTED
            await tool.finish(DONE)
            await stream.result()
        assert (server.refused, len(server.replies)) == (1, 1)


# --- bounds


@covers("R-RES-7")
async def test_questions_that_are_too_large_together_are_refused_though_none_of_them_is(
    gateway: Gateway, tool: TalkingTool
) -> None:
    long = {**FORM, "message": "x" * (5 * 2**19)}
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1, params=long)
        await tool.ask(2, params=long)
        assert (await tool.told(2))["result"] == CANCELLED
        await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
        # What was answered makes room.
        await tool.ask(3, params=long)
        await host.respond((await stream.until(ELICIT, times=2))["id"], ACCEPTED)
        assert (await tool.told(3))["result"] == ACCEPTED
        await tool.finish(DONE)
        await stream.result()


@covers("L-HOST-5", "R-RES-7")
async def test_a_question_that_its_host_keeps_a_task_for_takes_its_place_until_it_is_given_up(
    server: ScriptedServer, tool: TalkingTool
) -> None:
    rules = {"input_required": {"max_wait": "1s", "max_outstanding": 1}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await capable(gateway, tasks=OWN)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.ask(1, params={**FORM, "task": {}})
            asked = await stream.until(ELICIT)
            assert asked["params"]["_meta"] == {RELATED: {"taskId": task}}
            await host.respond(asked["id"], {"task": THEIRS})
            assert (await tool.told(1))["result"] == {"task": THEIRS}
            await tool.ask(2)
            assert (await tool.told(2))["result"] == CANCELLED
            assert (await host.task(task))["status"] == "input_required"
            await host.until(task, "working")
            await tool.ask(3)
            await host.respond((await stream.until(ELICIT, times=2))["id"], ACCEPTED)
            assert (await tool.told(3))["result"] == ACCEPTED
            await tool.finish(DONE)
            await stream.result()
        assert [reply["id"] for reply in server.replies] == [1, 2, 3]
