"""Late calls of hosts that know no tasks: each gets a handle in words, and the result by the gateway's own tools."""

import asyncio
from pathlib import Path

import pytest

from helpers.failing_store import FailingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, open_store, serve
from helpers.host.host import ERAS
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.audit_logs import audited, kept, lines, of
from interaction.handoffs import CANCEL, MODES, WAIT, YEAR, calls, handle_of, handoff, taskless, text_of, waited
from interaction.held_calls import CAPABLE
from interaction.questions import ACCEPTED, DONE, ELICIT
from interaction.reloads import SUCCESS

eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


async def progress(tool: TalkingTool, done: int, message: str) -> None:
    """Have the server report on its call, of 10 steps."""
    token = tool.called.token
    await tool.note("notifications/progress", progressToken=token, progress=done, total=10, message=message)


@eras
async def test_a_late_call_is_answered_with_a_handle_and_its_result_comes_by_the_tool_that_waits(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        answer = await host.call("report", YEAR)
        handle, text = handle_of(answer), text_of(answer)
        assert text.startswith("The call of report has run for 0 s, and still runs. It has not failed: do not call")
        assert f"call the tool {WAIT} with" in text
        waiting = asyncio.create_task(waited(host, handle))
        await gateway.metrics()
        assert not waiting.done()
        hold.release({**DONE, "structuredContent": {"rows": 3}})
        async with bounded():
            result = (await waiting).result
        assert (result["content"], result["structuredContent"]) == (DONE["content"], {"rows": 3})
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert calls(server) == 1
        assert await gateway.count("taskgate_tool_calls_total", tool="report", disposition="handoff") == 1


@eras
async def test_a_call_that_is_quick_enough_is_answered_as_ever(server: ScriptedServer, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        answer = await (await taskless(gateway, era)).call("echo", YEAR)
        assert answer.result["structuredContent"] == YEAR
        assert await gateway.count("taskgate_tasks_started_total") == 0


@eras
async def test_an_error_of_the_server_comes_by_the_tool_that_waits(server: ScriptedServer, era: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        error = {"code": -32000, "message": "no paper"}
        await tool.say({"jsonrpc": "2.0", "id": tool.called.id, "error": error})
        answer = await waited(host, handle)
        assert (answer.code, answer.error["message"]) == (-32000, "no paper")


@eras
async def test_a_wait_that_reaches_the_ceiling_tells_the_newest_progress_and_to_wait_again(
    server: ScriptedServer, era: str
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff(ceiling="300ms"))) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        await progress(tool, 3, "fetching")
        async with bounded():
            while 'Its server reports: "3/10: fetching".' not in (text := text_of(await waited(host, handle))):
                pass
        assert f'{WAIT} with {{"handle": "{handle}"}}' in text
        await tool.finish(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]


@eras
async def test_the_handle_comes_with_the_newest_progress(server: ScriptedServer, era: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("300ms"))) as gateway:
        host = await taskless(gateway, era)
        calling = asyncio.create_task(host.call("report", YEAR))
        async with bounded():
            await tool.begun.wait()
        await progress(tool, 3, "fetching")
        assert 'Its server reports: "3/10: fetching".' in text_of(await calling)
        await tool.finish(DONE)


@eras
async def test_the_ceiling_of_a_rule_bounds_the_wait_too(server: ScriptedServer, hold: Hold, era: str) -> None:
    tasks = handoff(ceiling="1h")
    tasks["upgrade"][0]["handoff"]["ceiling"] = "200ms"
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        async with bounded():
            assert "has run for more than" in text_of(await waited(host, handle))
        hold.release(DONE)


@eras
async def test_progress_crosses_while_a_host_waits(server: ScriptedServer, era: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        params = {"name": WAIT, "arguments": {"handle": handle}}
        meta = {"progressToken": "p"}
        asking = (
            host.asking("tools/call", params, meta=meta)
            if era == "modern"
            else host.asking("tools/call", {**params, "_meta": meta})
        )
        async with asking as stream:
            await progress(tool, 3, "fetching")
            told = await stream.until("notifications/progress")
            assert (told["params"]["progressToken"], told["params"]["message"]) == ("p", "3/10: fetching")
            await tool.finish(DONE)
            await stream.end()


@eras
async def test_the_tool_that_cancels_ends_the_call_at_its_server(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        assert text_of(await host.call(CANCEL, {"handle": handle})) == (
            "The call of report was cancelled. It has no result."
        )
        await eventually(lambda: bool(server.cancelled))
        assert text_of(await waited(host, handle)) == "The call of report was cancelled. It has no result."


@eras
async def test_a_call_that_has_ended_is_not_cancelled_any_more(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        assert "had ended before" in text_of(await host.call(CANCEL, {"handle": handle}))
        assert (await waited(host, handle)).result["content"] == DONE["content"]


# --- what hosts see of it ---------------------------------------------------------------------------------------------


@eras
async def test_both_tools_are_listed_and_late_tools_have_no_output_schema_for_hosts_without_tasks_alone(
    server: ScriptedServer, era: str
) -> None:
    schema = {"type": "object"}
    server.tools = [{"name": name, "inputSchema": schema, "outputSchema": schema} for name in ("report", "quick")]
    tasks = handoff()
    tasks["upgrade"] = [{**tasks["upgrade"][0], "tool": "report"}, {"tool": "*", "mode": "auto"}]
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        without = (await (await taskless(gateway, era)).ask("tools/list")).result["tools"]
        assert [(tool["name"], "outputSchema" in tool) for tool in without] == [
            ("report", False),
            ("quick", True),
            (WAIT, False),
            (CANCEL, False),
        ]
        assert [tool["inputSchema"]["required"] for tool in without[2:]] == [["handle"], ["handle"]]
        knowing = gateway.modern() if era == "modern" else await taskless(gateway, era, tasks={"list": {}})
        tools = (await knowing.ask("tools/list")).result["tools"]
        assert [(tool["name"], "outputSchema" in tool) for tool in tools] == [("report", True), ("quick", True)]


@eras
async def test_a_host_that_knows_tasks_is_treated_as_ever(server: ScriptedServer, hold: Hold, era: str) -> None:
    tasks = {**handoff(), "inline_grace": "10ms"}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        if era == "modern":
            assert (await gateway.modern().start("report", YEAR))["status"] == "working"
        else:
            host = await taskless(gateway, era)
            task = (await host.ask("tools/call", {"name": "report", "arguments": YEAR, "task": {}})).result["task"]
            assert task["status"] == "working"
            # From now on it has shown that it knows them, so its plain calls block.
            blocked = asyncio.create_task(host.call("report", {"year": 2025}))
            await eventually(lambda: calls(server) == 2)
            hold.release(DONE)
            async with bounded():
                assert (await blocked).result["content"] == DONE["content"]


@eras
async def test_without_a_rule_calls_block_and_the_tools_are_unknown(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        host = await taskless(gateway, era)
        assert WAIT not in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]
        blocked = asyncio.create_task(host.call("report", YEAR))
        await eventually(lambda: calls(server) == 1)
        assert not blocked.done()
        hold.release(DONE)
        async with bounded():
            assert (await blocked).result["content"] == DONE["content"]


@eras
async def test_a_tool_that_runs_only_as_a_task_is_handed_off(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff(mode="required"))) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]


@eras
async def test_a_rule_in_shadow_counts_late_calls_and_hands_off_none(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    tasks = handoff(shadow=True)
    tasks["upgrade"].append({"tool": "*", "mode": "auto"})
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        await host.call("echo", YEAR)
        # On a busy machine that call may have been late too.
        before = await gateway.count("taskgate_shadow_promotions_total")
        late = asyncio.create_task(host.call("report", YEAR))
        await gateway.shows("taskgate_shadow_promotions_total", before + 1)
        hold.release(DONE)
        async with bounded():
            assert (await late).result["content"] == DONE["content"]
        assert WAIT not in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]


@eras
async def test_a_rule_in_shadow_counts_late_calls_alone_where_calls_make_no_tasks(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("500ms", shadow=True))) as gateway:
        host = await taskless(gateway, era)
        await host.call("echo", YEAR)
        assert await gateway.count("taskgate_shadow_promotions_total") == 0
        late = asyncio.create_task(host.call("report", YEAR))
        await gateway.shows("taskgate_shadow_promotions_total", 1)
        hold.release(DONE)
        async with bounded():
            assert (await late).result["content"] == DONE["content"]


@eras
async def test_the_tools_are_listed_where_a_tool_that_the_caller_may_call_is_handed_off(
    server: ScriptedServer, era: str
) -> None:
    server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("report", "quick")]
    tasks = handoff()
    tasks["upgrade"] = [{**tasks["upgrade"][0], "tool": "report"}]
    rules = {"rules": [{"name": "no-reports", "tool": "report", "effect": "deny"}]}
    config = configuration({"reports": server.url}, tasks=tasks, authorization=rules)
    async with serve(config) as gateway:
        listed = (await (await taskless(gateway, era)).ask("tools/list")).result["tools"]
        assert [tool["name"] for tool in listed] == ["quick"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_a_session_that_asks_about_tasks_knows_them(server: ScriptedServer, method: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        assert WAIT in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]
        await host.ask(method, {"taskId": "A" * 32})
        assert WAIT not in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]


