"""How far a call is, as both eras tell it, and what becomes of it where only a status message can say so. Pure."""

from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Members
from taskgate.protocol.envelope import Notification
from taskgate.protocol.jsonrpc import notification_text, parse
from taskgate.protocol.vocabulary import NOTE_PROGRESS

MAX_MESSAGE = 500
"""Characters of a status message that a server's own words may take."""

NO_PLACE: Final = 1e-6
"""What words without a number are told to be further by, at most: a number there must be, and it must grow."""


class InWords(Notification):
    """Progress that its server told in words; the number with them is ours."""

    __slots__ = ()


class Progress(NamedTuple):
    """What a progress notification says; `total` and `message` are None where it does not say."""

    done: float
    total: float | None
    message: str | None

    @property
    def status_message(self) -> str:
        """The progress for people: `3/10: fetching`; words alone where there is no more to it."""
        if self.message and self.total is None and 0 < self.done < NO_PLACE:
            return self.message
        place = _number(self.done) if self.total is None else f"{_number(self.done)}/{_number(self.total)}"
        return place if not self.message else f"{place}: {self.message}"


def done_of(notification: Notification) -> float | None:
    """How far the notification says that a call is; None where that cannot be compared with other progress."""
    member = notification.params.get("progress")
    if member is None:
        return None
    done: Any = member.value
    # Nearly always plain; whatever is not is looked at closely.
    return done if type(done) is float or (type(done) is int and -_PLAIN < done < _PLAIN) or _is_number(done) else None


def read_progress(notification: Notification) -> Progress | None:
    """The progress; None where it is told in no way that could be compared with other progress."""
    done = done_of(notification)
    if done is None:
        return None
    total, message = _value(notification.params, "total"), _value(notification.params, "message")
    return Progress(
        done=done,
        total=total if _is_number(total) else None,
        message=_cut(message) if isinstance(message, str) else None,
    )


def in_words(token: RequestId, message: str, turn: int, after: float = 0.0) -> InWords:
    """The progress of a call whose server says how far it is in words alone, for the `turn`th time from 1 on.

    `after` is how far the server said in numbers that it is. However often it is told, it grows, and comes no further.
    """
    done = after + NO_PLACE * turn / (turn + 1)
    params = f'{{"progressToken":{dump(token)},"progress":{dump(done)},"message":{dump(message)}}}'
    told = parse(notification_text(NOTE_PROGRESS, params).encode(), max_depth=2)
    assert isinstance(told, Notification), "it was written as one"
    return InWords(*told)


def words_of(notification: Notification) -> str | None:
    """The words of progress that was told in them; None for any other, whose number says something."""
    return str(notification.params["message"].value) if isinstance(notification, InWords) else None


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else f"{value:.6g}"


def _is_number(value: Any) -> bool:
    # An integer beyond every float compares with none.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023


def _cut(text: str) -> str:
    """A text of a server, bounded, and fit to be written as UTF-8."""
    cut = text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
    return cut.encode("utf-8", "replace").decode()


def _value(members: Members, name: str) -> Any:
    member = members.get(name)
    return None if member is None else member.value


_PLAIN = 2**53
