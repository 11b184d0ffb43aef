"""Main loop of the supervisor process: `SupervisorLoop` obeys the gateway, and ends all programs after it.

`supervisor_client` in the gateway starts this process by `main`, and has the other end of the socket.
By it the gateway orders starts and ends of programs, and this process reports starts and exits
(`messages`). When that end is closed, however the gateway died, every program gets SIGTERM and then
SIGKILL. This process exits when no child process is left. `Children` starts, ends and reaps the
programs. `Timers` has the timers, `process_tree` the adoption of processes that programs leave.
"""

import os
import selectors
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.upstream.stdio.supervisor import messages, process_tree
from taskgate.upstream.stdio.supervisor.children import Children, NotStarted, Timers

SOFT: Final = 2.0
"""Seconds from the end of the gateway to SIGTERM, for programs to exit by themselves: their input
has ended with it."""
HARD: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""

_AT_ONCE: Final = 2**16
"""Bytes that are read at once, from the socket or the wake-up pipe."""
_MOST_STREAMS: Final = 240
"""Descriptors received at once: systems send at most 253."""


class SupervisorLoop:
    """One run of the process; `run` is the whole of it. `gateway` is the socket to the gateway.

    It is in one of two states. While `_listens`, it obeys messages. After the end of file on the
    socket it only ends programs, and still sends reports while the socket takes them.
    """

    def __init__(self, gateway: socket.socket) -> None:
        self._gateway = gateway
        self._timers = Timers()
        self._children = Children(self._timers, self._exited)
        self._selector = selectors.DefaultSelector()
        self._unpacker = messages.Unpacker()
        # Descriptors that were received, and belong to `start` messages still to be handled.
        self._streams: list[int] = []
        # Reports that the socket had no room for.
        self._unsent = b""
        # False once the gateway has closed the socket or its sending side.
        self._listens = True
        # The events of the socket for which it is registered; 0: it is not.
        self._watched = 0

    def run(self) -> None:
        """Serve until the gateway and every child process are gone. Each turn reaps children, runs
        due timers, and handles events of the socket."""
        process_tree.take_in_orphans()
        woken = self._wake_on_signals()
        self._gateway.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, partial(_drain, woken))
        self._watch()
        while True:
            has_children = self._children.reap()
            if not (self._listens or has_children):
                return
            for key, _ in self._selector.select(self._timers.run()):
                key.data()

    def _wake_on_signals(self) -> int:
        """Have signals only wake the main loop, and return the pipe that becomes readable then.

        SIGCHLD wakes it to reap. Terminating signals have no other effect: this process still has
        programs to end. Its children do not inherit that.
        """
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for each in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: None)
        return reading

    # --- messages with the gateway ------------------------------------------------------------------------------------

    def _on_socket(self) -> None:
        """Handle an event of the socket: send what is pending, then obey what arrived."""
        self._send(b"")
        if not self._listens:
            return
        try:
            received, streams, _, _ = socket.recv_fds(self._gateway, _AT_ONCE, _MOST_STREAMS)
        except (BlockingIOError, InterruptedError):
            # Nothing arrived: the event was for sending.
            received = None
        except OSError:
            # A broken socket is as good as a closed one.
            received = b""
        else:
            self._streams += streams
        if received == b"":
            self._end()
            return
        for message in self._unpacker.feed(received or b""):
            self._obey(message)

    def _obey(self, message: messages.Message) -> None:
        """Do what a message of the gateway says: start or end a program."""
        if message["verb"] == messages.START:
            self._start(message)
        else:
            self._children.end(message["id"], message["soft"], message["hard"])

    def _start(self, message: messages.Message) -> None:
        """Start a program with the three oldest descriptors that were received, and send the
        result."""
        streams = [self._streams.pop(0) for _ in range(messages.STREAMS)]
        try:
            pid = self._children.start(message, streams)
        except NotStarted as refused:
            answer = messages.packed(messages.FAILED, id=message["id"], errno=refused.errno, cwd=refused.cwd)
        else:
            answer = messages.packed(messages.STARTED, id=message["id"], pid=pid)
        finally:
            for stream in streams:
                os.close(stream)
        self._send(answer)

    def _exited(self, number: int, status: int) -> None:
        """Report the exit of a program; `Children` calls it once for each. `number` is the `id` of its
        `start` message."""
        self._send(messages.packed(messages.EXITED, id=number, status=status))

    def _send(self, report: bytes) -> None:
        """Send a report after those that are pending; what the socket does not take now is sent
        when it has room.

        It does not block: a gateway that does not read must not stop this process. If the socket is
        broken, reports are dropped.
        """
        self._unsent += report
        try:
            while self._unsent:
                self._unsent = self._unsent[self._gateway.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._unsent = b""
        self._watch()

    def _watch(self) -> None:
        """Register the socket for input while the gateway is there, and for room if a report is
        pending."""
        reads = selectors.EVENT_READ if self._listens else 0
        events = reads | (selectors.EVENT_WRITE if self._unsent else 0)
        if events == self._watched:
            return
        if self._watched:
            self._selector.unregister(self._gateway)
        if events:
            self._selector.register(self._gateway, events, self._on_socket)
        self._watched = events

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Begin the end of all programs; called once, at the end of file on the socket. `run`
        returns when they are gone."""
        self._listens = False
        self._watch()
        for stream in self._streams:
            os.close(stream)
        self._children.end_all(SOFT, HARD)
        self._timers.after(SOFT + HARD, self._end_orphans)

    def _end_orphans(self) -> None:
        """Kill what the programs left behind, ten times a second until `run` finds no child left.

        Such processes have become children of this process. What they leave behind does so, too.
        """
        self._children.end_orphans()
        self._timers.after(0.1, self._end_orphans)


def _drain(woken: int) -> None:
    """Empty the wake-up pipe; the signals in it have done their work by waking the loop."""
    with suppress(BlockingIOError):
        while os.read(woken, _AT_ONCE):
            pass


def main(descriptor: int) -> None:
    """Run the supervisor to its end, over the inherited socket with this descriptor."""
    with socket.socket(fileno=descriptor) as gateway:
        gateway.set_inheritable(False)
        SupervisorLoop(gateway).run()
