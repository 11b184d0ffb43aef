"""Event streams: writing events, and reading them from chunks as they come. Sans-io.

An event is one message; its id and the pause that its server asks for matter where a stream is taken up again. Event
ids of a server are never passed on, and what is written can hold no line break that did not come from this module.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from taskgate.jsontext.large import JsonChunks, MessageText

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment: resets every idle timer on the way and is no event."""


def event(text: MessageText, id: str | None = None) -> bytes:
    """One message as an event, under an id where it has one.

    JSON has no raw line break inside a string, so a break between its tokens may become a space. `text` must be JSON.
    """
    if isinstance(text, JsonChunks):
        head = "" if id is None else f"id: {id}\n"
        return text.line(f"{head}event: message\ndata: ".encode(), b"\n\n")
    if "\n" in text or "\r" in text:
        text = text.replace("\r", " ").replace("\n", " ")
    if id is None:
        return f"event: message\ndata: {text}\n\n".encode()
    return f"id: {id}\nevent: message\ndata: {text}\n\n".encode()


def priming(id: str) -> bytes:
    """An event that says nothing but where its stream begins, for who may have to take it up again (H-LEG-11)."""
    return f"id: {id}\ndata: \n\n".encode()


def pause(milliseconds: int) -> bytes:
    """How long to wait before coming back."""
    return f"retry: {milliseconds}\n\n".encode()


MAX_ID: Final = 1024
"""The longest id, in bytes, that is sent back to its server."""


class EventTooLarge(Exception):
    """An event, or a single line, is longer than its reader wants to keep."""


_MESSAGE: Final = b"message"


@dataclass(slots=True)
class EventDecoder:
    """Turns chunks of an event stream into the data of its `message` events.

    Lines may end in CR, LF or CRLF, chunks may fall anywhere: they never change the outcome. Events of another type are
    for `other`, which gets type and data before anything that comes after them is handed out, and passed over without
    it; so are comments, and an event cut off by the end of the stream is none.

    `last_id` is the id of the last event that is complete, or of one before; None where there is none, it was taken
    back, or it is nothing that a header could hold. `retry` is in milliseconds, None where nothing was said.

    `noise` are the bytes of lines that came to no message: comments, empty lines, events of another type, fields that
    are not known, and what a message has of other fields beyond what servers write.

    Raises EventTooLarge, from then on, when the data of an event of any type or a line of any other kind is longer than
    `limit` bytes. Keeps at most one such event and one such line. Takes linear time.
    """

    limit: int
    other: Callable[[bytes, bytes], None] | None = None
    last_id: str | None = None
    retry: int | None = None
    noise: int = 0
    _fields: int = 0
    _id: str | None = None
    _rest: bytearray = field(default_factory=bytearray)
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _type: bytes = _MESSAGE
    _begun: bool = False
    _after_cr: bool = False
    _overflowed: bool = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes, in order, lines joined by LF.

        Events that were complete before the limit was passed are still handed out; the next call raises.
        """
        if len(chunk) <= _SHORT and len(chunk) <= self.limit and self._between:
            whole = _ONE_EVENT(chunk)
            if whole is not None:
                if whole[1] is not None:
                    self._id = _id_of(whole[1])
                self.last_id = self._id
                return [whole[2]]
        events: list[bytes] = []
        try:
            self._read(chunk, events)
        except EventTooLarge:
            self._overflowed = True
            self._rest, self._data = bytearray(), []
            if not events:
                raise
        return events

    @property
    def unfinished(self) -> int:
        """How many bytes are kept of an event, or of a line, whose end has not come."""
        return self._size + len(self._rest)

    @property
    def _between(self) -> bool:
        """Whether an event starts next, and nothing of it, no mark and no half of a line or break came yet."""
        return (
            self._begun
            and self._type == _MESSAGE
            and not (self._size or self._rest or self._after_cr or self._overflowed)
        )

    def _read(self, chunk: bytes, events: list[bytes]) -> None:
        if self._overflowed:
            raise EventTooLarge
        for line in self._complete_lines(chunk):
            data = self._take(line)
            if data is not None:
                events.append(data)
        self._expect_short(self._rest)

    def _complete_lines(self, chunk: bytes) -> list[bytes | bytearray]:
        if self._after_cr:
            # The LF of a CRLF may have fallen into this chunk.
            self._after_cr = not chunk
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines: list[bytes | bytearray] = [*chunk.splitlines()]
        tail = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if lines and self._rest:
            self._rest += lines[0]
            lines[0], self._rest = self._rest, bytearray()
        self._rest += tail
        return lines

    def _take(self, line: bytes | bytearray) -> bytes | None:
        if not self._begun:
            self._begun = True
            line = line[len(_BOM) :] if line.startswith(_BOM) else line
        if not line:
            return self._finish()
        self._expect_short(line)
        colon = line.find(b":")
        name, start = (line[:colon], colon + 1) if colon >= 0 else (line, len(line))
        start += line[start : start + 1] == b" "
        if name == b"data":
            self._keep(bytes(memoryview(line)[start:]))
        elif name == b"event":
            self._type = bytes(line[start:]) or _MESSAGE
            self._note_field(len(line) + 1)
        elif name == b"id" and b"\0" not in line:
            self._id = _id_of(bytes(memoryview(line)[start:]))
            self._note_field(len(line) + 1)
        else:
            if name == b"retry" and _RETRY(line[start:]):
                self.retry = int(line[start:])
            self.noise += len(line) + 1
        return None

    def _note_field(self, size: int) -> None:
        if self._fields > _USUAL_FIELDS:
            self.noise += size
        else:
            self._fields += size

    def _keep(self, value: bytes) -> None:
        if self._size + len(value) > self.limit:
            raise EventTooLarge
        self._data.append(value)
        # The LF that joins it to the next line counts, or empty lines would gather without end.
        self._size += len(value) + 1

    def _finish(self) -> bytes | None:
        self.last_id = self._id
        data, type_ = self._data, self._type
        is_message = type_ == _MESSAGE and self._size > 1
        if not is_message:
            self.noise += self._fields + self._size + len(b"data: ") * len(data) + 1
        self._data, self._type, self._size, self._fields = [], _MESSAGE, 0, 0
        if type_ != _MESSAGE:
            if self.other is not None:
                self.other(type_, b"\n".join(data))
            return None
        # An event with an id and empty data only primes a stream for resumption.
        return b"\n".join(data) or None

    def _expect_short(self, line: bytes | bytearray) -> None:
        if len(line) > self.limit + _FRAME:
            raise EventTooLarge


def _id_of(written: bytes) -> str | None:
    if not 0 < len(written) <= MAX_ID:
        return None
    text = written.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else None


_SHORT: Final = 4 * 1024
_USUAL_FIELDS: Final = 2 * MAX_ID
"""What the type and the id of a message may have together."""
_ONE_EVENT: Final = re.compile(
    rb"(?:event: message\r?\n)?(?:id: ([^\r\n\0]*)\r?\n)?(?:event: message\r?\n)?data: ([^\r\n]+)\r?\n\r?\n"
).fullmatch
"""A chunk that is one event as servers write them, the id before or after the type: nearly all come like that."""
_RETRY: Final = re.compile(rb"[0-9]{1,12}").fullmatch
_BOM: Final = b"\xef\xbb\xbf"
_FRAME: Final = len(_BOM + b"data: ")
"""What may stand around the data in a line, so that data of exactly the limit passes however it is cut."""
