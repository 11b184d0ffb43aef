"""Large bodies, and messages that are none: what a caller pays for them, and when memory is short."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, MemoryPressure, serve
from helpers.host.answers import Answer
from helpers.host.host import Host, both_eras
from helpers.host.raw import post
from helpers.refused_bodies import SPOILT, send
from helpers.server import ScriptedServer, asks
from helpers.waiting import bounded, eventually
from interaction.bridges import FORM
from interaction.questions import ACCEPTED
from interaction.test_large_messages_off_the_loop import readings
from requirements import covers

__all__ = ["readings"]

SIZE = 600_000
REST = {"rate": [{"name": "rest", "scope": "context", "rate": "1/h", "burst": 4, "methods": ["*"]}]}


Send = Callable[[Host], Awaitable[Answer]]


async def spoilt(host: Host) -> Answer:
    return await send(host, 100, SPOILT["bad JSON"])


async def response(host: Host) -> Answer:
    return await host.post(json.dumps({"jsonrpc": "2.0", "id": "none", "result": {}}).encode())


@covers("T46", "T57")
@pytest.mark.parametrize(("era", "message"), [("legacy", spoilt), ("modern", spoilt), ("legacy", response)])
async def test_what_is_no_message_or_no_answer_takes_from_the_rate_of_its_caller(
    server: ScriptedServer, era: str, message: Send
) -> None:
    async with serve(configuration({"reports": server.url}, limits=REST)) as gateway:
        host = await gateway.greeted(era=era)
        first, *_, last = [await message(host) for _ in range(6)]
        assert first.status in (202, 400)
        assert 429 in (last.status, (last.message or {}).get("error", {}).get("code"))


async def test_an_answer_to_an_open_question_takes_from_no_rate(server: ScriptedServer) -> None:
    server.script["echo"] = asks({"jsonrpc": "2.0", "id": "q-1", **FORM})
    async with serve(configuration({"reports": server.url}, limits=REST)) as gateway:
        host = gateway.host()
        await host.initialize(capabilities={"elicitation": {}})
        async with bounded(), host.asking("tools/call", {"name": "echo", "arguments": {}}) as stream:
            question = await stream.until("elicitation/create")
            for _ in range(4):
                await host.ask("ping")
            assert (await host.ask("ping")).code == 429
            assert (await host.respond(question["id"], ACCEPTED)).status == 202
            assert (await stream.result())["content"] is not None


@covers("T42", "T57")
@both_eras
@pytest.mark.parametrize("chunked", [False, True])
async def test_no_large_body_is_read_while_memory_is_short(server: ScriptedServer, era: str, chunked: bool) -> None:
    used = [0]
    pressure = MemoryPressure(limit=1000, resident=lambda: used[0])
    async with serve(configuration({"reports": server.url}), Environment(pressure=pressure)) as gateway:
        host = await gateway.greeted(era=era)
        used[0] = 800
        await eventually(lambda: pressure.level)
        reader, writer = await asyncio.open_connection(*gateway.address)
        more = {"Content_Length": "", "Transfer_Encoding": "chunked"} if chunked else {"Content_Length": "4000000"}
        session = host.session if host.era == "legacy" else None
        named = {"Mcp_Session_Id": session} if session else {}
        writer.write(post("", path="/reports/mcp", host=gateway.origin.removeprefix("http://"), **more, **named))
        if chunked:
            writer.write(b"50000\r\n" + b"x" * 0x50000 + b"\r\n")
        async with bounded():
            assert b" 503 " in await reader.readline()
        writer.close()
        assert (await host.ask("tools/list")).result, "small ones are"
        used[0] = 0
        await eventually(lambda: not pressure.level)
        assert (await send(host, SIZE)).result
