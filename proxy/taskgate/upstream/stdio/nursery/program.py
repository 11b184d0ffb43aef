"""Main loop of the supervisor process: `Nursery` obeys the gateway, and ends all programs after it.

The gateway has the other end of the socket. When that is closed, however the gateway died, every
program gets SIGTERM and then SIGKILL, and this process exits last. `main` is started by
`stdio.nursing`; `wards` starts and ends programs.
"""

import os
import selectors
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.upstream.stdio.nursery import kinship, words
from taskgate.upstream.stdio.nursery.timetable import Timetable
from taskgate.upstream.stdio.nursery.wards import NotStarted, Wards

SOFT: Final = 2.0
"""Seconds for programs to exit by themselves after the gateway is gone: their input has ended with
it."""
HARD: Final = 2.0
"""Seconds after that until they are killed."""

_AT_ONCE: Final = 2**16
_MOST_STREAMS: Final = 240
"""Descriptors received at once: systems send at most 253."""


class Nursery:
    """One run of the process. `gateway` is the socket to the gateway."""

    def __init__(self, gateway: socket.socket) -> None:
        self._gateway = gateway
        self._timetable = Timetable()
        self._wards = Wards(self._timetable, self._exited)
        self._selector = selectors.DefaultSelector()
        self._unpacker = words.Unpacker()
        self._streams: list[int] = []
        self._unsent = b""
        # Whether the gateway is there: it has not closed the socket.
        self._listens = True
        # The events that the selector reports of the socket.
        self._watched = 0

    def run(self) -> None:
        """Serve until the gateway and every child process are gone."""
        kinship.take_in_orphans()
        woken = self._wake_on_signals()
        self._gateway.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, partial(_drain, woken))
        self._watch()
        while True:
            has_children = self._wards.reap()
            if not (self._listens or has_children):
                return
            for key, _ in self._selector.select(self._timetable.run()):
                key.data()

    def _wake_on_signals(self) -> int:
        """Catch terminating signals: this process still has programs to end. Its children do not
        inherit that."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for each in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: None)
        return reading

    # --- messages with the gateway ------------------------------------------------------------------------------------

    def _speak(self) -> None:
        """Handle an event of the socket: send what is pending, and obey what arrived."""
        self._say(b"")
        if not self._listens:
            return
        try:
            received, streams, _, _ = socket.recv_fds(self._gateway, _AT_ONCE, _MOST_STREAMS)
        except (BlockingIOError, InterruptedError):
            received = None
        except OSError:
            received = b""
        else:
            self._streams += streams
        if received == b"":
            self._end()
            return
        for message in self._unpacker.feed(received or b""):
            self._obey(message)

    def _obey(self, message: words.Message) -> None:
        """Do what a message of the gateway says: start or end a program."""
        if message["verb"] == words.START:
            self._start(message)
        else:
            self._wards.end(message["id"], message["soft"], message["hard"])

    def _start(self, message: words.Message) -> None:
        """Start a program with the three oldest descriptors that were received, and send the
        result."""
        streams = [self._streams.pop(0) for _ in range(words.STREAMS)]
        try:
            pid = self._wards.start(message, streams)
        except NotStarted as refused:
            answer = words.packed(words.FAILED, id=message["id"], errno=refused.errno, cwd=refused.cwd)
        else:
            answer = words.packed(words.STARTED, id=message["id"], pid=pid)
        finally:
            for stream in streams:
                os.close(stream)
        self._say(answer)

    def _exited(self, number: int, status: int) -> None:
        self._say(words.packed(words.EXITED, id=number, status=status))

    def _say(self, said: bytes) -> None:
        """Send without blocking: a gateway that does not read must not stop this process."""
        self._unsent += said
        try:
            while self._unsent:
                self._unsent = self._unsent[self._gateway.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._unsent = b""
        self._watch()

    def _watch(self) -> None:
        """Wait for input, and for room if there is something to send."""
        reads = selectors.EVENT_READ if self._listens else 0
        events = reads | (selectors.EVENT_WRITE if self._unsent else 0)
        if events == self._watched:
            return
        if self._watched:
            self._selector.unregister(self._gateway)
        if events:
            self._selector.register(self._gateway, events, self._speak)
        self._watched = events

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End all programs: the gateway is gone, or closed its sending side."""
        self._listens = False
        self._watch()
        for stream in self._streams:
            os.close(stream)
        self._wards.end_all(SOFT, HARD)
        self._timetable.after(SOFT + HARD, self._end_orphans)

    def _end_orphans(self) -> None:
        """Kill what the programs left behind, again and again until no child is left."""
        # What they leave behind becomes a child of this process, too.
        self._wards.end_orphans()
        self._timetable.after(0.1, self._end_orphans)


def _drain(woken: int) -> None:
    with suppress(BlockingIOError):
        while os.read(woken, _AT_ONCE):
            pass


def main(descriptor: int) -> None:
    """Run over the inherited socket with this descriptor."""
    with socket.socket(fileno=descriptor) as gateway:
        gateway.set_inheritable(False)
        Nursery(gateway).run()
