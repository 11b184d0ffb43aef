"""Operators see live what happens at a gateway, over an event stream that they can resume."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded, until
from interaction.operators import EVENTS, OPS, VIEWER, act, look, stream, tokens
from interaction.reloads import DONE


@pytest.fixture
async def gateway(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows the tokens of operators."""
    async with serve(configuration({"reports": server.url}, admin=tokens(tmp_path))) as gateway:
        yield gateway


async def test_each_change_of_a_task_is_an_event_with_the_task_as_lists_have_it(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    async with stream(gateway, "?kinds=task") as events:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        _, _, created = await events.next("task")
        [item] = (await look(gateway, "/api/v1/tasks"))["items"]
        assert created["status"] == "working"
        assert {*created} == {*item, "at"}
        assert task not in json.dumps(created)
        hold.release(DONE)
        changed = created
        while changed["status"] == "working":
            _, _, changed = await events.next("task")
        assert (changed["status"], changed["reference"]) == ("completed", item["reference"])


async def test_progress_of_a_running_call_is_an_event_within_two_seconds_and_one_a_second(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    loop = asyncio.get_running_loop()
    async with stream(gateway, "?kinds=task") as events:
        await (await gateway.greeted()).start("report")
        async with bounded():
            await tool.begun.wait()
        seen: list[tuple[str, float]] = []
        for number in range(1, 8):
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=number, total=7)
            said = loop.time()
            if number in (1, 7):
                while not seen or seen[-1][0] != f"{number}/7":
                    _, _, item = await events.next("task")
                    seen += [] if item["progress"] is None else [(item["progress"], loop.time())]
                assert loop.time() - said < 2.5
        times = [time for _, time in seen]
    assert seen[0][0] == "1/7"
    assert all(later - earlier > 0.4 for earlier, later in pairwise(times))


async def test_a_fetch_is_an_event_of_a_task_that_is_fetched(gateway: Gateway) -> None:
    host = await gateway.greeted()
    async with stream(gateway, "?kinds=task") as events:
        task = (await host.start("report"))["taskId"]
        await host.ask("tasks/result", {"taskId": task})
        fetched: list[bool] = []
        while not fetched or not fetched[-1]:
            _, _, item = await events.next("task")
            fetched.append(item["is_retrieved"])
    assert fetched[0] is False


async def test_load_holds_and_refusals_are_events(gateway: Gateway) -> None:
    async with stream(gateway) as events:
        await act(gateway, "/api/v1/upstreams/reports/hold")
        _, _, upstream = await events.next("upstream")
        assert (upstream["name"], upstream["is_held"]) == ("reports", True)
        host = await gateway.greeted()
        for _ in range(3):
            await host.call("report")
        _, _, refusal = await events.next("refusal")
        assert (refusal["kind"], refusal["reason"], refusal["count"]) == ("queue", "held", 1)


async def test_a_stream_resumes_after_the_event_that_it_names(gateway: Gateway) -> None:
    async with stream(gateway, "?kinds=task") as events:
        host = await gateway.greeted()
        await host.start("report")
        _, first, created = await events.next("task")
        _, second, _ = await events.next("task")
    async with stream(gateway, "?kinds=task", Last_Event_ID=first) as events:
        _, id_, again = await events.next("task")
        assert (id_, again["reference"]) == (second, created["reference"])


@pytest.mark.parametrize("last", ["another-7", "nothing", "-1", ""])
async def test_an_id_of_another_process_gets_a_reset(gateway: Gateway, last: str) -> None:
    async with stream(gateway, Last_Event_ID=last) as events:
        _, _, reset = await events.next("reset")
        assert reset == {"reason": "unknown"}


async def test_a_stream_ends_when_its_token_is_replaced(
    gateway: Gateway, server: ScriptedServer, tmp_path: Path
) -> None:
    async with stream(gateway) as events:
        config = configuration({"reports": server.url}, admin=tokens(tmp_path))
        (tmp_path / "looks.token").write_text("another-token-of-a-viewer")
        await gateway.reload(config)
        await events.ends()
    # The end of a stream is no wrong token of its reader.
    for _ in range(12):
        assert (await gateway.operators("/api/v1/upstreams", Authorization=OPS))[0] == 200


async def test_wrong_tokens_of_others_end_no_stream(gateway: Gateway) -> None:
    async with stream(gateway, "?kinds=task") as events:
        for _ in range(11):
            await gateway.operators("/api/v1/upstreams", Authorization="Bearer wrong")
        assert (await gateway.operators("/api/v1/upstreams", Authorization="Bearer wrong"))[0] == 429
        await (await gateway.greeted()).start("report")
        assert (await events.next("task"))[0] == "task"


async def test_streams_have_a_limit_and_a_closed_one_leaves_room(gateway: Gateway) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(stream(gateway))
        status, body = await gateway.operators(EVENTS, Authorization=VIEWER)
        assert (status, json.loads(body)["error"]["code"]) == (503, "too_many_streams")
        async with stream(gateway, Authorization=OPS):
            assert await gateway.ready() == 200
    await until(lambda: opened(gateway), lambda is_open: is_open)


async def opened(gateway: Gateway) -> bool:
    """Whether a stream can be opened now."""
    async with gateway.http.get(f"{gateway.operators_origin}{EVENTS}", headers={"Authorization": VIEWER}) as response:
        return response.status == 200


async def test_a_stream_does_not_hold_up_the_end_of_the_gateway(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, admin=tokens(tmp_path))
    async with serve(config) as gateway, stream(gateway) as events:
        await gateway.close()
        with pytest.raises((EOFError, aiohttp.ClientError)):
            await events.next("task")


@pytest.mark.parametrize("query", ["?kinds=other", "?limit=1"])
async def test_a_query_that_is_not_valid_is_refused(gateway: Gateway, query: str) -> None:
    assert (await gateway.operators(f"{EVENTS}{query}", Authorization=VIEWER))[0] == 400
    assert (await gateway.operators(EVENTS))[0] == 401
