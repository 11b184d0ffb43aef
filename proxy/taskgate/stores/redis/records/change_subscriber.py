"""News of the other processes: one pub/sub connection, whose messages go into a journal of this process.

A message names ids, revisions and holders and no more (T25). What this process did itself it notes when it knows it;
its own messages are left out, but for what it could not know. Whenever the connection is new, messages may be missing:
then everything before counts as forgotten, and whoever waits looks again. What must not live here: what is watched for.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import Any, Final, Protocol

from redis.exceptions import NoPermissionError, RedisError

from taskgate.domain.record import OwnerKey, TaskId
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import ChangeBatch, OwnerWatch, TaskWatch, Watch
from taskgate.stores.change_feed import GONE, ChangeFeed
from taskgate.stores.codec import unpack_text
from taskgate.stores.redis.records import rows
from taskgate.system.log_throttle import ThrottledLog

_QUIET: Final = 1.5
"""Seconds without a message after which the connection is asked whether it still is one, and for its answer."""

_AGAIN: Final = 0.5
"""Seconds before the next attempt to connect."""

PATIENCE: Final = timedelta(seconds=15)
"""How long news of one task are waited for before the watcher is sent to look again: a message is no promise."""

log = logging.getLogger("taskgate.stores")


class PubSub(Protocol):
    """What is used of the library's own."""

    async def subscribe(self, *channels: Any) -> None: ...

    async def get_message(self, *, timeout: float | None) -> dict[str, Any] | None: ...

    async def ping(self) -> Any: ...

    async def aclose(self) -> None: ...


class ChangeSubscriber:
    """Listens from when it is made until it is closed, on the running loop.

    `refused` is told where the server is there and does not let us listen; `usable` waits until it can be asked.
    """

    def __init__(
        self,
        open_pubsub: Callable[[], PubSub],
        channel: str,
        *,
        origin: str,
        refused: Callable[[BaseException], None],
        usable: Callable[[], Awaitable[None]],
    ) -> None:
        self._origin = f"{origin}-"
        self._marks = count(1)
        self._feed = ChangeFeed()
        self._open = open_pubsub
        self._channel = channel
        self._refused = refused
        self._usable = usable
        self._doubtful: set[str] = set()
        self._listens = asyncio.Event()
        self._unread = ThrottledLog(
            log, "News that cannot be read are dropped: somebody else speaks on the gateways' channel"
        )
        self._failed = ThrottledLog(log, "Listening to the news from the task store failed, and is begun anew")
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def listening(self, *, timeout: timedelta) -> bool:
        """Wait until every change is heard of, at most `timeout`; whether that is so."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._listens.wait(), timeout.total_seconds())
        return self._listens.is_set()

    def note(self, id: TaskId, revision: int, *, owner: str, holder: str | None) -> None:
        """A task may be at a revision, or GONE; whose and whose lease it is, or was, as messages have it."""
        self._feed.add(id, revision, owner=_veiled(owner), holder=holder)

    async def changed(
        self, watch: Watch, *, timeout: timedelta, look: Callable[[TaskId], Awaitable[int]]
    ) -> ChangeBatch:
        """What `TaskStore.changed` promises; `look` asks the store what revision a task is at."""
        if isinstance(watch, TaskWatch):
            return await self._feed.changed_remotely(watch, timeout=min(timeout, PATIENCE), look=look)
        if isinstance(watch, OwnerWatch):
            watch = OwnerWatch(owner=_veiled(rows.owner_name(watch.owner)), since=watch.since)
        return await self._feed.changed(watch, timeout=timeout, look=_nowhere)

    def mark(self) -> str:
        """What stands for one change by this process, and for no other."""
        return f"{self._origin}{next(self._marks)}"

    def doubt(self, mark: str) -> None:
        """This process cannot know whether a change of its own was done: its message is to be heard, too."""
        self._doubtful.add(mark)

    async def close(self) -> None:
        """Stop listening and end every wait."""
        self._feed.close()
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear_over(self._open())
            except (RedisError, OSError, TimeoutError) as error:
                if self._listens.is_set():
                    log.warning("No news from the task store until it is connected again (%s)", type(error).__name__)
                if isinstance(error, NoPermissionError):
                    self._refused(error)
            except Exception as error:  # whatever it is, nobody else would listen
                self._failed.emit(error=error)
            self._listens.clear()
            await asyncio.sleep(_AGAIN)

    async def _hear_over(self, pubsub: PubSub) -> None:
        try:
            await self._hear(pubsub)
        finally:
            with contextlib.suppress(Exception):
                await pubsub.aclose()

    async def _hear(self, pubsub: PubSub) -> None:
        """Until the connection breaks, or says nothing though it was asked."""
        async with asyncio.timeout(2 * _QUIET):
            await pubsub.subscribe(self._channel)
        asked = False
        while True:
            message = await pubsub.get_message(timeout=_QUIET)
            if message is None:
                if asked:
                    raise TimeoutError
                asked = True
                await pubsub.ping()
                continue
            asked = False
            if message["type"] == "message":
                self._read(message["data"])
            elif message["type"] == "subscribe":
                await self._begin_anew()

    async def _begin_anew(self) -> None:
        # The library connects again by itself, too.
        self._doubtful.clear()
        # Whoever is woken looks, and would be refused who looks before it is known that the server is there.
        await self._usable()
        self._feed.reset()
        self._listens.set()

    def _read(self, message: bytes) -> None:
        try:
            mark, number, owner, holder, id = map(unpack_text, message.split(b"\0", 4))
            revision = int(number)
        except (ValueError, StoreUnavailable):
            self._unread.emit()
            return
        if mark.startswith(self._origin) and mark not in self._doubtful:
            return
        self._doubtful.discard(mark)
        self.note(id, revision, owner=owner, holder=holder or None)


def _veiled(owner: str) -> OwnerKey:
    return OwnerKey(owner, "")


def _nowhere(_: TaskId) -> int:
    """Of watches that look at no task."""
    return GONE
