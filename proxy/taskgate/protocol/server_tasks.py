"""Tasks that servers of the modern era make of calls, as whoever follows one for its host sees it. Values only.

What must not live here: when a task is looked at (`upstream`), and the tasks of hosts, which are the gateway's own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from taskgate.domain.record import TaskStatus
from taskgate.protocol.envelope import Response
from taskgate.protocol.questions import Question

_NOBODY: Final[Mapping[str, Question]] = MappingProxyType({})


class ServerTask(NamedTuple):
    """One task, as its server last showed it; `id` is the server's own name for it, which no host hears.

    `message` says how far it is, and `updated` when that was last true, as written; None where its server does not say.
    `interval` is how many seconds its server wants between two looks at it. `questions` are all that it waits for an
    answer to, by the server's keys. `response` is what the call itself would have been answered with: None while the
    task is not over, where it was cancelled, and where it was only told that there is one.
    """

    id: str
    status: TaskStatus
    message: str | None = None
    updated: str | None = None
    interval: float | None = None
    questions: Mapping[str, Question] = _NOBODY
    response: Response | None = None


class TaskTold(NamedTuple):
    """News of a task, on a stream that was opened for them: a reason to look at it."""

    id: str
