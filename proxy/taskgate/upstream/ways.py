"""How messages get to one server and back: the transport that its settings ask for, with what it is made from.

What must not live here: what a transport does.
"""

from collections.abc import Callable
from typing import NamedTuple

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Transport
from taskgate.upstream.duplex.base import Line, Lines, Wish
from taskgate.upstream.duplex.transport import DuplexTransport
from taskgate.upstream.settings import Kind, UpstreamObserver, UpstreamSettings
from taskgate.upstream.sse.lines import SseLines
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.stdio.pool import StdioLines
from taskgate.upstream.stdio.settings import StdioSettings
from taskgate.upstream.stdio.starting import Program
from taskgate.upstream.wire.transport import HttpTransport


def _nobody_knows() -> bool | None:
    return None


class Way(NamedTuple):
    """The way to one server. `asks_whose` tells that it has to know of what is sent whose it is.

    `up` tells what is known of the server without asking it.
    """

    transport: Transport
    asks_whose: bool = False
    up: Callable[[], bool | None] = _nobody_knows


def way_to(settings: UpstreamSettings, observer: UpstreamObserver, nurse: Nurse) -> Way:
    """The way to the server of these settings; programs are started by `nurse`. Raises TlsFileRefused."""
    if settings.stdio is not None:
        return _to_program(settings, settings.stdio, observer, nurse)
    if settings.transport is Kind.SSE:
        return Way(DuplexTransport(SseLines(settings, observer.retried), is_stateless=False))
    return Way(HttpTransport(settings, observer.retried))


def _to_program(settings: UpstreamSettings, stdio: StdioSettings, observer: UpstreamObserver, nurse: Nurse) -> Way:
    program = Program(
        name=settings.name,
        settings=stdio,
        limit=settings.max_result,
        connect=settings.connect,
        restarted=lambda cause: observer.restarted(cause.value),
        running=observer.programs,
    )
    lines = RememberedLines(StdioLines(program, nurse), observer.sought)
    return Way(DuplexTransport(lines), asks_whose=True, up=lambda: lines.up)


class RememberedLines:
    """The lines of `inner`, and whether there was one when one was last wished for; see Lines. `told` hears of news."""

    def __init__(self, inner: Lines, told: Callable[[bool], None]) -> None:
        self._inner = inner
        self._told = told
        self.up: bool | None = None
        """Whether the server is thought to be up; None where nobody knows yet."""

    async def take(self, wish: Wish) -> Line:
        """See Lines."""
        try:
            line = await self._inner.take(wish)
        except UpstreamFailed as failure:
            # What was waited for in vain may be there.
            if failure.reason == UpstreamReason.UNREACHABLE.value:
                self._note(False)
            raise
        self._note(True)
        return line

    def give_back(self, line: Line) -> None:
        """See Lines."""
        self._inner.give_back(line)

    async def close(self) -> None:
        """See Lines."""
        await self._inner.close()

    def _note(self, up: bool) -> None:
        if self.up is not up:
            self.up = up
            self._told(up)
