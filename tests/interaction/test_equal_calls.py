"""Calls that look equal and are not one: of hosts that are all there, with other `_meta`, or with other scopes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from helpers.exchange_server import ExchangeServer
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.answers import Answer
from helpers.host.host import ERAS, Host
from helpers.server import Hold, ScriptedServer, TalkingTool, Turn, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.handoffs import MODES, YEAR, calls, cut, handle_of, handoff, kept, taskless, waited
from interaction.idempotency import KEY, upgrade
from interaction.questions import ACCEPTED, CAPABLE, DONE
from requirements import covers

ANOTHER = "The idempotency key was used for another call"
NARROW, WIDE = "reports.run", "reports.run reports.write"
eras = pytest.mark.parametrize("era", ERAS)
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
async def endpoint() -> AsyncIterator[ExchangeServer]:
    async with ExchangeServer() as endpoint:
        yield endpoint


def exchanging(server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer, tasks: dict[str, Any]) -> Any:
    """A gateway that exchanges the tokens of callers for those of the server."""
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
    return guarded({}, issuer, upstreams={"reports": upstream}, tasks=tasks)


async def called(host: Host, meta: dict[str, Any] | None = None) -> Answer:
    """The answer to a call of `report` with that `_meta`."""
    return await host.call("report", YEAR, meta=meta or None)


@covers("T70")
@modes
@eras
async def test_a_call_with_other_meta_joins_no_lost_one(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("10s", mode=mode))) as gateway:
        host = await taskless(gateway, era)
        await cut(host, hold, meta={"account": "A"})
        await kept(gateway)
        other = asyncio.create_task(called(host, {"account": "B"}))
        await eventually(lambda: calls(server) == 2)
        assert [sent["params"]["_meta"]["account"] for sent in server.heard("tools/call")] == ["A", "B"]
        again = asyncio.create_task(called(host, {"account": "A"}))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in (other, again)] == [DONE["content"]] * 2
        assert calls(server) == 2


@covers("T70")
@modes
@eras
async def test_a_lost_call_is_found_again_under_the_name_of_another_use(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    name = "claudecode/toolUseId"
    async with serve(configuration({"reports": server.url}, tasks=handoff("10s", mode=mode))) as gateway:
        host = await taskless(gateway, era)
        await cut(host, hold, meta={name: "one"})
        await kept(gateway)
        again = asyncio.create_task(called(host, {name: "two"}))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert [sent["params"]["_meta"][name] for sent in server.heard("tools/call")] == ["one"]


@covers("T70")
@eras
@pytest.mark.parametrize("tasks", [upgrade("sync"), upgrade("auto"), handoff("1h")], ids=["sync", "auto", "handoff"])
async def test_a_key_with_other_meta_is_that_of_another_call(
    server: ScriptedServer, hold: Hold, era: str, tasks: dict[str, Any]
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        first = asyncio.create_task(called(host, {KEY: "k", "account": "A"}))
        async with bounded():
            await hold.begun.wait()
            other = await called(host, {KEY: "k", "account": "B"})
        assert ANOTHER in str(other.message)
        hold.release(DONE)
        async with bounded():
            assert (await first).result["content"] == DONE["content"]
        assert calls(server) == 1


@covers("T70")
@eras
async def test_under_a_rule_for_retries_calls_with_other_meta_are_two(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    tasks = upgrade("sync", join_retries="30s")
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        both = [asyncio.create_task(called(host, {"account": name})) for name in "AB"]
        await eventually(lambda: calls(server) == 2)
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in both] == [DONE["content"]] * 2


@covers("T70", "A-AUTH-3")
@eras
@pytest.mark.parametrize(
    ("tasks", "meta"),
    [
        (upgrade("sync", join_retries="30s"), {}),
        (upgrade("sync"), {KEY: "k"}),
        (handoff("1h"), {}),
        (handoff("1h"), {KEY: "k"}),
        (handoff("1h", mode="always"), {KEY: "k"}),
    ],
    ids=["join_retries", "key", "handoff", "handoff with key", "stored with key"],
)
async def test_a_token_with_other_scopes_joins_no_call(
    server: ScriptedServer,
    hold: Hold,
    endpoint: ExchangeServer,
    issuer: TokenIssuer,
    era: str,
    tasks: dict[str, Any],
    meta: dict[str, Any],
) -> None:
    async with serve(exchanging(server, endpoint, issuer, tasks)) as gateway:
        both = []
        for scope in (WIDE, NARROW):
            token = issuer.token(gateway.url(), subject="alice", scope=scope)
            endpoint.subjects[token] = "alice"
            host = await taskless(gateway, era, token)
            both.append(asyncio.create_task(called(host, meta)))
            await eventually(lambda: calls(server) == len(both))
        assert len({sent.headers["authorization"] for sent in server.requests if _is_call(sent.message)}) == 2
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in both] == [DONE["content"]] * 2


def _is_call(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "tools/call"


# --- two hosts that are both there ------------------------------------------------------------------------------------


class Stateful:
    """The tool `report` of a server whose state is that of a session: it answers with that."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.gate = asyncio.Event()

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        session = turn.request.headers.get("Mcp-Session-Id", "")
        self.runs.append(session)
        await self.gate.wait()
        return await result({"content": [], "structuredContent": {"session": session}})(turn)


