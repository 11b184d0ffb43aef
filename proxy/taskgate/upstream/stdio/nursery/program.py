"""The program itself: hears the gateway, does what it says, and ends everything once nobody speaks any more.

Whoever holds the other end of the socket is the gateway; when that end is closed, by whatever death, every program gets
SIGTERM and then SIGKILL, and this one ends last. What must not live here: how a program is started or ended (`wards`).
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
"""Seconds that programs have to end by themselves once their gateway is gone: their input has ended with it."""
HARD: Final = 2.0
"""Seconds after that until they are killed."""

_AT_ONCE: Final = 2**16
_MOST_STREAMS: Final = 240
"""Descriptors in one piece: systems send no more than 253."""


class Nursery:
    """One run of the program, over one socket."""

    def __init__(self, gateway: socket.socket) -> None:
        self._gateway = gateway
        self._timetable = Timetable()
        self._wards = Wards(self._timetable, self._exited)
        self._selector = selectors.DefaultSelector()
        self._unpacker = words.Unpacker()
        self._streams: list[int] = []
        self._unsent = b""
        self._listens = True
        self._watched = 0

    def run(self) -> None:
        """Serve until the gateway is gone and every program with it."""
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
        """Signals that end a program do not end this one, which has others to end; its children start without that."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for each in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: None)
        return reading

    # --- words with the gateway

    def _speak(self) -> None:
        """Say what could not be said before, and hear what came."""
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
        if message["verb"] == words.START:
            self._start(message)
        else:
            self._wards.end(message["id"], message["soft"], message["hard"])

    def _start(self, message: words.Message) -> None:
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
        """Send it when there is room: a gateway that does not listen holds nobody up."""
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
        """Be woken when there is something to hear, or room for what is to be said."""
        reads = selectors.EVENT_READ if self._listens else 0
        events = reads | (selectors.EVENT_WRITE if self._unsent else 0)
        if events == self._watched:
            return
        if self._watched:
            self._selector.unregister(self._gateway)
        if events:
            self._selector.register(self._gateway, events, self._speak)
        self._watched = events

    # --- the end

    def _end(self) -> None:
        """The gateway is gone, or says that it has nothing more to say."""
        self._listens = False
        self._watch()
        for stream in self._streams:
            os.close(stream)
        self._wards.end_all(SOFT, HARD)
        self._timetable.after(SOFT + HARD, self._end_orphans)

    def _end_orphans(self) -> None:
        # Those that they leave come here, too.
        self._wards.end_orphans()
        self._timetable.after(0.1, self._end_orphans)


def _drain(woken: int) -> None:
    with suppress(BlockingIOError):
        while os.read(woken, _AT_ONCE):
            pass


def main(descriptor: int) -> None:
    """Run over the socket of that number, which was inherited."""
    with socket.socket(fileno=descriptor) as gateway:
        gateway.set_inheritable(False)
        Nursery(gateway).run()
