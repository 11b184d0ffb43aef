"""The concurrency limit for calls of modern hosts: `Turns`.

`Calls` and `Promotion` use it. A call needs a permit of its server (`Permit`, from the mount's
bulkhead), or joins an equal call that runs (`RequestCoalescer`). Each `tools/call` is counted once
by its disposition:

- `direct`: sent, and no task;
- `inline`: allowed to become a task, and ended within its grace;
- `task`: became a task, or was answered with one;
- `rejected`: refused.
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
    """The permits and the counts of calls."""

    def __init__(self, *, joining: RequestCoalescer, event_sink: EventSink) -> None:
        self._joining = joining
        self._event_sink = event_sink

    def acquire(self, outbound: OutboundCall) -> Permit:
        """Return a permit, granted or queued, which must be released. Raises QueueFull, counted."""
        try:
            return outbound.session.mount.bulkhead.acquire(outbound.session.owner.context, outbound.caller)
        except QueueFull:
            self.count_refused(outbound)
            raise

    async def wait(self, outbound: OutboundCall, permit: Permit, waited: float = 0.0) -> None:
        """Wait until the permit is granted, at most the brief time that a host waits for an answer.

        `waited` seconds of that time have passed. Raises QueueFull, counted; the permit is released
        then.
        """
        try:
            await permit.wait_briefly(waited)
        except QueueFull:
            self.count_refused(outbound)
            raise

    def send(self, outbound: OutboundCall, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Send the request, or join an equal one that runs, and return the response.

        It waits for a permit first, and releases it at the end. A joined call runs as long as at
        least one request waits for it. Raises QueueFull, and what `OutboundCall.send` raises.
        """
        return (
            self._send_with_permit(outbound, listener)
            if outbound.coalesce_key is None
            else self._send_coalesced(outbound, outbound.coalesce_key, listener)
        )

    def count_sent(self, outbound: OutboundCall) -> None:
        """Count a call that is about to be sent. One that may become a task is counted later."""
        if outbound.tool is not None and not outbound.may_become_task:
            self.count(outbound, "direct")

    def count_refused(self, outbound: OutboundCall) -> None:
        """Count a refused call."""
        if outbound.tool is not None:
            self.count(outbound, "rejected")

    def count(self, outbound: OutboundCall, disposition: str) -> None:
        """Count a call by its disposition; only a tool that the server lists is named."""
        tool, upstream = outbound.tool, outbound.session.upstream
        is_listed = tool is not None and upstream.listed(tool) is not None
        self._event_sink.emit(ToolCalled(outbound.session.mount.name, tool if is_listed else None, disposition))

    async def _send_coalesced(
        self, outbound: OutboundCall, coalesce_key: CoalesceKey, listener: CallListener
    ) -> Response:
        response = await self._joining.run(coalesce_key, partial(self._send_shared, outbound, listener))
        assert isinstance(response, Response), "a sent call yields a response, not a task"
        return response

    async def _send_shared(self, outbound: OutboundCall, listener: CallListener) -> Response:
        # The first request may end before the call, so the call keeps the session busy itself.
        with outbound.session:
            return await self._send_with_permit(outbound, listener)

    async def _send_with_permit(self, outbound: OutboundCall, listener: CallListener) -> Response:
        permit = self.acquire(outbound)
        if not permit.is_granted:
            await self.wait(outbound, permit)
        try:
            self.count_sent(outbound)
            return await outbound.send(listener)
        finally:
            permit.release()
