"""The subscription to task changes of other processes: `ChangeSubscriber`, which adds them to its
ChangeFeed.

It has one pub/sub connection. A message has ids, revisions and holders, and nothing else (T25). The
store adds its own changes directly, so the process ignores its own messages: their *mark* begins
with its `origin`. If a change got no answer, only its message shows that it happened, so that one
is not ignored (`expect_message`). Messages may be missing after each new connection: then the feed
forgets all positions, and every waiter loads its record again.
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
from taskgate.system.background import cancel_and_wait
from taskgate.system.log_throttle import ThrottledLog

_PING_AFTER: Final = 1.5
"""Seconds without a message before a PING, and before its answer counts as missing."""

_AGAIN: Final = 0.5
"""Seconds before the next attempt to connect."""

PATIENCE: Final = timedelta(seconds=15)
"""The longest wait for changes of one task; then the watcher loads it again, because a message may
be lost.
"""

log = logging.getLogger("taskgate.stores")


class PubSub(Protocol):
    """The part of the library's PubSub that is used here."""

    async def subscribe(self, *channels: Any) -> None: ...

    async def get_message(self, *, timeout: float | None) -> dict[str, Any] | None: ...

    async def ping(self) -> Any: ...

    async def aclose(self) -> None: ...


class ChangeSubscriber:
    """A listener on the running loop, from its creation until it is closed.

    `on_refused` is called if the server is up but denies the subscription. `wait_until_usable`
    waits until the server accepts commands.
    """

    def __init__(
        self,
        open_pubsub: Callable[[], PubSub],
        channel: str,
        *,
        origin: str,
        on_refused: Callable[[BaseException], None],
        wait_until_usable: Callable[[], Awaitable[None]],
    ) -> None:
        self._origin = f"{origin}-"
        self._numbers = count(1)
        self._feed = ChangeFeed()
        self._open = open_pubsub
        self._channel = channel
        self._on_refused = on_refused
        self._wait_until_usable = wait_until_usable
        self._unknown_outcomes: set[str] = set()
        self._is_subscribed = asyncio.Event()
        self._unreadable_log = ThrottledLog(
            log, "An unreadable change message was ignored: find the program that publishes on the gateways' channel"
        )
        self._failure_log = ThrottledLog(log, "The subscription to task changes failed and is renewed")
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def wait_until_subscribed(self, *, timeout: timedelta) -> bool:
        """Wait for the subscription, at most `timeout`; whether it is active."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_subscribed.wait(), timeout.total_seconds())
        return self._is_subscribed.is_set()

    def add(self, id: TaskId, revision: int, *, owner: str, holder: str | None) -> None:
        """Add a possible change of a task to a revision, or GONE; owner and holder as in messages."""
        self._feed.add(id, revision, owner=_digested(owner), holder=holder)

    async def changed(
        self, watch: Watch, *, timeout: timedelta, look: Callable[[TaskId], Awaitable[int]]
    ) -> ChangeBatch:
        """Wait as `TaskStore.changed` promises; `look` loads the current revision of a task."""
        if isinstance(watch, TaskWatch):
            return await self._feed.changed_remotely(watch, timeout=min(timeout, PATIENCE), look=look)
        if isinstance(watch, OwnerWatch):
            watch = OwnerWatch(owner=_digested(rows.owner_name(watch.owner)), since=watch.since)
        return await self._feed.changed(watch, timeout=timeout, look=_no_look)

    def mark(self) -> str:
        """A unique mark for one change by this process."""
        return f"{self._origin}{next(self._numbers)}"

    def expect_message(self, mark: str) -> None:
        """Do not ignore the message of an own change whose outcome is unknown."""
        self._unknown_outcomes.add(mark)

    async def close(self) -> None:
        """Stop listening and end every wait."""
        self._feed.close()
        await cancel_and_wait(self._task)

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_over(self._open())
            except (RedisError, OSError, TimeoutError) as error:
                if self._is_subscribed.is_set():
                    log.warning(
                        "No task changes are received until the task store is connected again (%s)",
                        type(error).__name__,
                    )
                if isinstance(error, NoPermissionError):
                    self._on_refused(error)
            except Exception as error:  # after any failure, subscribe again
                self._failure_log.emit(error=error)
            self._is_subscribed.clear()
            await asyncio.sleep(_AGAIN)

    async def _listen_over(self, pubsub: PubSub) -> None:
        try:
            await self._receive(pubsub)
        finally:
            with contextlib.suppress(Exception):
                await pubsub.aclose()

    async def _receive(self, pubsub: PubSub) -> None:
        """Receive until the connection breaks, or does not answer a PING."""
        async with asyncio.timeout(2 * _PING_AFTER):
            await pubsub.subscribe(self._channel)
        pinged = False
        while True:
            message = await pubsub.get_message(timeout=_PING_AFTER)
            if message is None:
                if pinged:
                    raise TimeoutError
                pinged = True
                await pubsub.ping()
                continue
            pinged = False
            if message["type"] == "message":
                self._add_message(message["data"])
            elif message["type"] == "subscribe":
                await self._on_subscribed()

    async def _on_subscribed(self) -> None:
        # Also after the library reconnected by itself.
        self._unknown_outcomes.clear()
        # The waiters load their records at once, which must not fail because the server still
        # counts as down.
        await self._wait_until_usable()
        self._feed.reset()
        self._is_subscribed.set()

    def _add_message(self, message: bytes) -> None:
        try:
            mark, number, owner, holder, id = map(unpack_text, message.split(b"\0", 4))
            revision = int(number)
        except (ValueError, StoreUnavailable):
            self._unreadable_log.emit()
            return
        if mark.startswith(self._origin) and mark not in self._unknown_outcomes:
            return
        self._unknown_outcomes.discard(mark)
        self.add(id, revision, owner=owner, holder=holder or None)


def _digested(owner: str) -> OwnerKey:
    """The digest of an owner in the form that the feed compares: messages have no more of an owner."""
    return OwnerKey(owner, "")


def _no_look(_: TaskId) -> int:
    """For watches of owners and holders, which look at no task."""
    return GONE
