"""Start of a program: `Starter` has the supervisor start it, and returns its channel.

The supervisor is a separate process that starts all programs; `Supervisor` passes orders to it. A
start makes three pipes for the standard streams and connects the channel to the gateway's ends.
Then it sends the supervisor an `Order` with the other ends. It ends with an open channel, or with a
log line and UpstreamFailed. `StdioChannels` decides when to start, in the task of a `ProgramSlot`.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from logging import getLogger
from typing import Final

from taskgate.system.redaction import SecretRedaction
from taskgate.upstream.notification_limits import LeftOut
from taskgate.upstream.settings import StdioSettings
from taskgate.upstream.stdio import exits
from taskgate.upstream.stdio.channel import ChannelObserver, ProgramChannel
from taskgate.upstream.stdio.exits import Cause
from taskgate.upstream.stdio.stderr_log import ProgramLog
from taskgate.upstream.stdio.supervisor_client import Order, ProgramNotStarted, Supervisor, environment

log = getLogger("taskgate.upstream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of one configured server, with the observers of its runs.

    `name` is the name of the server. `limit` is the number of bytes of one message. `connect` is
    the timeout of a start.

    `StdioChannels` calls the two callbacks, which must not raise or wait. `restarted` is called at
    each start after a program that ended by itself, with the cause of that end. `running` is called
    with the number of programs whenever it changes.
    """

    name: str
    settings: StdioSettings
    limit: int
    connect: timedelta
    restarted: Callable[[Cause], None] = lambda cause: None
    running: Callable[[int], None] = lambda count: None


class Starter:
    """The starter of the programs of one server. All of them share one log of invalid output and
    one of dropped notifications, whose rates are limited."""

    def __init__(self, program: Program, supervisor: Supervisor) -> None:
        self._program = program
        self._supervisor = supervisor
        self._output_log = ProgramLog(program.name, SecretRedaction(program.settings.env.values()))
        self._left_out = LeftOut(program.name)

    async def start(self, observer: ChannelObserver) -> ProgramChannel:
        """Start a program and return its channel, whose observer is `observer`.

        Raises UpstreamFailed if the supervisor cannot start it, or not in time; then the pipes are
        closed. The caller must not cancel this, since that would leave the pipes open. So it runs
        in the task of a `ProgramSlot`, which is never cancelled.
        """
        channel = ProgramChannel(self._program.limit, self._output_log, observer, self._left_out)
        try:
            await self._start(channel)
        except ProgramNotStarted as refused:
            failure = exits.not_started(refused.errno, cwd=refused.cwd)
            error = os.strerror(refused.errno) if refused.errno else "unknown"
            if refused.cwd:
                # The directory is at fault, not the program.
                error = f"cwd {self._program.settings.cwd}: {error}"
        except TimeoutError:
            failure, error = exits.not_in_time(), "timeout"
        else:
            log.info("a server's program was started", extra=self._of(channel))
            return channel
        log.warning("a server's program could not be started", extra=self._of(channel) | {"error": error})
        await channel.discard()
        raise failure.copy()

    async def _start(self, channel: ProgramChannel) -> None:
        """Connect the channel to a new program. Raises ProgramNotStarted, TimeoutError.

        The channel closes the gateway's ends of the pipes (`ours_…`); the program's ends are closed
        here, since the supervisor got copies.
        """
        settings = self._program.settings
        (stdin, ours_in), (ours_out, stdout), (ours_err, stderr) = _pipes()
        try:
            try:
                await channel.connect(ours_in, ours_out, ours_err)
            except OSError as refused:
                raise ProgramNotStarted(refused.errno or 0) from None
            env = environment(settings.env, os.environ)
            order = Order(settings.command, env, settings.cwd, (stdin, stdout, stderr))
            async with asyncio.timeout(self._program.connect.total_seconds()):
                channel.begin(await self._supervisor.start(order, channel.exited))
        finally:
            for stream in (stdin, stdout, stderr):
                os.close(stream)

    def _of(self, channel: ProgramChannel) -> dict[str, object]:
        """Return the fields of a log line about the program of this channel."""
        # Only the number of arguments: they may be secret.
        command = self._program.settings.command
        return {
            "upstream": self._program.name,
            "program": command[0],
            "arguments": len(command) - 1,
        } | ({"pid": channel.pid} if channel.pid else {})


def _pipes() -> list[tuple[int, int]]:
    """Return three pipes, each as reading and writing end. Raises ProgramNotStarted, and leaves
    none open."""
    made: list[tuple[int, int]] = []
    try:
        while len(made) < _STREAMS:
            made.append(os.pipe())
    except OSError as refused:
        for end in (end for pipe in made for end in pipe):
            os.close(end)
        raise ProgramNotStarted(refused.errno or 0) from None
    return made


_STREAMS: Final = 3
