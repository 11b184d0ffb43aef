"""Calls that a server of 2025-11-25 makes tasks of: `LegacyFollowedTasks` sends, follows and cancels them.

    tools/call     with a request for a task: the first answer is its handle, or the result itself
    tasks/get      while it is working, at the interval that the server asks for
    tasks/result   once it is over or requires input; the request stays open

The caller sees an ordinary call that takes long (docs/decisions/0041). A `LegacyTaskFollower` waits
for the result of a task. The server asks its questions on the stream of `tasks/result` (L-INPUT-3),
so that request is sent as soon as the task requires input. A task survives lost connections: the
follower goes on in whichever connection the session has. If the call is given up, the task is
cancelled at the server, unless another process resumes the call. Each `LegacySession` has one
`LegacyFollowedTasks`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import TaskStatus
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.large import to_string
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import Question, ServerTask
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_RESULT
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import offload
from taskgate.upstream import failures
from taskgate.upstream.calls import CallBounds, CallListener, Resumed, UpstreamCall, briefly
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE, SessionConnection
from taskgate.upstream.legacy.conversation import Conversation
from taskgate.upstream.legacy.resumption import CallResumption
from taskgate.upstream.legacy.task_calls import TaskCall
from taskgate.upstream.pauses import POLL_PAUSE_MOST
from taskgate.upstream.server_tasks import LateAnswers, TaskFollower

Ask = Callable[..., Coroutine[Any, Any, Response]]
"""Sends one request of a session, in its current connection; opens one if there is none. It is
`LegacySession._ask`."""

_ENDLESS: Final = timedelta(days=36_500).total_seconds()
"""Timeout of `tasks/result`: its call has the real one."""


class LegacyTaskFollower(TaskFollower):
    """The `TaskFollower` of this era.

    `task` is the first state of the task, None if it is unknown: then a poll finds it. `ask` sends a
    request of the session. `connection` returns the current connection, None without one.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        call: TaskCall,
        task: ServerTask | None,
        *,
        ask: Ask,
        connection: Callable[[], SessionConnection | None],
    ) -> None:
        super().__init__(call.task.id, call.stirs)
        self._upstream_context = upstream_context
        self._call = call
        self._first = task
        self._ask = ask
        self._connection = connection
        # The connection in which the call was registered last.
        self._registered_in: SessionConnection | None = None
        self._about = upstream_context.dialect.tasks.params(call.task.id)
        # The loop time before which `tasks/result` is not sent.
        self._result_due = 0.0
        self._result_request: asyncio.Task[Response] | None = None
        # Whether no request failed since the last answered poll.
        self._was_answered = True

    @property
    def _interval(self) -> float | None:
        return self._call.task.interval

    def _begin(self) -> None:
        self._register()
        if self._first is not None:
            self._take_state(self._first)
            self._poll_due = self._now() + self._schedule.after(self._interval)
        self._request_result()

    def _due(self) -> float | None:
        call = self._call
        times = [] if call.is_over() else [self._poll_due]
        if self._result_request is None and not call.is_working():
            times.append(self._result_due)
        return min(times) if times else None

    async def _step(self) -> Response | None:
        call, response = self._call, None
        # The stored resume point has questions that are no longer open.
        if call.is_ahead and self._registered_in is not None:
            self._store_resume_point(self._registered_in)
        if self._result_request is not None and self._result_request.done():
            response = await self._result_of(self._result_request)
            if response is not None:
                self.is_settled = True
        elif not call.is_over() and self._now() >= self._poll_due:
            await self._poll()
        if response is None:
            self._request_result()
        return response

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
        finally:
            del asking
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

    async def _ask_for_state(self) -> ServerTask | None:
        bounds = briefly(self._upstream_context.settings.first_byte)
        # Asked for the principal of the session: the caller and their token may be gone by now.
        response = await self._ask(UpstreamCall(TASKS_GET, self._about, bounds=bounds))
        task = self._upstream_context.dialect.tasks.read_state(self.id, response)
        if task is None:
            self.is_settled = True
            raise failures.Gone
        return task

    def _take_state(self, state: ServerTask) -> Response | None:
        self._register()
        self._was_answered = True
        self._call.shows(state)
        return None

    def _register(self) -> None:
        """Register the call in the current connection, if it is a new one, with a resume point."""
        call, connection = self._call, self._connection()
        if connection is None or connection is self._registered_in:
            return
        self._registered_in = connection
        connection.conversation.met(call.id, call)
        self._store_resume_point(connection)

    def _store_resume_point(self, connection: SessionConnection) -> None:
        """Give the listener a resume point: the task, in the server session of this connection."""
        self._call.is_ahead = False
        connection.conversation.hold(self._call, task=self._call.task.id)

    def _plan_retry(self, failure: UpstreamFailed | None) -> None:
        super()._plan_retry(failure)
        assert failure is not None, "every answer shows a state or is a failure"
        if failure.reason == UpstreamReason.SESSION_LOST.value and self._was_answered:
            # The server did answer, and a new session will be opened.
            pause = 0.0 if failure.retry_after is None else min(failure.retry_after.total_seconds(), POLL_PAUSE_MOST)
            self._poll_due = self._now() + pause
        self._was_answered = False
        self._result_due = self._poll_due

    def _lost_sight(self, failure: UpstreamFailed | None) -> UpstreamFailed:
        assert failure is not None, "every answer shows a state or is a failure"
        return failures.sent(failure)

    async def _end(self) -> None:
        """Cancel `tasks/result`, if it is under way."""
        asking, self._result_request = self._result_request, None
        if asking is None:
            return
        asking.cancel()
        await asyncio.wait((asking,))
        if not asking.cancelled():
            # Retrieving the exception marks it as seen.
            asking.exception()


