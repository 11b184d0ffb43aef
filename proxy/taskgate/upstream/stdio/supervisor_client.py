"""Client of the supervisor process: `Supervisor` starts programs, one per gateway.

The supervisor is a child process (`supervisor.program`) that starts the programs of stdio servers,
and ends them when the gateway is gone. `Supervisor` starts it with the first program, and again
with the next one after it died. `SupervisorRun` is one run of it, over a socket
(`SupervisorSocket`):

    start, with three descriptors -> started | failed
    end                           -> exited

A run begins with its creation. It is *over* when the supervisor closes its socket, because it
exits or has died. Then `SupervisorRun` kills what may be left of the programs: those that ran
count as ended, and pending starts fail. It is *gone* once the process has exited. `wiring` creates
the `Supervisor` and closes it at the end; the `Starter` of each server uses it.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from logging import getLogger
from pathlib import Path
from typing import Final, NamedTuple

import taskgate
from taskgate.system import descriptors
from taskgate.upstream.stdio.supervisor import messages
from taskgate.upstream.stdio.supervisor.messages import Message, Unpacker

_INHERITED: Final = re.compile("PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_[A-Z]+|TZ|TMPDIR")


def inherited(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the gateway's `own` environment that every program may have."""
    return {name: value for name, value in own.items() if _INHERITED.fullmatch(name)}


