"""Socket to the supervisor process: `Posting` sends and receives messages.

File descriptors can go with a message. Nothing here blocks. `nursery.words` has the format,
`Nursing` the meaning of messages.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Final

from taskgate.upstream.stdio.nursery.words import Message, Unpacker

_AT_ONCE: Final = 2**16


class Posting:
    """The gateway's end of the socket. `heard` is called with each message, `lost` once when the
    supervisor closed its end."""

    def __init__(self, end: socket.socket, heard: Callable[[Message], None], lost: Callable[[], None]) -> None:
        end.setblocking(False)
        self._end = end
        self._heard = heard
        self._lost = lost
        self._unpacker = Unpacker()
        # What the socket had no room for: the rest of each message, with descriptors of its own.
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        # An empty context: the socket serves all callers.
        Context().run(self._loop.add_reader, end, self._hear)

    def send(self, said: bytes, streams: Sequence[int] = ()) -> None:
        """Send a message, in the background if the socket is full; the caller may then close
        `streams`."""
        rest, streams = (said, streams) if self._unsent else self._sent(said, streams)
        if rest:
            if not self._unsent:
                Context().run(self._loop.add_writer, self._end, self._send_more)
            self._unsent.append((rest, [os.dup(stream) for stream in streams]))

    def close_writing(self) -> None:
        """Close the sending side: the supervisor then ends all programs and itself."""
        try:
            self._end.shutdown(socket.SHUT_WR)
        except OSError:
            # It has exited, which the reader will notice.
            return

    def close(self) -> None:
        """Close the socket; no callback follows. Called at its end."""
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        while self._unsent:
            _close(self._unsent.popleft()[1])

    def _sent(self, said: bytes, streams: Sequence[int]) -> tuple[bytes, Sequence[int]]:
        """Send as much as fits; returns the rest, and the descriptors that still go with it."""
        try:
            count = socket.send_fds(self._end, [said], streams) if streams else self._end.send(said)
        except (BlockingIOError, InterruptedError):
            return said, streams
        except OSError:
            # The supervisor is gone, which the reader will notice.
            return b"", ()
        return said[count:], ()

    def _send_more(self) -> None:
        """Send stored messages: called when the socket has room, until all are sent."""
        while self._unsent:
            said, streams = self._unsent.popleft()
            rest, left = self._sent(said, streams)
            if not left:
                _close(streams)
            if rest:
                self._unsent.appendleft((rest, list(left)))
                return
        self._loop.remove_writer(self._end)

    def _hear(self) -> None:
        """Receive what the socket has, and pass on each whole message; at its end, close it and
        call `lost`."""
        try:
            received = self._end.recv(_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self.close()
            self._lost()
            return
        for message in self._unpacker.feed(received):
            self._heard(message)


def _close(streams: Sequence[int]) -> None:
    for stream in streams:
        os.close(stream)
