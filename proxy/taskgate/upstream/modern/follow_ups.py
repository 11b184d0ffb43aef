"""Requests about a server's task: `FollowUps` sends `tasks/get`, `tasks/update` and `tasks/cancel`.

A modern server may turn a call into a task of its own; these requests look after that task. The
circuit breaker lets them through even while it refuses new calls, since they follow something
begun. The observer gets method, duration and outcome of each. `FollowedTask` decides when to poll
(`look`) and to send answers (`bring`), `ServerTasks` when to cancel (`end`). These two also repeat
a request that failed.
"""

from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import EncodedRequest
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from taskgate.upstream.calls import Call, briefly
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.modern.exchanges import ModernExchanges

FOR_GOOD: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Reasons of permanent failures, which a retry would meet again; others may be temporary. Callers
of `FollowUps` stop at these."""


class FollowUps:
    """The sender of requests about the server's tasks, for one session.

    In each method `of` is the call that became the task; the request is sent for its principal.
    `task` is the id of the task at the server. Each returns the server's answer, which may be a
    JSON-RPC error, and raises UpstreamFailed without one.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, exchanges: ModernExchanges, host: Peer | None, clock: Clock
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._host = host
        self._clock = clock

    async def look(self, of: Call, task: str) -> Response:
        """Poll the task by `tasks/get`: the answer has its state, and its result once it ended."""
        call = self._call(of)
        return await self._ask(TASKS_GET, call, self._upstream_context.dialect.get_task(call.id, task, self._host))

    async def bring(self, of: Call, task: str, answers: RawJson) -> Response:
        """Send answers to questions of the task (`input_required`) by `tasks/update`."""
        call = self._call(of)
        return await self._ask(
            TASKS_UPDATE, call, self._upstream_context.dialect.update_task(call.id, task, answers, self._host)
        )

    async def end(self, of: Call, task: str) -> Response:
        """Cancel the task by `tasks/cancel`."""
        call = self._call(of)
        return await self._ask(
            TASKS_CANCEL, call, self._upstream_context.dialect.cancel_task(call.id, task, self._host)
        )

    def _call(self, of: Call) -> Call:
        """Return a call with an id of its own for one request, without a listener.

        Its timers never start: `ModernExchanges.ask` bounds the wait for the answer's
        head, and the silence in its body, by `first_byte`.
        """
        return Call(
            next(self._upstream_context.ids),
            None,
            briefly(self._upstream_context.settings.first_byte),
            principal=of.principal,
        )

    async def _ask(self, method: str, call: Call, written: EncodedRequest) -> Response:
        """Send the request, and report it to the observer once, on every path."""
        clock, began = self._clock, self._clock.elapsed()
        # Stays if the wait is cancelled, or something unexpected is raised.
        error: str | None = "cancelled"
        try:
            patience = self._upstream_context.settings.first_byte
            response = await self._exchanges.ask(call, written, patience, follows=True)
            error = None if response.error is None else str(response.error_code)
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            self._upstream_context.observer.answered(method, clock.elapsed() - began, error)
        return response
