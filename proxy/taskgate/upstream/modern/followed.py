"""One call that a modern server made a task of: `FollowedTask` polls it until there is a result.

Status messages of the task become progress of the call, its input requests become questions
(`task_questions`), and its result becomes the response. Answers are sent by `tasks/update` before
the next poll. `upstream.looks` has the poll schedule; reports of the server (`task_news`) bring a
poll forward. `ServerTasks` creates it, and cancels the task at the server if following it ends
before the task does.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import MODERN
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import Question, ServerTask, progress_done, text_progress
from taskgate.protocol.vocabulary import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from taskgate.system.offload import offload
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.looks import LEAST, Looks
from taskgate.upstream.modern.follow_ups import FOR_GOOD, FollowUps
from taskgate.upstream.modern.listen_stream import SubscriptionStream
from taskgate.upstream.modern.task_news import ServerTaskNews
from taskgate.upstream.modern.task_questions import TaskQuestions
from taskgate.upstream.resume_points import ResumePoint

_SPOKEN: Final = MODERN[-1].value
"""The revision that resume points name."""

_UNKNOWN: Final = frozenset(
    {INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, HEADER_MISMATCH, UNSUPPORTED_VERSION}
)
"""Error codes by which a server says that it does not have this task."""


class FollowedTask:
    """The task that one call became. `task` is its first state.

    `response` follows it once, and is cancelled if the call is given up.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        follow_ups: FollowUps,
        news: ServerTaskNews,
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
        self._looks = Looks(task.id)
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
        """Bring the next poll forward: the server reported on this task (`task_news`). Reports only
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
            if failure.reason in FOR_GOOD:
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
            if failure.reason in FOR_GOOD or not self.runs:
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
