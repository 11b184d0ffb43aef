"""Calls that a modern server makes tasks of: `ModernFollowedTasks` follows and cancels them.

    tasks/get      at the interval that the server asks for, sooner if the server reports a change
    tasks/update   the answers to its questions, before the next poll
    tasks/cancel   if following it ends before the task does

The host sees an ordinary call that takes long (docs/decisions/0041). `RoundRunner` sends calls that
may become tasks by `asked`, and calls `follow` with the task that an answer announces. A
`ModernTaskFollower` then polls the task to its end. Status messages of the task become progress of the
call, its input requests become questions (`TaskQuestions`), and its result becomes the response. The
task of a call that another process resumes runs on. `ServerTaskRequests` sends the requests, and
`ServerTaskStreams` hears of changes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import MODERN, Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import (
    EncodedRequest,
    Question,
    ServerSubscription,
    ServerTask,
    progress_done,
    text_progress,
)
from taskgate.protocol.vocabulary import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_UPDATE,
    TOOLS_CALL,
    UNSUPPORTED_VERSION,
)
from taskgate.system.background import cancel_and_wait
from taskgate.system.offload import offload
from taskgate.upstream import failures
from taskgate.upstream.calls import Resumed, ResumePoint, RunningCall, briefly
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.questions import TaskQuestions
from taskgate.upstream.modern.subscriptions import SubscriptionStream
from taskgate.upstream.pauses import LEAST
from taskgate.upstream.server_tasks import PERMANENT, LateAnswers, TaskFollower


class ServerTaskRequests:
    """The sender of requests about the server's tasks, for one session.

    In each method `of` is the call that became the task; the request is sent for its principal.
    `task` is the id of the task at the server. Each returns the server's answer, which may be a
    JSON-RPC error, and raises UpstreamFailed without one.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._host = host
        self._clock = clock

    async def get(self, of: RunningCall, task: str) -> Response:
        """Poll the task by `tasks/get`: the answer has its state, and its result once it ended."""
        call = self._call(of)
        return await self._ask(TASKS_GET, call, self._upstream_context.dialect.get_task(call.id, task, self._host))

    async def update(self, of: RunningCall, task: str, answers: RawJson) -> Response:
        """Send answers to questions of the task (`input_required`) by `tasks/update`."""
        call = self._call(of)
        return await self._ask(
            TASKS_UPDATE, call, self._upstream_context.dialect.update_task(call.id, task, answers, self._host)
        )

    async def cancel(self, of: RunningCall, task: str) -> Response:
        """Cancel the task by `tasks/cancel`."""
        call = self._call(of)
        return await self._ask(
            TASKS_CANCEL, call, self._upstream_context.dialect.cancel_task(call.id, task, self._host)
        )

    def _call(self, of: RunningCall) -> RunningCall:
        """Return a call with an id of its own for one request, without a listener.

        Its timers never start: `ModernExchanges.ask` bounds the wait for the answer's
        head, and the silence in its body, by `first_byte`.
        """
        return RunningCall(
            next(self._upstream_context.ids),
            None,
            briefly(self._upstream_context.settings.first_byte),
            principal=of.principal,
        )

    async def _ask(self, method: str, call: RunningCall, written: EncodedRequest) -> Response:
        """Send the request, and report it to the observer once, on every path."""
        clock, began = self._clock, self._clock.elapsed()
        # Stays if the wait is cancelled, or something unexpected is raised.
        error: str | None = "cancelled"
        try:
            patience = self._upstream_context.settings.first_byte
            response = await self._exchanges.ask(call, written, patience, follows=True)
            error = None if response.error is None else str(response.error_code)
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            self._upstream_context.observer.answered(method, clock.elapsed() - began, error, False)
        return response


RARE: Final = 2.0
"""Seconds between two polls from which on a stream is worth its connection."""


