"""The receivers of what a server sends during a call, and the wait of a request for its answer.

A request waits within the block of its `HostListener`, which sends the server's messages to the
host. The answer is one JSON document unless the host has to wait. The first message before the
answer turns it into an event stream (H-MOD-13), and so does the first keep-alive interval without
it. If nothing but the answer can follow, the interval begins the document instead: space keeps the
host waiting, and the answer has any size. The adapter of each era has its own subclass.

An `InflightCall` is the listener of a sent call that may outlive its request: that may become a
task, or be held for input responses. `ResponseWaiter` has the running waits of this process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple, Self, TypeVar

from taskgate.admission.concurrency import Permit
from taskgate.admission.rules import MAX_QUESTION
from taskgate.domain.record import RequestId
from taskgate.domain.versions import LEGACY, Peer, client_of
from taskgate.errors import CutOff, QueueFull
from taskgate.jsontext.edits import dump
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.jsonrpc import UsualProgress
from taskgate.protocol.legacy.capabilities import may_be_asked
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import Answer, read_progress, text_of_progress
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.sessions.binding import CallSite
from taskgate.streams.event_limits import NONE, EventLimits
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Exchange
from taskgate.system.background import Background
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.system.timer_wheel import TimerWheel
from taskgate.telemetry.request_context import RequestContext, current, in_request
from taskgate.upstream.calls import (
    Between,
    CallListener,
    Leave,
    Principal,
    ResumePoint,
    ServerQuestion,
    UnsavedCallListener,
)

STEP: Final = 1e-6
"""The increment of progress in a keep-alive. Progress must grow, and the step is too small to pass
the numbers of a server."""

log = getLogger("taskgate.stateless")

Awaited = TypeVar("Awaited")


class Keepalives(NamedTuple):
    """The timers of the keep-alives of all requests, and the seconds between two of one request.

    `limits` are those of the events that hosts take.
    """

    wheel: TimerWheel
    interval: float
    limits: EventLimits = NONE


@dataclass(slots=True, eq=False)
class HostListener(UnsavedCallListener):
    """The listener of one request. The host gets keep-alives within its `with` block.

    This base sends keep-alives alone, for the time before the request is sent. The adapters have
    subclasses that send the server's messages too.

    - `token`: the host's progress token; None if it wants no progress.
    - `later`: the listener of the request once it is sent, if this one waits before that. It has the token:
      progress must only grow, and the numbers of the server begin then.
    - `peer`: what the host declares; None if more than progress, questions and logs may come on a stream.
    - `other_streams`: the open streams on which the host is asked, if this request has none.
    - `passes_rounds`: whether the input requests of a modern server go to the host unchanged.
    - `missing`: the capabilities that the server asked for and the host did not declare.
    - `_last_progress`: the newest number that the host got; a keep-alive may have invented it.
    - `_unread`: the newest progress, if its number is not read into `_last_progress` yet.
    - `_has_invented`: a keep-alive has sent a number of the gateway's own.
    - `_has_sent`: something was sent since the last keep-alive.
    - `_feed`: the event stream that the answer has become, once `feed` was called.
    - `_written_token`: `token` as JSON, once `write_token` was called.
    """

    exchange: Exchange
    token: RequestId | None
    keepalives: Keepalives
    dialect: LegacyDownstream | ModernDownstream
    later: "HostListener | None" = field(default=None, kw_only=True)
    peer: Peer | None = field(default=None, init=False)
    other_streams: Collection[EventStream] = field(default=(), init=False)
    passes_rounds: bool = field(default=False, init=False)
    missing: Mapping[str, Any] = field(default_factory=dict, init=False)
    _last_progress: float | None = field(default=None, init=False)
    _unread: UsualProgress | None = field(default=None, init=False)
    _has_invented: bool = field(default=False, init=False)
    _has_sent: bool = field(default=False, init=False)
    _feed: EventStream | None = field(default=None, init=False)
    _written_token: bytes = field(default=b"", init=False)

    def __enter__(self) -> Self:
        if not self.exchange.head.accepts_json:
            # This host can read an answer only as an event.
            self.feed()
        wheel, interval, _ = self.keepalives
        wheel.start(self, interval)
        return self

    def __exit__(self, *_: object) -> None:
        self.keepalives.wheel.stop(self)

    def live(self) -> None:
        """Keep the host waiting: called once in each keep-alive interval.

        Begins a document, if the answer may be one. Else turns the answer into an event stream, and
        sends progress if nothing was sent since the last interval. Without a progress token nothing is
        sent.
        """
        exchange = self.exchange
        # What has begun goes on, also if its reason is gone.
        if (exchange.has_begun or (self.later or self).may_begin_document()) and exchange.begin_document():
            return
        if not exchange.head.accepts_stream:
            return
        feed = self.feed()
        if self.token is not None and not self._has_sent:
            self._read_number()
            self._last_progress = 0.0 if self._last_progress is None else self._last_progress + STEP
            self._has_invented = True
            feed.send_now(self.dialect.progress(self.token, self._last_progress, "Still running"))
        self._has_sent = False

    def may_begin_document(self) -> bool:
        """Return whether the answer may begin as a document, since nothing else needs a stream.

        A host with a limit of events gets no progress and no logs then that come later: its answer
        would be lost. Another one gets a document if it asked for nothing else. A legacy one does not,
        because it may resume a stream.
        """
        exchange, peer = self.exchange, self.peer
        if not exchange.head.accepts_json or not exchange.head.accepts_stream:
            return exchange.head.accepts_json
        if peer is None or (may_be_asked(peer) and not self.other_streams):
            return False
        return self.event_limit() is not None or (peer.revision not in LEGACY and self.asks_for_nothing())

    def asks_for_nothing(self) -> bool:
        """Return whether the host asked for the answer alone."""
        return self.token is None

    def event_limit(self) -> int | None:
        """Return the most bytes of an event that the host takes; None for no limit."""
        return None if self.peer is None else event_limit(self.keepalives.limits, self.exchange, self.peer)

    def tell(self, text: str) -> None:
        """Send progress with a text and a number of the gateway's own; nothing without a progress token."""
        if self.token is not None and self.exchange.head.accepts_stream:
            self._read_number()
            self._last_progress = 0.0 if self._last_progress is None else self._last_progress + STEP
            self._has_invented = self._has_sent = True
            self.feed().send(self.dialect.progress(self.token, self._last_progress, text))

    def feed(self) -> EventStream:
        """Return the event stream of the request; the first call turns the answer into it."""
        feed = self._feed
        if feed is None:
            feed = self._feed = self.exchange.stream()
        return feed

    def more_follows(self) -> None:
        if self.exchange.is_streaming:
            self.feed().more_follows()

    def on_notification(self, notification: Notification) -> None:
        """Drop it: nothing was sent to the server yet."""

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def withdraw_questions(self) -> Sequence[ServerQuestion]:
        """Withdraw the open questions of the call from the host, and return them; a task asks them again."""
        return ()

    def refused(self, required: Mapping[str, Any]) -> None:
        self.missing = merge_capabilities(self.missing, required)

    def clog(self) -> asyncio.Future[None] | None:
        feed = self._feed
        if feed is None:
            if not self.exchange.is_streaming:
                return None
            feed = self.feed()
        return feed.backpressure()

    def write_token(self) -> bytes:
        """Return the host's progress token as JSON; there must be one."""
        self._written_token = dump(self.token).encode()
        return self._written_token

    def reword(self, notification: Notification) -> str | None:
        """Return the server's text with a number of the gateway, which grows.

        For progress whose own number does not grow beyond that of a keep-alive. Returns None if the
        host has no number yet, or the notification has no text.
        """
        self._read_number()
        text = text_of_progress(notification)
        if text is None or self.token is None or self._last_progress is None:
            return None
        self._last_progress += STEP
        return self.dialect.progress(self.token, self._last_progress, text)

    def _read_number(self) -> None:
        if self._unread is not None:
            self._last_progress, self._unread = self._unread.done, None

    def on_alarm(self) -> None:
        """Send a keep-alive, and start the next interval. The wheel of the keep-alives calls this."""
        self.live()
        wheel, interval, _ = self.keepalives
        wheel.start(self, interval)


