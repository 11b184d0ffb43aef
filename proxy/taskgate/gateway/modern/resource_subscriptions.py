"""Subscriptions to resources at servers, each made once for all streams of a line that want to hear of the resource.

What must not live here: who wants to hear of what (`subscriptions`). What holds: a server that may have a subscription
which nobody wants any more is told to end it.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial

from taskgate.admission.callers import principal
from taskgate.auth.context import AuthContext
from taskgate.errors import UpstreamFailed
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.jsontext.edits import dump
from taskgate.lifecycle.hearing import NOBODY
from taskgate.protocol.params import Params
from taskgate.protocol.vocabulary import RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.system.background import Background


class _Interest:
    """How many want to hear of a resource, and what its server knows of that; it is told one thing at a time."""

    __slots__ = ("has_agreed", "in_turn", "may_tell", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        self.has_agreed = False
        self.may_tell = False
        self.in_turn = asyncio.Lock()


class ResourceSubscriptions:
    """What is subscribed to at servers, by line and URI."""

    def __init__(self) -> None:
        self._interests: defaultdict[tuple[SharedSession, str], _Interest] = defaultdict(_Interest)
        self._background = Background()

    async def join(self, line: SharedSession, uri: str, caller: AuthContext) -> bool:
        """Whether the server tells of the resource from now on; to be paired with `part` if so, and only then.

        Raises UpstreamFailed.
        """
        interest = self._interests[line, uri]
        interest.wanted += 1
        try:
            async with interest.in_turn:
                if not interest.has_agreed:
                    # Whatever becomes of the request, it may arrive.
                    interest.may_tell = True
                    response = await line.upstream.relay(
                        RESOURCES_SUBSCRIBE, _named(uri), listener=NOBODY, principal=principal(caller)
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
        """One stream of the line does not want to hear of it any more; after the last, the server is told so."""
        interest = self._interests[line, uri]
        interest.wanted -= 1
        if not interest.wanted:
            self._background.run(partial(self._give_up, line, uri, interest))

    async def close(self) -> None:
        """Give up what is still to be told: sessions with servers end."""
        await self._background.close()

    async def _give_up(self, line: SharedSession, uri: str, interest: _Interest) -> None:
        with line:
            async with interest.in_turn:
                if interest.may_tell and not interest.wanted:
                    interest.has_agreed = interest.may_tell = False
                    with suppress(UpstreamFailed):
                        # For whom the line is by now: the token of who began may be good no more.
                        await line.upstream.relay(RESOURCES_UNSUBSCRIBE, _named(uri), listener=NOBODY)
        if not interest.wanted and self._interests.get((line, uri)) is interest:
            del self._interests[line, uri]


def _named(uri: str) -> Params:
    return Params(dump({"uri": uri}))
