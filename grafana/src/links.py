"""Links into the published runbooks.

A link leads to the section of `grafana/runbooks.md` that has the name of an alert as its heading. Alerts and
dashboards have the same base, for an operator to replace in both.
"""

from typing import Final

BASE: Final = "https://docs.example.com/taskgate/runbooks.md"


def link(alert: str) -> str:
    """The address of an alert's section."""
    return f"{BASE}#{alert.lower()}"
