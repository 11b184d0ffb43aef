"""A stand-in of the Messages API on the loopback interface, for hosts that ask a model: it streams what a script says.

Its model calls one tool, then whatever the tool's result tells it to call, and ends its turn with the last result. A
tool whose schema a host has not shown yet is asked for first, as models do, where the host has a tool for that.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from peers.handoff_words import next_call

SEARCH = "ToolSearch"
PAUSE, LONGER = 0.5, 7.0
"""Seconds before a call is made again, and the same where its host says that it is not connected."""
LONGEST = 2**24
"""Bytes of a request: a host sends all of its prompt each time."""

Json = dict[str, Any]


@dataclass
class Model:
    """The model of one conversation: it calls the tool of that server of the host, and `then` what it is told to.

    - `turns`: the tools that it has called, and `results` what came of each, as the host has shown it.
    - `searches`: how often it has asked for the schema of a tool.
    - `shown`: the tools of servers that the host has named in its first request.
    - `others`: what the host has requested beside messages.

    It thinks before its first call until `at`, in seconds since 1970. With `again` it makes a call again that ended
    with an error, unless that has the words `final`: the `same` call, or the `first` one.
    """

    server: str
    tool: str
    given: Json
    then: str = "wait"
    at: float = 0
    again: str | None = None
    final: str = ""
    turns: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    searches: int = 0
    shown: frozenset[str] = frozenset()
    others: list[str] = field(default_factory=list)
    _searched: set[str] = field(default_factory=set)
    _called: tuple[str, Json] | None = None

    async def think(self, asked: Json) -> None:
        """Read what came of the last call, and take the time that is taken before the next."""
        came = _result_of(asked["messages"], len(self.turns))
        if came is not None and len(self.results) < len(self.turns):
            self.results.append(came)
        pause = 0.0
        if self.again and self.results and self.results[-1].get("is_error"):
            pause = LONGER if "connect" in json.dumps(self.results[-1]["content"]) else PAUSE
        await asyncio.sleep(max(self.at - time.time(), pause))

    def reply(self, asked: Json) -> tuple[Json, str]:
        """The block of the next message, and why it stops."""
        if not self.turns and not self.searches:
            self.shown = frozenset(re.findall(r"mcp__\w+", json.dumps(asked)))
        following: tuple[str, Json] | None = (self.tool, self.given)
        if self.results:
            following = self._following(self.results[-1])
        if following is None:
            return {"type": "text", "text": "It is done."}, "end_turn"
        tool, given = following
        name = f"mcp__{self.server}__{tool}"
        listed = {each.get("name") for each in asked.get("tools", [])}
        if name not in listed and name not in self._searched and SEARCH in listed:
            self._searched.add(name)
            self.searches += 1
            return _use(f"toolu_search_{self.searches}", SEARCH, {"query": f"select:{name}", "max_results": 1})
        self.turns.append(tool)
        self._called = following
        return _use(f"toolu_call_{len(self.turns)}", name, given)

    def _following(self, result: Json) -> tuple[str, Json] | None:
        blocks = _blocks(result["content"])
        told = next_call({"content": blocks}, self.then)
        text = "".join(block.get("text", "") for block in blocks)
        if told is not None or self.again is None or not result.get("is_error") or self.final in text:
            return told
        return (self.tool, self.given) if self.again == "first" else self._called


def _use(id: str, name: str, given: Json) -> tuple[Json, str]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}, "tool_use"


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result_of(messages: list[Json], call: int) -> Json | None:
    """What came of that call, as the host shows it; None before that."""
    blocks = (block for message in messages for block in _blocks(message["content"]))
    return next((block for block in blocks if block.get("tool_use_id") == f"toolu_call_{call}"), None)


def _events(model: str, number: int, block: Json, why: str) -> Iterator[Json]:
    """The stream of one message with one block."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    empty = {"role": "assistant", "model": model, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {"id": f"msg_{number}", "type": "message", "usage": usage, **empty}}
    if block["type"] == "text":
        start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": 0, "content_block": start}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


@asynccontextmanager
async def messages_api(model: Model) -> AsyncIterator[str]:
    """The stand-in for the length of the block, on a free port; its URL."""
    count = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal count
        if (request.method, request.path) != ("POST", "/v1/messages"):
            model.others.append(f"{request.method} {request.path}")
            return web.json_response({"type": "error", "error": {"type": "not_found_error", "message": ""}}, status=404)
        asked, count = await request.json(), count + 1
        await model.think(asked)
        if not asked.get("stream"):
            model.others.append("an answer that is no stream")
            return web.json_response({"type": "error", "error": {"type": "api_error", "message": ""}}, status=400)
        events = _events(asked["model"], count, *model.reply(asked))
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application(client_max_size=LONGEST)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
