"""Hosts that listen: told of their tasks, and of what their server says, on streams of their own."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import LISTEN, SUBSCRIPTION
from helpers.server import Hold, ScriptedServer, TalkingTool, note
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, DONE
from interaction.refusals import NEEDED, TASK, refused
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
ACKNOWLEDGED, TOLD = "notifications/subscriptions/acknowledged", "notifications/tasks"
UPDATED = "notifications/resources/updated"
TALKATIVE = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
KINDS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call of this era."""
    server.capabilities = TALKATIVE
    async with serve(configuration({"reports": server.url}, tasks=ALWAYS)) as gateway:
        yield gateway


def granted(stream: Any) -> dict[str, Any]:
    """What the acknowledgement says."""
    found: dict[str, Any] = stream.heard[0]["params"]["notifications"]
    return found


@covers("M-NOTIF-1", "M-NOTIF-2", "M-NOTIF-3", "M-NOTIF-4", "M-SUB-1")
async def test_a_task_is_told_of_from_its_first_state_to_its_end(tool: TalkingTool, gateway: Gateway) -> None:
    host = gateway.modern(capabilities={"elicitation": {}})
    task = (await host.start("report"))["taskId"]
    async with host.listen(taskIds=[task, TASK], id="mine") as stream:
        assert granted(stream) == {"taskIds": [task]}
        await stream.until(TOLD)
        await tool.ask("q-1")
        asked = (await stream.until(TOLD, times=2))["params"]
        shown = await host.task(task)
        assert (asked["status"], asked["inputRequests"]) == ("input_required", shown["inputRequests"])
        await host.update(task, {"input-1": ACCEPTED})
        await stream.until(TOLD, times=3)
        await tool.finish(DONE)
        last = (await stream.until(TOLD, times=4))["params"]
        shown = await host.task(task)
    assert last.pop("_meta") == {SUBSCRIPTION: "mine"}
    assert last == {key: value for key, value in shown.items() if key not in ("_meta", "resultType")}
    assert [message["params"]["status"] for message in stream.of(TOLD)] == [
        "working",
        "input_required",
        "working",
        "completed",
    ]


@covers("M-NOTIF-5")
async def test_progress_of_a_task_is_told_as_its_status_message(tool: TalkingTool, gateway: Gateway) -> None:
    host = gateway.modern()
    task = (await host.start("report"))["taskId"]
    async with host.listen(taskIds=[task]) as stream:
        await stream.until(TOLD)
        await eventually(lambda: tool.turn is not None)
        token = tool.called.message["params"]["_meta"]["progressToken"]
        await tool.note("notifications/message", level="error", data="x")
        await tool.note("notifications/progress", progressToken=token, progress=3, total=10, message="fetching")
        told = (await stream.until(TOLD, times=2))["params"]
    assert told["statusMessage"] == "3/10: fetching"
    assert {message["method"] for message in stream.heard} == {ACKNOWLEDGED, TOLD}


async def test_a_task_that_has_ended_is_told_of_at_once_and_the_stream_stays(gateway: Gateway) -> None:
    host = gateway.modern()
    task = (await host.start("echo", {"a": 1}))["taskId"]
    await host.until(task, "completed")
    async with host.listen(taskIds=[task]) as stream:
        told = (await stream.until(TOLD))["params"]
        assert told["result"]["structuredContent"] == {"a": 1}
        assert not stream.ended


async def test_tasks_of_the_other_era_are_told_of(server: ScriptedServer, gateway: Gateway) -> None:  # AMB-7
    server.script["report"] = hold = Hold()
    legacy, host = await gateway.greeted(), gateway.modern()
    task = (await legacy.start("report"))["taskId"]
    async with host.listen(taskIds=[task]) as stream:
        await stream.until(TOLD)
        hold.release(DONE)
        assert (await stream.until(TOLD, times=2))["params"]["result"]["content"] == DONE["content"]


@covers("M-NOTIF-1", "M-NEG-4")
async def test_who_does_not_declare_the_extension_is_told_of_no_task(gateway: Gateway) -> None:
    answer = await gateway.modern(tasks=False).ask(LISTEN, {"notifications": {"taskIds": [TASK]}})
    assert refused(answer, 400, -32021)["data"] == NEEDED


@covers("I-ISO-2", "I-ISO-3")
async def test_tasks_of_others_are_left_out_like_those_that_never_were_and_who_tries_many_is_shut_out(
    server: ScriptedServer, issuer: TokenIssuer
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, tasks=ALWAYS)) as gateway:
        alice, bob = (
            gateway.modern(token=issuer.token(gateway.url(), subject=subject)) for subject in ("alice", "bob")
        )
        task = (await alice.start("echo"))["taskId"]
        async with bob.listen(taskIds=[task, TASK]) as stream:
            assert granted(stream) == {"taskIds": []}
        many = {"notifications": {"taskIds": [f"{number:032}" for number in range(900)]}}
        answer = await bob.ask(LISTEN, many)
        assert refused(answer, 200, 429)["data"]["reason"] == "penalty"
        assert int(answer.headers["Retry-After"]) > 0
        async with alice.listen(taskIds=[task]) as stream:
            assert granted(stream) == {"taskIds": [task]}


