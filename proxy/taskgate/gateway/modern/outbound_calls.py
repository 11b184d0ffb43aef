"""A request of a modern host on its way to its server: `OutboundCall`.

`Calls` creates one per request, with all that its answer depends on. `promotion`, `turns` and
`rounds` use it. It is a value; a changed call is a copy (`_replace`).
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

    - `line`: the upstream session, shared by requests of the caller.
    - `said`: what the request's `_meta` declares.
    - `sends`: the request as the server gets it; differs from `request` for a retry.
    - `may_become_task`: as far as is known without the server's catalogue. Then `mode` is the
      operator's rule, and `grace` the time in which the call may end without becoming a task.
    - `asking`: the key by which equal calls are joined; None for a call that joins none.
    """

    exchange: Exchange
    caller: AuthContext
    line: SharedSession
    said: RequestMeta
    request: CallTool | Relay
    sends: CallTool | Relay
    may_become_task: bool = False
    mode: PromotionMode = PromotionMode.SYNC
    grace: timedelta = timedelta()
    asking: CoalesceKey | None = None

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
        return self.may_become_task or (self.line.may_be_asked and self.method in IN_ROUNDS)

    def with_less_grace(self, seconds: float) -> "OutboundCall":
        """Return the same call after it has waited for so many seconds."""
        return self._replace(grace=max(self.grace - timedelta(seconds=seconds), timedelta()))

    def send(self, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """Send the request, and return the response; see UpstreamSession."""
        upstream, who, said = self.line.upstream, principal_of(self.caller), self.said
        level, repeated = said.log_level, said.header_params
        sends = self.sends
        if not isinstance(sends, CallTool):
            return upstream.relay(
                sends.method, sends.params, listener=listener, principal=who, log_level=level, repeated=repeated
            )
        stored = sends.stored_params
        if self.may_become_task and stored is not None and sends.progress_token is None and sends is self.request:
            # A task reports progress, so the server is asked for it even if the host did not ask.
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
