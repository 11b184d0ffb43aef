"""The values of labels that only a running gateway knows: what is configured now, and the tools and tenants it met.

What must not live here: series. What holds: nothing that peers invent is remembered.
"""

from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Final

from taskgate.telemetry import request_context
from taskgate.telemetry.metrics.labels import OTHER, TOOL
from taskgate.telemetry.metrics.settings import MetricsSettings

Folded = Callable[[str], None]
"""Told the name of a label whose value became `_OTHER`."""

_LONGEST_TOOL: Final = 128
"""A longer name only makes every scrape longer."""


class Domain:
    """The values of one label; without a set, the gateway itself chooses them. `gone` are those that are over."""

    def __init__(self, name: str, texts: Mapping[Any, str] | None, gone: Collection[Any], folded: Folded) -> None:
        self._name = name
        self._texts = texts
        self._folded = folded
        self.gone = gone

    def text(self, value: Any) -> str:
        """The label of a value. One that is none becomes `_OTHER`, and counts as such."""
        if self._texts is None:
            return str(value)
        text = self._texts.get(value)
        if text is None:
            self._folded(self._name)
            return OTHER
        return text

    def has(self, value: Any) -> bool:
        """Whether it is a value that is not over."""
        return value not in self.gone and (self._texts is None or value in self._texts)


class LabelValues:
    """The values of a label that are configured: `texts` of all that ever were, and which of them are `gone`."""

    def __init__(self, fixed: Mapping[Any, str]) -> None:
        self._fixed = frozenset(fixed)
        self.texts: dict[Any, str] = dict(fixed)
        self.gone: set[Any] = set()

    def adopt(self, texts: Mapping[Any, str]) -> None:
        """These are the configured ones from now on."""
        self.texts.update(texts)
        self.gone.clear()
        self.gone.update(self.texts.keys() - texts.keys() - self._fixed)

    def present(self) -> list[Any]:
        """Those that are configured now."""
        return [value for value in self.texts if value not in self.gone and value not in self._fixed]


class ToolNames:
    """The tools that have a label of their own: the first that were called at each of the mounts."""

    def __init__(self, mounts: Container[str], folded: Folded) -> None:
        self._mounts = mounts
        self._folded = folded
        self._settings = MetricsSettings()
        self._names: dict[str, set[str]] = {}

    def adopt(self, settings: MetricsSettings) -> None:
        """So many tools have a label from now on. Where that are fewer, those that have one are found anew."""
        if settings.max_tools < self._settings.max_tools:
            self._names.clear()
        self._settings = settings

    def label(self, mount: str, tool: str | None) -> str:
        """The label of a tool, None being one that no list named. A name too many, or unfit, counts as overflow."""
        names = self._names.get(mount)
        known = tool if names is not None and tool in names else self._new(mount, tool)
        return known if self._settings.tool_label else ""

    @property
    def times(self) -> bool:
        """Whether times have a label for tools."""
        return self._settings.tool_histograms

    def timed(self, mount: str, tool: str) -> str:
        """The same for times, of a tool that `label` was asked for before."""
        return tool if tool in self._names.get(mount, ()) else OTHER

    def _new(self, mount: str, tool: str | None) -> str:
        if not (self._settings.tool_label or self._settings.tool_histograms):
            return ""
        if tool is None or mount not in self._mounts:
            return OTHER
        names = self._names.setdefault(mount, set())
        if len(names) >= self._settings.max_tools or len(tool) > _LONGEST_TOOL or not tool.isprintable():
            self._folded(TOOL.name)
            return OTHER
        names.add(tool)
        return tool


class Tenants:
    """The tenants that have a label of their own: those that the operator listed."""

    def __init__(self) -> None:
        self._listed: frozenset[str] | None = None

    def adopt(self, settings: MetricsSettings) -> None:
        """These are listed from now on."""
        self._listed = settings.tenants

    def label(self) -> str:
        """That of the caller whose visit it is; empty for one without a tenant, and where there are no labels.

        A tenant that is not listed is `_OTHER`, which is no overflow: the operator wanted that.
        """
        if self._listed is None or (here := request_context.current()) is None or here.caller is None:
            return ""
        identity = here.caller.identity
        if identity is None or identity.tenant is None:
            return ""
        return identity.tenant if identity.tenant in self._listed else OTHER
