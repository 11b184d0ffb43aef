"""Panels: their queries, their descriptions, and how Grafana draws them.

A panel is a value; `draw` turns it into the builder of the SDK. Queries and dashboards are elsewhere, in `boards`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from grafana.src import links
from grafana.src.colours import Meaning, Rule, rules
from grafana.src.queries import quantile
from grafana.src.thresholds import Bound
from grafana.src.words import renames

DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
GOOD, BAD, PLAIN = "green", "red", "blue"
HALF, THIRD, QUARTER, EIGHTH = 12, 8, 6, 3

Builder = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel | statetimeline.Panel | bargauge.Panel


class Shape(StrEnum):
    """How a panel is drawn."""

    LINES = "lines"
    STACK = "stack"
    NUMBER = "number"
    TABLE = "table"
    HEATMAP = "heatmap"
    TIMELINE = "timeline"
    BARS = "bars"


class Ask(NamedTuple):
    """One query. `legend` names its series; in a table it heads the column.

    A legend with a label that has a meaning is coloured by that; `meaning` colours one without.
    """

    expr: str
    legend: str
    meaning: Meaning | None = None

    @property
    def colours(self) -> list[Rule]:
        """The rules for the colours of its series."""
        if self.meaning is not None:
            return [Rule(f"^{self.legend}$", self.meaning.value)]
        return list(rules(self.legend))


class Guidance(NamedTuple):
    """The description of a panel: its content, normal values, and what to do about others."""

    shows: str
    normal: str
    act: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. It links to the section of `alert` in the runbook; `bound` draws that alert's line.

    `words` are what values are shown as, each with its colour.
    """

    title: str
    asks: Sequence[Ask]
    unit: str
    guidance: Guidance
    alert: str
    shape: Shape = Shape.LINES
    bound: Bound | None = None
    words: Sequence[tuple[str, str, str]] = ()
    span: int = THIRD
    height: int = 8
    decimals: int | None = None
    exemplars: bool = False


def quantiles(family: str, *ranks: float, by: str = "upstream") -> list[Ask]:
    """Quantiles of a histogram, each for each value of a label."""
    return [Ask(quantile(rank, family, by=[by]), f"p{rank * 100:g} {{{{{by}}}}}") for rank in ranks]


def draw(panel: Panel, number: int, leads_to: str = "") -> Builder:
    """The panel for the SDK, with its number on the dashboard. Its series lead to the dashboard of that uid."""
    drawn = _DRAWN[panel.shape](panel)
    drawn.id(number).title(panel.title).unit(panel.unit).datasource(DATASOURCE).span(panel.span).height(panel.height)
    shows, normal, act = panel.guidance
    drawn.description(f"**Shows:** {shows}\n\n**Normal:** {normal}\n\n**Otherwise:** {act}")
    drawn.links([_link(f"Runbook: {panel.alert}", links.link(panel.alert))])
    if panel.shape not in (Shape.TABLE, Shape.HEATMAP):
        drawn.data_links(_next(panel, leads_to))
    for letter, ask in zip("ABCDEFGH", panel.asks, strict=False):
        drawn.with_target(_query(panel, ask, letter))
    if panel.shape in (Shape.LINES, Shape.STACK):
        for rename in dict.fromkeys(rename for ask in panel.asks for rename in renames(ask.legend)):
            options = {"regex": rename.pattern, "renamePattern": rename.name}
            drawn.with_transformation(DataTransformerConfig(id_val="renameByRegex", options=options))
    for rule in _colours(panel):
        mode = FieldColorModeId.SHADES if ".*" in rule.pattern else FieldColorModeId.FIXED
        colour = {"mode": mode.value, "fixedColor": rule.colour}
        drawn.override_by_regexp(f"/{rule.pattern}/", [DynamicConfigValue(id_val="color", value=colour)])
    if panel.words:
        drawn.mappings([_mapping(panel.words)])
    if panel.decimals is not None:
        drawn.decimals(panel.decimals)
    return drawn


def _colours(panel: Panel) -> list[Rule]:
    """Each rule once. Columns of a table and cells of a heatmap have none."""
    if panel.shape in (Shape.TABLE, Shape.HEATMAP, Shape.NUMBER, Shape.TIMELINE):
        return []
    return list(dict.fromkeys(rule for ask in panel.asks for rule in ask.colours))


