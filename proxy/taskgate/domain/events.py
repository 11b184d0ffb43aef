"""What can happen to a task. The runner and the machine speak in these; nothing is translated between them."""

from dataclasses import dataclass
from enum import StrEnum

from taskgate.domain.record import FaultReason, InputRequest, SealedCheckpoint
from taskgate.jsontext.spans import RawJson


class Settled(StrEnum):
    """How a question came to wait no more: `declined` is a host's refusal, `superseded` that nobody needs an answer."""

    ANSWERED = "answered"
    DECLINED = "declined"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """The call is about to leave for the server: from here on it may have run.

    Once more only where the record allows it: each time takes one of its `reruns`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The server told how far it is; `message` is for people."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequested:
    """The server asks the host something and waits. The request's key must be new to the task.

    `kept` is what is kept of the call from now on, where it is one that is: that knows of the question, too.
    """

    request: InputRequest
    kept: SealedCheckpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputClaimed:
    """A stream delivers a question now; `stream` None gives the question back."""

    key: str
    stream: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAnswered:
    """The host answered a question; the first answer counts."""

    key: str
    response: RawJson


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKept:
    """The host answered a question with a task of its own: the server is told so, and the question stays open."""

    key: str
    response: RawJson
    kept_as: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWithdrawn:
    """Nobody waits for an answer any more: the server gave the question up, has its answer, or was refused one."""

    key: str
    settled: Settled = Settled.SUPERSEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForwarded:
    """The server has been given an answer, so it need not be kept."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKept:
    """Whoever takes the task over goes on with its call from there; None where nobody can any more.

    `arrived` are the keys of answers that the server is known to have, so that they need not be kept.
    """

    kept: SealedCheckpoint | None
    arrived: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLeft:
    """The next round is about to leave for the server: from here on it may have run, and nobody makes it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSucceeded:
    """The server answered with a result; `message` is the text of a tool's error, if it is one."""

    result: RawJson
    tool_error: bool
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFaulted:
    """The server answered with an error, or the call failed; `error` is the text of the JSON-RPC error object.

    `unsent` is whether it is known that nothing of the call ever left, so that it did not run.
    """

    error: RawJson
    reason: FaultReason
    message: str
    unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The host gave the task up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Another process runs the call from now on, whose lease the record has: whoever ran it before writes no more.

    Questions that streams of other processes carry are free again: whether those streams are there nobody knows.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRetrieved:
    """The outcome was given to the task's owner, for the first time."""


TaskEvent = (
    Dispatched
    | Progressed
    | InputRequested
    | InputClaimed
    | InputAnswered
    | InputKept
    | InputWithdrawn
    | AnswerForwarded
    | CallKept
    | RoundLeft
    | CallSucceeded
    | CallFaulted
    | CancelRequested
    | TakenOver
    | ResultRetrieved
)
