"""The subscriptions to resources at servers: `ResourceSubscriptions`.

Several `subscriptions/listen` streams of one shared session may want the same resource. `join` adds
a stream, `part` removes it. The first stream sends `resources/subscribe` to the server. After the
last one `resources/unsubscribe` follows, unless the server surely has no subscription.
`Subscriptions` calls both.

A subscription takes a permit of the server, as `resources/subscribe` of a legacy host does. Its end
takes none: it follows the end of a stream, for which no host waits.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial

from taskgate.admission.callers import principal_of
from taskgate.auth.context import AuthContext
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.edits import dump
from taskgate.lifecycle.task_listener import NOBODY
from taskgate.protocol.messages import Params
from taskgate.protocol.vocabulary import RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.sessions.session_pool import SharedSession
from taskgate.system.background import Background
from taskgate.upstream.calls import UpstreamCall


class _Interest:
    """One resource of one session.

    - `streams`: how many streams want it.
    - `has_agreed`: the server accepted the subscription.
    - `may_be_subscribed`: the server may have the subscription. That is also so if the request
      failed on its way.
    - `lock`: held while a request about the resource is sent, so that they reach the server in order.
    """

    __slots__ = ("has_agreed", "lock", "may_be_subscribed", "streams")

    def __init__(self) -> None:
        self.streams = 0
        self.has_agreed = False
        self.may_be_subscribed = False
        self.lock = asyncio.Lock()


class ResourceSubscriptions:
    """The subscriptions at servers, by shared session and URI."""

    def __init__(self) -> None:
        self._interests: defaultdict[tuple[SharedSession, str], _Interest] = defaultdict(_Interest)
        self._background = Background()

    async def join(self, session: SharedSession, uri: str, caller: AuthContext) -> bool:
        """Add a stream, subscribe if it is the first, and return whether the server agreed.

        If it returns True, `part` must follow. Otherwise, or if it raises, the stream is not added.
        Raises UpstreamFailed, and QueueFull without a permit.
        """
        interest = self._interests[session, uri]
        interest.streams += 1
        try:
            async with interest.lock:
                if not interest.has_agreed:
                    await self._subscribe(session, uri, caller, interest)
        except BaseException:
            self.part(session, uri)
            raise
        if not interest.has_agreed:
            self.part(session, uri)
            return False
        return True

    def part(self, session: SharedSession, uri: str) -> None:
        """Remove a stream. After the last, the subscription at the server ends in the background."""
        interest = self._interests[session, uri]
        interest.streams -= 1
        if not interest.streams:
            self._background.run(partial(self._unsubscribe, session, uri, interest))

    async def close(self) -> None:
        """Cancel the remaining requests: the sessions close now, and their subscriptions with them."""
        await self._background.close()

    async def _subscribe(self, session: SharedSession, uri: str, caller: AuthContext, interest: _Interest) -> None:
        """Subscribe at the server. Raises UpstreamFailed, and QueueFull without a permit."""
        permit = session.mount.bulkhead.acquire(caller.subject, caller)
        try:
            if not permit.is_granted:
                await permit.wait_briefly()
            # The request may reach the server even if it fails here.
            interest.may_be_subscribed = True
            call = UpstreamCall(RESOURCES_SUBSCRIBE, _uri_params(uri), principal=principal_of(caller))
            response = await session.upstream.call(call, NOBODY)
            interest.has_agreed = interest.may_be_subscribed = response.error is None
        finally:
            permit.release()

    async def _unsubscribe(self, session: SharedSession, uri: str, interest: _Interest) -> None:
        """Unsubscribe, unless another stream joined meanwhile."""
        with session:
            async with interest.lock:
                if interest.may_be_subscribed and not interest.streams:
                    interest.has_agreed = interest.may_be_subscribed = False
                    with suppress(UpstreamFailed):
                        # As the session's current caller: the token of the first subscriber may
                        # have expired.
                        await session.upstream.call(UpstreamCall(RESOURCES_UNSUBSCRIBE, _uri_params(uri)), NOBODY)
        if not interest.streams and self._interests.get((session, uri)) is interest:
            del self._interests[session, uri]


def _uri_params(uri: str) -> Params:
    return Params(dump({"uri": uri}))