@covers("T70")
@modes
async def test_hosts_of_two_sessions_that_are_both_connected_get_the_state_of_their_own(
    server: ScriptedServer, mode: str
) -> None:
    server.script["report"] = tool = Stateful()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode=mode))) as gateway:
        both = [asyncio.create_task((await taskless(gateway, "legacy")).call("report", YEAR)) for _ in range(2)]
        await eventually(lambda: len(tool.runs) == 2)
        tool.gate.set()
        async with bounded():
            found = [(await each).result["structuredContent"]["session"] for each in both]
        assert sorted(found) == sorted(set(tool.runs))
        assert len(set(found)) == 2


@covers("T70")
@modes
async def test_a_handle_that_a_session_has_is_given_to_no_other(server: ScriptedServer, hold: Hold, mode: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("300ms", mode=mode))) as gateway:
        hosts = [await taskless(gateway, "legacy") for _ in range(2)]
        handles = [handle_of(await host.call("report", YEAR)) for host in hosts]
        assert (len(set(handles)), calls(server)) == (2, 2)
        # Each finds its own again.
        assert [handle_of(await host.call("report", YEAR)) for host in hosts] == handles
        hold.release(DONE)


@covers("T70")
@modes
@eras
async def test_a_call_that_a_host_waits_for_is_not_that_of_another_host(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("300ms", mode=mode))) as gateway:
        first, second = [await taskless(gateway, era) for _ in range(2)]
        handle = handle_of(await first.call("report", YEAR))
        waiting = asyncio.create_task(waited(first, handle))
        await gateway.metrics()
        assert handle_of(await second.call("report", YEAR)) != handle
        assert calls(server) == 2
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]


@covers("T70")
@modes
@eras
async def test_equal_calls_of_connected_hosts_are_as_many_calls(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode=mode))) as gateway:
        host = await taskless(gateway, era)
        many = [asyncio.create_task(host.call("report", YEAR)) for _ in range(12)]
        await eventually(lambda: calls(server) == 12)
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in many] == [DONE["content"]] * 12
        assert await gateway.count("taskgate_calls_joined_total") == 0


@covers("T70")
@eras
async def test_calls_of_connected_hosts_with_one_key_are_one(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        both = [asyncio.create_task(called(await taskless(gateway, era), {KEY: "k"})) for _ in range(2)]
        await gateway.shows("taskgate_calls_joined_total", 1, how="key")
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in both] == [DONE["content"]] * 2
        assert calls(server) == 1


# --- calls that go on with answers ------------------------------------------------------------------------------------


@covers("T70")
async def test_calls_that_asked_both_go_on_with_their_own_answers(server: ScriptedServer) -> None:
    tools = [TalkingTool(), TalkingTool()]
    unused = iter(tools)

    async def report(turn: Turn) -> web.StreamResponse:
        return await next(unused)(turn)

    server.script["report"] = report
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        asking = []
        for tool in tools:
            asking.append(asyncio.create_task(host.call("report", YEAR)))
            async with bounded():
                await tool.begun.wait()
        for tool in tools:
            await tool.ask(str(id(tool)))
        async with bounded():
            rounds = [(await each).result for each in asking]
        for count, (tool, asked) in enumerate(zip(tools, rounds, strict=True), 1):
            ((key, _),) = asked["inputRequests"].items()
            params = {"inputResponses": {key: ACCEPTED}, "requestState": asked["requestState"]}
            lost = asyncio.create_task(host.call("report", YEAR, **params))
            assert (await tool.told(str(id(tool))))["result"] == ACCEPTED
            lost.cancel()
            await asyncio.wait([lost])
            await gateway.shows("taskgate_tasks_started_total", count)
        for tool in tools:
            await tool.finish({"content": [{"type": "text", "text": str(id(tool))}]})
        async with bounded():
            found = [(await host.call("report", YEAR)).result["content"][0]["text"] for _ in tools]
        assert found == [str(id(tool)) for tool in tools]
        assert (calls(server), server.cancelled) == (2, [])


@covers("T70")
async def test_a_call_that_asked_and_is_answered_holds_up_no_equal_one(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        asking = asyncio.create_task(host.call("report", YEAR))
        await tool.ask("q-1")
        async with bounded():
            asked = (await asking).result
        ((key, _),) = asked["inputRequests"].items()
        params = {"inputResponses": {key: ACCEPTED}, "requestState": asked["requestState"]}
        answered = asyncio.create_task(host.call("report", YEAR, **params))
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        await tool.finish(DONE)
        async with bounded():
            assert (await answered).result["content"] == DONE["content"]
        server.script["report"] = result(DONE)
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 2
