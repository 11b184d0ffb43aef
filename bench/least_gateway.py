"""Baseline: the smallest gateway that can call itself a task gateway over SQLite.

Its duties: `tools/call` with `task` is committed before the reply and called upstream in the background, the result is
stored, `tasks/get` is one select, `tasks/result` waits and returns what was stored. It has no sessions to check, no
validation, no caps, no expiry, no cancellation, no metrics, no logs and no restart; a real gateway pays for those.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from bench import serving
from bench.least_ledger import Ledger, Row

_HEADS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "least-gateway", "version": "1"},
}
_INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
    "serverInfo": {"name": "least-gateway", "version": "1"},
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _task(row: Row) -> dict[str, object]:
    task_id, status, created_at, updated_at, ttl = row
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": created_at,
        "lastUpdatedAt": updated_at,
        "ttl": ttl,
        "pollInterval": 2000,
    }


class LeastGateway:
    """Tasks in front of one upstream server, over one upstream session."""

    def __init__(self, upstream: aiohttp.ClientSession, url: str, ledger: Ledger) -> None:
        self._upstream = upstream
        self._url = url
        self._ledger = ledger
        self._heads = dict(_HEADS)
        self._number = 0
        self._running: dict[str, asyncio.Task[None]] = {}

    async def connect(self) -> None:
        """Open the upstream session."""
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _INITIALIZE}
        async with self._upstream.post(self._url, data=orjson.dumps(opening), headers=self._heads) as answer:
            await answer.read()
            self._heads["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            self._heads["MCP-Protocol-Version"] = "2025-06-18"

    async def answer(self, inbound: web.BaseRequest) -> web.Response:
        """Answer one message of a host."""
        message = orjson.loads(await inbound.read())
        if "id" not in message:
            return web.Response(status=202)
        result, heads = await self._respond(message["method"], message.get("params", {}))
        body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(message["id"]), result)
        return web.Response(body=body, headers=heads, content_type="application/json")

    async def _respond(self, method: str, params: dict[str, Any]) -> tuple[bytes, dict[str, str] | None]:
        match method:
            case "tools/call":
                return orjson.dumps({"task": _task(await self._create(params))}), None
            case "tasks/get":
                row = self._ledger.find(params["taskId"])
                return orjson.dumps(_task(row) if row else None), None
            case "tasks/result":
                if running := self._running.get(params["taskId"]):
                    await asyncio.shield(running)
                return self._ledger.result(params["taskId"]) or b"null", None
            case _:
                return orjson.dumps(_INITIALIZED), {"Mcp-Session-Id": secrets.token_hex(16)}

    async def _create(self, params: dict[str, Any]) -> Row:
        task_id, now, ttl = secrets.token_urlsafe(24), _now(), params.pop("task")["ttl"]
        await self._ledger.insert(task_id, now, now, ttl, orjson.dumps(params))
        running = asyncio.create_task(self._run(task_id, params))
        self._running[task_id] = running
        running.add_done_callback(lambda _: self._running.pop(task_id))
        return task_id, "working", now, now, ttl

    async def _run(self, task_id: str, params: dict[str, Any]) -> None:
        self._number += 1
        call = orjson.dumps({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        async with self._upstream.post(self._url, data=call, headers=self._heads) as answer:
            outcome = orjson.loads(await answer.read())
        status = "completed" if "result" in outcome else "failed"
        await self._ledger.finish(status, _now(), orjson.dumps(outcome.get("result")), task_id)

    async def end(self) -> None:
        """Give up what still runs."""
        for running in list(self._running.values()):
            running.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


@contextlib.asynccontextmanager
async def opened(port: int, url: str, path: Path) -> AsyncIterator[serving.Server]:
    """The gateway, listening on loopback, with its upstream session open."""
    ledger = Ledger(path, asyncio.get_running_loop())
    connector = aiohttp.TCPConnector(limit=0)
    unbounded = aiohttp.ClientTimeout(total=None)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=unbounded) as upstream:
            gateway = LeastGateway(upstream, url, ledger)
            await gateway.connect()
            floor = web.Server(gateway.answer, access_log=None)
            async with await serving.listen(floor, port) as server:
                yield server
            await floor.shutdown()
            await gateway.end()
    finally:
        ledger.close()


def main() -> None:
    """Serve until told to end."""
    parser = serving.arguments("the smallest task gateway over SQLite")
    parser.add_argument("--url", required=True, help="the upstream server's URL")
    parser.add_argument("--database", type=Path, required=True, help="the SQLite file")
    given = parser.parse_args()
    serving.serve(opened(given.port, given.url, given.database))


if __name__ == "__main__":
    main()
