"""A reader of event streams as hosts have one, after the standard: chunks in, the data of `message` events out."""

import re
from typing import Final

_BREAK: Final = re.compile(rb"\r\n|\n|\r")


class EventDecoder:
    """Reads one stream, however its chunks fall. `last_id` and `retry` are what the stream said last, if anything."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.retry: int | None = None
        self._pieces: list[bytes] = []
        self._type = b""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each `message` event that the chunk completes, in order."""
        self._pieces.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        text = b"".join(self._pieces)
        # A CR at the end may be the half of a CRLF.
        half = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _BREAK.split(text.removesuffix(half))
        self._pieces = [rest + half]
        return [event for line in lines for event in self._line(line)]

    def _line(self, line: bytes) -> list[bytes]:
        if not line:
            event, is_message = b"\n".join(self._data), self._type in (b"", b"message")
            self.last_id, self._type, self._data = self._id, b"", []
            return [event] if event and is_message else []
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._type = value
            case b"id" if b"\0" not in value:
                self._id = value.decode()
            case b"retry" if value.isdigit():
                self.retry = int(value)
        return []
