"""Calls that a modern server makes tasks of: `ServerTasks` follows and cancels them.

The host sees an ordinary call that takes long (docs/decisions/0041). `RoundRunner` sends calls that
may become tasks by `asked`, and calls `follow` with the task that an answer announces.
`FollowedTask` then polls the task to its end. If the wait for it ends before, the task is cancelled
at the server, in the background, with a few attempts. A task that another process resumes is left
alone.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from logging import getLogger
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import Question, ServerTask
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.follow_ups import FOR_GOOD, FollowUps
from taskgate.upstream.modern.followed import FollowedTask
from taskgate.upstream.modern.late import Late
from taskgate.upstream.modern.task_news import ServerTaskNews
from taskgate.upstream.modern.task_questions import TaskQuestions
from taskgate.upstream.resume_points import Resumed

PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each further attempt to cancel a task; until the cancellation arrives, the server
works in vain."""

log = getLogger("taskgate.upstream")


class ServerTasks:
    """The tasks that the calls of one session became."""

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._follow_ups = FollowUps(upstream_context, exchanges, host, clock)
        self._news = ServerTaskNews(upstream_context, host, clock)
        # How many calls `follow` waits for now.
        self._followed = 0
        self._follower_ended = asyncio.Event()
        # Cancellations that are being sent.
        self._ending: set[asyncio.Task[None]] = set()
        self._late = Late(upstream_context, self._end)

    def asked(self, call: Call, request: Coroutine[Any, Any, Response]) -> Coroutine[Any, Any, Response]:
        """Await `request`, which sends a call that may become a task, and return its answer.

        If that is cancelled, a task that a late answer announces is cancelled at the server.
        """
        return self._late.asked(call, request)

    async def follow(self, call: Call, task: ServerTask, asked: Mapping[str, Question] | None = None) -> Response:
        """Return the response of a call that became this task. `asked` are questions that an
        earlier process may have left open.

        Raises UpstreamFailed, dispatched. If this ends before the task does, the task is cancelled
        at the server, unless another process resumes the call.
        """
        call.is_task = True
        followed = FollowedTask(self._upstream_context, self._follow_ups, self._news, call, task)
        questions = TaskQuestions(self._upstream_context, self._host, call, followed.stir)
        self._followed += 1
        continues_elsewhere = False
        try:
            return await followed.response(questions, asked or {})
        except asyncio.CancelledError:
            continues_elsewhere = call.is_left
            raise
        except UpstreamFailed as failure:
            raise failures.sent(failure) from None
        finally:
            # The server may still work on it, without use.
            if followed.runs and not continues_elsewhere:
                self._end(call, task.id)
            self._followed -= 1
            self._follower_ended.set()

    async def resume(self, call: Call, resumed: Resumed) -> Response:
        """Return the response of a call that another process sent and that became a task. Raises
        UpstreamFailed."""
        # It counts as sent: the server may have acted.
        call.sent = True
        task = resumed.resume_point.task
        if task is None:
            raise failures.Gone
        return await self.follow(call, ServerTask(task, TaskStatus.WORKING), resumed.asked)

    async def close(self) -> None:
        """Wait a short time for the end of all calls, and until their cancellations have arrived at
        the server. Then stop.

        The session has ended the waits of its calls before.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE.total_seconds()):
                while self._followed:
                    self._follower_ended.clear()
                    await self._follower_ended.wait()
                await self._late.over()
                while self._ending:
                    await asyncio.wait(tuple(self._ending))
        await self._news.close()
        await self._late.close()
        for ending in self._ending:
            ending.cancel()
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    def _end(self, call: Call, task: str) -> None:
        """Cancel a task at the server, in the background."""
        ending = asyncio.get_running_loop().create_task(self._call_off(call, task))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _call_off(self, call: Call, task: str) -> None:
        """Try to cancel a task at the server; a cancellation that arrives twice is harmless."""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            try:
                await self._follow_ups.end(call, task)
            except UpstreamFailed as failure:
                if failure.reason in FOR_GOOD:
                    break
                if failure.reason == UpstreamReason.REFUSED.value:
                    # The caller's token may have expired: use the newest of the session.
                    call.principal = None
            else:
                return
        name = self._upstream_context.settings.name
        log.warning("a task of a server could not be cancelled", extra={"upstream": name})
