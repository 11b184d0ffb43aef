"""Amending a page of `tools/list` for hosts of the initialize era: L-TOOL-1. Only `execution` of a tool is touched."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from taskgate.dialects.base import SupportOf
from taskgate.errors import MalformedMessage
from taskgate.mcp.jsonrpc import Member, Members, RawJson, Shape, elements, insertion, members, removals, splice
from taskgate.tasks.policy import TaskSupport

MAX_REMEMBERED: Final = 64 * 1024
"""Pages up to so many characters are kept amended: servers send the same one again and again."""

_TOOL: Final[Shape] = {"execution": {}}


def amend_tools(page: RawJson, support: SupportOf | None) -> RawJson:
    """The page with `execution.taskSupport` as `support` says for each tool; None removes `execution`.

    `support` must give the same answer for the same tool, or be another object. A page that is no list of tools stays
    as it is, and so does one where a tool repeats a key: no edit could be right for every reader of it.
    """
    return _remembered(page, support) if len(page) <= MAX_REMEMBERED else _amend(page, support)


def without_hidden(page: RawJson, shows: Callable[[str], bool]) -> RawJson:
    """The page without the tools that `shows` says no to; what has no name cannot be judged and is left out too.

    Where a tool repeats a key, it would have a name for one reader and another for the next: then none is shown.
    """
    tools = members(page).get("tools")
    if tools is None or not isinstance(tools.value, list):
        return page
    listed = page[tools.start : tools.end]
    try:
        found = elements(listed, {})
    except MalformedMessage:
        found = []
    shown = [listed[tool.start : tool.end] for tool in found if _is_shown(tool, shows)]
    return splice(page, [(tools.start, tools.end, f"[{','.join(shown)}]")])


def _is_shown(tool: Member, shows: Callable[[str], bool]) -> bool:
    name = tool.value.get("name") if isinstance(tool.value, dict) else None
    return isinstance(name, str) and shows(name)


def _amend(page: RawJson, support: SupportOf | None) -> RawJson:
    tools = members(page).get("tools")
    if tools is None:
        return page
    edits: list[tuple[int, int, str]] = []
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


def _tool_edits(
    listed: str, tool: Member, fields: Members, name: str, support: SupportOf | None
) -> list[tuple[int, int, str]]:
    execution = fields.get("execution")
    if support is None:
        return removals(fields, ("execution",))
    said = (execution.members or {}).get("taskSupport") if execution is not None else None
    native = said.value if said is not None and isinstance(said.value, str) else None
    word = support(name, TaskSupport(native) if native in _WORDS else None)
    if said is not None:
        return [(said.start, said.end, f'"{word}"')]
    if execution is not None and execution.members is not None:
        start, end, text = insertion(listed[execution.start : execution.end], "taskSupport", f'"{word}"')
        return [(execution.start + start, execution.start + end, text)]
    if execution is not None:
        return [(execution.start, execution.end, f'{{"taskSupport":"{word}"}}')]
    start, end, text = insertion(listed[tool.start : tool.end], "execution", f'{{"taskSupport":"{word}"}}')
    return [(tool.start + start, tool.start + end, text)]


_remembered = lru_cache(maxsize=64)(_amend)
_WORDS = frozenset(TaskSupport)
