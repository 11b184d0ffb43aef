"""Servers that are deployed anew: the process ends, its place is empty for a while, and another process comes.

The new process knows nothing of the old one. `Work` is what hosts do meanwhile.
"""

import asyncio
import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host
from helpers.loop_pace import pace
from helpers.server import Hold, ScriptedServer, Turn, result
from helpers.server.sse import SseServer
from helpers.waiting import bounded, eventually
from interaction.programs import program
from interaction.test_programs_of_processes import is_there

PAUSE = 0.15
"""Seconds between two calls of a host."""


class Deployment(ABC):
    """One server. `section` is how a configuration has it, without its path.

    Its `tool` is called with a number that no other call has. It has that in its result, and notes it.
    """

    section: dict[str, Any]
    tool = "echo"
    is_missed = True
    """Whether hosts find nothing between `end` and `begin`."""

    def given(self, number: int) -> dict[str, Any]:
        """The arguments of a call with that number."""
        return {"n": number}

    def number_in(self, result: dict[str, Any]) -> int:
        """The number that a result has."""
        number: int = result["structuredContent"]["n"]
        return number

    @property
    @abstractmethod
    def ran(self) -> list[int]:
        """The numbers of the calls that ran, whatever process ran them."""

    @abstractmethod
    async def end(self) -> None:
        """End the process; no other one comes before `begin`."""

    @abstractmethod
    async def begin(self) -> None:
        """Have another process come."""


class ScriptedDeployment(Deployment):
    """A server of the tests' own. Calls of its tool `hold` run until their process ends."""

    @property
    @abstractmethod
    def held(self) -> int:
        """How many calls of `hold` there were."""


class OverHttp(ScriptedDeployment):
    """A server of Streamable HTTP or of HTTP+SSE."""

    def __init__(self, server: ScriptedServer | SseServer) -> None:
        self.server = server
        transport = "sse" if isinstance(server, SseServer) else "http"
        self.section = {"transport": transport, "url": server.url}
        self._ran: list[int] = []
        self._hold = Hold()
        server.script["echo"], server.script["hold"] = self._echo, self._hold
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hold")]

    @property
    def ran(self) -> list[int]:
        return self._ran

    @property
    def held(self) -> int:
        return len(self._hold.turns)

    async def _echo(self, turn: Turn) -> Any:
        given = turn.message["params"]["arguments"]
        self._ran.append(given["n"])
        return await result({"content": [], "structuredContent": given})(turn)

    async def end(self) -> None:
        await self.server.stop()

    async def begin(self) -> None:
        await self.server.come_back()


class OverPipes(ScriptedDeployment):
    """A program. Its place is never empty: the gateway starts another process for the next message."""

    is_missed = False

    def __init__(self, era: str, folder: Path, end: signal.Signals) -> None:
        gate, self._calls, self._end = folder / "gate", folder / "calls", end
        gate.write_text("{}")
        self._ended = 0
        # Those that end within ten seconds are not started at once again.
        restart = {"backoff": "1ms", "max_backoff": "1ms"}
        self.section = program("--gate", era, str(gate), env={"CALLS": str(self._calls)}, restart=restart)

    @property
    def ran(self) -> list[int]:
        return [line["n"] for line in self._lines() if isinstance(line, dict)]

    @property
    def held(self) -> int:
        return self._lines().count("hold")

    def _lines(self) -> list[Any]:
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []

    async def end(self) -> None:
        pids = [line for line in self._lines() if isinstance(line, int)][self._ended :]
        self._ended += len(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, self._end)
        await eventually(lambda: not any(map(is_there, pids)))

    async def begin(self) -> None:
        """Nothing: the gateway starts it."""


def plain(host: Host) -> dict[str, Any]:
    """What makes a call of a host none of a task."""
    return {"capabilities": {}} if host.is_modern else {}


class Work:
    """What hosts make of a server. Calls are known by their numbers, of which no two have the same."""

    def __init__(self, gateway: Gateway, deployment: Deployment, hosts: list[Host]) -> None:
        self._gateway = gateway
        self._deployment = deployment
        self._hosts = hosts
        self._numbers = count()
        self._under_way = 0
        self._may_begin = asyncio.Event()
        self._may_begin.set()
        self.is_away = False
        self.is_coming = False
        """Whether another process may be there already, if the server is away."""
        self.tasks: dict[int, tuple[Host, str]] = {}
        self.answered: set[int] = set()
        self.refused: set[int] = set()

    async def call(self, host: Host) -> None:
        """A plain call. It has its result if the server is there when it begins, and is refused while it is away."""
        number, was_away = next(self._numbers), self.is_away
        deployment = self._deployment
        answer = await host.call(deployment.tool, deployment.given(number), **plain(host))
        message = answer.message or {}
        if "result" in message:
            assert not was_away or self.is_coming, number
            assert deployment.number_in(message["result"]) == number
            self.answered.add(number)
            return
        assert was_away, answer.error
        assert (answer.error["data"]["origin"], answer.error["data"]["dispatched"]) == ("upstream", False)
        self.refused.add(number)

    async def start(self, host: Host) -> None:
        """A call as a task."""
        number = next(self._numbers)
        task = await host.start(self._deployment.tool, self._deployment.given(number))
        self.tasks[number] = host, task["taskId"]

    async def go_on(self, host: Host) -> None:
        """Call, and now and then make a task, without an end."""
        for turn in count():
            await self._may_begin.wait()
            self._under_way += 1
            await (self.call(host) if turn % 4 else self.start(host))
            self._under_way -= 1
            await asyncio.sleep(PAUSE * pace())

    async def through(self, deployments: Sequence[float]) -> None:
        """Go on while the server is deployed anew that often, and is away for so many seconds each time.

        What came of all that was asked is judged at the end.
        """
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(self.go_on(host)) for host in self._hosts]
            for away in deployments:
                await asyncio.sleep(0.5 * pace())
                await self.redeploy(away)
            for each in working:
                each.cancel()
        results = {number: await outcome(*task) for number, task in self.tasks.items()}
        assert {number: self._deployment.number_in(each) for number, each in results.items()} == {n: n for n in results}
        ran = self._deployment.ran
        assert len(set(ran)) == len(ran)
        assert self.answered | set(results) <= set(ran)
        assert self.refused.isdisjoint(ran)

    async def redeploy(self, away: float) -> None:
        """Have another process of the server come after that time, and each host call it at that moment."""
        self._may_begin.clear()
        await eventually(lambda: not self._under_way and set(self.tasks) <= set(self._deployment.ran))
        # Nothing runs in the process any more.
        await self._gateway.upstream_is(in_use=0)
        await self._deployment.end()
        self.is_away, self.is_coming = self._deployment.is_missed, False
        self._may_begin.set()
        await asyncio.sleep(away * pace())
        self.is_coming = True
        await self._deployment.begin()
        self.is_away = False
        await asyncio.gather(*(self.call(host) for host in self._hosts))


async def outcome(host: Host, task: str) -> Any:
    """The result of the call of a task, or the error that it ended with."""
    if not host.is_modern:
        answer = await host.ask("tasks/result", {"taskId": task})
        return answer.error if "error" in (answer.message or {}) else answer.result
    async with bounded():
        while (found := await host.task(task))["status"] == "working":
            await asyncio.sleep(0.5 * pace())
    return found["result"] if found["status"] == "completed" else found["error"]
