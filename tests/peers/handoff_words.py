"""A host without tasks with a model that does what it is told, for hosts in Python; `handoff_words.mjs` is the same.

`run` reads JSON from the command line, or from the file that it names after an @: a list of `{"url", "patience",
"tool", "given", "then"}`. It plays all of them at once, each on a connection of its own. `patience` is the host's own
timeout of a request in seconds.
Where a result says which tool to call next, that is called, until a result does not: `then` says which of the two, the
one that waits or the one that cancels. One line of JSON is printed for each, in their order: `tools`, whether each one
that was listed has an output schema, and `turns`. A turn is a call: `tool`, `seconds`, `progress` and `questions` while
it ran, and its `result` or `error`.

A plan may have more: `at`, when its first call is made, and `until`, when what there is is told, in seconds since
1970; `turns`, how many there are at most; and `again`.
With `again` a call that ended with an error is made again on a new connection, unless its words have `final` in them:
the `same` call, or the `first` one, as by a model that has forgotten the handle.
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
from pathlib import Path
from typing import Any, Protocol

TOLD = re.compile(
    r"To get its result, call the tool (?P<wait>\S+) with (?P<given>\{.*?\})\. "
    r"To end it early, call (?P<cancel>\S+) with the same argument\."
)
Told = dict[str, Any]
MOST_TURNS = 12
PAUSE = 0.5
"""Seconds before a host connects again."""


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


async def play(connect: Connect, plan: Told, told: Told) -> None:
    """One connection with one call, and what follows of it; with `again`, as many connections as it takes."""
    following: tuple[str, Told] | None = (plan["tool"], plan["given"])
    while following is not None:
        try:
            ears = Ears()
            async with connect(plan["url"], plan["patience"], ears) as host:
                told["tools"] = await host.tools()
                await asyncio.sleep(plan.get("at", 0) - time.time())
                following = await converse(host, ears, plan, following, told["turns"])
        except Exception as error:
            if "again" not in plan:
                raise
            told["broken"] = repr(error)
        if following is not None:
            await asyncio.sleep(PAUSE)


async def converse(
    host: Host, ears: Ears, plan: Told, following: tuple[str, Told] | None, turns: list[Told]
) -> tuple[str, Told] | None:
    """What is called on one connection; returns what is to be called on another one, None if it is over."""
    while following is not None and len(turns) < plan.get("turns", MOST_TURNS):
        call = tool, given = following
        ears.progress, ears.questions = [], []
        turn: Told = {"tool": tool, "progress": ears.progress, "questions": ears.questions}
        turns.append(turn)
        begun = time.monotonic()
        try:
            turn["result"] = await host.call(tool, given)
            following = next_call(turn["result"], plan["then"])
        except Exception as error:
            turn["error"] = error_of(error)
            return call_again(plan, call, turn["error"])
        finally:
            turn["seconds"] = time.monotonic() - begun
    return None


def call_again(plan: Told, following: tuple[str, Told], error: Told) -> tuple[str, Told] | None:
    """What is called after an error; None if that is the end."""
    if "again" not in plan or plan["final"] in error["message"]:
        return None
    return (plan["tool"], plan["given"]) if plan["again"] == "first" else following


def plans() -> list[Told]:
    """What the command line says, or the file that it names after an @: there may be more than fits."""
    said = next(word for word in sys.argv[1:] if not word.startswith("--"))
    told: list[Told] = json.loads(Path(said[1:]).read_text() if said.startswith("@") else said)
    return told


async def _play_all(connect: Connect) -> None:
    given = plans()
    told: list[Told] = [{"tools": {}, "turns": []} for _ in given]
    playing = [asyncio.create_task(play(connect, plan, each)) for plan, each in zip(given, told, strict=True)]
    until = max(plan.get("until", 0) for plan in given)
    done, _ = await asyncio.wait(playing, timeout=until - time.time() if until else None)
    for task in done:
        task.result()
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in told))
    sys.stdout.flush()


def run(connect: Connect) -> None:
    """Plays what the command line says."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    asyncio.run(_play_all(connect))
