"""One program as a line: its messages, and how it ends.

What must not live here: when a program is started or ended (`pool`), and how (`starting`, `nurse`). What holds: what a
program wrote before it ended is heard before its end is; a program whose end was told is ended, if it was not.
"""

import asyncio
import math
from collections import deque
from contextlib import suppress
from contextvars import Context
from typing import Final, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.system.offload import LARGE
from taskgate.upstream.base import Outgoing
from taskgate.upstream.beside import LeftOut, NotificationBudget, Said
from taskgate.upstream.duplex.base import Ears
from taskgate.upstream.stdio import endings
from taskgate.upstream.stdio.chatter import Chatter, ProgramLog
from taskgate.upstream.stdio.endings import Ending
from taskgate.upstream.stdio.framing import Cut, Framing
from taskgate.upstream.stdio.nursing import Child
from taskgate.upstream.stdio.pipes import Reading, Writing

TAKEN: Final = 202
"""What HTTP says of a message that is taken, and answered in another way."""
SOFT: Final = 2.0
"""Seconds that a program has to end after its input did, before it gets SIGTERM."""
HARD: Final = 2.0
"""Seconds that it has after that, before it gets SIGKILL."""
MOMENT: Final = 1.0
"""Seconds that the other signs of an end have to arrive after the first."""
REASON: Final = 0.25
"""Seconds for which whoever could not say something waits to hear why: that a program ended is heard after it did."""


LINES_A_TURN: Final = 256
"""Lines of its output that are heard before everybody else has a turn."""
LINES_A_SECOND: Final = 5000
"""Lines of its output, empty ones too, after which it is read on in the next second only."""


class ChannelObserver(Protocol):
    """Whom a line tells of itself. Nothing of it raises or waits."""

    def rested(self, line: "ProgramChannel") -> None:
        """Something was said on it, and nobody waits for an answer now."""
        ...

    def over(self, line: "ProgramChannel", ending: Ending) -> None:
        """It must be given to nobody any more; told once, before its ears are told."""
        ...

    def exited(self, line: "ProgramChannel") -> None:
        """Its program has ended; told once."""
        ...

    def gone(self, line: "ProgramChannel") -> None:
        """Nothing is left of it; told once, and last."""
        ...


