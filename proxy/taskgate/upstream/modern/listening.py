"""Notifications of a modern server to one session: `SubscriptionListener`, one stream at a time.

The stream is open as long as the session wants list changes or resource updates. When that changes,
a new `SubscriptionStream` replaces it, and the old one stays until the new one is open.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import ServerSubscription
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.lasting import MAX_URIS, Lasting
from taskgate.upstream.modern.listen_stream import SubscriptionStream

STREAM_PATIENCE: Final = 0.1
"""Seconds that the first call waits for the stream; notifications before it is open are lost."""


class SubscriptionListener:
    """The subscriptions of one session.

    `hear` is called with every notification. `resumed` is called when a stream was lost and is open
    again, since some may have been missed. The subscribed resources are those of `lasting`.
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
        # The list changes that are wanted.
        self._kinds = ServerSubscription()
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
            tools=_tells(said, "tools"),
            prompts=_tells(said, "prompts"),
            resources=_tells(said, "resources"),
            filters=self._filters(said),
        )
        if kinds != self._kinds or self._newest is None or self._newest.is_over:
            self._kinds = kinds
            self._change()
        if self._newest is not None:
            await self._newest.known(STREAM_PATIENCE)

    @property
    def granted(self) -> frozenset[str]:
        """The extension members that the server grants on the open streams."""
        # During a replacement two streams are open, and both deliver.
        return frozenset[str]().union(*(stream.filters for stream in self._streams))

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
        if await self._tells_of(uri, within):
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

    async def _tells_of(self, uri: str, within: float) -> bool:
        """Whether the newest stream reports the resource, once that is known."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        stream = None
        # Another subscription may replace the stream meanwhile.
        while self._newest is not None and stream is not self._newest:
            stream = self._newest
            await stream.known(until - loop.time())
        return stream is not None and stream.tells_of(uri)

    def _change(self) -> None:
        """Open a stream for what is wanted now."""
        wants = replace(self._kinds, uris=tuple(self._uris))
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

    def _stop_all_but(self, stays: Callable[[SubscriptionStream], bool]) -> None:
        for stream in tuple(self._streams):
            if not stays(stream):
                stream.stop()


def _tells(capabilities: dict[str, Any], name: str) -> bool:
    declared = capabilities.get(name)
    return isinstance(declared, dict) and declared.get("listChanged") is True
