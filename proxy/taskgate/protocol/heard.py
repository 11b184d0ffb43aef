"""What messages of a server mean, whatever its era, beside what it asks (`questions`). Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from taskgate.protocol.envelope import Notification, Response
from taskgate.protocol.questions import ReceivedQuestion, Withdrawn
from taskgate.protocol.server_tasks import ServerTask


class CallAnswered(NamedTuple):
    """The response to the call it names by our id."""

    response: Response


class ProgressTold(NamedTuple):
    """Progress of the call that was given `token`."""

    token: int
    notification: Notification


class Noticed(NamedTuple):
    """A notification about the session, to be passed on."""

    notification: Notification


class TaskShown(NamedTuple):
    """The server tells by itself how a task is that it made of a call."""

    task: ServerTask


@dataclass(frozen=True, slots=True)
class Questioned:
    """A request of the server that no host is asked, with the message that answers it at once.

    `required` is what the host would have had to declare to be asked it, as hosts declare it; None where nothing would.
    """

    reply: str
    required: Mapping[str, Any] | None = None


Heard = CallAnswered | ProgressTold | Noticed | TaskShown | ReceivedQuestion | Withdrawn | Questioned | None
"""What a message of a server means; None for what is dropped."""
