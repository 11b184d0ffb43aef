"""What a message of a host asks of the gateway, in words that no era owns. Values only."""

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from taskgate.domain.listing import TaskFilter, TaskOrder
from taskgate.domain.record import RequestId, TaskId
from taskgate.domain.versions import Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.params import Params
from taskgate.protocol.questions import AnswerInput, AnswerQuestion, TellProgress, TellServer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """`initialize`; `peer.revision` is the one the gateway answers with."""

    id: RequestId
    peer: Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPing:
    """`ping`."""

    id: RequestId


class CallTool(NamedTuple):
    """`tools/call`. `params` is for a server now.

    `wants_task` is the host's wish, already false where its session has no tasks; `ttl` None leaves it to us. `kept` is
    `params` for a record, without any progress token; None where no task is wanted. `repeat_key` is what the host calls
    this call by, so that it may send it again; it is in neither of them.
    """

    id: RequestId
    tool: str
    params: Params
    kept: RawJson | None
    progress_token: RequestId | None
    wants_task: bool
    ttl: timedelta | None
    repeat_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTask:
    """`tasks/get`."""

    id: RequestId
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitTask:
    """`tasks/result`: the outcome, once there is one."""

    id: RequestId
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks:
    """`tasks/list`: the page after `cursor`, the first where there is none, of what `where` lets through."""

    id: RequestId
    where: TaskFilter
    order: TaskOrder
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTask:
    """`tasks/cancel`."""

    id: RequestId
    task: TaskId


class Relay(NamedTuple):
    """Any other request that the server answers."""

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCall:
    """`notifications/cancelled`: the host no longer waits for one of its plain requests."""

    request: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """A message that needs no action: an accepted notification, or an answer to nothing that was asked."""


Intent = (
    OpenSession
    | AnswerPing
    | CallTool
    | GetTask
    | AwaitTask
    | ListTasks
    | CancelTask
    | Relay
    | CancelCall
    | AnswerInput
    | AnswerQuestion
    | TellProgress
    | TellServer
    | Ignore
)
