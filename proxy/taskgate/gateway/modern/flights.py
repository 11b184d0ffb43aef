"""A sent call that may outlive its request: `InflightCall`.

`Calls` creates one for a call that may become a task or may be held for input responses. It
collects the server's questions, which end in one of three ways: the host answers them, they are
refused, or the call ends. It is a `CallListener` for the server, and an `OngoingCall` for the task
that adopts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from logging import getLogger
from typing import Any

from taskgate.admission.concurrency import Permit
from taskgate.admission.rules import MAX_QUESTION
from taskgate.errors import QueueFull
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import Answer
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.sessions.binding import CallSite
from taskgate.system.background import Background
from taskgate.telemetry.request_context import RequestContext, current, in_request
from taskgate.upstream.call_listener import Between, CallListener, ServerQuestion
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint

log = getLogger("taskgate.stateless")


class InflightCall:
    """A call, and the questions of its server that have no answer yet.

    The server's messages go to the current listener, if there is one. `most` is the number of
    questions that may wait at once. `passes_rounds` is whether a round of a modern server goes to
    the host as it is.
    """

    __slots__ = (
        "_asked",
        "_call",
        "_change",
        "_foothold",
        "_has_told",
        "_heir",
        "_is_left",
        "_listener",
        "_most",
        "_progress",
        "_questions",
        "_request_context",
        "missing",
        "passes_rounds",
    )

    def __init__(self, *, most: int) -> None:
        self.passes_rounds = True
        self.missing: Mapping[str, Any] = {}
        """The capabilities that the host lacks and the server asked for, while the call is no task."""
        self._most = most
        self._asked = 0
        self._has_told = False
        self._questions: dict[str, ServerQuestion] = {}
        self._listener: CallListener | None = None
        self._heir: CallListener | None = None
        self._is_left = False
        self._progress: Notification | None = None
        self._foothold: ResumePoint | None = None
        self._change = asyncio.Event()
        self._call: asyncio.Task[Response] | None = None
        self._request_context = _request_context()

    def leave(
        self,
        place: CallSite,
        background: Background,
        work: Callable[[CallListener], Coroutine[Any, Any, Response]],
        ticket: Permit | None = None,
    ) -> None:
        """Start the call: `work`. Its session stays open, and it has its permit, until it is over."""
        place.acquire()
        # The call may last long after its request, so its context must not hold the request's
        # message.
        with in_request(self._request_context):
            self._call = background.start(partial(work, self))
            self._call.add_done_callback(partial(self._landed, place, ticket))

    # --- called by the server's session -------------------------------------------------------------------------------

    def on_notification(self, notification: Notification) -> None:
        """Pass a notification to the listener. While the host is away, only the newest progress is
        stored.
        """
        if notification.method == NOTE_PROGRESS:
            self._progress = notification
        if self._listener is not None:
            self._listener.on_notification(notification)

    def clog(self) -> Awaitable[None] | None:
        return None if self._listener is None else self._listener.clog()

    def keep(self, between: Between) -> Leave | None:
        """Store the checkpoint of a round. Only a task can be taken over, so None without one."""
        return None if self._heir is None else self._heir.keep(between)

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Store the newest resume point, for the case that the call becomes a task."""
        self._foothold = resume_point
        if self._heir is not None:
            self._heir.on_checkpoint(resume_point)

    @property
    def leaves(self) -> bool:
        return self._is_left or (self._heir is not None and self._heir.leaves)

    @property
    def can_be_asked(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        if self._heir is not None:
            self._heir.asked(question)
            return
        if self._call is None:
            # The call continues for other requests that joined it; this host can no longer be
            # asked.
            question.refuse()
            return
        size = _size(question) + sum(map(_size, self._questions.values()))
        if len(self._questions) >= self._most or size > MAX_QUESTION:
            if not self._has_told:
                # Logged once, because the server decides how often it happens.
                self._has_told = True
                log.warning("input requests of a server are rejected: too many or too large")
            question.refuse()
            return
        self._asked += 1
        key = f"input-{self._asked}"
        self._questions[key] = question
        question.when_withdrawn(lambda: self._forget(key))
        self._change.set()

    def refused(self, required: Mapping[str, Any]) -> None:
        if self._heir is not None:
            self._heir.refused(required)
        else:
            self.missing = merge_capabilities(self.missing, required)

    # --- called by those who wait for the call ------------------------------------------------------------------------

    @property
    def questions(self) -> Mapping[str, ServerQuestion]:
        """The questions without an answer, by key. A key is used once in a call."""
        return self._questions

    @property
    def is_over(self) -> bool:
        """Whether the response is there, or never will be."""
        return self._call is None or self._call.done()

    @property
    def was_refused(self) -> bool:
        """Whether it was not sent, because it got no permit."""
        call = self._call
        return call is not None and call.done() and not call.cancelled() and isinstance(call.exception(), QueueFull)

    @property
    def is_adopted(self) -> bool:
        """Whether it is the call of a task."""
        return self._heir is not None

    def tell(self, listener: CallListener | None) -> None:
        """Send the server's messages to `listener` from now on; None drops them."""
        self._listener = listener

    async def stirs(self, within: float | None) -> None:
        """Wait until the call is over or its server asks something, at most `within` seconds if it
        is given.
        """
        try:
            async with asyncio.timeout(within):
                while not self.is_over and not self._questions:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    async def checkpoints(self, quiet: float) -> None:
        """Wait until the call is over, or its server has asked nothing for `quiet` seconds."""
        while not self.is_over:
            self._change.clear()
            try:
                async with asyncio.timeout(quiet):
                    await self._change.wait()
            except TimeoutError:
                return

    def answer(self, key: str, answer: Answer, principal: Principal) -> None:
        """Send the server an answer. An answer to an unknown question is dropped."""
        question = self._questions.pop(key, None)
        if question is not None:
            question.answer(answer, principal)

    def refuse(self) -> None:
        """Refuse all questions."""
        for question in self._taken():
            question.refuse()

    # --- called by the owner ------------------------------------------------------------------------------------------

    def attach_listener(self, listener: CallListener) -> None:
        """Make the listener of a task the listener of this call, and pass it what the call has
        collected.
        """
        self._listener = self._heir = listener
        if self._request_context is not None:
            self._request_context.background = True
        self.passes_rounds = False
        if self._progress is not None:
            # The task's first progress is that of the call when it became a task.
            listener.on_notification(self._progress)
            self._progress = None
        for question in self._taken():
            listener.asked(question)
        if self._foothold is not None:
            listener.on_checkpoint(self._foothold)

    async def response(self) -> Response:
        """Wait for the response.

        Invalid after `close`. If it raises, `close` must follow.
        """
        assert self._call is not None, "an abandoned call has no response"
        return await self._call

    def close(self) -> None:
        """Cancel the call."""
        # A failed call refers to its waiters; a reference to the call here would make a cycle.
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        # The call may end after this, and reads then whether to leave the server's side as it is.
        self._is_left = self.leaves
        self._listener = self._heir = None

    def _taken(self) -> tuple[ServerQuestion, ...]:
        questions, self._questions = tuple(self._questions.values()), {}
        return questions

    def _forget(self, key: str) -> None:
        self._questions.pop(key, None)

    def _landed(self, place: CallSite, ticket: Permit | None, _: object) -> None:
        if ticket is not None:
            ticket.release()
        place.release()
        self._change.set()


def _request_context() -> RequestContext | None:
    """Return the context of the current request, without its message."""
    here = current()
    if here is None:
        return None
    request_context = here.for_background()
    request_context.background = False
    return request_context


def _size(question: ServerQuestion) -> int:
    params = question.question.params
    return 0 if params is None else params.size