def event_limit(limits: EventLimits, exchange: Exchange, peer: Peer) -> int | None:
    """Return the most bytes of an event that the host of a request takes; None for no limit."""
    agent = next((value for name, value in exchange.fields if name.lower() == "user-agent"), None)
    return limits.most(client_of(peer.info), agent)


class ResponseWaiter:
    """The waits of requests for their servers. `patience` is the keep-alive interval, after which the
    answer begins. `limits` are those of the events that hosts take.
    """

    def __init__(self, patience: timedelta, limits: EventLimits = NONE) -> None:
        interval = patience.total_seconds()
        self.keepalives = Keepalives(TimerWheel(interval), interval, limits)
        self.waits = Waits()
        """The waits of requests that end with their host."""

    async def wait(self, exchange: Exchange | None, work: Awaitable[Awaited]) -> Awaited:
        """Await `work`, and return its result. The end of the request cancels `work`.

        `exchange` is None for work that goes on when the host has disconnected. Raises ScopeCancelled
        when the host disconnected, CutOff when the gateway shuts down, and what `work` raises.
        """
        scope, waits = CancelScope(), self.waits
        waits.scopes.add(scope)
        try:
            with scope:
                if exchange is not None:
                    exchange.on_disconnect(scope.cancel)
                if waits.is_stopped:
                    # The others have been cancelled before this one was registered. A result that
                    # is there already is still returned.
                    scope.cancel()
                return await work
        except ScopeCancelled:
            if waits.is_stopped:
                raise CutOff from None
            raise
        finally:
            waits.scopes.discard(scope)

    async def wait_for_session(self, listener: HostListener, work: Awaitable[Awaited]) -> Awaited:
        """Await `work`, which opens a session with a server before the request of that listener is sent.

        Raises what `wait` raises. Meanwhile keep-alives carry no progress.
        """
        with HostListener(listener.exchange, None, self.keepalives, listener.dialect, later=listener):
            return await self.wait(listener.exchange, work)

    def document_wait(
        self, exchange: Exchange, peer: Peer, dialect: LegacyDownstream, other_streams: Collection[EventStream]
    ) -> HostListener | None:
        """Return the block in which a host waits for a document; None for one that gets an event stream.

        The parameters are as in `HostListener`.
        """
        listener = HostListener(exchange, None, self.keepalives, dialect)
        listener.peer, listener.other_streams = peer, other_streams
        return listener if listener.may_begin_document() else None

    def close(self) -> None:
        """Stop the timers, after the last wait has ended."""
        self.keepalives.wheel.close()


