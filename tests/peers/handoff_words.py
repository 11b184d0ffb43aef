"""A host without tasks with a model that does what it is told, for hosts in Python; `handoff_words.mjs` is the same.

`run` reads one line of JSON from the command line, a list of `{"url", "patience", "tool", "given", "then"}`. It plays
all of them at once, each on a connection of its own. `patience` is the host's own timeout of a request in seconds.
Where a result says which tool to call next, that is called, until a result does not: `then` says which of the two, the
one that waits or the one that cancels. One line of JSON is printed for each, in their order: `tools`, whether each one
that was listed has an output schema, and `turns`. A turn is a call: `tool`, `seconds`, `progress` and `questions` while
it ran, and its `result` or `error`.
"""

import asyncio
import json
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

TOLD = re.compile(
    r"To get its result, call the tool (?P<wait>\S+) with (?P<given>\{.*?\})\. "
    r"To end it early, call (?P<cancel>\S+) with the same argument\."
)
Told = dict[str, Any]
MOST_TURNS = 12


@dataclass
class Ears:
    """What the host is told and asked while a call runs."""

    progress: list[float] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    def answer(self, message: str) -> dict[str, str]:
        """The user's answer to a question: its number."""
        self.questions.append(message)
        return {"word": f"WORD-{message.rstrip('?').split()[-1]}"}

    async def hear(self, progress: float, _: float | None, __: str | None) -> None:
        self.progress.append(progress)


class Host(Protocol):
    """A host that is connected. Each may raise whatever its SDK does."""

    async def tools(self) -> dict[str, bool]:
        """The tools, and whether each has an output schema."""
        ...

    async def call(self, tool: str, given: Told) -> Told:
        """The result of a call, as it was on the wire."""
        ...


Connect = Callable[[str, float, Ears], AbstractAsyncContextManager[Host]]


def next_call(result: Told, then: str) -> tuple[str, Told] | None:
    """The call that a result tells to make; None if it tells of none."""
    text = " ".join(block.get("text", "") for block in result["content"])
    told = TOLD.search(text)
    return (told[then], json.loads(told["given"])) if told else None


def error_of(error: Exception) -> Told:
    """Code and words; an exception of another kind than the protocol's has its name for a code."""
    inner = getattr(error, "error", error)
    return {"code": getattr(inner, "code", type(error).__name__), "message": getattr(inner, "message", str(error))}


async def play(connect: Connect, plan: Told) -> Told:
    """One connection with one call, and what follows of it."""
    ears, turns = Ears(), []
    async with connect(plan["url"], plan["patience"], ears) as host:
        tools = await host.tools()
        following: tuple[str, Told] | None = (plan["tool"], plan["given"])
        while following is not None and len(turns) < MOST_TURNS:
            tool, given = following
            ears.progress, ears.questions = [], []
            turn: Told = {"tool": tool, "progress": ears.progress, "questions": ears.questions}
            turns.append(turn)
            following, begun = None, time.monotonic()
            try:
                turn["result"] = await host.call(tool, given)
                following = next_call(turn["result"], plan["then"])
            except Exception as error:
                turn["error"] = error_of(error)
            turn["seconds"] = time.monotonic() - begun
    return {"tools": tools, "turns": turns}


async def _play_all(connect: Connect) -> None:
    for told in await asyncio.gather(*(play(connect, plan) for plan in json.loads(sys.argv[1]))):
        sys.stdout.write(json.dumps(told) + "\n")


def run(connect: Connect) -> None:
    """Plays what the command line says."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    asyncio.run(_play_all(connect))
