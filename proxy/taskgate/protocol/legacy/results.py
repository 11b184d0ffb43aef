"""Responses of servers as legacy hosts get them: those of modern servers, and pages of `tools/list`
(B-CONV-1, B-CONV-2, B-CONV-3, B-CONV-8, B-CONV-9, L-TOOL-1).

`LegacyDownstream` calls `convert_response` for a response that comes while its request waits, and
`legacy/tasks` calls `outcome_edit` for the stored result of a task. The conversion is a splice: all
other bytes of a server's payload stay. Content that a revision does not know is replaced by text,
and a tool result without `content` gets an empty one. Responses of legacy servers do not come to
`convert_response`; a stored result may be of either era.

`LegacyDownstream.tools` calls `convert_tools` for a page of a modern server, then
`with_task_support` for every page. A page is the text of a result. Only `execution` of a tool
changes, and for a modern server also schemas that this era has no form for.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from taskgate.domain.policy import APP_ONLY, SupportOf, TaskSupport
from taskgate.domain.record import RequestId
from taskgate.domain.versions import Revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, dump, insertion, removals, splice
from taskgate.jsontext.large import LargeJson, MessageText
from taskgate.jsontext.spans import Member, Members, RawJson, Shape, elements, members, skip_space, span_with_comma
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import hints_of
from taskgate.protocol.extensions import Extension
from taskgate.protocol.faults import as_internal, no_result, with_code
from taskgate.protocol.jsonrpc import error_text, with_id
from taskgate.protocol.messages import Response, amended, meta_of, value_of
from taskgate.protocol.meta import ObjectEdit, edit_object, edits_for

MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
"""Members of a result that the legacy era does not have."""
WITHOUT_TASK: Final = ObjectEdit(meta_drop=(names.RELATED_TASK, names.SUBSCRIPTION_ID), keeps_hop=True)
"""The change of a legacy server's result for a legacy host: its own task and stream leave `_meta`.

