"""A server on a released SDK of 2025-11-25, with its own tasks: `python native_tasks_server.py LEDGER [--as-it-comes]`.

The SDK's support of tasks is patched (`LastingTasks`), unless it is to be as it comes. It takes a free port, which its
log tells, and writes a line into the ledger for whatever it does. `research` and `consult` run only as tasks, `index`
and `stumble` as tasks or plainly.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.experimental.task_support import TaskSupport
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.experimental.tasks.in_memory_task_store import InMemoryTaskStore
from mcp.shared.experimental.tasks.message_queue import InMemoryTaskMessageQueue
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}

server: Server[Any] = Server("native", version="1")


class LastingTasks(TaskSupport):
    """Tasks that outlive the sessions of others: as it comes, the end of any session stops the tasks of all."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def run_for_good(self) -> AsyncIterator[None]:
        async with super().run():
            yield
            self.task_group.cancel_scope.cancel()


AS_IT_COMES = "--as-it-comes" in sys.argv
support: TaskSupport
if AS_IT_COMES:
    support = server.experimental.enable_tasks()
else:
    support = LastingTasks(InMemoryTaskStore(), InMemoryTaskMessageQueue())
    server.experimental._task_support = support
    server.experimental._register_default_task_handlers()


def note(line: str) -> None:
    """Write it down at once."""
    with Path(sys.argv[1]).open("a") as ledger:
        ledger.write(f"{line}\n")


def text(said: str, *, wrong: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)], isError=wrong)


async def work_through(task: ServerTaskContext, topic: str, steps: int, pause: float) -> types.CallToolResult:
    """Step by step, unless it is cancelled."""
    note(f"began {topic}")
    for step in range(1, steps + 1):
        await task.update_status(f"{topic}: {step} of {steps}")
        await asyncio.sleep(pause)
        found = await support.store.get_task(task.task_id)
        if found is None or found.status == "cancelled":
            note(f"stopped {topic}")
            # The SDK would take what is returned for the end of the task, which has one, and bring the server down.
            await anyio.sleep_forever()
    note(f"ended {topic}")
    return text(f"all about {topic}")


async def consult(task: ServerTaskContext, rounds: int) -> types.CallToolResult:
    """Asks for one word after the other."""
    note("began consult")
    words = []
    for number in range(1, rounds + 1):
        answer = await task.elicit(f"Word {number}?", WORD)
        words.append(str((answer.content or {}).get("word", answer.action)))
        note(f"heard {words[-1]}")
    return text(" ".join(words))


@server.list_tools()
async def tools() -> list[types.Tool]:
    kinds: dict[str, Any] = {"research": "required", "consult": "required", "index": "optional", "stumble": "optional"}
    schema: dict[str, Any] = {"type": "object"}
    return [
        types.Tool(name=name, inputSchema=schema, execution=types.ToolExecution(taskSupport=kind))
        for name, kind in kinds.items()
    ]


@server.call_tool()
async def call(name: str, given: dict[str, Any]) -> types.CallToolResult | types.CreateTaskResult:
    experimental = server.request_context.experimental
    kinds: dict[str, Any] = {"research": "required", "consult": "required"}
    experimental.validate_task_mode(kinds.get(name, "optional"))

    async def work(task: ServerTaskContext | None) -> types.CallToolResult:
        if name == "stumble":
            note("stumbled")
            raise ValueError("over a stone")
        if name == "consult" and task is not None:
            return await consult(task, given.get("rounds", 2))
        if task is not None:
            return await work_through(task, given.get("topic", "it"), given.get("steps", 1), given.get("pause", 0.1))
        return text("plainly")

    return await (experimental.run_task(work) if experimental.is_task else work(None))


class Endpoint:
    """The one path; an object, so that it is no handler of requests to Starlette."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self.manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.manager.handle_request(scope, receive, send)


def app() -> Starlette:
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        lasting = support.run_for_good() if isinstance(support, LastingTasks) else nullcontext()
        async with lasting, manager.run():
            yield

    return Starlette(routes=[Route("/mcp", Endpoint(manager))], lifespan=life)


if __name__ == "__main__":
    anyio.run(uvicorn.Server(uvicorn.Config(app(), host="127.0.0.1", port=0)).serve)
