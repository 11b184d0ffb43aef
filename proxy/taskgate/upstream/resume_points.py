"""Values from which another process resumes a call: `NextRound`, `Resumed` and `ResumePoint`.

They are made from the checkpoints of a task (`lifecycle.checkpoints`) and given to
`UpstreamSession.run`, which does not send the call again.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.server_messages import Answer, Question

Leave = Callable[[], Awaitable[bool]]
"""Awaited right before the next round of a call is sent; False if it must not be sent any more."""


class NextRound(NamedTuple):
    """The next round of a modern call: the state that the server wants back, as written, and
    answers by its keys.

    An answer is None if the host gave none. `leave` must be awaited before the round is sent.
    Legacy servers have no rounds.
    """

    state: RawJson | None
    answers: Mapping[str, tuple[Question, Answer | None]]
    leave: Leave


class ResumePoint(NamedTuple):
    """Position of a sent call at its server, from which any process can resume it.

    `session` and `revision` are those of the upstream session, if there is one. `task` is the
    server's id of the task that the call became. `request` is the request id, `event` the last
    event received: the stream is reopened with it.
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
    - `is_last` is asked when the call is over, before its session is ended at the server: whether
      no other process has a call in that session.
    - `context` is the auth context of the call, as in `Principal`.
    """

    resume_point: ResumePoint
    asked: Mapping[str, Question]
    is_last: Callable[[], Awaitable[bool]] = _unsure
    context: str = ""


Resumes = NextRound | Resumed
"""How a call continues that another process began."""
