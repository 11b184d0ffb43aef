"""Interfaces for what a server sends besides answers: `CallListener` and `ServerQuestion`.

A caller gives a `CallListener` to a session with each call. The session calls its methods during
the call: for notifications, questions (elicitation, sampling, roots) and resume points. The
listener of a session gets what belongs to no call. Listeners are implemented in `gateway`,
`sessions` and `lifecycle`. A `ServerQuestion` is one open question of a server, implemented by the
sessions; the listener gives the host's answer to it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint


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

    def clog(self) -> Awaitable[None] | None:
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

    def keep(self, between: Between) -> Leave | None:
        """Store nothing: the next round is sent by the process that sent this one."""

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Ignore the resume point: the call is never resumed elsewhere."""

    @property
    def can_be_asked(self) -> bool:
        return False
