"""What a server says besides its answers, as seams: who hears it, and what becomes of a call when it asks somebody.

What must not live here: sessions and servers (`base`), and who hears what (the engine's matter).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.questions import Answer, Question
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint


class ServerQuestion(Protocol):
    """A question of a server that waits for its answer. Nothing of it raises or blocks."""

    question: Question

    @property
    def key(self) -> str | None:
        """The server's own name for it, unique in its call: who takes the call over can answer by it, if not None."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the server still waits: nobody has answered, and it was not withdrawn."""
        ...

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        """Give the server its answer, in the background. The first counts; after it, or a withdrawal, it is dropped.

        `principal` is who answered, None for whom the session speaks at all.
        """
        ...

    def refuse(self) -> None:
        """Answer for a host that gave no answer, as the server's era has it (L-INPUT-8); otherwise as `answer`."""
        ...

    def tell(self, notification: Notification) -> None:
        """Tell the server how far the host is; dropped where it did not ask to know, or does not wait any more."""
        ...

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the server gives the question up or cannot be answered any more; at once if so now.

        That is so when it says so, when the call it asked for has ended, and when its session has.
        """
        ...


class Between(NamedTuple):
    """What a call goes on with whose server asked, and holds nothing of it until the next round.

    `state` is what it wants back, as written. `asked` are the questions by its keys, as they were heard, if anybody was
    asked; `given` the answers so far, with more as they come.
    """

    state: RawJson | None
    asked: Mapping[str, tuple[Question, ServerQuestion | None]]
    given: Mapping[str, Answer]


class CallListener(Protocol):
    """Told of what a server says besides its answers. Nothing of it may raise or block."""

    def on_notification(self, notification: Notification) -> None:
        """A notification; progress under the server's token."""
        ...

    def asked(self, question: ServerQuestion) -> None:
        """A question, which is from now on to be answered by somebody."""
        ...

    def refused(self, required: Mapping[str, Any]) -> None:
        """A question that the server was refused at once: the host did not declare `required`, as hosts declare it."""
        ...

    def clog(self) -> Awaitable[None] | None:
        """A wait until the server should be listened to again; None where it should be now, which is nearly always."""
        ...

    def keep(self, between: Between) -> Leave | None:
        """Keep what the next round of the call takes, whose questions were all heard; None where that is not done."""
        ...

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """The call can be gone on with from there by somebody else, from now on; the newest counts.

        By then its server has every answer that was given before to what it asks.
        """
        ...

    @property
    def leaves(self) -> bool:
        """Whether the call, given up now, is left at its server as it is, for somebody else goes on with it.

        Then its server is told nothing: neither that the call is cancelled, nor that its session is over.
        """
        ...

    @property
    def can_be_asked(self) -> bool:
        """Whether a question that belongs to no call can be asked of it now, as of the session that it hears."""
        ...

    @property
    def passes_rounds(self) -> bool:
        """Whether an answer that is a round of questions goes to the host as it is; else each is heard as a question.

        Asked when such an answer is there, which servers of the modern era alone give.
        """
        ...


class SessionCallListener(CallListener, Protocol):
    """Told of what a server says in a session besides what belongs to a call. Nothing of it may raise or block."""

    def met(self, server: Server) -> None:
        """Who the server says that it is, before anybody else hears of it; again whenever it is asked anew."""
        ...


class UnsavedCallListener:
    """What all hearers share whose calls are not taken over, and who can be asked in a call alone."""

    __slots__ = ()

    def keep(self, between: Between) -> Leave | None:
        """See CallListener: nobody makes the next round but who made this one."""

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """See CallListener: nobody needs it."""

    @property
    def leaves(self) -> bool:
        """See CallListener."""
        return False

    @property
    def can_be_asked(self) -> bool:
        """See CallListener."""
        return False
