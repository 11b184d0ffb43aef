"""Gateways that fall: their store is then as it is at that moment, and the next one finds it so."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helpers.mcp_host import McpHost
from helpers.server import Hold, ScriptedServer
from helpers.stored_tasks import copied, stored_task
from helpers.waiting import eventually
from helpers.whole_gateway import Store, StoreUnavailable, WholeGateway, configuration, running

LOST = {"origin": "gateway", "reason": "call_lost", "dispatched": True}


def returned(gateway: WholeGateway, host: McpHost) -> McpHost:
    """The same host, at the gateway of now."""
    again = McpHost(gateway.http, gateway.url())
    again.session, again.revision = host.session, host.revision
    return again


@asynccontextmanager
async def falling(
    server: ScriptedServer,
    folder: Path,
    /,
    *,
    upstreams: Mapping[str, Any] | None = None,
    begins_with: Path | None = None,
    **sections: Any,
) -> AsyncIterator[WholeGateway]:
    """A gateway that falls at the end of the block: `folder` has its store, and the server forgets what it was asked.

    Without `upstreams` it stands before the server as `reports`, which it lets have one call at a time. It begins with
    the store that another one left in `begins_with`.
    """
    elsewhere = folder / "fallen"
    elsewhere.mkdir(parents=True)
    if begins_with is not None:
        copied(begins_with, elsewhere)
    known = {"reports": one_slot(server, "reports")} if upstreams is None else upstreams
    async with running(configuration({}, folder=elsewhere, upstreams=known, **sections)) as gateway:
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
        self.is_dead = False

    def die_after(self, swaps: int) -> None:
        """Take so many more changes of tasks, and do nothing from then on."""
        self._left = swaps

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if self.is_dead and name != "close":
                raise StoreUnavailable("The gateway has fallen, as the test wants")
            value = await operation(*args, **kwargs)
            if name == "swap" and self._left > 0:
                self._left -= 1
                self.is_dead = self._left == 0
            return value

        return perform
