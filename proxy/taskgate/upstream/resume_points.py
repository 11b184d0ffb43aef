"""Values from which another process resumes a call: `NextRound`, `Resumed` and `ResumePoint`.

A session gives a `ResumePoint` to the listener of a call, and `lifecycle.checkpoints` stores it.
When another process takes the task over, its `UpstreamCall` has it in a `Resumed`. A
`NextRound` is the same for a modern call between two rounds. The call is not sent from its
beginning.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.server_messages import Answer, Question

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
