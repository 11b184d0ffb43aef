"""One connection of the load: sends prepared bytes, finds the end of each answer, keeps what is needed to judge it.

An answer is searched, never parsed as JSON. Of one longer than `KEPT` with a known length only the beginning and the
last `TAIL` bytes are kept, since copying a megabyte costs the load as much as relaying it costs a target.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Protocol, cast

Request = tuple[bytes, bytes]  # its bytes after the start, which is its first line or more, up to the id; the rest

KEPT = 65_536
TAIL = 256
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_TASK_ID = re.compile(rb'"taskId":"([^"]+)"')
_STEP = 100_000_000  # between the ids of the requests that are counted as one


class Crew(Protocol):
    """What a caller tells of itself."""

    def finish(self, caller: "Caller", took: float, complaint: str) -> None:
        """An answer is complete, `took` seconds after it was due; `complaint` says what is wrong with it."""

    def lose(self) -> None:
        """The connection ended."""


class Expectation:
    """What every answer must contain: status 200, the request's id near either end, and the marker.

    The marker must occur `times` times, or at least once if `times` is 0.
    """

    def __init__(self, marker: bytes, times: int) -> None:
        self._marker = marker
        self._times = times

    def complaint(self, head: bytes, body: bytes, number: bytes) -> str:
        """What is wrong with an answer; empty if nothing is."""
        if not head.startswith(b"HTTP/1.1 200"):
            wrong = head.partition(b"\r\n")[0].decode(errors="replace")
        elif number not in body[:TAIL] and number not in body[-TAIL:]:
            wrong = "another id"
        elif self._times and (seen := body.count(self._marker)) != self._times:
            wrong = f"{seen} times {self._marker.decode()}"
        elif self._marker not in body:
            wrong = f"no {self._marker.decode()}"
        else:
            return ""
        return f"{wrong}: {body[:200].decode(errors='replace')}"


def joined_chunks(body: bytes) -> bytes:
    """The payload of a complete chunked body."""
    parts, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


class Caller(asyncio.BufferedProtocol):
    """At most one request under way; it sends `requests` one after the other, again and again, each with its own id."""

    def __init__(self, crew: Crew, expectation: Expectation, requests: Sequence[Request], shared: bytearray) -> None:
        self._crew = crew
        self._expectation = expectation
        self._requests = requests
        self._turn = 0
        self._shared = shared  # what the socket is read into: of use only until the next read of any caller
        self._view = memoryview(shared)
        self._number = b""
        self._due = 0.0
        self._forget()

    def _forget(self) -> None:
        self._head = b""  # empty until it is complete
        self._kept = b""  # the head until it is complete, then the body
        self._tail = b""
        self._missing = 0  # bytes of the body still to come; -1 if it is chunked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crew.lose()

    def close(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def fire(self, number: int, due: float, start: bytes) -> None:
        """Send the next request, with this start; `due` is when it ought to have gone."""
        self._number = b"%d" % number
        self._due = due
        front, back = self._requests[self._turn]
        self._turn = (self._turn + 1) % len(self._requests)
        self._transport.write(b"%b%b%b%b" % (start, front, self._number, back))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._shared

    def buffer_updated(self, nbytes: int) -> None:
        if self._missing > 0 and len(self._kept) >= KEPT:
            self._missing -= nbytes
            self._tail = (self._tail + bytes(self._view[max(0, nbytes - TAIL) : nbytes]))[-TAIL:]
        else:
            self._keep(bytes(self._view[:nbytes]))
        if not self._head or self._missing > 0:
            return
        if self._missing < 0:
            if not self._kept.endswith(_LAST_CHUNK):
                return
            self._kept = joined_chunks(self._kept)
        took = time.perf_counter() - self._due
        head, body = self._head, self._kept + self._tail
        self._forget()
        self._answered(head, body, took)

    def _answered(self, head: bytes, body: bytes, took: float) -> None:
        self._crew.finish(self, took, self._expectation.complaint(head, body, self._number))

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if self._head:
            self._missing = max(self._missing - len(piece), -1)
            return
        head, between, rest = self._kept.partition(b"\r\n\r\n")
        if not between:
            return
        self._head, self._kept = head, rest
        if _CHUNKED.search(head):
            self._missing = -1
        else:
            found = _LENGTH.search(head)
            self._missing = (int(found[1]) if found else 0) - len(rest)


class TaskCaller(Caller):
    """Creates a task, looks at it once and waits for its result; the three requests are counted as one."""

    def __init__(
        self, crew: Crew, expectation: Expectation, requests: Sequence[Request], shared: bytearray, head: bytes
    ) -> None:
        super().__init__(crew, expectation, requests, shared)
        self._fields = head
        self._task = b""
        self._later: list[bytes] = []  # the methods that are still to be asked for

    def fire(self, number: int, due: float, start: bytes) -> None:
        self._start, self._task, self._later = start, b"", [b"tasks/result", b"tasks/get"]
        super().fire(number, due, start)

    def _answered(self, head: bytes, body: bytes, took: float) -> None:
        found = _TASK_ID.search(body)
        self._task = self._task or (found[1] if found else b"")
        if not self._later or not self._task or self._task not in body:
            super()._answered(head, body, took)
            return
        self._number = b"%d" % (int(self._number) + _STEP)
        message = b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":{"taskId":"%b"}}'
        message %= self._number, self._later.pop(), self._task
        front = b"%b%bContent-Length: %d\r\n\r\n" % (self._start, self._fields, len(message))
        self._transport.write(front + message)