@eras
async def test_the_ceiling_of_a_rule_with_hints_bounds_the_wait_too(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    server.tools.append({"name": "report", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}})
    tasks = handoff(ceiling="1h")
    terms = {"after": "20ms", "ceiling": "50ms"}
    tasks["upgrade"] = [{"tool": "*", "hints": {"readOnlyHint": True}, "mode": "auto", "handoff": terms}]
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        async with bounded():
            assert handle_of(await waited(host, handle)) == handle
        hold.release(DONE)


async def test_a_legacy_host_that_wants_no_progress_gets_none(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, "legacy")
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}) as stream:
            async with bounded():
                await tool.begun.wait()
            await progress(tool, 3, "fetching")
            await tool.finish(DONE)
            assert (await stream.result())["content"] == DONE["content"]
        assert stream.of("notifications/progress") == []


async def test_a_session_of_a_revision_without_tasks_hears_nothing_of_its_task(
    server: ScriptedServer, hold: Hold
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host, other = gateway.host(), await gateway.greeted()
        await host.initialize("2025-06-18")
        async with host.listen() as stream, other.listen() as news:
            handle = handle_of(await host.call("report", YEAR))
            hold.release(DONE)
            assert (await waited(host, handle)).result["content"] == DONE["content"]
            # Changes are told in the order of the store, so those of the call would have been told before.
            await other.start("echo")
            await news.until("notifications/tasks/status")
            assert stream.of("notifications/tasks/status") == []


# --- whose handle it is -----------------------------------------------------------------------------------------------


@eras
@pytest.mark.parametrize("tool", [WAIT, CANCEL])
async def test_the_handle_of_another_caller_is_the_same_as_an_unknown_one(
    server: ScriptedServer, hold: Hold, issuer: TokenIssuer, era: str, tool: str
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, tasks=handoff())) as gateway:
        mine = await taskless(gateway, era, issuer.token(gateway.url(), subject="mine"))
        other = await taskless(gateway, era, issuer.token(gateway.url(), subject="other"))
        handle = handle_of(await mine.call("report", YEAR))
        foreign = await other.call(tool, {"handle": handle})
        unknown = await other.call(tool, {"handle": "x" * 32})
        assert (foreign.code, foreign.error) == (-32602, unknown.error)
        assert "no longer kept" in unknown.error["message"]
        assert (await other.call(tool, {"handle": "no handle"})).error == unknown.error
        assert (await other.call(tool, {})).code == -32602
        hold.release(DONE)
        assert (await waited(mine, handle)).result["content"] == DONE["content"]


