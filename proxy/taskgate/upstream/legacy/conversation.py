"""One session at a server, from handshake to end: `Conversation`, with its calls and questions.

    POST  request            -> 200, a JSON document, or an event stream with the response
    POST  answer, notice     -> 202
    GET   Last-Event-ID      -> the rest of a stream that ended early (`event_streams`)
    DELETE                   -> end of the session

`LegacyExchanges` makes these requests; session id and revision are headers of each. A message of
the server comes to `hear`, which finds the call it belongs to: answers, progress, notifications,
questions. Only usual progress of a call is handled where it is read (`read_stream`). What belongs
to no call goes to the `Audience`. A conversation starts with the answer to a handshake (`begin`) or
with a session of another process (`adopt`). It ends with `end`, or with `drop` if the server ended
it; `LegacySession` then opens another. `SessionConnection` holds it with its GET stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, NoReturn

from taskgate.clock import Clock
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.large import MessageText
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.faults import NoMessage, protocol_violation
from taskgate.protocol.jsonrpc import is_batch
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
from taskgate.protocol.vocabulary import METHOD_NOT_FOUND, NOTE_TOOLS_CHANGED, SESSION_HEADER, VERSION_HEADER
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import LARGE, offload
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Messages, Outgoing, SameHeaders
from taskgate.upstream.call_streams import hear_unusual, read_refusal
from taskgate.upstream.calls import CallListener, Principal, Resumed, ResumePoint, RunningCall
from taskgate.upstream.context import UpstreamContext, hidden_from_hosts
from taskgate.upstream.duplex.transport import ChannelSender
from taskgate.upstream.legacy.background_posts import BackgroundPosts
from taskgate.upstream.legacy.channel_exchanges import ChannelExchanges, ChannelStream
from taskgate.upstream.legacy.event_streams import (
    EventPosition,
    ServerStream,
    behind,
    end_of,
    go_on,
    read_part,
    response_in,
)
from taskgate.upstream.legacy.questions import Attribution, Questions, asked_again
from taskgate.upstream.legacy.task_calls import TaskCall, TaskCalls
from taskgate.upstream.notification_limits import decode_large

_WITHOUT_VERSION_HEADER: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})


class LegacyExchanges:
    """The HTTP requests of one server session.

    `hear` is called with each message of a call's stream, in order, but not with usual progress of
    that call (`read_stream`). It returns the message if it is a response, else None. `placed` is
    called with a call and an event id, once all messages up to that event were handled. It is
    called only for calls with a listener.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        hear: Callable[[bytes, RunningCall], Awaitable[Response | None]],
        placed: Callable[[RunningCall, str], None],
    ) -> None:
        self._upstream_context = upstream_context
        self._hear = hear
        self._on_event = placed
        self.session: str | None = None
        self.is_open = False
        """Whether the handshake succeeded. Until then each answer may set the session id."""
        self.headers: dict[str, str] = {}
        self._post_headers = POSTED

    @property
    def has_session(self) -> bool:
        """Whether the server gave a session id, so that the session must be ended there."""
        return self.session is not None

    def welcome(self, revision: Revision) -> None:
        """Mark the session as open: the handshake agreed on this revision."""
        self.is_open = True
        if revision not in _WITHOUT_VERSION_HEADER:
            self._add_header(VERSION_HEADER, revision.value)

    def adopt(self, session: str | None, revision: Revision) -> None:
        """Continue a session that another process opened, in this revision."""
        self._take_session(session)
        self.welcome(revision)

    async def take_up(self, call: RunningCall, event: str) -> Response:
        """Return the answer to a request that another process sent. Its stream is reopened after
        `event`.

        Raises UpstreamFailed: Gone if the server no longer knows the stream.
        """
        return await self._reopen(call, behind(event), failures.Gone)

    def send(
        self, call: RunningCall, message: MessageText, first_byte: timedelta | None
    ) -> Coroutine[Any, Any, Incoming]:
        """Send a request, and return its answer, for `read`, when its head has arrived. Raises
        UpstreamFailed."""
        body = message.encode() if isinstance(message, str) else message
        return self._upstream_context.transport.send(
            # By place: it is on the way of every call.
            Outgoing("POST", self._post_headers, body, first_byte, call.bounds.idle, call.principal, call)
        )

    def read(self, call: RunningCall, incoming: Incoming) -> Response | Coroutine[Any, Any, Response]:
        """Return the response that an answer has, or what returns it. Either raises UpstreamFailed."""
        if not 200 <= incoming.status < 300:
            return self._refusal(call, incoming)
        if not self.is_open:
            self._take_session(incoming.session)
        if incoming.streams:
            return self._streamed(call, incoming)
        document = incoming.document()
        if not isinstance(document, bytes) or len(document) > LARGE:
            return self._read_late(call, incoming, document)
        try:
            response = self._upstream_context.dialect.response_to(call.id, document)
        except NoMessage:
            # An array is read in its order.
            return self._read_late(call, incoming, document)
        return self._no_answer(incoming) if response is None else response

    async def _read_late(
        self, call: RunningCall, incoming: Incoming, document: bytes | Coroutine[Any, Any, bytes | None]
    ) -> Response:
        """Return the response from a document that has not come, is large, or is not one message."""
        whole = document if isinstance(document, bytes) else await document
        response = None if whole is None else await self._response_in(call, whole)
        return self._no_answer(incoming) if response is None else response

    async def _response_in(self, call: RunningCall, message: bytes, *, is_addressed: bool = False) -> Response | None:
        """Return the response that a message is, or an array has; None without one.

        An error without an id answers the request, unless an answer `is_addressed`.
        """
        dialect = self._upstream_context.dialect
        try:
            return await response_in(dialect, message, call)
        except NoMessage:
            if is_batch(message):
                return await hear_unusual(self._upstream_context.observer, self._hear, call, message)
            if is_addressed:
                raise
            refusal = await offload(len(message), partial(dialect.read_unaddressed_error, call.id, message))
            if refusal is None:
                raise
            return refusal

    def _no_answer(self, incoming: Incoming) -> NoReturn:
        """Raise UpstreamFailed for an answer that is not that to the request."""
        # It may be the answer to an earlier request, and the next one that to this.
        incoming.drop()
        raise protocol_violation("its answer matches no request of the gateway")

    async def say(self, message: str, principal: Principal | None = None, *, runs_nothing: bool = False) -> int:
        """Send a message that gets no response; return the HTTP status. Raises UpstreamFailed."""
        settings = self._upstream_context.settings
        incoming = await self._upstream_context.transport.send(
            Outgoing(
                verb="POST",
                headers=self._post_headers,
                body=message.encode(),
                first_byte=settings.first_byte,
                idle=settings.idle,
                principal=principal,
                # It is about something that the server has begun.
                follows=True,
                runs_nothing=runs_nothing,
            )
        )
        incoming.release()
        return incoming.status

    def listen(
        self, hear: Callable[[bytes], Awaitable[None]], lost: Callable[[], None], clock: Clock
    ) -> ServerStream | None:
        """Start the GET stream; None for a server that gave no session id."""
        if self.session is None:
            return None
        transport, observer = self._upstream_context.transport, self._upstream_context.observer
        return ServerStream(transport, self.headers, hear=hear, lost=lost, observer=observer, clock=clock)

    async def part(self) -> None:
        """End the session at the server by DELETE. Raises UpstreamFailed."""
        incoming = await self._upstream_context.transport.send(
            Outgoing(verb="DELETE", headers=self.headers, follows=True)
        )
        incoming.release()

    async def _streamed(self, call: RunningCall, incoming: Incoming) -> Response:
        """Return the response from an event stream, and from those that continue it."""
        incoming.placed = self._places_of(call)
        response = await self._read(call, incoming.messages())
        if response is not None:
            return response
        # The stream ended before the response. Without ids, it may be that of an earlier request.
        if incoming.last_event is None:
            incoming.drop()
        incoming.release()
        return await self._reopen(call, end_of(incoming), failures.broke_off)

    def _reopen(
        self, call: RunningCall, place: EventPosition, gone: Callable[[], UpstreamFailed]
    ) -> Coroutine[Any, Any, Response]:
        """Return the answer from the rest of a call's stream, which starts at `place`.

        It is reopened as often as needed. `gone` makes the failure for a server that has no such
        stream.
        """
        reopening = Outgoing(
            verb="GET",
            headers=self.headers,
            first_byte=self._upstream_context.settings.first_byte,
            idle=call.bounds.idle,
            principal=call.principal,
            only_listens=True,
        )
        transport, placed = self._upstream_context.transport, self._places_of(call)
        return go_on(transport, reopening, place, partial(self._read, call), gone=gone, placed=placed)

    def _places_of(self, call: RunningCall) -> Callable[[str], None] | None:
        """Return what takes the event ids of a call's stream, if it has a listener."""
        return None if call.listener is None else partial(self._on_event, call)

    def _read(self, call: RunningCall, messages: Messages) -> Coroutine[Any, Any, Response | None]:
        return read_part(self._upstream_context.observer, self._hear, call, messages)

    async def _refusal(self, call: RunningCall, incoming: Incoming) -> Response:
        """Return the server's answer if an error status carries one; else raise what the status
        means.

        A restarted server answers an unknown session with 404, as it must, or with another status, as
        released servers do. Either may be the answer of a tool.
        """
        status, settings = incoming.status, self._upstream_context.settings
        if not self.is_open and failures.tells_nothing(status):
            # Such a status is no answer of the server to the handshake, whatever its body.
            has_credentials, pause = settings.has_credentials, incoming.retry_after
            raise failures.refused(status, has_credentials=has_credentials, retry_after=pause)
        hidden = hidden_from_hosts(settings, *call.shown.values(), self.session or "")
        # An error without an id under such a status is of the session or the era, and judged by the status.
        is_addressed = not self.is_open or status in failures.SESSION_REFUSALS or status in failures.UNKNOWING
        read = partial(self._response_in, call, is_addressed=is_addressed)
        response, body = await read_refusal(incoming, read, hidden)
        is_of_session = status == 404 and self.session is not None
        is_unknown_method = response is not None and response.error_code == METHOD_NOT_FOUND
        if response is not None and response.error is not None and (is_unknown_method or not is_of_session):
            call.refused_with = status
            return response
        # No name holds the failure: its frame would hold it, too.
        details: dict[str, Any] = {
            "body": body if self.is_open else None,
            "has_credentials": settings.has_credentials,
            "retry_after": incoming.retry_after,
        }
        if self.session is not None and status in failures.SESSION_REFUSALS:
            raise failures.SessionDoubted(failures.refused(status, **details))
        raise failures.unwelcome(status, **details)

    def _take_session(self, session: str | None) -> None:
        """Store the server's session id, if any. Raises UpstreamFailed for an invalid one."""
        # An empty one is none.
        if not session:
            return
        if not (session.isascii() and session.isprintable()):
            raise protocol_violation("its session id is invalid")
        self.session = session
        self._add_header(SESSION_HEADER, session)

    def _add_header(self, name: str, value: str) -> None:
        self.headers[name] = value
        self._post_headers = SameHeaders(POSTED | self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Receivers of the notifications and requests of a server that belong to no call.

    `listener` gets them all. `host` has the capabilities of the host that can answer questions;
    None if there is none. `catalogue_changed` is called, besides the listener, for each
    notification that the server's tools changed.
    """

    listener: CallListener
    host: Peer | None
    catalogue_changed: Callable[[], None]


FAREWELL: Final = 2.0
"""Seconds for the last messages at the end of a conversation."""

UNWANTED: Final = "The answer is no longer needed"


class Conversation:
    """One session at a server.

    A request is a `RunningCall` in `_calls` until its answer is there. If it may become a task of the
    server, it stays there until `met` says whether it did. If so, a `TaskCall` in `followed` takes
    its place.
    """

    def __init__(self, upstream_context: UpstreamContext, audience: Audience) -> None:
        self._upstream_context = upstream_context
        self._audience = audience
        self._calls: dict[int, RunningCall] = {}
        self._exchanges = self._new_exchanges()
        self._asides = BackgroundPosts(self._exchanges.say)
        self._questions = Questions(upstream_context.dialect, self.say, self._answer)
        self.followed = TaskCalls()
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
        # The GET stream. Messages of a channel are in order, so an answer waits for none of them.
        self._stream: ServerStream | None = None
        self._ended = False
        # Whether `end` leaves the session open at the server.
        self._stays_open = False

    @property
    def session(self) -> str | None:
        """The server's session id, if it gave one."""
        return self._exchanges.session

    def has_calls_beside(self, call: RunningCall) -> bool:
        """Whether another request waits for its answer, or a task of the server is followed."""
        return any(each is not call for each in self._calls.values()) or bool(tuple(self.followed))

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
        status = await self._exchanges.say(self._upstream_context.dialect.initialized(), runs_nothing=True)
        if not 200 <= status < 300:
            refused = failures.refused(status, has_credentials=self._upstream_context.settings.has_credentials)
            is_doubted = self.session is not None and status in failures.SESSION_REFUSALS
            raise failures.SessionDoubted(refused) if is_doubted else refused

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
        stream = self._exchanges.listen(self.take_stream_message, lost, clock)
        if isinstance(stream, ServerStream):
            self._stream = stream
        return stream

    async def ask(
        self, call: RunningCall, request: MessageText | Resumed, *, first_byte: timedelta | None = None
    ) -> Response:
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
                if isinstance(request, Resumed):
                    response = await self._take_up(call, request)
                else:
                    exchanges, is_read = self._exchanges, False
                    # Either kind of exchanges reads what itself has sent.
                    incoming: Any = await exchanges.send(call, request, first_byte)
                    try:
                        read = exchanges.read(call, incoming)
                        # Nearly always it has come whole, and there is nothing to wait for.
                        response = read if type(read) is Response else await read
                        is_read = True
                    finally:
                        incoming.release(answered=is_read)
                if call.has_token and (stream := self._stream) is not None:
                    incoming = stream.incoming
                    if incoming is not None and incoming.has_unread:
                        # It may be progress of this call, which is of no use after the answer. A
                        # timeout during the wait does not take the answer away.
                        call.answer = response
                        await stream.catch_up()
                return response
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        except ScopeCancelled:
            self._give_up(call)
            if call.answer is not None:
                return call.answer
            over = failures.let_go if call.was_let_go else failures.too_late
            raise over(dispatched=call.sent) from None
        finally:
            running.count -= 1
            # A call that may have become a task ends in `met`.
            if call.id not in self.followed.undecided:
                self._end(call)

    def _take_up(self, call: RunningCall, resumed: Resumed) -> Coroutine[Any, Any, Response]:
        """Ask the questions of the process that sent the request, and read the rest of its stream."""
        call.sent = True
        self.ask_anew(call, resumed.asked)
        assert resumed.resume_point.event is not None, "without an event there is no stream to read on"
        return self._exchanges.take_up(call, resumed.resume_point.event)

    def ask_anew(self, call: RunningCall, asked: Mapping[str, Question]) -> None:
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

    async def hear(self, message: bytes, call: RunningCall | None) -> Response | None:
        """Handle a message of the server; a response to a call is returned instead.

        `call` is the call on whose stream it came, None for the GET stream (U-HTTP-3).
        """
        hear, host = self._upstream_context.dialect.decode, self._audience.host
        heard = hear(message, host) if len(message) <= LARGE else await decode_large(partial(hear, message, host))
        match heard:
            case CallResponse(response):
                return response
            case CallProgress(token, notification):
                about = self._calls.get(token) or self.followed.of_token(token)
                if about is not None:
                    about.on_progress(notification)
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
        if call is not None:
            call.was_heard = True
        return None

    async def take_stream_message(self, message: bytes) -> None:
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

    def hold(self, call: RunningCall, **place: Any) -> None:
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
        self._give_back()

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

    def _give_back(self) -> None:
        """Give the channel of a conversation that is over back, once no call runs on it."""
        if isinstance(self._exchanges, ChannelExchanges) and not self._calls and not tuple(self.followed):
            self._exchanges.give_back()

    def _end_questions(self) -> None:
        self._attribution.end()
        self._questions.end()

    def _give_up(self, call: RunningCall) -> None:
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

    def _on_event(self, call: RunningCall, event: str) -> None:
        """Store a resume point: all messages of the stream up to `event` were handled."""
        if call.is_lasting:
            self.hold(call, event=event)

    def _end(self, call: RunningCall) -> None:
        """End a call that waits for nothing any more: remove it, and withdraw its open questions."""
        # A `TaskCall` has the id of the call before it, which ended in `met`.
        if self._calls.get(call.id) is call:
            del self._calls[call.id]
        if self._ended:
            self._give_back()
        is_left = call.listener is not None and call.listener.leaves
        if is_left:
            # The process that resumes the call needs the session.
            self.leave()
        if self._questions.open:
            # Some of its questions may be for another call after all.
            for asked in self._questions.end_of(call, is_left=is_left):
                self._attribution.take(asked, None)

    # --- messages of the server ---------------------------------------------------------------------------------------

    def _listener_of(self, call: RunningCall | None) -> CallListener:
        """Return the listener of a call, or else that of the session."""
        whole = None if call is None else self.followed.whole(call)
        return self._audience.listener if whole is None or whole.listener is None else whole.listener

    def _hear_question(
        self, asked: ReceivedQuestion, call: RunningCall | None, *, came_aside: bool, guessed: bool
    ) -> None:
        """Open a question, and give it to the listener of its call. `Attribution` calls this."""
        if self._ended:
            return
        question = self._questions.ask(asked, call, came_aside=came_aside, guessed=guessed)
        if question is not None:
            self._listener_of(call).asked(question)
