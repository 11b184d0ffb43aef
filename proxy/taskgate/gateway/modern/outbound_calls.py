"""A request of a modern host on its way to its server: `ModernCall`.

`Calls` creates one per request of a host, with all that its answer depends on. `promotion` and
`rounds` read it. `Calls` and `Promotion` change it when something is decided about the call.
"""

from dataclasses import dataclass
from datetime import timedelta

from taskgate.auth.context import AuthContext
from taskgate.domain.policy import PromotionMode
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.gateway.outbound_calls import OutboundCall
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.streams.exchange import Exchange


@dataclass(slots=True, kw_only=True, eq=False)
class ModernCall(OutboundCall):
    """One request, and where it goes.

    - `session`: the upstream session, shared by requests of the caller.
    - `meta`: what the request's `_meta` declares.
    - `request`: as the host sent it. `params` differ from its own for a retry that goes to a modern
      server, which gets the input responses and its own state.
    - `mode`: the operator's rule for a call that may become a task.
    - `grace`: the time in which such a call may be answered without a task once it is sent.
    """

    session: SharedSession
    meta: RequestMeta
    request: CallTool | Relay
    mode: PromotionMode = PromotionMode.SYNC
    grace: timedelta = timedelta()

    def change(self, sends: CallTool | Relay) -> None:
        """Send the parameters of `sends` in place of the host's own."""
        self.params, self.task_params = sends.params, None


def new_call(
    exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, request: CallTool | Relay
) -> ModernCall:
    """Return the call of a request that is no task and joins no other one."""
    return ModernCall(
        exchange=exchange,
        caller=caller,
        session=session,
        id=request.id,
        method=TOOLS_CALL if isinstance(request, CallTool) else request.method,
        params=request.params,
        tool=request.tool if isinstance(request, CallTool) else None,
        log_level=meta.log_level,
        repeated=meta.header_params,
        meta=meta,
        request=request,
    )
