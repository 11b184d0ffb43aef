"""Hosts of both eras at one mount at once: as one caller they have the same tasks, each in its own words."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import FORM, Hold, ScriptedServer, TalkingTool, error, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.questions import ACCEPTED, CAPABLE, DONE, ELICIT
from interaction.refusals import NEEDED, refused
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
LEGACY_TASKS = {"tasks": {"list": {}, "cancel": {}}}


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens and makes a task of every call, with two mounts before one server."""
    config = guarded({"reports": server.url, "orders": server.url}, issuer, tasks=ALWAYS)
    async with serve(config) as gateway:
        yield gateway


@pytest.fixture
def modern(gateway: Gateway, issuer: TokenIssuer) -> Host:
    """Alice, in the modern era."""
    return gateway.modern(token=issuer.token(gateway.url()), capabilities={"elicitation": {}})


@pytest.fixture
async def legacy(gateway: Gateway, issuer: TokenIssuer) -> Host:
    """Alice, in the legacy era."""
    return await in_session(gateway, issuer)


async def in_session(gateway: Gateway, issuer: TokenIssuer, mount: str = "reports", **claims: str) -> Host:
    host = gateway.host(mount, issuer.token(gateway.url(mount), **claims))
    await host.initialize(capabilities=CAPABLE)
    return host


