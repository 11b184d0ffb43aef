"""Access control: the operator's access rules, enforced and reported.

`auth/authorization` has the rules and judges operations by them. The handlers of requests call
`AccessControl.check` before they execute one. A rule in shadow mode refuses nothing; what it would
refuse is counted and logged.
"""

from collections.abc import Callable
from logging import INFO, getLogger
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.authorization import AccessPolicy
from taskgate.auth.context import AuthContext
from taskgate.errors import Forbidden, InsufficientScope
from taskgate.jsontext.display import quoted
from taskgate.protocol.vocabulary import TOOLS_CALL, UNJUDGED_METHODS
from taskgate.system.log_throttle import ThrottledLog
from taskgate.telemetry.events import AccessRefused, EventSink

_LOG_PAUSE: Final = 1.0
"""Seconds between two lines about one rule, because refused callers decide how often it applies."""

log = getLogger("taskgate.access")

OPEN = AccessPolicy()
"""The policy without rules: every authenticated caller may do everything."""


class AccessControl:
    """The enforcement of the present access rules, which are in `live`.

    Most gateways have no rules. So a caller that checks each request first looks whether there are
    any (`AccessPolicy.allows_all`).
    """

    def __init__(self, live: RuntimeConfig, event_sink: EventSink) -> None:
        self.live = live
        self._event_sink = event_sink
        # By mount, rule and shadow mode: as many as the configuration has.
        self._lines: dict[tuple[str, str | None, bool], ThrottledLog] = {}

    def check(self, caller: AuthContext, mount: str, method: str, tool: str | None = None) -> None:
        """Check one operation, and report a refusal.

        `tool` is the called tool, or the tool of the task that the operation is about. Raises
        InsufficientScope if a token with more scopes would be allowed, otherwise Forbidden. The
        handshake, discovery and pings are never refused.
        """
        policy = self.live.current.access
        if policy.allows_all or method in UNJUDGED_METHODS:
            return
        decision = policy.decide(caller.identity, method=method, upstream=mount, tool=tool)
        for shadowed in decision.shadow_refusals:
            self._report(AccessRefused(mount, method, shadow=True, rule=shadowed.rule, tool=tool))
        if decision.allowed:
            return
        self._report(AccessRefused(mount, method, shadow=False, rule=decision.rule, tool=tool))
        if decision.missing_scopes:
            raise InsufficientScope(decision.missing_scopes)
        of = "" if tool is None else f" of {quoted(tool)}"
        raise Forbidden(f"The operator's access rules do not allow {method}{of}")

    def _report(self, refused: AccessRefused) -> None:
        self._event_sink.emit(refused)
        key = refused.mount, refused.rule, refused.shadow
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = ThrottledLog(
                log, "request refused by an access rule", level=INFO, pause=_LOG_PAUSE
            )
        line.emit(
            {
                "upstream": refused.mount,
                "method": refused.method,
                "rule": refused.rule,
                "shadow": refused.shadow,
            }
        )

    def is_allowed(self, caller: AuthContext, mount: str, method: str, tool: str) -> bool:
        """Whether one operation is allowed. Nothing is reported: it only decides what is shown."""
        return self.live.current.access.decide(caller.identity, method=method, upstream=mount, tool=tool).allowed

    def tool_filter(self, caller: AuthContext, mount: str) -> Callable[[str], bool] | None:
        """A predicate for the tools that the caller may call, and so may see; None if it may see
        all.
        """
        if self.live.current.access.allows_all:
            return None
        return lambda tool: self.is_allowed(caller, mount, TOOLS_CALL, tool)