def _query(panel: Panel, ask: Ask, letter: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(ask.expr).legend_format(ask.legend).ref_id(letter).datasource(DATASOURCE)
    query.editor_mode(QueryEditorMode.CODE)
    if panel.shape is Shape.TABLE:
        return query.instant().format(PromQueryFormat.TABLE)
    if panel.shape is Shape.BARS:
        return query.instant()
    if panel.shape is Shape.HEATMAP:
        return query.range().format(PromQueryFormat.HEATMAP)
    return query.range().exemplar(panel.exemplars)


def _next(panel: Panel, leads_to: str) -> list[DashboardLink]:
    """Where a series leads: to the next dashboard, of its upstream if it has one, and to the console."""
    of_upstream = all("{{upstream}}" in ask.legend for ask in panel.asks)
    boards = [_link("Open the next dashboard", links.dashboard(leads_to, of_upstream=of_upstream))] if leads_to else []
    return [*boards, _link("Open the console", links.console())]


def _link(title: str, url: str) -> DashboardLink:
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(True)


# --- shapes ----------------------------------------------------------------------------------------------------------


def _lines(panel: Panel) -> timeseries.Panel:
    drawn = timeseries.Panel().line_width(1).show_points(VisibilityMode.NEVER).fill_opacity(8).min(0)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    legend.calcs(["lastNotNull", "max"]).sort_by("Max").sort_desc(True)
    drawn.legend(legend.show_legend(True)).thresholds(_steps(panel.bound))
    drawn.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    if panel.bound is not None:
        drawn.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    return drawn


def _stack(panel: Panel) -> timeseries.Panel:
    return _lines(panel).fill_opacity(40).stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))


def _number(panel: Panel) -> stat.Panel:
    plain = panel.bound is None and not panel.words
    drawn = stat.Panel().graph_mode(BigValueGraphMode.NONE if panel.words else BigValueGraphMode.AREA)
    drawn.color_mode(BigValueColorMode.NONE if plain else BigValueColorMode.BACKGROUND).no_value("none")
    drawn.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    return drawn.thresholds(_steps(panel.bound))


def _timeline(panel: Panel) -> statetimeline.Panel:
    """A state for each series at each moment, by the words and colours of the panel."""
    drawn = statetimeline.Panel().show_value(VisibilityMode.AUTO).merge_values(True).row_height(0.8).line_width(0)
    drawn.fill_opacity(80).color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    drawn.legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM))
    return drawn.thresholds(_steps(panel.bound))


def _bars(panel: Panel) -> bargauge.Panel:
    """A bar for each query, as long as its part of the largest."""
    drawn = bargauge.Panel().orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC).min(0)
    drawn.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    return drawn.thresholds(_steps(panel.bound))


def _table(panel: Panel) -> table.Panel:
    """One row per set of labels, one column per query; the largest of the first column comes first."""
    first = panel.asks[0].legend
    drawn = table.Panel().show_header(True).sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    names = {f"Value #{letter}": ask.legend for letter, ask in zip("ABCDEFGH", panel.asks, strict=False)}
    drawn.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    shown = {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": names}
    drawn.with_transformation(DataTransformerConfig(id_val="organize", options=shown))
    return drawn


def _heatmap(panel: Panel) -> heatmap.Panel:
    """Buckets as they are: Prometheus counts, Grafana only colours."""
    drawn = heatmap.Panel().calculate(False).cell_gap(1).show_legend().show_tooltip()
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Spectral").steps(64).reverse(False)
    return drawn.color(colours).y_axis(heatmap.YAxisConfig().unit(panel.unit))


_DRAWN: Final[Mapping[Shape, Callable[[Panel], Builder]]] = {
    Shape.LINES: _lines,
    Shape.STACK: _stack,
    Shape.NUMBER: _number,
    Shape.TABLE: _table,
    Shape.HEATMAP: _heatmap,
    Shape.TIMELINE: _timeline,
    Shape.BARS: _bars,
}


def _steps(bound: Bound | None) -> ThresholdsConfig:
    """Good up to the bound and bad from it on, or the other way round."""
    steps = ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    if bound is None:
        return steps.steps([Threshold(value=None, color=PLAIN)])
    below, from_there = (GOOD, BAD) if bound.above else (BAD, GOOD)
    return steps.steps([Threshold(value=None, color=below), Threshold(value=bound.coloured_from, color=from_there)])


def _mapping(words: Sequence[tuple[str, str, str]]) -> ValueMap:
    results = {
        value: ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, text, colour) in enumerate(words)
    }
    return ValueMap(options=results)