@covers("V-ERA-1", "V-META-4")
async def test_both_eras_are_served_at_one_mount_in_turn_and_at_once(
    server: ScriptedServer, modern: Host, legacy: Host
) -> None:
    server.script["report"] = hold = Hold()
    old = (await legacy.start("report"))["taskId"]
    new = (await modern.start("report"))["taskId"]
    assert (await legacy.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert (await modern.discover())["capabilities"]["tools"] == {"listChanged": True}
    hold.release(DONE)
    assert (await legacy.ask("tasks/result", {"taskId": old})).result["content"] == DONE["content"]
    assert (await modern.until(new, "completed"))["result"]["content"] == DONE["content"]


@covers("L-LIST-3", "L-GET-1", "T-2", "T-3", "I-ISO-7")
async def test_a_task_of_the_modern_era_is_read_listed_and_fetched_in_a_session(modern: Host, legacy: Host) -> None:
    made = await modern.start("echo", {"a": 1})
    task = await legacy.until(made["taskId"], "completed")
    assert (task["createdAt"], task["ttl"]) == (made["createdAt"], made["ttlMs"])
    listed = (await legacy.ask("tasks/list")).result["tasks"]
    assert [each["taskId"] for each in listed] == [made["taskId"]]
    fetched = (await legacy.ask("tasks/result", {"taskId": made["taskId"]})).result
    assert fetched["structuredContent"] == {"a": 1}
    assert not {"resultType", "ttlMs", "cacheScope"} & set(fetched)


@covers("L-CANCEL-2", "M-GET-1", "T-25")
async def test_a_task_of_the_modern_era_is_cancelled_in_a_session(
    server: ScriptedServer, modern: Host, legacy: Host
) -> None:
    server.script["report"] = hold = Hold()
    task = (await modern.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    assert (await legacy.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    assert (await modern.task(task))["status"] == "cancelled"


@covers("L-INPUT-3", "M-UPD-2", "M-GET-1")
async def test_a_question_of_a_task_of_the_modern_era_is_answered_in_a_session(
    tool: TalkingTool, modern: Host, legacy: Host
) -> None:
    task = (await modern.start("report"))["taskId"]
    await tool.ask("q-1")
    (key,) = (await modern.until(task, "input_required"))["inputRequests"]
    async with legacy.asking("tasks/result", {"taskId": task}) as stream:
        asked = await stream.until(ELICIT)
        assert asked["params"]["message"] == FORM["message"]
        assert (await legacy.respond(asked["id"], ACCEPTED)).status == 202
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        assert (await modern.update(task, {key: {"action": "decline"}})).result["resultType"] == "complete"
        await tool.finish(DONE)
        assert (await stream.result())["content"] == DONE["content"]
    assert (await modern.task(task))["result"]["content"] == DONE["content"]


@covers("M-GET-1", "M-GET-2", "M-GET-3", "T-1", "T-14", "I-ISO-7", "B-CONV-1")
@pytest.mark.parametrize("is_error", [False, True])
async def test_a_task_of_a_session_is_read_in_the_modern_era(
    server: ScriptedServer, modern: Host, legacy: Host, is_error: bool
) -> None:
    server.script["report"] = result({**DONE, "isError": is_error})
    made = await legacy.start("report")
    task = await modern.until(made["taskId"], "completed")
    assert (task["createdAt"], task["ttlMs"]) == (made["createdAt"], made["ttl"])
    assert task["result"] == {**DONE, "isError": is_error, "resultType": "complete"}
    assert (await legacy.task(made["taskId"]))["status"] == ("failed" if is_error else "completed")


@covers("M-GET-3", "B-CONV-8", "T-24")
@pytest.mark.parametrize(("code", "told"), [(-32000, -32000), (-32002, -32602), (-32050, -32603), (7, 7)])
async def test_an_error_of_a_task_is_told_in_the_words_of_whoever_asks(
    server: ScriptedServer, modern: Host, legacy: Host, code: int, told: int
) -> None:
    server.script["report"] = error(code, "no")
    task = (await legacy.start("report"))["taskId"]
    assert (await modern.until(task, "failed"))["error"]["code"] == told
    assert (await legacy.ask("tasks/result", {"taskId": task})).code == code


@covers("M-CANCEL-1", "M-CANCEL-2", "T-5")
async def test_a_task_of_a_session_is_cancelled_in_the_modern_era(
    server: ScriptedServer, modern: Host, legacy: Host
) -> None:
    server.script["report"] = hold = Hold()
    task = (await legacy.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    acknowledged = [(await modern.cancel(task)).result for _ in range(2)]
    assert [set(each) for each in acknowledged] == [{"resultType", "_meta"}] * 2
    assert (await legacy.task(task))["status"] == "cancelled"
    assert (await legacy.ask("tasks/cancel", {"taskId": task})).code == -32602


@covers("M-UPD-1", "M-UPD-4", "M-UPD-6", "B-CONV-6", "B-CONV-7")
async def test_a_question_of_a_task_of_a_session_is_answered_in_the_modern_era(
    tool: TalkingTool, modern: Host, legacy: Host
) -> None:
    task = (await legacy.start("report"))["taskId"]
    await tool.ask("q-1")
    inputs = (await modern.until(task, "input_required"))["inputRequests"]
    (key,) = inputs
    assert inputs[key] == {"method": ELICIT, "params": FORM}
    assert key != "q-1"
    await modern.update(task, {key: ACCEPTED, "unknown": ACCEPTED})
    assert (await modern.task(task))["status"] == "working"
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    await tool.finish(DONE)
    await modern.until(task, "completed")


@covers("M-NEG-7", "M-NEG-4")
async def test_without_the_extension_tasks_of_sessions_alone_are_read_and_cancelled(
    server: ScriptedServer, modern: Host, legacy: Host
) -> None:
    server.script["report"] = Hold()
    old, new = (await legacy.start("report"))["taskId"], (await modern.start("report"))["taskId"]
    for method in ("tasks/get", "tasks/cancel"):
        answer = await modern.ask(method, {"taskId": new}, capabilities=LEGACY_TASKS)
        assert refused(answer, 400, -32021)["data"] == NEEDED
        assert refused(await modern.ask(method, {"taskId": old}, capabilities={}), 400, -32021)["data"] == NEEDED
    assert (await modern.task(old, capabilities=LEGACY_TASKS))["status"] == "working"
    assert (await modern.cancel(old, capabilities=LEGACY_TASKS)).result["resultType"] == "complete"
    assert (await legacy.task(old))["status"] == "cancelled"
    assert (await legacy.task(new))["status"] == "working"


@covers("M-NOTIF-4", "L-NOTIF-1")
async def test_a_task_of_a_session_is_told_to_listeners_of_the_modern_era(
    tool: TalkingTool, modern: Host, legacy: Host
) -> None:
    task = (await legacy.start("report"))["taskId"]
    async with modern.listen(taskIds=[task]) as stream:
        await tool.finish(DONE)
        async with bounded():
            while (told := (await stream.until("notifications/tasks")))["params"]["status"] != "completed":
                stream.heard.remove(told)
        assert told["params"]["result"]["content"] == DONE["content"]


@covers("I-ISO-1", "I-ISO-2", "I-ISO-3", "I-ISO-6")
@pytest.mark.parametrize(("mount", "claims"), [("reports", {"subject": "bob"}), ("orders", {})])
async def test_no_task_is_anybody_elses_in_either_era(
    gateway: Gateway,
    issuer: TokenIssuer,
    modern: Host,
    legacy: Host,
    mount: str,
    claims: dict[str, Any],
) -> None:
    stranger = gateway.modern(mount, issuer.token(gateway.url(mount), **claims))
    other = await in_session(gateway, issuer, mount, **claims)
    for task in ((await legacy.start("echo"))["taskId"], (await modern.start("echo"))["taskId"]):
        for method in ("tasks/get", "tasks/cancel"):
            assert (await other.ask(method, {"taskId": task})).code == -32602
            refused(await stranger.ask(method, {"taskId": task}), 200, -32602)
        refused(await stranger.update(task, {}), 200, -32602)
        assert (await other.ask("tasks/result", {"taskId": task})).code == -32602
    assert (await other.ask("tasks/list")).result["tasks"] == []


@covers("V-DISC-6", "T-8")
async def test_the_extension_declared_in_a_handshake_means_nothing(gateway: Gateway, issuer: TokenIssuer) -> None:
    host = gateway.host(token=issuer.token(gateway.url()))
    declared = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    welcome = await host.initialize(capabilities=declared)
    assert "extensions" not in welcome["capabilities"]
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert (await host.ask("tasks/update", {"taskId": "x", "inputResponses": {}})).code == -32601