@covers("M-NOTIF-7", "M-SUB-1")
@pytest.mark.parametrize("kind", KINDS)
async def test_of_lists_that_kind_alone_is_told_that_was_asked_for(
    server: ScriptedServer, gateway: Gateway, kind: str
) -> None:
    host = gateway.modern()
    async with host.listen(**{kind: True}) as stream, host.listen(**dict.fromkeys(KINDS, True)) as other:
        await server.streaming()
        await server.push(*map(note, KINDS.values()))
        for method in KINDS.values():
            await other.until(method)
        await stream.until(KINDS[kind])
    assert [message["method"] for message in stream.heard] == [ACKNOWLEDGED, KINDS[kind]]


@covers("M-NOTIF-2")
async def test_what_a_server_cannot_tell_is_not_granted(server: ScriptedServer, gateway: Gateway) -> None:
    server.capabilities = {"tools": {}, "resources": {"listChanged": True}}
    wishes = {**dict.fromkeys(KINDS, True), "resourceSubscriptions": ["a://1"]}
    async with gateway.modern().listen(**wishes) as stream:
        assert granted(stream) == {"resourcesListChanged": True}
    assert server.heard("resources/subscribe") == []


@covers("M-NOTIF-7")
async def test_a_resource_is_subscribed_to_once_and_told_to_who_asked_for_it(
    server: ScriptedServer, gateway: Gateway
) -> None:
    host = gateway.modern()
    async with host.listen(resourceSubscriptions=["a://1", "a://2"]) as both:
        async with host.listen(resourceSubscriptions=["a://1"]) as one:
            await server.streaming()
            await server.push(*(note(UPDATED, uri=uri) for uri in ("a://3", "a://2", "a://1")))
            await both.until(UPDATED, times=2)
            await one.until(UPDATED)
            assert [message["params"]["uri"] for message in both.of(UPDATED)] == ["a://2", "a://1"]
            assert [message["params"]["uri"] for message in one.of(UPDATED)] == ["a://1"]
        assert server.heard("resources/unsubscribe") == []
    await eventually(lambda: len(server.heard("resources/unsubscribe")) == 2)
    assert sorted(message["params"]["uri"] for message in server.heard("resources/subscribe")) == ["a://1", "a://2"]
    assert sorted(message["params"]["uri"] for message in server.heard("resources/unsubscribe")) == ["a://1", "a://2"]


@covers("M-SUB-1", "M-SUB-2", "M-NOTIF-3", "M-NOTIF-7")
async def test_what_a_server_of_this_era_tells_is_told_on() -> None:
    async with ScriptedServer("modern") as server:
        server.capabilities = TALKATIVE
        section = {"path": "/reports/mcp", "url": server.url, "protocol_version": "2026-07-28"}
        config = configuration({}, upstreams={"reports": section})
        async with serve(config) as gateway:
            host = gateway.modern()
            wishes = {"promptsListChanged": True, "resourceSubscriptions": ["a://1"]}
            async with host.listen(**wishes, id="mine") as stream:
                assert granted(stream) == wishes
                await eventually(lambda: any(wish.get("resourceSubscriptions") for wish in server.listens.filters))
                await server.push(*map(note, KINDS.values()), note(UPDATED, uri="a://2"), note(UPDATED, uri="a://1"))
                assert (await stream.until(UPDATED))["params"] == {"uri": "a://1", "_meta": {SUBSCRIPTION: "mine"}}
    assert [message["method"] for message in stream.heard][1:] == [KINDS["promptsListChanged"], UPDATED]


async def test_a_server_that_is_not_there_is_the_answer(server: ScriptedServer, gateway: Gateway) -> None:
    await server.stop()
    answer = await gateway.modern().ask(LISTEN, {"notifications": {"toolsListChanged": True}})
    assert refused(answer, 200, -32603)["data"]["origin"] == "upstream"


async def test_who_takes_no_stream_cannot_listen(gateway: Gateway) -> None:
    host = gateway.modern()
    async with host.asking(LISTEN, {"notifications": {}}, headers={"Accept": "application/json"}) as asking:
        refused(await asking.answer(), 200, -32602)


@covers("M-NOTIF-6")
async def test_a_stream_ends_with_its_result_when_the_token_does(server: ScriptedServer, issuer: TokenIssuer) -> None:
    auth = {"issuers": {"corp": {**issuer.section, "leeway": "0s"}}}
    async with serve(guarded({"reports": server.url}, auth=auth)) as gateway:
        token = issuer.token(gateway.url(), exp=time.time() + 1)
        async with gateway.modern(token=token).listen(toolsListChanged=True, id=5) as stream:
            answer = await stream.answer()
    assert answer.result["_meta"][SUBSCRIPTION] == 5
