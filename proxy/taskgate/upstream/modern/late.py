"""Late answers to calls that were given up: `Late` awaits them, to cancel their tasks.

A server may make a task of a call at the moment at which the call is cancelled. Only the answer has
the id of that task. So after the cancellation the answer is awaited for a short time, and if it
announces a task, that is cancelled. `ServerTasks` sends through it every call that may become a
task.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.upstream.calls import Call
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE


class Late:
    """Requests of one session whose answers may announce tasks. `end` is called with a call and its
    task, and cancels the task at the server, in the background."""

    def __init__(self, upstream_context: ModernUpstreamContext, end: Callable[[Call, str], None]) -> None:
        self._upstream_context = upstream_context
        self._end = end
        self._answers: set[asyncio.Task[Response]] = set()

    async def asked(self, call: Call, request: Coroutine[Any, Any, Response]) -> Response:
        """Await `request`, which sends the call, and return its answer. Raises UpstreamFailed.

        If this is cancelled after the call was sent, the request stays open for a short time, for a
        late answer.
        """
        answer = asyncio.get_running_loop().create_task(request)
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._outwait(call, answer)
            raise

    async def over(self) -> None:
        """Wait until no answer is awaited any more."""
        while self._answers:
            await asyncio.wait(tuple(self._answers))

    async def close(self) -> None:
        """Stop to wait for answers."""
        for answer in self._answers:
            answer.cancel()
        await self.over()

    def _outwait(self, call: Call, answer: asyncio.Task[Response]) -> None:
        """Await the answer to a cancelled call for a short time, without its listener."""
        # Another process resumes the call, so its task must not be cancelled.
        continues_elsewhere = call.is_left
        call.listener = None
        patience = asyncio.get_running_loop().call_later(SIGN_OF_LIFE.total_seconds(), answer.cancel)
        answer.add_done_callback(partial(self._came, call, patience))
        if continues_elsewhere or not call.sent:
            answer.cancel()

    def _came(self, call: Call, patience: asyncio.TimerHandle, answer: asyncio.Task[Response]) -> None:
        """Handle the end of the wait: cancel the task that the answer announces, if any."""
        patience.cancel()
        if answer.cancelled() or answer.exception() is not None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.read_created_task(TOOLS_CALL, answer.result())
            if task is not None and not task.status.is_terminal:
                self._end(call, task.id)
