"""The operator's rules, applied: refusals are raised and counted, and what a rule in shadow would have refused too.

What must not live here: what the rules say (`auth/authorization`).
"""

from collections.abc import Callable
from logging import INFO, getLogger
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.authorization import AccessEffect, AccessPolicy
from taskgate.auth.context import AuthContext
from taskgate.errors import Forbidden, InsufficientScope
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.system.log_throttle import ThrottledLog
from taskgate.telemetry.events import AccessRefused, EventSink

_PAUSE: Final = 1.0
"""Seconds between two lines about one rule: callers who are refused decide how often."""

log = getLogger("taskgate.access")


class Access:
    """What callers may do by the rules as they are now."""

    def __init__(self, live: RuntimeConfig, event_sink: EventSink) -> None:
        self._live = live
        self._event_sink = event_sink
        # A rule of one mount, in shadow or not: as many as the configuration has.
        self._lines: dict[tuple[str, str | None, bool], ThrottledLog] = {}

    def check(self, caller: AuthContext, mount: str, method: str, tool: str | None = None) -> None:
        """Let one operation pass. Raises Forbidden, or InsufficientScope where scopes would help.

        `tool` is the one that is called, or that the task runs which the operation is about.
        """
        policy = self._live.now.access
        # Nearly every request of nearly every gateway: not even the caller's scopes are looked at.
        if _lets_all(policy):
            return
        decision = policy.decide(caller.identity, method=method, upstream=mount, tool=tool)
        for shadowed in decision.shadow_refusals:
            self._tell(AccessRefused(mount, method, shadow=True, rule=shadowed.rule, tool=tool))
        if decision.allowed:
            return
        self._tell(AccessRefused(mount, method, shadow=False, rule=decision.rule, tool=tool))
        if decision.missing_scopes:
            raise InsufficientScope(decision.missing_scopes)
        raise Forbidden("Not allowed")

    def _tell(self, refused: AccessRefused) -> None:
        self._event_sink.emit(refused)
        which = refused.mount, refused.rule, refused.shadow
        line = self._lines.get(which)
        if line is None:
            line = self._lines[which] = ThrottledLog(log, "request refused by an access rule", level=INFO, quiet=_PAUSE)
        of = {"upstream": refused.mount, "method": refused.method, "rule": refused.rule, "shadow": refused.shadow}
        line.emit(of)

    def permits(self, caller: AuthContext, mount: str, method: str, tool: str) -> bool:
        """Whether one operation would pass; nothing is counted."""
        return self._live.now.access.decide(caller.identity, method=method, upstream=mount, tool=tool).allowed

    def shown_to(self, caller: AuthContext, mount: str) -> Callable[[str], bool] | None:
        """Whether the caller is told of a tool: whether it might call it. None where everybody is told of all."""
        if _lets_all(self._live.now.access):
            return None
        return lambda tool: self.permits(caller, mount, TOOLS_CALL, tool)


OPEN = AccessPolicy()
"""No rules: whoever got in may do everything."""


def _lets_all(policy: AccessPolicy) -> bool:
    return not policy.rules and policy.default is AccessEffect.ALLOW
