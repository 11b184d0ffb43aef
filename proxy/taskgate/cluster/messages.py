"""The messages between replicas, and their encoding.

A message is a NamedTuple of plain values; on the bus it has a kind, usually the name of its class.
`bus` sends messages and calls the handler of a kind; other modules may add kinds (`streams.handover`,
`lifecycle.task_streams`). A message for all replicas must be small, and no message contains
a token. Messages about host sessions are handled by `gateway`, and so are forwarded requests.

Errors travel in messages too (`encode_error`). An error arrives without its cause and trace, and one
that is not on the list arrives as an InternalError without its text.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

from taskgate import errors

Message = tuple[Any, ...]
"""A NamedTuple of texts, whole numbers, truth values, None, and lists or objects of these."""

AnyMessage = TypeVar("AnyMessage", bound=Message)

_KINDS: Final[Mapping[str, str]] = {
    "SessionEnded": "Ended",
    "SessionRevived": "Revived",
    "GetStreamState": "Listens",
    "GetStreamMessage": "Published",
    "GetStreamQuestion": "Asks",
    "SessionSetting": "Wanted",
    "QuestionAnswer": "Answered",
    "QuestionProgress": "QuestionTold",
    "InputProgress": "InputTold",
    "RequestCancelled": "Cancelled",
    "ServerNotification": "ServerTold",
    "ForwardedRequest": "Brought",
    "ForwardHeartbeat": "Lives",
    "ForwardedMessage": "Told",
    "ForwardedReply": "Spoke",
    "ForwardedError": "Refused",
    "ForwardCancelled": "Departed",
    "StreamClaim": "TakenUp",
    "StreamRelease": "PutDown",
}
"""The kinds on the bus of classes that were renamed: replicas of earlier versions know the old
names.
"""

_DIGITS: Final = 64
_TO_SPACE: Final = bytes.maketrans(b"01", b" \t")
_FROM_SPACE: Final = bytes.maketrans(b" \t", b"01")


class Envelope(NamedTuple):
    """A received message before its body is decoded: the sender, the receiver (None for all), and
    the kind.

    `sequence` is None from a gateway of an older version.
    """

    sender: str
    to: str | None
    kind: str
    body: list[Any]
    sequence: int | None = None


def kind_of(message: type[Message]) -> str:
    """The kind of a message class on the bus."""
    return _KINDS.get(message.__name__, message.__name__)


def encode(message: Message, *, sender: str, to: str | None) -> bytes:
    """A message in its envelope, without a sequence number."""
    return json.dumps([sender, to, kind_of(type(message)), *message], separators=(",", ":")).encode()


def add_sequence(text: bytes, sequence: int) -> bytes:
    """An encoded message with its sequence number.

    The 64 bits of the number stand behind the text as spaces and tabs, which older versions ignore.
    """
    return text + f"{sequence:0{_DIGITS}b}".encode().translate(_TO_SPACE)


def decode(text: bytes) -> Envelope | None:
    """The envelope of an encoded message; None for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        # Deep arrays exceed the recursion limit. Without a key, any writer to the store can send them.
        return None
    space = text[len(text.rstrip(b" \t")) :]
    sequence = int(space.translate(_FROM_SPACE), 2) if len(space) == _DIGITS else None
    match found:
        case [str(sender), (str() | None) as to, str(kind), *body]:
            return Envelope(sender, to, kind, body, sequence)
    return None


def message_in(envelope: Envelope, kinds: "Mapping[str, type[Message]]") -> Message | None:
    """The message in an envelope; None if its kind is unknown, or of another version."""
    kind = kinds.get(envelope.kind)
    fields = getattr(kind, "_fields", ())
    return None if kind is None or len(fields) != len(envelope.body) else kind._make(envelope.body)  # type: ignore[attr-defined]


class Parcel(NamedTuple):
    """A notice for one replica: a message too large for the bus is stored for it under this name."""

    name: str


# --- host sessions ----------------------------------------------------------------------------------------------------


class SessionEnded(NamedTuple):
    """A session has ended at every replica."""

    session: str


class SessionRevived(NamedTuple):
    """The sender loaded a session from the store; others that have it in memory reply with their
    streams and settings of it.
    """

    session: str


class GetStreamState(NamedTuple):
    """The sender has a GET stream of a session from now on, or has none any more.

    A question that the sender's earlier stream carried must be asked again.
    """

    session: str
    is_open: bool


class GetStreamMessage(NamedTuple):
    """A message for the GET stream that the receiver has of a session."""

    session: str
    message: str


class GetStreamQuestion(NamedTuple):
    """A question for the GET stream that the receiver has of a session.

    The sender waits for its answer, which comes as a QuestionAnswer. If the receiver has no such
    stream, or that ends, it sends a GetStreamState, and the sender asks elsewhere.
    """

    session: str
    message: str


