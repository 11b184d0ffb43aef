"""Calls that a server of 2025-11-25 makes tasks of: `Natives` sends, follows and cancels them.

The caller sees an ordinary call that takes long (docs/decisions/0041). `tools/call` is sent with a
request for a task. Its first answer is a task handle or, from some servers, the result itself. A
`TaskFollower` waits for the result of a task. If the call is given up, the task is cancelled at the
server, unless another process resumes the call. Each `HttpSession` has one `Natives`.
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
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import Question, ServerTask
from taskgate.protocol.vocabulary import TASKS_CANCEL
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.upstream import failures
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import CallBounds, UpstreamCall
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.legacy.adopting import Adopting
from taskgate.upstream.legacy.conversation import Conversation
from taskgate.upstream.legacy.followed import TaskCall
from taskgate.upstream.legacy.following import TaskFollower
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE, Talk
from taskgate.upstream.resume_points import Resumed

MUST_BE: Final = frozenset({TaskSupport.REQUIRED})
"""Task support of tools that are always called as a task: their server requires it."""
MAY_BE: Final = frozenset({TaskSupport.REQUIRED, TaskSupport.OPTIONAL})
"""Task support of tools that are called as a task, if the call is a task of the gateway too."""


class Reach(NamedTuple):
    """Functions of the `HttpSession` that its `Natives` uses.

    `ask` sends a plain request, as `HttpSession._ask`. `talk` returns the current connection, None
    without one. `ready` opens one for a request, and returns it with the seconds that it took.
    `listed` and `tools` are those of UpstreamSession.
    """

    ask: Callable[..., Coroutine[Any, Any, Response]]
    talk: Callable[[], Talk | None]
    ready: Callable[[UpstreamCall, CallBounds], Awaitable[tuple[Talk, float]]]
    listed: Callable[[str], ListedTool | None]
    tools: Callable[[], Awaitable[Mapping[str, ListedTool]]]


class Natives:
    """The calls of one session that become tasks of its server."""

    def __init__(self, upstream_context: UpstreamContext, reach: Reach) -> None:
        self._upstream_context = upstream_context
        self._reach = reach
        # The calls whose tasks are followed now.
        self._calls: set[TaskCall] = set()
        # The requests for a task whose first answer is not there, and those of them that were given
        # up.
        self._first_requests: set[asyncio.Task[Response]] = set()
        self._late: set[asyncio.Task[Response]] = set()
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
                talk = self._reach.talk() or (await self._reach.ready(call, bounds))[0]
                is_native = talk.makes_tasks and await self._support(tool) in kinds
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        if is_native:
            return await self._call(call, listener, bounds, began)
        response = await self._reach.ask(call, listener, spent=loop.time() - began)
        if talk.makes_tasks and (task := self._upstream_context.dialect.tasks.read_created(response)) is not None:
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

    async def go_on(self, call: UpstreamCall, listener: CallListener, resumed: Resumed, adopting: Adopting) -> Response:
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
        undecided.register(id_, adopting.stand(resumed).conversation)
        if resume_point.task is not None:
            task = ServerTask(resume_point.task, TaskStatus.WORKING)
            return await self._follow_to_end(undecided.task_call(task), None, resumed.asked)
        try:
            response = await adopting.go_on(call, listener, resumed)
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
        if self._first_requests:
            await asyncio.wait(tuple(self._first_requests), timeout=SIGN_OF_LIFE.total_seconds())
        late = tuple(self._late)
        for asking in late:
            asking.cancel()
        if late:
            await asyncio.wait(late)

    async def _first_answer(self, undecided: "_UndecidedCall") -> Response:
        """Send the request for a task, and return the first answer.

        If the await is cancelled after sending, the request runs on for a short time: only with the
        task id can the task be cancelled. Without an answer by then, the request is cancelled as
        any other.
        """
        loop = asyncio.get_running_loop()

        # Called at the moment of sending: only then id and connection are known.
        def numbered(id: int) -> None:
            talk = self._reach.talk()
            undecided.register(id, None if talk is None else talk.conversation)

        spent = loop.time() - undecided.began
        asking = loop.create_task(self._reach.ask(undecided.call, undecided.listener, spent=spent, numbered=numbered))
        self._first_requests.add(asking)
        asking.add_done_callback(self._first_requests.discard)
        try:
            return await asyncio.shield(asking)
        except UpstreamFailed:
            undecided.became_none()
            raise
        except asyncio.CancelledError:
            self._late.add(asking)
            patience = loop.call_later(SIGN_OF_LIFE.total_seconds(), asking.cancel)
            asking.add_done_callback(partial(self._cancel_late, undecided, patience))
            if not undecided.detach():
                asking.cancel()
            raise

    def _cancel_late(
        self, undecided: "_UndecidedCall", patience: asyncio.TimerHandle, asking: asyncio.Task[Response]
    ) -> None:
        """Cancel the task that a late first answer names. Called when its request has ended."""
        patience.cancel()
        self._late.discard(asking)
        undecided.became_none()
        if asking.cancelled() or asking.exception() is not None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.tasks.read_created(asking.result())
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
        following = TaskFollower(upstream_context, call, ask=self._reach.ask, talk=self._reach.talk)
        try:
            with call:
                if asked and (talk := self._reach.talk()) is not None:
                    talk.conversation.ask_anew(call, asked)
                return await following.outcome(task)
        except ScopeCancelled:
            failed = failures.let_go if call.was_let_go else failures.too_late
            raise failed(dispatched=True) from None
        finally:
            running.count -= 1
            self._calls.discard(call)
            if not following.is_settled:
                self._cancel(call)
            if (talk := self._reach.talk()) is not None:
                talk.conversation.over(call)

    def _cancel(self, call: TaskCall) -> None:
        """Cancel the task at the server in the background, if that is due.

        It is not if the task has ended, if another process resumes the call, or if `close` has done
        so.
        """
        if not (call.was_let_go or call.is_left or call.is_over()):
            self._send_cancel(call.task.id)

    def _send_cancel(self, task: str) -> None:
        """Send `tasks/cancel` in the background, in the current connection if there is one."""
        talk = self._reach.talk()
        if talk is not None:
            dialect = self._upstream_context.dialect
            text = dialect.call(next(self._upstream_context.ids), TASKS_CANCEL, dialect.tasks.params(task))
            talk.conversation.say(text, insists=True)


class _UndecidedCall:
    """A call that asks for a task, until it is known whether it becomes one.

    `register` tells the conversation so, which then keeps the questions of the call. Each path of a
    registered call must end that once: by `became_none`, or by a `TaskFollower` for `task_call`.
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
