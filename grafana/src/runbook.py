"""Where the runbooks are published, and how a link into them is written.

A link leads to the section of `grafana/runbooks.md` that has the name of an alert as its heading. The base stands in
alerts and dashboards alike, for an operator to replace in both.
"""

from typing import Final

BASE: Final = "https://docs.example.com/taskgate/runbooks.md"


def link(alert: str) -> str:
    """The address of an alert's section."""
    return f"{BASE}#{alert.lower()}"
