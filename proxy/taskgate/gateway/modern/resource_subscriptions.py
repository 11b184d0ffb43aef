"""The subscriptions to resources at servers: `ResourceSubscriptions`.

Several `subscriptions/listen` streams of one shared session may want the same resource. The first
sends `resources/subscribe`, and after the last `resources/unsubscribe` follows. It is also sent if
the outcome of the subscription is unknown. `Subscriptions` calls `join` and `part`.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial

from taskgate.admission.callers import principal_of
from taskgate.auth.context import AuthContext
from taskgate.errors import UpstreamFailed
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.jsontext.edits import dump
from taskgate.lifecycle.hearing import NOBODY
from taskgate.protocol.messages import Params
from taskgate.protocol.vocabulary import RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.system.background import Background


class _Interest:
    """A resource: how many streams want it, and what its server knows. One request at a time is
    sent.
    """

    __slots__ = ("has_agreed", "in_turn", "may_tell", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        self.has_agreed = False
        self.may_tell = False
        self.in_turn = asyncio.Lock()


class ResourceSubscriptions:
    """The subscriptions at servers, by shared session and URI."""

    def __init__(self) -> None:
        self._interests: defaultdict[tuple[SharedSession, str], _Interest] = defaultdict(_Interest)
        self._background = Background()

    async def join(self, line: SharedSession, uri: str, caller: AuthContext) -> bool:
        """Subscribe, and return whether the server agreed. Only then `part` must follow.

        Raises UpstreamFailed.
        """
        interest = self._interests[line, uri]
        interest.wanted += 1
        try:
            async with interest.in_turn:
                if not interest.has_agreed:
                    # The request may reach the server even if it fails here.
                    interest.may_tell = True
                    response = await line.upstream.relay(
                        RESOURCES_SUBSCRIBE, _named(uri), listener=NOBODY, principal=principal_of(caller)
                    )
                    interest.has_agreed = interest.may_tell = response.error is None
        except BaseException:
            self.part(line, uri)
            raise
        if not interest.has_agreed:
            self.part(line, uri)
            return False
        return True

    def part(self, line: SharedSession, uri: str) -> None:
        """Drop one stream's interest. After the last, the server is unsubscribed in the background."""
        interest = self._interests[line, uri]
        interest.wanted -= 1
        if not interest.wanted:
            self._background.run(partial(self._give_up, line, uri, interest))

    async def close(self) -> None:
        """Cancel the remaining requests; sessions with servers end."""
        await self._background.close()

    async def _give_up(self, line: SharedSession, uri: str, interest: _Interest) -> None:
        with line:
            async with interest.in_turn:
                if interest.may_tell and not interest.wanted:
                    interest.has_agreed = interest.may_tell = False
                    with suppress(UpstreamFailed):
                        # As the session's current caller: the token of the first subscriber may
                        # have expired.
                        await line.upstream.relay(RESOURCES_UNSUBSCRIBE, _named(uri), listener=NOBODY)
        if not interest.wanted and self._interests.get((line, uri)) is interest:
            del self._interests[line, uri]


def _named(uri: str) -> Params:
    return Params(dump({"uri": uri}))
