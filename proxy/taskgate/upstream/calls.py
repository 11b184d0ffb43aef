"""A call to a server: its values (`UpstreamCall`), its listener, its wait for the answer (`RunningCall`).

A session gets an `UpstreamCall` and a `CallListener`. It calls the listener's methods during the
call: for notifications, questions (elicitation, sampling, roots) and resume points. The listener of
a session gets what belongs to no call. Listeners are implemented in `gateway`, `sessions` and
`lifecycle`. A `ServerQuestion` is one open question of a server, implemented by the sessions; the
listener gives the host's answer to it.

The session sends the call under the id of a `RunningCall`. After `begin` it waits for the answer in the
block `with call`. The block ends early if the time is up, or by `cancel`. A session asks
`context.Patience` for its timeouts.

A `Principal` is the caller that a request is made for; `credentials` makes its tokens and headers.
From a `ResumePoint` another process resumes a call: a session gives it to the listener, and
`lifecycle.checkpoints` stores it. When another process takes the task over, its `UpstreamCall` has it
in a `Resumed`. A `NextRound` is the same for a modern call between two rounds. The call is not sent
from its beginning.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from taskgate.errors import UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.server_messages import Answer, Question
from taskgate.system.cancel_scope import CancelScope
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.failures import http_cause, tells_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller that a request to a server is made for, as far as known.

    `context` is the auth context: an id that tells callers apart and contains no name. `subject`,
    `issuer`, `client`, `token`, `scopes` and `good_until` (the end of the token's validity) are from
    the caller's token. They are empty if callers need no token, or none is at hand. `is_known` is False
    if only the context is known, from the record of a task. `subject_key` is the key of the subject with all
    of its clients (`AuthContext.subject`); it is empty where that is not known.
    """

    context: str
    subject: str | None = None
    issuer: str | None = None
    client: str | None = None
    token: str | None = field(default=None, repr=False)
    scopes: frozenset[str] = frozenset()
    good_until: datetime | None = None
    is_known: bool = True
    subject_key: str = field(default="", compare=False)

    @property
    def counted_as(self) -> str:
        """Whom the failures and programs of the caller count for: the subject, or the context where it is not known.

        Hosts register clients by themselves, so all clients of one subject count as one caller.
        """
        return self.subject_key or self.context


PrincipalSource = Callable[[], Principal]
"""Returns the principal of a session: always the same context, with the caller's latest accepted
token."""


Leave = Callable[[], Awaitable[bool]]
"""Removes the checkpoint of a call between two rounds. Awaited right before the next round is sent.

False if the round must not be sent: the call was given up, or another process has it.
"""


class NextRound(NamedTuple):
    """The next round of a modern call that another process began.

    `state` is the state that the server wants back, as written. `answers` has its questions with
    the answers, by its keys; an answer is None if the host gave none. `leave` must be awaited
    before the round is sent. Legacy servers have no rounds.
    """

    state: RawJson | None
    answers: Mapping[str, tuple[Question, Answer | None]]
    leave: Leave


class ResumePoint(NamedTuple):
    """Position of a sent call at its server, from which any process can resume it.

    `session` is the session id at the server, None without one; `revision` is the revision spoken.
    If the call became a task of the server, `task` is its id there. If not, `request` is the id of
    the request, and `event` the last event of its stream, after which the stream is reopened.
    """

    session: str | None = None
    revision: str | None = None
    task: str | None = None
    request: int | None = None
    event: str | None = None


async def _unsure() -> bool:
    return False


class Resumed(NamedTuple):
    """A call that another process made, resumed at its resume point. It is not sent again.

    - `asked` has questions that the server may still wait for, by the server's keys. Each is given
      to the listener again, under its key: it may have been asked or answered before.
    - `is_last` is called when the call is over, before its session is ended at the server. It
      returns True if no other task has a call in that session, False if one has or it is unknown.
    - `context` is the auth context of the call, as in `Principal`.
    """

    resume_point: ResumePoint
    asked: Mapping[str, Question]
    is_last: Callable[[], Awaitable[bool]] = _unsure
    context: str = ""


