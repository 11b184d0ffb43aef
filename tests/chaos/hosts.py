"""Hosts that make tasks, ask after them, cancel them and wait for them, at any replica, and note what they were told.

What must not live here: what may be told (`checker`). A host never asks twice for the same thing without noting it, so
that the ledger of the server tells who did.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import aiohttp

from chaos.checker import told
from chaos.history import Execution, History, Kind, Operation, Seen
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import Turn, result

PATIENCE = 12.0
REFUSALS = (429, 503)
UNKNOWN, ENDED, CANCELLED = "Task not found", "The task has already ended", "Task was cancelled"
TOOLS = [{"name": "work", "inputSchema": {"type": "object"}}]


class Scene:
    """Where hosts play: `urls` are the replicas', `now` is the one clock of the history."""

    def __init__(self, http: aiohttp.ClientSession, urls: Sequence[str], chance: Random) -> None:
        self.http = http
        self.urls = urls
        self.chance = chance
        self.history = History()
        self.calls = count(1)
        self.known: list[tuple[str, str]] = []
        """Tasks that somebody was given, and who."""

    def now(self) -> float:
        """Seconds."""
        return asyncio.get_running_loop().time()

    async def work(self, turn: Turn) -> Any:
        """The server's tool: notes its run, takes its time, and says whose call it was."""
        asked = turn.message["params"]["arguments"]
        self.history.executions.append(Execution(call=asked["call"], caller=asked["caller"], begun=self.now()))
        await asyncio.sleep(asked["seconds"])
        text = told(asked["caller"], asked["call"])
        return await result({"content": [{"type": "text", "text": text}]})(turn)


class Caller:
    """One caller, with one session that it shows to whichever replica it meets."""

    def __init__(self, scene: Scene, name: str, token: str) -> None:
        self.name = name
        self._scene = scene
        self._hosts = [Host(scene.http, url, token) for url in scene.urls]

    async def open(self) -> None:
        """Open the session, at the first replica."""
        first = self._hosts[0]
        await first.initialize()
        for host in self._hosts[1:]:
            host.session, host.revision = first.session, first.revision

    async def live(self, until: float) -> None:
        """Make one task after the other, and see each to whatever comes of it, until that moment."""
        scene, chance = self._scene, self._scene.chance
        while scene.now() < until:
            task = await self._create(chance.choice((0.0, 0.05, 0.3, 1.0, 2.5)))
            if task is None:
                await asyncio.sleep(0.1)
                continue
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                await self.get(task)
            if chance.random() < 0.2:
                await self._do(Kind.CANCEL, "tasks/cancel", task)
            if chance.random() < 0.6:
                await self._do(Kind.RESULT, "tasks/result", task)
            if chance.random() < 0.3:
                # Whose it is not: nobody may tell it from none at all.
                await self.get(chance.choice(scene.known)[0])

    async def get(self, task: str) -> Seen:
        """Ask after a task, anybody's."""
        return await self._do(Kind.GET, "tasks/get", task)

    async def outcome(self, task: str) -> Seen:
        """Ask for what a task came to."""
        return await self._do(Kind.RESULT, "tasks/result", task)

    async def _create(self, seconds: float) -> str | None:
        scene, call = self._scene, next(self._scene.calls)
        arguments = {"call": call, "caller": self.name, "seconds": seconds}
        params = {"name": "work", "arguments": arguments, "task": {}}
        made = await self._noted(Kind.CREATE, "tools/call", params, _created, call=call)
        if made.task is not None:
            scene.known.append((made.task, self.name))
        return made.task

    async def _do(self, kind: Kind, method: str, task: str) -> Seen:
        reading = _result if kind is Kind.RESULT else _state
        return (await self._noted(kind, method, {"taskId": task}, reading, task=task)).seen

    async def _noted(
        self,
        kind: Kind,
        method: str,
        params: Any,
        read: Callable[[dict[str, Any]], tuple[Seen, str | None, str]],
        *,
        task: str | None = None,
        call: int | None = None,
    ) -> Operation:
        scene = self._scene
        number = scene.chance.randrange(len(self._hosts))
        begun, found = scene.now(), None
        seen, text = Seen.NO_ANSWER, ""
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._hosts[number].ask(method, params)
            seen, found, text = _read(kind, answer, read)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            text = repr(error)
        operation = Operation(
            kind=kind,
            caller=self.name,
            begun=begun,
            ended=scene.now(),
            seen=seen,
            task=task or found,
            call=call,
            text=text,
            replica=f"replica-{number}",
        )
        scene.history.operations.append(operation)
        return operation


def _read(
    kind: Kind, answer: Answer, read: Callable[[dict[str, Any]], tuple[Seen, str | None, str]]
) -> tuple[Seen, str | None, str]:
    """What an answer says: what was seen, the task that was made, and the words."""
    message = answer.message
    if message is None:
        cut = answer.status == 200 and answer.streamed
        # A stream that ends without its answer is a broken connection, as far as a host can tell.
        return (Seen.NO_ANSWER if cut else Seen.REFUSED if answer.status == 503 else Seen.WRONG), None, _words(answer)
    if "result" in message:
        return read(message["result"])
    error = message["error"]
    code, words = error["code"], error["message"]
    if code in REFUSALS:
        return Seen.REFUSED, None, f"{code} {words}"
    if code == -32602 and words == UNKNOWN:
        return Seen.UNKNOWN, None, words
    if code == -32602 and words == ENDED and kind is Kind.CANCEL:
        return Seen.ENDED_BEFORE, None, words
    if kind is Kind.RESULT and code == -32800 and words == CANCELLED:
        return Seen.CANCELLED, None, ""
    if kind is Kind.RESULT and code == -32603:
        return Seen.FAILED, None, words
    return Seen.WRONG, None, _words(answer)


def _words(answer: Answer) -> str:
    return f"HTTP {answer.status}: {answer.text}"


def _created(found: dict[str, Any]) -> tuple[Seen, str | None, str]:
    task = found.get("task")
    return (Seen.WORKING, task["taskId"], "") if task else (Seen.WRONG, None, str(found))


def _state(found: dict[str, Any]) -> tuple[Seen, str | None, str]:
    return Seen(found["status"]), None, found.get("statusMessage") or ""


def _result(found: dict[str, Any]) -> tuple[Seen, str | None, str]:
    return Seen.COMPLETED, None, found["content"][0]["text"]