def environment(named: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program; `named` variables override inherited ones."""
    return inherited(own) | dict(named)


_AT_ONCE: Final = 2**16


class SupervisorSocket:
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
        Context().run(self._loop.add_reader, end, self._receive)

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

    def _receive(self) -> None:
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


LOST: Final = 256
"""The exit status that is reported for a program when the real one is unknown, because the
supervisor died."""

_ROOT: Final = Path(taskgate.__file__).parent.parent
# Isolated and without site: the supervisor needs the standard library only, which comes before any
# other directory on the path.
_CODE: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from taskgate.upstream.stdio.supervisor.program import main; main(int(sys.argv[2]))"
)
_CHECK: Final = 0.005
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
    """A program that was ordered from the supervisor, by `SupervisorRun.start`.

    - `number`: names it in messages to and from the supervisor.
    - `pid`: its process id; 0 until it runs.
    - `ended`: called once when the program has exited, with its exit status, the negative of a
      signal, or LOST. Not called for one that was not started, or whose start was cancelled.

    `SupervisorRun` calls `settle`, users call `end`. `post` sends a message to the supervisor.
    """

    __slots__ = ("_post", "_started", "ended", "number", "pid")

    def __init__(self, number: int, post: Callable[[bytes], None], ended: Callable[[int], None]) -> None:
        self.number = number
        self.ended = ended
        self.pid = 0
        self._post = post
        self._started: asyncio.Future[ProgramNotStarted | None] = asyncio.get_running_loop().create_future()

    async def started(self) -> None:
        """Wait until it runs. Raises ProgramNotStarted. Cancelling the wait ends the program."""
        try:
            refused = await self._started
        except asyncio.CancelledError:
            self.ended = _ignore
            self.end(0, 0)
            raise
        if refused is not None:
            # Another one: an error refers to the frames that it passes.
            raise ProgramNotStarted(refused.errno, cwd=refused.cwd)

    def settle(self, pid: int, refused: ProgramNotStarted | None = None) -> None:
        """Receive the result of the start, for `started`: it runs as `pid`, or was `refused`."""
        self.pid = pid
        if self._started.done():
            return
        self._started.set_result(refused)

    def end(self, soft: float, hard: float) -> None:
        """Have the supervisor send it SIGTERM after `soft` seconds and SIGKILL `hard` seconds
        later, unless it exits before. Returns at once."""
        self._post(messages.packed(messages.END, id=self.number, soft=soft, hard=hard))


class SupervisorRun:
    """One supervisor process, started on creation. Raises OSError if it cannot be started.

    `is_over`: the supervisor has closed its socket, and starts no program any more. It may not have
    exited yet; `is_gone` tells that.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._popen = _start(theirs)
            except OSError:
                ours.close()
                raise
        self._children: dict[int, Child] = {}
        self._last = 0
        self._gone = asyncio.Event()
        self._socket = SupervisorSocket(ours, self._on_message, self._on_closed)
        self.is_over = False

    @property
    def is_gone(self) -> bool:
        """Whether the process has exited."""
        return self._gone.is_set()

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        return self._popen.pid

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
        child = self._children[self._last] = Child(self._last, self._send, ended)
        self._send(asked, order.streams)
        await child.started()
        return child

    async def close(self) -> None:
        """Have the supervisor end all programs and itself, and wait for its exit; kill it if that
        takes too long. May be called again."""
        if not self.is_over:
            self._socket.close_writing()
        try:
            async with asyncio.timeout(_LAST_WAIT):
                await self._gone.wait()
        except TimeoutError:
            self._popen.kill()
            await self._gone.wait()

    def _send(self, said: bytes, streams: Sequence[int] = ()) -> None:
        """Send a message to the supervisor; drop it if the run is over."""
        if not self.is_over:
            self._socket.send(said, streams)

    def _on_message(self, message: messages.Message) -> None:
        """Receive a message of the supervisor about a child."""
        child = self._children[message["id"]]
        match message["verb"]:
            case messages.STARTED:
                child.settle(message["pid"])
            case messages.FAILED:
                del self._children[child.number]
                child.settle(0, ProgramNotStarted(message["errno"], cwd=message["cwd"]))
            case messages.EXITED:
                del self._children[child.number]
                child.ended(message["status"])

    def _on_closed(self) -> None:
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
        Context().run(self._check_exit)

    def _check_exit(self) -> None:
        """Check whether the supervisor has exited, and again later until it has."""
        if self._popen.poll() is None:
            asyncio.get_running_loop().call_later(_CHECK, self._check_exit)
        else:
            self._gone.set()


def _start(theirs: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the supervisor with its end of the socket. Raises OSError."""
    command = [sys.executable, "-I", "-S", "-c", _CODE, str(_ROOT), str(theirs.fileno())]
    popen = subprocess.Popen(  # noqa: S603 - our own program
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
    descriptors.restore_limit(popen.pid)
    return popen


def _written(number: int, order: Order) -> bytes:
    """Encode an order. Raises ValueError for text that no system accepts."""
    return messages.packed(
        messages.START,
        id=number,
        argv=[messages.to_text(os.fsencode(argument)) for argument in order.command],
        env={
            messages.to_text(os.fsencode(name)): messages.to_text(os.fsencode(value))
            for name, value in order.env.items()
        },
        cwd=None if order.cwd is None else messages.to_text(os.fsencode(order.cwd)),
    )


def _ignore(status: int) -> None:
    """Do nothing: the start of this program was cancelled."""


log = getLogger("taskgate.upstream")


class Supervisor:
    """The starter of programs for all servers of one gateway. Belongs to one event loop, and does
    not block it."""

    def __init__(self) -> None:
        self._process: SupervisorRun | None = None
        self._runs: list[SupervisorRun] = []
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor; None while it does not run."""
        return None if self._process is None or self._process.is_over else self._process.pid

    async def start(self, order: Order, ended: Callable[[int], None]) -> Child:
        """Start a program in a session of its own. `ended` is called once with its status, maybe
        before this returns.

        The status is as of `process.Child`. Raises ProgramNotStarted. The streams stay open here. A
        program whose start is cancelled is ended.
        """
        return await self._current().start(order, ended)

    async def close(self) -> None:
        """End all programs and the supervisor; nothing can be started any more."""
        self._closed = True
        for process in self._runs:
            await process.close()

    def _current(self) -> SupervisorRun:
        """Return the current run of the supervisor; start one if there is none. Raises
        ProgramNotStarted."""
        if self._closed:
            raise ProgramNotStarted(0)
        if self._process is None or self._process.is_over:
            if self._process is not None:
                log.error("the nursery process ended, and all servers' programs with it; a new one is started")
            try:
                self._process = SupervisorRun()
            except OSError as refused:
                raise ProgramNotStarted(refused.errno or 0) from None
            # A run that is over may still be about to exit; `close` waits for it.
            self._runs = [*(run for run in self._runs if not run.is_gone), self._process]
        return self._process
