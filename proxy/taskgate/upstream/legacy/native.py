"""Calls that a server of 2025-11-25 makes tasks of: `Natives` sends, follows and cancels them.

The caller sees an ordinary call that takes long (docs/decisions/0041). `tools/call` is sent with a
task request; the answer is a task handle, which a `TaskFollower` turns into the result. If the call
is given up, the task is cancelled at the server. `HttpSession` decides which calls are made so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import TaskStatus
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.server_messages import Question, ServerTask
from taskgate.protocol.vocabulary import TASKS_CANCEL, TOOLS_CALL
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.upstream import failures
from taskgate.upstream.calls import UpstreamContext, UpstreamRequest
from taskgate.upstream.legacy.adopting import Adopting
from taskgate.upstream.legacy.audience import is_left
from taskgate.upstream.legacy.conversation import Conversation
from taskgate.upstream.legacy.followed import TaskCall
from taskgate.upstream.legacy.following import Ask, TaskFollower
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE, Talk
from taskgate.upstream.resume_points import Resumed

MUST_BE: Final = frozenset({TaskSupport.REQUIRED})
"""Tools that are always called as a task, because their server requires it."""
MAY_BE: Final = frozenset({TaskSupport.REQUIRED, TaskSupport.OPTIONAL})
"""Tools that are called as a task where the call is a task of the gateway."""


class Reach(NamedTuple):
    """Functions of the session that calls in it use.

    `ask` sends a request, of whose time some seconds may be spent. `talk` returns the current
    connection, if any. `ready` opens one for a request, and returns how long that took. `listed`
    and `tools` are those of UpstreamSession.
    """

    ask: Callable[..., Coroutine[Any, Any, Response]]
    talk: Callable[[], Talk | None]
    ready: Callable[[UpstreamRequest], Awaitable[tuple[Talk, float]]]
    listed: Callable[[str], ListedTool | None]
    tools: Callable[[], Awaitable[Mapping[str, ListedTool]]]


class Natives:
    """The calls of one session that become tasks of its server."""

    def __init__(self, upstream_context: UpstreamContext, reach: Reach) -> None:
        self._upstream_context = upstream_context
        self._reach = reach
        self._calls: set[TaskCall] = set()
        self._asking: set[asyncio.Task[Response]] = set()
        self._late: set[asyncio.Task[Response]] = set()
        self._is_closed = False

    def way(self, tool: str, params: Params, kinds: Collection[TaskSupport]) -> Ask:
        """Return the function that sends a call of the tool: as a task if its support is one of
        `kinds`.

        For a server without tasks that is the plain `ask`.
        """
        talk = self._reach.talk()
        if talk is not None and not talk.makes_tasks:
            return self._reach.ask
        return partial(self._ask, tool=tool, params=params, kinds=kinds)

    async def _ask(
        self, errand: UpstreamRequest, *, tool: str, params: Params, kinds: Collection[TaskSupport]
    ) -> Response:
        """Send a call, as a task if the tool's support is one of `kinds`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(errand.bounds.first):
                talk = self._reach.talk() or (await self._reach.ready(errand))[0]
                is_native = talk.makes_tasks and await self._support(tool) in kinds
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        if is_native:
            return await self._call(errand, params, began)
        response = await self._reach.ask(errand, loop.time() - began)
        if talk.makes_tasks and (task := self._upstream_context.dialect.tasks.read_created(response)) is not None:
            # Hosts are not told of server tasks (docs/decisions/0041), and this one has no
            # follower.
            self._end(task.id)
            raise failures.malformed("it created a task for a call that did not ask for one")
        return response

    async def _support(self, tool: str) -> TaskSupport | None:
        """Return the tool's task support; None if the tool is not listed or the list cannot be
        read."""
        listed = self._reach.listed(tool)
        if listed is None:
            with suppress(UpstreamFailed):
                listed = (await self._reach.tools()).get(tool)
        return None if listed is None else listed.support

    async def _call(self, errand: UpstreamRequest, params: Params, began: float) -> Response:
        """Send a `tools/call` as a task and return its result, whichever way the server answers.

        Raises UpstreamFailed; cancelling it cancels the task at the server.
        """
        dialect = self._upstream_context.dialect
        wish = dialect.tasks.with_task(params, timedelta(seconds=errand.bounds.ceiling))
        beginning = _Beginning(errand, began, tells=params.tail is not None)

        def write(id: int) -> str:
            talk = self._reach.talk()
            beginning.leaves(id, None if talk is None else talk.conversation)
            return dialect.call(id, TOOLS_CALL, wish)

        return await self._follow(beginning, await self._created(beginning, write))

    async def _follow(self, beginning: "_Beginning", response: Response) -> Response:
        """Return the result of a call after its first answer, which may be a task handle."""
        task = None
        try:
            task = self._upstream_context.dialect.tasks.read_created(response)
        finally:
            if task is None:
                beginning.over()
        if task is None:
            return response
        call = beginning.call(task)
        if self._is_closed:
            beginning.over()
            self._cancel(call)
            raise failures.let_go(dispatched=True)
        return await self._see_through(call, task)

    async def go_on(self, errand: UpstreamRequest, resumed: Resumed, adopting: Adopting) -> Response:
        """Resume a call of another process and return its result; Gone if it is lost.

        `errand` is the call as this process would send it; it is not sent.
        """
        resume_point, beginning = (
            resumed.resume_point,
            _Beginning(errand, asyncio.get_running_loop().time(), tells=True),
        )
        id_ = next(self._upstream_context.ids) if resume_point.request is None else resume_point.request
        beginning.leaves(id_, adopting.stand(resumed).conversation)
        if resume_point.task is not None:
            task = ServerTask(resume_point.task, TaskStatus.WORKING)
            return await self._see_through(beginning.call(task), None, resumed.asked)
        try:
            response = await adopting.go_on(errand, resumed)
        except BaseException:
            beginning.over()
            raise
        return await self._follow(beginning, response)

    async def close(self) -> None:
        """End every call; those that no other process resumes are cancelled at the server.

        A call that may become a task just now has a short time to be answered.
        """
        self._is_closed = True
        for call in tuple(self._calls):
            self._cancel(call)
            call.was_let_go = True
            call.wake()
        if self._asking:
            await asyncio.wait(tuple(self._asking), timeout=SIGN_OF_LIFE.total_seconds())
        late = tuple(self._late)
        for asking in late:
            asking.cancel()
        if late:
            await asyncio.wait(late)

    async def _created(self, beginning: "_Beginning", write: Callable[[int], str]) -> Response:
        """Return the first answer. A cancelled call that was sent is awaited for a short time all
        the same.

        Only with the task id can the task be ended. If none is made by then, the call is cancelled
        as any other.
        """
        loop = asyncio.get_running_loop()
        errand, spent = beginning.errand._replace(write=write), loop.time() - beginning.began
        asking = loop.create_task(self._reach.ask(errand, spent))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            return await asyncio.shield(asking)
        except UpstreamFailed:
            beginning.over()
            raise
        except asyncio.CancelledError:
            self._late.add(asking)
            patience = loop.call_later(SIGN_OF_LIFE.total_seconds(), asking.cancel)
            asking.add_done_callback(partial(self._end_late, beginning, patience))
            if not beginning.fall_silent():
                asking.cancel()
            raise

    def _end_late(self, beginning: "_Beginning", patience: asyncio.TimerHandle, asking: asyncio.Task[Response]) -> None:
        """Cancel the task that a late answer names."""
        patience.cancel()
        self._late.discard(asking)
        beginning.over()
        if asking.cancelled() or asking.exception() is not None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.tasks.read_created(asking.result())
            if task is not None:
                self._cancel(beginning.call(task))

    async def _see_through(
        self, call: TaskCall, task: ServerTask | None, asked: Mapping[str, Question] | None = None
    ) -> Response:
        """Follow the task of a call to its end; cancel it if the call is given up."""
        upstream_context = self._upstream_context
        self._calls.add(call)
        call.begin(upstream_context.alarms, upstream_context.running)
        following = TaskFollower(upstream_context, call, ask=self._reach.ask, talk=self._reach.talk)
        try:
            with call.wait:
                if asked and (talk := self._reach.talk()) is not None:
                    talk.conversation.ask_anew(call, asked)
                return await following.outcome(task)
        except ScopeCancelled:
            over = failures.let_go if call.was_let_go else failures.too_late
            raise over(dispatched=True) from None
        finally:
            call.stop()
            self._calls.discard(call)
            if not following.is_settled:
                self._cancel(call)
            if (talk := self._reach.talk()) is not None:
                talk.conversation.over(call)

    def _cancel(self, call: TaskCall) -> None:
        """Cancel a running task at the server in the background, unless another process resumes it."""
        if not (call.was_let_go or is_left(call) or call.is_over()):
            self._end(call.task.id)

    def _end(self, task: str) -> None:
        talk = self._reach.talk()
        if talk is not None:
            native = self._upstream_context.dialect.tasks
            talk.conversation.say(native.request(next(self._upstream_context.ids), TASKS_CANCEL, task), insists=True)


class _Beginning:
    """A call that may become a task, until that is known. `began` is the loop time of its start."""

    __slots__ = ("_conversation", "_id", "_tells", "began", "errand")

    def __init__(self, errand: UpstreamRequest, began: float, *, tells: bool) -> None:
        self.errand = errand
        self.began = began
        self._tells = tells
        self._id = 0
        self._conversation: Conversation | None = None

    def leaves(self, id: int, conversation: Conversation | None) -> None:
        """Register it as about to be sent, under that id, in that conversation."""
        self._id, self._conversation = id, conversation
        if conversation is not None:
            conversation.followed.expect(id)

    def call(self, task: ServerTask) -> TaskCall:
        """Return the followed call: it became this task."""
        spent = asyncio.get_running_loop().time() - self.began
        return TaskCall(self._id, self.errand, task, tells=self._tells, spent=spent)

    def over(self) -> None:
        """Report that it became no task, or that it no longer matters."""
        if self._conversation is not None:
            self._conversation.met(self._id, None)

    def fall_silent(self) -> bool:
        """Detach its listener; returns whether it was sent."""
        return self._conversation is not None and self._conversation.fall_silent(self._id)
