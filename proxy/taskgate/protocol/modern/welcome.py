"""What servers of this era say about themselves: who they are, and which tools they have. Pure."""

from collections.abc import Mapping
from typing import Any

from taskgate.domain.versions import MODERN, Peer
from taskgate.errors import MalformedMessage
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.base import MAX_WELCOME, ListedTool, Server, ToolPage
from taskgate.protocol.catalogue import hints_of
from taskgate.protocol.envelope import Response
from taskgate.protocol.hiding import without_hidden
from taskgate.protocol.mirrored import mirrored_arguments
from taskgate.protocol.modern.breaches import broke, refused
from taskgate.protocol.modern_server import CataloguePage
from taskgate.protocol.reading import kept_info, meta_of, value_of
from taskgate.protocol.vocabulary import MODERN_ERRORS, SERVER_INFO, UNSUPPORTED_VERSION
from taskgate.protocol.welcomes import info_of, rest_of


def read_discovery(response: Response) -> Server | None:
    """What a server said to `server/discover`; None where it serves no revision of this era that we know (V-ERA-7).

    So where it answered with an error that need not be of this era. Raises UpstreamFailed for one that is.
    """
    if response.error is not None:
        if response.error_code in MODERN_ERRORS and response.error_code != UNSUPPORTED_VERSION:
            raise refused("The server refused to say what it is")
        return None
    if len(response.text) > MAX_WELCOME:
        raise broke("its discovery is too long")
    text, found = _result(response, "its discovery")
    versions = value_of(found, "supportedVersions")
    if not isinstance(versions, list):
        raise broke("it names no versions that it supports")
    spoken = [revision for revision in MODERN if revision.value in versions]
    if not spoken:
        return None
    capabilities = found.get("capabilities")
    if capabilities is None or not isinstance(capabilities.value, dict):
        raise broke("it declared no capabilities")
    info = meta_of(found).get(SERVER_INFO)
    said = None if info is None else info.value
    return Server(
        peer=Peer(
            revision=spoken[-1],
            capabilities=capabilities.value,
            info=kept_info(said) if isinstance(said, dict) else {},
        ),
        capabilities=text[capabilities.start : capabilities.end],
        instructions=_string(text, found, "instructions"),
        info=info_of(text, info),
        rest=rest_of(text, found),
    )


def read_tools(response: Response) -> CataloguePage:
    """A page of the catalogue, without the tools whose annotations are not sound (H-MOD-5)."""
    if response.error is not None:
        raise refused("The server refused to list its tools")
    text, found = _result(response, "its list of tools")
    listed = found["tools"].whole if "tools" in found else None
    if not isinstance(listed, list):
        raise broke("its list of tools is no list")
    tools: dict[str, ListedTool] = {}
    unsound: list[str] = []
    for tool in filter(_is_tool, listed):
        mirrored = _mirrored(tool)
        if mirrored is None:
            unsound.append(tool["name"])
        else:
            tools[tool["name"]] = ListedTool(mirrored=mirrored, hints=hints_of(tool))
    return CataloguePage(
        page=ToolPage(tools=tools, cursor=_string(text, found, "nextCursor")),
        refused=tuple(unsound),
    )


def sound_page(response: Response) -> RawJson | None:
    """The result of an answer to `tools/list` without the tools that `read_tools` leaves out; None where all may stay.

    So for what is no page of tools.
    """
    page = response.result
    place = (page.members or {}).get("tools") if page is not None else None
    if page is None or place is None or not place.is_array:
        return None
    tools = place.whole
    unsound = {tool["name"] for tool in tools if _is_tool(tool) and _mirrored(tool) is None}
    text = response.text[page.start : page.end]
    return without_hidden(text, lambda name: name not in unsound) if unsound else None


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def _mirrored(tool: dict[str, Any]) -> Mapping[str, tuple[str, ...]] | None:
    """The arguments that headers repeat; None where the annotations are not sound."""
    try:
        return mirrored_arguments(tool.get("inputSchema"))
    except ValueError:
        return None


def _result(response: Response, what: str) -> tuple[RawJson, Members]:
    assert response.result is not None, "a response without an error has a result"
    text = response.text[response.result.start : response.result.end]
    try:
        # Both are amended for hosts, which a repeated key would not let happen.
        found = members(text, {"capabilities": {"extensions": {}, "experimental": {}}, "_meta": {}})
    except MalformedMessage:
        raise broke(f"{what} repeats a key, or has too many") from None
    kind = found.get("resultType")
    if kind is not None and kind.value != "complete":
        raise broke(f"{what} is not complete")
    return text, found


def _string(text: RawJson, found: Members, name: str) -> RawJson | None:
    member = found.get(name)
    return None if member is None or not isinstance(member.value, str) else text[member.start : member.end]
