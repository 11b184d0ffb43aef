"""Handles without tokens: a handle is good for the host that got it, and for no program that has read it."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import ERAS, Host
from helpers.modern_schema import CLIENT
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.token_issuer import TokenIssuer, guarded
from interaction.audit_logs import audited, kept, lines, of
from interaction.handoffs import CANCEL, WAIT, YEAR, calls, cut, handle_of, handoff, taskless, waited
from interaction.questions import ACCEPTED, ASKED, CAPABLE, DONE, SAMPLE
from requirements import covers

eras = pytest.mark.parametrize("era", ERAS)
OTHER = {"name": "other", "version": "1"}
ADDRESS = "X-Forwarded-For"
FORGED = {"action": "accept", "content": {"it": "forged"}}


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


async def modern_wait(host: Host, handle: str, tool: str = WAIT, **more: Any) -> Any:
    return await host.call(tool, {"handle": handle}, **more)


@covers("T72")
@pytest.mark.parametrize("tool", [WAIT, CANCEL])
async def test_the_handle_of_a_connected_session_is_unknown_to_every_other_host(
    server: ScriptedServer, hold: Hold, tool: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        handle = handle_of(await host.call("report", YEAR))
        async with host.listen():
            strangers = (
                await taskless(gateway, "legacy"),
                await gateway.greeted(name="other"),
                gateway.modern(tasks=False),
            )
            for stranger in strangers:
                refused = (await stranger.call(tool, {"handle": handle})).error
                unknown = (await stranger.call(tool, {"handle": "A" * 32})).error
                assert (refused["code"], refused["message"]) == (unknown["code"], unknown["message"])
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]


@covers("T72")
@pytest.mark.parametrize("tool", [WAIT, CANCEL])
async def test_the_handle_of_a_modern_host_is_unknown_to_one_of_another_name_or_address(
    server: ScriptedServer, hold: Hold, tool: str
) -> None:
    proxies = {"trusted_proxies": ["127.0.0.1"]}
    async with serve(configuration({"reports": server.url}, tasks=handoff(), server=proxies)) as gateway:
        host, here, elsewhere = gateway.modern(tasks=False), {ADDRESS: "192.0.2.1"}, {ADDRESS: "192.0.2.9"}
        handle = handle_of(await host.call("report", YEAR, headers=here))
        assert (await modern_wait(host, handle, tool, headers=elsewhere)).code == -32602
        assert (await modern_wait(host, handle, tool, headers=here, meta={CLIENT: OTHER})).code == -32602
        hold.release(DONE)
        # A host opens another connection whenever it has been idle.
        async with aiohttp.ClientSession() as connection:
            again = Host(connection, gateway.url(), tasks=False, era="modern")
            assert (await modern_wait(again, handle, headers=here)).result["content"] == DONE["content"]


@covers("T72")
@eras
async def test_no_request_about_tasks_finds_the_call_of_a_handle(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        legacy, modern = await gateway.greeted(), gateway.modern()
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert (await legacy.ask(method, {"taskId": handle})).code == -32602
        for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
            assert (await modern.ask(method, {"taskId": handle, **more})).code == -32602
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert (await legacy.ask("tasks/result", {"taskId": handle})).code == -32602
        assert (await modern.ask("tasks/get", {"taskId": handle})).code == -32602


@covers("T72")
async def test_a_host_with_a_session_for_each_call_gets_its_results_and_one_of_another_name_does_not(
    server: ScriptedServer, hold: Hold
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        first = await taskless(gateway, "legacy")
        handle = handle_of(await first.call("report", YEAR))
        assert await first.leave() == 200
        assert (await waited(await gateway.greeted(name="other"), handle)).code == -32602
        second = await taskless(gateway, "legacy")
        hold.release(DONE)
        assert (await waited(second, handle)).result["content"] == DONE["content"]
        assert await second.leave() == 200
        assert (await waited(gateway.modern(tasks=False), handle)).result["content"] == DONE["content"]


@covers("T72")
async def test_a_host_that_connects_again_in_another_session_gets_its_result(
    server: ScriptedServer, hold: Hold
) -> None:
    """Released hosts do so after a failure of the connection or a kill, and end no session before."""
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        handle = handle_of(await (await taskless(gateway, "legacy")).call("report", YEAR))
        assert (await waited(await gateway.greeted(name="other"), handle)).code == -32602
        hold.release(DONE)
        assert (await waited(await taskless(gateway, "legacy"), handle)).result["content"] == DONE["content"]


@covers("T72")
@eras
async def test_a_host_that_repeats_a_lost_call_has_a_good_handle_whatever_its_session_and_name(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("100ms"))) as gateway:
        await cut(await taskless(gateway, era), hold)
        await gateway.shows("taskgate_tool_calls_total", 1, disposition="handoff")
        host = await gateway.greeted(name="another", era=era, tasks=False)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert calls(server) == 1


@covers("T72")
async def test_a_question_of_a_call_is_answered_by_its_host_alone(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host, stranger = await taskless(gateway, "legacy", **CAPABLE), await gateway.greeted(name="other")
        handle = handle_of(await host.call("report", YEAR))
        async with host.asking("tools/call", {"name": WAIT, "arguments": {"handle": handle}}) as stream:
            await tool.ask("q-1", SAMPLE, {**ASKED, "_meta": {"progressToken": "theirs"}})
            asked = await stream.until(SAMPLE)
            # Who has the handle can make these ids up.
            assert handle in asked["id"]
            token = asked["params"]["_meta"]["progressToken"]
            await stranger.tell("notifications/progress", {"progressToken": token, "progress": 1})
            assert (await stranger.respond(asked["id"], FORGED)).status == 202
            await host.tell("notifications/progress", {"progressToken": token, "progress": 2})
            assert (await host.respond(asked["id"], ACCEPTED)).status == 202
            assert (await tool.told("q-1"))["result"] == ACCEPTED
            assert [told["params"]["progress"] for told in server.heard("notifications/progress")] == [2]
            await tool.finish(DONE)
            assert (await stream.result())["content"] == DONE["content"]


@covers("T72")
@eras
async def test_a_handle_is_good_for_its_host_alone_after_a_restart_too(
    server: ScriptedServer, hold: Hold, era: str, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=handoff())
    async with serve(config) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
    async with serve(config) as gateway:
        host.url = gateway.url()
        assert (await waited(await gateway.greeted(name="other"), handle)).code == -32602
        assert (await gateway.modern().ask("tasks/get", {"taskId": handle})).code == -32602
        assert (await waited(gateway.again(host), handle)).result["content"] == DONE["content"]


@eras
async def test_with_tokens_a_handle_is_good_for_each_host_of_its_caller(
    server: ScriptedServer, hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, tasks=handoff())) as gateway:
        token = issuer.token(gateway.url(), subject="mine")
        handle = handle_of(await (await taskless(gateway, era, token)).call("report", YEAR))
        hold.release(DONE)
        for host in (await taskless(gateway, "legacy", token), gateway.modern(token=token, tasks=False)):
            assert (await waited(host, handle)).result["content"] == DONE["content"]


@covers("T72")
async def test_the_use_of_a_handle_by_another_host_is_in_the_audit_log(
    server: ScriptedServer, hold: Hold, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, tasks=handoff(), audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        handle = handle_of(await (await taskless(gateway, "legacy")).call("report", YEAR))
        assert (await waited(await gateway.greeted(name="other"), handle)).code == -32602
        hold.release(DONE)
    [denied] = of(lines(tmp_path), "task.access_denied")
    assert denied["reason"] == "context_mismatch"


async def test_a_handle_of_a_host_without_a_session_id_is_good_at_its_address_alone(
    server: ScriptedServer, hold: Hold
) -> None:
    front = {"sessions": "optional", "trusted_proxies": ["127.0.0.0/8"]}
    async with serve(configuration({"reports": server.url}, server=front, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        host.session = None
        own, foreign = {ADDRESS: "203.0.113.7"}, {ADDRESS: "198.51.100.9"}
        handle = handle_of(await host.call("report", YEAR, headers=own))
        assert (await waited(host, handle, headers=foreign)).error is not None
        hold.release(DONE)
        assert (await waited(host, handle, headers=own)).result == DONE
