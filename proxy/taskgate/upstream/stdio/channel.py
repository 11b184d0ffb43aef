"""Message channel to one program: `ProgramChannel`, its messages and how it ends.

Messages are lines on standard input and output (U-STDIO-1). `starting` connects the pipes and calls
`begin` when the program runs. `slots` observes the channel.

The channel ends (`end`) when the gateway ends it, the program exits or closes a pipe, or its output
is too large. A program that still runs is then stopped. The observer hears `on_closed` when the
channel ends, `on_exit` when the program has exited, and last `on_gone`. All output before the end
of a program is delivered before the end is reported.
"""

import asyncio
import math
import os
from collections import deque
from contextlib import suppress
from contextvars import Context
from typing import Final, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.system.offload import LARGE
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import ChannelListener
from taskgate.upstream.notification_limits import LeftOut, NotificationBudget, Said
from taskgate.upstream.stdio import exits
from taskgate.upstream.stdio.exits import Ending
from taskgate.upstream.stdio.pipes import Cut, LineFraming, PipeReader, PipeWriter
from taskgate.upstream.stdio.stderr_log import ProgramLog, StderrReader
from taskgate.upstream.stdio.supervisor_client import Child

SOFT: Final = 2.0
"""Seconds for a program to exit after the end of its input, before SIGTERM."""
HARD: Final = 2.0
"""Seconds after SIGTERM, before SIGKILL."""
MOMENT: Final = 1.0
"""Seconds after the first sign of an end (an exit, a closed pipe) for the others to arrive. They
tell the cause, and may bring output."""
REASON: Final = 0.25
"""Seconds that a failed send waits for the reason: the exit is reported after the pipe breaks."""


LINES_A_TURN: Final = 256
"""Lines of output that are processed before the event loop runs other tasks."""
LINES_A_SECOND: Final = 5000
"""Lines of output, also empty ones, after which reading pauses until the next second."""


class ChannelObserver(Protocol):
    """The receiver of the events of a channel; implemented by its slot. No method raises or waits."""

    def on_idle(self, channel: "ProgramChannel") -> None:
        """Messages were exchanged, and no request waits for an answer now. Called after each such
        exchange."""
        ...

    def on_closed(self, channel: "ProgramChannel", ending: Ending) -> None:
        """The channel has ended and must not be given to a session. Called once, before its
        listener is called."""
        ...

    def on_exit(self, channel: "ProgramChannel") -> None:
        """The program has exited; called once."""
        ...

    def on_gone(self, channel: "ProgramChannel") -> None:
        """The channel has ended, and the program and its pipes are gone. Called once, and last."""
        ...