@eras
async def test_a_wait_counts_as_a_poll_for_rates(server: ScriptedServer, hold: Hold, era: str) -> None:
    rates = [{"name": "calls", "scope": "context", "rate": "1/h", "burst": 1, "methods": ["tools/call"]}]
    limits = {"rate": rates, "replace_defaults": True}
    async with serve(configuration({"reports": server.url}, tasks=handoff(), limits=limits)) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert (await host.call("report", YEAR)).code == 429


@pytest.mark.parametrize("mode", MODES)
@eras
async def test_a_call_above_the_cap_blocks_until_its_result(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=handoff(mode=mode), limits=limits)) as gateway:
        host = await taskless(gateway, era)
        handle_of(await host.call("report", YEAR))
        blocked = asyncio.create_task(host.call("report", {"year": 2025}))
        await gateway.counted("taskgate_concurrency_rejections_total")
        assert not blocked.done()
        hold.release(DONE)
        async with bounded():
            assert (await blocked).result["content"] == DONE["content"]


# --- questions --------------------------------------------------------------------------------------------------------


async def test_a_question_of_the_server_reaches_a_legacy_host_on_the_stream_of_its_wait(
    server: ScriptedServer,
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy", **CAPABLE)
        handle = handle_of(await host.call("report", YEAR))
        async with host.asking("tools/call", {"name": WAIT, "arguments": {"handle": handle}}) as stream:
            await tool.ask("q-1")
            asked = await stream.until(ELICIT)
            await host.respond(asked["id"], ACCEPTED)
            assert (await tool.told("q-1"))["result"] == ACCEPTED
            await tool.finish(DONE)
            assert (await stream.result())["content"] == DONE["content"]


async def test_a_question_of_the_server_is_the_answer_to_the_wait_of_a_modern_host(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        handle = handle_of(await host.call("report", YEAR))
        await tool.ask("q-1")
        round_ = (await waited(host, handle)).result
        assert round_["resultType"] == "input_required"
        ((key, asked),) = round_["inputRequests"].items()
        assert asked["method"] == ELICIT
        again = asyncio.create_task(waited(host, handle, inputResponses={key: ACCEPTED}))
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        await tool.finish(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]


async def test_a_question_is_no_answer_to_the_wait_of_a_modern_host_that_does_not_declare_it(
    server: ScriptedServer,
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host, plain = await taskless(gateway, "modern", **CAPABLE), await taskless(gateway, "modern")
        handle = handle_of(await host.call("report", YEAR))
        await tool.ask("q-1")
        assert (await waited(host, handle)).result["resultType"] == "input_required"
        refused = await waited(plain, handle)
        assert (refused.code, refused.error["data"]["requiredCapabilities"]) == (-32021, {"elicitation": {"form": {}}})
        assert (await waited(host, handle)).result["resultType"] == "input_required"


async def test_the_rounds_of_one_wait_have_one_ceiling(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff(ceiling="1h"))) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        handle = handle_of(await host.call("report", YEAR))
        await tool.ask("q-1")
        round_ = (await waited(host, handle)).result
        ((key, _),) = round_["inputRequests"].items()
        assert float(round_["requestState"]) > 3000
        for state in ("0.000", "1" * 12 + ".000", "no number"):
            # Only the first one is over.
            params = {"inputResponses": {key: ACCEPTED}, "requestState": state}
            again = asyncio.create_task(waited(host, handle, **params))
            if state == "0.000":
                async with bounded():
                    assert handle_of(await again) == handle
            else:
                await gateway.metrics()
                assert not again.done()
                again.cancel()
        await tool.finish(DONE)


@pytest.mark.parametrize("after", ["10s", "20ms"])
async def test_a_question_before_the_handoff_is_on_the_stream_of_the_call(server: ScriptedServer, after: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff(after))) as gateway:
        host = await taskless(gateway, "legacy", **CAPABLE)
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}) as stream:
            await tool.ask("q-1")
            if after == "10s":
                asked = await stream.until(ELICIT)
                await host.respond(asked["id"], ACCEPTED)
                assert (await tool.told("q-1"))["result"] == ACCEPTED
                await tool.finish(DONE)
                assert (await stream.result())["content"] == DONE["content"]
            else:
                await stream.end()


