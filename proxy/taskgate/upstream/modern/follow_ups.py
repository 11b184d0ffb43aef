"""Requests about a task that a server made of a call: to show it, to take what it asked for, to end it.

Each belongs to what the server has begun, and is told to the observer under its own method. What must not live here:
when they are made (`followed`), and what an answer means.
"""

from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.envelope import Response
from taskgate.protocol.modern_server import WrittenRequest
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.patience import briefly

FOR_GOOD: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Failures that the same request would come to again; any other may be of the moment."""


class FollowUps:
    """Makes them for one session. `of` is the call that the task was made of, and whose they are.

    Each raises UpstreamFailed.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._host = host
        self._clock = clock

    async def look(self, of: Call, task: str) -> Response:
        """What the server says of it."""
        call = self._call(of)
        return await self._ask(TASKS_GET, call, self._upstream_context.dialect.look(call.id, task, self._host))

    async def bring(self, of: Call, task: str, answers: RawJson) -> Response:
        """What it says to the answers."""
        call = self._call(of)
        return await self._ask(
            TASKS_UPDATE, call, self._upstream_context.dialect.update(call.id, task, answers, self._host)
        )

    async def end(self, of: Call, task: str) -> Response:
        """What it says to the wish that it ends."""
        call = self._call(of)
        return await self._ask(TASKS_CANCEL, call, self._upstream_context.dialect.cancel(call.id, task, self._host))

    def _call(self, of: Call) -> Call:
        return Call(
            next(self._upstream_context.ids),
            None,
            briefly(self._upstream_context.settings.first_byte),
            principal=of.principal,
        )

    async def _ask(self, method: str, call: Call, written: WrittenRequest) -> Response:
        clock, began = self._clock, self._clock.elapsed()
        error: str | None = "cancelled"
        try:
            response = await self._exchanges.follow_up(call, written)
            error = None if response.error is None else str(response.error_code)
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            self._upstream_context.observer.answered(method, clock.elapsed() - began, error)
        return response
