"""The numbers that panels draw a line at: the thresholds of alerts, and no others.

Each is the number in the expression of its alert; a test compares the two.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Bound:
    """Where an alert begins. `value` is the number in its expression, `above` the side of it that is bad.

    Grafana colours from a number upwards, itself included: `step` is that number where it is not the value.
    """

    alert: str
    value: float
    above: bool = True
    step: float | None = None

    @property
    def coloured_from(self) -> float:
        """Where the colour changes."""
        return self.value if self.step is None else self.step


# Flags and counts: 0 and 1 are not the same side.
NOT_READY: Final = Bound("TaskgateNotReady", 0, above=False, step=1)
UPSTREAM_DOWN: Final = Bound("TaskgateUpstreamDown", 0, above=False, step=1)
UPSTREAM_REFUSING: Final = Bound("TaskgateUpstreamRefusing", 0, step=1)
CIRCUIT_OPEN: Final = Bound("TaskgateCircuitOpen", 1)
STORE_DOWN: Final = Bound("TaskgateStoreDown", 0, above=False, step=1)
RELOAD_FAILED: Final = Bound("TaskgateConfigReloadFailed", 0, above=False, step=1)
CONFIG_DRIFT: Final = Bound("TaskgateConfigDrift", 1, step=2)
AUDIT_DROPPED: Final = Bound("TaskgateAuditDropped", 0, step=1)

# Shares, rates and seconds.
ERRORS: Final = Bound("TaskgateErrorBudgetFastBurn", 0.0144)
BUDGET: Final = Bound("TaskgateErrorBudgetNearlySpent", 0.1, above=False)
LATENCY: Final = Bound("TaskgateLatencyHigh", 0.5)
OVERHEAD: Final = Bound("TaskgateOverheadHigh", 0.05)
TASK_FAILURES: Final = Bound("TaskgateTaskFailureRatioHigh", 0.1)
EXPIRING: Final = Bound("TaskgateTasksExpiring", 0.01)
UNDELIVERED: Final = Bound("TaskgateTasksUndelivered", 0.2)
INPUT_WAIT: Final = Bound("TaskgateInputWaitStuck", 900)
QUEUE_FULL: Final = Bound("TaskgateQueueSaturated", 0.8)
SATURATED: Final = Bound("TaskgateConcurrencySaturated", 0.9)
RATE_REJECTIONS: Final = Bound("TaskgateRateLimitRejectionsHigh", 0.05)
LIMITER_FALLBACK: Final = Bound("TaskgateLimiterFallback", 0)
WASTED_POLLS: Final = Bound("TaskgatePollingPressure", 0.95)
AUTH_FAILURES: Final = Bound("TaskgateAuthFailuresHigh", 0.2)
ENUMERATION: Final = Bound("TaskgateTaskEnumeration", 0.5)
KEYS_STALE: Final = Bound("TaskgateJwksStale", 3600)
STORE_SLOW: Final = Bound("TaskgateStoreSlow", 0.25)
AUDIT_BACKLOG: Final = Bound("TaskgateAuditBacklog", 0.5)
LOOP_BLOCKED: Final = Bound("TaskgateEventLoopBlocked", 0.25)