Resumes = NextRound | Resumed
"""The two ways in which a call goes on that another process began: by a round, or as sent."""


class ServerQuestion(Protocol):
    """A question of a server that waits for its answer. No method raises or blocks."""

    question: Question

    @property
    def key(self) -> str | None:
        """The server's own name for the question, unique in its call; None without one.

        Only a question with a key can be answered by another process that takes over the call.
        """
        ...

    @property
    def is_open(self) -> bool:
        """Whether the server still waits: the question was neither answered nor withdrawn."""
        ...

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        """Send the answer in the background; only the first one, and none after a withdrawal.

        `principal` is who answered, None for the principal of the session.
        """
        ...

    def refuse(self) -> None:
        """Answer for a host that gave no answer, in the form of the server's era (L-INPUT-8).

        Otherwise as `answer`.
        """
        ...

    def tell(self, notification: Notification) -> None:
        """Send the host's progress on the question to the server.

        It is dropped if the server did not ask for progress, or no longer waits.
        """
        ...

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the question is withdrawn; at once if that has happened.

        A question is withdrawn when the server says so, when its call ends, and when its session
        ends. An answered question is never withdrawn.
        """
        ...


class Between(NamedTuple):
    """State of a modern call between two rounds: the server keeps nothing until the next round.

    From it, another process can send the next round in place of this one. `state` is the state that
    the server wants back, as written. `asked` has the questions by the server's keys and, for each
    that was put to a host, the open question. `given` has the answers so far; more are added to it
    as they arrive.
    """

    state: RawJson | None
    asked: Mapping[str, tuple[Question, ServerQuestion | None]]
    given: Mapping[str, Answer]


class CallListener(Protocol):
    """The receiver of what a server sends besides the answers of a call. No method may raise or block."""

    def more_follows(self) -> None:
        """Receive the news that two messages or more have arrived together; the first comes next.

        A host gets them in one write. May be called again before others of them.
        """
        ...

    def on_notification(self, notification: Notification) -> None:
        """Receive a notification. Progress has the token that the server got, not the host's."""
        ...

    def asked(self, question: ServerQuestion) -> None:
        """Receive a question. The listener must see to it that it is answered or refused."""
        ...

    def refused(self, required: Mapping[str, Any]) -> None:
        """Receive the news that a question was refused at once, for lack of a host's capability.

        `required` is that capability, in the form in which hosts declare it.
        """
        ...

    def clog(self) -> asyncio.Future[None] | None:
        """Return what to await before more of the server is read: backpressure of a slow host.

        Called after each message. Nearly always None: read on now.
        """
        ...

    def keep(self, between: Between) -> Leave | None:
        """Store a checkpoint in the background, when all questions of a round were asked.

        Returns None if the listener stores none. Otherwise the returned function must be called and
        awaited right before the next round is sent. It removes the checkpoint. If it returns False,
        the round must not be sent: the call was given up, or another process has it.
        """
        ...

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Receive a resume point, from which another process can resume the call.

        It replaces earlier ones. Called whenever the call has a new one, but not while an answer to
        one of its questions is on its way to the server.
        """
        ...

    @property
    def leaves(self) -> bool:
        """Whether another process will resume the call, if it is cancelled here now.

        Sessions read it when a call is cancelled. If it is true, the call runs on at its server:
        neither a cancellation nor the end of its session is sent.
        """
        ...

    @property
    def can_be_asked(self) -> bool:
        """Whether the session of this listener can be asked a question that belongs to no call."""
        ...

    @property
    def passes_rounds(self) -> bool:
        """Whether a response that asks for more (a round of questions) goes to the host unchanged.

        Otherwise each of its questions is given to `asked`. Read when such an answer arrives; only
        modern servers send them.
        """
        ...


class SessionCallListener(CallListener, Protocol):
    """Listener of a session: also receives messages that belong to no call. No method may raise or
    block."""

    def met(self, server: ServerDescription) -> None:
        """Receive the server's identity after each handshake, before users of the session do."""
        ...


