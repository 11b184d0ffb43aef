"""Rules that allow everything, and may be changed in one place."""

from datetime import timedelta
from typing import Any

from taskgate.admission.rules import AdmissionRules, CallerLimit, QuestionBounds, RuntimeConfig
from taskgate.auth.authorization import AccessPolicy
from taskgate.domain.limits import Caps, Overrides
from taskgate.domain.policy import PromotionPolicy
from taskgate.domain.polling import PollPolicy
from taskgate.domain.rates import RatePolicies


def rules(**changes: Any) -> AdmissionRules:
    """One generation of rules."""
    usual: dict[str, Any] = {
        "policy": PromotionPolicy(
            rules=(),
            ttl_default=timedelta(hours=1),
            ttl_min=timedelta(minutes=1),
            ttl_max=timedelta(days=1),
            inline_grace=timedelta(seconds=5),
        ),
        "polling": PollPolicy(
            base=timedelta(seconds=2),
            least=timedelta(milliseconds=500),
            most=timedelta(seconds=30),
            adaptive=True,
            jitter=0.1,
            target=0.7,
            tolerance=0.5,
            reject_above=10.0,
        ),
        "access": AccessPolicy(),
        "rates": RatePolicies(()),
        "caps": Caps(
            tasks_per_context=10,
            tasks_per_tenant=None,
            tasks_per_tool=None,
            tasks_per_upstream=None,
            tasks_global=None,
            kept_per_context=None,
            kept_global=None,
        ),
        "overrides": Overrides(),
        "questions": QuestionBounds(wait=timedelta(minutes=30), outstanding=8),
    }
    for name in ("sessions", "streams", "waits"):
        if isinstance(limit := changes.get(name), int):
            changes[name] = CallerLimit(limit, 2 * limit)
    return AdmissionRules(**usual | changes)


def live(**changes: Any) -> RuntimeConfig:
    """The same, as they are now."""
    return RuntimeConfig(rules(**changes))
