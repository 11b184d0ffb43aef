"""A request of a modern host on its way to its server: `ModernCall`.

`Calls` creates one per request of a host, with all that its answer depends on. `promotion` and
`rounds` read it. `Calls` and `Promotion` change it when something is decided about the call.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from taskgate.admission.callers import principal_of
from taskgate.auth.context import AuthContext
from taskgate.domain.policy import PromotionMode
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.gateway.outbound_calls import OutboundCall
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta
from taskgate.protocol.messages import Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.streams.exchange import Exchange
from taskgate.upstream.call_listener import CallListener

_NO_BOUND: Final = timedelta(days=36_500)
"""The time limit of a call that is not a task yet: only the server's own limits apply."""


@dataclass(slots=True, kw_only=True, eq=False)
class ModernCall(OutboundCall):
    """One request, and where it goes.

    - `session`: the upstream session, shared by requests of the caller.
    - `meta`: what the request's `_meta` declares.
    - `request`: as the host sent it. `params` differ from its own for a retry that goes to a modern
      server, which gets the input responses and its own state; `is_changed` is set then.
    - `mode`, `grace`: for a call that may become a task, the operator's rule, and the time in which
      it may still be answered without a task once it is sent.
    """

    session: SharedSession
    meta: RequestMeta
    request: CallTool | Relay
    is_changed: bool = False
    mode: PromotionMode = PromotionMode.SYNC
    grace: timedelta = timedelta()

    def change(self, sends: CallTool | Relay) -> None:
        """Send the parameters of `sends` in place of the host's own."""
        self.params, self.is_changed = sends.params, True

    def send(self, listener: CallListener) -> Coroutine[Any, Any, Response]:
        request = self.request
        if (
            self.may_become_task
            and not self.is_changed
            and isinstance(request, CallTool)
            and request.stored_params is not None
            and request.progress_token is None
        ):
            # A task reports progress: `run` asks the server for it though the host gave no token.
            return self.session.upstream.run(
                request.tool,
                request.stored_params,
                within=_NO_BOUND,
                listener=listener,
                principal=principal_of(self.caller),
                log_level=self.log_level,
                repeated=self.repeated,
            )
        return OutboundCall.send(self, listener)


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
