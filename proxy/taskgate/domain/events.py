"""The events of a task: what can happen to it, as values.

The lifecycle makes them, `machine.advance` applies them to a record, and reports are made from
them.
"""

from dataclasses import dataclass
from enum import StrEnum

from taskgate.domain.record import FaultReason, InputRequest, SealedCheckpoint
from taskgate.jsontext.spans import RawJson


class InputResolution(StrEnum):
    """The ways in which an input request ends.

    DECLINED is a refusal by the host; SUPERSEDED means that the answer is not needed any more.
    """

    ANSWERED = "answered"
    DECLINED = "declined"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """The call is about to be sent to the server: from here on it may have run.

    A second time is possible only while the record has `reruns`, and takes one of them.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchWithdrawn:
    """The call of a new record that has the mark was not sent: its replica stops, and another sends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """Progress reported by the server; `message` is for people."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequested:
    """A question of the server to the host; its key must be the next of the task.

    `checkpoint` replaces that of the record, None leaves it: the new one includes the question.
    """

    request: InputRequest
    checkpoint: SealedCheckpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputClaimed:
    """A stream delivers an input request from now on; `stream` None releases the claim."""

    key: str
    stream: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAnswered:
    """The host's answer to an input request; the first answer counts."""

    key: str
    response: RawJson


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDeferred:
    """An answer that is a task of the host, with the id `deferred_to`.

    The server gets this answer, and the input request stays open until the host's task ends.
    """

    key: str
    response: RawJson
    deferred_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWithdrawn:
    """The end of an input request that needs no answer: withdrawn, answered elsewhere, or refused."""

    key: str
    resolution: InputResolution = InputResolution.SUPERSEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForwarded:
    """The server has an answer, so the record need not store it any more."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A new checkpoint, from which a takeover resumes the call; None if that is impossible now.

    `delivered` are the keys of answers that the server is known to have; they are dropped.
    """

    checkpoint: SealedCheckpoint | None
    delivered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDispatched:
    """The next round is about to be sent to the server: it may have run, so it is not sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSucceeded:
    """A result of the server; `message` is the text of a tool's error, if it is one."""

    result: RawJson
    tool_error: bool
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFaulted:
    """An error of the server, or a failed call; `error` is the text of the JSON-RPC error object.

    `unsent` is whether nothing of the call was sent, so that it certainly did not run.
    """

    error: RawJson
    reason: FaultReason
    message: str
    unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The host cancels the task, or an operator, with the operator's `reason` if any.

    `by` is `client` or `operator`.
    """

    by: str = "client"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Takeover by the process that has the lease of the record; the earlier one writes no more.

    Claims of streams of other processes are released, because those streams may be gone.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRetrieved:
    """The owner got the outcome for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReleased:
    """The idempotency key names another call from now on: this one is too old to answer it."""


TaskEvent = (
    Dispatched
    | DispatchWithdrawn
    | Progressed
    | InputRequested
    | InputClaimed
    | InputAnswered
    | InputDeferred
    | InputWithdrawn
    | AnswerForwarded
    | CheckpointSaved
    | RoundDispatched
    | CallSucceeded
    | CallFaulted
    | CancelRequested
    | TakenOver
    | ResultRetrieved
    | KeyReleased
)
