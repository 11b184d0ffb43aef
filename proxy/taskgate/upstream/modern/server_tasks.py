"""Calls that a modern server makes tasks of: `ServerTasks` follows and cancels them.

    tasks/get      at the interval that the server asks for, sooner if the server reports a change
    tasks/update   the answers to its questions, before the next poll
    tasks/cancel   if following it ends before the task does

The host sees an ordinary call that takes long (docs/decisions/0041). `RoundRunner` sends calls that
may become tasks by `asked`, and calls `follow` with the task that an answer announces. A
`TaskFollower` then polls the task to its end. Status messages of the task become progress of the
call, its input requests become questions (`TaskQuestions`), and its result becomes the response. The
task of a call that another process resumes runs on. `TaskRequests` sends the requests, `TaskStreams`
hears of changes, and `LateAnswers` waits for the answer of a call that was given up.
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
from taskgate.system.offload import offload
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, Resumed, ResumePoint, briefly
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.questions import TaskQuestions
from taskgate.upstream.modern.subscriptions import SubscriptionStream
from taskgate.upstream.pauses import LEAST, PollSchedule

PERMANENT: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Reasons of permanent failures, which a retry would meet again; others may be temporary. Callers
of `TaskRequests` stop at these."""


class TaskRequests:
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

    async def look(self, of: Call, task: str) -> Response:
        """Poll the task by `tasks/get`: the answer has its state, and its result once it ended."""
        call = self._call(of)
        return await self._ask(TASKS_GET, call, self._upstream_context.dialect.get_task(call.id, task, self._host))

    async def bring(self, of: Call, task: str, answers: RawJson) -> Response:
        """Send answers to questions of the task (`input_required`) by `tasks/update`."""
        call = self._call(of)
        return await self._ask(
            TASKS_UPDATE, call, self._upstream_context.dialect.update_task(call.id, task, answers, self._host)
        )

    async def end(self, of: Call, task: str) -> Response:
        """Cancel the task by `tasks/cancel`."""
        call = self._call(of)
        return await self._ask(
            TASKS_CANCEL, call, self._upstream_context.dialect.cancel_task(call.id, task, self._host)
        )

    def _call(self, of: Call) -> Call:
        """Return a call with an id of its own for one request, without a listener.

        Its timers never start: `ModernExchanges.ask` bounds the wait for the answer's
        head, and the silence in its body, by `first_byte`.
        """
        return Call(
            next(self._upstream_context.ids),
            None,
            briefly(self._upstream_context.settings.first_byte),
            principal=of.principal,
        )

    async def _ask(self, method: str, call: Call, written: EncodedRequest) -> Response:
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
            self._upstream_context.observer.answered(method, clock.elapsed() - began, error)
        return response


RARE: Final = 2.0
"""Seconds between two polls from which on a stream is worth its connection."""


class TaskStreams:
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


class LateAnswers:
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


_SPOKEN: Final = MODERN[-1].value
"""The revision that resume points name."""

_UNKNOWN: Final = frozenset(
    {INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, HEADER_MISMATCH, UNSUPPORTED_VERSION}
)
"""Error codes by which a server says that it does not have this task."""


