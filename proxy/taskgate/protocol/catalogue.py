"""What a server's catalogue says of its tools, page by page. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.policy import APP_ONLY, TaskSupport
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.envelope import Response


class ListedTool(NamedTuple):
    """One tool: its own task support, the arguments that headers repeat, and what its server hints of it.

    `mirrored` is as `protocol.mirrored` gives it; nothing where the annotations of a server are not sound. `hints` are
    as `hints_of` gives them.
    """

    support: TaskSupport | None = None
    mirrored: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    hints: Mapping[str, bool] = MappingProxyType({})


_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def hints_of(tool: Mapping[str, Any]) -> Mapping[str, bool]:
    """The known annotations of a listed tool that are true or false, and APP_ONLY where its `_meta.ui` says so.

    Values of a wrong type hint at nothing.
    """
    annotations = tool.get("annotations")
    found: dict[str, bool] = {}
    if isinstance(annotations, dict):
        found = {name: annotations[name] for name in _HINTS if isinstance(annotations.get(name), bool)}
    if _is_app_only(tool.get("_meta")):
        found[APP_ONLY] = True
    return MappingProxyType(found) if found else _NO_HINTS


def _is_app_only(meta: Any) -> bool:
    """Whether the visibility of a tool lacks models (SEP-1865); without a list of those, both may call the tool."""
    ui = meta.get("ui") if isinstance(meta, dict) else None
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return isinstance(visibility, list) and "model" not in visibility


class CatalogueBounds(NamedTuple):
    """How many tools a catalogue may have, and how many bytes all its pages may have."""

    max_tools: int = 10_000
    max_bytes: int = 16 * 2**20

    def less(self, page: Response) -> "CatalogueBounds | None":
        """What is left of both after a page of `tools/list`; None where that is beyond them.

        Nothing of a tool is looked at: to count them costs the same for every page.
        """
        found = None if page.result is None else page.result.members
        tools = None if found is None else found.get("tools")
        count = len(tools.whole) if tools is not None and tools.is_array else 0
        text = page.text
        left = CatalogueBounds(
            self.max_tools - count, self.max_bytes - (len(text) if text.isascii() else len(text.encode()))
        )
        return None if min(left) < 0 else left


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page: its tools by their names, and the cursor of the next page."""

    tools: Mapping[str, ListedTool]
    cursor: RawJson | None


_NO_HINTS: Final[Mapping[str, bool]] = MappingProxyType({})
