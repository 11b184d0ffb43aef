"""A program: plays the corpus to a gateway of whichever `taskgate` it imports, and writes down all that came out.

`python play.py FOLDER SEED CHANGED`: the answers go to `FOLDER/answers`, the metrics page to `FOLDER/metrics`, the
audit log to `FOLDER/audit.jsonl`. The clock stands still, and chance is the same in every run.
"""

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import aiohttp  # noqa: E402

from differential.corpus import MODERN, Said, changed, legacy, modern  # noqa: E402
from helpers.gateway.configuration import configuration  # noqa: E402
from helpers.gateway.gateway import Environment, Gateway, serve  # noqa: E402
from helpers.manual_clock import ManualClock, SeededEntropy  # noqa: E402
from helpers.server import ScriptedServer, error, raw, result, stream  # noqa: E402
from helpers.waiting import bounded, until  # noqa: E402

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)
KEPT = ("content-type", "mcp-session-id", "www-authenticate", "allow", "retry-after", "cache-control", "vary")
RATES = [
    {"name": "requests", "scope": "context", "methods": ["*"], "rate": "100000/s", "burst": 100000},
    {"name": "few", "scope": "context", "methods": ["completion/complete"], "rate": "1/h", "burst": 3},
]
TASKS: dict[str, Any] = {"upgrade": [{"tool": "report", "mode": "always"}]}


class Player:
    """A host of one revision at one mount, whose session and newest task are put into what it says."""

    def __init__(self, gateway: Gateway, mount: str) -> None:
        self._gateway = gateway
        self._url = gateway.url(mount)
        self._session = ""
        self._task = "0" * 43

    async def say(self, said: Said) -> list[Any]:
        """Status, header fields and body of the answer."""
        headers = {name: value.replace("{session}", self._session) for name, value in said.headers}
        body = said.body.replace(b"{task}", self._task.encode())
        try:
            async with bounded(), self._gateway.http.post(self._url, data=body, headers=headers) as response:
                text = (await response.read()).decode(errors="backslashreplace")
        except (aiohttp.ClientError, ValueError) as failure:
            return ["unsent", type(failure).__name__]
        self._session = response.headers.get("Mcp-Session-Id", self._session)
        await self._note_task(text)
        return [response.status, {name: response.headers[name] for name in KEPT if name in response.headers}, text]

    async def _note_task(self, text: str) -> None:
        """Remember a task that was made, and wait for its end: when it ends is up to the machine."""
        if '"taskId":"' not in text or '"working"' not in text:
            return
        task = text.split('"taskId":"')[1].split('"', maxsplit=1)[0]
        if task != self._task:
            self._task = task
            await until(self._unfinished, lambda count: count == 0)

    async def _unfinished(self) -> float:
        started = await self._gateway.count("taskgate_tasks_started_total")
        return started - await self._gateway.count("taskgate_tasks_finished_total")


async def play(folder: Path, seed: int, count: int) -> None:
    """Play all of it, to servers of both eras."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = Random(seed)
    answers: list[Any] = []
    async with ScriptedServer() as old, ScriptedServer("modern") as new:
        for server in (old, new):
            names = ("echo", "report", "talks", "fails", "refuses", "broken")
            server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            server.script |= {
                "report": result({"content": [{"type": "text", "text": "done"}]}),
                "talks": stream({"content": []}, progress=2),
                "fails": result({"content": [], "isError": True}),
                "refuses": error(-32001, "no paper"),
                "broken": raw(b"{"),
            }
        servers = {
            "old": {"url": old.url, "path": "/old/mcp", "protocol_version": "2025-11-25"},
            "new": {"url": new.url, "path": "/new/mcp", "protocol_version": MODERN},
        }
        audit = {"sinks": [{"name": "file", "type": "file", "path": str(folder / "audit.jsonl")}]}
        config = configuration({}, folder=folder, upstreams=servers, tasks=TASKS, limits={"rate": RATES}, audit=audit)
        environment = Environment(clock=ManualClock(), entropy=SeededEntropy(seed))
        async with serve(config, environment, data_directory=folder) as gateway:
            for revision in REVISIONS:
                for mount in servers:
                    player = Player(gateway, mount)
                    usual = list(modern() if revision == MODERN else legacy(revision))
                    for said in [*usual, *(changed(chance.choice(usual), chance) for _ in range(count))]:
                        body = said.body.decode(errors="replace")
                        answers.append([revision, mount, body, await player.say(said)])
            await gateway.shows("taskgate_audit_queue_depth", 0)
            page = await gateway.metrics()
    for server, name in ((old, "old"), (new, "new")):
        page = page.replace(server.origin, name)
    (folder / "answers").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    (folder / "metrics").write_text(page)


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
