"""Rounds between a host and a server of the modern era: passed on without a task, made inputs of with one."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.gateway import Environment, Gateway
from helpers.host.host import called
from helpers.manual_clock import ManualClock
from helpers.server import Hold, Rounds, ScriptedServer, Turn
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded, eventually
from interaction.bridges import ALWAYS, DONE, FORM, ROOTS, before, bridge, modern
from interaction.questions import ACCEPTED
from interaction.refusals import refused
from requirements import covers

__all__ = ["bridge", "modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}}


@covers("M-MRTR-1", "M-MRTR-3", "M-MRTR-4", "M-MRTR-6")
@pytest.mark.parametrize("tasks", [False, True])
async def test_a_round_passes_to_the_host_under_a_sealed_state(
    modern: ScriptedServer, bridge: Gateway, tasks: bool
) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "theirs"},
        {"inputRequests": {"a": FORM}, "requestState": "theirs too"},
    )
    host = bridge.modern(capabilities=ASKABLE, tasks=tasks)
    first = (await host.call("report")).result
    assert first["inputRequests"] == {"a": FORM, "b": ROOTS}
    assert "theirs" not in first["requestState"]
    given = {"a": ACCEPTED, "b": {"roots": []}}
    second = (await host.call("report", requestState=first["requestState"], inputResponses=given)).result
    assert second["inputRequests"] == {"a": FORM}
    last = {"requestState": second["requestState"], "inputResponses": {"a": ACCEPTED}}
    done = (await host.call("report", **last)).result
    assert done["structuredContent"] == {"answers": [given, {"a": ACCEPTED}]}
    assert rounds.states == ["theirs", "theirs too"]


@covers("M-MRTR-3", "M-MRTR-5")
async def test_what_a_host_answers_is_for_the_server_to_judge(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM, "b": FORM}, "requestState": "s"})
    host = bridge.modern(capabilities=ASKABLE, tasks=False)
    state = (await host.call("report")).result["requestState"]
    await host.call("report", requestState=state, inputResponses={"a": ACCEPTED})
    assert rounds.answers == [{"a": ACCEPTED}]


@covers("M-MRTR-3")
async def test_a_round_without_a_state_or_without_questions_passes_too(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}}, {"requestState": "later"}, answer=DONE)
    host = bridge.modern(capabilities=ASKABLE, tasks=False)
    params: dict[str, Any] = {}
    for answers in ({"a": ACCEPTED}, None):
        asked = (await host.call("report", **params)).result
        assert asked["resultType"] == "input_required"
        params = {name: asked[name] for name in ("requestState",) if name in asked}
        params |= {} if answers is None else {"inputResponses": answers}
    assert (await host.call("report", **params)).result["content"] == DONE["content"]
    assert rounds.states == [None, "later"]


@covers("M-MRTR-4", "I-ISO-5")
async def test_a_state_of_the_servers_own_is_not_taken_from_a_host(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "theirs"})
    host = bridge.modern(capabilities=ASKABLE, tasks=False)
    state = (await host.call("report")).result["requestState"]
    answer = {"inputResponses": {"a": ACCEPTED}}
    refused(await host.call("report", requestState="theirs", **answer), 200, -32602)
    refused(await host.call("report", {"b": 1}, requestState=state, **answer), 200, -32602)
    assert len(rounds.turns) == 1


# --- tasks ------------------------------------------------------------------------------------------------------------


@covers("M-GET-1", "M-UPD-3", "M-UPD-4", "T-13", "M-MRTR-3", "M-MRTR-8", "M-UPD-6")
async def test_the_rounds_of_a_task_are_inputs_under_keys_of_the_gateways(modern: ScriptedServer) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "one"},
        {"inputRequests": {"a": FORM}, "requestState": "two"},
    )
    async with before(modern, tasks=ALWAYS) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = (await host.start("report"))["taskId"]
        await eventually(lambda: rounds.turns)
        async with bounded():
            while len((found := await host.task(task)).get("inputRequests", {})) < 2:
                pass
        keys = {each["method"]: key for key, each in found["inputRequests"].items()}
        assert not {"a", "b"} & set(keys.values())
        await host.update(task, {keys["roots/list"]: {"roots": []}})
        assert list((await host.task(task))["inputRequests"]) == [keys["elicitation/create"]]
        assert len(rounds.turns) == 1
        await host.update(task, {keys["elicitation/create"]: ACCEPTED})
        (other,) = (await host.until(task, "input_required"))["inputRequests"]
        assert other not in keys.values()
        await host.update(task, {other: {"action": "decline"}})
        done = await host.until(task, "completed")
    assert done["result"]["structuredContent"] == {"answers": rounds.answers}
    assert rounds.answers == [{"a": ACCEPTED, "b": {"roots": []}}, {"a": {"action": "decline"}}]
    assert rounds.states == ["one", "two"]


@covers("H-MOD-9", "M-CREATE-3", "T-11")
async def test_a_handle_leaves_the_servers_stream_open(modern: ScriptedServer) -> None:
    modern.script["report"] = hold = Hold()
    async with before(modern, tasks=ALWAYS) as gateway:
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
        assert (await host.task(task))["status"] == "working"
        assert modern.left == []
        hold.release(DONE)
        assert (await host.until(task, "completed"))["result"]["content"] == DONE["content"]
    assert len(modern.heard("tools/call")) == 1


@covers("M-CANCEL-2", "H-MOD-10", "M-CANCEL-1")
async def test_a_cancelled_task_closes_the_servers_stream(modern: ScriptedServer) -> None:
    modern.script["report"] = hold = Hold()
    async with before(modern, tasks=ALWAYS) as gateway:
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
        await host.cancel(task)
        assert (await host.task(task))["status"] == "cancelled"
        await modern.leaving("tools/call")
        assert set((await host.cancel(task)).result) == {"resultType", "_meta"}


@covers("M-MRTR-4", "M-MRTR-7")
async def test_a_state_of_a_passed_round_is_good_as_long_as_a_question_may_wait(modern: ScriptedServer) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"})
    clock = ManualClock()
    bounds = {"input_required": {"max_wait": "5m"}}
    async with before(modern, environment=Environment(clock=clock), tasks=bounds) as gateway:
        host = gateway.modern(capabilities=ASKABLE, tasks=False)
        state = (await host.call("report")).result["requestState"]
        clock.advance(timedelta(minutes=5, seconds=1))
        answer = {"requestState": state, "inputResponses": {"a": ACCEPTED}}
        refused(await host.call("report", **answer), 200, -32602)
    assert len(rounds.turns) == 1


@covers("M-MRTR-4", "I-ISO-2", "I-ISO-5")
async def test_a_state_of_a_passed_round_is_good_for_its_caller_alone(
    modern: ScriptedServer, issuer: TokenIssuer
) -> None:
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"})
    auth = {"mode": "required", "issuers": {"corp": issuer.section}}
    async with before(modern, auth=auth) as gateway:
        alice, bob = (
            gateway.modern(token=issuer.token(gateway.url(), subject=name), capabilities=ASKABLE, tasks=False)
            for name in ("alice", "bob")
        )
        state = (await alice.call("report")).result["requestState"]
        answer = {"requestState": state, "inputResponses": {"a": ACCEPTED}}
        refused(await bob.call("report", **answer), 200, -32602)
        assert len(rounds.turns) == 1
        assert (await alice.call("report", **answer)).result["resultType"] == "complete"


@covers("R-RES-6", "M-MRTR-1")
async def test_a_call_that_could_not_become_a_task_has_its_rounds_passed_on(modern: ScriptedServer) -> None:
    modern.script["echo"], rounds = Hold(), Rounds({"inputRequests": {"a": FORM}, "requestState": "s"})
    go_on = asyncio.Event()

    async def report(turn: Turn) -> Any:
        async with bounded():
            await go_on.wait()
        return await rounds(turn)

    modern.script["report"] = report
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with before(modern, tasks={"inline_grace": "0s"}, limits=limits) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await host.start("echo")
        async with host.asking("tools/call", called("report")) as asked:
            await eventually(lambda: len(modern.heard("tools/call")) == 2)
            await gateway.metrics()
            go_on.set()
            first = (await asked.answer()).result
        assert first["inputRequests"] == {"a": FORM}
        answer = {"requestState": first["requestState"], "inputResponses": {"a": ACCEPTED}}
        assert (await host.call("report", **answer)).result["structuredContent"] == {"answers": rounds.answers}


@covers("M-MRTR-2", "V-META-5")
async def test_a_round_that_asks_what_the_host_did_not_declare_is_told_as_what_it_lacks(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.script["report"] = Rounds({"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "theirs"})
    answer = await bridge.modern(capabilities={"roots": {}}, tasks=False).call("report")
    assert refused(answer, 400, -32021)["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
