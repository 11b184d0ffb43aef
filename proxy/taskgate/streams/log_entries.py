"""The format of stream entries in the log that replicas share.

An entry is a one-byte kind, then the bytes for the host. Entry numbers grow by one; those of events
are part of the event ids that hosts see. Entries of earlier versions may be stored, so kinds may be
added but not changed.

A *forwarder* is a connection to a host at another replica than the one that writes the stream. It
sends the host what the log has. Its name is `<replica>/<number>`. A *note* is a notification of a
task; `lifecycle.task_streams` numbers the notes of one wait.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId

EVENT: Final = b"+"
"""An event that can be replayed."""
NOTE: Final = b"#"
"""An event with a note of a task: the note's number, a space, and the event."""
FINAL: Final = b"."
"""The last event of a stream that has ended; empty if it ended without one."""
RELEASED: Final = b"-"
"""The end of a stream at its replica: another replica may continue it."""
DIRECT: Final = b"!"
"""A piece for one forwarder, not replayed: its name, a space, and the piece. An empty piece only
confirms that the forwarder has the stream."""
STOP: Final = b"x"
"""An order to one forwarder, by name, to end its connection: another one has the stream."""


class StreamOrigin(NamedTuple):
    """The purpose of a stream: the id of the request that it answers, None for a GET stream.

    `task` is the task whose result the stream waits for, if any. `wait` names that wait for the
    replica that runs the task, across all streams that it moved over. `last_note` is the number of
    the last note of the task that was sent before this stream.
    """

    request: RequestId | None = None
    task: str | None = None
    wait: str | None = None
    last_note: int = 0


def encode_origin(origin: StreamOrigin) -> bytes:
    """An origin as it is stored."""
    return json.dumps(origin, separators=(",", ":")).encode()


def decode_origin(text: bytes) -> StreamOrigin:
    """A stored origin; the empty one for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        # Deep arrays exceed the recursion limit. Without a key, any writer to the store can write them.
        return StreamOrigin()
    match found:
        case [(str() | int() | None) as request, (str() | None) as task, (str() | None) as wait, int(last_note)]:
            return StreamOrigin(request, task, wait, last_note)
    return StreamOrigin()


def event_entry(event: bytes, note: int | None = None) -> bytes:
    """The entry of an event; `note` is the number of the note that it contains."""
    return EVENT + event if note is None else b"%b%d %b" % (NOTE, note, event)


def replayable_event(entry: bytes) -> bytes:
    """The event to replay to a host that missed it; empty if there is none."""
    if entry[:1] == NOTE:
        return entry.partition(b" ")[2]
    return entry[1:] if entry[:1] in (EVENT, FINAL) else b""


def note_number(entry: bytes) -> int | None:
    """The number of the note in an entry; None if it has none."""
    return int(entry[1:].partition(b" ")[0]) if entry[:1] == NOTE else None


def event_for(entry: bytes, forwarder: str) -> bytes:
    """What a forwarder sends for a new entry; empty if the entry is not for it."""
    return _direct(entry)[1] if is_addressed_to(entry, forwarder) else replayable_event(entry)


def is_addressed_to(entry: bytes, forwarder: str) -> bool:
    """Whether an entry is for that forwarder alone, which proves that the writer knows it."""
    return entry[:1] == DIRECT and _direct(entry)[0] == forwarder.encode()


def is_stop_for(entry: bytes, forwarder: str) -> bool:
    """Whether an entry orders that forwarder to stop."""
    return entry == STOP + forwarder.encode()


def are_consecutive(entries: Sequence[tuple[int, bytes]], after: int) -> bool:
    """Whether no entry is missing between number `after` and the last one."""
    return all(number == after + place for place, (number, _) in enumerate(entries, 1))


def _direct(entry: bytes) -> tuple[bytes, bytes]:
    name, _, piece = entry[1:].partition(b" ")
    return name, piece
