"""The metric families that the gateway exports: the other half of `docs/metrics.md`, in its order.

What lives here: the parts, put together. What must not: a family (each part has a module of its own), the labels and
their values (`labels`), and what counts.
"""

from typing import Final

from taskgate.telemetry.metrics.families import Family, FamilyKind
from taskgate.telemetry.metrics.limit_families import ACCESS, LIMITS
from taskgate.telemetry.metrics.message_families import MESSAGES, PROCESS
from taskgate.telemetry.metrics.server_families import SERVERS
from taskgate.telemetry.metrics.store_families import AUDIT, STORE
from taskgate.telemetry.metrics.task_families import TASKS

__all__ = ["FAMILIES", "PARTS", "Family", "FamilyKind"]

PARTS: Final = {
    "The process": PROCESS,
    "Messages": MESSAGES,
    "Upstreams": SERVERS,
    "Tasks": TASKS,
    "Limits": LIMITS,
    "Who may do what": ACCESS,
    "The store": STORE,
    "The audit log": AUDIT,
}
"""The families under the headings of the page."""

FAMILIES: Final = tuple(family for part in PARTS.values() for family in part)
"""Every family."""
