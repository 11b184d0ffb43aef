"""Panels about the objectives: the error budget that is left, and how fast it burns."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import THIRD, Ask, Panel, Shape, Told
from grafana.src.queries import recorded

_BUDGET: Final = recorded("job:taskgate_error_budget:remaining_ratio30d", by=["objective"], how="min")
_OPERATIONS: Final = f"{recorded('job:taskgate_operation_errors:ratio_rate1h', how='max')} / 0.001"
_TASKS: Final = f"{recorded('job:taskgate_task_failures:ratio_rate1h', how='max')} / 0.01"

OBJECTIVES: Final = (
    Panel(
        title="Error budget remaining",
        shape=Shape.NUMBER,
        asks=[Ask(_BUDGET, "{{objective}}")],
        unit="percentunit",
        bound=thresholds.BUDGET,
        span=THIRD,
        height=7,
        told=Told(
            "the part that is left of what may fail within 30 days: 0.1 % of the operations, 1 % of the tasks.",
            "above 10 %.",
            "hold back risky changes; below zero the objective is missed.",
        ),
        alert="TaskgateErrorBudgetNearlySpent",
    ),
    Panel(
        title="Error budget over 30 days",
        asks=[Ask(_BUDGET, "{{objective}}")],
        unit="percentunit",
        span=THIRD,
        height=7,
        told=Told(
            "the budget that is left at each moment, always of the 30 days before it.",
            "falls a little with each failure, and rises as old failures leave the 30 days.",
            "the moment of a step down says when something failed; look there for the upstream and the reason.",
        ),
        alert="TaskgateErrorBudgetNearlySpent",
    ),
    Panel(
        title="Error budget burn rate",
        asks=[Ask(_OPERATIONS, "operations"), Ask(_TASKS, "tasks")],
        unit="short",
        span=THIRD,
        height=7,
        told=Told(
            "how many times faster than allowed the budget was used in the last hour; 1 uses it up in exactly 30 days.",
            "below 1.",
            "at 14.4 it is gone within two days, and an alert fires; at 6 within five.",
        ),
        alert="TaskgateTaskBudgetFastBurn",
    ),
)
