"""Calls that a server of 2025-11-25 makes tasks of: asked for, followed to their end, and ended there if need be.

For whoever makes one it is a call as any other. What must not live here: which calls are made so (`session`), how a
task is seen to its end (`following`), and what a message means (a dialect).
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
from taskgate.protocol.base import ListedTool, Params
from taskgate.protocol.envelope import Response
from taskgate.protocol.questions import Question
from taskgate.protocol.server_tasks import ServerTask
from taskgate.protocol.vocabulary import TASKS_CANCEL, TOOLS_CALL
from taskgate.system.interruption import Interrupted
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
"""What its server says of a tool that is called as a task whoever calls it."""
MAY_BE: Final = frozenset({TaskSupport.REQUIRED, TaskSupport.OPTIONAL})
"""What it says of one whose call is a task's."""


class Reach(NamedTuple):
    """What of a session the calls in it use.

    `ask` makes a request, of whose time some seconds are spent; `talk` is the conversation that stands now, if any, and
    `ready` makes one stand for a request, and tells how long that took. For `listed` and `tools` see UpstreamSession.
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
        """What makes a call of that tool, with these parameters: as a task where its server says one of `kinds` of it.

        Nothing is in its way where the server makes no tasks.
        """
        talk = self._reach.talk()
        if talk is not None and not talk.makes_tasks:
            return self._reach.ask
        return partial(self._ask, tool=tool, params=params, kinds=kinds)

    async def _ask(
        self, errand: UpstreamRequest, *, tool: str, params: Params, kinds: Collection[TaskSupport]
    ) -> Response:
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
        if talk.makes_tasks and (task := self._upstream_context.dialect.native.created(response)) is not None:
            # No host is to hear of it (decisions 1), and nobody follows it.
            self._end(task.id)
            raise failures.malformed("it created a task for a call that did not ask for one")
        return response

    async def _support(self, tool: str) -> TaskSupport | None:
        """What the server says of the tool; nothing where it does not list it, or does not say what it lists."""
        listed = self._reach.listed(tool)
        if listed is None:
            with suppress(UpstreamFailed):
                listed = (await self._reach.tools()).get(tool)
        return None if listed is None else listed.support

    async def _call(self, errand: UpstreamRequest, params: Params, began: float) -> Response:
        """What a `tools/call` with these parameters comes to, as a task of the server or in any other way it answers.

        `errand` has what goes with it. Raises UpstreamFailed; to cancel it ends the task at the server.
        """
        dialect = self._upstream_context.dialect
        wish = dialect.native.wanting(params, timedelta(seconds=errand.bounds.ceiling))
        beginning = _Beginning(errand, began, tells=params.tail is not None)

        def write(id: int) -> str:
            talk = self._reach.talk()
            beginning.leaves(id, None if talk is None else talk.conversation)
            return dialect.call(id, TOOLS_CALL, wish)

        return await self._follow(beginning, await self._created(beginning, write))

    async def _follow(self, beginning: "_Beginning", response: Response) -> Response:
        """What a call comes to of which this is the first answer: it may be that there is a task."""
        task = None
        try:
            task = self._upstream_context.dialect.native.created(response)
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
        """What a call comes to that another process made, from its foothold on; Gone where it is not there any more.

        `errand` is that call as this process would make it, which it does not.
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
        """Let go of every call; what is not to be gone on with by somebody else is cancelled at the server.

        Where that may make a task of one just now, its answer has a moment.
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
        """The answer to a call that is to become a task. Once that left, it is awaited a moment though nobody wants it.

        Only who knows the task can end it. A server that makes none by then hears of the cancel as of any other.
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
        patience.cancel()
        self._late.discard(asking)
        beginning.over()
        if asking.cancelled() or asking.exception() is not None:
            return
        with suppress(UpstreamFailed):
            task = self._upstream_context.dialect.native.created(asking.result())
            if task is not None:
                self._cancel(beginning.call(task))

    async def _see_through(
        self, call: TaskCall, task: ServerTask | None, asked: Mapping[str, Question] | None = None
    ) -> Response:
        upstream_context = self._upstream_context
        self._calls.add(call)
        call.begin(upstream_context.alarms, upstream_context.running)
        following = TaskFollower(upstream_context, call, ask=self._reach.ask, talk=self._reach.talk)
        try:
            with call.wait:
                if asked and (talk := self._reach.talk()) is not None:
                    talk.conversation.ask_anew(call, asked)
                return await following.outcome(task)
        except Interrupted:
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
        """Have the server end a task that is not over, in the background, unless somebody else goes on with it."""
        if not (call.was_let_go or is_left(call) or call.is_over()):
            self._end(call.task.id)

    def _end(self, task: str) -> None:
        talk = self._reach.talk()
        if talk is not None:
            native = self._upstream_context.dialect.native
            talk.conversation.say(native.about(next(self._upstream_context.ids), TASKS_CANCEL, task), insists=True)


class _Beginning:
    """A call of which the server may make a task, until that is known. `began` is when, by the clock of the loop."""

    __slots__ = ("_conversation", "_id", "_tells", "began", "errand")

    def __init__(self, errand: UpstreamRequest, began: float, *, tells: bool) -> None:
        self.errand = errand
        self.began = began
        self._tells = tells
        self._id = 0
        self._conversation: Conversation | None = None

    def leaves(self, id: int, conversation: Conversation | None) -> None:
        """It is about to leave under that id, in that conversation."""
        self._id, self._conversation = id, conversation
        if conversation is not None:
            conversation.followed.expect(id)

    def call(self, task: ServerTask) -> TaskCall:
        """It became that task."""
        spent = asyncio.get_running_loop().time() - self.began
        return TaskCall(self._id, self.errand, task, tells=self._tells, spent=spent)

    def over(self) -> None:
        """It became none, or nobody cares any more."""
        if self._conversation is not None:
            self._conversation.met(self._id, None)

    def fall_silent(self) -> bool:
        """Nobody hears it any more; whether it has left."""
        return self._conversation is not None and self._conversation.fall_silent(self._id)