class SessionSetting(NamedTuple):
    """A request of a host that applies to its whole session; `value` is the log level or the URI."""

    session: str
    method: str
    value: str


# --- messages of hosts that have no reply -----------------------------------------------------------------------------


class QuestionAnswer(NamedTuple):
    """A host's answer to a question that the receiver asked."""

    session: str
    id: str
    answer: str


class QuestionProgress(NamedTuple):
    """A host's progress notification for a question that the receiver asked, as text."""

    session: str
    id: str
    notification: str


class InputProgress(NamedTuple):
    """A host's progress notification for an input request, as text, for the replica that runs the
    task.

    The task must belong to one of `contexts` at `mount`.
    """

    mount: str
    contexts: list[str]
    id: str
    notification: str


class CallAskedFor(NamedTuple):
    """A host without tasks waits for the result of a call. It is sent again while the host waits."""

    task: str


class WhoAttends(NamedTuple):
    """A question: is a host connected for a call that is a task, or has one of another session its handle?

    `session` is empty for a modern host.
    """

    task: str
    session: str


class CallAttended(NamedTuple):
    """The answer to that, if there is one."""

    task: str


class RequestCancelled(NamedTuple):
    """A host cancelled a request of a session."""

    session: str
    request: str | int


class ServerNotification(NamedTuple):
    """A host's notification for its server, at each replica with a server session of that host
    session.
    """

    session: str
    notification: str


# --- held calls of the modern era -------------------------------------------------------------------------------------


class ForwardedRequest(NamedTuple):
    """A retried request, for the replica that holds the call which the request continues.

    `forward_id` names the exchange between the two replicas. The sender has opened the request's
    state: it names call `hold` in its `round`, of one of `contexts` at `mount`. `request` is the
    message as text, `headers` its metadata, and `accepts_stream` tells if the host accepts an event
    stream.
    """

    forward_id: str
    mount: str
    contexts: list[str]
    hold: str
    round: int
    request: str
    headers: dict[str, Any]
    accepts_stream: bool


class ForwardHeartbeat(NamedTuple):
    """The sender still works on a forwarded request, or still waits for its reply."""

    forward_id: str


class ForwardedMessage(NamedTuple):
    """A message for the host of a forwarded request, before the reply."""

    forward_id: str
    message: str


class ForwardedReply(NamedTuple):
    """The reply to a forwarded request (`streams.exchange.HttpReply`)."""

    forward_id: str
    message: str
    error: str | None
    headers: list[list[str]]


class ForwardedError(NamedTuple):
    """The error of a forwarded request, from `encode_error`."""

    forward_id: str
    error: dict[str, Any]


class ForwardCancelled(NamedTuple):
    """The host of a forwarded request has disconnected."""

    forward_id: str


# --- errors -----------------------------------------------------------------------------------------------------------

_ERRORS: Final[Mapping[str, type[errors.GatewayError]]] = {
    kind.__name__: kind
    for kind in (
        errors.CutOff,
        errors.Forbidden,
        errors.InsufficientScope,
        errors.InvalidParams,
        errors.MissingCapability,
        errors.QueueFull,
        errors.RateLimited,
        errors.StoreUnavailable,
        errors.TaskSupportMismatch,
        errors.TooManyBytes,
        errors.TooManyTasks,
        errors.UpstreamFailed,
    )
}
_DURATION: Final = "retry_after"
_SET: Final = "scopes"


def encode_error(error: Exception) -> dict[str, Any]:
    """An error as plain values."""
    # A failure of a server may be of a more special class.
    kind = next((name for each in type(error).__mro__ if (name := each.__name__) in _ERRORS), None)
    if kind is None:
        return {"kind": "", "text": "", "facts": {}}
    facts = dict(vars(error))
    if isinstance(facts.get(_DURATION), timedelta):
        facts[_DURATION] = facts[_DURATION].total_seconds()
    if _SET in facts:
        facts[_SET] = sorted(facts[_SET])
    return {"kind": kind, "text": str(error), "facts": facts}


def decode_error(encoded: Mapping[str, Any]) -> errors.GatewayError:
    """The error from its plain values."""
    kind = _ERRORS.get(encoded["kind"])
    if kind is None:
        return errors.InternalError()
    error = kind.__new__(kind, encoded["text"])
    facts = dict(encoded["facts"])
    if isinstance(facts.get(_DURATION), int | float):
        facts[_DURATION] = timedelta(seconds=facts[_DURATION])
    if _SET in facts:
        facts[_SET] = frozenset(facts[_SET])
    vars(error).update(facts)
    return error
