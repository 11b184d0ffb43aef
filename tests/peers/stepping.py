"""A host that does one step after the other as its input says, for hosts in Python; `stepping.mjs` is the same.

`run` reads one line of JSON for each step, `{"id", "on", "do", "with"}`, and prints one with the same `id` once it is
done; steps may overlap. `on` names a connection: `connect` makes it, with a URL and headers, `leave` ends it. What came
of a step is `error` (code, message and data) where the SDK gives its host an error of the protocol, `thrown` (the name
of the exception, its words and its HTTP status) where it gives anything else, and `gone` where the SDK has taken the
connection down.
"""

import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

Told = dict[str, Any]
ENDS_WITHIN = 20.0
"""Seconds for one step."""


class Host(Protocol):
    """A host that is connected. Each step may raise whatever its SDK does."""

    async def call(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        """A call as a user of the SDK makes it: `text` and `is_error`."""
        ...

    async def task(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        """A call as a task, not waited for: `task` is its id."""
        ...

    async def look(self, task: str) -> Told:
        """The `status` and the `message` of a task."""
        ...

    async def cancel(self, task: str) -> Told:
        """A task is cancelled."""
        ...

    async def outcome(self, task: str) -> Told:
        """What a call told that is a task, waited for."""
        ...

    def error_of(self, error: Exception) -> Told | None:
        """Code, message and data, where it is an error of the protocol to the SDK."""
        ...


Connect = Callable[[str, Mapping[str, str]], AbstractAsyncContextManager[Host]]


def told_of(host: Host, error: Exception) -> Told:
    """What a host was told by an exception."""
    known = host.error_of(error)
    return {"thrown": [type(error).__name__, str(error), None]} if known is None else {"error": known}


def innermost(error: BaseException) -> str:
    """The name and the words of an exception, or of the first one in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class Connection:
    """One connection, which lives in a task of its own: SDKs want to be left where they were entered."""

    def __init__(self, connect: Connect, url: str, headers: Mapping[str, str]) -> None:
        self._entered: asyncio.Future[Host] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._ended = ""
        self._life = asyncio.create_task(self._live(connect, url, headers))

    async def _live(self, connect: Connect, url: str, headers: Mapping[str, str]) -> None:
        try:
            async with connect(url, headers) as host:
                self._entered.set_result(host)
                await self._over.wait()
        except BaseException as error:
            self._ended = innermost(error)

    async def connected(self) -> Told:
        await asyncio.wait([self._entered, self._life], return_when=asyncio.FIRST_COMPLETED)
        return {"connected": True} if self._entered.done() else {"gone": self._ended}

    async def step(self, do: str, given: list[Any]) -> Told:
        """What came of it; a connection that is taken down meanwhile ends it."""
        if self._life.done():
            return {"gone": self._ended}
        host = self._entered.result()
        work = asyncio.create_task(getattr(host, do)(*given))
        done, _ = await asyncio.wait([work, self._life], timeout=ENDS_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        try:
            if work in done:
                told: Told = work.result()
                return told
        except Exception as error:
            return told_of(host, error)
        work.cancel()
        return {"gone": self._ended} if done else {"thrown": ["NoEnd", "no end", None]}

    async def leave(self) -> Told:
        self._over.set()
        await asyncio.wait([self._life], timeout=ENDS_WITHIN)
        return {"left": True}


async def serve(connect: Connect) -> None:
    """Does what the lines say until there are no more."""
    connections: dict[str, Connection] = {}

    async def do(step: dict[str, Any]) -> None:
        on, verb, given = step["on"], step["do"], step["with"]
        if verb == "connect":
            connections[on] = Connection(connect, *given)
            told = await connections[on].connected()
        elif verb == "leave":
            told = await connections[on].leave()
        else:
            told = await connections[on].step(verb, given)
        sys.stdout.write(json.dumps({"id": step["id"], **told}) + "\n")
        sys.stdout.flush()

    lines = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    going: set[asyncio.Task[None]] = set()
    async for line in lines:
        going.add(asyncio.create_task(do(json.loads(line))))


def run(connect: Connect) -> None:
    """Does what the lines say; the process ends with its input, whatever still runs."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with suppress(KeyboardInterrupt):
        asyncio.run(_until_told(connect))


async def _until_told(connect: Connect) -> None:
    await serve(connect)
    os._exit(0)
