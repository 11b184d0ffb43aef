"""What a server says besides its answers: one stream of `subscriptions/listen`, for as long as anything is wanted.

Another one takes its place when more or less is wanted, and the old one is held until the new one stands. What must not
live here: what is heard, and how one stream is held (`listen_stream`).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.modern_server import Listened
from taskgate.upstream.lasting import MAX_URIS, Lasting
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.listen_stream import SubscriptionStream

STREAM_PATIENCE: Final = 0.1
"""Seconds that the first call waits for the stream to stand: what is told before that is lost."""


class SubscriptionListener:
    """The stream of one session. `hear` gets every notification; `resumed` is told when some may have been missed.

    The resources that are listened to are those of `lasting`.
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
        self._kinds = Listened()
        self._uris = lasting.uris
        self._streams: set[SubscriptionStream] = set()
        self._newest: SubscriptionStream | None = None
        self._closed = False

    async def begin(self, server: Server) -> None:
        """Listen to the changes of lists that the server declares, and wait a moment until it is heard.

        A stream that tells of them already goes on.
        """
        said = server.peer.capabilities
        kinds = Listened(
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
        """The members of carried extensions that the server grants, as far as it has said."""
        # One takes the place of another: what either grants is told.
        return frozenset[str]().union(*(stream.filters for stream in self._streams))

    async def subscribe(self, uri: str, within: float) -> bool:
        """Listen to that resource too, once more; whether the server tells of it, as far as it says within seconds."""
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
        """Listen to that resource once less; nothing where nobody does."""
        times = self._uris.pop(uri, 0)
        if times > 1:
            self._uris[uri] = times - 1
        elif times == 1:
            self._change()

    async def close(self) -> None:
        """Stop, and wait until it has stopped."""
        self._closed = True
        for stream in tuple(self._streams):
            await stream.close()

    def _filters(self, said: Mapping[str, Any]) -> tuple[str, ...]:
        if self._host is None:
            return ()
        policy, era = self._upstream_context.settings.extensions, era_of(self._host.revision)
        return tuple(sorted(policy.filters(said, era, Era.MODERN)))

    async def _tells_of(self, uri: str, within: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        stream = None
        # Others may want something else meanwhile, which another stream tells of.
        while self._newest is not None and stream is not self._newest:
            stream = self._newest
            await stream.known(until - loop.time())
        return stream is not None and stream.tells_of(uri)

    def _change(self) -> None:
        """Listen to what is wanted now."""
        wants = replace(self._kinds, uris=tuple(self._uris))
        self._newest = None
        if not wants.is_nothing and not self._closed:
            stream = SubscriptionStream(
                self._upstream_context, wants, self._host, hear=self._hear, stands=self._took_over, clock=self._clock
            )
            self._streams.add(stream)
            stream.when_over(self._streams.discard)
            self._newest = stream
        # What is heard now is heard until the new one is.
        self._stop_all_but(lambda each: self._newest is not None and (each is self._newest or each.is_heard))

    def _took_over(self, stream: SubscriptionStream, *, again: bool) -> None:
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
