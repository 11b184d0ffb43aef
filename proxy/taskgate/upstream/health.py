"""Whether a server is well: asked again and again in the background, in a session of the gateway's own.

A server is well that answers, whatever it answers: it is asked as the gateway, and who the gateway is may matter to it.
What counts as a failure is what counts for its circuit (`guarded`), and that no whole answer came in time. What must
not live here: what follows from it. What holds: there is never more than one check at a time, and a check that could
not be sent for want of credentials says nothing.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from itertools import count
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.vocabulary import PING
from taskgate.upstream.base import Incoming, Outgoing, Transport, UpstreamSession
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener
from taskgate.upstream.guarded import watched
from taskgate.upstream.pauses import share
from taskgate.upstream.principal import Principal
from taskgate.upstream.settings import HealthSettings, UpstreamObserver

log = getLogger("taskgate.upstream")

_SPREAD: Final = 0.2
"""The share of the interval between two checks that differs from one to the next: a tenth less, or a tenth more."""
_BROKEN: Final = frozenset({UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value})
GATEWAY: Final = Principal(context="gateway")
"""For whom a server is asked whether it is well."""
QUIET: Final = UpstreamObserver(
    answered=lambda method, seconds, error: None,
    session_lost=lambda: None,
    stream_opened=lambda kind: None,
    stream_ended=lambda kind: None,
)
"""Checks have a count of their own, and are in no other."""


class HealthProbe:
    """The transport that checks are sent by: remembers what the last of them says of the server."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._under_way = 0
        self._sent = self._failed = False

    @property
    def failed(self) -> bool:
        """Whether the server failed a request since `forget`."""
        return self._failed

    @property
    def asked(self) -> bool:
        """Whether the server was asked for anything since `forget`, or has yet to answer what it was asked before."""
        return self._sent or self._under_way > 0

    def forget(self) -> None:
        """Another check begins."""
        self._sent = self._failed = False

    async def send(self, outgoing: Outgoing) -> Incoming:
        """See Transport."""
        outgoing = outgoing._replace(checks=True)
        if outgoing.only_listens or outgoing.follows:
            return await self._inner.send(outgoing)
        self._sent = True
        self._under_way += 1
        return await watched(self._inner, outgoing, self._tell)

    async def close(self) -> None:
        """Nothing: the connections are not the checks'."""

    def _tell(self, ok: bool | None) -> None:
        self._under_way -= 1
        if ok is False:
            self._failed = True


class ProbeResult(NamedTuple):
    """What a check found. `silent` tells of a bad one that nothing came in time."""

    good: bool
    silent: bool = False


class Checks:
    """The checks of one server, by sessions that `new_session` makes, which send through `sentinel`.

    `found` hears of every check that says something, after `up` was brought in line with it.
    """

    def __init__(
        self,
        health: HealthSettings,
        name: str,
        *,
        sentinel: HealthProbe,
        new_session: Callable[[], UpstreamSession],
        found: Callable[[ProbeResult], None],
    ) -> None:
        self._health = health
        self._name = name
        self._sentinel = sentinel
        self._new_session = new_session
        self._found = found
        self._session = new_session()
        self._in_a_row = 0
        self._was_good = False
        self._round: asyncio.Task[None] | None = None
        self.up: bool | None = None
        """Whether the server is thought to be up; None where nobody knows yet."""

    def begin(self) -> None:
        """Check it from now on, the first time at once. A second time does nothing."""
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._go_round(), context=Context())

    async def close(self) -> None:
        """Check it no more, and end the session."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait((self._round,))
        await self._session.close()

    async def _go_round(self) -> None:
        loop, interval = asyncio.get_running_loop(), self._health.interval.total_seconds()
        for turn in count():
            # From begin to begin, a tenth less or more: checks of many servers do not stay in step.
            due = loop.time() + interval * (1 - 1.5 * _SPREAD + 2 * _SPREAD * share(self._name, turn))
            try:
                finding = await self._check()
            except Exception:
                log.exception("unexpected error in a health check of a server", extra={"upstream": self._name})
                finding = None
            if finding is not None:
                self._note(finding)
            await asyncio.sleep(due - loop.time())

    async def _check(self) -> ProbeResult | None:
        sentinel = self._sentinel
        sentinel.forget()
        try:
            async with asyncio.timeout(self._health.timeout.total_seconds()):
                await self._ask()
        except TimeoutError:
            return ProbeResult(False, silent=not sentinel.failed) if sentinel.asked else None
        except UpstreamFailed as failure:
            if not sentinel.asked or failure.reason == UpstreamReason.INTERNAL.value:
                return None
            silent = failure.reason == UpstreamReason.TIMEOUT.value
            return ProbeResult(not (sentinel.failed or failure.reason in _BROKEN), silent)
        return ProbeResult(not sentinel.failed)

    async def _ask(self) -> None:
        if self._health.method == PING and self._session.era is Era.MODERN:
            # That era has no ping; its sessions are nothing to a server, and a new one asks who it is.
            await self._session.close()
            self._session = self._new_session()
            await self._session.open()
            return
        await self._session.relay(self._health.method, None, listener=DEAF)

    def _note(self, finding: ProbeResult) -> None:
        good = finding.good
        self._in_a_row = self._in_a_row + 1 if good is self._was_good else 1
        self._was_good = good
        if self._in_a_row >= (self._health.healthy_after if good else self._health.unhealthy_after):
            self.up = good
        self._found(finding)


class _Deaf(UnsavedCallListener):
    """Hears nothing, and answers nothing; see CallListener."""

    passes_rounds: Final = False

    def on_notification(self, notification: Notification) -> None:
        """See CallListener."""

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener."""
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener."""

    def clog(self) -> None:
        """See CallListener."""

    def met(self, server: Server) -> None:
        """See SessionCallListener."""


DEAF: Final = _Deaf()
"""Who hears what a server says to a check."""