With `keeps_hop`, the other keys of one hop stay, as both sides are of one era.
"""
_WITHOUT_MODERN_MEMBERS: Final = ObjectEdit(drop=MODERN_MEMBERS)
_WOULD_CHANGE: Final = ("_meta", "ttlMs", "cacheScope")
"""Members of a result that change beside `resultType`."""
TextAt = Callable[[Member], RawJson]
"""The text of a member."""


@dataclass(slots=True)
class EraCrossing:
    """The facts that decide how a modern server's response is converted for a legacy host.

    `method` is that of the request, `host` the host's revision. `extension` is that of the method,
    None for a method of the core.
    """

    method: str
    host: Revision
    extension: Extension | None = None


def convert_response(id: RequestId, response: Response, crossing: EraCrossing) -> MessageText:
    """A server's response under the host's id. An incomplete result is an error (V-META-7)."""
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = convert_error(error, crossing.method, crossing.extension)
        return with_id(response, id) if converted == error else error_text(id, converted)
    if response.result is None or response.result.members is None or not is_complete(response, crossing.extension):
        return no_result(id)
    text, found = response.text, response.result.members
    change = _WITHOUT_MODERN_MEMBERS
    match crossing.method:
        case names.TOOLS_CALL if not _is_call_known(found, crossing.host):
            change = _call_edit(lambda member: text[member.start : member.end], found, crossing.host)
        case "prompts/get" if "messages" in found:
            messages = text[found["messages"].start : found["messages"].end]
            change = ObjectEdit(put={"messages": convert_messages(messages, crossing.host)}, drop=MODERN_MEMBERS)
    written, kind, (at, id_end) = str(id) if type(id) is int else dump(id), found.get("resultType"), response.id_span
    is_common = change is _WITHOUT_MODERN_MEMBERS and kind is not None and found.keys().isdisjoint(_WOULD_CHANGE)
    if is_common and kind is not None and response.body is None:
        # The common case: the type of the result goes, and nothing else.
        start, end = span_with_comma(found, kind)
        if at < start:
            return f"{text[:at]}{written}{text[id_end:start]}{text[end:]}"
        return f"{text[:start]}{text[end:at]}{written}{text[id_end:]}"
    return amended(response, [(at, id_end, written), *edits_for(found, response.result.start, change)])


def is_complete(response: Response, extension: Extension | None = None) -> bool:
    """Whether a modern server's response has a complete result; false for an error.

    `extension` is that of the request's method: its results may have other types.
    """
    found = None if response.result is None else response.result.members
    if found is None or "resultType" not in found:
        return found is not None
    kind = found["resultType"].value
    return kind == "complete" or (extension is not None and extension.allows_result(kind))


def outcome_edit(found: Members, text_at: TextAt, host: Revision = Revision.R2025_11_25) -> ObjectEdit:
    """The change of a task's result for its host, if the server may be of either era.

    A result with neither `resultType` nor serverInfo is of a legacy server. Only 2025-11-25 has
    tasks; a host of another revision has the handle of a call. `text_at` returns the text of a member
    of `found`.
    """
    if "resultType" not in found and names.SERVER_INFO not in meta_of(found):
        return ObjectEdit(keeps_hop=True)
    if _is_call_known(found, host):
        return _WITHOUT_MODERN_MEMBERS
    return _call_edit(text_at, found, host)


def may_be_modern(result: RawJson) -> bool:
    """Whether a result may come from a modern server, by a fast string search.

    True may be wrong; False is always right.
    """
    return '"resultType"' in result or names.SERVER_INFO in result


def convert_error(error: RawJson, method: str, extension: Extension | None = None) -> RawJson:
    """An error with the legacy code of the same meaning; codes of an extension stay (X-EXT-31)."""
    found = members(error)
    code = found["code"].value
    if extension is not None and code in extension.codes:
        return error
    if code in names.MODERN_ERRORS:
        return as_internal(error)
    if method == "resources/read" and code == names.INVALID_PARAMS and _is_not_found(error):
        return with_code(error, names.RESOURCE_NOT_FOUND)
    return error


def convert_large_error(error: LargeJson) -> MessageText:
    """As `convert_error`, for a large error of a call. One that must change is decoded as a whole."""
    fits = error.members["code"].value not in names.MODERN_ERRORS
    return error.spliced(()) if fits else as_internal(error.text())


def _is_call_known(found: Members, host: Revision) -> bool:
    """Whether the host knows all of a tool result but its modern members."""
    structured = found.get("structuredContent")
    return "content" in found and (structured is None or structured.is_object) and host not in _UNKNOWN_KINDS


def _call_edit(text_at: TextAt, found: Members, host: Revision) -> ObjectEdit:
    """The change of a tool result. Structured content must be an object in the legacy era: any
    other becomes text.
    """
    structured, content = found.get("structuredContent"), found.get("content")
    is_unknown = structured is not None and not structured.is_object
    unknown = text_at(structured) if structured is not None and is_unknown else None
    put = {"content": convert_content("[]" if content is None else text_at(content), host, unknown)}
    return ObjectEdit(put=put, drop=(*MODERN_MEMBERS, "structuredContent") if is_unknown else MODERN_MEMBERS)


def _is_not_found(error: RawJson) -> bool:
    """Whether an error says that a resource does not exist: its data has a URI, or its message says
    so.
    """
    found = members(error)
    data, message = value_of(found, "data"), value_of(found, "message")
    return (isinstance(data, dict) and isinstance(data.get("uri"), str)) or "not found" in str(message).lower()


# --- content ----------------------------------------------------------------------------------------------------------
#
# Content blocks that a revision does not know become text (B-CONV-3). If something repeats a key,
# all stays as it is: two readers could read it differently. So does content with more than
# `MAX_BLOCKS` blocks: reading each would block all other calls.

MAX_BLOCKS: Final = 4096
"""Largest number of content blocks, or messages of a prompt, that are converted."""
LONG: Final = 64 * 1024
"""Length of content and structured content up to which both are parsed to compare them, in
characters.
"""
_UNKNOWN_KINDS: Final = {
    Revision.R2024_11_05: ("audio", "resource_link"),
    Revision.R2025_03_26: ("resource_link",),
}
"""The kinds of blocks that are newer than a revision; the newest two legacy revisions know all."""
_UNREADABLE: Final = object()
"""Stands for the value of a text that is no JSON."""


def convert_content(content: RawJson, host: Revision, structured: RawJson | None) -> RawJson:
    """The content of a tool's result for that revision.

    `structured` is structured content that the host cannot read. It becomes a text block, unless a
    text block has it already.
    """
    kinds = _UNKNOWN_KINDS.get(host, ())
    converted = _convert_blocks(content, kinds) if kinds else content
    return converted if structured is None or _has_text(converted, structured) else _with_text(converted, structured)


def convert_messages(messages: RawJson, host: Revision) -> RawJson:
    """The messages of a prompt for that revision."""
    kinds = _UNKNOWN_KINDS.get(host, ())
    if not kinds:
        return messages
    try:
        found = [(each.members or {}).get("content") for each in elements(messages, {"content": {}}, MAX_BLOCKS)]
    except MalformedMessage:
        return messages
    return splice(messages, _block_edits(messages, filter(None, found), kinds))


def _convert_blocks(content: RawJson, kinds: tuple[str, ...]) -> RawJson:
    try:
        return splice(content, _block_edits(content, elements(content, {}, MAX_BLOCKS), kinds))
    except MalformedMessage:
        return content


def _block_edits(text: str, blocks: Iterable[Member], kinds: tuple[str, ...]) -> Edits:
    return [
        (block.start, block.end, _as_text(text, block.members))
        for block in blocks
        if block.members is not None and value_of(block.members, "type") in kinds
    ]


def _as_text(text: str, block: Members) -> RawJson:
    """A text block in place of an unknown one, with its annotations."""
    if value_of(block, "type") == "audio":
        line = f"[audio ({_string(block, 'mimeType')}), which this protocol version cannot carry]"
    else:
        link = f"{_string(block, 'title') or _string(block, 'name')}: {_string(block, 'uri')}"
        line = "\n".join(filter(None, [link, _string(block, "description")]))
    annotations = block.get("annotations")
    more = "" if annotations is None else f',"annotations":{text[annotations.start : annotations.end]}'
    return _text_block(line, more)


def _string(block: Members, name: str) -> str:
    value = value_of(block, name)
    return value if isinstance(value, str) else ""


def _with_text(content: RawJson, text: str) -> RawJson:
    block = _text_block(text)
    if not content.startswith("["):
        return f"[{block}]"
    end = len(content) - 1
    comma = "" if skip_space(content, 1) == end else ","
    return f"{content[:end]}{comma}{block}]"


def _text_block(text: str, more: str = "") -> RawJson:
    # The standard encoder: a server's text may have a lone surrogate, which JSON can only escape.
    return f'{{"type":"text","text":{json.dumps(text)}{more}}}'


def _has_text(content: RawJson, structured: RawJson) -> bool:
    """Whether a text block equals the structured content: as any spelling of its JSON, or as its
    string.

    If they are long together, they are compared without white space, because parsing them would
    take seconds.
    """
    if len(content) + len(structured) > LONG:
        return _has_long_text(content, structured)
    wanted, parsed = _canonical(structured), _parse(content)
    blocks = [block for block in (parsed if isinstance(parsed, list) else []) if isinstance(block, dict)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return wanted is not None and any(wanted in (json.dumps(text), _canonical(text)) for text in texts)


def _has_long_text(content: RawJson, structured: RawJson) -> bool:
    try:
        blocks = elements(content, {}, MAX_BLOCKS)
    except MalformedMessage:
        return False
    texts = [_string(block.members, "text") for block in blocks if block.members is not None]
    if structured.startswith('"'):
        return _parse(structured) in texts
    wanted = _without_space(structured)
    return any(_without_space(text) == wanted for text in texts)


def _without_space(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, b" \t\r\n")


def _canonical(text: str) -> str | None:
    """A JSON text in canonical form; None for text that is no JSON or too deep."""
    try:
        return json.dumps(_parse(text), sort_keys=True)
    except (TypeError, RecursionError):
        return None


def _parse(text: str) -> Any:
    """The value of a JSON text; `_UNREADABLE`, which is no JSON value, on failure."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


# --- pages of tools ---------------------------------------------------------------------------------------------------


MAX_CACHED: Final = 64 * 1024
"""Largest page that is cached, in characters: servers send the same page again and again."""

_TOOL: Final[Shape] = {"execution": {}}
_SCHEMAS: Final[Shape] = {"inputSchema": {"properties": {}}, "outputSchema": {"properties": {}}}


def with_task_support(page: RawJson, support: SupportOf | None) -> RawJson:
    """The page with `execution.taskSupport` by `support`; None removes `execution` from all tools.

    A tool of which `support` says nothing keeps what its server lists.

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
    if word is None:
        return []
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
