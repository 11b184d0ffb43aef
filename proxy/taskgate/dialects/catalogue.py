"""What a server's catalogue says of its tools, page by page. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from taskgate.mcp.jsonrpc import RawJson
from taskgate.tasks.policy import TaskSupport


class ListedTool(NamedTuple):
    """One tool: its own task support, and the arguments that headers repeat.

    `mirrored` is as `mcp.mirrored` gives it; nothing where the annotations of a server are not sound.
    """

    support: TaskSupport | None = None
    mirrored: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page: its tools by their names, and the cursor of the next page."""

    tools: Mapping[str, ListedTool]
    cursor: RawJson | None
