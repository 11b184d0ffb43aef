"""Interfaces for what a server sends besides answers: `CallListener` and `ServerQuestion`.

Sessions call them. The listener of a call gets its notifications, its questions (elicitation,
sampling, roots) and its resume points. The listener of a session also gets what belongs to no call.
Listeners are in `gateway`, `sessions` and `lifecycle`. A question is an object that the host's
answer is given to.
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
        """The server's own name for the question, unique in its call.

        By a key that is not None, another process that takes over the call can answer the question.
        """
        ...

    @property
    def is_open(self) -> bool:
        """Whether the server still waits: the question was neither answered nor withdrawn."""
        ...

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        """Send the answer in the background. The first one counts; after it, or a withdrawal, it is
        dropped.

        `principal` is who answered, None for the principal of the session.
        """
        ...

    def refuse(self) -> None:
        """Send the answer for a host that gave none, in the form of the server's era (L-INPUT-8);
        else as `answer`."""
        ...

    def tell(self, notification: Notification) -> None:
        """Send the host's progress to the server; dropped if the server did not ask for it, or no
        longer waits."""
        ...

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """Call `forget` once when the question can no longer be answered; at once if so already.

        A question is withdrawn when the server says so, when its call ends, and when its session
        ends.
        """
        ...


class Between(NamedTuple):
    """Checkpoint of a modern call between two rounds: the server asked, and keeps nothing until the
    next round.

    `state` is the state that the server wants back, as written. `asked` has the questions by the
    server's keys and, for each that was put to a host, the open question. `given` has the answers
    so far; it fills while more arrive.
    """

    state: RawJson | None
    asked: Mapping[str, tuple[Question, ServerQuestion | None]]
    given: Mapping[str, Answer]


class CallListener(Protocol):
    """Receives what a server sends besides the answers of a call. No method may raise or block."""

    def on_notification(self, notification: Notification) -> None:
        """Receive a notification; progress has the server's token."""
        ...

    def asked(self, question: ServerQuestion) -> None:
        """Receive a question. From now on the listener has to have it answered."""
        ...

    def refused(self, required: Mapping[str, Any]) -> None:
        """Hear of a question that was refused at once, because the host did not declare the
        capability.

        `required` is that capability, in the form in which hosts declare it.
        """
        ...

    def clog(self) -> Awaitable[None] | None:
        """Return a wait for backpressure: the server is read again after it. Nearly always None:
        read on now."""
        ...

    def keep(self, between: Between) -> Leave | None:
        """Store a checkpoint after all questions of a round were asked; None if the listener stores
        none.

        The returned function must be awaited before the next round is sent.
        """
        ...

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Receive a resume point from which another process can resume the call. The newest one
        counts.

        By then the server has every answer that was given to its earlier questions.
        """
        ...

    @property
    def leaves(self) -> bool:
        """Whether a call that is cancelled here now will be resumed by another process.

        The call is then left as it is at its server: neither its cancellation nor the end of its
        session is sent.
        """
        ...

    @property
    def can_be_asked(self) -> bool:
        """Whether the session of this listener can be asked a question that belongs to no call."""
        ...

    @property
    def passes_rounds(self) -> bool:
        """Whether an answer that is a round of questions goes to the host unchanged.

        Otherwise each of its questions is given to `asked`. Read when such an answer arrives; only
        modern servers send them.
        """
        ...


class SessionCallListener(CallListener, Protocol):
    """Listener of a session: also receives messages that belong to no call. No method may raise or
    block."""

    def met(self, server: ServerDescription) -> None:
        """Receive the server's identity, before any other user of the session; again after each new
        handshake."""
        ...


class UnsavedCallListener:
    """Base of listeners whose calls are not resumed elsewhere, and that take questions only within
    a call."""

    __slots__ = ()

    def keep(self, between: Between) -> Leave | None:
        """Store nothing: the next round is sent by the process that sent this one."""

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """Ignore the resume point: the call is never resumed elsewhere."""

    @property
    def leaves(self) -> bool:
        return False

    @property
    def can_be_asked(self) -> bool:
        return False