class UnsavedCallListener:
    """Base of listeners whose calls no other process resumes, and that take no questions outside of
    a call."""

    __slots__ = ()

    leaves = False

    def more_follows(self) -> None:
        """Ignore it: nothing is written."""

    def keep(self, between: Between) -> Leave | None:
        """Store nothing: the next round is sent by the process that sent this one."""

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Ignore the resume point: the call is never resumed elsewhere."""

    @property
    def can_be_asked(self) -> bool:
        return False


@dataclass(init=False, slots=True)
class CallBounds:
    """Timeouts of a call. `call`: seconds without progress. `ceiling`: seconds in all.

    `idle` is the silence that is allowed on its stream; None: any. `first` are the seconds after
    which a call without any progress ends.
    """

    call: float
    ceiling: float
    idle: timedelta | None
    first: float

    # Each task has its own. The generated constructor of a frozen class takes three times as long.
    def __init__(self, call: float, ceiling: float, idle: timedelta | None = None) -> None:
        self.call = call
        self.ceiling = ceiling
        self.idle = idle
        self.first = call if call < ceiling else ceiling

    def within(self, span: timedelta) -> "CallBounds":
        """Return the same timeouts, cut to `span`."""
        # Each task has its own: `min` takes several times as long as a comparison.
        seconds, call, ceiling = span.total_seconds(), self.call, self.ceiling
        return CallBounds(call if call < seconds else seconds, ceiling if ceiling < seconds else seconds, self.idle)


def briefly(span: timedelta) -> CallBounds:
    """Return the timeouts of a request of the gateway itself: it ends after `span`."""
    return CallBounds(span.total_seconds(), span.total_seconds())


@dataclass(slots=True)
class UpstreamCall:
    """One request to a server, as its host or task wants it. It has no id, and knows no era.

    The session that gets it takes it over: it may set `bounds`.

    - `method` and `params` are in the words of the legacy era, whatever the era of the server.
    - `tool` is the tool of a `tools/call`, whose timeouts may differ.
    - `principal` is the caller that the request is made for, None for that of the session.
    - `log_level` is the least severe log line that the host wants with this request. The listener
      may get others too.
    - `repeated` are the `Mcp-Param-*` headers of the host's request, which repeat arguments, by the
      rest of their names in lower case. Those that the tool is not known to want go to a modern
      server as they came (H-MOD-6); the gateway writes the others itself.
    - `as_task`: the `tools/call` of a task. The gateway always asks the server for progress, so
      `params` hold no progress token.
    - `within` is the time that a task has for it, if its own timeouts are not sooner. None: these
      alone apply.
    - `resumes`: the call of a task goes on that another process began. Then the next round of a
      modern call is sent, or nothing is sent and the answer is awaited.
    - `bounds` are its timeouts; None until the session knows them.
    """

    method: str
    params: Params | None = None
    tool: str | None = None
    principal: Principal | None = None
    log_level: str | None = None
    repeated: Mapping[str, str] | None = None
    as_task: bool = False
    within: timedelta | None = None
    resumes: Resumes | None = None
    bounds: "CallBounds | None" = None


class RunningCall(CancelScope):
    """A request that waits for its answer in the block `with call`, with its timers.

    When the time is up, or by `cancel`, the block raises ScopeCancelled. Then `answer`,
    `was_let_go`, or neither (the time is up) tells why. Only the wait is cancelled: the server is
    told by the code around the block.

    - `sent`: some of the request may have reached the server. False while the connection is made.
    - `shown` are the headers with credentials of a request that was refused with an HTTP status.
    - `answer` is an answer that arrived outside of the request's own stream.
    - `was_let_go`: the gateway ends the call itself, by closing the session.
    - `refused_with`: the HTTP error status of an answer; None for another.
    - `resumes` is the round that a modern call starts with, if that is not its first.
    - `spent` is how many seconds of its time were used before `begin`.
    - `has_token`: its request has a progress token, so the server may report progress.
    - `last_progress` is its last progress notification.
    - `was_heard`: the server sent something of the call besides its answer, so it did act.
    - `is_task`: the server made a task of the call, so it did act.
    - `runs_nothing`: it is part of a handshake, or asks for a list.
    - `is_lasting`: it is a legacy `tools/call`. With each event of its stream, the listener gets a
      resume point.
    """

    __slots__ = (
        "_open_questions",
        "_progressed_at",
        "answer",
        "began_at",
        "bounds",
        "has_token",
        "id",
        "is_lasting",
        "is_task",
        "last_progress",
        "listener",
        "principal",
        "refused_with",
        "resumes",
        "runs_nothing",
        "sent",
        "shown",
        "spent",
        "was_heard",
        "was_let_go",
    )

    def __init__(
        self,
        id: int,
        listener: CallListener | None,
        bounds: CallBounds,
        *,
        principal: Principal | None = None,
        spent: float = 0,
    ) -> None:
        # As in CancelScope; one is made for every request.
        self._alarms = self._loop = self._task = self._exit = None
        self._cancelling, self._is_cancelled = 0, False
        self.id = id
        self.listener = listener
        self.bounds = bounds
        self.principal = principal
        self.spent = spent
        self.resumes: NextRound | None = None
        self.answer: Response | None = None
        self.last_progress: Notification | None = None
        self.refused_with: int | None = None
        self.sent = self.was_let_go = self.is_task = self.is_lasting = self.has_token = False
        self.was_heard = self.runs_nothing = False
        self.shown = _NONE_SHOWN
        self._open_questions = 0
        self.began_at = 0.0
        """The loop time of `begin`."""
        # Equal to it as long as there was no progress.
        self._progressed_at = 0.0

    def report_refusal(self, method: str, failed: Callable[[str, str, str, bool], None]) -> None:
        """Report an answer that is an error under an HTTP status about the caller or the server."""
        if self.refused_with is not None and tells_nothing(self.refused_with):
            failed(method, UpstreamReason.REFUSED.value, http_cause(self.refused_with), True)

    @property
    def is_left(self) -> bool:
        """Whether another process will resume this call, if its wait ends here now.

        Sessions read it when they end a call. If true, the call runs on at the server: no
        cancellation is sent, and its server session stays open. Its listener decides it (`leaves`);
        a call without a listener is never left.
        """
        return self.listener is not None and self.listener.leaves

    def begin(self, alarms: TimerWheel) -> None:
        """Start the timers; the block must follow, and stops them at its end."""
        self._alarms = alarms
        self._loop = loop = alarms.known_loop or alarms.loop()
        self.began_at = self._progressed_at = now = loop.time()
        # No subtraction in the usual case: it is on the way of every call.
        first = self.bounds.first
        alarms.start(self, first - self.spent if self.spent else first, now)

    def on_progress(self, notification: Notification) -> None:
        """Receive the call's own progress."""
        self.last_progress, self.was_heard = notification, True
        # As `progressed`; it is called for nearly every event of a stream.
        self._progressed_at = (self._loop or asyncio.get_running_loop()).time()
        if self.listener is not None:
            self.listener.on_notification(notification)

    def progressed(self) -> None:
        """Restart the timeout without progress: the server shows that it works on the call
        (V-INIT-9)."""
        self._progressed_at = (self._loop or asyncio.get_running_loop()).time()

    def asks(self, questions: int) -> None:
        """Add `questions` to the number of open questions; negative for closed ones.

        While there are any, the timeout without progress does not run; the ceiling does.
        """
        self._open_questions += questions
        self.was_heard = True
        self.progressed()

    def on_alarm(self) -> None:
        """End the wait if the time is up; if there was progress, set the timer again."""
        assert self._alarms is not None, "only a started call can time out"
        now = asyncio.get_running_loop().time()
        if self._open_questions:
            self._progressed_at = now
        if self._progressed_at == self.began_at:
            # The first timer had the whole time.
            self.cancel()
            return
        silence_ends = self._progressed_at + self.bounds.call
        end = min(silence_ends, self.began_at - self.spent + self.bounds.ceiling)
        left = end - now
        if left > _NO_TIME:
            self._alarms.start(self, left, now)
        else:
            self.cancel()


_NONE_SHOWN: Final[Mapping[str, str]] = {}
_NO_TIME: Final = 0.001
"""Seconds that are not worth another timer."""
