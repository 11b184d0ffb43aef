"""A host on the official SDK, behind a balancer: what it was told is noted as any other host's.

Where a connection breaks under the SDK it begins anew with another session, as a person would start the host again.
What must not live here: hosts that say exactly what the test wants said (`hosts`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from chaos.history import Kind, Operation, Seen
from chaos.hosts import CANCELLED, ENDED, REFUSALS, UNKNOWN, Scene

PATIENCE: Final = 8.0
BROKEN: Final = (httpx.HTTPError, OSError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError)
_CONNECTION_CLOSED: Final = -32000
_TIMED_OUT: Final = 408


class OfficialCaller:
    """One caller with the SDK, one life after the other."""

    def __init__(self, scene: Scene, name: str, token: str, url: str) -> None:
        self.name = name
        self._scene = scene
        self._token = token
        self._url = url

    async def live(self, until: float) -> None:
        """Make tasks and wait for them until that moment."""
        while self._scene.now() < until:
            try:
                async with asyncio.timeout(2 * PATIENCE), self._session() as session:
                    while self._scene.now() < until and await self._make_one(session):
                        pass
            except BaseExceptionGroup as group:
                _, rest = group.split(BROKEN)
                if rest is not None:
                    raise rest from None
            except (*BROKEN, McpError):
                pass
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        head, timeout = {"Authorization": f"Bearer {self._token}"}, httpx.Timeout(PATIENCE)
        async with (
            httpx.AsyncClient(trust_env=False, headers=head, timeout=timeout) as http,
            streamable_http_client(self._url, http_client=http, terminate_on_close=False) as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            yield session

    async def _make_one(self, session: ClientSession) -> bool:
        """One task from its making to its outcome; whether the session is still good."""
        scene = self._scene
        call, tasks = next(scene.calls), session.experimental
        arguments = {"call": call, "caller": self.name, "seconds": scene.chance.choice((0.0, 0.2, 1.0))}
        made = await self._noted(Kind.CREATE, tasks.call_tool_as_task("work", arguments), call=call)
        if made.task is None:
            await asyncio.sleep(0.1)
            return made.seen is Seen.REFUSED
        scene.known.append((made.task, self.name))
        seen = [await self._noted(Kind.GET, tasks.get_task(made.task), task=made.task)]
        result = tasks.get_task_result(made.task, CallToolResult)
        seen.append(await self._noted(Kind.RESULT, result, task=made.task))
        return all(each.seen is not Seen.NO_ANSWER for each in seen)

    async def _noted(
        self, kind: Kind, asking: Awaitable[Any], *, task: str | None = None, call: int | None = None
    ) -> Operation:
        begun, found, text = self._scene.now(), None, ""
        try:
            async with asyncio.timeout(PATIENCE):
                seen, found, text = _told(kind, await asking)
        except McpError as refusal:
            seen, text = _refused(kind, refusal.error.code, refusal.error.message)
        except BROKEN as error:
            seen, text = Seen.NO_ANSWER, repr(error)
        operation = Operation(
            kind=kind,
            caller=self.name,
            begun=begun,
            ended=self._scene.now(),
            seen=seen,
            task=task or found,
            call=call,
            text=text,
            replica="any",
        )
        self._scene.history.operations.append(operation)
        return operation


def _told(kind: Kind, answer: Any) -> tuple[Seen, str | None, str]:
    if kind is Kind.CREATE:
        return Seen.WORKING, answer.task.taskId, ""
    if kind is Kind.GET:
        return Seen(answer.status), None, answer.statusMessage or ""
    return Seen.COMPLETED, None, "".join(block.text for block in answer.content if isinstance(block, TextContent))


def _refused(kind: Kind, code: int, words: str) -> tuple[Seen, str]:
    if code in REFUSALS:
        return Seen.REFUSED, f"{code} {words}"
    if code in (_CONNECTION_CLOSED, _TIMED_OUT):
        return Seen.NO_ANSWER, words
    if words == UNKNOWN:
        return Seen.UNKNOWN, words
    if words == ENDED:
        return Seen.ENDED_BEFORE, words
    if words == CANCELLED:
        return Seen.CANCELLED, ""
    if kind is Kind.RESULT and code == -32603:
        return Seen.FAILED, words
    return Seen.WRONG, f"{code} {words}"
