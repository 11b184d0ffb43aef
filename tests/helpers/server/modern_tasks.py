"""Tasks that a scripted server of the modern era makes of calls.

    tasks = ModernTasks(server)
    report = tasks.tool("report")                # its calls become tasks from now on
    ...                                          # a client calls it at server.url
    task = await report.made()
    task.ask(which=FORM)                         # `tasks/get` shows that from now on
    task.complete({"content": []})

A client that does not declare tasks is refused. A task remembers its polls, its updates and that it was cancelled.
`interval` is in milliseconds, None where the server does not say.
"""

import asyncio
from typing import Any, Final

from helpers.modern_schema import CAPABILITIES, TASKS
from helpers.server.http import ScriptedServer
from helpers.server.replies import Turn, error, result
from helpers.waiting import bounded, eventually

SOON: Final = 20
"""A poll interval in which no test waits for long."""
_MADE: Final = "2026-08-01T09:00:00.000Z"


class ModernTask:
    """One task of the server; whatever it is told here shows in the next look at it."""

    def __init__(self, id: str, turn: Turn, interval: int | None) -> None:
        self.id = id
        self.turn = turn
        """The call that it was made of."""
        self.interval = interval
        self.status = "working"
        self.message: str | None = None
        self.updated = _MADE
        self.payload: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.keeps_answers = True
        """Whether a question is over once it has its answer."""
        self.looks = 0
        self.updates: list[dict[str, Any]] = []
        self.cancels = 0
        self.times: list[float] = []
        """When it was looked at, in seconds of the loop."""

    @property
    def shown(self) -> dict[str, Any]:
        """What `tasks/get` tells now."""
        told = {"taskId": self.id, "status": self.status, "createdAt": _MADE, "lastUpdatedAt": self.updated}
        told |= {"ttlMs": 3_600_000} | ({} if self.interval is None else {"pollIntervalMs": self.interval})
        told |= {} if self.message is None else {"statusMessage": self.message}
        return told | self.payload

    def say(self, message: str, *, updated: str | None = None) -> None:
        """It tells how far it is."""
        self.message = message
        self.updated = updated or self.updated

    def ask(self, **questions: Any) -> None:
        """It waits for answers to these, besides what it waits for already."""
        self.inputs |= questions
        self.status, self.payload = "input_required", {"inputRequests": self.inputs}

    def withdraw(self, *keys: str) -> None:
        """It does not wait for these any more; without any it works on."""
        self.inputs = {key: each for key, each in self.inputs.items() if key not in keys}
        self.payload = {"inputRequests": self.inputs}
        if not self.inputs:
            self.work()

    def work(self) -> None:
        """It waits for nothing."""
        self.inputs = {}
        self.status, self.payload = "working", {}

    def complete(self, value: dict[str, Any]) -> None:
        """It comes to a result."""
        self.status, self.payload = "completed", {"result": {"resultType": "complete", **value}}

    def fail(self, code: int, message: str, **more: Any) -> None:
        """It comes to an error."""
        self.status, self.payload = "failed", {"error": {"code": code, "message": message, **more}}

    async def looked(self, times: int = 1) -> None:
        """Wait until it was looked at so often from now on."""
        wanted = self.looks + times
        await eventually(lambda: self.looks >= wanted)

    async def brought(self, times: int = 1) -> dict[str, Any]:
        """The answers of the update of that number, once it is there."""
        await eventually(lambda: len(self.updates) >= times)
        return self.updates[times - 1]

    async def cancelled(self) -> None:
        """Wait until somebody cancelled it."""
        await eventually(lambda: self.cancels)


class TaskTool:
    """A tool whose calls become tasks; a reply of the server. `status` is the one that they are born with."""

    def __init__(self, natives: "ModernTasks", interval: int | None, status: str) -> None:
        self._natives = natives
        self.interval = interval
        self.status = status
        self.tasks: list[ModernTask] = []
        self.handles = asyncio.Event()
        """Cleared, a task is made and its maker is not told yet; it stays, whoever leaves."""
        self.handles.set()

    async def __call__(self, turn: Turn) -> Any:
        if not follows(turn):
            return await LACKING(turn)
        task = self._natives.make(turn, self.interval)
        task.status = self.status
        self.tasks.append(task)
        handle = task.shown
        async with bounded():
            await self.handles.wait()
        return await result({"resultType": "task", **handle})(turn)

    async def made(self, number: int = 1) -> ModernTask:
        """The task of that number, once there is one."""
        await eventually(lambda: len(self.tasks) >= number)
        return self.tasks[number - 1]


class ModernTasks:
    """All tasks of one server, which says from now on that it has them. `forget` loses them."""

    def __init__(self, server: ScriptedServer) -> None:
        server.capabilities = {**server.capabilities, "extensions": {TASKS: {}}}
        server.methods |= {"tasks/get": self._show, "tasks/update": self._update, "tasks/cancel": self._cancel}
        self._server = server
        self.tasks: dict[str, ModernTask] = {}
        self.names: list[str] = []
        """Ids of the next tasks, where they are to have others than the usual."""
        self.gate = asyncio.Event()
        """Closed, it holds every look back."""
        self.gate.set()

    def tool(self, name: str, *, interval: int | None = SOON, status: str = "working") -> TaskTool:
        """Calls of that tool become tasks."""
        self._server.script[name] = tool = TaskTool(self, interval, status)
        return tool

    def make(self, turn: Turn, interval: int | None = SOON) -> ModernTask:
        """A task of a call."""
        name = self.names.pop(0) if self.names else f"native-{len(self.tasks) + 1}"
        task = ModernTask(name, turn, interval)
        self.tasks[task.id] = task
        return task

    def forget(self) -> None:
        """As a server that was restarted."""
        self.tasks = {}

    async def _show(self, turn: Turn) -> Any:
        async with bounded():
            await self.gate.wait()
        task = self.tasks.get(turn.message["params"]["taskId"])
        if task is None or not follows(turn):
            return await (UNKNOWN if task is None else LACKING)(turn)
        task.looks += 1
        task.times.append(asyncio.get_running_loop().time())
        return await result(task.shown)(turn)

    async def _update(self, turn: Turn) -> Any:
        params = turn.message["params"]
        task = self.tasks.get(params["taskId"])
        if task is None or not follows(turn):
            return await (UNKNOWN if task is None else LACKING)(turn)
        task.updates.append(params["inputResponses"])
        if task.keeps_answers:
            task.withdraw(*params["inputResponses"])
        return await result({})(turn)

    async def _cancel(self, turn: Turn) -> Any:
        task = self.tasks.get(turn.message["params"]["taskId"])
        if task is None or not follows(turn):
            return await (UNKNOWN if task is None else LACKING)(turn)
        task.cancels += 1
        task.status, task.payload = "cancelled", {}
        return await result({})(turn)


def follows(turn: Turn) -> bool:
    """Whether a request declares tasks."""
    declared = turn.meta[CAPABILITIES]
    return declared.get("extensions", {}).get(TASKS) == {}


LACKING: Final = error(
    -32021, "tasks have to be followed", {"requiredCapabilities": {"extensions": {TASKS: {}}}}, status=400
)
"""The reply to a request that does not."""
UNKNOWN: Final = error(-32602, "Task not found")
"""The reply to a request about a task that is not there."""