class ProgramChannel:
    """A `MessageChannel` to one program. Messages of more than `limit` bytes are cut.

    `output_log` gets output that is no message, `observer` the events of the channel. Besides
    answers, `limit` bytes are read at once, and then as many per second as of an event stream; the
    rest waits in the pipe.
    """

    acknowledges: bool = False

    def __init__(self, limit: int, output_log: ProgramLog, observer: ChannelObserver, left_out: LeftOut) -> None:
        self._framing = LineFraming(limit)
        # Drops or merges notifications that are too large or too fast.
        self._beside = NotificationBudget(left_out)
        # Counts bytes besides answers: tells how long reading must pause.
        self._said = Said(limit)
        self._output_log = output_log
        self._observer = observer
        # The listener of messages; None until `listen`.
        self._listener: ChannelListener | None = None
        # Output that came before there was a listener.
        self._early: list[bytes] = []
        # Messages still to be delivered, and what will go on with them: a timer, or the delivery of
        # a large one.
        self._undelivered: deque[bytes | Cut] = deque()
        self._later: asyncio.Handle | asyncio.Task[None] | None = None
        # Whether the listener has paused the channel.
        self._is_held = False
        # Lines of the current second, which began at that loop time.
        self._lines = 0
        self._lines_from = -math.inf
        self._child: Child | None = None
        self._status: int | None = None
        # Set when the cause of the end is known.
        self._is_known = asyncio.Event()
        # The exit status, if it was reported before the start.
        self._early_status: int | None = None
        # The timer that ends the channel, from the first sign of an end.
        self._planned_end: asyncio.TimerHandle | None = None
        self._stdout = PipeReader(self._received, self._output_ended)
        self._stdin = PipeWriter(self._input_ended)
        self._stderr = StderrReader(output_log, self._look_if_gone)
        self._is_gone = False
        self.ending: Ending | None = None
        """How it ended; None while it is open."""
        self.used = asyncio.get_running_loop().time()
        """The loop time of the last message on it, or of the start or the last taker if that was
        later."""
        self.spoke: float | None = None
        """The loop time of the program's first message; None before it."""

    @property
    def pid(self) -> int:
        """The process id, also after the exit; 0 before the start."""
        return self._stderr.pid

    @property
    def status(self) -> int | None:
        """The exit status of the program, as of `supervisor_client.Child`; None while it runs."""
        return self._status

    @property
    def is_usable(self) -> bool:
        """Whether a message can be sent, as far as known: neither the channel nor the program has
        ended."""
        return self.ending is None and self._status is None and not self._stdout.is_gone and self._stdin.is_read

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers on it."""
        return 0 if self._listener is None else self._listener.in_flight

    async def why_unsent(self) -> UpstreamFailed:
        """Return the failure of a message that could not be written, with the cause of the end if
        it becomes known soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON):
                await self._is_known.wait()
        ending = self._likely_ending() if self._is_known.is_set() else exits.UNREAD
        return ending.failure(dispatched=False)

    def _likely_ending(self) -> Ending:
        if self.ending is not None:
            return self.ending
        if self._status is not None:
            return exits.of_status(self._status)
        return exits.CLOSED_OUTPUT if self._stdout.is_gone else exits.CLOSED_INPUT

    # --- its program --------------------------------------------------------------------------------------------------

    async def connect(self, stdin: int, stdout: int, stderr: int) -> None:
        """Connect the gateway's ends of the pipes; the channel closes them.

        Raises OSError; then `discard` closes those that are connected, and the others are closed.
        """
        # Read once the process id is known, which is logged with each line.
        self._stderr.reading.pause()
        left = [stderr, stdout, stdin]
        try:
            for end in (self._stdin, self._stdout, self._stderr.reading):
                await end.connect(left.pop())
        except OSError:
            for descriptor in left:
                os.close(descriptor)
            raise

    def begin(self, child: Child) -> None:
        """Note that the program runs; called once by `starting`."""
        self._child = child
        self._stderr.pid = child.pid
        self._stderr.reading.resume()
        self.used = asyncio.get_running_loop().time()
        if self._stdout.is_gone or self._stdin.is_gone:
            self._plan_end()
        if self._early_status is not None:
            # The waiter for the start must be woken first.
            asyncio.get_running_loop().call_soon(self.exited, self._early_status, context=Context())

    async def discard(self) -> None:
        """Close the pipes of a channel whose program could not be started. No observer is
        called."""
        self.ending = exits.OURS
        for end in (self._stdin, self._stdout, self._stderr.reading):
            end.close()
        await asyncio.sleep(0)

    def exited(self, status: int) -> None:
        """Receive the exit status, once. If it comes before `begin`, it is handled right after
        that."""
        if self._child is None:
            self._early_status = status
            return
        self._status = status
        self._is_known.set()
        self._stdin.close()
        self._stderr.read_rest()
        self._observer.on_exit(self)
        if self._listener is None or self._stdout.is_gone:
            self.end(exits.of_status(status))
        # Child processes may keep its pipes open: the channel ends a moment later in any case.
        self._cancel_planned_end()
        self._plan_end()
        self._look_if_gone()

    # --- the message channel ------------------------------------------------------------------------------------------

    def listen(self, listener: ChannelListener) -> None:
        self._listener = listener
        if self.ending is not None:
            self._tell(self.ending)
            return
        early, self._early = self._early, []
        for received in early:
            asyncio.get_running_loop().call_soon(self._received, received, context=Context())
        self._stdout.resume()

    async def send(self, outgoing: Outgoing) -> None:
        assert isinstance(outgoing.body, bytes), "a channel takes no chunks"
        if not (self.is_usable and await self._stdin.write(_line(outgoing.body), outgoing.call)):
            raise await self.why_unsent()
        self._note_use()

    def pause(self) -> None:
        self._is_held = True
        self._stdout.pause()

    def resume(self) -> None:
        self._is_held = False
        if self._later is None:
            self._stdout.resume()
        if self._planned_end is not None:
            # What waits in the pipe has a moment, too.
            self._cancel_planned_end()
            self._plan_end()

    def answered(self, size: int) -> None:
        self._said.answered(size)

    def drop(self) -> None:
        self.end(exits.OURS)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _received(self, received: bytes) -> None:
        """Split output into messages and deliver them; keep it if there is no listener yet."""
        if self.ending is not None:
            # The output is still read, so that the program does not block on it.
            return
        if self._listener is None:
            self._early.append(received)
            self._stdout.pause()
            return
        self._lines += received.count(b"\n")
        lines, now = self._framing.feed(received), asyncio.get_running_loop().time()
        self._undelivered.extend(self._beside.heard(lines, now))
        if self._later is None:
            self._deliver_some(self._listener)

    def _deliver_some(self, listener: ChannelListener) -> None:
        """Deliver as many messages as one turn allows; then read on, now or in the next second."""
        self._later = None
        loop = asyncio.get_running_loop()
        for _ in range(min(LINES_A_TURN, len(self._undelivered))):
            message = self._undelivered.popleft()
            if not isinstance(message, Cut) and len(message) > LARGE:
                self._stdout.pause()
                self._later = loop.create_task(self._deliver_large(message, listener), context=Context())
                return
            self._deliver(message, listener)
            if self.ending is not None:
                return
        if self._undelivered:
            self._stdout.pause()
            self._later = loop.call_soon(self._deliver_some, listener, context=Context())
            return
        if self._framing.is_endless:
            self._deliver(self._framing.unfinished(), listener)
            self.end(exits.ENDLESS)
            return
        self._note_use()
        now = loop.time()
        left = self._said.wait(now)
        if self._lines > LINES_A_SECOND:
            self._lines, left = 0, max(left, self._lines_from + 1 - now)
            self._lines_from = now + left
        if left > 0:
            self._stdout.pause()
            self._later = loop.call_later(left, self._deliver_some, listener, context=Context())
            return
        if not self._is_held and self._stdout.is_paused:
            self._stdout.resume()

    def _deliver(self, message: bytes | Cut, listener: ChannelListener) -> None:
        """Deliver one message, or log what is none."""
        if isinstance(message, Cut):
            self._output_log.log_truncated(message.size, self.pid)
            was_message = listener.on_truncated(message.ends)
        else:
            self._said.heard(len(message))
            was_message = listener.on_message(message)
            if not was_message:
                self._output_log.log_invalid(message, self.pid)
        self._note_spoke(was_message)

    async def _deliver_large(self, message: bytes, listener: ChannelListener) -> None:
        """Deliver a large message, and then the lines after it."""
        self._said.heard(len(message))
        was_message = await listener.on_large_message(message)
        if not was_message:
            self._output_log.log_invalid(message, self.pid)
        self._note_spoke(was_message)
        if self.ending is None:
            self._deliver_some(listener)

    def _note_spoke(self, was_message: bool) -> None:
        """Note the time of the program's first message."""
        if was_message and self.spoke is None:
            self.spoke = asyncio.get_running_loop().time()

    def _note_use(self) -> None:
        """Note that a message was exchanged; tell the observer if no request waits for an
        answer."""
        self.used = asyncio.get_running_loop().time()
        if not self.in_flight:
            self._observer.on_idle(self)

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        """End the channel: tell its observer and its listener, and stop the program if it runs. A
        second call does nothing."""
        if self.ending is not None:
            return
        self.ending = ending
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._undelivered.clear()
        self._is_known.set()
        self._observer.on_closed(self, ending)
        if self._listener is not None:
            self._tell(ending)
        self._stdin.close()
        if self._status is None and self._child is not None:
            self._child.end(SOFT, HARD)
        self._stdout.resume()

    def _tell(self, ending: Ending) -> None:
        """Tell the listener that the channel has ended, in the next turn of the loop."""
        assert self._listener is not None, "there is a listener"
        failure = ending.failure(dispatched=True)
        asyncio.get_running_loop().call_soon(self._listener.on_closed, failure, context=Context())

    def _output_ended(self) -> None:
        """Receive the end of standard output, once. After the exit that is the end of the channel;
        before it, only a sign."""
        if self._status is not None:
            self.end(exits.of_status(self._status))
        self._plan_end()
        self._look_if_gone()

    def _input_ended(self) -> None:
        """Receive the end of standard input, once. Unless the gateway closed it, it is a sign that
        the program is about to exit."""
        self._plan_end()
        self._look_if_gone()

    def _plan_end(self) -> None:
        """Have the channel end in a moment: this is the first sign of an end, and others may
        follow."""
        began = self._child is not None or self._status is not None
        if began and self._planned_end is None:
            self._planned_end = asyncio.get_running_loop().call_later(MOMENT, self._on_planned_end, context=Context())

    def _on_planned_end(self) -> None:
        """End the channel, after all output; pipes that child processes keep open are closed."""
        self._planned_end = None
        if self.ending is None and self._stdout.is_paused:
            # There may be output to deliver first.
            self._plan_end()
            return
        self.end(self._likely_ending())
        if self._status is not None:
            self._stdout.close()
            self._stderr.reading.close()
        self._look_if_gone()

    def _cancel_planned_end(self) -> None:
        if self._planned_end is not None:
            self._planned_end.cancel()
            self._planned_end = None

    def _look_if_gone(self) -> None:
        """Tell the observer once the channel has ended, and the program and its pipes are gone."""
        if self._status is None or not (self._stdout.is_gone and self._stderr.reading.is_gone):
            return
        if self._stdin.is_gone and self.ending is not None and not self._is_gone:
            self._is_gone = True
            self._cancel_planned_end()
            self._observer.on_gone(self)


def _line(body: bytes) -> bytes:
    """Return a message as one line: line breaks in it are between tokens, where a blank is
    equivalent."""
    if b"\n" in body or b"\r" in body:
        body = body.replace(b"\n", b" ").replace(b"\r", b" ")
    return body + b"\n"
