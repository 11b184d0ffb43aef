"""Requests about a server's task: `FollowUps` sends `tasks/get`, `tasks/update` and `tasks/cancel`.

Each passes an open circuit, since it follows something begun, and is reported under its own method.
`FollowedTask` decides when to poll (`look`) and to send answers (`bring`), `ServerTasks` when to
cancel (`end`).
"""

from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import EncodedRequest
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.patience import briefly

FOR_GOOD: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Failures that a retry would meet again; others may be temporary."""


class FollowUps:
    """Sends requests about tasks for one session. `of` is the call that became the task; its
    principal is used.

    Each method raises UpstreamFailed.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._host = host
        self._clock = clock

    async def look(self, of: Call, task: str) -> Response:
        """Poll the task: return the answer to `tasks/get`."""
        call = self._call(of)
        return await self._ask(TASKS_GET, call, self._upstream_context.dialect.get_task(call.id, task, self._host))

    async def bring(self, of: Call, task: str, answers: RawJson) -> Response:
        """Send answers to its questions: return the answer to `tasks/update`."""
        call = self._call(of)
        return await self._ask(
            TASKS_UPDATE, call, self._upstream_context.dialect.update_task(call.id, task, answers, self._host)
        )

    async def end(self, of: Call, task: str) -> Response:
        """Cancel the task: return the answer to `tasks/cancel`."""
        call = self._call(of)
        return await self._ask(
            TASKS_CANCEL, call, self._upstream_context.dialect.cancel_task(call.id, task, self._host)
        )

    def _call(self, of: Call) -> Call:
        return Call(
            next(self._upstream_context.ids),
            None,
            briefly(self._upstream_context.settings.first_byte),
            principal=of.principal,
        )

    async def _ask(self, method: str, call: Call, written: EncodedRequest) -> Response:
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