@eras
async def test_an_unknown_handle_is_one_denied_look_up(server: ScriptedServer, era: str, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, tasks=handoff(), audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await taskless(gateway, era)
        for handle in ("A" * 32, "no handle"):
            assert (await waited(host, handle)).code == -32602
    assert sorted(line["reason"] for line in of(lines(tmp_path), "task.access_denied")) == ["malformed_id", "not_found"]


@eras
async def test_the_audit_log_names_the_task_of_a_wait_and_of_a_cancellation(
    server: ScriptedServer, hold: Hold, era: str, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, tasks=handoff(ceiling="1s"), audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        assert handle_of(await waited(host, handle)) == handle
        await host.call(CANCEL, {"handle": handle})
    written = lines(tmp_path)
    [created] = of(written, "task.created")
    assert [line["task"]["ref"] for line in of(written, "rpc.call")] == [created["task"]["ref"]] * 3


# --- reloads and drains -----------------------------------------------------------------------------------------------


@eras
async def test_a_rule_of_a_reload_hands_off_and_handles_outlive_its_end(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        host = await taskless(gateway, era)
        assert WAIT not in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]
        assert await gateway.reload(configuration({"reports": server.url}, tasks=handoff())) == SUCCESS
        handle = handle_of(await host.call("report", YEAR))
        assert await gateway.reload(configuration({"reports": server.url})) == SUCCESS
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]


@eras
async def test_a_drain_serves_waits_for_calls_that_run(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        closing = asyncio.create_task(gateway.drain())
        async with bounded():
            while "error" not in ((await host.call("echo", YEAR)).message or {}):
                pass
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        async with bounded():
            await closing


async def test_a_drain_refuses_what_has_only_the_name_of_a_tool_of_the_gateway(
    server: ScriptedServer, hold: Hold
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        handle_of(await host.call("report", YEAR))
        closing = asyncio.create_task(gateway.drain())
        async with bounded():
            while "error" not in ((await host.call("echo", YEAR)).message or {}):
                pass
        draining = (await host.call("echo", YEAR)).code
        assert (await host.ask("resources/subscribe", {"uri": "a:b", "name": WAIT})).code == draining
        assert (await host.call(WAIT, YEAR)).code == draining
        hold.release(DONE)
        async with bounded():
            await closing


@eras
async def test_while_the_store_is_down_calls_block(server: ScriptedServer, era: str) -> None:
    store = FailingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=handoff())
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        host = await taskless(gateway, era)
        store.failing = {"insert", "load", "repeated"}
        assert (await host.call("echo", YEAR)).result["structuredContent"] == YEAR
