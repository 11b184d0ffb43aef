"""What a server's catalogue says of its tools, page by page. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.mcp.jsonrpc import RawJson
from taskgate.tasks.policy import TaskSupport


class ListedTool(NamedTuple):
    """One tool: its own task support, the arguments that headers repeat, and what its server hints of it.

    `mirrored` is as `mcp.mirrored` gives it; nothing where the annotations of a server are not sound. `hints` are those
    of its annotations that are known, and are true or false.
    """

    support: TaskSupport | None = None
    mirrored: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    hints: Mapping[str, bool] = MappingProxyType({})


_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def hints_of(tool: Mapping[str, Any]) -> Mapping[str, bool]:
    """What the annotations of a listed tool hint at; nothing where they say nothing, or are of a wrong type."""
    annotations = tool.get("annotations")
    if not isinstance(annotations, dict):
        return _NO_HINTS
    found = {name: annotations[name] for name in _HINTS if isinstance(annotations.get(name), bool)}
    return MappingProxyType(found) if found else _NO_HINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page: its tools by their names, and the cursor of the next page."""

    tools: Mapping[str, ListedTool]
    cursor: RawJson | None


_NO_HINTS: Final[Mapping[str, bool]] = MappingProxyType({})
