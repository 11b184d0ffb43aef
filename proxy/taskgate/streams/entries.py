"""What the events of a stream are in the log that all processes share. Values, pure.

An entry is a letter for its kind, and what is sent to the host; each has a number that grows by one, and those that a
host can come back to are numbered as it sees them. What must not live here: who writes and who reads them.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId

KEPT: Final = b"+"
"""An event that can be repeated."""
NOTE: Final = b"#"
"""The same, of a note of a task: its place among these, a space, and the event."""
LAST: Final = b"."
"""The same, after which the stream is over; empty where it ended without a word."""
LEFT: Final = b"-"
"""The stream is over where it was; whoever knows how may go on with it."""
ASIDE: Final = b"!"
"""What is for one carrier and never repeated: its name, a space, and the piece."""
HALT: Final = b"x"
"""One carrier, by its name, is to end its connection: another has the stream."""


class About(NamedTuple):
    """What a stream answers: the id of a request, None for a GET stream.

    `task` is the task whose outcome it waits for, if it does. `wait` is how that wait is known to whoever runs the
    task, whatever streams it has moved over, and `heard` which of the task's notes came last before this stream.
    """

    request: RequestId | None = None
    task: str | None = None
    wait: str | None = None
    heard: int = 0


def write_about(about: About) -> bytes:
    """As it is kept."""
    return json.dumps(about, separators=(",", ":")).encode()


def read_about(text: bytes) -> About:
    """What was kept; of nothing else can be told what it is about."""
    try:
        found = json.loads(text)
    except ValueError:
        return About()
    match found:
        case [(str() | int() | None) as request, (str() | None) as task, (str() | None) as wait, int(heard)]:
            return About(request, task, wait, heard)
    return About()


def kept(event: bytes, heard: int | None = None) -> bytes:
    """The entry of an event; `heard` is the place of the note that it is."""
    return KEPT + event if heard is None else b"%b%d %b" % (NOTE, heard, event)


def repeated(entry: bytes) -> bytes:
    """The event that a host gets who missed it; empty where it gets none."""
    if entry[:1] == NOTE:
        return entry.partition(b" ")[2]
    return entry[1:] if entry[:1] in (KEPT, LAST) else b""


def heard_in(entry: bytes) -> int | None:
    """The place of the note that an entry is; None for anything else."""
    return int(entry[1:].partition(b" ")[0]) if entry[:1] == NOTE else None


def for_carrier(entry: bytes, carrier: str) -> bytes:
    """What a carrier sends of an entry that is new; empty where it is not for it."""
    return _aside(entry)[1] if entry[:1] == ASIDE and greets(entry, carrier) else repeated(entry)


def greets(entry: bytes, carrier: str) -> bool:
    """Whether an entry is for that carrier alone: its writer knows of it."""
    return entry[:1] == ASIDE and _aside(entry)[0] == carrier.encode()


def halts(entry: bytes, carrier: str) -> bool:
    """Whether that carrier is to end."""
    return entry == HALT + carrier.encode()


def _aside(entry: bytes) -> tuple[bytes, bytes]:
    name, _, piece = entry[1:].partition(b" ")
    return name, piece


def follow_on(entries: Sequence[tuple[int, bytes]], after: int) -> bool:
    """Whether nothing is missing between an event and the last of these."""
    return all(number == after + place for place, (number, _) in enumerate(entries, 1))
