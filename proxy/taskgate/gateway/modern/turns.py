"""The concurrency limit for calls of modern hosts: `Turns`.

`Calls` and `Promotion` use it. A call needs a permit of its server (`Ticket`, from the mount's
bulkhead), or joins an equal call that runs (`RequestCoalescer`). Calls are counted here by their
disposition: `direct`, `inline`, `task` or `rejected`.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer
from taskgate.admission.concurrency import Permit
from taskgate.errors import QueueFull
from taskgate.gateway.modern.outbound_calls import OutboundCall
from taskgate.protocol.messages import Response
from taskgate.telemetry.events import EventSink, ToolCalled
from taskgate.upstream.call_listener import CallListener


class Turns:
    """The permits of calls. It counts each call that is refused, or is sent and becomes no task."""

    def __init__(self, *, joining: RequestCoalescer, event_sink: EventSink) -> None:
        self._joining = joining
        self._event_sink = event_sink

    def ask(self, outbound: OutboundCall) -> Permit:
        """Request a permit, which must be closed. Raises QueueFull."""
        try:
            return outbound.line.mount.bulkhead.acquire(outbound.line.owner.context, outbound.caller)
        except QueueFull:
            self.refused(outbound)
            raise

    async def wait(self, outbound: OutboundCall, ticket: Permit, waited: float = 0.0) -> None:
        """Wait briefly for the permit of a call that has waited for `waited` seconds. Raises
        QueueFull.
        """
        try:
            await ticket.wait_briefly(waited)
        except QueueFull:
            self.refused(outbound)
            raise

    def send(self, outbound: OutboundCall, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Send the request, or join an equal one that runs, and return the response.

        A joined call runs as long as at least one request waits for it. Raises QueueFull, and what
        `OutboundCall.send` raises.
        """
        return (
            self._in_turn(outbound, listener)
            if outbound.asking is None
            else self._once(outbound, outbound.asking, listener)
        )

    def left(self, outbound: OutboundCall) -> None:
        """Count a call that is sent. One that may become a task is counted later."""
        if outbound.tool is not None and not outbound.may_become_task:
            self.count(outbound, "direct")

    def refused(self, outbound: OutboundCall) -> None:
        """Count a refused call."""
        if outbound.tool is not None:
            self.count(outbound, "rejected")

    def count(self, outbound: OutboundCall, disposition: str) -> None:
        """Count a call by its disposition."""
        tool, upstream = outbound.tool, outbound.line.upstream
        is_listed = tool is not None and upstream.listed(tool) is not None
        self._event_sink.emit(ToolCalled(outbound.line.mount.name, tool if is_listed else None, disposition))

    async def _once(self, outbound: OutboundCall, asking: CoalesceKey, listener: CallListener) -> Response:
        response = await self._joining.run(asking, partial(self._shared, outbound, listener))
        assert isinstance(response, Response), "a sent call yields a response, not a task"
        return response

    async def _shared(self, outbound: OutboundCall, listener: CallListener) -> Response:
        # Requests that join later have sessions of their own.
        with outbound.line:
            return await self._in_turn(outbound, listener)

    async def _in_turn(self, outbound: OutboundCall, listener: CallListener) -> Response:
        ticket = self.ask(outbound)
        if not ticket.is_granted:
            await self.wait(outbound, ticket)
        try:
            self.left(outbound)
            return await outbound.send(listener)
        finally:
            ticket.release()
