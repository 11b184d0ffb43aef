"""Calls to servers that may outlive the request they were made for: it comes back for them, or they become tasks.

What must not live here: who waits for a call (`attending`), where it waits for its host to come back (`holds`). What
holds: a server that asks is answered by somebody, or refused, or its call has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from logging import getLogger
from typing import Any

from taskgate.admission.bulkhead import Ticket
from taskgate.admission.rules import MAX_QUESTION
from taskgate.errors import QueueFull
from taskgate.protocol.envelope import Notification, Response
from taskgate.protocol.needs import together
from taskgate.protocol.questions import Answer
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.sessions.call_sites import CallSite
from taskgate.system.background import Background
from taskgate.telemetry.request_context import RequestContext, current, in_request
from taskgate.upstream.call_listener import Between, CallListener, ServerQuestion
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint

log = getLogger("taskgate.stateless")


class InflightCall:
    """One call, and what its server asked that nobody answered; see CallListener, and OngoingCall.

    While it has a listener, that one is told what the server says. `most` is how many questions may wait at once.
    `passes_rounds` is whether a round of a server of the modern era goes to the host as it is.
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
        """What its server was refused for want of, as long as it was no task; see together."""
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
        ticket: Ticket | None = None,
    ) -> None:
        """Begin the call, `work`, over its place, which stays open until it is over; so long it has its ticket."""
        place.hold()
        # It may go on long after its request, whose message is not kept for it.
        with in_request(self._request_context):
            self._call = background.begin(partial(work, self))
            self._call.add_done_callback(partial(self._landed, place, ticket))

    # --- what its server says

    def on_notification(self, notification: Notification) -> None:
        """See CallListener; of a call that its host is away from nobody hears."""
        if notification.method == NOTE_PROGRESS:
            self._progress = notification
        if self._listener is not None:
            self._listener.on_notification(notification)

    def clog(self) -> Awaitable[None] | None:
        """See CallListener."""
        return None if self._listener is None else self._listener.clog()

    def keep(self, between: Between) -> Leave | None:
        """See CallListener; what is no task nobody takes over."""
        return None if self._heir is None else self._heir.keep(between)

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """See CallListener; the newest counts should it become a task."""
        self._foothold = resume_point
        if self._heir is not None:
            self._heir.on_checkpoint(resume_point)

    @property
    def leaves(self) -> bool:
        """See CallListener."""
        return self._is_left or (self._heir is not None and self._heir.leaves)

    @property
    def can_be_asked(self) -> bool:
        """See CallListener: it hears a call."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener."""
        if self._heir is not None:
            self._heir.asked(question)
            return
        if self._call is None:
            # It goes on for others who make the same call, and nobody here can be asked any more.
            question.refuse()
            return
        size = _size(question) + sum(map(_size, self._questions.values()))
        if len(self._questions) >= self._most or size > MAX_QUESTION:
            if not self._has_told:
                # Once: how often it happens is the server's to decide.
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
        """See CallListener."""
        if self._heir is not None:
            self._heir.refused(required)
        else:
            self.missing = together(self.missing, required)

    # --- for whoever waits for it

    @property
    def questions(self) -> Mapping[str, ServerQuestion]:
        """What the server waits for an answer to, by keys none of which is used twice in a call."""
        return self._questions

    @property
    def is_over(self) -> bool:
        """Whether the response is there, or will never be."""
        return self._call is None or self._call.done()

    @property
    def was_refused(self) -> bool:
        """Whether it has not left, because it did not come to its turn."""
        call = self._call
        return call is not None and call.done() and not call.cancelled() and isinstance(call.exception(), QueueFull)

    @property
    def is_adopted(self) -> bool:
        """Whether it is the call of a task."""
        return self._heir is not None

    def tell(self, listener: CallListener | None) -> None:
        """Tell `listener` from now on what the server says; None tells nobody."""
        self._listener = listener

    async def stirs(self, within: float | None) -> None:
        """Wait until the call is over or its server asks something, but no longer than `within` seconds; None waits."""
        try:
            async with asyncio.timeout(within):
                while not self.is_over and not self._questions:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    async def checkpoints(self, quiet: float) -> None:
        """Wait until the call is over, or its server has asked nothing more for `quiet` seconds."""
        while not self.is_over:
            self._change.clear()
            try:
                async with asyncio.timeout(quiet):
                    await self._change.wait()
            except TimeoutError:
                return

    def answer(self, key: str, answer: Answer, principal: Principal) -> None:
        """Give the server an answer; one to nothing that it waits for is dropped."""
        question = self._questions.pop(key, None)
        if question is not None:
            question.answer(answer, principal)

    def refuse(self) -> None:
        """Refuse whatever the server waits for."""
        for question in self._taken():
            question.refuse()

    # --- for whoever owns it

    def heard_by(self, listener: CallListener) -> None:
        """See OngoingCall."""
        self._listener = self._heir = listener
        if self._request_context is not None:
            self._request_context.background = True
        self.passes_rounds = False
        if self._progress is not None:
            # How far the call was when it became a task is what its task says first.
            listener.on_notification(self._progress)
            self._progress = None
        for question in self._taken():
            listener.asked(question)
        if self._foothold is not None:
            listener.on_checkpoint(self._foothold)

    async def response(self) -> Response:
        """See OngoingCall. Not to be asked for after `close`, which is to follow where it raises."""
        assert self._call is not None, "an abandoned call has no response"
        return await self._call

    def close(self) -> None:
        """See OngoingCall."""
        # A failure holds on to whoever waited for it: with the call kept here it would be a ring.
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        # The call may end only after this, and is to know then.
        self._is_left = self.leaves
        self._listener = self._heir = None

    def _taken(self) -> tuple[ServerQuestion, ...]:
        questions, self._questions = tuple(self._questions.values()), {}
        return questions

    def _forget(self, key: str) -> None:
        self._questions.pop(key, None)

    def _landed(self, place: CallSite, ticket: Ticket | None, _: object) -> None:
        if ticket is not None:
            ticket.close()
        place.release()
        self._change.set()


def _request_context() -> RequestContext | None:
    """What a call belongs to: what its request does, but for the message."""
    here = current()
    if here is None:
        return None
    request_context = here.for_background()
    request_context.background = False
    return request_context


def _size(question: ServerQuestion) -> int:
    params = question.question.params
    return 0 if params is None else params.size