MUST_BE: Final = frozenset({TaskSupport.REQUIRED})
"""Task support of tools that are always called as a task: their server requires it."""
MAY_BE: Final = frozenset({TaskSupport.REQUIRED, TaskSupport.OPTIONAL})
"""Task support of tools that are called as a task, if the call is a task of the gateway too."""


class Reach(NamedTuple):
    """Functions of the `LegacySession` that its `LegacyFollowedTasks` uses.

    `ask` sends a plain request, as `LegacySession._ask`. `connection` returns the current connection, None
    without one. `ready` opens one for a request, and returns it with the seconds that it took.
    `listed` and `tools` are those of UpstreamSession.
    """

    ask: Callable[..., Coroutine[Any, Any, Response]]
    connection: Callable[[], SessionConnection | None]
    ready: Callable[[UpstreamCall, CallBounds], Awaitable[tuple[SessionConnection, float]]]
    listed: Callable[[str], ListedTool | None]
    tools: Callable[[], Awaitable[Mapping[str, ListedTool]]]


class LegacyFollowedTasks:
    """The calls of one session that become tasks of its server."""

    def __init__(self, upstream_context: UpstreamContext, reach: Reach) -> None:
        self._upstream_context = upstream_context
        self._reach = reach
        # The calls whose tasks are followed now.
        self._calls: set[TaskCall] = set()
        # The requests for a task whose first answer is not there.
        self._first_answers = LateAnswers()
        self._is_closed = False

    async def ask(self, call: UpstreamCall, listener: CallListener, *, kinds: Collection[TaskSupport]) -> Response:
        """Send a call to a server that may have tasks. Ask for one if it has, and the tool's task
        support is one of `kinds`, MUST_BE or MAY_BE."""
        loop, bounds, tool = asyncio.get_running_loop(), call.bounds, call.tool
        assert bounds is not None, "the session has set its timeouts"
        assert tool is not None, "only calls of a tool become tasks"
        began = loop.time()
        try:
            async with asyncio.timeout(bounds.first):
                connection = self._reach.connection() or (await self._reach.ready(call, bounds))[0]
                is_native = connection.makes_tasks and await self._support(tool) in kinds
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        if is_native:
            return await self._call(call, listener, bounds, began)
        response = await self._reach.ask(call, listener, spent=loop.time() - began)
        if connection.makes_tasks and (task := self._upstream_context.dialect.tasks.read_created(response)) is not None:
            # Hosts are not told of server tasks (docs/decisions/0041), and this one has no
            # follower.
            self._send_cancel(task.id)
            raise protocol_violation("it created a task for a call that did not ask for one")
        return response

    async def _support(self, tool: str) -> TaskSupport | None:
        """Return the tool's task support; None if the tool is not listed or the list cannot be
        read."""
        listed = self._reach.listed(tool)
        if listed is None:
            with suppress(UpstreamFailed):
                listed = (await self._reach.tools()).get(tool)
        return None if listed is None else listed.support

    async def _call(self, call: UpstreamCall, listener: CallListener, bounds: CallBounds, began: float) -> Response:
        """Send a `tools/call` that asks for a task, and return the response of the call.

        Raises UpstreamFailed. If the await is cancelled, so is the task at the server.
        """
        params = call.params
        assert params is not None, "the call of a tool names it"
        with_task = self._upstream_context.dialect.tasks.with_task(params, timedelta(seconds=bounds.ceiling))
        # With a progress token (a tail), the host wants progress.
        undecided = _UndecidedCall(replace(call, params=with_task), listener, began, tells=params.tail is not None)
        return await self._after_answer(undecided, await self._first_answer(undecided))

    async def _after_answer(self, undecided: "_UndecidedCall", response: Response) -> Response:
        """Return the response of a call after its first answer, which may be a task handle."""
        task = None
        try:
            task = self._upstream_context.dialect.tasks.read_created(response)
        finally:
            if task is None:
                undecided.became_none()
        if task is None:
            return response
        call = undecided.task_call(task)
        if self._is_closed:
            # The answer came during `close`, which cancelled only the calls known before.
            undecided.became_none()
            self._cancel(call)
            raise failures.let_go(dispatched=True)
        return await self._follow_to_end(call, task)

    async def go_on(
        self, call: UpstreamCall, listener: CallListener, resumed: Resumed, resumption: CallResumption
    ) -> Response:
        """Resume a call of another process, and return its response. Raises UpstreamFailed.

        `call` is the call as this process would send it; it is not sent. If it was a task
        already, the task is followed. If not, its stream is read on, where a task handle may come.
        Raises Gone if the server no longer knows the call.
        """
        resume_point, undecided = (
            resumed.resume_point,
            _UndecidedCall(call, listener, asyncio.get_running_loop().time(), tells=True),
        )
        id_ = next(self._upstream_context.ids) if resume_point.request is None else resume_point.request
        undecided.register(id_, resumption.stand(resumed).conversation)
        if resume_point.task is not None:
            task = ServerTask(resume_point.task, TaskStatus.WORKING)
            return await self._follow_to_end(undecided.task_call(task), None, resumed.asked)
        try:
            response = await resumption.go_on(call, listener, resumed)
        except BaseException:
            undecided.became_none()
            raise
        return await self._after_answer(undecided, response)

    async def close(self) -> None:
        """End every call; those that no other process resumes are cancelled at the server.

        Calls without a first answer have a short time to get it: only with the task id can a task
        be cancelled.
        """
        self._is_closed = True
        for call in tuple(self._calls):
            # Before `was_let_go`, because `_cancel` does nothing after it. So `_follow_to_end`
            # sends no second cancellation.
            self._cancel(call)
            call.was_let_go = True
            call.cancel()
        if self._first_answers.awaited:
            await asyncio.wait(tuple(self._first_answers.awaited), timeout=SIGN_OF_LIFE.total_seconds())
        await self._first_answers.close()

    async def _first_answer(self, undecided: "_UndecidedCall") -> Response:
        """Send the request for a task, and return the first answer.

        If the await is cancelled after sending, the request runs on for a short time: only with the
        task id can the task be cancelled. Without an answer by then, the request is cancelled as
        any other.
        """
        loop = asyncio.get_running_loop()

        # Called at the moment of sending: only then id and connection are known.
        def numbered(id: int) -> None:
            connection = self._reach.connection()
            undecided.register(id, None if connection is None else connection.conversation)

        spent = loop.time() - undecided.began
        try:
            return await self._first_answers.first(
                self._reach.ask(undecided.call, undecided.listener, spent=spent, numbered=numbered),
                patience=SIGN_OF_LIFE.total_seconds(),
                given_up=undecided.detach,
                came=partial(self._cancel_late, undecided),
            )
        except UpstreamFailed:
            undecided.became_none()
            raise

    def _cancel_late(self, undecided: "_UndecidedCall", response: Response | None) -> None:
        """Cancel the task that a late first answer names. Called when its request has ended."""
        undecided.became_none()
        if response is None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.tasks.read_created(response)
            if task is not None:
                self._cancel(undecided.task_call(task))

    async def _follow_to_end(
        self, call: TaskCall, task: ServerTask | None, asked: Mapping[str, Question] | None = None
    ) -> Response:
        """Follow the task of a call, and return the response. If the call is given up, cancel it.

        `task` is its first state, None if unknown. `asked` are the questions of a resumed call.
        """
        upstream_context, running = self._upstream_context, self._upstream_context.running
        self._calls.add(call)
        running.count += 1
        call.begin(upstream_context.alarms)
        follower = LegacyTaskFollower(
            upstream_context, call, task, ask=self._reach.ask, connection=self._reach.connection
        )
        try:
            with call:
                if asked and (connection := self._reach.connection()) is not None:
                    connection.conversation.ask_anew(call, asked)
                return await follower.response()
        except ScopeCancelled:
            failed = failures.let_go if call.was_let_go else failures.too_late
            raise failed(dispatched=True) from None
        finally:
            running.count -= 1
            self._calls.discard(call)
            if not follower.is_settled:
                self._cancel(call)
            if (connection := self._reach.connection()) is not None:
                connection.conversation.over(call)

    def _cancel(self, call: TaskCall) -> None:
        """Cancel the task at the server in the background, if that is due.

        It is not if the task has ended, if another process resumes the call, or if `close` has done
        so.
        """
        if not (call.was_let_go or call.is_left or call.is_over()):
            self._send_cancel(call.task.id)

    def _send_cancel(self, task: str) -> None:
        """Send `tasks/cancel` in the background, in the current connection if there is one."""
        connection = self._reach.connection()
        if connection is not None:
            dialect = self._upstream_context.dialect
            text = to_string(dialect.call(next(self._upstream_context.ids), TASKS_CANCEL, dialect.tasks.params(task)))
            connection.conversation.say(text, insists=True)


