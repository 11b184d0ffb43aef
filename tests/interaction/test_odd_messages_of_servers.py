"""What released hosts read of a server that writes oddly, a host of taskgate gets too: ids as text, arrays, events that
are no messages. Only an answer that cannot be read ends its call.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import NEWEST, Host
from helpers.server import Reply, ScriptedServer, Turn, event, note, open_stream
from helpers.waiting import eventually

DONE = {"content": [{"type": "text", "text": "done"}]}
LARGE = DONE | {"_meta": {"more": "x" * 40_000}}
HEARTBEATS = (b"data: Loading\n\n", b"data: {}\n\n", b'data: {"type":"ping"}\n\n', b"data: []\n\n", b"data: [42]\n\n")


def document(make: Any) -> Reply:
    """Answer with a JSON document, whatever it is."""

    async def reply(turn: Turn) -> Any:
        return web.Response(text=json.dumps(make(turn)), content_type="application/json")

    return reply


def streamed(make: Any) -> Reply:
    """Answer with these events, of messages or of bytes."""

    async def reply(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        for each in make(turn):
            await response.write(event(each))
        await response.write_eof()
        return response

    return reply


def news(turn: Turn) -> dict[str, Any]:
    return note("notifications/progress", progressToken=turn.token, progress=1)


ODD: dict[str, Reply] = {
    "the id as a text": document(lambda turn: turn.answer(DONE) | {"id": str(turn.id)}),
    "the id as a text in an event": streamed(lambda turn: [turn.answer(DONE) | {"id": str(turn.id)}]),
    "the token as a text": streamed(
        lambda turn: [
            note("notifications/progress", progressToken=str(turn.token), progress=1),
            turn.answer(DONE),
        ]
    ),
    "heartbeats of its own": streamed(lambda turn: [*HEARTBEATS, turn.answer(DONE)]),
    "an error that is null": document(lambda turn: turn.answer(DONE) | {"error": None}),
    "a large answer with an error that is null": document(lambda turn: {"error": None} | turn.answer(LARGE)),
    "a large answer with such an error behind it": document(lambda turn: turn.answer(LARGE) | {"error": None}),
    "an array of one": document(lambda turn: [turn.answer(DONE)]),
    "an array with news": document(lambda turn: [news(turn), turn.answer(DONE)]),
    "an array in an event": streamed(lambda turn: [[news(turn), turn.answer(DONE)]]),
    "an array with junk": streamed(lambda turn: [[42, {}, turn.answer(DONE)]]),
}

UNREADABLE: dict[str, Reply] = {
    "neither a result nor an error": streamed(lambda turn: [{"jsonrpc": "2.0", "id": turn.id}]),
    "the same in an array": streamed(lambda turn: [[{"jsonrpc": "2.0", "id": turn.id}]]),
    "the same in a document": document(lambda turn: [{"jsonrpc": "2.0", "id": turn.id}]),
    "an error for a request that it does not name": streamed(
        lambda turn: [{"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}]
    ),
    "nothing but junk in a document": document(lambda turn: [42]),
}


@pytest.fixture(params=["legacy", "modern"])
async def odd(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedServer]:
    """A server of that era, whose tool `report` writes oddly."""
    async with ScriptedServer(request.param) as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield server


@pytest.fixture
async def before(odd: ScriptedServer) -> AsyncIterator[Gateway]:
    upstream = {"path": "/reports/mcp", "url": odd.url, "protocol_version": "auto"}
    async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
        yield gateway


@pytest.fixture
async def caller(before: Gateway) -> Host:
    return await before.greeted()


@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
async def test_a_call_gets_its_answer_however_the_server_writes_it(
    odd: ScriptedServer, caller: Host, reply: Reply
) -> None:
    odd.script["report"] = reply
    assert (await caller.call("report")).result["content"] == DONE["content"]
    task = await caller.start("report")
    assert (await caller.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]


@pytest.mark.parametrize("reply", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_answer_that_cannot_be_read_ends_its_call_and_no_other(
    odd: ScriptedServer, caller: Host, reply: Reply
) -> None:
    odd.script["report"] = reply
    assert (await caller.call("report")).error["data"]["reason"] == "malformed"
    assert (await caller.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


async def test_what_is_skipped_is_logged_once_with_its_size(
    odd: ScriptedServer, caller: Host, caplog: pytest.LogCaptureFixture
) -> None:
    odd.script["report"] = ODD["heartbeats of its own"]
    await caller.call("report")
    lines = [record for record in caplog.records if record.message.startswith("what a server sends is skipped")]
    assert [(line.upstream, line.bytes) for line in lines] == [("reports", len("Loading"))]  # type: ignore[attr-defined]


async def test_what_is_no_message_on_the_get_stream_is_skipped_and_the_next_message_is_heard() -> None:
    async with ScriptedServer() as server, serve(configuration({"reports": server.url})) as gateway:
        server.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        host = await gateway.greeted(NEWEST)
        async with host.listen() as stream:
            await eventually(lambda: bool(server.open_streams))
            _, line = server.open_streams[-1]
            for each in (*HEARTBEATS, [note("notifications/message", level="info", data="heard")]):
                await line.write(event(each))
            assert (await stream.until("notifications/message"))["params"]["data"] == "heard"