class ProgramChannel:
    """The line to one program; see MessageChannel. Messages of more than `limit` bytes are cut.

    Beside its answers that many bytes are read at once, and so many a second as of an event stream: the rest waits.
    """

    acknowledges: bool = False

    def __init__(self, limit: int, told: ProgramLog, keeper: ChannelObserver, left_out: LeftOut) -> None:
        self._framing = Framing(limit)
        self._beside = NotificationBudget(left_out)
        self._said = Said(limit)
        self._told = told
        self._keeper = keeper
        self._ears: Ears | None = None
        self._early: list[bytes] = []
        self._unheard: deque[bytes | Cut] = deque()
        self._later: asyncio.Handle | asyncio.Task[None] | None = None
        self._is_held = False
        self._lines = 0
        self._lines_from = -math.inf
        self._child: Child | None = None
        self._status: int | None = None
        self._is_known = asyncio.Event()
        self._early_status: int | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._reading = Reading(self._received, self._output_ended)
        self._writing = Writing(self._input_ended)
        self._chatter = Chatter(told, self._look_if_gone)
        self._is_gone = False
        self.ending: Ending | None = None
        """How it ended; None while it stands."""
        self.used = asyncio.get_running_loop().time()
        """The loop's time at which something was last said on it."""
        self.spoke: float | None = None
        """The loop's time of its first message."""

    @property
    def pid(self) -> int:
        """The program's process, which may have ended; 0 before there is one."""
        return self._chatter.pid

    @property
    def status(self) -> int | None:
        """What its program exited with; see Child. None while it runs."""
        return self._status

    @property
    def stands(self) -> bool:
        """Whether something can be sent on it, as far as is known."""
        return self.ending is None and self._status is None and not self._reading.is_gone and self._writing.is_read

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers on it."""
        return 0 if self._ears is None else self._ears.in_flight

    async def why_unsent(self) -> UpstreamFailed:
        """What is said of a message that could not be written: how it ended, where that is known within a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON):
                await self._is_known.wait()
        ending = self._likely_ending() if self._is_known.is_set() else endings.UNREAD
        return ending.failure(dispatched=False)

    def _likely_ending(self) -> Ending:
        if self.ending is not None:
            return self.ending
        if self._status is not None:
            return endings.of_status(self._status)
        return endings.CLOSED_OUTPUT if self._reading.is_gone else endings.CLOSED_INPUT

    # --- its program, as whoever starts it tells

    async def connect(self, stdin: int, stdout: int, stderr: int) -> None:
        """Have the gateway's ends of the program's streams, which are closed with this."""
        await self._writing.connect(stdin)
        await self._reading.connect(stdout)
        # What it says is told once it is known which program it is.
        self._chatter.reading.pause()
        await self._chatter.reading.connect(stderr)

    def begin(self, child: Child) -> None:
        """The program runs."""
        self._child = child
        self._chatter.pid = child.pid
        self._chatter.reading.resume()
        self.used = asyncio.get_running_loop().time()
        if self._reading.is_gone or self._writing.is_gone:
            self._wait()
        if self._early_status is not None:
            # Whoever waits for the start is told of that first.
            asyncio.get_running_loop().call_soon(self.exited, self._early_status, context=Context())

    async def discard(self) -> None:
        """There will be no program: nobody is told anything."""
        self.ending = endings.OURS
        for end in (self._writing, self._reading, self._chatter.reading):
            end.close()
        await asyncio.sleep(0)

    def exited(self, status: int) -> None:
        """The program ended, which may be before it is known to run: then it is told when it is."""
        if self._child is None:
            self._early_status = status
            return
        self._status = status
        self._is_known.set()
        self._writing.close()
        self._chatter.hurry()
        self._keeper.exited(self)
        if self._ears is None or self._reading.is_gone:
            self.end(endings.of_status(status))
        # What it left behind may hold its streams.
        self._wait_no_more()
        self._wait()
        self._look_if_gone()

    # --- Line

    def listen(self, ears: Ears) -> None:
        """See MessageChannel."""
        self._ears = ears
        if self.ending is not None:
            self._tell(self.ending)
            return
        early, self._early = self._early, []
        for received in early:
            asyncio.get_running_loop().call_soon(self._received, received, context=Context())
        self._reading.resume()

    async def send(self, outgoing: Outgoing) -> int:
        """See MessageChannel."""
        assert outgoing.body is not None, "a message has a body"
        if not (self.stands and await self._writing.write(_line(outgoing.body), outgoing.left)):
            raise await self.why_unsent()
        self._note_use()
        return TAKEN

    def pause(self) -> None:
        """See MessageChannel."""
        self._is_held = True
        self._reading.pause()

    def resume(self) -> None:
        """See MessageChannel."""
        self._is_held = False
        if self._later is None:
            self._reading.resume()

    def answered(self, size: int) -> None:
        """See MessageChannel."""
        self._said.answered(size)

    def drop(self) -> None:
        """See MessageChannel."""
        self.end(endings.OURS)

    # --- what it hears

    def _received(self, received: bytes) -> None:
        if self.ending is not None:
            # It is read so that the program does not wait for that.
            return
        if self._ears is None:
            self._early.append(received)
            self._reading.pause()
            return
        self._lines += received.count(b"\n")
        lines, now = self._framing.feed(received), asyncio.get_running_loop().time()
        self._unheard.extend(self._beside.heard(lines, now))
        if self._later is None:
            self._hear_some(self._ears)

    def _hear_some(self, ears: Ears) -> None:
        """Hear of what was received as much as one turn may take; then read on, now or in the next second."""
        self._later = None
        loop = asyncio.get_running_loop()
        for _ in range(min(LINES_A_TURN, len(self._unheard))):
            message = self._unheard.popleft()
            if not isinstance(message, Cut) and len(message) > LARGE:
                self._reading.pause()
                self._later = loop.create_task(self._read(message, ears), context=Context())
                return
            self._hear(message, ears)
            if self.ending is not None:
                return
        if self._unheard:
            self._reading.pause()
            self._later = loop.call_soon(self._hear_some, ears, context=Context())
            return
        if self._framing.is_endless:
            self._hear(self._framing.begun(), ears)
            self.end(endings.ENDLESS)
            return
        self._note_use()
        now = loop.time()
        left = self._said.wait(now)
        if self._lines > LINES_A_SECOND:
            self._lines, left = 0, max(left, self._lines_from + 1 - now)
            self._lines_from = now + left
        if left > 0:
            self._reading.pause()
            self._later = loop.call_later(left, self._hear_some, ears, context=Context())
            return
        if not self._is_held and self._reading.is_paused:
            self._reading.resume()

    def _hear(self, message: bytes | Cut, ears: Ears) -> None:
        if isinstance(message, Cut):
            self._told.tell_cut(message.size, self.pid)
            was_message = ears.cut(message.ends)
        else:
            self._said.heard(len(message))
            was_message = ears.heard(message)
            if not was_message:
                self._told.tell_junk(message, self.pid)
        self._note_spoke(was_message)

    async def _read(self, message: bytes, ears: Ears) -> None:
        """Hear a large message, and then what came after it."""
        self._said.heard(len(message))
        was_message = await ears.heard_large(message)
        if not was_message:
            self._told.tell_junk(message, self.pid)
        self._note_spoke(was_message)
        if self.ending is None:
            self._hear_some(ears)

    def _note_spoke(self, was_message: bool) -> None:
        if was_message and self.spoke is None:
            self.spoke = asyncio.get_running_loop().time()

    def _note_use(self) -> None:
        self.used = asyncio.get_running_loop().time()
        if not self.in_flight:
            self._keeper.rested(self)

    # --- its end

    def end(self, ending: Ending) -> None:
        """It is over: whoever hears it is told, and the program is ended where it was not."""
        if self.ending is not None:
            return
        self.ending = ending
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._unheard.clear()
        self._is_known.set()
        self._keeper.over(self, ending)
        if self._ears is not None:
            self._tell(ending)
        self._writing.close()
        if self._status is None and self._child is not None:
            self._child.end(SOFT, HARD)
        self._reading.resume()

    def _tell(self, ending: Ending) -> None:
        assert self._ears is not None, "there is a listener"
        failure = ending.failure(dispatched=True)
        asyncio.get_running_loop().call_soon(self._ears.lost, failure, context=Context())

    def _output_ended(self) -> None:
        if self._status is not None:
            self.end(endings.of_status(self._status))
        self._wait()
        self._look_if_gone()

    def _input_ended(self) -> None:
        self._wait()
        self._look_if_gone()

    def _wait(self) -> None:
        """Give other signs of the end a moment to come after the first."""
        began = self._child is not None or self._status is not None
        if began and self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(MOMENT, self._waited, context=Context())

    def _waited(self) -> None:
        self._waiting = None
        if self.ending is None and self._reading.is_paused:
            # There may be more to be heard before.
            self._wait()
            return
        self.end(self._likely_ending())
        if self._status is not None:
            self._reading.close()
            self._chatter.reading.close()
        self._look_if_gone()

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _look_if_gone(self) -> None:
        if self._status is None or not (self._reading.is_gone and self._chatter.reading.is_gone):
            return
        if self._writing.is_gone and self.ending is not None and not self._is_gone:
            self._is_gone = True
            self._wait_no_more()
            self._keeper.gone(self)


def _line(body: bytes) -> bytes:
    """A message as one line: what ends lines within it stands between its tokens, where any blank does."""
    if b"\n" in body or b"\r" in body:
        body = body.replace(b"\n", b" ").replace(b"\r", b" ")
    return body + b"\n"
