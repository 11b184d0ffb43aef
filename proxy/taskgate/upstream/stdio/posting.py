"""Messages to and from the nursery, with descriptors beside them: a socket that nobody waits for.

What must not live here: what a message means (`nursing`), how it is written (`nursery.words`).
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
    """The gateway's end of the socket. `heard` gets each message; `lost` is told once that no more come."""

    def __init__(self, end: socket.socket, heard: Callable[[Message], None], lost: Callable[[], None]) -> None:
        end.setblocking(False)
        self._end = end
        self._heard = heard
        self._lost = lost
        self._unpacker = Unpacker()
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        # It hears for everybody: nothing that is ambient here is anybody's.
        Context().run(self._loop.add_reader, end, self._hear)

    def send(self, said: bytes, streams: Sequence[int] = ()) -> None:
        """Send a message, in the background where there is no room for it; `streams` may be closed after that."""
        rest, streams = (said, streams) if self._unsent else self._sent(said, streams)
        if rest:
            if not self._unsent:
                Context().run(self._loop.add_writer, self._end, self._send_more)
            self._unsent.append((rest, [os.dup(stream) for stream in streams]))

    def close_writing(self) -> None:
        """Say no more: the nursery ends everything, and then itself."""
        try:
            self._end.shutdown(socket.SHUT_WR)
        except OSError:
            # It is gone already, which is about to be heard.
            return

    def close(self) -> None:
        """Let go of the socket; nothing is told after this."""
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        while self._unsent:
            _close(self._unsent.popleft()[1])

    def _sent(self, said: bytes, streams: Sequence[int]) -> tuple[bytes, Sequence[int]]:
        """What is left of a message after as much was sent as is taken now."""
        try:
            count = socket.send_fds(self._end, [said], streams) if streams else self._end.send(said)
        except (BlockingIOError, InterruptedError):
            return said, streams
        except OSError:
            # Nobody hears it; that is told by the reading side.
            return b"", ()
        return said[count:], ()

    def _send_more(self) -> None:
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
