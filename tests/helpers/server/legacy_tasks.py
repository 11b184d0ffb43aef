"""Tasks that a scripted server of 2025-11-25 makes of calls, where they ask for it.

    tasks = LegacyTasks(server, required=("research",), optional=("index",))
    ...                                         # a client calls the tool `research` at server.url
    task = await tasks.made()
    task.move("working", "half of it")          # `tasks/get` shows it; `announce` sends it on the GET streams, too
    task.ask(question)                          # on the stream of `tasks/result`; it is input_required then
    task.complete({"content": []})

A call that asks for no task gets -32601 where its tool requires one, and `{"content": []}` where that is optional.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from helpers.server.http import ScriptedServer
from helpers.server.replies import Reply, Turn, error, note, result
from helpers.waiting import bounded

DECLARED = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
RELATED = "io.modelcontextprotocol/related-task"


class LegacyTask:
    """One task; `params` are of the call that it was made of, and `call` is the id of that."""

    def __init__(self, server: ScriptedServer, id: str, params: dict[str, Any], call: Any, poll: int | None) -> None:
        self.server, self.id, self.params, self.call, self.poll = server, id, params, call, poll
        self.status, self.message, self.turns = "working", None, 0
        self.outcome: dict[str, Any] = {"result": {}}
        self.questions: list[dict[str, Any]] = []
        self.waiting = 0
        """How many requests for the result are open."""
        self.looked: list[float] = []
        """When somebody looked, by the clock of the loop."""
        self._changed = asyncio.Event()

    def move(self, status: str, message: str | None = None) -> None:
        """It is so from now on."""
        self.status, self.message, self.turns = status, message, self.turns + 1
        self.wake()

    async def announce(self, status: str, message: str | None = None) -> None:
        """As `move`, and say so on every open GET stream."""
        self.move(status, message)
        await self.server.push(note("notifications/tasks/status", **self.shown()))

    def complete(self, value: dict[str, Any]) -> None:
        """It is done, with that result."""
        self.outcome = {"result": value}
        self.move("completed")

    def fail(self, message: str | None, outcome: dict[str, Any] | None = None) -> None:
        """It failed; `outcome` is the member of the answer to `tasks/result`, an empty result without."""
        self.outcome = outcome or {"result": {}}
        self.move("failed", message)

    def ask(self, question: dict[str, Any]) -> None:
        """Ask on the stream of whoever waits for the result, or the next to do so."""
        self.questions.append(question)
        self.move("input_required", "It has a question")

    def wake(self) -> None:
        """Have those look who wait for the result."""
        self._changed.set()
        self._changed = asyncio.Event()

    def shown(self) -> dict[str, Any]:
        """As `tasks/get` shows it."""
        now = datetime(2026, 1, 1, second=self.turns % 60, tzinfo=UTC).isoformat()
        shown = {"taskId": self.id, "status": self.status, "createdAt": now, "lastUpdatedAt": now, "ttl": 60_000}
        shown |= {} if self.poll is None else {"pollInterval": self.poll}
        return shown if self.message is None else shown | {"statusMessage": self.message}

    async def bring(self, turn: Turn) -> Any:
        """Answer `tasks/result` once it is over, and ask meanwhile what there is to ask."""
        await turn.send()
        self.waiting += 1
        try:
            while True:
                while self.questions:
                    await turn.send(self.questions.pop(0))
                if self.status not in ("working", "input_required"):
                    break
                await self._changed.wait()
        finally:
            self.waiting -= 1
        outcome = self.outcome
        if "result" in outcome:
            meta = outcome["result"].get("_meta", {}) | {RELATED: {"taskId": self.id}}
            outcome = {"result": outcome["result"] | {"_meta": meta}}
        return await turn.respond({"jsonrpc": "2.0", "id": turn.id} | outcome)


class LegacyTasks:
    """The tasks of a scripted server, oldest first; `poll` is the interval that new ones have, in milliseconds.

    What `instead` names by its method is answered so, in that order, before anything of a task is.
    """

    def __init__(
        self,
        server: ScriptedServer,
        *,
        required: tuple[str, ...] = ("research",),
        optional: tuple[str, ...] = (),
        poll: int | None = 100,
    ) -> None:
        self.server, self.poll, self.required = server, poll, required
        self.all: list[LegacyTask] = []
        self.instead: dict[str, list[Reply]] = {}
        self.names: list[str] = []
        """Ids of the next tasks, where they are to have others than the usual."""
        self.cancelled: list[str] = []
        """The ids that `tasks/cancel` named."""
        self._made = asyncio.Event()
        self.handles = asyncio.Event()
        """Cleared, tasks are made and nobody is told of them yet."""
        self.handles.set()
        server.capabilities = {**server.capabilities, "tasks": DECLARED}
        kinds = dict.fromkeys(required, "required") | dict.fromkeys(optional, "optional")
        server.tools = [*server.tools, *(_tool(name, kind) for name, kind in kinds.items())]
        server.script |= dict.fromkeys(kinds, self._call)
        server.methods |= dict.fromkeys(("tasks/get", "tasks/result", "tasks/cancel"), self._about)

    async def made(self, count: int = 1) -> LegacyTask:
        """The newest of so many tasks, once they have been made."""
        async with bounded():
            while len(self.all) < count:
                self._made.clear()
                await self._made.wait()
        return self.all[count - 1]

    def looks(self, method: str = "tasks/get") -> int:
        """How often that was asked."""
        return len(self.server.heard(method))

    async def _call(self, turn: Turn) -> Any:
        if self.instead.get("tools/call"):
            return await self.instead["tools/call"].pop(0)(turn)
        params = turn.message["params"]
        if "task" not in params:
            refused = params["name"] in self.required
            return await (error(-32601, "Only as a task") if refused else result({"content": []}))(turn)
        name = self.names.pop(0) if self.names else f"theirs-{len(self.all) + 1:04}"
        task = LegacyTask(self.server, name, params, turn.id, self.poll)
        self.all.append(task)
        self._made.set()
        async with bounded():
            await self.handles.wait()
        return await result({"task": task.shown()})(turn)

    async def _about(self, turn: Turn) -> Any:
        method, id_ = turn.message["method"], turn.message["params"]["taskId"]
        if self.instead.get(method):
            return await self.instead[method].pop(0)(turn)
        task = next((task for task in self.all if task.id == id_), None)
        if task is None:
            return await error(-32602, f"Task not found: {id_}")(turn)
        if method == "tasks/result":
            return await task.bring(turn)
        if method == "tasks/cancel":
            self.cancelled.append(id_)
            task.move("cancelled")
        else:
            task.looked.append(asyncio.get_running_loop().time())
        return await result(task.shown())(turn)


def _tool(name: str, support: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
