"""The columns of the table of hosts and servers, for hosts in Python: what each has to do, and what counts as `yes`.

`run` takes URLs from the command line, has a host do everything at each of them, all of them at once, and prints one
line of JSON for each URL in their order: by column `yes`, or `no: ` and why. Of a server that has other tools it takes
a call instead, `{"url": …, "tool": …, "given": …}`, makes it as a task, and prints the `tools` that are listed and what
it was `told`: the text, and whether that is an error. `matrix_columns.mjs` is the same for hosts in TypeScript.
"""

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

ENDS_WITHIN = 15.0
"""Seconds for one column; to connect has what the process has."""
CLOSED = 4242
NO_ELICITATION = "the server's SDK has no elicitation"
NO_SESSION = "the server's SDK has no session with a legacy host"
DIES = "a session of the server's SDK dies of a cancelled call"
RUNS_ON = "the server was not told"

Outcome = tuple[str, bool]
"""A result's text, and whether it is an error."""


class NotHad(Exception):
    """The SDK has no words for that; the text says for what."""


class Host(Protocol):
    """A host that is connected to one server."""

    async def tools(self) -> Sequence[str]:
        """The names that are listed."""
        ...

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        """A plain call."""
        ...

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        """A call that was a task before it ended, waited for; AssertionError where it was none."""
        ...

    async def asked(self, tool: str) -> Outcome:
        """A call that asks the user for a word, which is `yes`; as a task where the host makes tasks."""
        ...

    async def progress(self, tool: str) -> Sequence[float]:
        """What a call tells of how far it is."""
        ...

    async def error(self, tool: str) -> int:
        """The code of the error that a call is answered with."""
        ...

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        """Begins a call, as a task where the host makes tasks, and cancels it once it runs."""
        ...

    async def read(self, uri: str) -> str:
        """The text of a resource."""
        ...

    async def prompt(self, name: str) -> str:
        """The text of a prompt."""
        ...


class Columns:
    """What one host has to do at one server; each returns whether it was right, or what came instead."""

    def __init__(self, host: Host, key: str) -> None:
        self._host = host
        self._key = key

    async def list(self) -> Any:
        names = await self._host.tools()
        return {"echo", "slow", "steps", "closed"} <= {*names} or names

    async def plain_call(self) -> Any:
        told = await self._host.call("echo", {"word": "back"})
        return told == ("echo back", False) or told

    async def task(self) -> Any:
        told = await self._host.as_task("slow", {"word": "train"})
        return told == ("slow train", False) or told

    async def elicitation(self) -> Any:
        if "ask" not in await self._host.tools():
            raise NotHad(NO_ELICITATION)
        told = await self._host.asked("ask")
        if told[1] and "Cannot request input" in told[0]:
            raise NotHad(NO_SESSION)
        return told == ("asked yes", False) or told

    async def progress(self) -> Any:
        told = await self._host.progress("steps")
        return [*told] == [1, 2, 3] or told

    async def error(self) -> Any:
        told = await self._host.error("closed")
        return told == CLOSED or told

    async def is_error(self) -> Any:
        told = await self._host.call("broken", {})
        return (told[1] and "the books are missing" in told[0]) or told

    async def cancel(self) -> Any:
        if "hold" not in await self._host.tools():
            raise NotHad(DIES)
        await self._host.cancel("hold", {"key": self._key})
        for _ in range(50):
            if await self._host.call("was_cancelled", {"key": self._key}) == ("yes", False):
                return True
            await asyncio.sleep(0.1)
        raise NotHad(RUNS_ON)

    async def resources(self) -> Any:
        told = await self._host.read("matrix://book")
        return told == "Once upon a time" or told

    async def prompts(self) -> Any:
        told = await self._host.prompt("summary")
        return told == "Summarise the book." or told


NAMES = ("plain_call", "task", "elicitation", "progress", "error", "is_error", "cancel", "list", "resources", "prompts")


async def verdict(column: Callable[[], Awaitable[Any]]) -> str:
    """`yes`, or what was wrong."""
    try:
        async with asyncio.timeout(ENDS_WITHIN):
            told = await column()
    except NotHad as reason:
        return f"no: {reason}"
    except Exception as error:
        return f"no: {type(error).__name__}: {error}"
    return "yes" if told is True else f"no: {told!r}"


async def row(connect: Callable[[str], AbstractAsyncContextManager[Host]], url: str, key: str) -> dict[str, str]:
    """Everything at one server, one after the other."""
    try:
        async with connect(url) as host:
            columns = Columns(host, key)
            return {name: await verdict(getattr(columns, name)) for name in NAMES}
    except Exception as error:
        return dict.fromkeys(NAMES, f"no: {type(error).__name__}: {error}")


async def called(connect: Callable[[str], AbstractAsyncContextManager[Host]], call: dict[str, Any]) -> dict[str, Any]:
    """What is listed at a server, and what comes of a call there."""
    try:
        async with connect(call["url"]) as host, asyncio.timeout(ENDS_WITHIN):
            return {"tools": [*await host.tools()], "told": await host.as_task(call["tool"], call["given"])}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def run(name: str, connect: Callable[[str], AbstractAsyncContextManager[Host]]) -> None:
    """Does what the command line says; `name` tells this host's calls from those of others."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def done(word: str) -> Awaitable[dict[str, Any]]:
        return called(connect, json.loads(word)) if word.startswith("{") else row(connect, word, f"{name} {word}")

    async def all_done() -> list[dict[str, Any]]:
        return await asyncio.gather(*(done(word) for word in sys.argv[1:] if not word.startswith("--")))

    for each in asyncio.run(all_done()):
        sys.stdout.write(json.dumps(each) + "\n")


def text_of(blocks: Sequence[Any]) -> str:
    """The text of a result's blocks."""
    return " ".join(getattr(block, "text", block.type) for block in blocks)
