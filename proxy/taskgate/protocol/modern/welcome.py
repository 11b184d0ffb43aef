"""What servers of this era say about themselves: who they are, and which tools they have. Pure."""

from collections.abc import Mapping
from typing import Any

from taskgate.domain.versions import MODERN, Peer
from taskgate.errors import MalformedMessage
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.discovery import (
    MAX_WELCOME,
    CataloguePage,
    ListedTool,
    ServerDescription,
    ToolPage,
    filter_tools,
    hints_of,
    server_info,
    undefined_members,
)
from taskgate.protocol.faults import protocol_violation, request_refused
from taskgate.protocol.headers import read_header_paths
from taskgate.protocol.messages import Response, meta_of, short_info, value_of
from taskgate.protocol.vocabulary import MODERN_ERRORS, SERVER_INFO, UNSUPPORTED_VERSION


def read_discovery(response: Response) -> ServerDescription | None:
    """What a server said to `server/discover`; None where it serves no revision of this era that we know (V-ERA-7).

    So where it answered with an error that need not be of this era. Raises UpstreamFailed for one that is.
    """
    if response.error is not None:
        if response.error_code in MODERN_ERRORS and response.error_code != UNSUPPORTED_VERSION:
            raise request_refused("The server refused to say what it is")
        return None
    if len(response.text) > MAX_WELCOME:
        raise protocol_violation("its discovery is too long")
    text, found = _result(response, "its discovery")
    versions = value_of(found, "supportedVersions")
    if not isinstance(versions, list):
        raise protocol_violation("it names no versions that it supports")
    spoken = [revision for revision in MODERN if revision.value in versions]
    if not spoken:
        return None
    capabilities = found.get("capabilities")
    if capabilities is None or not isinstance(capabilities.value, dict):
        raise protocol_violation("it declared no capabilities")
    info = meta_of(found).get(SERVER_INFO)
    said = None if info is None else info.value
    return ServerDescription(
        peer=Peer(
            revision=spoken[-1],
            capabilities=capabilities.value,
            info=short_info(said) if isinstance(said, dict) else {},
        ),
        capabilities=text[capabilities.start : capabilities.end],
        instructions=_string(text, found, "instructions"),
        info=server_info(text, info),
        rest=undefined_members(text, found),
    )


def read_tools(response: Response) -> CataloguePage:
    """A page of the catalogue, without the tools whose annotations are not sound (H-MOD-5)."""
    if response.error is not None:
        raise request_refused("The server refused to list its tools")
    text, found = _result(response, "its list of tools")
    listed = found["tools"].whole if "tools" in found else None
    if not isinstance(listed, list):
        raise protocol_violation("its list of tools is no list")
    tools: dict[str, ListedTool] = {}
    unsound: list[str] = []
    for tool in filter(_is_tool, listed):
        mirrored = _mirrored(tool)
        if mirrored is None:
            unsound.append(tool["name"])
        else:
            tools[tool["name"]] = ListedTool(header_paths=mirrored, hints=hints_of(tool))
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
    return filter_tools(text, lambda name: name not in unsound) if unsound else None


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def _mirrored(tool: dict[str, Any]) -> Mapping[str, tuple[str, ...]] | None:
    """The arguments that headers repeat; None where the annotations are not sound."""
    try:
        return read_header_paths(tool.get("inputSchema"))
    except ValueError:
        return None


def _result(response: Response, what: str) -> tuple[RawJson, Members]:
    assert response.result is not None, "a response without an error has a result"
    text = response.text[response.result.start : response.result.end]
    try:
        # Both are amended for hosts, which a repeated key would not let happen.
        found = members(text, {"capabilities": {"extensions": {}, "experimental": {}}, "_meta": {}})
    except MalformedMessage:
        raise protocol_violation(f"{what} repeats a key, or has too many") from None
    kind = found.get("resultType")
    if kind is not None and kind.value != "complete":
        raise protocol_violation(f"{what} is not complete")
    return text, found


def _string(text: RawJson, found: Members, name: str) -> RawJson | None:
    member = found.get(name)
    return None if member is None or not isinstance(member.value, str) else text[member.start : member.end]
