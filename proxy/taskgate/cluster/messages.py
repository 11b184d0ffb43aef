"""What processes say to each other, and how it is written. Values, pure.

A word is a tuple of plain values; it is known by the name of its type. What must not live here: who says what when, and
what becomes of it. What holds: no word has a token in it, and no word that is not for one process alone is large.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

Word = tuple[Any, ...]
"""A NamedTuple of texts, whole numbers, truth values, None, and lists or objects of these."""

Some = TypeVar("Some", bound=Word)


_DIGITS: Final = 64
_TO_SPACE: Final = bytes.maketrans(b"01", b" \t")
_FROM_SPACE: Final = bytes.maketrans(b" \t", b"01")


class Envelope(NamedTuple):
    """A word on its way: who said it, to whom (None for everybody), and what; the body is not read yet.

    `number` is None where a gateway of a version before said it.
    """

    sender: str
    to: str | None
    kind: str
    body: list[Any]
    number: int | None = None


def write(word: Word, *, sender: str, to: str | None) -> bytes:
    """A word in its envelope, without a number."""
    return json.dumps([sender, to, type(word).__name__, *word], separators=(",", ":")).encode()


def numbered(text: bytes, number: int) -> bytes:
    """The same with a number of 64 bits, in white space behind it, which gateways of a version before pass over."""
    return text + f"{number:0{_DIGITS}b}".encode().translate(_TO_SPACE)


def read(text: bytes) -> Envelope | None:
    """What was written; None for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    space = text[len(text.rstrip(b" \t")) :]
    number = int(space.translate(_FROM_SPACE), 2) if len(space) == _DIGITS else None
    match found:
        case [str(sender), (str() | None) as to, str(kind), *body]:
            return Envelope(sender, to, kind, body, number)
    return None


def word_of(envelope: Envelope, kinds: "Mapping[str, type[Word]]") -> Word | None:
    """The word in it; None for one that is not known here, or is of another version."""
    kind = kinds.get(envelope.kind)
    fields = getattr(kind, "_fields", ())
    return None if kind is None or len(fields) != len(envelope.body) else kind._make(envelope.body)  # type: ignore[attr-defined]


class Parcel(NamedTuple):
    """That a word lies under that name, for one process alone."""

    name: str


# --- sessions of hosts ---------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """A session was ended: nobody serves it any more."""

    session: str


class Revived(NamedTuple):
    """A session of the store is alive at the sender, too, which is to hear what others know of it."""

    session: str


class Listens(NamedTuple):
    """A session has a GET stream at the sender from now on, or has none any more.

    Whatever question was carried on one there before is to be asked again.
    """

    session: str
    is_open: bool


class Published(NamedTuple):
    """A message for the GET stream of a session that is at the addressee."""

    session: str
    message: str


class Asks(NamedTuple):
    """The same, of a question that the sender waits for the answer to."""

    session: str
    message: str


class Wanted(NamedTuple):
    """A host asked for something once that holds for the length of its session; `what` is the level, or the URI."""

    session: str
    method: str
    what: str


# --- what hosts say that nobody answers ----------------------------------------------------------------------------


class Answered(NamedTuple):
    """The answer to a question that the addressee asked in a session; see AnswerQuestion."""

    session: str
    id: str
    answer: str


class QuestionTold(NamedTuple):
    """How far the host is with such a question; the text of its notification."""

    session: str
    id: str
    notification: str


class InputTold(NamedTuple):
    """The same of a task's input, whoever runs the task, if it is of one of these contexts at that mount."""

    mount: str
    contexts: list[str]
    id: str
    notification: str


class Cancelled(NamedTuple):
    """A host gave up a request of a session."""

    session: str
    request: str | int


class ServerTold(NamedTuple):
    """A notification of a host that is for its server, wherever the session has one."""

    session: str
    notification: str


# --- held calls of the modern era -------------------------------------------------------------------------------


class Brought(NamedTuple):
    """A request was sent again that may go on with a call which the addressee holds.

    `errand` names the request between the two. Its state was opened: it leads to that `hold` in that `round`, and is of
    one of these contexts at that mount. `request` is the text of the message, `said` what it said of itself, and
    `streams` whether its host takes an event stream.
    """

    errand: str
    mount: str
    contexts: list[str]
    hold: str
    round: int
    request: str
    said: dict[str, Any]
    streams: bool


class Lives(NamedTuple):
    """Whoever says it still works on an errand, or waits for it."""

    errand: str


class Told(NamedTuple):
    """A message for the host of an errand, before its answer."""

    errand: str
    message: str


class Spoke(NamedTuple):
    """The answer to an errand; see RpcReply."""

    errand: str
    message: str
    error: str | None
    headers: list[list[str]]


class Refused(NamedTuple):
    """What an errand was refused with, or how it failed; see failures."""

    errand: str
    failure: dict[str, Any]


class Departed(NamedTuple):
    """The host of an errand does not wait any more."""

    errand: str
