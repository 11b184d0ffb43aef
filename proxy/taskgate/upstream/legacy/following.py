"""One task of a legacy server, followed to its end: `TaskFollower` polls and gets the result.

    tasks/get      while it is working, at the interval that the server asks for
    tasks/result   once it is over or requires input; the request stays open

The server asks its questions on the stream of `tasks/result` (L-INPUT-3), so that request is sent
as soon as the task requires input. `native` creates the follower and ends the task.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import ServerTask
from taskgate.protocol.vocabulary import TASKS_GET, TASKS_RESULT
from taskgate.system.offload import offload
from taskgate.upstream import failures
from taskgate.upstream.calls import UpstreamContext, UpstreamRequest
from taskgate.upstream.legacy.followed import TaskCall
from taskgate.upstream.legacy.talk import Talk
from taskgate.upstream.looks import Looks
from taskgate.upstream.patience import CallBounds, briefly

Ask = Callable[[UpstreamRequest], Coroutine[Any, Any, Response]]
"""Sends one request of a session, in its current connection."""

_FOR_GOOD: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Failures that would be the same for every retry."""
_ENDLESS: Final = timedelta(days=36_500).total_seconds()
"""Timeout of `tasks/result`: its call has the real one."""


class TaskFollower:
    """Follows one task. `talk` returns the current connection, if any."""

    def __init__(
        self, upstream_context: UpstreamContext, call: TaskCall, *, ask: Ask, talk: Callable[[], Talk | None]
    ) -> None:
        self._upstream_context = upstream_context
        self._call = call
        self._ask = ask
        self._talk = talk
        self._stands_in: Talk | None = None
        self._looks = Looks(call.task.id)
        self._look_at = self._hold_at = 0.0
        self._held: asyncio.Task[Response] | None = None
        self._was_seen = True
        self.is_settled = False
        """Whether there is nothing left to end at the server."""

    async def outcome(self, task: ServerTask | None) -> Response:
        """Return the response of the call that became the task. `task` is its handle, None if
        unknown.

        Raises UpstreamFailed.
        """
        call = self._call
        self._stand()
        if task is not None:
            self._seen(task)
        try:
            while True:
                self._hold()
                await self._stirred()
                if call.is_ahead and self._stands_in is not None:
                    self._place(self._stands_in)
                if self._held is not None and self._held.done():
                    response = await self._came_of(self._held)
                    if response is not None:
                        self.is_settled = True
                        return response
                elif not call.is_over() and self._now() >= self._look_at:
                    await self._look()
        finally:
            await self._let_go()

    def _hold(self) -> None:
        """Send `tasks/result` when it is due."""
        call = self._call
        if self._held is not None or call.is_working() or self._now() < self._hold_at:
            return
        about = self._about(TASKS_RESULT)

        def write(id: int) -> str:
            self._stand()
            if self._stands_in is not None:
                self._stands_in.conversation.followed.has_part(id, call)
            return about(id)

        errand = UpstreamRequest(TASKS_RESULT, write, CallBounds(_ENDLESS, _ENDLESS, call.bounds.idle))
        self._held = asyncio.get_running_loop().create_task(self._ask(errand))
        self._held.add_done_callback(lambda _: call.stirs.set())

    async def _stirred(self) -> None:
        """Wait until the task changes, the result arrives, or a request is due."""
        call = self._call
        times = [] if call.is_over() else [self._look_at]
        if self._held is None and not call.is_working():
            times.append(self._hold_at)
        timer = asyncio.get_running_loop().call_at(min(times), call.stirs.set) if times else None
        try:
            await call.stirs.wait()
        finally:
            call.stirs.clear()
            if timer is not None:
                timer.cancel()

    async def _came_of(self, held: asyncio.Task[Response]) -> Response | None:
        """Return the result of the call from the answer to `tasks/result`; None if it must be asked
        again."""
        call = self._call
        self._held = None
        try:
            response = held.result()
        except UpstreamFailed as failure:
            self._stumble(failure)
            return None
        came = await self._read(response)
        if came is not None or call.is_over():
            return came
        # The task may have ended since, or the server does not hold `tasks/result` open.
        await self._look()
        self._hold_at = max(self._hold_at, self._look_at)
        return await self._read(response) if call.is_over() else None

    async def _read(self, response: Response) -> Response | None:
        read = partial(self._upstream_context.dialect.tasks.read_outcome, self._call.task, response)
        try:
            return await offload(len(response.text), read)
        except UpstreamFailed as failure:
            if failure.reason != UpstreamReason.REFUSED.value:
                self.is_settled = True
                raise
            self._stumble(failure)
            return None

    async def _look(self) -> None:
        """Poll the task."""
        call, upstream_context = self._call, self._upstream_context
        bounds = briefly(upstream_context.settings.first_byte)
        try:
            # Asked for the principal of the session: the caller and their token may be gone by now.
            response = await self._ask(UpstreamRequest(TASKS_GET, self._about(TASKS_GET), bounds))
            shown = upstream_context.dialect.tasks.read_state(call.task.id, response)
        except UpstreamFailed as failure:
            self._stumble(failure)
            return
        if shown is None:
            self.is_settled = True
            raise failures.Gone
        self._seen(shown)

    def _seen(self, task: ServerTask) -> None:
        """Take the state of an answered poll, and schedule the next one."""
        self._stand()
        self._was_seen = True
        self._call.shows(task)
        self._look_at = self._now() + self._looks.after(self._call.task.interval)

    def _stand(self) -> None:
        """Register with the current connection, and give the listener a resume point there."""
        call, talk = self._call, self._talk()
        if talk is None or talk is self._stands_in:
            return
        self._stands_in = talk
        talk.conversation.met(call.id, call)
        self._place(talk)

    def _place(self, talk: Talk) -> None:
        self._call.is_ahead = False
        talk.conversation.hold(self._call, task=self._call.task.id)

    def _stumble(self, failure: UpstreamFailed) -> None:
        """Schedule a retry after a failed request. Raises the failure where a retry is useless."""
        now = self._now()
        pause = None
        if failure.reason not in _FOR_GOOD:
            # The caller may send a new token as long as the call has time.
            was_made = not isinstance(failure, failures.StaleToken)
            pause = self._looks.after_failure(self._call.task.interval, now, was_made=was_made)
        if pause is None:
            raise failures.sent(failure) from failure
        if failure.reason == UpstreamReason.SESSION_LOST.value and self._was_seen:
            # The server did answer, and a new session will be opened.
            pause = 0.0
        self._was_seen = False
        if failure.retry_after is not None:
            pause = max(pause, failure.retry_after.total_seconds())
        self._look_at = self._hold_at = now + pause

    def _about(self, method: str) -> Callable[[int], str]:
        return partial(self._upstream_context.dialect.tasks.request, method=method, task=self._call.task.id)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _let_go(self) -> None:
        """Cancel the request for the result."""
        held, self._held = self._held, None
        if held is None:
            return
        held.cancel()
        await asyncio.wait((held,))
        if not held.cancelled():
            held.exception()
