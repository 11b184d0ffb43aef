"""Baseline: aiohttp answering a `tasks/get` by itself. What it costs is the framework's floor for any answer."""

import contextlib
from collections.abc import AsyncIterator

import orjson
from aiohttp import web

from bench import serving

_TASK = {
    "taskId": "b3BlbiB0aGUgZG9vciwgcGxlYXNlLi4u",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "lastUpdatedAt": "2026-01-01T00:00:00.000Z",
    "ttl": 3600000,
    "pollInterval": 2000,
}


async def answer(inbound: web.BaseRequest) -> web.Response:
    """The same task for everyone, under the id that was asked with."""
    message = orjson.loads(await inbound.read())
    body = orjson.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": _TASK})
    return web.Response(body=body, content_type="application/json")


@contextlib.asynccontextmanager
async def opened(port: int) -> AsyncIterator[serving.Server]:
    """The answerer, listening on loopback."""
    floor = web.Server(answer, access_log=None)
    async with await serving.listen(floor, port) as server:
        yield server
    await floor.shutdown()


def main() -> None:
    """Serve until told to end."""
    serving.serve(opened(serving.arguments("aiohttp answering by itself").parse_args().port))


if __name__ == "__main__":
    main()
