"""Server-sent events without I/O: `event` and others encode them, `EventDecoder` reads them from
chunks.

An event is one message. Its id and the retry delay matter for the resumption of a stream. Event ids
of a server do not cross the gateway. Line breaks inside a message are replaced.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from taskgate.jsontext.large import JsonChunks, MessageText

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment, which is no event: it resets idle timers of proxies."""


def event(text: MessageText | bytes, id: str | None = None) -> bytes:
    """One message as an event, with an id if given. `text` must be JSON; bytes must be UTF-8 without
    a line break.

    JSON strings have no raw line breaks, so a line break between tokens becomes a space.
    """
    if isinstance(text, bytes):
        if id is None:
            return b"event: message\ndata: %b\n\n" % text
        return b"id: %b\nevent: message\ndata: %b\n\n" % (id.encode(), text)
    if isinstance(text, JsonChunks):
        head = "" if id is None else f"id: {id}\n"
        return text.line(f"{head}event: message\ndata: ".encode(), b"\n\n")
    if "\n" in text or "\r" in text:
        text = text.replace("\r", " ").replace("\n", " ")
    if id is None:
        return f"event: message\ndata: {text}\n\n".encode()
    return f"id: {id}\nevent: message\ndata: {text}\n\n".encode()


def priming(id: str) -> bytes:
    """An event without data whose id is the start of a stream, for its resumption (H-LEG-11)."""
    return f"id: {id}\ndata: \n\n".encode()


def retry(milliseconds: int) -> bytes:
    """The delay before the host reconnects."""
    return f"retry: {milliseconds}\n\n".encode()


MAX_ID: Final = 16 * 1024
"""Longest event id that is sent back to its server, in bytes: servers read no longer headers."""


class EventTooLarge(Exception):
    """An event, or a single line, exceeds the limit of its reader."""


_MESSAGE: Final = b"message"


