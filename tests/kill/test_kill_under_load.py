"""kill -9 under load, twenty times: whatever was acknowledged is found, ends, and ran at most once."""

import asyncio
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import aiohttp
import pytest
from aiohttp import web

from helpers.gateway_process import gateway_process, write_configuration
from helpers.mcp_host import McpHost
from helpers.scripted_upstream import ScriptedServer, Turn, result
from helpers.waiting import eventually

ROUNDS = 20
HOSTS = 4
PATIENCE = 30.0
LOST = "The gateway stopped while the call was running; it may or may not have completed"


@dataclass(slots=True)
class Books:
    """What the hosts were promised, and what the server has run: the number of a call is its argument."""

    numbers: "count[int]" = field(default_factory=lambda: count(1))
    acknowledged: dict[str, int] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)

    async def run(self, turn: Turn) -> web.StreamResponse:
        """The tool: notes its run, and takes a moment that a kill may fall into."""
        number = turn.message["params"]["arguments"]["number"]
        self.runs[number] = self.runs.get(number, 0) + 1
        await asyncio.sleep(0.02 * (number % 4))
        return await result({"content": [{"type": "text", "text": f"report {number}"}]})(turn)


async def create_until_killed(http: aiohttp.ClientSession, url: str, books: Books) -> None:
    """One host that makes tasks as fast as it can, and notes each only once it is acknowledged."""
    try:
        host = McpHost(http, url)
        await host.initialize()
        while True:
            number = next(books.numbers)
            task = await host.start("report", {"number": number})
            books.acknowledged[task["taskId"]] = number
    except (aiohttp.ClientError, ConnectionError):
        pass


async def ended(host: McpHost, task: str) -> str:
    """Wait for the end of a task, and return what it came to."""
    answer = await host.ask("tasks/result", {"taskId": task})
    if answer.message is not None and "error" in answer.message:
        assert answer.error["message"] == LOST, answer.error
        return "lost"
    text: str = answer.result["content"][0]["text"]
    return text


@pytest.mark.kill
@pytest.mark.timeout(240)
async def test_what_was_acknowledged_survives_twenty_kills_and_ran_at_most_once(tmp_path: Path) -> None:
    books, chance = Books(), Random(1)
    ends: dict[str, str] = {}
    async with ScriptedServer() as server, aiohttp.ClientSession() as http:
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = books.run
        limits = "{rate: [], concurrency: {tasks_per_context: 100000, tasks_global: 100000}}"
        file = write_configuration(tmp_path, server.url, limits=limits)
        for round_ in range(ROUNDS):
            async with gateway_process(["--config", file], log=tmp_path / f"{round_}.log") as gateway:
                url = f"http://{gateway.listen}/reports/mcp"
                await check(http, url, books, ends)
                hosts = [asyncio.create_task(create_until_killed(http, url, books)) for _ in range(HOSTS)]
                enough = len(books.acknowledged) + chance.randint(5, 60)
                await eventually(lambda: len(books.acknowledged) >= enough, within=PATIENCE)  # noqa: B023
                gateway.kill()
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*hosts)
        async with gateway_process(["--config", file], log=tmp_path / "last.log") as gateway:
            await check(http, f"http://{gateway.listen}/reports/mcp", books, ends)
    assert len(ends) == len(books.acknowledged) > ROUNDS
    assert {number: runs for number, runs in books.runs.items() if runs > 1} == {}
    assert "lost" in ends.values(), "no kill fell into a running call: the test shows too little"


async def check(http: aiohttp.ClientSession, url: str, books: Books, ends: dict[str, str]) -> None:
    """Every task that was ever acknowledged is there, ends, and stays what it was once it had ended."""
    host = McpHost(http, url)
    await host.initialize()
    for task, number in books.acknowledged.items():
        if task not in ends:
            ends[task] = await ended(host, task)
            assert ends[task] in ("lost", f"report {number}")
            if ends[task] != "lost":
                assert books.runs[number] == 1
    for task, end in list(ends.items())[-50:]:
        assert await ended(host, task) == end
