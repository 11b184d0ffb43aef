"""A check of the rates of requests that are alike: `PreparedCheck`. `admission.rates` makes it, and the
admission of a head remembers it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from taskgate.domain.rates import RatePolicy
from taskgate.stores.base import RateCheck, RateStep, RateStepMode
from taskgate.telemetry.events import RateLimitAllowed


class PreparedCheck(RateCheck):
    """A check, what it is for, and the events of a request that passes it.

    It is for requests at this `mount` with this method and tool, under these `rules`, of callers with
    this `subject`. A check before authentication is for one address, and has none of method, tool
    and subject.
    """

    __slots__ = ("events", "method", "mount", "rules", "subject", "tool")

    def __init__(
        self,
        steps: Sequence[RateStep],
        rules: object,
        mount: str,
        method: str = "",
        tool: str | None = None,
        subject: object = None,
    ) -> None:
        super().__init__(steps)
        taken = [each.policy for way, demands in steps if way is RateStepMode.TAKE for each in demands]
        self.events = _shared(tuple([allowed(each) for each in taken]))
        self.rules = rules
        self.mount = mount
        self.method = method
        self.tool = tool
        self.subject = subject


def allowed(policy: RatePolicy) -> RateLimitAllowed:
    """The event of a policy that allowed a request."""
    return _allowed(policy.name, policy.scope)


_allowed: Final = lru_cache(maxsize=1024)(RateLimitAllowed)
"""Cached: every request has one of these events for each policy, and there are few."""


@lru_cache(maxsize=1024)
def _shared(events: tuple[RateLimitAllowed, ...]) -> tuple[RateLimitAllowed, ...]:
    """The events as the one object that all checks have which have equal ones."""
    return events
