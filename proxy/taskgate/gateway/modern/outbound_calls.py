"""A request of a modern host on its way to its server: `OutboundCall`.

`Calls` creates one per request of a host, with all that its answer depends on. `promotion`, `turns`
and `rounds` read it. It is an immutable value: when something is decided about the call, `Calls`
continues with a changed copy.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey
from taskgate.auth.context import AuthContext
from taskgate.domain.policy import PromotionMode
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.protocol import vocabulary as words
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta
from taskgate.protocol.messages import Response
from taskgate.streams.exchange import Exchange
from taskgate.upstream.call_listener import CallListener

IN_ROUNDS: Final = frozenset({words.TOOLS_CALL, "prompts/get", "resources/read"})
"""The methods whose servers may ask for input before they answer (M-MRTR-1)."""

_NO_BOUND: Final = timedelta(days=36_500)
"""The time limit of a call that is not a task yet: only the server's own limits apply."""


class OutboundCall(NamedTuple):
    """One request, and where it goes.

    - `session`: the upstream session, shared by requests of the caller.
    - `meta`: what the request's `_meta` declares.
    - `sends`: the request as the server gets it. It differs from `request` for a retry that goes to
      a modern server, which gets the input responses and its own state.
    - `may_become_task`: whether the rules and the host allow a task. Then `mode` is the operator's
      rule, and `grace` the time in which a sent call may still be answered without a task.
    - `coalesce_key`: the key by which equal calls share one result; None for a call that is sent by
      itself.
    """

    exchange: Exchange
    caller: AuthContext
    session: SharedSession
    meta: RequestMeta
    request: CallTool | Relay
    sends: CallTool | Relay
    may_become_task: bool = False
    mode: PromotionMode = PromotionMode.SYNC
    grace: timedelta = timedelta()
    coalesce_key: CoalesceKey | None = None

    @property
    def method(self) -> str:
        return words.TOOLS_CALL if isinstance(self.request, CallTool) else self.request.method

    @property
    def tool(self) -> str | None:
        """The tool of a `tools/call`, else None."""
        return self.request.tool if isinstance(self.request, CallTool) else None

    @property
    def may_outlive(self) -> bool:
        """Whether the call may continue after its request was answered: as a task, or held for
        input responses.
        """
        return self.may_become_task or (self.session.may_be_asked and self.method in IN_ROUNDS)

    def with_less_grace(self, seconds: float) -> "OutboundCall":
        """Return the call with the grace that is left after a wait of so many seconds."""
        return self._replace(grace=max(self.grace - timedelta(seconds=seconds), timedelta()))

    def send(self, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Send the request on its session, and return the response. Raises what UpstreamSession
        raises.
        """
        upstream, who, meta = self.session.upstream, principal_of(self.caller), self.meta
        level, repeated = meta.log_level, meta.header_params
        sends = self.sends
        if not isinstance(sends, CallTool):
            return upstream.relay(
                sends.method, sends.params, listener=listener, principal=who, log_level=level, repeated=repeated
            )
        stored = sends.stored_params
        if self.may_become_task and stored is not None and sends.progress_token is None and sends is self.request:
            # A task reports progress: `run` asks the server for it though the host gave no token.
            return upstream.run(
                sends.tool,
                stored,
                within=_NO_BOUND,
                listener=listener,
                principal=who,
                log_level=level,
                repeated=repeated,
            )
        return upstream.relay(
            words.TOOLS_CALL,
            sends.params,
            listener=listener,
            tool=sends.tool,
            principal=who,
            log_level=level,
            repeated=repeated,
        )
