"""What all dashboards have in common: variables, annotations, links, and rows of panels from top to bottom."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    RowPanel,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.src import links
from grafana.src.panels import DATASOURCE, Panel, draw
from grafana.src.queries import select

TAGS: Final = ("taskgate", "mcp")
_ALL: Final = VariableOption(selected=True, text=["All"], value=["$__all"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading and the panels below it, from left to right.

    Their series lead to the dashboard with the uid `leads_to`. A closed row is of a feature that is usually
    off; closed rows are the last ones.
    """

    title: str
    panels: Sequence[Panel]
    leads_to: str = ""
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. Its `uid` is part of addresses that people keep, so it never changes."""

    uid: str
    title: str
    about: str
    rows: Sequence[Row]


def build(board: Board) -> Dashboard:
    """The dashboard as Grafana reads it. Panels are numbered in their order, rows included."""
    built = dashboard.Dashboard(board.title).uid(board.uid).description(board.about).tags(list(TAGS)).readonly()
    built.tooltip(DashboardCursorSync.CROSSHAIR).refresh("30s").time("now-1h", "now").timezone("browser")
    built.variables([_datasource(), *_chosen(), *_places()]).annotations(_marks()).links([_others()])
    number = 0
    for row in board.rows:
        number += 1
        heading = dashboard.Row(row.title).id(number)
        if not row.is_closed:
            built.with_row(heading)
        for panel in row.panels:
            number += 1
            drawn = draw(panel, number, row.leads_to)
            heading.with_panel(drawn) if row.is_closed else built.with_panel(drawn)
        if row.is_closed:
            built.with_row(heading)
    made = built.build()
    _close_gaps(made)
    return made


def _close_gaps(made: Dashboard) -> None:
    """Moves what is below a closed row up: the SDK leaves room for the panels of closed rows."""
    bottom = 0
    for each in made.panels or []:
        assert each.grid_pos is not None
        if isinstance(each, RowPanel) and each.panels:
            moved = each.grid_pos.y - bottom
            for panel in (each, *each.panels):
                assert panel.grid_pos is not None
                panel.grid_pos.y -= moved
        bottom = max(bottom, each.grid_pos.y + each.grid_pos.h)


def _datasource() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _chosen() -> list[Builder[VariableModel]]:
    """Jobs, the instances of those, and the upstreams of these.

    All upstreams are `.*`: what holds over all of them has an empty one.
    """
    job = _names("job", "taskgate_build_info", ".+")
    instance = _names("instance", 'taskgate_build_info{job=~"$job"}', ".+")
    upstream = _names("upstream", 'taskgate_tasks_running{job=~"$job", instance=~"$instance"}', ".*")
    return [job, instance, upstream]


def _places() -> list[Builder[VariableModel]]:
    """The addresses that links lead to, as rules of Prometheus have them."""
    return [
        dashboard.QueryVariable(name)
        .query(f"label_values({links.SERIES}, {name})")
        .datasource(DATASOURCE)
        .hide(VariableHide.HIDE_VARIABLE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        for name in (links.RUNBOOKS, links.CONSOLE)
    ]


def _names(label: str, series: str, everything: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(label).label(label.capitalize()).query(f"label_values({series}, {label})")
    variable.datasource(DATASOURCE).multi(True).include_all(True).all_value(everything).current(_ALL)
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)


def _marks() -> list[Builder[AnnotationQuery]]:
    """Alerts that fire, and where the configuration in force changed or another release began to run."""
    fires = 'max by (alertname) (ALERTS{alertname=~"Taskgate.+", alertstate="firing", job=~"$job"})'
    changed = f"changes({select('taskgate_config_hash')}[$__rate_interval]) > 0"
    running = f"count by (version, revision) ({select('taskgate_build_info')})"
    before = f"count by (version, revision) ({select('taskgate_build_info')} offset $__rate_interval)"
    return [
        _mark("Configuration changed", changed, "blue"),
        _mark("Another release", f"{running} unless {before}", "purple"),
        _mark("Alert fires", fires, "red"),
    ]


def _mark(name: str, expr: str, colour: str) -> dashboard.AnnotationQuery:
    return dashboard.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(colour).expr(expr)


def _others() -> dashboard.DashboardLink:
    """The other dashboards, with the time and the variables that are chosen here."""
    others = dashboard.DashboardLink("taskgate").type(DashboardLinkType.DASHBOARDS).tags(list(TAGS)).as_dropdown(True)
    return others.include_vars(True).keep_time(True)
