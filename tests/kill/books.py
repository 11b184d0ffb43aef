"""What hosts were promised, what a server has run, and hosts that make tasks and hold the gateway to its promises."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import aiohttp
from aiohttp import web

from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import Turn, result

UNSENT = "The call was not sent: the task store was not available"
LOST = "The gateway stopped while the call was running; it may or may not have completed"
TOOL = "report"
REFUSALS = (429, 503)
_PAUSE = 0.02
_LOOKED_AT_AGAIN = 50
_RUNS = {LOST: (0, 1), UNSENT: (0,)}
"""How often a call may have run of which a host is told that. Of others it has the result: they ran once."""


@dataclass(slots=True)
class Books:
    """The promises and the runs; the number of a call is its argument. `life` is that of the gateway that runs now."""

    life: int = 0
    numbers: "count[int]" = field(default_factory=lambda: count(1))
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The numbers of the tasks that a host was given."""
    made: dict[int, int] = field(default_factory=dict)
    """The lives in which they were."""
    runs: Counter[int] = field(default_factory=Counter)
    ran: dict[int, int] = field(default_factory=dict)
    """The lives in which they ran."""
    ends: dict[str, str] = field(default_factory=dict)
    """What tasks came to."""

    async def run(self, turn: Turn) -> web.StreamResponse:
        """The tool: notes its run, and takes a moment that a kill may fall into."""
        number = turn.message["params"]["arguments"]["number"]
        self.runs[number] += 1
        self.ran[number] = self.life
        await asyncio.sleep(0.02 * (number % 4))
        return await result({"content": [{"type": "text", "text": f"report {number}"}]})(turn)

    def wrong(self) -> dict[str, int]:
        """Tasks whose calls ran more or less often than what became of them says, and calls that ran twice."""
        found = {f"call {number}": runs for number, runs in self.runs.items() if runs > 1}
        for task, end in self.ends.items():
            runs = self.runs[self.acknowledged[task]]
            if runs not in _RUNS.get(end, (1,)):
                found[f"{task}, {end}"] = runs
        return found

    @property
    def waited(self) -> int:
        """How many tasks waited for their turn when a gateway was killed, and were run by a later one."""
        return sum(1 for number, life in self.ran.items() if life > self.made.get(number, life))

    def __str__(self) -> str:
        lost, unsent = (list(self.ends.values()).count(end) for end in (LOST, UNSENT))
        found = f"{self.life} lives, {len(self.acknowledged)} tasks acknowledged, {sum(self.runs.values())} calls ran"
        twice = sum(1 for runs in self.runs.values() if runs > 1)
        ends = f"{lost} outcomes unknown, {unsent} unsent, {self.waited} run by a later life, {twice} run twice"
        return f"{found}; {ends}"


async def create_until_gone(host: Host, books: Books, pause: float) -> None:
    """Make tasks with that pause after each, and note each only once it is acknowledged."""
    with _until_gone():
        while True:
            number, life = next(books.numbers), books.life
            task = _unless_refused(await host.call(TOOL, {"number": number}, task={}))
            if task is not None:
                books.made[number] = life
                books.acknowledged[task["task"]["taskId"]] = number
            await asyncio.sleep(_PAUSE if task is None else pause)


async def check_until_gone(host: Host, books: Books, chance: Random) -> None:
    """Hold the gateway to its promises, again and again: what has not ended yet does, and what has ended stays."""
    with _until_gone():
        while True:
            await check(host, books, [task for task in books.acknowledged if task not in books.ends])
            await check(host, books, chance.sample(list(books.ends), min(len(books.ends), _LOOKED_AT_AGAIN)))
            if not books.acknowledged:
                # It asks nothing else, so it would never notice the end of a gateway that was killed at once.
                await host.ask("ping", {})
            await asyncio.sleep(_PAUSE)


async def check(host: Host, books: Books, tasks: Iterable[str]) -> None:
    """Each of these tasks is there and ends, and what it came to is what a host was told before."""
    for task in tasks:
        end, number = await _end_of(host, task), books.acknowledged[task]
        assert end in _RUNS or end == f"report {number}", f"call {number}: {end}"
        assert books.ends.setdefault(task, end) == end, f"call {number}: {end}, after {books.ends[task]}"


async def _end_of(host: Host, task: str) -> str:
    """Wait for the end of a task, and return what it came to."""
    while True:
        answer = await host.ask("tasks/result", {"taskId": task})
        if answer.message is not None and "error" in answer.message and answer.error["message"] in _RUNS:
            told: str = answer.error["message"]
            return told
        found = _unless_refused(answer)
        if found is not None:
            text: str = found["content"][0]["text"]
            return text
        await asyncio.sleep(_PAUSE)


def _unless_refused(answer: Answer) -> dict[str, Any] | None:
    """The result; None where a host is to ask again."""
    if answer.message is None and answer.status == 200 and answer.streamed:
        raise ConnectionResetError("the stream ended without an answer")
    if answer.status == 503 or (answer.message is not None and "error" in answer.message and answer.code in REFUSALS):
        return None
    return answer.result


def _until_gone() -> suppress:
    """A block that the end of the gateway ends."""
    return suppress(aiohttp.ClientError, ConnectionError)
