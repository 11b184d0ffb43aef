"""Descriptions that servers give of themselves: `ServerDescription`, and pages of `tools/list`.

The upstream dialects read a description from the answer to `initialize` or `server/discover`, which
is here called a welcome. The downstream dialects write a welcome for hosts of it. Each era reads
and writes the members that it defines. All other members, and `_meta`, cross to the byte except for
keys of one hop.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.policy import APP_ONLY, TaskSupport
from taskgate.domain.versions import Peer
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Member, Members, RawJson, elements, members
from taskgate.protocol.messages import Response, value_of
from taskgate.protocol.meta import ObjectEdit, edit_object, edits_for
from taskgate.protocol.vocabulary import GATEWAY

MAX_WELCOME: Final = 1024 * 1024
"""Largest answer to `initialize` or `server/discover`, in characters: sessions store it."""

# --- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDescription:
    """The content of a server's welcome; texts are as the server wrote them.

    `info` is its serverInfo, None without one that hosts could read. `rest` is an object with the
    members that no revision defines, and `_meta`. `is_stale` says that the server went down since.
    """

    peer: Peer
    capabilities: RawJson
    instructions: RawJson | None
    info: RawJson | None = None
    rest: RawJson = "{}"
    is_stale: bool = False


def gateway_info(version: str) -> RawJson:
    """The serverInfo of the gateway itself."""
    return dump({"name": "taskgate", "version": version})


def server_info(text: RawJson, member: Member | None) -> RawJson | None:
    """A server's serverInfo as it wrote it; None if name or version is missing: hosts refuse
    that.
    """
    found: Any = None if member is None else member.value
    if member is None or not isinstance(found, dict):
        return None
    is_complete = isinstance(found.get("name"), str) and isinstance(found.get("version"), str)
    return text[member.start : member.end] if is_complete else None


def undefined_members(text: RawJson, found: Members) -> RawJson:
    """The welcome `text` without the members that a revision defines, and without keys of one hop.

    `found` are its members.
    """
    return splice(text, edits_for(found, 0, ObjectEdit(drop=_DEFINED)))


def welcome_result(
    server: ServerDescription, put: Mapping[str, RawJson], version: str, meta_put: Mapping[str, RawJson] | None = None
) -> RawJson:
    """The welcome for a host: `put` are the members that its era defines.

    They are added to the undefined members of the server's. `meta_put` is added to `_meta`, which
    also has the gateway's version, and says if the description is stale.
    """
    gateway: dict[str, Any] = {"version": version}
    if server.is_stale:
        gateway["stale"] = True
    if server.instructions is not None:
        put = {**put, "instructions": server.instructions}
    return edit_object(server.rest, ObjectEdit(put=put, meta_put={**(meta_put or {}), GATEWAY: dump(gateway)}))


_DEFINED: Final = (
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
    "resultType",
    "ttlMs",
    "cacheScope",
)
"""The members that one era or the other defines."""


# --- its tools --------------------------------------------------------------------------------------------------------


class ListedTool(NamedTuple):
    """A tool as its server lists it: its own task support, arguments in headers, and hints.

    `header_paths` is as `headers.read_header_paths` gives it; empty for a legacy server with
    unsound annotations. `hints` is as `hints_of` gives it.
    """

    support: TaskSupport | None = None
    header_paths: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    hints: Mapping[str, bool] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page of `tools/list`: its tools by name, and the cursor of the next page.

    `ttl` is how long the server says that it may be cached, in seconds; 0 if it does not say.
    """

    tools: Mapping[str, ListedTool]
    cursor: RawJson | None
    ttl: float = 0.0


class ToolList(NamedTuple):
    """All tools of a server by name. `ttl` is the shortest that a page has, in seconds; 0 if the
    server does not say.
    """

    tools: Mapping[str, ListedTool]
    ttl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguePage:
    """A page of a modern server; `refused` names the tools without sound annotations, left out
    (H-MOD-5).
    """

    page: ToolPage
    refused: tuple[str, ...] = ()


class CatalogueBounds(NamedTuple):
    """Limits of a whole catalogue: the number of tools, and the bytes of all pages."""

    max_tools: int = 10_000
    max_bytes: int = 16 * 2**20

    def after(self, page: Response) -> "CatalogueBounds | None":
        """What remains of both after a page of `tools/list`; None if it exceeds one of them."""
        found = None if page.result is None else page.result.members
        tools = None if found is None else found.get("tools")
        count = len(tools.whole) if tools is not None and tools.is_array else 0
        text = page.text
        left = CatalogueBounds(
            self.max_tools - count, self.max_bytes - (len(text) if text.isascii() else len(text.encode()))
        )
        return None if min(left) < 0 else left


def is_tool(tool: Any) -> bool:
    """Whether an entry of `tools/list` is an object with a name."""
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def hints_of(tool: Mapping[str, Any]) -> Mapping[str, bool]:
    """The known annotations of a tool that are booleans, and APP_ONLY if its `_meta.ui` says so."""
    annotations = tool.get("annotations")
    found: dict[str, bool] = {}
    if isinstance(annotations, dict):
        found = {name: annotations[name] for name in HINTS if isinstance(annotations.get(name), bool)}
    if _is_app_only(tool.get("_meta")):
        found[APP_ONLY] = True
    return MappingProxyType(found) if found else _NO_HINTS


def _is_app_only(meta: Any) -> bool:
    """Whether the visibility of a tool excludes models (SEP-1865); without a list it includes
    them.
    """
    ui = meta.get("ui") if isinstance(meta, dict) else None
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return isinstance(visibility, list) and "model" not in visibility


def filter_tools(page: RawJson, shows: Callable[[str], bool]) -> RawJson:
    """A page of `tools/list` without the tools that `shows` rejects, and without nameless ones.

    If a tool repeats a key, the page becomes empty: readers could take different names for it.
    """
    tools = members(page).get("tools")
    if tools is None or not tools.is_array:
        return page
    listed = page[tools.start : tools.end]
    try:
        found = elements(listed, {})
    except MalformedMessage:
        found = []
    shown = [listed[tool.start : tool.end] for tool in found if _is_shown(tool, shows)]
    return splice(page, [(tools.start, tools.end, f"[{','.join(shown)}]")])


def _is_shown(tool: Member, shows: Callable[[str], bool]) -> bool:
    name = value_of(tool.members or {}, "name")
    return isinstance(name, str) and shows(name)


HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""The annotations of a tool that rules read."""
_NO_HINTS: Final[Mapping[str, bool]] = MappingProxyType({})
