"""A request of the modern era on its way to its server, with all that its answer depends on. Values only."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskgate.admission.callers import principal
from taskgate.admission.joining import CoalesceKey
from taskgate.auth.context import AuthContext
from taskgate.domain.policy import PromotionMode
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.protocol import vocabulary as words
from taskgate.protocol.envelope import Response
from taskgate.protocol.intents import CallTool, Relay
from taskgate.protocol.modern_requests import RequestMeta
from taskgate.streams.exchange import Exchange
from taskgate.upstream.call_listener import CallListener

IN_ROUNDS: Final = frozenset({words.TOOLS_CALL, "prompts/get", "resources/read"})
"""What a server may ask for more of before it answers (M-MRTR-1)."""

_NO_BOUND: Final = timedelta(days=36_500)
"""What bounds a call that is not a task yet are its server's own bounds."""


class OutboundCall(NamedTuple):
    """One request. `sends` is it as its server gets it, which differs where it brings answers to a server's round.

    `may_become_task` is as far as can be told without the server's catalogue; then `mode` is what the operator wants of
    it, and `grace` how long it may take without becoming one.
    `asking` is what it has in common with calls that it may join, None where it joins none.
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
        """The method of the request."""
        return words.TOOLS_CALL if isinstance(self.request, CallTool) else self.request.method

    @property
    def tool(self) -> str | None:
        """The tool that it calls, if it calls one."""
        return self.request.tool if isinstance(self.request, CallTool) else None

    @property
    def may_outlive(self) -> bool:
        """Whether the call may go on after its request was answered: as a task, or until its host brings answers."""
        return self.may_become_task or (self.line.may_be_asked and self.method in IN_ROUNDS)

    def with_less_grace(self, seconds: float) -> "OutboundCall":
        """The same errand, after it has waited for so long."""
        return self._replace(grace=max(self.grace - timedelta(seconds=seconds), timedelta()))

    def send(self, listener: CallListener) -> Coroutine[Any, Any, Response]:
        """The request on its way; see UpstreamSession."""
        upstream, who, said = self.line.upstream, principal(self.caller), self.said
        level, repeated = said.log_level, said.repeated
        sends = self.sends
        if not isinstance(sends, CallTool):
            return upstream.relay(
                sends.method, sends.params, listener=listener, principal=who, log_level=level, repeated=repeated
            )
        if self.may_become_task and sends.kept is not None and sends.progress_token is None and sends is self.request:
            # A task tells how far it is, so its server is asked to, even where its host did not.
            return upstream.run(
                sends.tool,
                sends.kept,
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
