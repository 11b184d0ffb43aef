"""A writer to the shared store who kept words of the gateways has none of them heard a second time (T25)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import ScriptedServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from interaction.questions import ROOTS, capable
from taskgate.stores.redis.options import RedisOptions

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ASKED = {"jsonrpc": "2.0", "id": "r", "method": ROOTS}


@pytest.fixture
async def two(
    server: ScriptedServer, valkey_server: SharedServer, options: RedisOptions, tmp_path: Path
) -> AsyncIterator[list[Gateway]]:
    """Two gateways that seal their words."""
    async with serve_replicas(2, {"reports": server.url}, options, tmp_path) as gateways:
        yield gateways


def replay(server: SharedServer, options: RedisOptions) -> int:
    """Say all again that was ever said; how much that is."""
    (post,) = [key for key in server.keys(options.key_prefix) if key.endswith(b"post")]
    entries = server.ask("XRANGE", post, "-", "+")
    for _, fields in entries:
        said = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
        server.ask("XADD", post, "*", "by", "somebody", "word", said[b"word"])
    return len(entries)


async def test_a_question_that_was_answered_is_not_asked_again(
    two: list[Gateway], server: ScriptedServer, valkey_server: SharedServer, options: RedisOptions
) -> None:
    host = await capable(two[0])
    await server.streaming()
    async with two[1].again(host).listen() as get, bounded():
        await server.push(ASKED, streams=1)
        asked = await get.until(ROOTS)
        await two[1].again(host).respond(asked["id"], {"roots": []})
        assert (await server.reply_to("r"))["result"] == {"roots": []}
        assert await asyncio.to_thread(replay, valkey_server, options) > 0
        # Words are heard in order: what comes behind those has come after them.
        while not get.of(CHANGED["method"]):
            await server.push(CHANGED, streams=1)
            await asyncio.sleep(0.01)
        assert len(get.of(ROOTS)) == 1
