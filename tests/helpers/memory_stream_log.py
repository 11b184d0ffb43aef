"""A StreamLog in this process: several processes of a test find the same streams in it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import StreamLog, StreamSegment


@dataclass(slots=True, kw_only=True)
class Stream:
    """What is there of one."""

    holder: str
    about: bytes
    events: list[tuple[int, bytes]] = field(default_factory=list)
    over: bool = False


class MemoryStreamLog:
    """See StreamLog. `alive` are the processes that live; while it is `down`, nothing is done; `calls` counts."""

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.streams: dict[tuple[str, str], Stream] = {}
        self.down = False
        self.calls: list[str] = []
        self._news = asyncio.Event()

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        """See StreamLog."""
        await self._reach("begin")
        self.streams[session, stream] = Stream(holder=holder, about=about)

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        """See StreamLog."""
        await self._reach("append")
        found = self.streams.get((session, stream))
        if found is not None:
            newest = found.events[-1][0] if found.events else 0
            found.events += [(number, event) for number, event in events if number > newest]
            found.over |= over
            self._news.set()

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """See StreamLog."""
        await self._reach("read")
        found = self.streams.get((session, stream))
        if found is None:
            return None
        return StreamSegment(
            about=found.about,
            events=[each for each in found.events if each[0] > after],
            newest=found.events[-1][0] if found.events else 0,
            over=found.over,
            whole=True,
            holder=found.holder,
            lives=found.holder in self.alive,
        )

    async def wait_for_events(self, session: str, stream: str, *, timeout: timedelta) -> None:
        """See StreamLog: any stream that has grown will do."""
        await self._reach("grown")
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def forget(self, session: str, stream: str) -> None:
        """See StreamLog."""
        self.streams.pop((session, stream), None)

    async def _reach(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(0)
        if self.down:
            raise StoreUnavailable("The task store is not available")


_: type[StreamLog] = MemoryStreamLog
