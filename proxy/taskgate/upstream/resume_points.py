"""What a process goes on with that took a call over, without sending it again: the next round of one, or a foothold.

Values only; who keeps either is the engine's matter.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.questions import Answer, Question

Leave = Callable[[], Awaitable[bool]]
"""To be awaited right before the next round of a call leaves; False where it is not to leave any more."""


class NextRound(NamedTuple):
    """The round that a call goes on with: the state that the server wants back, as written, and answers by its keys.

    None stands for an answer that nobody gave. `leave` is to be awaited once there is nothing left to wait for. No
    server of the legacy era is told any of it: it has no rounds.
    """

    state: RawJson | None
    answers: Mapping[str, tuple[Question, Answer | None]]
    leave: Leave


class ResumePoint(NamedTuple):
    """Where a call that has left is at its server, which goes on with it for whoever comes there.

    `session` and `revision` are of the session in which it was made, where there is one. `task` is the server's own id
    of the task that the call is there. `request` is the id that it was sent under, `event` the last event that was
    heard of it: with that its stream is taken up again.
    """

    session: str | None = None
    revision: str | None = None
    task: str | None = None
    request: int | None = None
    event: str | None = None


async def _unsure() -> bool:
    return False


class Resumed(NamedTuple):
    """The call that another process made, from its foothold on. It is not sent again.

    `asked` are questions of the server that it may still wait for, by the keys that it knows them by. Each is to be
    told to the hearer anew, under its key: whoever was asked before is not asked twice, and answers may be there.
    `is_last` is to be asked once the call is over, and before its session is ended at the server: nobody else may have
    a call left there. `context` is whose call it is; see Principal.
    """

    resume_point: ResumePoint
    asked: Mapping[str, Question]
    is_last: Callable[[], Awaitable[bool]] = _unsure
    context: str = ""


Resumes = NextRound | Resumed
"""What a call goes on with that another process began."""
