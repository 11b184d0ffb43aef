"""Notifications of a modern server: `SubscriptionListener`, and its streams, `SubscriptionStream`.

A stream is one request of `subscriptions/listen`. It opens when it is created, and again after each
loss, after a pause that doubles, until it is stopped or the server refuses it. Servers keep nothing
of a stream (M-SUB-2), so each new one names everything again. `SubscriptionListener` has one stream
for one session, open as long as the session wants list changes or resource updates. When that
changes, a new stream replaces it, and the old one stays until the new one is open. `server_tasks`
has streams for tasks.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, Protocol

from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import (
    LIST_CHANGED,
    CallResponse,
    ServerSubscription,
    SessionNotification,
    SubscriptionGrant,
    TaskNotification,
    declares_changes,
)
from taskgate.system.background import cancel_and_wait
from taskgate.system.offload import LARGE
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.call_streams import hear_aside
from taskgate.upstream.context import MAX_URIS, Lasting, ModernUpstreamContext
from taskgate.upstream.notification_limits import decode_large
from taskgate.upstream.pauses import FOR_NOW, PAUSE_FIRST, PAUSE_MOST, share


class Stands(Protocol):
    """Callback for each time that the stream is open. `again`: it was open before, so that
    notifications may have been missed."""

    def __call__(self, stream: "SubscriptionStream", *, again: bool) -> None: ...


class SubscriptionStream:
    """A stream that is kept open for `wants` until it is stopped or its server refuses it. Invalid
    messages are skipped.

    `hear` is called with each notification of the server, `news` with the id of each of its tasks
    that changed. `stands` is called whenever the server has opened the stream.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        wants: ServerSubscription,
        host: Peer | None,
        *,
        hear: Callable[[Notification], None],
        news: Callable[[str], None] = lambda task: None,
        stands: Stands,
        clock: Clock,
    ) -> None:
        self._upstream_context = upstream_context
        self._wants = wants
        self._host = host
        self._hear = hear
        self._news = news
        self._stands = stands
        self._clock = clock
        # The resources that the server reports; None until the stream was first open.
        self._granted: frozenset[str] | None = None
        self._known = asyncio.Event()
        self._was_refused = self._is_answered = False
        self.is_refused = False
        """Whether the server refused the stream, so that it is not reopened."""
        self.tasks: frozenset[str] = frozenset()
        """The tasks that the server says it reports on the stream."""
        self.filters: frozenset[str] = frozenset()
        """The list changes and extension members that the server grants on it."""
        self.is_heard = False
        """Whether the stream is open now: notifications arrive."""
        # An empty context: the stream serves later callers too.
        self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())

    async def known(self, within: float) -> None:
        """Wait until the server has opened or refused the stream, or the first attempt failed; at
        most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._known.wait()

    def tells_of(self, uri: str) -> bool:
        """Whether it reports changes of that resource, or will once it is open."""
        return not self._task.done() if self._granted is None else uri in self._granted

    @property
    def is_over(self) -> bool:
        """Whether it has ended, stopped or refused, and so is not reopened."""
        return self._task.done()

    def when_over(self, forget: Callable[["SubscriptionStream"], None]) -> None:
        """Call `forget` once, after it was stopped or refused."""
        self._task.add_done_callback(lambda _: forget(self))

    def stop(self) -> None:
        """End it without a wait. A second call does nothing."""
        self._task.cancel()
        self._known.set()

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        self.stop()
        await cancel_and_wait(self._task)

    async def _listen(self) -> None:
        """Open the stream again and again, with pauses, until the server refuses it."""
        pause = PAUSE_FIRST
        for turn in count():
            began = self._clock.elapsed()
            id_ = next(self._upstream_context.ids)
            try:
                if not await self._hold(id_):
                    self.is_refused = True
                    return
            except UpstreamFailed as failure:
                if failure.reason == UpstreamReason.REDIRECT.value:
                    self.is_refused = True
                    return
            finally:
                self.is_heard = False
                self._known.set()
            if self._clock.elapsed() - began > PAUSE_MOST:
                pause = PAUSE_FIRST
            await asyncio.sleep(pause * share(str(id_), turn))
            pause = min(pause * 2, PAUSE_MOST)

    async def _hold(self, id: int) -> bool:
        """Open the stream once and read it to its end; returns whether it may be opened again."""
        written = self._upstream_context.dialect.listen(id, self._wants, self._host)
        outgoing = Outgoing(
            verb="POST",
            headers={**POSTED, **written.headers},
            body=written.message.encode(),
            first_byte=self._upstream_context.settings.first_byte,
            only_listens=True,
        )
        incoming = await self._upstream_context.transport.send(outgoing)
        try:
            if incoming.status in FOR_NOW:
                return True
            if incoming.status != 200 or not incoming.streams:
                return False
            await self._hear_all(incoming, id)
            return not self._was_refused
        finally:
            incoming.release()

    async def _hear_all(self, incoming: Incoming, id: int) -> None:
        observer, self._is_answered = self._upstream_context.observer, False
        observer.stream_opened("listen")
        try:
            async for message in incoming.messages():
                await hear_aside(observer, partial(self._hear_message, id), message)
                if self._is_answered:
                    return
        finally:
            observer.stream_ended("listen")

    async def _hear_message(self, id: int, message: bytes) -> None:
        """Handle a message; the response to the request `id` ends the stream."""
        hear = partial(self._upstream_context.dialect.decode, message, self._host)
        match hear() if len(message) <= LARGE else await decode_large(hear):
            case SubscriptionGrant(uris, tasks, filters):
                again, self._granted, self.is_heard = self._granted is not None, uris, True
                self.tasks, self.filters = tasks, filters
                self._known.set()
                self._stands(self, again=again)
            case SessionNotification(notification):
                self._hear(notification)
            case TaskNotification(task):
                self._news(task)
            case CallResponse(response) if response.id == id:
                # An error after the acknowledgement is the loss of an open stream.
                self._was_refused = response.error is not None and not self.is_heard
                self._is_answered = True


STREAM_PATIENCE: Final = 0.1
"""Seconds that the first call waits for the stream; notifications before it is open are lost."""


class SubscriptionListener:
    """The subscriptions of one session.

    `hear` is called with every notification. `resumed` is called when a stream was lost and is open
    again, since some may have been missed. Then `hear` is told that each list may have changed. The
    subscribed resources are those of `lasting`.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        hear: Callable[[Notification], None],
        resumed: Callable[[], None],
        lasting: Lasting,
        clock: Clock,
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._hear = hear
        self._resumed = resumed
        self._clock = clock
        # The list changes that the server declares, and those that it was asked for all the same.
        self._kinds = ServerSubscription()
        self._added: frozenset[str] = frozenset()
        self._uris = lasting.uris
        self._streams: set[SubscriptionStream] = set()
        self._newest: SubscriptionStream | None = None
        self._closed = False

    async def begin(self, server: ServerDescription) -> None:
        """Listen to the list changes that the server declares, and wait a short time for the
        stream.

        Called after each discovery. A stream that already reports them stays.
        """
        said = server.peer.capabilities
        kinds = ServerSubscription(
            tools=declares_changes(said, "tools"),
            prompts=declares_changes(said, "prompts"),
            resources=declares_changes(said, "resources"),
            filters=self._filters(said),
        )
        if kinds != self._kinds or self._newest is None or self._newest.is_over:
            self._kinds = kinds
            self._change()
        if self._newest is not None:
            await self._newest.known(STREAM_PATIENCE)

    @property
    def granted(self) -> frozenset[str]:
        """The list changes and extension members that the server grants on the open streams."""
        # During a replacement two streams are open, and both deliver.
        return frozenset[str]().union(*(stream.filters for stream in self._streams))

    async def add(self, changes: frozenset[str], within: float) -> frozenset[str]:
        """Listen for list changes that the server does not declare, and return those that it grants.

        Waits up to `within` seconds until that is known. They stay wanted as long as the session,
        unless the server refuses the stream because of them.
        """
        if not changes <= self._added:
            self._added |= changes
            self._change()
        stream = await self._settled(within)
        if stream is not None and stream.is_refused:
            self._added -= changes
            self._change()
        return frozenset() if stream is None else changes & stream.filters

    async def subscribe(self, uri: str, within: float) -> bool:
        """Count a subscription of a resource. False, and not counted, if the server does not report
        it.

        Waits up to `within` seconds until that is known.
        """
        if uri not in self._uris and len(self._uris) >= MAX_URIS:
            return False
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            self._change()
        stream = await self._settled(within)
        if stream is not None and stream.tells_of(uri):
            return True
        self.unsubscribe(uri)
        return False

    def unsubscribe(self, uri: str) -> None:
        """Count a subscription of a resource less; nothing if there is none."""
        times = self._uris.pop(uri, 0)
        if times > 1:
            self._uris[uri] = times - 1
        elif times == 1:
            self._change()

    async def close(self) -> None:
        """Stop, and wait until all streams have ended."""
        self._closed = True
        for stream in tuple(self._streams):
            await stream.close()

    def _filters(self, said: Mapping[str, Any]) -> tuple[str, ...]:
        if self._host is None:
            return ()
        policy, era = self._upstream_context.settings.extensions, era_of(self._host.revision)
        return tuple(sorted(policy.filters(said, era, Era.MODERN)))

    async def _settled(self, within: float) -> SubscriptionStream | None:
        """Return the newest stream, once it is known what the server grants on it; None without one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        stream = None
        # Another subscription may replace the stream meanwhile.
        while self._newest is not None and stream is not self._newest:
            stream = self._newest
            await stream.known(until - loop.time())
        return stream

    def _change(self) -> None:
        """Open a stream for what is wanted now."""
        kinds, added = self._kinds, self._added
        wants = replace(
            kinds,
            tools=kinds.tools or "toolsListChanged" in added,
            prompts=kinds.prompts or "promptsListChanged" in added,
            resources=kinds.resources or "resourcesListChanged" in added,
            uris=tuple(self._uris),
        )
        self._newest = None
        if not wants.is_empty and not self._closed:
            stream = SubscriptionStream(
                self._upstream_context, wants, self._host, hear=self._hear, stands=self._took_over, clock=self._clock
            )
            self._streams.add(stream)
            stream.when_over(self._streams.discard)
            self._newest = stream
        # Open streams stay until the new one is open.
        self._stop_all_but(lambda each: self._newest is not None and (each is self._newest or each.is_heard))

    def _took_over(self, stream: SubscriptionStream, *, again: bool) -> None:
        """Called when a stream is open: the newest one replaces all others."""
        if stream is self._newest:
            self._stop_all_but(lambda each: each is stream)
        if again:
            self._resumed()
            for name, notification in LIST_CHANGED.items():
                if f"{name}ListChanged" in stream.filters:
                    self._hear(notification)

    def _stop_all_but(self, stays: Callable[[SubscriptionStream], bool]) -> None:
        for stream in tuple(self._streams):
            if not stays(stream):
                stream.stop()
