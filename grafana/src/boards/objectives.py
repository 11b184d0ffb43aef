"""Objectives: the unused error budget, and its burn rate."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import THIRD, Ask, Guidance, Panel, Shape
from grafana.src.queries import recorded

_BUDGET: Final = recorded("job:taskgate_error_budget:remaining_ratio30d", by=["objective"], how="min")
_CALLS: Final = f"{recorded('job:taskgate_call_errors:ratio_rate1h', how='max')} / 0.001"
_TASKS: Final = f"{recorded('job:taskgate_task_failures:ratio_rate1h', how='max')} / 0.01"

OBJECTIVES: Final = (
    Panel(
        title="Error budget remaining",
        shape=Shape.NUMBER,
        asks=[Ask(f"clamp_min({_BUDGET}, 0)", "{{objective}}")],
        unit="percentunit",
        bound=thresholds.BUDGET,
        span=THIRD,
        height=7,
        guidance=Guidance(
            "the unused part of the error budget of 30 days: 0.1 % of the calls, 1 % of the tasks. The time before "
            "the first data counts as free of failures.",
            "above 10 %.",
            "delay risky changes; without any left, the objective is missed.",
        ),
        alert="TaskgateErrorBudgetNearlySpent",
    ),
    Panel(
        title="Error budget over 30 days",
        asks=[Ask(_BUDGET, "{{objective}}")],
        unit="percentunit",
        span=THIRD,
        height=7,
        guidance=Guidance(
            "the unused budget at each moment, for the 30 days before it.",
            "falls a little with each failure, and rises when old failures are more than 30 days ago.",
            "a step down shows when a failure began; find the upstream and the reason at that time.",
        ),
        alert="TaskgateErrorBudgetNearlySpent",
    ),
    Panel(
        title="Error budget burn rate",
        asks=[Ask(_CALLS, "calls"), Ask(_TASKS, "tasks")],
        unit="short",
        span=THIRD,
        height=7,
        guidance=Guidance(
            "how many times faster than allowed the budget was used in the last hour. 1 uses it up in exactly 30 days.",
            "below 1.",
            "at 14.4 the budget is used up within two days, and an alert fires; at 6 within five.",
        ),
        alert="TaskgateTaskBudgetFastBurn",
    ),
)
