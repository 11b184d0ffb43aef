"""Connections that are lost during a call of a host without tasks, and answers that never leave: nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import ERAS, Host
from helpers.host.wire import asked, got
from helpers.server import Hold, Rounds, ScriptedServer, TalkingTool, result
from helpers.waiting import bounded, eventually
from interaction.bridges import FORM, before
from interaction.handoffs import CANCEL, MODES, WAIT, YEAR, calls, cut, handle_of, handoff, kept, taskless, waited
from interaction.held_calls import CAPABLE
from interaction.questions import ACCEPTED, DONE, ELICIT
from interaction.resumption import last_id

LONG = {"content": [{"type": "text", "text": "x" * 12_000_000}]}
"""More than the system takes for a host that reads nothing."""
eras = pytest.mark.parametrize("era", ERAS)
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@asynccontextmanager
async def reading_slowly(host: Host, tool: str, arguments: dict[str, Any]) -> AsyncIterator[None]:
    """Call a tool, and read no more than the first bytes of the answer; the connection is closed at the end."""
    if host.era == "legacy":
        head = host.head()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": "early", "method": "tools/call"}
        message["params"] = {"name": tool, "arguments": arguments}
    else:
        message = host.written("tools/call", {"name": tool, "arguments": arguments}, id="early")
        head = host.routing(message)
    head |= {"Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession() as http, http.post(host.url, json=message, headers=head) as response:
        await response.content.read(1000)
        yield
        response.close()


async def hang_up_early(host: Host, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool, and close the connection at the first bytes of the answer."""
    async with reading_slowly(host, tool, arguments):
        pass


