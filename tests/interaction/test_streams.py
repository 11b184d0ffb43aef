"""What crosses besides answers: progress and what a server says about the session, on the right stream and on one."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, note, stream
from helpers.waiting import bounded, eventually
from requirements import covers


@covers("L-PROG-2", "H-LEG-9", "H-HTTP-6")
@pytest.mark.parametrize("token", ["mine", 7, 0])
async def test_progress_crosses_on_the_calls_own_stream_under_the_hosts_token(
    server: ScriptedServer, host: Host, token: object
) -> None:
    server.script["report"] = stream({"content": []}, progress=3)
    answer = await host.call("report", _meta={"progressToken": token, "kept": True})
    assert answer.streamed
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert [on_notification["params"] for on_notification in answer.notices] == [
        {"progressToken": token, "progress": progress} for progress in (1, 2, 3)
    ]
    sent = server.heard("tools/call")[0]["params"]["_meta"]
    assert sent["kept"] is True
    assert isinstance(sent["progressToken"], int)


@covers("L-PROG-2", "U-HTTP-2")
async def test_progress_that_a_server_tells_on_its_get_stream_finds_the_call(
    server: ScriptedServer, host: Host
) -> None:
    server.script["report"] = hold = Hold()
    await server.streaming()
    calling = asyncio.create_task(host.call("report", _meta={"progressToken": "mine"}))
    async with bounded():
        await hold.begun.wait()
        token = hold.turns[0].token
        await server.push(note("notifications/progress", progressToken=token, progress=1))
        await server.push(note("notifications/progress", progressToken=token + 1000, progress=9))
        await server.push(note("notifications/progress", progressToken="strange", progress=9))
        hold.release({"content": []})
        answer = await calling
    assert [on_notification["params"]["progress"] for on_notification in answer.notices] == [1]


@covers("L-PROG-2", "H-LEG-8")
async def test_progress_goes_to_the_get_stream_of_a_host_that_takes_no_stream_on_its_call(
    server: ScriptedServer, host: Host
) -> None:
    server.script["report"] = stream({"content": []}, progress=1)
    async with host.listen() as first, host.listen() as second:
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"report","_meta":{"progressToken":"t"}}}'
        )
        answer = await host.post(body, headers={"Accept": "application/json"})
        await second.until("notifications/progress")
    assert (answer.notices, first.heard) == ((), [])


async def test_one_get_stream_too_many_ends_the_oldest(gateway: Gateway, host: Host) -> None:
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(host.listen()) for _ in range(10)]
        await streams[0].end()
        await streams[1].end()
        assert not any(stream.ended for stream in streams[2:])


async def test_get_streams_are_bounded_while_a_server_hangs(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        before = await gateway.greeted()
    server.methods["initialize"] = Hold()
    async with serve(config) as gateway, AsyncExitStack() as stack:
        host = gateway.host()
        host.session, host.revision = before.session, before.revision
        streams = [await stack.enter_async_context(host.listen()) for _ in range(10)]
        await streams[0].end()
        await streams[1].end()


async def test_a_call_under_an_id_that_is_used_twice_can_still_be_cancelled(server: ScriptedServer, host: Host) -> None:
    hold = server.script["report"] = Hold()
    first = asyncio.create_task(host.ask("tools/call", {"name": "report"}, id=77))
    async with bounded():
        await hold.begun.wait()
        assert (await host.ask("tools/call", {"name": "echo"}, id=77)).result
        await host.tell("notifications/cancelled", {"requestId": 77})
        assert (await first).message is None
    await eventually(lambda: server.cancelled == [hold.turns[0].id])


@covers("H-LEG-7", "H-LEG-8")
@pytest.mark.parametrize(
    "method",
    [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/message",
    ],
)
async def test_what_a_server_says_about_the_session_comes_on_one_get_stream(
    server: ScriptedServer, host: Host, method: str
) -> None:
    params = {"level": "info", "data": "d", "uri": "file:///a"}
    await server.streaming()
    async with host.listen() as first, host.listen() as second:
        await server.push(note(method, **params))
        assert (await second.until(method))["params"] == params
        assert first.heard == []


async def test_a_silent_call_is_kept_alive_by_comments(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    config = configuration({"reports": server.url}, server={"sse_keepalive": "50ms"})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        head = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **host.head()}
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"report"}}'
        async with bounded(), gateway.http.post(host.url, data=body, headers=head) as response:
            assert response.content_type == "text/event-stream"
            seen = b""
            while seen.count(b": keep-alive") < 2:
                seen += await response.content.readany()
            hold.release({"content": []})
            seen += await response.read()
        assert seen.count(b"data: {") == 1
