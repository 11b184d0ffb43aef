"""Time limits of the requests of one modern session: `RequestWaits`.

Each request of `ModernSession` and `Discovery` waits inside `bounded`, which reports it to the
observer.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from taskgate.clock import Clock
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.context import ModernUpstreamContext


class RequestWaits:
    """The requests of one session that wait for answers."""

    def __init__(self, upstream_context: ModernUpstreamContext, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._clock = clock
        self._calls: set[Call] = set()

    async def bounded(
        self, call: Call, method: str, request: Coroutine[Any, Any, Response], judge: Callable[[Response], None]
    ) -> Response:
        """Await `request`, which sends the call, within the call's timeouts, and return its
        response.

        The outcome is reported to the observer in any case. `judge` is called with an error
        response, and raises UpstreamFailed if it is invalid. A timeout, or `let_go`, cancels
        `request` and raises UpstreamFailed.
        """
        clock, began = self._clock, self._clock.elapsed()
        error: str | None = "cancelled"
        self._calls.add(call)
        call.begin(self._upstream_context.alarms, self._upstream_context.running)
        try:
            with call.wait:
                response = await request
            error = None
            if response.error is not None:
                error = str(response.error_code)
                if not call.is_task:
                    # A server that made a task did act, whatever the response is.
                    judge(response)
        except ScopeCancelled:
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
        """End all waits with a failure: the session is closed."""
        for call in tuple(self._calls):
            call.was_let_go = True
            call.wake()
