"""Pages of `tools/list` for legacy hosts: `execution.taskSupport` of each tool (L-TOOL-1).

`LegacyDownstream.tools` calls `convert_tools` for a page of a modern server, then
`with_task_support` for every page. A page is the text of a result. Only `execution` of a tool
changes, and for a modern server also schemas that this era has no form for.
"""

from functools import lru_cache
from typing import Final

from taskgate.domain.policy import APP_ONLY, SupportOf, TaskSupport
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, insertion, removals, splice
from taskgate.jsontext.spans import Member, Members, RawJson, Shape, elements, members
from taskgate.protocol.discovery import hints_of
from taskgate.protocol.legacy.results import MODERN_MEMBERS
from taskgate.protocol.messages import value_of
from taskgate.protocol.meta import ObjectEdit, edit_object

MAX_CACHED: Final = 64 * 1024
"""Largest page that is cached, in characters: servers send the same page again and again."""

_TOOL: Final[Shape] = {"execution": {}}
_SCHEMAS: Final[Shape] = {"inputSchema": {"properties": {}}, "outputSchema": {"properties": {}}}


def with_task_support(page: RawJson, support: SupportOf | None) -> RawJson:
    """The page with `execution.taskSupport` by `support`; None removes `execution` from all tools.

    Results are cached by `support`, so it must always give the same answer for the same tool. A
    page that is no list of tools stays as it is. So does one with a tool that repeats a key: no
    edit could be right for every reader.
    """
    return _cached_support(page, support) if len(page) <= MAX_CACHED else _with_task_support(page, support)


def convert_tools(page: RawJson) -> RawJson:
    """A page of a modern server in legacy form (B-CONV-1, B-CONV-2, T-29).

    An output schema for anything but objects is removed. A property schema that is true or false
    becomes an object. Nested schemas stay, and so does a page with a tool that repeats a key.
    """
    return _cached_conversion(page) if len(page) <= MAX_CACHED else _convert(page)


def _convert(page: RawJson) -> RawJson:
    plain = edit_object(page, ObjectEdit(drop=MODERN_MEMBERS))
    tools = members(plain).get("tools")
    if tools is None:
        return plain
    try:
        found = elements(plain[tools.start : tools.end], _SCHEMAS)
    except MalformedMessage:
        return plain
    edits = [edit for tool in found for edit in _schema_edits(tool.members or {})]
    return splice(plain, [(tools.start + start, tools.start + end, by) for start, end, by in edits])


def _schema_edits(tool: Members) -> Edits:
    output = tool.get("outputSchema")
    is_unknown = output is not None and value_of(output.members or {}, "type") != "object"
    edits = removals(tool, ("outputSchema",)) if is_unknown else []
    for schema in (tool.get("inputSchema"), None if is_unknown else output):
        properties = (schema.members or {}).get("properties") if schema is not None else None
        for each in ((properties.members or {}) if properties is not None else {}).values():
            if isinstance(each.value, bool):
                edits.append((each.start, each.end, "{}" if each.value else '{"not":{}}'))
    return edits


def _with_task_support(page: RawJson, support: SupportOf | None) -> RawJson:
    tools = members(page).get("tools")
    if tools is None:
        return page
    edits: Edits = []
    listed = page[tools.start : tools.end]
    try:
        found = elements(listed, _TOOL)
    except MalformedMessage:
        return page
    for tool in found:
        name = (tool.members or {}).get("name")
        if tool.members is not None and name is not None and isinstance(name.value, str):
            edits += _tool_edits(listed, tool, tool.members, name.value, support)
    return splice(page, [(tools.start + start, tools.start + end, text) for start, end, text in edits])


def _tool_edits(listed: str, tool: Member, fields: Members, name: str, support: SupportOf | None) -> Edits:
    """The edits for one tool, whose members are `fields`; positions are those of `listed`."""
    execution = fields.get("execution")
    if support is None:
        return removals(fields, ("execution",))
    old = (execution.members or {}).get("taskSupport") if execution is not None else None
    hints = hints_of(tool.value)
    word = support(name, hints)
    if old is not None:
        return [(old.start, old.end, f'"{word}"')]
    if word is TaskSupport.FORBIDDEN and APP_ONLY in hints:
        # Views get the tool as its server lists it; no word means forbidden, too.
        return []
    if execution is not None and execution.members is not None:
        start, end, text = insertion(listed[execution.start : execution.end], "taskSupport", f'"{word}"')
        return [(execution.start + start, execution.start + end, text)]
    if execution is not None:
        return [(execution.start, execution.end, f'{{"taskSupport":"{word}"}}')]
    start, end, text = insertion(listed[tool.start : tool.end], "execution", f'{{"taskSupport":"{word}"}}')
    return [(tool.start + start, tool.start + end, text)]


_cached_support = lru_cache(maxsize=64)(_with_task_support)
_cached_conversion = lru_cache(maxsize=64)(_convert)
