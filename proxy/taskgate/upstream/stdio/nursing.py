"""One run of the supervisor process, as the gateway sees it: `Nursing`, and its programs, `Child`.

It starts the process (`nursery.program`), sends it orders through `posting`, and receives starts
and exits:

    start, with three descriptors -> started | failed
    end                           -> exited

A run begins with its creation and is over when the supervisor closes its socket. Then no program of
it is left, and every `ended` callback was called. `Nurse` starts another run.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Final, NamedTuple

import taskgate
from taskgate.system import descriptors
from taskgate.upstream.stdio.environment import inherited
from taskgate.upstream.stdio.nursery import words
from taskgate.upstream.stdio.posting import Posting

LOST: Final = 256
"""Status of a program whose real one is unknown, because the supervisor died."""

_ROOT: Final = Path(taskgate.__file__).parent.parent
# Isolated and without site: the supervisor needs the standard library only, which comes before any
# other directory on the path.
_CODE: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from taskgate.upstream.stdio.nursery.program import main; main(int(sys.argv[2]))"
)
_LOOK: Final = 0.005
"""Seconds between checks whether the supervisor, which closed its socket, has exited."""
_LAST_WAIT: Final = 10.0
"""Seconds for the supervisor to end all programs and itself."""


class Order(NamedTuple):
    """A program to start: command, complete environment, directory. `streams` are its stdin, stdout
    and stderr."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None
    streams: tuple[int, int, int]


class ProgramNotStarted(Exception):
    """The system did not start a program. `errno` is 0 if unknown; `cwd`: its directory is the
    cause."""

    def __init__(self, errno: int, *, cwd: bool = False) -> None:
        super().__init__(errno)
        self.errno = errno
        self.cwd = cwd


class Child:
    """A program that was ordered; `pid` is its process once it runs.

    `ended` is called once with its status: the exit status, the negative of a signal, or LOST. It
    is not called for a program that was not started, or whose start was cancelled.
    """

    __slots__ = ("_post", "_started", "ended", "number", "pid")

    def __init__(self, number: int, post: Callable[[bytes], None], ended: Callable[[int], None]) -> None:
        self.number = number
        self.ended = ended
        self.pid = 0
        self._post = post
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started(self) -> None:
        """Wait until it runs. Raises ProgramNotStarted. Cancelling the wait ends the program."""
        try:
            await self._started
        except asyncio.CancelledError:
            self.ended = _nobody_hears
            self.end(0, 0)
            raise

    def settle(self, pid: int, refused: ProgramNotStarted | None = None) -> None:
        """Receive the result of the start: `pid`, or `refused`."""
        self.pid = pid
        if self._started.done():
            return
        if refused is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(refused)

    def end(self, soft: float, hard: float) -> None:
        """Have it sent SIGTERM after `soft` seconds and SIGKILL `hard` seconds later, unless it
        exits before."""
        self._post(words.packed(words.END, id=self.number, soft=soft, hard=hard))


class Nursing:
    """One supervisor process, started now. Raises OSError if it cannot be started.

    `is_over`: the supervisor is gone or about to exit, and starts no program any more.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._nursery = _start(theirs)
            except OSError:
                ours.close()
                raise
        self._children: dict[int, Child] = {}
        self._last = 0
        self._gone = asyncio.Event()
        self._posting = Posting(ours, self._heard, self._lost)
        self.is_over = False

    @property
    def is_gone(self) -> bool:
        """Whether the process has exited."""
        return self._gone.is_set()

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        return self._nursery.pid

    async def start(self, order: Order, ended: Callable[[int], None]) -> Child:
        """Start a program, as `Nurse.start`."""
        self._last += 1
        try:
            asked = _written(self._last, order)
        except ValueError:
            raise ProgramNotStarted(0) from None
        child = self._children[self._last] = Child(self._last, self._say, ended)
        self._say(asked, order.streams)
        await child.started()
        return child

    async def close(self) -> None:
        """Have it end all programs and itself, and wait for its exit."""
        if not self.is_over:
            self._posting.close_writing()
        try:
            async with asyncio.timeout(_LAST_WAIT):
                await self._gone.wait()
        except TimeoutError:
            self._nursery.kill()
            await self._gone.wait()

    def _say(self, said: bytes, streams: Sequence[int] = ()) -> None:
        if not self.is_over:
            self._posting.send(said, streams)

    def _heard(self, message: words.Message) -> None:
        """Receive a message of the supervisor about a child."""
        child = self._children[message["id"]]
        match message["verb"]:
            case words.STARTED:
                child.settle(message["pid"])
            case words.FAILED:
                del self._children[child.number]
                child.settle(0, ProgramNotStarted(message["errno"], cwd=message["cwd"]))
            case words.EXITED:
                del self._children[child.number]
                child.ended(message["status"])

    def _lost(self) -> None:
        """End the run: the supervisor exited, or is about to."""
        self.is_over = True
        children, self._children = self._children, {}
        for child in children.values():
            if child.pid:
                # The program was killed with the supervisor; the processes that it started have no
                # other parent to kill them.
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.ended(LOST)
            else:
                child.settle(0, ProgramNotStarted(0))
        Context().run(self._look)

    def _look(self) -> None:
        """Check for the exit of the supervisor until it has exited."""
        if self._nursery.poll() is None:
            asyncio.get_running_loop().call_later(_LOOK, self._look)
        else:
            self._gone.set()


def _start(theirs: socket.socket) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-S", "-c", _CODE, str(_ROOT), str(theirs.fileno())]
    nursery = subprocess.Popen(  # noqa: S603 - our own program
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        # Signals of a terminal are for the gateway, which ends the programs in its own time.
        start_new_session=True,
        env=inherited(os.environ),
    )
    # It has no orders yet.
    descriptors.restore_limit(nursery.pid)
    return nursery


def _written(number: int, order: Order) -> bytes:
    """Encode an order. Raises ValueError for text that no system accepts."""
    return words.packed(
        words.START,
        id=number,
        argv=[words.to_text(os.fsencode(argument)) for argument in order.command],
        env={words.to_text(os.fsencode(name)): words.to_text(os.fsencode(value)) for name, value in order.env.items()},
        cwd=None if order.cwd is None else words.to_text(os.fsencode(order.cwd)),
    )


def _nobody_hears(status: int) -> None:
    """Do nothing: the start of this program was cancelled."""
