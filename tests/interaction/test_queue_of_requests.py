"""Requests beside tool calls take turns at a server as calls do: in all pairs of eras, but for lists and streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import called
from helpers.modern_schema import SUBSCRIPTION
from helpers.server import Hold, Rounds, ScriptedServer, TalkingTool, Turn, event, note, open_stream, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.audit_logs import audited, lines, of, said
from interaction.bridges import FORM
from interaction.operators import act, tokens
from interaction.questions import ACCEPTED, ELICIT
from interaction.queues import DONE, OneByOne, begin, expect_all_given_back, queued, refused_in_queue
from requirements import covers

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
PAIRS = [(host, serves) for host in REVISIONS for serves in REVISIONS]
pairs = pytest.mark.parametrize(("era", "serves"), PAIRS)
EVENTS, WIDGETS = "io.modelcontextprotocol/events", "com.example/widgets"
CARRIED = {EVENTS: "allow", WIDGETS: {"methods": ["widgets/do"], "eras": ["legacy", "modern"]}}
CAPABILITIES = {
    "tools": {},
    "completions": {},
    "logging": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "events": {},
    "extensions": {EVENTS: {}, WIDGETS: {}, "io.modelcontextprotocol/skills": {}},
}
COMPLETE, SUBSCRIBE, LISTEN = "completion/complete", "resources/subscribe", "subscriptions/listen"
PARAMS: dict[str, dict[str, Any]] = {
    COMPLETE: {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}},
    "skills/get": {"uri": "skill://a"},
    "widgets/do": {"a": 1},
    "events/poll": {"name": "x"},
    SUBSCRIBE: {"uri": "file:///a"},
    "resources/unsubscribe": {"uri": "file:///a"},
    "logging/setLevel": {"level": "info"},
}
VALUES: dict[str, dict[str, Any]] = {
    COMPLETE: {"completion": {"values": ["b"]}},
    "skills/get": {"skill": {"name": "a"}},
    "widgets/do": {"b": 2},
    "events/poll": {"events": []},
}
ANSWERED = [
    *((method, era, serves) for method in (COMPLETE, "skills/get", "widgets/do") for era, serves in PAIRS),
    *(("events/poll", era, era) for era in REVISIONS),
]
"""Requests that the server answers itself, by the eras between which they cross."""
SETTINGS = [(SUBSCRIBE, "legacy", serves) for serves in REVISIONS] + [
    (method, "legacy", "legacy") for method in ("resources/unsubscribe", "logging/setLevel")
]
"""Requests that change the session at the server; those of modern hosts are in a listen."""


@asynccontextmanager
async def serving(serves: str, **replies: dict[str, Any]) -> AsyncIterator[ScriptedServer]:
    """A server of that era that declares everything and answers every method."""
    async with ScriptedServer(serves) as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        server.capabilities = CAPABILITIES
        server.methods.update((method, result(value)) for method, value in (VALUES | replies).items())
        yield server


def section(server: ScriptedServer, serves: str, **more: Any) -> dict[str, Any]:
    """The section of upstreams of that server."""
    known = {"path": "/reports/mcp", "url": server.url, "protocol_version": REVISIONS[serves], "extensions": CARRIED}
    return {"reports": known | more}


@asynccontextmanager
async def narrowed(
    serves: str, *, concurrency: int = 1, size: int = 16, wait: str = "300s", **sections: Any
) -> AsyncIterator[tuple[ScriptedServer, Gateway]]:
    """A gateway that lets so many requests at a time go to a server of that era."""
    async with serving(serves) as server:
        queue = {"size": size, "max_wait": wait}
        upstreams = section(server, serves, concurrency=concurrency, queue=queue)
        async with serve(configuration({}, upstreams=upstreams, **sections)) as gateway:
            yield server, gateway


async def guest(gateway: Gateway, era: str, *, token: str | None = None) -> Any:
    """A host of that era that has met the server, can be asked, and gets no tasks."""
    if era == "modern":
        host = gateway.modern(tasks=False, token=token, capabilities={"elicitation": {}})
        await host.discover()
        await host.ask("tools/list")
        return host
    legacy = gateway.host(token=token)
    await legacy.initialize(capabilities={"elicitation": {}})
    await legacy.ask("tools/list")
    return legacy


async def occupied(server: ScriptedServer, host: Any, count: int = 1) -> tuple[OneByOne, list[asyncio.Task[Answer]]]:
    """Calls that have so many permits, until they are let go."""
    server.script["report"] = slow = OneByOne()
    calls = begin(*(host.call("report") for _ in range(count)))
    await slow.comes(count)
    return slow, calls


@covers("T46")
@pytest.mark.parametrize(("method", "era", "serves"), ANSWERED + SETTINGS)
async def test_a_request_waits_for_its_turn_and_then_reaches_the_server(method: str, era: str, serves: str) -> None:
    async with narrowed(serves) as (server, gateway), bounded():
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        asked = begin(host.ask(method, PARAMS[method]))
        await queued(gateway, 1)
        assert server.heard(method) == []
        slow.let_all_go()
        answers = await asyncio.gather(*calls, *asked)
        assert {name: answers[-1].result[name] for name in VALUES.get(method, {})} == VALUES.get(method, {})
        assert len(server.heard(method)) == (0 if (method, serves) == (SUBSCRIBE, "modern") else 1)
        await expect_all_given_back(gateway)


@covers("T46")
@pytest.mark.parametrize(("method", "era", "serves"), ANSWERED)
async def test_a_request_has_its_permit_until_its_server_has_answered(method: str, era: str, serves: str) -> None:
    async with narrowed(serves, concurrency=2) as (server, gateway), bounded():
        host = await guest(gateway, era)
        server.methods[method] = hold = Hold()
        asked = begin(*(host.ask(method, PARAMS[method]) for _ in range(4)))
        await eventually(lambda: len(hold.turns) == 2)
        await gateway.upstream_is(in_use=2, queued=2)
        assert len(hold.turns) == 2
        hold.release(VALUES[method])
        assert all(answer.result for answer in await asyncio.gather(*asked))
        await expect_all_given_back(gateway)


@pytest.mark.parametrize(("method", "era", "serves"), ANSWERED + SETTINGS)
async def test_a_request_is_refused_where_no_more_may_wait_and_nothing_is_sent(
    method: str, era: str, serves: str
) -> None:
    async with narrowed(serves, size=0) as (server, gateway):
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        await refused_in_queue(host.ask(method, PARAMS[method]))
        assert await gateway.count("taskgate_queue_rejections_total", upstream="reports", reason="full") == 1
        slow.let_all_go()
        async with bounded():
            await asyncio.gather(*calls)
        assert server.heard(method) == []
        await expect_all_given_back(gateway)


@pairs
async def test_a_request_that_waited_too_long_is_refused_and_told_as_a_call_is(
    era: str, serves: str, tmp_path: Path
) -> None:
    async with narrowed(serves, wait="20ms", audit=audited(tmp_path)) as (server, gateway):
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        await refused_in_queue(host.ask(COMPLETE, PARAMS[COMPLETE]))
        await refused_in_queue(host.call("echo"))
        slow.let_all_go()
        async with bounded():
            await asyncio.gather(*calls)
        assert await gateway.count("taskgate_queue_rejections_total", upstream="reports", reason="timeout") == 2
        assert server.heard(COMPLETE) == []
        await expect_all_given_back(gateway)
    written = lines(tmp_path)
    assert [said(line) for line in of(written, "limit.queue_rejected")] == 2 * [
        ("limit.queue_rejected", "denied", "timeout")
    ]
    refusals = [(line["mcp"]["method"], line["reason"]) for line in of(written, "rpc.rejected")]
    assert refusals == [(COMPLETE, "queue"), ("tools/call", "queue")]


@pairs
async def test_lists_and_what_the_gateway_answers_wait_for_no_turn(era: str, serves: str) -> None:
    async with narrowed(serves, size=0) as (server, gateway), bounded():
        names = ("prompts", "resources", "resources/templates")
        server.methods |= {
            f"{name}/list": result({kind: [], "ttlMs": 0, "cacheScope": "private"})
            for name, kind in zip(names, ("prompts", "resources", "resourceTemplates"), strict=True)
        }
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        for name in ("tools", *names):
            assert (await host.ask(f"{name}/list")).result
        if era == "modern":
            await host.discover()
        else:
            assert (await host.ask("ping")).result == {}
            if serves == "modern":
                for method in ("logging/setLevel", "resources/unsubscribe"):
                    assert (await host.ask(method, PARAMS[method])).result == {}
        slow.let_all_go()
        await asyncio.gather(*calls)


@pairs
async def test_a_method_that_does_not_cross_is_unknown_whatever_waits(era: str, serves: str) -> None:
    async with narrowed(serves, size=0) as (server, gateway), bounded():
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        assert (await host.ask("widgets/undo")).code == -32601
        if era != serves:
            assert (await host.ask("events/poll", PARAMS["events/poll"])).code == -32601
        slow.let_all_go()
        await asyncio.gather(*calls)


@pytest.mark.parametrize("era", list(REVISIONS))
async def test_an_event_stream_of_an_extension_has_no_permit(era: str) -> None:
    over = asyncio.Event()

    async def active(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        await response.write(event(note("notifications/events/active", cursor="c", _meta={SUBSCRIPTION: turn.id})))
        await over.wait()
        await response.write(event(turn.answer({"done": True})))
        await response.write_eof()
        return response

    async with narrowed(era) as (server, gateway), bounded():
        server.methods["events/stream"] = active
        host = await guest(gateway, era)
        async with host.asking("events/stream", {"name": "x"}) as stream:
            await stream.until("notifications/events/active")
            await gateway.upstream_is(in_use=0, queued=0)
            assert (await host.ask(COMPLETE, PARAMS[COMPLETE])).result["completion"]
            over.set()
            assert (await stream.result())["done"] is True


@pytest.mark.parametrize("serves", list(REVISIONS))
async def test_a_listen_takes_a_turn_to_subscribe_to_a_resource_and_has_no_permit_afterwards(serves: str) -> None:
    async with narrowed(serves) as (server, gateway), bounded():
        host = await guest(gateway, "modern")
        slow, calls = await occupied(server, host)
        wishes = {"notifications": {"resourceSubscriptions": ["file:///a"]}}
        async with host.asking(LISTEN, wishes) as stream:
            await queued(gateway, 1)
            assert server.heard(SUBSCRIBE) == []
            slow.let_all_go()
            await stream.until("notifications/subscriptions/acknowledged")
            await asyncio.gather(*calls)
            await expect_all_given_back(gateway)
            assert (await host.ask(COMPLETE, PARAMS[COMPLETE])).result["completion"]


@pytest.mark.parametrize("serves", list(REVISIONS))
async def test_a_listen_for_a_resource_is_refused_where_no_more_may_wait(serves: str) -> None:
    async with narrowed(serves, size=0) as (server, gateway), bounded():
        host = await guest(gateway, "modern")
        slow, calls = await occupied(server, host)
        wishes = {"notifications": {"resourceSubscriptions": ["file:///a"]}}
        # The answer is on the event stream, after the head of which no header can follow.
        refused = await host.ask(LISTEN, wishes)
        assert (refused.status, refused.code, refused.error["data"]["reason"]) == (200, 429, "queue")
        assert refused.error["data"]["retryAfterMs"] > 0
        slow.let_all_go()
        await asyncio.gather(*calls)
        assert server.heard(SUBSCRIBE) == []
        assert server.heard("resources/unsubscribe") == []
        await expect_all_given_back(gateway)


@covers("T46")
@pairs
async def test_completions_of_one_caller_leave_turns_to_another(era: str, serves: str, issuer: TokenIssuer) -> None:
    async with serving(serves) as server:
        server.methods[COMPLETE] = hold = Hold()
        upstreams = section(server, serves, concurrency=8, extensions={})
        config = guarded({}, issuer, upstreams=upstreams, limits={"rate": []})
        async with serve(config) as gateway, bounded():
            mallory, alice = [
                await guest(gateway, era, token=issuer.token(gateway.url(), subject=name))
                for name in ("mallory", "alice")
            ]
            assert (await alice.call("echo")).result is not None
            asked = begin(*(mallory.ask(COMPLETE, PARAMS[COMPLETE]) for _ in range(20)))
            await gateway.upstream_is(in_use=7, queued=13)
            assert (await alice.call("echo")).result is not None
            assert len(hold.turns) == 7
            hold.release(VALUES[COMPLETE])
            await asyncio.gather(*asked)
            await expect_all_given_back(gateway)


@pairs
async def test_a_request_that_its_host_cancels_or_leaves_while_it_waits_has_left_the_queue(
    era: str, serves: str
) -> None:
    async with narrowed(serves) as (server, gateway), bounded():
        host = await guest(gateway, era)
        slow, calls = await occupied(server, host)
        if era == "legacy":
            (cancelled,) = begin(host.ask(COMPLETE, PARAMS[COMPLETE], id="c"))
            await queued(gateway, 1)
            await host.tell("notifications/cancelled", {"requestId": "c"})
            assert (await cancelled).status == 202
        (left,) = begin(host.ask("widgets/do", PARAMS["widgets/do"]))
        await queued(gateway, 1)
        left.cancel()
        await queued(gateway, 0)
        slow.let_all_go()
        await asyncio.gather(*calls)
        assert server.heard(COMPLETE) == server.heard("widgets/do") == []
        await expect_all_given_back(gateway)


@pairs
async def test_a_call_with_the_only_permit_gets_the_answers_of_its_host_while_requests_wait(
    era: str, serves: str
) -> None:
    """What a call needs to end takes no turn, so no call waits for itself."""
    async with narrowed(serves) as (server, gateway), bounded():
        host, tool = await guest(gateway, era), TalkingTool()
        if serves == "legacy":
            server.script["report"] = tool
            tool.begun.set()
            await tool.ask("q-1")
        else:
            server.script["report"] = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"}, answer=DONE)
        if era == "legacy":
            async with host.asking("tools/call", {"name": "report", "arguments": {}}) as stream:
                question = await stream.until(ELICIT)
                asked = begin(host.ask(COMPLETE, PARAMS[COMPLETE]))
                await queued(gateway, 1)
                assert (await host.respond(question["id"], ACCEPTED)).status == 202
                if serves == "legacy":
                    await tool.finish(DONE)
                assert (await stream.result())["content"] == DONE["content"]
        else:
            round_ = (await host.call("report")).result
            asked = begin(host.ask(COMPLETE, PARAMS[COMPLETE]))
            if serves == "legacy":
                await queued(gateway, 1)
            answers = dict.fromkeys(round_["inputRequests"], ACCEPTED)
            retried = begin(
                host.ask("tools/call", called("report", inputResponses=answers, requestState=round_["requestState"]))
            )
            if serves == "legacy":
                assert (await tool.told("q-1"))["result"] == ACCEPTED
                await tool.finish(DONE)
            assert (await retried[0]).result["content"] == DONE["content"]
        assert (await asked[0]).result["completion"] == VALUES[COMPLETE]["completion"]
        await expect_all_given_back(gateway)


@pairs
async def test_a_held_server_gets_no_request_of_a_host_but_lists(era: str, serves: str, tmp_path: Path) -> None:
    async with narrowed(serves, admin=tokens(tmp_path)) as (server, gateway), bounded():
        host = await guest(gateway, era)
        await act(gateway, "/api/v1/upstreams/reports/hold")
        for method in (COMPLETE, "widgets/do"):
            await refused_in_queue(host.ask(method, PARAMS[method]))
        assert (await host.ask("tools/list")).result["tools"]
        await act(gateway, "/api/v1/upstreams/reports/release")
        assert (await host.ask(COMPLETE, PARAMS[COMPLETE])).result["completion"]
        assert len(server.heard(COMPLETE)) == 1
        assert server.heard("widgets/do") == []
