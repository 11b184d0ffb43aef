"""One task of a legacy server, followed to its end: `TaskFollower` polls and gets the result.

    tasks/get      while it is working, at the interval that the server asks for
    tasks/result   once it is over or requires input; the request stays open

The server asks its questions on the stream of `tasks/result` (L-INPUT-3), so that request is sent
as soon as the task requires input. `native` creates a follower for each such call, and cancels the
task at the server if the call is given up. A task survives lost connections: the follower goes on
in whichever connection the session has.
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
from taskgate.upstream.calls import CallBounds, UpstreamCall, briefly
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.legacy.followed import TaskCall
from taskgate.upstream.legacy.talk import Talk
from taskgate.upstream.looks import Looks

Ask = Callable[..., Coroutine[Any, Any, Response]]
"""Sends one request of a session, in its current connection; opens one if there is none. It is
`HttpSession._ask`."""

_FOR_GOOD: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Failures that would be the same for every retry."""
_ENDLESS: Final = timedelta(days=36_500).total_seconds()
"""Timeout of `tasks/result`: its call has the real one."""


class TaskFollower:
    """Follower of one task. Its whole life is one call of `outcome`.

    `ask` sends a request of the session. `talk` returns the current connection, None without one.
    """

    def __init__(
        self, upstream_context: UpstreamContext, call: TaskCall, *, ask: Ask, talk: Callable[[], Talk | None]
    ) -> None:
        self._upstream_context = upstream_context
        self._call = call
        self._ask = ask
        self._talk = talk
        # The connection in which the call was registered last.
        self._registered_in: Talk | None = None
        self._about = upstream_context.dialect.tasks.params(call.task.id)
        self._looks = Looks(call.task.id)
        # The loop times before which neither is sent: the next poll, and the next `tasks/result`.
        self._poll_due = self._result_due = 0.0
        self._result_request: asyncio.Task[Response] | None = None
        # Whether no request failed since the last answered poll.
        self._was_answered = True
        self.is_settled = False
        """Whether the task needs no cancellation: it has ended, or the server does not know it."""

    async def outcome(self, task: ServerTask | None) -> Response:
        """Return the response of the call that became the task.

        `task` is the first state of the task, None if it is unknown: then a poll finds it. Raises
        UpstreamFailed: Gone if the server does not know the task.
        """
        call = self._call
        self._register()
        if task is not None:
            self._take_state(task)
        try:
            while True:
                self._request_result()
                await self._wait()
                # The stored resume point has questions that are no longer open.
                if call.is_ahead and self._registered_in is not None:
                    self._store_resume_point(self._registered_in)
                if self._result_request is not None and self._result_request.done():
                    response = await self._result_of(self._result_request)
                    if response is not None:
                        self.is_settled = True
                        return response
                elif not call.is_over() and self._now() >= self._poll_due:
                    await self._poll()
        finally:
            await self._drop_result_request()

    def _request_result(self) -> None:
        """Send `tasks/result` in the background, if it is due and not under way."""
        call = self._call
        if self._result_request is not None or call.is_working() or self._now() < self._result_due:
            return

        # Called at the moment of sending: the connection may be a new one.
        def numbered(id: int) -> None:
            self._register()
            if self._registered_in is not None:
                self._registered_in.conversation.followed.has_part(id, call)

        request = UpstreamCall(TASKS_RESULT, self._about, bounds=CallBounds(_ENDLESS, _ENDLESS, call.bounds.idle))
        self._result_request = asyncio.get_running_loop().create_task(self._ask(request, numbered=numbered))
        self._result_request.add_done_callback(lambda _: call.stirs.set())

    async def _wait(self) -> None:
        """Wait until the task changes, `tasks/result` is answered, or a request is due."""
        call = self._call
        times = [] if call.is_over() else [self._poll_due]
        if self._result_request is None and not call.is_working():
            times.append(self._result_due)
        timer = asyncio.get_running_loop().call_at(min(times), call.stirs.set) if times else None
        try:
            await call.stirs.wait()
        finally:
            call.stirs.clear()
            if timer is not None:
                timer.cancel()

    async def _result_of(self, asking: asyncio.Task[Response]) -> Response | None:
        """Return the response of the call from the answer to `tasks/result`.

        None if `tasks/result` must be sent again.
        """
        call = self._call
        self._result_request = None
        try:
            response = asking.result()
        except UpstreamFailed as failure:
            self._plan_retry(failure)
            return None
        result = await self._read_outcome(response)
        if result is not None or call.is_over():
            return result
        # The answer holds no result, and the task was not over when last polled. It may have ended
        # since, or the server answers `tasks/result` too early.
        await self._poll()
        self._result_due = max(self._result_due, self._poll_due)
        return await self._read_outcome(response) if call.is_over() else None

    async def _read_outcome(self, response: Response) -> Response | None:
        """Return the response of the call from the answer to `tasks/result`; None if it has none.

        After an error that says nothing about the task, a retry is planned. Raises UpstreamFailed
        if the task was cancelled, is unknown to the server, or if requests fail for too long.
        """
        read = partial(self._upstream_context.dialect.tasks.read_outcome, self._call.task, response)
        try:
            return await offload(len(response.text), read)
        except UpstreamFailed as failure:
            if failure.reason != UpstreamReason.REFUSED.value:
                self.is_settled = True
                raise
            self._plan_retry(failure)
            return None

    async def _poll(self) -> None:
        """Send `tasks/get`; store the state or plan a retry.

        Raises Gone for an unknown task, and UpstreamFailed if a retry is useless.
        """
        call, upstream_context = self._call, self._upstream_context
        bounds = briefly(upstream_context.settings.first_byte)
        try:
            # Asked for the principal of the session: the caller and their token may be gone by now.
            response = await self._ask(UpstreamCall(TASKS_GET, self._about, bounds=bounds))
            task = upstream_context.dialect.tasks.read_state(call.task.id, response)
        except UpstreamFailed as failure:
            self._plan_retry(failure)
            return
        if task is None:
            self.is_settled = True
            raise failures.Gone
        self._take_state(task)

    def _take_state(self, task: ServerTask) -> None:
        """Store the state of an answered poll, and plan the next one."""
        self._register()
        self._was_answered = True
        self._call.shows(task)
        self._poll_due = self._now() + self._looks.after(self._call.task.interval)

    def _register(self) -> None:
        """Register the call in the current connection, if it is a new one, with a resume point."""
        call, talk = self._call, self._talk()
        if talk is None or talk is self._registered_in:
            return
        self._registered_in = talk
        talk.conversation.met(call.id, call)
        self._store_resume_point(talk)

    def _store_resume_point(self, talk: Talk) -> None:
        """Give the listener a resume point: the task, in the server session of this connection."""
        self._call.is_ahead = False
        talk.conversation.hold(self._call, task=self._call.task.id)

    def _plan_retry(self, failure: UpstreamFailed) -> None:
        """Plan a retry after a failed request. Raises the failure where a retry is useless.

        That is so if it would fail again, or if requests have failed for too long.
        """
        now = self._now()
        pause = None
        if failure.reason not in _FOR_GOOD:
            # Without a valid token nothing was sent, so that does not count as a failing server.
            # The caller may send a new token as long as the call has time.
            was_made = not isinstance(failure, failures.StaleToken)
            pause = self._looks.after_failure(self._call.task.interval, now, was_made=was_made)
        if pause is None:
            raise failures.sent(failure) from failure
        if failure.reason == UpstreamReason.SESSION_LOST.value and self._was_answered:
            # The server did answer, and a new session will be opened.
            pause = 0.0
        self._was_answered = False
        if failure.retry_after is not None:
            pause = max(pause, failure.retry_after.total_seconds())
        self._poll_due = self._result_due = now + pause

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _drop_result_request(self) -> None:
        """Cancel `tasks/result`, if it is under way."""
        asking, self._result_request = self._result_request, None
        if asking is None:
            return
        asking.cancel()
        await asyncio.wait((asking,))
        if not asking.cancelled():
            # Retrieving the exception marks it as seen.
            asking.exception()
