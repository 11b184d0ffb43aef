"""The requests of one session that wait: each within its time, told to the observer, and let go when the session ends.

What must not live here: what is asked, and what an answer means.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from taskgate.clock import Clock
from taskgate.errors import UpstreamFailed
from taskgate.protocol.envelope import Response
from taskgate.system.interruption import Interrupted
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.context import ModernUpstreamContext


class RequestWaits:
    """Those of one session."""

    def __init__(self, upstream_context: ModernUpstreamContext, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._clock = clock
        self._calls: set[Call] = set()

    async def bounded(
        self, call: Call, method: str, asked: Coroutine[Any, Any, Response], judge: Callable[[Response], None]
    ) -> Response:
        """What comes of asking within the time that the call has; told to the observer, whatever it is.

        `judge` raises UpstreamFailed for an answer that is none.
        """
        clock, began = self._clock, self._clock.elapsed()
        error: str | None = "cancelled"
        self._calls.add(call)
        call.begin(self._upstream_context.alarms, self._upstream_context.running)
        try:
            with call.wait:
                response = await asked
            error = None if response.error is None else str(response.error_code)
            if not call.is_task:
                # The server did act where it is, whatever came of it.
                judge(response)
        except Interrupted:
            over = failures.let_go if call.was_let_go else failures.too_late
            failure = over(dispatched=call.sent)
            error = failure.reason
            raise failure from None
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            call.stop()
            self._calls.discard(call)
            self._upstream_context.observer.answered(method, clock.elapsed() - began, error)
        return response

    def let_go(self) -> None:
        """Give up all that still wait."""
        for call in tuple(self._calls):
            call.was_let_go = True
            call.wake()
