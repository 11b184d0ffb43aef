"""Detection of a server's eras: `EraFinder`, one per server, shared by all sessions (V-ERA-8).

`initialize` is sent first, because servers of old SDKs end on a method that they do not know. Only
a server that may be modern is asked `server/discover` (docs/decisions/0021). The result is
remembered until a session calls `forget`, when the server stops answering in one of its eras.
`session` calls `find` before its first call. `protocol.classify` judges the answers.

At a server of both eras each session uses that of its host (docs/decisions/0126). A legacy host can be
asked in the middle of a call, which the modern era does not have. A server that makes tasks itself is
used in the era of its tasks.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.versions import MODERN, NEWEST_LEGACY, Era, Eras, Peer, Revision, era_of
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.classify import discovers_tasks, era_of_discovery, era_of_refusal
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.context import EraReason, UpstreamContext
from taskgate.upstream.legacy.session import LegacySession

PATIENCE: Final = timedelta(seconds=5)
"""Time that a server has to answer `server/discover`: silence means that it does not know the
method.

A server that took long to answer `initialize` has twice as long as that: it may be a program that
must start once more.
"""


def preferred_era(host: Peer | None) -> Era:
    """Return the era to use with a server of both: that of the host, without one the newest."""
    return Era.MODERN if host is None else era_of(host.revision)


def choose_era(eras: Eras, host: Peer | None) -> Era:
    """Return the era to use with a server of these eras: the preferred one, if it is among them.

    `eras` is not empty.
    """
    preferred = preferred_era(host)
    return preferred if preferred in eras else eras[0]


class _Discovered(NamedTuple):
    """Result of `server/discover`. `makes_tasks`: the server has the tasks extension."""

    era: Era
    makes_tasks: bool = False


class FoundSession(NamedTuple):
    """The eras of a server, with the legacy session that was opened to find them.

    None if that session was closed, or another caller has it.
    """

    eras: Eras
    session: LegacySession | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EraProbe:
    """Means to ask on behalf of one session: its context, and `open`, which makes a legacy session.

    The session is not opened yet.
    """

    upstream_context: UpstreamContext
    open: Callable[[], LegacySession]


@dataclass(slots=True, kw_only=True)
class _Inquiry:
    """One detection under way, which other callers wait for.

    `over` is set at its end. `failure` is why it failed, if that holds for all. `was_for_one`: its
    result or failure holds only for the caller that made it, and the eras are still unknown.
    """

    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: UpstreamFailed | None = None
    was_for_one: bool = False


class EraFinder:
    """The finder of one server's eras, which it remembers."""

    def __init__(self, modern: ModernUpstream) -> None:
        self._modern = modern
        self._inquiry: _Inquiry | None = None
        self.eras: Eras = ()
        """The eras of the server; none while they are unknown."""

    def forget(self, era: Era) -> None:
        """Forget the eras, if `era` is one of them: the server stopped answering in it."""
        if era in self.eras:
            self.eras = ()

    async def find(self, probe: EraProbe) -> FoundSession:
        """Return the eras. Raises UpstreamFailed if they cannot be found now; the next caller then
        tries again.

        Of several callers at a time, the first one asks the server, and the others wait. A refusal
        may hold for the first one alone: then each of the others asks for itself.
        """
        while not self.eras:
            inquiry = self._inquiry
            if inquiry is None:
                return await self._probe_for_all(probe)
            await inquiry.over.wait()
            if inquiry.failure is not None:
                raise failures.unsent(inquiry.failure.copy())
            if inquiry.was_for_one:
                return await self._probe(probe)
        return FoundSession(self.eras)

    async def _probe_for_all(self, probe: EraProbe) -> FoundSession:
        """Ask the server, while other callers wait for the result, and tell them of it."""
        inquiry = self._inquiry = _Inquiry()
        try:
            found = await self._probe(probe)
            # The eras stay unknown if the server gave no evidence.
            inquiry.was_for_one = not self.eras
            return found
        except UpstreamFailed as failure:
            inquiry.was_for_one = failure.reason == UpstreamReason.REFUSED.value
            # A copy: the error refers to this frame.
            inquiry.failure = None if inquiry.was_for_one else failure.copy()
            raise
        finally:
            self._inquiry = None
            inquiry.over.set()

    async def _probe(self, probe: EraProbe) -> FoundSession:
        """Ask the server in a new legacy session, which is closed if that fails."""
        session = probe.open()
        try:
            return await self._find_eras(session, probe.upstream_context)
        except (UpstreamFailed, asyncio.CancelledError):
            await session.close()
            raise

    async def _find_eras(self, session: LegacySession, upstream_context: UpstreamContext) -> FoundSession:
        """Send `initialize`, then `server/discover` if the answer leaves the eras open."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            server = await session.open()
        except failures.Unwelcome as refusal:
            era = era_of_refusal(refusal.error)
            if era is None:
                era = (await self._ask_discover(upstream_context, 2 * (loop.time() - began))).era
            if era is Era.LEGACY:
                # It speaks neither era, at least now.
                upstream_context.reception.failed(upstream_context.settings, refusal)
                raise
            return self._remember(upstream_context, (era,), EraReason.DISCOVERED, revision=MODERN[-1])
        revision = server.peer.revision
        if revision is not NEWEST_LEGACY:
            # A server of an older revision may use an SDK that ends on an unknown method.
            return self._remember(upstream_context, (Era.LEGACY,), EraReason.OLDER_REVISION, session, revision)
        if isinstance(server.peer.capabilities.get("tasks"), dict):
            # The server has tasks of 2025-11-25. With the SDK for Python, the question would open
            # and end a session, which stops the tasks of all other sessions.
            return self._remember(upstream_context, (Era.LEGACY,), EraReason.OWN_TASKS, session)
        try:
            discovered = await self._ask_discover(upstream_context, 2 * (loop.time() - began))
        except UpstreamFailed:
            # No evidence now, and the session works: use it, and let the next session ask again.
            eras = (Era.LEGACY,)
            upstream_context.reception.decided(upstream_context.settings, eras, EraReason.UNKNOWN, revision)
            return FoundSession(eras, session)
        if discovered.era is Era.LEGACY:
            return self._remember(upstream_context, (Era.LEGACY,), EraReason.NOT_DISCOVERED, session)
        if discovered.makes_tasks:
            # They outlive the gateway, and a legacy session has none: some tools only run as tasks.
            await session.close()
            return self._remember(upstream_context, (Era.MODERN,), EraReason.OWN_TASKS, revision=MODERN[-1])
        return self._remember(upstream_context, (Era.LEGACY, Era.MODERN), EraReason.DISCOVERED, session)

    def _remember(
        self,
        upstream_context: UpstreamContext,
        eras: Eras,
        reason: EraReason,
        session: LegacySession | None = None,
        revision: Revision = NEWEST_LEGACY,
    ) -> FoundSession:
        """Make the eras known to all sessions, and return them. `revision` is that of the answer."""
        self.eras = eras
        upstream_context.reception.decided(upstream_context.settings, eras, reason, revision)
        return FoundSession(eras, session)

    async def _ask_discover(self, upstream_context: UpstreamContext, patience: float) -> _Discovered:
        """Send `server/discover`, and return what the answer shows.

        No answer within `patience` seconds, and at least PATIENCE, means the legacy era. Raises
        UpstreamFailed for a failure that shows neither era.
        """
        written = self._modern.discover(next(upstream_context.ids), None)
        headers = {**POSTED, **written.headers}
        outgoing = Outgoing(verb="POST", headers=headers, body=written.message.encode())
        try:
            async with asyncio.timeout(max(PATIENCE.total_seconds(), patience)):
                incoming = await upstream_context.transport.send(outgoing)
                try:
                    return await _read_discovery(incoming, upstream_context.settings.has_credentials)
                finally:
                    incoming.release(answered=True)
        except (TimeoutError, failures.Unsurvived):
            return _Discovered(Era.LEGACY)
        except UpstreamFailed as failure:
            if failure.reason in _ANSWERS:
                return _Discovered(Era.LEGACY)
            raise


async def _read_discovery(incoming: Incoming, has_credentials: bool) -> _Discovered:
    """Return what an answer to `server/discover` shows: the legacy era if no message shows one.

    Raises UpstreamFailed for an HTTP status that says nothing about the server.
    """
    if failures.tells_nothing(incoming.status):
        pause = incoming.retry_after
        raise failures.refused(incoming.status, has_credentials=has_credentials, retry_after=pause)
    async for message in incoming.messages():
        era = era_of_discovery(message)
        if era is not None:
            return _Discovered(era, era is Era.MODERN and discovers_tasks(message))
    return _Discovered(Era.LEGACY)


_ANSWERS: Final = frozenset({UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value})
"""Reasons of failures to read an answer. They mean the legacy era: a server that does not know the
method may answer anything."""
