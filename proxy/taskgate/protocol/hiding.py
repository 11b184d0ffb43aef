"""Pages of `tools/list` without the tools that a host must not see, for hosts of either era. Pure."""

from collections.abc import Callable

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import splice
from taskgate.jsontext.spans import Member, RawJson, elements, members
from taskgate.protocol.reading import value_of


def without_hidden(page: RawJson, shows: Callable[[str], bool]) -> RawJson:
    """The page without the tools that `shows` says no to; what has no name cannot be judged and is left out too.

    Where a tool repeats a key, it would have a name for one reader and another for the next: then none is shown.
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
