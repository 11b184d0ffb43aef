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
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.src.panels import DATASOURCE, Panel, draw
from grafana.src.queries import select

TAGS: Final = ("taskgate", "mcp")
_ALL: Final = VariableOption(selected=True, text=["All"], value=["$__all"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading and the panels below it, from left to right."""

    title: str
    panels: Sequence[Panel]


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
    built.variables([_datasource(), *_chosen()]).annotations(_marks()).links([_others()])
    number = 0
    for row in board.rows:
        number += 1
        built.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built.with_panel(draw(panel, number))
    return built.build()


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
