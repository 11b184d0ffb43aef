"""Gateways that fall or end while calls are at their server: what they leave, and the next one that finds it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, Store, StoreUnavailable, serve
from helpers.server import Hold, LastingCall, LastingTool, ScriptedServer
from helpers.stored_tasks import Checkpoint, StoredTask, copied, stored_task
from helpers.waiting import bounded, eventually

LOST = {"origin": "gateway", "reason": "call_lost", "dispatched": True}


@asynccontextmanager
async def falling(
    server: ScriptedServer,
    folder: Path,
    /,
    *,
    upstreams: Mapping[str, Any] | None = None,
    begins_with: Path | None = None,
    **sections: Any,
) -> AsyncIterator[Gateway]:
    """A gateway that falls at the end of the block: `folder` has its store, and the server forgets what it was asked.

    Without `upstreams` it stands before the server as `reports`, which it lets have one call at a time. It begins with
    the store that another one left in `begins_with`.
    """
    elsewhere = folder / "fallen"
    elsewhere.mkdir(parents=True)
    if begins_with is not None:
        copied(begins_with, elsewhere)
    known = {"reports": one_slot(server, "reports")} if upstreams is None else upstreams
    async with serve(configuration({}, folder=elsewhere, upstreams=known, **sections)) as gateway:
        yield gateway
        copied(elsewhere, folder)
    server.requests.clear()


def one_slot(server: ScriptedServer, name: str) -> dict[str, Any]:
    """The section of a server that takes one call at a time, so that the next one is not sent."""
    return {"path": f"/{name}/mcp", "url": server.url, "concurrency": 1, "queue": {"size": 16, "max_wait": "300s"}}


async def leave_one_sent(server: ScriptedServer, folder: Path, *hosts: Any, tool: str = "report") -> list[str]:
    """Have each host make a task of that tool, called for the year 2026; the first one's call is at the server.

    The ids of the tasks. What is at the server there never ends.
    """
    usual = server.script.get(tool)
    server.script[tool] = hold = Hold()
    tasks = []
    for host in hosts:
        tasks.append((await host.start(tool, {"year": 2026}))["taskId"])
        if host is hosts[0]:
            await eventually(lambda: hold.turns)
            await stored_task(folder / "fallen", tasks[0], lambda task: task.was_sent)
    server.script.pop(tool) if usual is None else server.script.update({tool: usual})
    return tasks


class MortalStore:
    """A store in the file of a folder, for a gateway that falls right after it has written something."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._left = -1
        self._is_answered = False
        self.is_dead = False
        self.written: list[Any] = []
        """The records that were to replace others, in order."""

    def die_after(self, swaps: int) -> None:
        """Take so many changes of tasks from the next answer of a host on, that first, and then do nothing any more.

        What is changed before it, such as what is open, may still come.
        """
        self._left = swaps
        self._is_answered = False

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if self.is_dead and name != "close":
                raise StoreUnavailable("The gateway has fallen, as the test wants")
            value = await operation(*args, **kwargs)
            if name == "swap":
                self.written.append(args[0])
            if name == "swap" and self._left > 0:
                self._is_answered |= bool(args[0].answers)
                self._left -= self._is_answered
                self.is_dead = self._left == 0
            return value

        return perform


@pytest.fixture
def tool(server: ScriptedServer) -> LastingTool:
    """The tool `report`, whose streams can be taken up again."""
    server.script["report"] = tool = LastingTool()
    return tool


def config_of(server: ScriptedServer, folder: Path | None, **sections: Any) -> GatewayConfig:
    """A gateway before the server that does not wait for what runs when it ends."""
    drain = {"drain": {"delay": "0s", "timeout": "2s", "running_tasks": "fail"}}
    return configuration({"reports": server.url}, folder=folder, server=drain, **sections)


async def kept(folder: Path, task: str, suits: Callable[[Checkpoint], bool] = lambda _: True) -> StoredTask:
    """A task as it is stored, once what is kept of its call suits."""
    return await stored_task(folder, task, lambda found: found.checkpoint is not None and suits(found.checkpoint))


def up_to(event: str) -> Callable[[Checkpoint], bool]:
    return lambda checkpoint: checkpoint.event == event


async def left(gateway: Gateway) -> None:
    """The gateway ends, and waits for nobody; what is in its store by now it knows to be."""
    async with bounded():
        # What is asked of the store is answered in turn.
        await gateway.ready()
        await gateway.drain()
        await gateway.close()


async def fallen(server: ScriptedServer, tool: LastingTool, folder: Path, **sections: Any) -> tuple[str, LastingCall]:
    """What a gateway leaves in the folder that fell while its call was at the server: the task, and that call."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    async with serve(config_of(server, elsewhere, **sections)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        await kept(elsewhere, task)
        copied(elsewhere, folder)
        await left(gateway)
    return task, call
