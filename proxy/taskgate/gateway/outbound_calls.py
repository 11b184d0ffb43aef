"""A request of a host on its way to its server, `OutboundCall`, and what sends it: `CallSender`.

The handlers of both eras create one `OutboundCall` per request that a server answers. A slow method
needs a permit of the server's concurrency limit (`Permit`, from the mount's bulkhead). A
`tools/call` may join an equal one that runs (`RequestCoalescer`), and is counted once by its
disposition:

- `direct`: sent, and no task;
- `inline`: allowed to become a task, and ended within its grace;
- `task`: became a task, or was answered with one;
- `rejected`: refused.
"""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer
from taskgate.admission.concurrency import Permit
from taskgate.auth.context import AuthContext
from taskgate.domain.record import RequestId
from taskgate.errors import QueueFull
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.sessions.binding import CallSite
from taskgate.streams.exchange import Exchange
from taskgate.telemetry.events import EventSink, ToolCalled
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import UpstreamCall

SLOW_METHODS: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
"""The methods that can be slow, and so need a permit. Modern servers may ask for input before they
answer these (M-MRTR-1)."""


@dataclass(slots=True, kw_only=True, eq=False)
class OutboundCall:
    """One request of a host, and the server session that it is sent on.

    - `params`: as the server gets them; `tool`: the tool of a `tools/call`.
    - `coalesce_key`: the key by which equal calls share one result; None for a call that is sent by
      itself.
    - `may_become_task`: whether the operator's rules and the host allow a task without a request
      for one; always False for legacy hosts.
    - `task_params`: how the server gets the parameters of a call that may become a task; None for a
      call that is relayed in any case.
    - `log_level`, `repeated`: as in `UpstreamCall`.
    """

    exchange: Exchange
    caller: AuthContext
    session: CallSite
    id: RequestId
    method: str
    params: Params | None
    tool: str | None = None
    coalesce_key: CoalesceKey | None = None
    may_become_task: bool = False
    task_params: RawJson | None = None
    log_level: str | None = None
    repeated: Mapping[str, str] | None = None

    def send(self, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Send the request, and return the server's response. Raises what `UpstreamSession.call`
        raises.
        """
        principal = principal_of(self.caller)
        call = UpstreamCall(self.method, self.params, self.tool, principal, self.log_level, self.repeated)
        if self.may_become_task and self.tool is not None and self.task_params is not None:
            # A task reports progress: the server is asked for it though the host gave no token.
            call.params, call.as_task = Params(self.task_params), True
        return self.session.upstream.call(call, listener)


class CallSender:
    """The sender of the calls of this process; `coalescer` finds the equal calls of one."""

    def __init__(self, *, coalescer: RequestCoalescer, event_sink: EventSink) -> None:
        self.coalescer = coalescer
        self._event_sink = event_sink

    def acquire(self, call: OutboundCall) -> Permit:
        """Return a permit, granted or queued, which must be released. Raises QueueFull, counted."""
        session = call.session
        try:
            return session.mount.bulkhead.acquire(session.owner.context, call.caller)
        except QueueFull:
            self.count(call, "rejected")
            raise

    async def wait(self, call: OutboundCall, permit: Permit, waited: float = 0.0) -> None:
        """Wait until the permit is granted, at most the brief time that a host waits for an answer.

        `waited` seconds of that time have passed. Raises QueueFull, counted; the permit is released
        then.
        """
        try:
            await permit.wait_briefly(waited)
        except QueueFull:
            self.count(call, "rejected")
            raise

    async def send(self, call: OutboundCall, listener: CallListener) -> Response:
        """Send the request when it has a permit, and return the response.

        Raises QueueFull, and what `OutboundCall.send` raises.
        """
        permit = self.acquire(call)
        try:
            if not permit.is_granted:
                await self.wait(call, permit)
            if not call.may_become_task:
                self.count(call, "direct")
            return await call.send(listener)
        finally:
            permit.release()

    async def send_joined(self, call: OutboundCall, key: CoalesceKey, listener: CallListener) -> Response:
        """Join an equal call that runs, or `send` this one; return the response.

        The call runs as long as at least one request waits for it. Raises what `send` raises, and
        InvalidParams for an idempotency key of another call.
        """
        response = await self.coalescer.run(key, partial(self._send_shared, call, listener))
        assert isinstance(response, Response), "a sent call yields a response, not a task"
        return response

    def count(self, call: OutboundCall, disposition: str) -> None:
        """Count a `tools/call` by its disposition; only a tool that the server lists is named."""
        if call.tool is not None:
            is_listed = call.session.upstream.listed(call.tool) is not None
            self._event_sink.emit(ToolCalled(call.session.mount.name, call.tool if is_listed else None, disposition))

    async def _send_shared(self, call: OutboundCall, listener: CallListener) -> Response:
        # The first request may end before the call, so the call keeps the session busy itself.
        call.session.acquire()
        try:
            return await self.send(call, listener)
        finally:
            call.session.release()
