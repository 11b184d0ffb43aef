"""Pages of `tools/list` for this era, where a tool says nothing of tasks: `execution` goes (B-CONV-2). Pure."""

from functools import lru_cache
from typing import Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import removals, splice
from taskgate.jsontext.spans import RawJson, elements, members

MAX_REMEMBERED: Final = 64 * 1024
"""Pages up to so many characters are kept amended: servers send the same one again and again."""


def modern_tools(page: RawJson) -> RawJson:
    """The same as `without_execution`, remembered where the page is not too long for that."""
    return _remembered(page) if len(page) <= MAX_REMEMBERED else without_execution(page)


def without_execution(page: RawJson, most: int | None = None) -> RawJson:
    """An object with a list of `tools`, each without `execution`.

    It stays as it is where a tool repeats a key, or `elements` finds more than `most`.
    """
    tools = members(page).get("tools")
    if tools is None:
        return page
    try:
        listed = elements(page[tools.start : tools.end], {}, most)
    except MalformedMessage:
        return page
    edits = [edit for tool in listed for edit in removals(tool.members or {}, ("execution",))]
    return splice(page, [(tools.start + start, tools.start + end, by) for start, end, by in edits])


_remembered = lru_cache(maxsize=64)(without_execution)
