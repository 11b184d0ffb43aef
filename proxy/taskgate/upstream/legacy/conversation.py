"""One session at a server, from handshake to end: `Conversation`, with its calls and questions.

Requests go out through `LegacyExchanges`, or through `ChannelExchanges` over a message channel. Each
message of the server comes to `hear`, which finds the call it belongs to: answers, progress,
notifications, questions. A conversation starts with `begin` (a handshake) or `adopt` (a session of
another process). It ends with `end`, or with `drop` if the server ended it; `HttpSession` then
opens another. `Talk` holds it with its GET stream.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import (
    CallProgress,
    CallResponse,
    ImmediateReply,
    Question,
    ReceivedQuestion,
    SessionNotification,
    TaskStatusNotification,
    WithdrawnQuestion,
)
from taskgate.protocol.vocabulary import NOTE_TOOLS_CHANGED
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import LARGE
from taskgate.upstream import failures
from taskgate.upstream.beside import heard_aside
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import Call
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.duplex.transport import ChannelSender
from taskgate.upstream.legacy.asides import BackgroundPosts
from taskgate.upstream.legacy.attribution import Attribution
from taskgate.upstream.legacy.audience import Audience
from taskgate.upstream.legacy.channel_exchanges import ChannelExchanges, ChannelStream
from taskgate.upstream.legacy.exchanges import LegacyExchanges
from taskgate.upstream.legacy.followed import FollowedCalls, TaskCall
from taskgate.upstream.legacy.listening import ServerStream
from taskgate.upstream.legacy.questions import Questions, asked_again
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Resumed, ResumePoint

FAREWELL: Final = 2.0
"""Seconds for the last messages at the end of a conversation."""

UNWANTED: Final = "The answer is no longer needed"


class Conversation:
    """One session at a server.

    A request is a `Call` in `_calls` until its answer is there. If it may become a task of the
    server, it stays there until `met` says whether it did. If so, a `TaskCall` in `followed` takes
    its place.
    """

    def __init__(self, upstream_context: UpstreamContext, audience: Audience) -> None:
        self._upstream_context = upstream_context
        self._audience = audience
        self._calls: dict[int, Call] = {}
        self._exchanges = self._new_exchanges()
        self._asides = BackgroundPosts(self._exchanges.say)
        self._questions = Questions(upstream_context.dialect, self.say, self._answer)
        self.followed = FollowedCalls()
        """The calls that became tasks of the server and are followed in this conversation now."""
        self._attribution = Attribution(
            self._calls, self.followed, self._hear_question, lambda: audience.listener.can_be_asked
        )
        self.cancels = 0
        """How many calls were cancelled at the server: some released servers end the whole session
        for one."""
        self.cancelled_at = 0.0
        """The loop time of the last cancellation."""
        self._server: ServerDescription | None = None
        self._ended = False
        # Whether `end` leaves the session open at the server.
        self._stays_open = False

    @property
    def session(self) -> str | None:
        """The server's session id, if it gave one."""
        return self._exchanges.session

    @property
    def host(self) -> Peer | None:
        """The host that can be asked in it."""
        return self._audience.host

    @property
    def server(self) -> ServerDescription:
        """The answer to the handshake."""
        assert self._server is not None, "the handshake comes first"
        return self._server

    async def begin(self, server: ServerDescription) -> None:
        """Take the answer to the handshake, and confirm it. Raises UpstreamFailed.

        `end` must be called even then.
        """
        self._server = server
        self._exchanges.welcome(server.peer.revision)
        status = await self._exchanges.say(self._upstream_context.dialect.initialized())
        if not 200 <= status < 300:
            raise failures.refused(status)

    def adopt(self, session: str | None, revision: Revision) -> None:
        """Use a session that another process opened, instead of `begin`.

        Only the revision is known of the server: it counts as one without capabilities.
        """
        self._exchanges.adopt(session, revision)
        self._server = ServerDescription(
            peer=Peer(revision=revision, capabilities={}, info={}), capabilities="{}", instructions=None
        )

    def listen(self, lost: Callable[[], None], clock: Clock) -> ServerStream | ChannelStream | None:
        """Start to receive what the server sends outside of answers; None if there is no such stream.

        `lost` is called once if the stream shows that the server ended the session.
        """
        return self._exchanges.listen(self.hear_aside, lost, clock)

    async def ask(self, call: Call, request: str | Resumed, *, first_byte: timedelta | None = None) -> Response:
        """Send a request and return the response, at most within its time. Raises UpstreamFailed.

        `request` is its text, or a `Resumed` if another process has sent it. Then the questions of
        that process are asked, and the rest of the stream is read. If the await is cancelled, or
        the call's time is up, the request is cancelled at the server.
        """
        self._calls[call.id] = call
        running = self._upstream_context.running
        running.count += 1
        call.begin(self._upstream_context.alarms)
        try:
            with call:
                if isinstance(request, str):
                    return await self._exchanges.ask(call, request, first_byte)
                call.sent = True
                self.ask_anew(call, request.asked)
                assert request.resume_point.event is not None, "without an event there is no stream to read on"
                return await self._exchanges.take_up(call, request.resume_point.event)
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        except ScopeCancelled:
            self._give_up(call)
            if call.answer is not None:
                return call.answer
            if call.was_let_go:
                raise failures.let_go(dispatched=call.sent) from None
            raise failures.too_late(dispatched=call.sent) from None
        finally:
            running.count -= 1
            # A call that may have become a task ends in `met`.
            if call.id not in self.followed.undecided:
                self._end(call)

    def ask_anew(self, call: Call, asked: Mapping[str, Question]) -> None:
        """Ask the listener of a resumed call the questions that the other process got.

        `asked` has them by the server's keys, as in Resumed.
        """
        for again in asked_again(asked):
            self._attribution.take(again, call)

    def over(self, call: TaskCall) -> None:
        """End a call that became a task: follow it no more, and withdraw its open questions.

        Its owner calls this. Other calls end by themselves.
        """
        self.followed.end(call)
        self._end(call)

    async def hear(self, message: bytes, call: Call | None) -> Response | None:
        """Handle a message of the server; a response to a call is returned instead.

        `call` is the call on whose stream it came, None for the GET stream (U-HTTP-3).
        """
        hear, host = self._upstream_context.dialect.decode, self._audience.host
        heard = hear(message, host) if len(message) <= LARGE else await heard_aside(partial(hear, message, host))
        match heard:
            case CallResponse(response):
                return response
            case CallProgress(token, notification):
                # Progress restarts the timeout without progress.
                about = self._calls.get(token) or self.followed.of_token(token)
                if about is not None:
                    about.told = notification
                    about.progressed()
                    if about.listener is not None:
                        about.listener.on_notification(notification)
            case SessionNotification(notification):
                if notification.method == NOTE_TOOLS_CHANGED:
                    self._audience.catalogue_changed()
                self._listener_of(call).on_notification(notification)
            case TaskStatusNotification(task):
                self.followed.shows(task)
            case ReceivedQuestion() as asked:
                self._attribution.take(asked, call)
            case WithdrawnQuestion(id):
                self._attribution.withdraw(id)
                self._questions.withdraw(id)
            case ImmediateReply(reply, required):
                self.say(reply, droppable=True)
                if required is not None:
                    self._listener_of(self._attribution.of(call, None)).refused(required)
        return None

    async def hear_aside(self, message: bytes) -> None:
        """Handle a message of the GET stream; some servers answer calls there."""
        response = await self.hear(message, None)
        call = None if response is None or isinstance(response.id, str) else self._calls.get(response.id)
        if call is not None and call.answer is None:
            # Its wait ends, and returns this answer.
            call.answer = response
            call.cancel()

    def say(self, message: str, *, droppable: bool = False, insists: bool = False) -> None:
        """Send a message that has no answer, in the background; as in BackgroundPosts."""
        if not self._ended:
            self._asides.say(message, droppable=droppable, insists=insists)

    async def said(self, within: float) -> None:
        """Wait until the messages under way were sent, at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._asides.sent()

    def met(self, id: int, call: TaskCall | None) -> None:
        """Report whether the request `id`, which might become a task, did so.

        Every id given to `followed.expect` must come here once. If it became a task, `call` takes
        its place and its open questions; None if not. A `TaskCall` that is followed on in a new
        connection comes here too.
        """
        if self.followed.met(id) and id in self._calls:
            if call is not None:
                self._questions.hand_over(self._calls[id], call)
            self._end(self._calls[id])
        if call is not None:
            self.followed.begin(call)
        self._attribution.look_again()

    def fall_silent(self, id: int) -> bool:
        """Detach the listener of a call that was given up, and return whether the call was sent.

        The call still waits for its answer, which may name a task to cancel. A listener whose call
        another process resumes stays, since it says so.
        """
        call = self._calls.get(id)
        if call is None:
            return False
        if not call.is_left:
            call.listener = None
        return call.sent

    def hold(self, call: Call, **place: Any) -> None:
        """Give the listener a resume point of the call. `place` is `event` or `task` of it.

        Does nothing if the server does not outlive this process.
        """
        if call.listener is None or self._server is None or not self._upstream_context.outlives:
            return
        resume_point = ResumePoint(self.session, self._server.peer.revision.value, request=call.id, **place)
        # A process that resumes there does not ask earlier questions again, so their answers must
        # have arrived.
        self._asides.after_answers(call.id, partial(call.listener.on_checkpoint, resume_point))

    def leave(self) -> None:
        """Have `end` leave the session open at the server: another process uses it."""
        self._stays_open = True

    async def end(self) -> None:
        """End all calls, and the session at the server unless `leave` was called.

        Waits a short time for the messages that are under way.
        """
        for call in tuple(self._calls.values()):
            call.was_let_go = True
            call.cancel()
        self._end_questions()
        try:
            async with asyncio.timeout(FAREWELL):
                await self._asides.sent()
                await self._end_session()
        except (TimeoutError, UpstreamFailed):
            pass
        finally:
            await self.drop()

    async def drop(self) -> None:
        """Close it without a message to the server, which no longer knows the session.

        Questions are withdrawn and background messages cancelled. Running calls may complete.
        """
        self._ended = True
        self._end_questions()
        await self._asides.drop()

    def _new_exchanges(self) -> LegacyExchanges | ChannelExchanges:
        """Return what sends and receives: Streamable HTTP, or a message channel."""
        transport = self._upstream_context.transport
        if isinstance(transport, ChannelSender) and transport.channels is not None:
            return ChannelExchanges(self._upstream_context, transport, transport.channels, self.hear)
        return LegacyExchanges(self._upstream_context, self.hear, self._on_event)

    async def _end_session(self) -> None:
        """End the session at the server, once, unless it stays open for another process."""
        if not self._exchanges.has_session or self._ended:
            return
        self._ended = True
        if not self._stays_open:
            await self._exchanges.part()

    def _end_questions(self) -> None:
        self._attribution.end()
        self._questions.end()

    def _give_up(self, call: Call) -> None:
        """Cancel a call at the server after its wait was ended here, unless another process resumes
        it."""
        if call.is_left:
            self.leave()
            return
        # The handshake must not be cancelled. It is the only call while the server is unknown.
        if call.sent and call.answer is None and self._server is not None:
            self.say(self._upstream_context.dialect.cancel(call.id, UNWANTED))
            # Requests of the gateway itself do not count: counting them would cause further pings
            # for ever.
            self.cancels += call.is_lasting or call.listener is not None
            self.cancelled_at = asyncio.get_running_loop().time()

    def _answer(self, message: str, principal: Principal | None) -> None:
        if not self._ended:
            self._asides.answer(message, principal)

    def _on_event(self, call: Call, event: str) -> None:
        """Store a resume point: all messages of the stream up to `event` were handled."""
        if call.is_lasting:
            self.hold(call, event=event)

    def _end(self, call: Call) -> None:
        """End a call that waits for nothing any more: remove it, and withdraw its open questions."""
        # A `TaskCall` has the id of the call before it, which ended in `met`.
        if self._calls.get(call.id) is call:
            del self._calls[call.id]
        is_left = call.listener is not None and call.listener.leaves
        if is_left:
            # The process that resumes the call needs the session.
            self.leave()
        if self._questions.open:
            # Some of its questions may be for another call after all.
            for asked in self._questions.end_of(call, is_left=is_left):
                self._attribution.take(asked, None)

    # --- messages of the server ---------------------------------------------------------------------------------------

    def _listener_of(self, call: Call | None) -> CallListener:
        """Return the listener of a call, or else that of the session."""
        whole = None if call is None else self.followed.whole(call)
        return self._audience.listener if whole is None or whole.listener is None else whole.listener

    def _hear_question(self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool) -> None:
        """Open a question, and give it to the listener of its call. `Attribution` calls this."""
        if self._ended:
            return
        question = self._questions.ask(asked, call, came_aside=came_aside, guessed=guessed)
        if question is not None:
            self._listener_of(call).asked(question)
