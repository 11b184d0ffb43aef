"""One run of the supervisor process, as the gateway sees it: `Nursing`, and its programs, `Child`.

The supervisor ("nursery") is a child process that starts the programs of stdio servers, and kills
them if the gateway dies. `Nursing` starts it (`nursery.program`), sends it orders over a socket
(`posting`), and receives starts and exits:

    start, with three descriptors -> started | failed
    end                           -> exited

A run begins with its creation. It is *over* when the supervisor closes its socket, because it
exits or has died. Then `Nursing` kills what may be left of the programs: those that ran count as
ended, and pending starts fail. It is *gone* once the process has exited. `Nurse` has the present
run, and starts another after it is over.
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
"""The exit status that is reported for a program when the real one is unknown, because the
supervisor died."""

_ROOT: Final = Path(taskgate.__file__).parent.parent
# Isolated and without site: the supervisor needs the standard library only, which comes before any
# other directory on the path.
_CODE: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from taskgate.upstream.stdio.nursery.program import main; main(int(sys.argv[2]))"
)
_LOOK: Final = 0.005
"""Seconds between two checks whether the supervisor has exited, after it closed its socket."""
_LAST_WAIT: Final = 10.0
"""Seconds that the supervisor has in `close` to end all programs and itself; then it is killed."""


class Order(NamedTuple):
    """A program to start: command, complete environment, directory. `streams` are its stdin, stdout
    and stderr."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None
    streams: tuple[int, int, int]


class ProgramNotStarted(Exception):
    """The system did not start a program. `errno` is the system's error number, 0 if unknown.
    `cwd`: whether the working directory of the order is the cause."""

    def __init__(self, errno: int, *, cwd: bool = False) -> None:
        super().__init__(errno)
        self.errno = errno
        self.cwd = cwd


class Child:
    """A program that was ordered from the supervisor, by `Nursing.start`.

    - `number`: names it in messages to and from the supervisor.
    - `pid`: its process id; 0 until it runs.
    - `ended`: called once when the program has exited, with its exit status, the negative of a
      signal, or LOST. Not called for one that was not started, or whose start was cancelled.

    `Nursing` calls `settle`, users call `end`. `post` sends a message to the supervisor.
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
        """Receive the result of the start, for `started`: it runs as `pid`, or was `refused`."""
        self.pid = pid
        if self._started.done():
            return
        if refused is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(refused)

    def end(self, soft: float, hard: float) -> None:
        """Have the supervisor send it SIGTERM after `soft` seconds and SIGKILL `hard` seconds
        later, unless it exits before. Returns at once."""
        self._post(words.packed(words.END, id=self.number, soft=soft, hard=hard))


class Nursing:
    """One supervisor process, started on creation. Raises OSError if it cannot be started.

    `is_over`: the supervisor has closed its socket, and starts no program any more. It may not have
    exited yet; `is_gone` tells that.
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
        """Start a program, and return it once it runs. Raises ProgramNotStarted.

        `ended` is as in `Child`, and may be called before this returns. The caller still owns
        `order.streams`, and may close them afterwards. A program whose start is cancelled is ended.
        """
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
        """Have the supervisor end all programs and itself, and wait for its exit; kill it if that
        takes too long. May be called again."""
        if not self.is_over:
            self._posting.close_writing()
        try:
            async with asyncio.timeout(_LAST_WAIT):
                await self._gone.wait()
        except TimeoutError:
            self._nursery.kill()
            await self._gone.wait()

    def _say(self, said: bytes, streams: Sequence[int] = ()) -> None:
        """Send a message to the supervisor; drop it if the run is over."""
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
        """End the run, because the supervisor has closed its socket: it exited, or is about to."""
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
        """Check whether the supervisor has exited, and again later until it has."""
        if self._nursery.poll() is None:
            asyncio.get_running_loop().call_later(_LOOK, self._look)
        else:
            self._gone.set()


def _start(theirs: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the supervisor with its end of the socket. Raises OSError."""
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
    # The gateway has raised its own limit of open files. No program was ordered yet, so every one
    # inherits the restored limit from the supervisor.
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