class _UndecidedCall:
    """A call that asks for a task, until it is known whether it becomes one.

    `register` tells the conversation so, which then keeps the questions of the call. Each path of a
    registered call must end that once: by `became_none`, or by a `LegacyTaskFollower` for `task_call`.
    `began` is the loop time of the call's start. `tells` is as in `TaskCall`.
    """

    __slots__ = ("_conversation", "_id", "_tells", "began", "call", "listener")

    def __init__(self, call: UpstreamCall, listener: CallListener, began: float, *, tells: bool) -> None:
        self.call = call
        self.listener = listener
        self.began = began
        self._tells = tells
        self._id = 0
        self._conversation: Conversation | None = None

    def register(self, id: int, conversation: Conversation | None) -> None:
        """Register the call in a conversation: it is about to be sent there under that id."""
        self._id, self._conversation = id, conversation
        if conversation is not None:
            conversation.followed.expect(id)

    def task_call(self, task: ServerTask) -> TaskCall:
        """Return the call to follow, or to cancel: it became this task."""
        spent = asyncio.get_running_loop().time() - self.began
        return TaskCall(self._id, self.call, self.listener, task, tells=self._tells, spent=spent)

    def became_none(self) -> None:
        """Tell the conversation that it became no task, or one that is not followed."""
        if self._conversation is not None:
            self._conversation.met(self._id, None)

    def detach(self) -> bool:
        """Detach the listener of the call; returns whether the call was sent."""
        return self._conversation is not None and self._conversation.fall_silent(self._id)
