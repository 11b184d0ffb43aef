"""Which era a server speaks: found out once for all sessions with it, and again when it stops working (V-ERA-8).

`initialize` goes first, for servers of old revisions end on a method that they do not know; only one that could be of
the stateless era is asked `server/discover` (decisions 18a). What must not live here: what an answer tells
(`dialects.evidence`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.versions import NEWEST_LEGACY, Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.evidence import era_of_discovery, era_of_refusal
from taskgate.protocol.stateless_server import StatelessServerDialect
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.calls import Means
from taskgate.upstream.legacy.session import HttpSession

PATIENCE: Final = timedelta(seconds=5)
"""How long a server may think about `server/discover`: one that says nothing does not know it.

One that took long to welcome us is given twice as long as that: it may be a program that has to start once more.
"""


class Found(NamedTuple):
    """How a server is spoken to, with the session that was opened to find it out, where that is still of use."""

    era: Era
    session: HttpSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How one session asks: `means` are its own, and `open` makes a session of the initialize era, not yet opened."""

    means: Means
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

    def __init__(self, modern: StatelessServerDialect) -> None:
        self._modern = modern
        self._inquiry: _Inquiry | None = None
        self.era: Era | None = None
        """How it is spoken to; None where nobody knows."""

    def forget(self, era: Era) -> None:
        """It is not spoken to like that any more."""
        if self.era is era:
            self.era = None

    async def find(self, asking: Asking) -> Found:
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
        return Found(era)

    async def _inquire(self, asking: Asking) -> Found:
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

    async def _ask(self, asking: Asking) -> Found:
        session = asking.open()
        try:
            return await self._judge(session, asking.means)
        except (UpstreamFailed, asyncio.CancelledError):
            await session.close()
            raise

    async def _judge(self, session: HttpSession, means: Means) -> Found:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            server = await session.open()
        except failures.Unwelcome as refusal:
            era = era_of_refusal(refusal.error) or await self._told(means, 2 * (loop.time() - began))
            if era is Era.INITIALIZE:
                # It speaks neither, at least now.
                means.reception.failed(means.settings, refusal)
                raise
            return self._settled(era)
        if server.peer.revision is not NEWEST_LEGACY:
            # Of an older revision, it may be of a library that ends on a method it does not know.
            return self._settled(Era.INITIALIZE, session)
        if isinstance(server.peer.capabilities.get("tasks"), dict):
            # Tasks of that revision. The question would begin and end a session at the SDK for Python, which stops the
            # tasks of all others.
            return self._settled(Era.INITIALIZE, session)
        try:
            era = await self._told(means, 2 * (loop.time() - began))
        except UpstreamFailed:
            # It tells nothing now, and the session stands: the next one asks again.
            return Found(Era.INITIALIZE, session)
        if era is Era.INITIALIZE:
            return self._settled(era, session)
        await session.close()
        means.reception.speaks_both(means.settings)
        return self._settled(era)

    def _settled(self, era: Era, session: HttpSession | None = None) -> Found:
        self.era = era
        return Found(era, session)

    async def _told(self, means: Means, patience: float) -> Era:
        """What its answer to `server/discover` tells. Raises UpstreamFailed where there is none that tells anything.

        It has at least `patience` seconds for it.
        """
        written = self._modern.discover(next(means.ids), None)
        headers = {**POSTED, **written.headers}
        outgoing = Outgoing(verb="POST", headers=headers, body=written.message.encode())
        try:
            async with asyncio.timeout(max(PATIENCE.total_seconds(), patience)):
                incoming = await means.transport.send(outgoing)
                try:
                    return await _era_of(incoming)
                finally:
                    await incoming.release(answered=True)
        except (TimeoutError, failures.Unsurvived):
            return Era.INITIALIZE
        except UpstreamFailed as failure:
            if failure.reason in _ANSWERS:
                return Era.INITIALIZE
            raise


async def _era_of(incoming: Incoming) -> Era:
    if failures.tells_nothing(incoming.status):
        raise failures.refused(incoming.status)
    async for message in incoming.messages():
        era = era_of_discovery(message)
        if era is not None:
            return era
    return Era.INITIALIZE


_ANSWERS: Final = frozenset({UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value})
"""What failed is to read an answer: that of a server that has none to the question."""