@dataclass(slots=True)
class EventDecoder:
    """A decoder from chunks of an event stream to the data of its `message` events.

    Its user makes one for each stream, and gives it every chunk in order. Lines may end in CR, LF
    or CRLF, and chunks may be split anywhere, without effect. `other` gets type and data of events
    of other types, in order with the messages; None ignores them. Comments are ignored, and so is
    an event that the end of the stream cuts off.

    `last_id` is the id that a reconnecting client sends: of the last complete event, or of one
    before. None if there is none, if it was reset, or if a header could not have it. `retry` is in
    milliseconds, None if the server sent none.

    `noise` counts the bytes of lines that belong to no message: comments, empty lines, unknown
    fields and events of other types. Fields of a message beyond the usual size count, too.

    Raises EventTooLarge, and from then on always, if the data of an event or any other line is
    longer than `limit` bytes. At most one such event and one such line are buffered. Takes linear
    time.
    """

    limit: int
    other: Callable[[bytes, bytes], None] | None = None
    last_id: str | None = None
    retry: int | None = None
    noise: int = 0
    # Of the event that is being read: `_fields`, the bytes of its type and id lines, then its data
    # lines, their size, and its type. `_id` is the last id read, `_rest` a line without its end.
    # `_is_between`: nothing of an event or of a line break is buffered.
    _fields: int = 0
    _id: str | None = None
    _rest: bytearray = field(default_factory=bytearray)
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _type: bytes = _MESSAGE
    _begun: bool = False
    _is_between: bool = True
    _after_cr: bool = False
    _overflowed: bool = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes, in order, lines joined by LF.

        Events that were complete before the limit was exceeded are returned; the next call raises.
        """
        events: list[bytes] = []
        size = len(chunk)
        if self._is_between and size <= _SHORT and size <= self.limit:
            at = 0
            while (usual := _USUAL_EVENT(chunk, at)) is not None:
                id, data = usual.groups()
                if b"\r" in data:
                    data = data[:-1]
                    if not data or b"\r" in data:
                        break
                if id is not None:
                    self._id = _id_of(id)
                self.last_id = self._id
                self._begun = True
                events.append(data)
                at = usual.end()
                if at == size:
                    return events
            chunk = chunk[at:]
        try:
            self._read(chunk, events)
        except EventTooLarge:
            self._overflowed = True
            self._rest, self._data, self._size = bytearray(), [], 0
            if not events:
                raise
        finally:
            begun = self._size or self._rest or self._after_cr or self._overflowed
            self._is_between = not begun and self._type == _MESSAGE
        return events

    @property
    def unfinished(self) -> int:
        """The number of buffered bytes of an incomplete event or line."""
        return self._size + len(self._rest)

    def _read(self, chunk: bytes, events: list[bytes]) -> None:
        if self._overflowed:
            raise EventTooLarge
        for line in self._complete_lines(chunk):
            data = self._read_line(line)
            if data is not None:
                events.append(data)
        self._expect_short(self._rest)

    def _complete_lines(self, chunk: bytes) -> list[bytes | bytearray]:
        """The lines that `chunk` completes; the rest is kept for the next chunk."""
        if self._after_cr:
            # The LF of a CRLF may be in this chunk.
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

    def _read_line(self, line: bytes | bytearray) -> bytes | None:
        """Read one line without its end; return the data of the message that it ends, if any."""
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
            self._append(bytes(memoryview(line)[start:]))
        elif name == b"event":
            self._type = bytes(line[start:]) or _MESSAGE
            self._count_field(len(line) + 1)
        elif name == b"id" and b"\0" not in line:
            self._id = _id_of(bytes(memoryview(line)[start:]))
            self._count_field(len(line) + 1)
        else:
            if name == b"retry" and _RETRY(line[start:]):
                self.retry = int(line[start:])
            self.noise += len(line) + 1
        return None

    def _count_field(self, size: int) -> None:
        """Count a line with a type or an id: as noise beyond the usual size."""
        if self._fields > _USUAL_FIELDS:
            self.noise += size
        else:
            self._fields += size

    def _append(self, value: bytes) -> None:
        if self._size + len(value) > self.limit:
            raise EventTooLarge
        self._data.append(value)
        # The LF that joins it to the next line counts: otherwise empty lines would have no limit.
        self._size += len(value) + 1

    def _finish(self) -> bytes | None:
        """End an event at its empty line, and return its data; None if it is no message."""
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
        # An event with an id and empty data only marks the start of a stream.
        return b"\n".join(data) or None

    def _expect_short(self, line: bytes | bytearray) -> None:
        """Raise EventTooLarge for a line whose data would exceed the limit."""
        if len(line) > self.limit + _FRAME:
            raise EventTooLarge


def _id_of(written: bytes) -> str | None:
    """An event id; None for an empty one, a long one, and one that a header could not have."""
    if not 0 < len(written) <= MAX_ID:
        return None
    text = written.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else None


_SHORT: Final = 32 * 1024
"""Bytes of a chunk up to which one pattern finds its events; a longer one is read by lines."""
_USUAL_FIELDS: Final = MAX_ID + 1024
"""Bytes that type and id of a message may have together before they count as noise."""
_USUAL_EVENT: Final = re.compile(
    rb"(?:event: message\r?\n)?(?:id: ([^\r\n\0]*+)\r?\n)?(?:event: message\r?\n)?data: (.++)\n\r?\n"
).match
"""An event in the common form, with the id before or after the type.

Of a class of bytes, such as `[^\r\n]`, each byte takes longer than of a dot, which is all but LF.
So the data may have a CR, which is part of the line's end if nothing follows it."""
_RETRY: Final = re.compile(rb"[0-9]{1,12}").fullmatch
_BOM: Final = b"\xef\xbb\xbf"
_FRAME: Final = len(_BOM + b"data: ")
"""Bytes around the data in a line, so that data of exactly the limit passes."""
