"""Which era a server speaks: found out once for all sessions with it, and again when it stops working (V-ERA-8).

`initialize` goes first, for servers of old revisions end on a method that they do not know; only one that could be of
the modern era is asked `server/discover` (decisions 18a). What must not live here: what an answer tells
(`protocol.evidence`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.versions import NEWEST_LEGACY, Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.evidence import era_of_discovery, era_of_refusal
from taskgate.protocol.modern_server import ModernServerDialect
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.calls import UpstreamContext
from taskgate.upstream.legacy.session import HttpSession

PATIENCE: Final = timedelta(seconds=5)
"""How long a server may think about `server/discover`: one that says nothing does not know it.

One that took long to welcome us is given twice as long as that: it may be a program that has to start once more.
"""


class FoundSession(NamedTuple):
    """How a server is spoken to, with the session that was opened to find it out, where that is still of use."""

    era: Era
    session: HttpSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EraProbe:
    """How one session asks: `means` are its own, and `open` makes a session of the legacy era, not yet opened."""

    upstream_context: UpstreamContext
    open: Callable[[], HttpSession]


@dataclass(slots=True, kw_only=True)
class _Inquiry:
    """One way to find out, which others wait for.

    `failure` is why it came to nothing, where that holds for all. `was_for_one` tells that what came of it does not.
    """

    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: UpstreamFailed | None = None
    was_for_one: bool = False


class EraFinder:
    """What is known of one server."""

    def __init__(self, modern: ModernServerDialect) -> None:
        self._modern = modern
        self._inquiry: _Inquiry | None = None
        self.era: Era | None = None
        """How it is spoken to; None where nobody knows."""

    def forget(self, era: Era) -> None:
        """It is not spoken to like that any more."""
        if self.era is era:
            self.era = None

    async def find(self, asking: EraProbe) -> FoundSession:
        """How it is spoken to. Raises UpstreamFailed where that cannot be told now; then whoever asks next finds out.

        One asks for all who wait. What it is told may hold for its caller alone, as a refusal does: then they all ask
        for themselves.
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
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            server = await session.open()
        except failures.Unwelcome as refusal:
            era = era_of_refusal(refusal.error) or await self._told(upstream_context, 2 * (loop.time() - began))
            if era is Era.LEGACY:
                # It speaks neither, at least now.
                upstream_context.reception.failed(upstream_context.settings, refusal)
                raise
            return self._settled(era)
        if server.peer.revision is not NEWEST_LEGACY:
            # Of an older revision, it may be of a library that ends on a method it does not know.
            return self._settled(Era.LEGACY, session)
        if isinstance(server.peer.capabilities.get("tasks"), dict):
            # Tasks of that revision. The question would begin and end a session at the SDK for Python, which stops the
            # tasks of all others.
            return self._settled(Era.LEGACY, session)
        try:
            era = await self._told(upstream_context, 2 * (loop.time() - began))
        except UpstreamFailed:
            # It tells nothing now, and the session stands: the next one asks again.
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
        """What its answer to `server/discover` tells. Raises UpstreamFailed where there is none that tells anything.

        It has at least `patience` seconds for it.
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
"""What failed is to read an answer: that of a server that has none to the question."""