class TaskFollower:
    """The task that one call became. `task` is its first state.

    `response` follows it once, and is cancelled if the call is given up.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        follow_ups: TaskRequests,
        news: TaskStreams,
        call: Call,
        task: ServerTask,
    ) -> None:
        assert call.listener is not None, "only a call with a listener becomes a task"
        self._dialect = upstream_context.dialect
        self._outlives = upstream_context.outlives
        self._follow_ups = follow_ups
        self._news = news
        self._stream: SubscriptionStream | None = None
        self._call = call
        self._listener = call.listener
        # The newest known state of the task.
        self._state = task
        self._looks = PollSchedule(task.id)
        # How many status messages were made progress notifications.
        self._messages = 0
        # Whether the listener has a resume point of the task.
        self._has_resume_point = False
        # Set when there may be something to do before the next poll is due.
        self._woken = asyncio.Event()
        # Loop times of the last poll, and of the next one.
        self._polled_at = self._poll_due = asyncio.get_running_loop().time()
        self.id = task.id
        self.runs = True
        """Whether the server may still work on it; if so when `response` ends, it must be
        cancelled."""

    async def response(self, questions: TaskQuestions, asked: Mapping[str, Question]) -> Response:
        """Follow the task and return the call's response. `asked` are questions that an earlier
        process may have left open.

        Raises UpstreamFailed: the server lost or cancelled the task, or polls failed for good or
        for too long.
        """
        self._poll_due += self._looks.after(self._state.interval)
        try:
            # A resumed call (with `asked`) has a stored resume point with those questions. One made
            # before `recall` would lack them.
            if not asked:
                self._store_resume_point(questions)
            self._report_message()
            questions.recall(asked)
            return await self._follow(questions)
        finally:
            if self._stream is not None:
                self._stream.stop()
            questions.close()

    def stir(self) -> None:
        """Wake the follower: `questions` has answers to send, or cannot go on."""
        self._woken.set()

    def _on_server_report(self) -> None:
        """Bring the next poll forward: the server reported on this task (`TaskStreams`). Reports only
        hint at a change; the poll tells the state."""
        # At most this often, however many reports come.
        self._poll_due = min(self._poll_due, self._polled_at + LEAST)
        self._woken.set()

    async def _follow(self, questions: TaskQuestions) -> Response:
        """Send answers and poll, until the task or a question ends the call."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wait_for_work()
            if questions.is_hopeless:
                # The task cannot go on; it is cancelled by the caller of `response`.
                return self._dialect.unanswered_error(self._call.id)
            if questions.given:
                await self._send_answers(questions)
            if loop.time() >= self._poll_due:
                response = await self._poll(questions) or questions.refusal
                if response is not None:
                    return response

    async def _wait_for_work(self) -> None:
        """Wait until there is an answer to send, a report has come, or the next poll is due."""
        try:
            async with asyncio.timeout_at(self._poll_due):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def _send_answers(self, questions: TaskQuestions) -> None:
        """Send the answers; if they do not arrive, they are sent again before the next poll."""
        given = questions.bringing()
        answers = self._dialect.input_responses(given)
        assert answers is not None, "every answer can be encoded"
        try:
            response = await self._follow_ups.bring(self._call, self.id, answers)
        except UpstreamFailed as failure:
            if failure.reason in PERMANENT:
                raise
            return
        questions.brought(given, response)
        self._store_resume_point(questions)

    async def _poll(self, questions: TaskQuestions) -> Response | None:
        """Poll the task; returns the response if it has ended.

        Raises UpstreamFailed if the server does not have the task, or a further poll would fail
        alike.
        """
        seen: ServerTask | None = None
        failed: UpstreamFailed | None = None
        try:
            response = await self._follow_ups.look(self._call, self.id)
            read = partial(self._dialect.read_task, self._call.id, self.id, response)
            seen = await offload(len(response.text), read)
            if response.error_code in _UNKNOWN:
                self.runs = False
                raise failures.Gone
        except UpstreamFailed as failure:
            if failure.reason in PERMANENT or not self.runs:
                raise
            failed = failure
        self._polled_at = asyncio.get_running_loop().time()
        if seen is None:
            self._plan_retry(failed)
            return None
        self._poll_due = self._polled_at + self._looks.after(seen.interval)
        return self._take_state(seen, questions)

    def _plan_retry(self, failure: UpstreamFailed | None) -> None:
        """Schedule the next poll after a failed one; `failure` is None if the answer was an error.
        Raises UpstreamFailed if polls failed for too long."""
        if failure is not None and failure.reason == UpstreamReason.REFUSED.value:
            # The caller of an expired token may have sent a newer one since.
            self._call.principal = None
        # A caller may send a new token for as long as the call has time.
        was_made = not isinstance(failure, failures.StaleToken)
        pause = self._looks.after_failure(self._state.interval, self._polled_at, was_made=was_made)
        if pause is None:
            raise failures.lost_sight(failure)
        if failure is not None and failure.retry_after is not None:
            pause = max(pause, failure.retry_after.total_seconds())
        self._poll_due = self._polled_at + pause

    def _take_state(self, seen: ServerTask, questions: TaskQuestions) -> Response | None:
        """Store the state that a poll shows, and ask its new questions; returns the response if the
        task has ended.

        Raises UpstreamFailed if the server cancelled it.
        """
        before, self._state = self._state, seen
        if (before.status, before.message, before.updated) != (seen.status, seen.message, seen.updated):
            self._call.progressed()
        questions.show(seen.questions)
        if not self._has_resume_point:
            self._store_resume_point(questions)
        if not seen.status.is_terminal:
            if self._stream is None:
                self._stream = self._news.listen(self.id, seen.interval, self._on_server_report)
            if seen.message != before.message:
                self._report_message()
            return None
        self.runs = False
        if seen.status is TaskStatus.CANCELLED:
            raise failures.called_off()
        return seen.response

    def _store_resume_point(self, questions: TaskQuestions) -> None:
        """Give the listener a resume point, unless an answer is still to be sent, which another
        process would not have."""
        if self._outlives and not questions.given:
            self._has_resume_point = True
            self._listener.on_checkpoint(ResumePoint(revision=_SPOKEN, task=self.id))

    def _report_message(self) -> None:
        """Report the task's status message as progress of the call."""
        message, told = self._state.message, self._call.told
        if message is not None:
            self._messages += 1
            after = None if told is None else progress_done(told)
            self._listener.on_notification(text_progress(self._call.id, message, self._messages, after or 0.0))


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
        self._follow_ups = TaskRequests(upstream_context, exchanges, host, clock)
        self._news = TaskStreams(upstream_context, host, clock)
        # How many calls `follow` waits for now.
        self._followed = 0
        self._follower_ended = asyncio.Event()
        # Cancellations that are being sent.
        self._ending: set[asyncio.Task[None]] = set()
        self._late = LateAnswers(upstream_context, self._end)

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
        followed = TaskFollower(self._upstream_context, self._follow_ups, self._news, call, task)
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
                if failure.reason in PERMANENT:
                    break
                if failure.reason == UpstreamReason.REFUSED.value:
                    # The caller's token may have expired: use the newest of the session.
                    call.principal = None
            else:
                return
        name = self._upstream_context.settings.name
        log.warning("a task of a server could not be cancelled", extra={"upstream": name})
