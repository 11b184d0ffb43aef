"""Detection of a server's era: `EraFinder`, one per server, shared by all sessions (V-ERA-8).

`initialize` is sent first, because servers of old SDKs end on a method that they do not know. Only
a server that may be modern is asked `server/discover` (docs/decisions/0021). The result is
remembered until a session calls `forget`, when the server stops answering in that era.
`protocol.classify` judges answers; `session_of_any_era` uses the result.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.versions import NEWEST_LEGACY, Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.classify import era_of_discovery, era_of_refusal
from taskgate.protocol.dialects import ModernUpstreamDialect
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.calls import UpstreamContext
from taskgate.upstream.legacy.session import HttpSession

PATIENCE: Final = timedelta(seconds=5)
"""Time that a server has to answer `server/discover`: silence means that it does not know the
method.

A server that took long to answer `initialize` has twice as long as that: it may be a program that
must start once more.
"""


class FoundSession(NamedTuple):
    """The era of a server, with the session that was opened to find it, if it is still useful."""

    era: Era
    session: HttpSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EraProbe:
    """Means of one session to ask: its own context, and `open`, which returns an unopened legacy
    session."""

    upstream_context: UpstreamContext
    open: Callable[[], HttpSession]


@dataclass(slots=True, kw_only=True)
class _Inquiry:
    """One detection that runs, which others wait for.

    `failure` is why it failed, if that holds for all. `was_for_one`: the result holds only for the
    caller that made it.
    """

    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: UpstreamFailed | None = None
    was_for_one: bool = False


class EraFinder:
    """Finds and remembers the era of one server."""

    def __init__(self, modern: ModernUpstreamDialect) -> None:
        self._modern = modern
        self._inquiry: _Inquiry | None = None
        self.era: Era | None = None
        """The era of the server; None while it is unknown."""

    def forget(self, era: Era) -> None:
        """Forget the era, if it is this one: the server stopped answering in it."""
        if self.era is era:
            self.era = None

    async def find(self, asking: EraProbe) -> FoundSession:
        """Return the era. Raises UpstreamFailed if it cannot be found now; the next caller then
        tries again.

        One caller asks for all who wait. An answer such as a refusal may hold for that caller
        alone: then each asks for itself.
        """
        while (era := self.era) is None:
            inquiry = self._inquiry
            if inquiry is None:
                return await self._inquire(asking)
            await inquiry.over.wait()
            if inquiry.failure is not None:
                raise failures.unsent(inquiry.failure)
            if inquiry.was_for_one:
                return await self._ask(asking)
        return FoundSession(era)

    async def _inquire(self, asking: EraProbe) -> FoundSession:
        inquiry = self._inquiry = _Inquiry()
        try:
            found = await self._ask(asking)
            inquiry.was_for_one = self.era is None
            return found
        except UpstreamFailed as failure:
            inquiry.was_for_one = failure.reason == UpstreamReason.REFUSED.value
            inquiry.failure = None if inquiry.was_for_one else failure
            raise
        finally:
            self._inquiry = None
            inquiry.over.set()

    async def _ask(self, asking: EraProbe) -> FoundSession:
        session = asking.open()
        try:
            return await self._judge(session, asking.upstream_context)
        except (UpstreamFailed, asyncio.CancelledError):
            await session.close()
            raise

    async def _judge(self, session: HttpSession, upstream_context: UpstreamContext) -> FoundSession:
        """Send `initialize`, then `server/discover` if the answer leaves the era open."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            server = await session.open()
        except failures.Unwelcome as refusal:
            era = era_of_refusal(refusal.error) or await self._told(upstream_context, 2 * (loop.time() - began))
            if era is Era.LEGACY:
                # It speaks neither era, at least now.
                upstream_context.reception.failed(upstream_context.settings, refusal)
                raise
            return self._settled(era)
        if server.peer.revision is not NEWEST_LEGACY:
            # A server of an older revision may use an SDK that ends on an unknown method.
            return self._settled(Era.LEGACY, session)
        if isinstance(server.peer.capabilities.get("tasks"), dict):
            # The server has tasks of 2025-11-25. With the SDK for Python, the question would open
            # and end a session, which stops the tasks of all other sessions.
            return self._settled(Era.LEGACY, session)
        try:
            era = await self._told(upstream_context, 2 * (loop.time() - began))
        except UpstreamFailed:
            # No evidence now, and the session works: use it, and let the next session ask again.
            return FoundSession(Era.LEGACY, session)
        if era is Era.LEGACY:
            return self._settled(era, session)
        await session.close()
        upstream_context.reception.speaks_both(upstream_context.settings)
        return self._settled(era)

    def _settled(self, era: Era, session: HttpSession | None = None) -> FoundSession:
        self.era = era
        return FoundSession(era, session)

    async def _told(self, upstream_context: UpstreamContext, patience: float) -> Era:
        """Ask `server/discover` and return the era that the answer shows. Raises UpstreamFailed
        without evidence.

        The server has at least `patience` seconds.
        """
        written = self._modern.discover(next(upstream_context.ids), None)
        headers = {**POSTED, **written.headers}
        outgoing = Outgoing(verb="POST", headers=headers, body=written.message.encode())
        try:
            async with asyncio.timeout(max(PATIENCE.total_seconds(), patience)):
                incoming = await upstream_context.transport.send(outgoing)
                try:
                    return await _era_of(incoming)
                finally:
                    await incoming.release(answered=True)
        except (TimeoutError, failures.Unsurvived):
            return Era.LEGACY
        except UpstreamFailed as failure:
            if failure.reason in _ANSWERS:
                return Era.LEGACY
            raise


async def _era_of(incoming: Incoming) -> Era:
    if failures.tells_nothing(incoming.status):
        raise failures.refused(incoming.status)
    async for message in incoming.messages():
        era = era_of_discovery(message)
        if era is not None:
            return era
    return Era.LEGACY


_ANSWERS: Final = frozenset({UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value})
"""Reasons of failures to read an answer: a server that does not know the method may answer
anything."""
