"""A scripted server over message channels of this process, for unit tests of the transport over them.

    program = ScriptedChannels()
    transport = ChannelTransport(program)
    ...                                            # a session calls the tool `slow`
    line, asked = await program.asked("tools/call")
    line.answer(asked, {"content": []})

Channels are shared by context and by what was declared, as the seam wants it; a probe has its own.
"""

import asyncio
import json
from typing import Any

from helpers.server.channels import Channel, ChannelScript
from helpers.server.script import Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import ChannelListener, ChannelRefusal, ChannelRequest


class ScriptedChannel(Channel):
    """One channel; `heard` is what was sent on it, `outgoing` how."""

    def __init__(self, program: "ScriptedChannels", *, acknowledges: bool = False) -> None:
        super().__init__()
        self.acknowledges = acknowledges
        self.outgoing: list[Outgoing] = []
        self.holders = 0
        self.is_paused = False
        self.is_lost = False
        self.was_dropped = False
        self.excused = 0
        """Bytes of what it said that were answers."""
        self.taken_back = 0
        """How many messages were given up before they were taken."""
        self.status: int | UpstreamFailed = 202
        """How messages are taken from now on."""
        self.taking: asyncio.Event | None = program.holds
        """What the taking of a message waits for."""
        self.ears: ChannelListener | None = None
        self._program = program
        self._unheard: list[bytes] = []
        self._ending: UpstreamFailed | None = None

    # As the transport knows it; see MessageChannel.

    def listen(self, ears: ChannelListener) -> None:
        assert self.ears is None, "a line is listened to once"
        self.ears = ears
        self._let_hear()

    async def send(self, outgoing: Outgoing) -> ChannelRefusal | None:
        if self.is_lost or self._ending is not None:
            raise UpstreamFailed(UpstreamReason.CLOSED, "The line is gone", dispatched=False)
        if outgoing.call is not None:
            outgoing.call.sent = True
        self.outgoing.append(outgoing)
        if self.status == 202:
            message = json.loads(outgoing.body or b"null")
            self.heard.append(message)
            self._program.receive(self, message)
        if self.taking is not None:
            try:
                await self.taking.wait()
            except asyncio.CancelledError:
                self.taken_back += 1
                raise
        if isinstance(self.status, UpstreamFailed):
            raise self.status
        return None if self.status == 202 else ChannelRefusal(self.status)

    def pause(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume(self) -> None:
        assert self.is_paused
        self.is_paused = False
        self._let_hear()

    def answered(self, size: int) -> None:
        self.excused += size

    def drop(self) -> None:
        self.was_dropped = True
        asyncio.get_running_loop().call_soon(self.exit, "The line was dropped")

    # As the test does.

    def say(self, *messages: Any) -> None:
        for message in messages:
            written = message if isinstance(message, bytes) else json.dumps(message).encode()
            if self._program.limit is not None and len(written) > self._program.limit:
                self.exit("The server's answer is too large", "too_large")
            self._unheard.append(written)
        self._let_hear()

    def exit(self, text: str = "The server's process exited with status 3", reason: str = "closed") -> None:
        """Be no more, once everything was heard."""
        if self._ending is None:
            self._ending = UpstreamFailed(UpstreamReason(reason), text, dispatched=True)
            self._program.forget(self)
            self._let_hear()

    def _let_hear(self) -> None:
        while self.ears is not None and not self.is_lost and not self.is_paused:
            if self._unheard:
                self.ears.on_message(self._unheard.pop(0))
            elif self._ending is not None:
                self.is_lost = True
                self.ears.on_closed(self._ending)
            else:
                break


class ScriptedChannels(ChannelScript):
    """The server, a ChannelProvider; `lines` are all it ever had, `wishes` for what they were acquired."""

    def __init__(self, era: Era = "legacy", *, shares: bool = True, acknowledges: bool = False, **script: Any) -> None:
        super().__init__(era, **script)
        self.shares = shares
        self.acknowledges = acknowledges
        self.lines: list[ScriptedChannel] = []
        self.wishes: list[ChannelRequest] = []
        self.taking: asyncio.Event | None = None
        """What it takes to have a line."""
        self.holds: asyncio.Event | None = None
        """What the taking of a message waits for on new lines."""
        self.refuses: Exception | None = None
        """Why there is no line."""
        self.limit: int | None = None
        """Bytes of the largest message that can be heard."""
        self.pool = False
        """Whether all share one channel."""
        self._shared: dict[Any, ScriptedChannel] = {}

    # As the transport knows it; see ChannelProvider.

    async def acquire(self, wish: ChannelRequest) -> ScriptedChannel:
        self.wishes.append(wish)
        if self.taking is not None:
            await self.taking.wait()
        if self.refuses is not None:
            raise self.refuses
        key = None if self.pool else (wish.context, wish.declared)
        line = self._shared.get(key) if self.shares and not wish.probes else None
        if line is None:
            if wish.outgoing.only_listens:
                raise failures.unreachable()
            line = ScriptedChannel(self, acknowledges=self.acknowledges)
            self.lines.append(line)
            self._shared.setdefault(key, line)
        line.holders += 1
        return line

    def release(self, line: ScriptedChannel) -> None:
        line.holders -= 1
        assert line.holders >= 0, "a line is given back once for each time it was taken"
        if not self.shares and not line.holders:
            line.drop()

    async def close(self) -> None:
        self.refuses = failures.let_go(dispatched=False)
        for line in self.lines:
            line.is_paused = False
            line.exit("The lines were closed")
        await self.stop_replies()

    def forget(self, line: ScriptedChannel) -> None:
        self._shared = {key: each for key, each in self._shared.items() if each is not line}
