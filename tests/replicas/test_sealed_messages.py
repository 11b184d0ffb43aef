"""What a reader of the shared store sees of messages between gateways (T25)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from helpers.gateway.gateway import Gateway
from helpers.server import TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from interaction.questions import DONE, ELICIT, capable
from requirements import covers

SECRET = "PIN 4711 OF ALICE"


@asynccontextmanager
async def monitored(server: SharedServer) -> AsyncIterator[bytearray]:
    """All commands that the server gets within a block."""
    host, _, port = server.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"MONITOR\r\n")
    async with bounded():
        assert await reader.readline() == b"+OK\r\n"
    seen = bytearray()

    async def read() -> None:
        while chunk := await reader.read(2**16):
            seen.extend(chunk)

    reading = asyncio.create_task(read())
    try:
        yield seen
        await asyncio.to_thread(server.ask, "ECHO", "the-end")
        async with bounded():
            while b"the-end" not in seen:
                await asyncio.sleep(0)
    finally:
        reading.cancel()
        writer.close()


@covers("T25")
@pytest.mark.parametrize("size", [1, 2_000], ids=["a message", "a parcel"])
async def test_no_answer_of_a_user_and_no_session_can_be_read_on_the_bus(
    three: list[Gateway], tool: TalkingTool, valkey_server: SharedServer, size: int
) -> None:
    host = await capable(three[0])
    answer = {"action": "accept", "content": {"pin": SECRET * size}}
    async with host.asking("tools/call", {"name": "report"}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        async with monitored(valkey_server) as seen:
            assert (await three[1].again(host).respond(asked["id"], answer)).status == 202
            assert (await tool.told(1))["result"] == answer
        await tool.finish(DONE)
        await stream.result()
    assert SECRET.encode() not in seen
    sent = [line for line in bytes(seen).splitlines() if b"post" in line or b"parcel" in line]
    assert sent
    assert host.session is not None
    assert not any(host.session.encode() in line for line in sent)