class ServerTaskStreams:
    """The task streams of one upstream session, which closes it at its end.

    If the server refuses a stream, or opens one that will not report its task, no more are opened
    for this session.
    """

    def __init__(self, upstream_context: ModernUpstreamContext, host: Peer | None, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._clock = clock
        self._streams: set[SubscriptionStream] = set()
        # False once the server has refused a stream, or did not grant the task of one.
        self._are_told = True

    def listen(self, task: str, interval: float | None, tell: Callable[[], None]) -> SubscriptionStream | None:
        """Open a stream that calls `tell` for each report on the task, and return it at once. The
        caller must stop it.

        Returns None, and opens none, if it is of no use: the server gives no reports, or the task
        is polled often anyway. `interval` is the poll interval in seconds; None if unknown.
        """
        if not self._are_told or interval is None or interval < RARE:
            return None

        def heard(about: str) -> None:
            if about == task:
                tell()

        # Called whenever the server has opened the stream, and has said what it will report.
        def stands(stream: SubscriptionStream, *, again: bool) -> None:
            if task not in stream.tasks:
                self._are_told = False
                stream.stop()

        wants = ServerSubscription(tasks=(task,))
        stream = SubscriptionStream(
            self._upstream_context, wants, self._host, hear=_ignore, news=heard, stands=stands, clock=self._clock
        )
        self._streams.add(stream)
        stream.when_over(self._end)
        return stream

    async def close(self) -> None:
        """End all streams, and wait until they have ended."""
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    def _end(self, stream: SubscriptionStream) -> None:
        """Forget a stream that was stopped or refused."""
        self._streams.discard(stream)
        if stream.is_refused:
            self._are_told = False


def _ignore(notification: Notification) -> None:
    """Ignore a notification that is no report: the stream was opened for a task alone."""


_SPOKEN: Final = MODERN[-1].value
"""The revision that resume points name."""

_UNKNOWN: Final = frozenset(
    {INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, HEADER_MISMATCH, UNSUPPORTED_VERSION}
)
"""Error codes by which a server says that it does not have this task."""


class ModernTaskFollower(TaskFollower):
    """The `TaskFollower` of this era. `task` is its first state.

    `asked` are questions that an earlier process may have left open.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        requests: ServerTaskRequests,
        streams: ServerTaskStreams,
        call: RunningCall,
        task: ServerTask,
        asked: Mapping[str, Question],
    ) -> None:
        assert call.listener is not None, "only a call with a listener becomes a task"
        super().__init__(task.id, asyncio.Event())
        self._dialect = upstream_context.dialect
        self._outlives = upstream_context.outlives
        self._requests = requests
        self._streams = streams
        self._stream: SubscriptionStream | None = None
        self._call = call
        self._listener = call.listener
        self._asked = asked
        # Wakes this when it has answers to send, or cannot go on.
        self._questions = TaskQuestions(upstream_context, host, call, self._woken.set)
        # The newest known state of the task.
        self._state = task
        # How many status messages were made progress notifications.
        self._messages = 0
        # Whether the listener has a resume point of the task.
        self._has_resume_point = False

    @property
    def _interval(self) -> float | None:
        return self._state.interval

    def _begin(self) -> None:
        self._poll_due += self._schedule.after(self._interval)
        # A resumed call (with `asked`) has a stored resume point with those questions. One made
        # before `recall` would lack them.
        if not self._asked:
            self._store_resume_point()
        self._report_message()
        self._questions.recall(self._asked)

    def _due(self) -> float | None:
        return self._poll_due

    async def _step(self) -> Response | None:
        if self._questions.is_hopeless:
            # The task cannot go on; it is cancelled by the caller of `response`.
            return self._dialect.unanswered_error(self._call.id)
        if self._questions.given:
            await self._send_answers()
        return await self._poll() if self._now() >= self._poll_due else None

    async def _end(self) -> None:
        if self._stream is not None:
            self._stream.stop()
        self._questions.close()

    def _on_server_report(self) -> None:
        """Bring the next poll forward: the server reported on this task (`ServerTaskStreams`). Reports only
        hint at a change; the poll tells the state."""
        # At most this often, however many reports come.
        self._poll_due = min(self._poll_due, self._polled_at + LEAST)
        self._woken.set()

    async def _send_answers(self) -> None:
        """Send the answers; if they do not arrive, they are sent again before the next poll."""
        given = self._questions.bringing()
        answers = self._dialect.input_responses(given)
        assert answers is not None, "every answer can be encoded"
        try:
            response = await self._requests.update(self._call, self.id, answers)
        except UpstreamFailed as failure:
            if failure.reason in PERMANENT:
                raise
            return
        self._questions.brought(given, response)
        self._store_resume_point()

    async def _ask_for_state(self) -> ServerTask | None:
        response = await self._requests.get(self._call, self.id)
        state = await offload(len(response.text), partial(self._dialect.read_task, self._call.id, self.id, response))
        if response.error_code in _UNKNOWN:
            self.is_settled = True
            raise failures.Gone
        return state

    def _plan_retry(self, failure: UpstreamFailed | None) -> None:
        if failure is not None and failure.reason == UpstreamReason.REFUSED.value:
            # The caller of an expired token may have sent a newer one since.
            self._call.principal = None
        super()._plan_retry(failure)

    def _lost_sight(self, failure: UpstreamFailed | None) -> UpstreamFailed:
        return failures.lost_sight(failure)

    def _take_state(self, state: ServerTask) -> Response | None:
        """Store the state that a poll shows, and ask its new questions.

        Returns the response if the task has ended, or the server refused an answer for good.
        Raises UpstreamFailed if the server cancelled it.
        """
        before, self._state = self._state, state
        if (before.status, before.message, before.updated) != (state.status, state.message, state.updated):
            self._call.progressed()
        self._questions.show(state.questions)
        if not self._has_resume_point:
            self._store_resume_point()
        if not state.status.is_terminal:
            if self._stream is None:
                self._stream = self._streams.listen(self.id, state.interval, self._on_server_report)
            if state.message != before.message:
                self._report_message()
            return self._questions.refusal
        self.is_settled = True
        if state.status is TaskStatus.CANCELLED:
            raise failures.called_off()
        return state.response or self._questions.refusal

    def _store_resume_point(self) -> None:
        """Give the listener a resume point, unless an answer is still to be sent, which another
        process would not have."""
        if self._outlives and not self._questions.given:
            self._has_resume_point = True
            self._listener.on_checkpoint(ResumePoint(revision=_SPOKEN, task=self.id))

    def _report_message(self) -> None:
        """Report the task's status message as progress of the call."""
        message, last = self._state.message, self._call.last_progress
        if message is not None:
            self._messages += 1
            after = None if last is None else progress_done(last)
            self._listener.on_notification(text_progress(self._call.id, message, self._messages, after or 0.0))


PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each further attempt to cancel a task; until the cancellation arrives, the server
works in vain."""

log = getLogger("taskgate.upstream")


class ModernFollowedTasks:
    """The tasks that the calls of one session became."""

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._requests = ServerTaskRequests(upstream_context, exchanges, host, clock)
        self._streams = ServerTaskStreams(upstream_context, host, clock)
        # How many calls `follow` waits for now.
        self._followed = 0
        self._follower_ended = asyncio.Event()
        # Cancellations that are being sent.
        self._ending: set[asyncio.Task[None]] = set()
        self._late = LateAnswers()

    def asked(self, call: RunningCall, request: Coroutine[Any, Any, Response]) -> Coroutine[Any, Any, Response]:
        """Await `request`, which sends a call that may become a task, and return its answer.

        If that is cancelled, a task that a late answer announces is cancelled at the server.
        """
        patience, came = SIGN_OF_LIFE.total_seconds(), partial(self._cancel_late, call)
        return self._late.first(request, patience=patience, given_up=partial(_is_awaited, call), came=came)

    async def follow(
        self, call: RunningCall, task: ServerTask, asked: Mapping[str, Question] | None = None
    ) -> Response:
        """Return the response of a call that became this task. `asked` are questions that an
        earlier process may have left open.

        Raises UpstreamFailed, dispatched. If this ends before the task does, the task is cancelled
        at the server, unless another process resumes the call.
        """
        call.is_task = True
        follower = ModernTaskFollower(
            self._upstream_context, self._host, self._requests, self._streams, call, task, asked or {}
        )
        self._followed += 1
        continues_elsewhere = False
        try:
            return await follower.response()
        except asyncio.CancelledError:
            continues_elsewhere = call.is_left
            raise
        except UpstreamFailed as failure:
            raise failures.sent(failure) from None
        finally:
            # The server may still work on it, without use.
            if not follower.is_settled and not continues_elsewhere:
                self._end(call, task.id)
            self._followed -= 1
            self._follower_ended.set()

    async def resume(self, call: RunningCall, resumed: Resumed) -> Response:
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
                while self._late.awaited:
                    await asyncio.wait(tuple(self._late.awaited))
                while self._ending:
                    await asyncio.wait(tuple(self._ending))
        await self._streams.close()
        await self._late.close()
        await cancel_and_wait(*self._ending)

    def _cancel_late(self, call: RunningCall, response: Response | None) -> None:
        """Cancel the task that a late answer announces, if any. Called when its request has ended."""
        if response is None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.read_created_task(TOOLS_CALL, response)
            if task is not None and not task.status.is_terminal:
                self._end(call, task.id)

    def _end(self, call: RunningCall, task: str) -> None:
        """Cancel a task at the server, in the background."""
        ending = asyncio.get_running_loop().create_task(self._call_off(call, task))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _call_off(self, call: RunningCall, task: str) -> None:
        """Try to cancel a task at the server; a cancellation that arrives twice is harmless."""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            try:
                await self._requests.cancel(call, task)
            except UpstreamFailed as failure:
                if failure.reason in PERMANENT:
                    break
                if failure.reason == UpstreamReason.REFUSED.value:
                    # The caller's token may have expired: use the newest of the session.
                    call.principal = None
            else:
                return
        name = self._upstream_context.settings.name
        log.warning("a task of a server could not be cancelled", extra={"upstream": name})


def _is_awaited(call: RunningCall) -> bool:
    """Whether the answer to a call that was given up matters. From now on it has no listener.

    If another process resumes the call, its task must not be cancelled.
    """
    is_left, call.listener = call.is_left, None
    return call.sent and not is_left
