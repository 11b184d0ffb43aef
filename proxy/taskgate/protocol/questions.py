"""What a server asks of a host, and what becomes of it: the words that both eras share.

A question crosses the gateway under an id of its own on either side. What must not live here: who is asked, on which
stream, and for how long.
"""

from dataclasses import dataclass
from typing import NamedTuple

from taskgate.domain.record import RequestId, TaskId
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.envelope import Notification
from taskgate.protocol.params import Params

Answer = RawJson
"""What came of a question: an object with `result` or `error`, the text of either as its sender wrote it."""


class Question(NamedTuple):
    """A request of a server to a host; `params` is for the host now, open at the server's progress token if any."""

    method: str
    params: Params | None


# --- what messages of a host ask of the gateway ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInput:
    """The response to an input request of a task."""

    task: TaskId
    key: str
    answer: Answer
    deferred_to: str | None = None
    """The task of the host's own that the answer is the handle of, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion:
    """The response to a question that belongs to no task; `id` is what the host was asked under."""

    id: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class TellProgress:
    """How far the host is with what it was asked under `id`, the id of a question or of a task's input."""

    id: str
    notification: Notification


@dataclass(frozen=True, slots=True, kw_only=True)
class TellServer:
    """A notification of a host that is for its server."""

    notification: Notification


# --- what messages of a server mean --------------------------------------------------------------------------------


class ReceivedQuestion(NamedTuple):
    """A question that the host may be asked; `id` and `progress_token` are the server's.

    `task` is the server's id of a task of its own that it asks for, where it says so.
    """

    id: RequestId
    question: Question
    progress_token: RequestId | None
    task: str | None = None


class Withdrawn(NamedTuple):
    """The server does not wait any more for the answer to what it asked under `id`."""

    id: RequestId