@modes
async def test_a_streamed_call_is_kept_when_its_connection_is_lost(server: ScriptedServer, mode: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode=mode))) as gateway:
        # Its host could resume the stream, and calls again instead.
        host = await taskless(gateway, "legacy")
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}), bounded():
            await tool.begun.wait()
        await gateway.shows("taskgate_streams", 0, side="downstream", kind="response")
        await tool.finish(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 1


@modes
async def test_a_host_that_resumes_the_stream_of_a_call_gets_its_handle_there(
    server: ScriptedServer, hold: Hold, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", ceiling="1h", mode=mode))) as gateway:
        host = await taskless(gateway, "legacy")
        async with asked(host, "tools/call", {"name": "report", "arguments": YEAR}) as wire, bounded():
            assert await wire.next() is not None
            await hold.begun.wait()
        await kept(gateway)
        async with got(host, last_id(wire)) as resumed, bounded():
            (event,) = [event for event in await resumed.to_end() if event.data]
        handle = event.message["result"]["content"][0]["text"].partition('{"handle": "')[2][:32]
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert calls(server) == 1


@eras
async def test_a_result_that_did_not_leave_whole_answers_the_same_call(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    hold.release(LONG)
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, era)
        await hang_up_early(host, "report", YEAR)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        assert (await host.call("report", YEAR)).result["content"] == LONG["content"]
        assert calls(server) == 1


@eras
async def test_an_equal_call_runs_while_the_answer_to_a_connected_host_leaves_slowly(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    hold.release(LONG)
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", ceiling="1h"))) as gateway:
        slow, other = await taskless(gateway, era), await taskless(gateway, era)
        async with reading_slowly(slow, "report", YEAR), bounded():
            await other.call("report", YEAR)
        await eventually(lambda: calls(server) == 2)


@eras
async def test_a_wait_whose_result_did_not_leave_whole_has_not_fetched_it(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(LONG)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        await hang_up_early(host, WAIT, {"handle": handle})
        assert (await host.call("report", YEAR)).result["content"] == LONG["content"]
        assert calls(server) == 1
        await gateway.shows("taskgate_task_delivery_delay_seconds_count", 1)


@eras
async def test_a_lost_call_above_the_cap_runs_on_and_the_same_call_joins_it(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    limits = {"concurrency": {"tasks_per_context": 1}}
    tasks = {**handoff(), "upgrade": [*handoff()["upgrade"]]}
    async with serve(configuration({"reports": server.url}, tasks=tasks, limits=limits)) as gateway:
        host = await taskless(gateway, era)
        handle_of(await host.call("report", {"year": 2025}))
        hold.begun.clear()
        await cut(host, hold)
        await gateway.shows("taskgate_tool_calls_total", 1, disposition="direct")
        again = asyncio.create_task(host.call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        assert (calls(server), server.cancelled, hold.left.is_set()) == (2, [], False)
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert await gateway.count("taskgate_tool_calls_total") == 3


@eras
async def test_a_call_made_again_while_its_connection_still_looks_alive_finds_it(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        first, second = await taskless(gateway, era), await taskless(gateway, era)
        lost = asyncio.create_task(first.call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        again = asyncio.create_task(second.call("report", YEAR))
        # At the gateway the new request may come before the end of the old connection.
        lost.cancel()
        await asyncio.wait([lost])
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        # That was delivered, so the next one is meant.
        assert (await second.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 2


@modes
@eras
async def test_equal_calls_whose_connections_are_all_lost_are_all_found(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode=mode))) as gateway:
        hosts = [await taskless(gateway, era) for _ in range(3)]
        lost = [asyncio.create_task(host.call("report", YEAR)) for host in hosts]
        await eventually(lambda: calls(server) == len(hosts))
        for call in lost:
            call.cancel()
        await asyncio.wait(lost)
        await gateway.shows("taskgate_tool_calls_total", len(hosts), disposition="handoff")
        again = [asyncio.create_task(host.call("report", YEAR)) for host in hosts]
        await gateway.shows("taskgate_calls_joined_total", len(hosts), how="retry")
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in again] == [DONE["content"]] * len(hosts)
        assert calls(server) == len(hosts)


@eras
async def test_a_lost_connection_cancels_a_call_if_the_rule_says_so(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    rule = handoff("1h", handoff={"after": "1h", "on_disconnect": "cancel"})
    async with serve(configuration({"reports": server.url}, tasks=rule)) as gateway:
        await cut(await taskless(gateway, era), hold)
        await eventually(lambda: bool(server.cancelled) or hold.left.is_set())
        assert await gateway.count("taskgate_tasks_started_total") == 0


async def test_a_call_that_nothing_could_find_again_ends_with_its_host(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", join_retries="never"))) as gateway:
        await cut(await taskless(gateway, "modern"), hold)
        await eventually(lambda: bool(server.cancelled) or hold.left.is_set())
        assert await gateway.count("taskgate_tasks_started_total") == 0


async def test_a_call_that_asked_something_is_found_again_after_its_connection_was_lost(
    server: ScriptedServer,
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        asking = asyncio.create_task(host.call("report", YEAR))
        await tool.ask("q-1")
        async with bounded():
            round_ = (await asking).result
        ((key, _),) = round_["inputRequests"].items()
        retry = {"inputResponses": {key: ACCEPTED}, "requestState": round_["requestState"]}
        lost = asyncio.create_task(host.call("report", YEAR, **retry))
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        lost.cancel()
        await asyncio.wait([lost])
        await kept(gateway)
        await tool.finish(DONE)
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 1


async def test_a_cancellation_ends_a_wait_and_not_the_call(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        handle = handle_of(await host.call("report", YEAR))
        for name, arguments in ((WAIT, {"handle": handle}), ("report", YEAR)):
            async with host.asking("tools/call", {"name": name, "arguments": arguments}, id=name) as stream:
                await host.tell("notifications/cancelled", {"requestId": name})
                await stream.end()
                assert stream.heard == []
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]


async def test_a_call_that_was_cancelled_on_its_stream_may_be_made_again(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = await taskless(gateway, "legacy")
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}, id="call") as stream, bounded():
            await tool.begun.wait()
            await host.tell("notifications/cancelled", {"requestId": "call"})
            await stream.end()
        server.script["report"] = result(DONE)
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 2


async def test_the_answers_of_a_batch_on_a_stream_are_received(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"))) as gateway:
        host = gateway.host()
        await host.initialize("2025-03-26")
        params = {"name": "report", "arguments": YEAR, "_meta": {"progressToken": 1}}
        batch = [{"jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params}]
        head = {**host.head(), "Accept": "text/event-stream", "Content-Type": "application/json"}
        async with host.http.post(host.url, json=batch, headers=head) as response:
            assert response.content_type == "text/event-stream"
            hold.release(DONE)
            async with bounded():
                assert b'"done"' in await response.read()
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert (calls(server), await gateway.count("taskgate_tasks_started_total")) == (2, 0)


@modes
async def test_a_question_that_is_open_at_the_handoff_is_asked_again_by_the_wait(
    server: ScriptedServer, mode: str
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("300ms", mode=mode))) as gateway:
        host = await taskless(gateway, "legacy", **CAPABLE)
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}) as stream:
            await tool.ask("q-1")
            first = await stream.until(ELICIT)
            await stream.end()
        assert [note["params"]["requestId"] for note in stream.of("notifications/cancelled")] == [first["id"]]
        handle = stream.heard[-1]["result"]["content"][0]["text"].partition('{"handle": "')[2][:32]
        async with host.asking("tools/call", {"name": WAIT, "arguments": {"handle": handle}}) as stream:
            asked = await stream.until(ELICIT)
            await host.respond(asked["id"], ACCEPTED)
            assert (await tool.told("q-1"))["result"] == ACCEPTED
            await tool.finish(DONE)
            assert (await stream.result())["content"] == DONE["content"]


async def test_the_same_call_of_a_modern_host_gets_a_handle_while_the_server_asks(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "modern", **CAPABLE)
        handle = handle_of(await host.call("report", YEAR))
        await tool.ask("q-1")
        assert (await waited(host, handle)).result["resultType"] == "input_required"
        async with bounded():
            assert handle_of(await host.call("report", YEAR)) == handle
        await host.call(CANCEL, {"handle": handle})


@modes
@eras
async def test_a_drain_hands_off_the_calls_that_run(server: ScriptedServer, hold: Hold, era: str, mode: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode=mode))) as gateway:
        host = await taskless(gateway, era)
        call = asyncio.create_task(host.call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        closing = asyncio.create_task(gateway.drain())
        async with bounded():
            handle = handle_of(await call)
        assert not closing.done()
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        async with bounded():
            await closing


async def test_a_round_of_the_server_that_did_not_leave_is_no_result_of_the_call() -> None:
    form = {**FORM, "params": {**FORM["params"], "message": "x" * 12_000_000}}
    async with ScriptedServer("modern") as modern:
        modern.script["report"] = Rounds({"inputRequests": {"a": form}})
        async with before(modern, tasks=handoff("1h")) as gateway:
            host = gateway.modern(tasks=False, capabilities={"elicitation": {"form": {}}})
            await hang_up_early(host, "report", YEAR)
            await gateway.shows("taskgate_tool_calls_total", 1)
            modern.script["report"] = result(DONE)
            async with bounded():
                assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
            assert calls(modern) == 2