class Waits:
    """The scopes of running waits, which `stop` cancels at shutdown. Later ones find `is_stopped`."""

    def __init__(self) -> None:
        self.scopes: set[CancelScope] = set()
        self.is_stopped = False

    def stop(self) -> None:
        """Cancel every wait, which then raises CutOff."""
        self.is_stopped = True
        for scope in self.scopes:
            scope.cancel()


# --- calls that may outlive their requests ----------------------------------------------------------------------------


class InflightCall:
    """A sent call that may outlive its request, and the questions of its server without an answer.

    `start` sends the call in a background task. Until that task ends, the upstream session stays
    open and the permit is in use. A question leaves when the host answers it, when the server
    withdraws it, when it is refused, or when the call ends. `attach_listener` makes this the call
    of a task, whose listener gets everything from then on. It is over when the response is there,
    or after `close`, which cancels it.

    It is a `CallListener` for the server's session, and an `OngoingCall` for the task.

    Notifications go to the current listener: that of the request which waits for the call, or that
    of the task. There is none while the call is held. `most` is the number of questions that may
    wait at once. With `asks_host`, questions go to the listener too, whose host is asked on a stream.
    `passes_rounds` is whether the input requests of a modern server go to the host unchanged; that
    ends when the call becomes a task.

    - `_call`: the background task that sends the call; None before `start` and after `close`.
    - `_listener`: gets the notifications now. `_host`: the same during a request of the host.
      `_task_listener`: the task's, once there is a task.
    - `_progress`, `_resume_point`: the newest ones, for a task that the call may become. `_newest` is the
      progress too, also when the task has it.
    - `is_hurried`: the time is up in which the call may be answered without a task.
    - `_change`: set when a question has come or the call has ended, to wake those who wait.
    - `_leaves_at_close`: the value of `leaves` when `close` was called. `leaves` is true if the
      call goes on in another process, so that it must not be cancelled at its server.
    """

    __slots__ = (
        "_asks_host",
        "_call",
        "_change",
        "_has_logged",
        "_host",
        "_leaves_at_close",
        "_listener",
        "_most",
        "_newest",
        "_progress",
        "_question_count",
        "_questions",
        "_request_context",
        "_resume_point",
        "_task_listener",
        "is_hurried",
        "missing",
        "on_hold_end",
        "passes_rounds",
    )

    def __init__(self, *, most: int, asks_host: bool = False) -> None:
        self._asks_host = asks_host
        self.passes_rounds = not asks_host
        self.is_hurried = False
        self.missing: Mapping[str, Any] = {}
        """The capabilities that the host did not declare and the server asked for, while the call is
        no task."""
        self.on_hold_end: Callable[[], None] | None = None
        """Ends the hold of the call, if it was held; a second call does nothing."""
        self._most = most
        self._question_count = 0
        self._has_logged = False
        self._questions: dict[str, ServerQuestion] = {}
        self._listener: CallListener | None = None
        self._host: HostListener | None = None
        self._task_listener: CallListener | None = None
        self._leaves_at_close = False
        self._progress: Notification | None = None
        self._newest: Notification | None = None
        self._resume_point: ResumePoint | None = None
        self._change = asyncio.Event()
        self._call: asyncio.Task[Response] | None = None
        self._request_context = _request_context()

    def start(
        self,
        session: CallSite,
        background: Background,
        work: Callable[[CallListener], Coroutine[Any, Any, Response]],
        permit: Permit | None = None,
    ) -> None:
        """Start the call; once. `work` sends it, with this object as its listener.

        The session is acquired, and `permit` is taken over. Both are released when `work` ends.
        """
        session.acquire()
        # The call may last long after its request, so its context must not hold the request's
        # message.
        with in_request(self._request_context):
            self._call = background.start(partial(work, self))
            self._call.add_done_callback(partial(self._on_end, session, permit))

    # --- called by the server's session -------------------------------------------------------------------------------

    def more_follows(self) -> None:
        if self._listener is not None:
            self._listener.more_follows()

    def on_notification(self, notification: Notification) -> None:
        """Pass a notification to the listener. Without one it is dropped.

        The newest progress is remembered, for a task that the call may become.
        """
        if notification.method == NOTE_PROGRESS:
            self._progress = self._newest = notification
        if self._listener is not None:
            self._listener.on_notification(notification)

    def clog(self) -> asyncio.Future[None] | None:
        return None if self._listener is None else self._listener.clog()

    def keep(self, between: Between) -> Leave | None:
        """Have the task store the checkpoint of a round.

        The session awaits the returned function before it sends the next round. Returns None
        without a task: only tasks continue in other processes.
        """
        return None if self._task_listener is None else self._task_listener.keep(between)

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Remember the newest resume point for a task that the call may become, or give it to the
        task.
        """
        self._resume_point = resume_point
        if self._task_listener is not None:
            self._task_listener.on_checkpoint(resume_point)

    @property
    def leaves(self) -> bool:
        return self._leaves_at_close or (self._task_listener is not None and self._task_listener.leaves)

    @property
    def can_be_asked(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        if self._task_listener is not None:
            self._task_listener.asked(question)
            return
        if self._call is None:
            # `close` was called. The call continues for other requests that joined it; this host
            # can no longer be asked.
            question.refuse()
            return
        if self._asks_host and self._listener is not None:
            self._listener.asked(question)
            return
        size = _size(question) + sum(map(_size, self._questions.values()))
        if len(self._questions) >= self._most or size > MAX_QUESTION:
            if not self._has_logged:
                # Logged once, because the server decides how often it happens.
                self._has_logged = True
                log.warning("input requests of a server are rejected: too many or too large")
            question.refuse()
            return
        self._question_count += 1
        key = f"input-{self._question_count}"
        self._questions[key] = question
        question.when_withdrawn(lambda: self._forget(key))
        self._change.set()

    def refused(self, required: Mapping[str, Any]) -> None:
        if self._task_listener is not None:
            self._task_listener.refused(required)
        else:
            self.missing = merge_capabilities(self.missing, required)

    # --- called by those who wait for the call ------------------------------------------------------------------------

    @property
    def questions(self) -> Mapping[str, ServerQuestion]:
        """The questions without an answer, by key. A key is used once in a call."""
        return self._questions

    @property
    def status_message(self) -> str | None:
        """The text of the newest progress; None without any."""
        progress = None if self._newest is None else read_progress(self._newest)
        return None if progress is None else progress.status_message

    @property
    def is_over(self) -> bool:
        """Whether the response is there, the call has failed, or `close` was called."""
        return self._call is None or self._call.done()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._call is None

    @property
    def was_refused(self) -> bool:
        """Whether it ended unsent, because it got no permit. It is counted as refused already."""
        call = self._call
        return call is not None and call.done() and not call.cancelled() and isinstance(call.exception(), QueueFull)

    @property
    def is_adopted(self) -> bool:
        """Whether a task has attached its listener: the call is that task's."""
        return self._task_listener is not None

    def hurry(self) -> None:
        """End the time in which the call may be answered without a task."""
        self.is_hurried = True
        self._change.set()

    def set_listener(self, listener: HostListener | None) -> None:
        """Send the server's notifications to `listener` from now on; None drops them.

        `Calls` sets that of each request that waits for the call. None is set while the call is
        held.
        """
        self._listener = self._host = listener

    async def wait_for_change(self, within: float | None) -> None:
        """Wait until the call is over or a question waits for an answer.

        Returns also after `within` seconds, if given, or once `hurry` was called then; the caller looks
        which is the case.
        """
        try:
            async with asyncio.timeout(within):
                while not self.is_over and not self._questions and (within is None or not self.is_hurried):
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    async def wait_quiet(self, quiet: float) -> None:
        """Wait until the call is over, or its server has asked nothing for `quiet` seconds."""
        while not self.is_over:
            self._change.clear()
            try:
                async with asyncio.timeout(quiet):
                    await self._change.wait()
            except TimeoutError:
                return

    def answer(self, key: str, answer: Answer, principal: Principal) -> None:
        """Send the server the answer to a question. One to an unknown question is dropped."""
        question = self._questions.pop(key, None)
        if question is not None:
            question.answer(answer, principal)

    def refuse(self) -> None:
        """Send the server a refusal of all questions that wait."""
        for question in self._take_questions():
            question.refuse()

    def end_hold(self) -> None:
        """End the hold of the call, if it was held: it is over, or is a task now."""
        on_end, self.on_hold_end = self.on_hold_end, None
        if on_end is not None:
            on_end()

    # --- called by the owner ------------------------------------------------------------------------------------------

    def attach_listener(self, listener: CallListener) -> None:
        """Make this the call of a task, whose listener gets everything from now on.

        It first gets what the call has collected: progress, questions, and the resume point.
        """
        host, self._host = self._host, None
        self._listener = self._task_listener = listener
        if self._request_context is not None:
            self._request_context.background = True
        self.passes_rounds = False
        if self._progress is not None:
            # The task's first progress is that of the call when it became a task.
            listener.on_notification(self._progress)
            self._progress = None
        asked = self._take_questions() if host is None else (*host.withdraw_questions(), *self._take_questions())
        for question in asked:
            listener.asked(question)
        if self._resume_point is not None:
            listener.on_checkpoint(self._resume_point)

    async def response(self) -> Response:
        """Wait for the response, or raise the error of the call.

        Must not be called after `close`. If it raises, the caller must call `close`.
        """
        assert self._call is not None, "an abandoned call has no response"
        return await self._call

    def close(self) -> None:
        """Cancel the call if it still runs. A second call does nothing.

        Not needed for a call that has ended with its response.
        """
        # A failed call refers to its waiters; a reference to the call here would make a cycle.
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        # The call ends some time after this. Its session then reads `leaves`: a call that goes on in
        # another process is not cancelled at its server.
        self._leaves_at_close = self.leaves
        self._listener = self._host = self._task_listener = None

    def _take_questions(self) -> tuple[ServerQuestion, ...]:
        questions, self._questions = tuple(self._questions.values()), {}
        return questions

    def _forget(self, key: str) -> None:
        self._questions.pop(key, None)

    def _on_end(self, session: CallSite, permit: Permit | None, _: object) -> None:
        if permit is not None:
            permit.release()
        session.release()
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
