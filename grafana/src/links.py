"""Links of panels: into the published runbooks, to the next dashboard, and to the console.

A link to a runbook leads to the section of `grafana/runbooks.md` that has the name of an alert as its
heading. Where the runbooks and the console are, `grafana/alerts/links.yml` says: as labels of a series
that the hidden variables of each dashboard read.
"""

from typing import Final

SERIES: Final = "taskgate:links"
RUNBOOKS, CONSOLE = "runbooks", "console"
_CHOSEN: Final = "${datasource:queryparam}&${job:queryparam}&${instance:queryparam}&${__url_time_range}"


def link(alert: str) -> str:
    """The address of an alert's section."""
    return f"${{{RUNBOOKS}:raw}}#{alert.lower()}"


def console() -> str:
    """The address of the console."""
    return f"${{{CONSOLE}:raw}}/ui"


def dashboard(uid: str, *, of_upstream: bool) -> str:
    """The address of a dashboard, with the choices of this one; `of_upstream` chooses the upstream of the series."""
    upstream = "var-upstream=${__field.labels.upstream}" if of_upstream else "${upstream:queryparam}"
    return f"/d/{uid}?{_CHOSEN}&{upstream}"
