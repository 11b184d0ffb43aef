"""Responses of servers of either era for modern hosts: complete results, and errors with known
codes.

A result is complete if it has what modern hosts require: `resultType`, for some methods how it may
be cached, and for a tool `content`. `era` is always that of the server. `info` is a serverInfo to
put in the result; None puts none. The conversion is a splice: all other bytes of a server's payload
stay (B-CONV-1, B-CONV-8, B-CONV-9). Results and errors come from messages that were read strictly,
so none repeats a key at its top.
"""

import re
from functools import lru_cache
from typing import Any, Final

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Era
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump, removals, splice
from taskgate.jsontext.large import LargeJson, MessageText
from taskgate.jsontext.spans import Members, RawJson, elements, may_have_key, members
from taskgate.protocol.extensions import Extension
from taskgate.protocol.faults import as_internal, no_result, with_code
from taskgate.protocol.jsonrpc import error_text, with_id
from taskgate.protocol.messages import Response, amended, meta_of, value_of
from taskgate.protocol.meta import ObjectEdit, edits_for
from taskgate.protocol.vocabulary import (
    CACHEABLE_METHODS,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    RELATED_TASK,
    RESERVED_CODES,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    TOOLS_CALL,
)

_COMPLETE: Final = {"resultType": '"complete"'}
_NOT_CACHED: Final = {"ttlMs": "0", "cacheScope": '"private"'}
_PRIVATE: Final = {"cacheScope": '"private"'}
_NO_TASK: Final = (RELATED_TASK,)
_MAY_CHANGE: Final = ("_meta", "ttlMs", "cacheScope", "task")
"""Members of a result whose values decide what changes; without them, `_cached_prefix` has the change.
"""
_WOULD_CHANGE: Final = ("resultType", "_meta", "cacheScope")
"""Members of a stored result that may have to change; without them, only `resultType` is added."""
_BEGINS_WITH_CONTENT: Final = re.compile(r'\{[ \t\n\r]*"content"[ \t\n\r]*:').match
_SAMPLES: Final = {
    (False, False): '{"isError":false}',
    (False, True): '{"content":[]}',
    (True, False): '{"resultType":"complete"}',
    (True, True): '{"resultType":"complete","content":[]}',
}
"""Sample results, by whether they have a `resultType` and whether they have content."""


def complete_result(result: RawJson, method: str, info: RawJson | None, era: Era = Era.LEGACY) -> RawJson:
    """A result of a server of that era as a complete modern one.

    `info` becomes its serverInfo; None leaves a modern server's own, and adds none for a legacy
    server.
    """
    found = members(result, {"_meta": {}})
    return splice(result, edits_for(found, result.index("{"), _completion(found, method, info, era)))


def nested_result(result: RawJson, *, names_server: bool = True, info: RawJson | None = None) -> RawJson:
    """The stored result of a call, of either era, as a complete one, also inside of another result.

    With `names_server` it keeps the serverInfo that it has, unless `info` replaces it. A result that
    begins with its content, and has nothing to change, is not walked: it may be large.
    """
    if info is None and _BEGINS_WITH_CONTENT(result) and not may_have_key(result, *_WOULD_CHANGE):
        return result.replace("{", '{"resultType":"complete",', 1)
    found = members(result, {"_meta": {}})
    if info is None and "content" in found and "_meta" not in found and "resultType" in found:
        _, _, start, end, _ = found["resultType"]
        if result[start:end] == '"complete"':
            # It came from a modern server, and is complete.
            return result
    change = _nested_completion(found, names_server=names_server, info=info)
    return splice(result, edits_for(found, result.index("{"), change))


def nested_large_result(result: LargeJson, *, names_server: bool = True, info: RawJson | None = None) -> MessageText:
    """As `nested_result`, for a large result of a call."""
    found = result.members
    return result.spliced(edits_for(found, 0, _nested_completion(found, names_server=names_server, info=info)))


def is_complete(response: Response, method: str, era: Era) -> bool:
    """Whether a server's response can be completed for a host.

    False for an error, for a round, and for a task that was not asked for.
    """
    return _complete_members(response, method, era) is not None


def convert_response(
    id: RequestId,
    method: str,
    response: Response,
    era: Era,
    info: RawJson | None = None,
    extension: Extension | None = None,
) -> MessageText:
    """A server's response to that method under the host's id. An incomplete result is an error.

    `extension` is that of the method, None for a method of the core.
    """
    return complete_response(id, method, response, era, info, extension) or no_result(id)


def complete_response(
    id: RequestId,
    method: str,
    response: Response,
    era: Era,
    info: RawJson | None = None,
    extension: Extension | None = None,
) -> MessageText | None:
    """As `convert_response`, but None for an incomplete result of a method of the core: it may be a
    round.
    """
    if extension is not None:
        return _convert_extension_response(id, method, response, era, info, extension)
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = convert_error(error, era)
        return with_id(response, id) if converted == error else error_text(id, converted)
    found = _complete_members(response, method, era)
    if response.result is None or found is None:
        return None
    (start, end), at = response.id_span, response.result.start + 1
    written = id if type(id) is int else dump(id)
    is_typed = "resultType" in found
    if found and end < at and found.keys().isdisjoint(_MAY_CHANGE) and not (is_typed and era is Era.LEGACY):
        # A common result gets members before its first one, and nothing else changes.
        new = _cached_prefix(_SAMPLES[is_typed, "content" in found], method, info, era)
        if response.body is not None:
            return amended(response, [(start, end, str(written)), (at, at, new)])
        text = response.text
        return f"{text[:start]}{written}{text[end:at]}{new}{text[at:]}"
    edits = edits_for(found, at - 1, _completion(found, method, info, era))
    return amended(response, [(start, end, str(written)), *edits])


def _convert_extension_response(
    id: RequestId, method: str, response: Response, era: Era, info: RawJson | None, extension: Extension
) -> MessageText:
    """As `convert_response`, for a method of an extension: that defines result types and codes
    (X-EXT-21, X-EXT-31).
    """
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = error if _code_of(error) in extension.codes else convert_error(error, era)
        return with_id(response, id) if converted == error else error_text(id, converted)
    found = response.result.members if response.result is not None else None
    if response.result is None or found is None:
        return no_result(id)
    kind = found.get("resultType")
    if era is Era.MODERN and kind is not None and not extension.allows_result(kind.value):
        return no_result(id)
    put = _modern_completion(found, is_cacheable=method in extension.cacheable)
    if kind is not None and not extension.allows_result(kind.value):
        # A member of a legacy server that happens to have that name.
        put |= _COMPLETE
    meta_put = {} if info is None else {SERVER_INFO: info}
    if SUBSCRIPTION_ID in meta_of(found):
        # The result of a stream names it, like the notifications on it.
        meta_put[SUBSCRIPTION_ID] = dump(id)
    change = ObjectEdit(put, (), meta_put, _NO_TASK, era is Era.MODERN)
    edits = edits_for(found, response.result.start, change)
    return amended(response, [(*response.id_span, dump(id)), *edits])


def _code_of(error: RawJson) -> Any:
    return members(error)["code"].value


def convert_error(error: RawJson, era: Era = Era.LEGACY) -> RawJson:
    """An error of a server of that era with the modern code of the same meaning (B-CONV-8).

    A code about the host's message to the gateway, or a reserved code, becomes an internal error
    with `upstreamCode` in its data. A missing capability passes from a modern server, which knows
    the host's.
    """
    code = _code_of(error)
    if code == RESOURCE_NOT_FOUND:
        return with_code(error, INVALID_PARAMS)
    if code not in RESERVED_CODES or (era is Era.MODERN and code == MISSING_CAPABILITY):
        return error
    return as_internal(error)


def convert_large_error(error: LargeJson) -> MessageText:
    """As `convert_error`, for a large error of a call. One that must change is decoded whole."""
    code = error.members["code"].value
    is_known = code != RESOURCE_NOT_FOUND and code not in RESERVED_CODES
    return error.spliced(()) if is_known else convert_error(error.text())


def _complete_members(response: Response, method: str, era: Era) -> Members | None:
    """The members of the result; None if `is_complete` is false."""
    found = response.result.members if response.result is not None else None
    if found is None:
        return None
    if era is Era.MODERN:
        # A round is incomplete, a task was not asked for, and other types are unknown (V-META-7).
        return found if "resultType" not in found or found["resultType"].value == "complete" else None
    # A legacy server's task was not asked for: the call had no `task`.
    return None if method == TOOLS_CALL and "task" in found and "content" not in found else found


def _completion(found: Members, method: str, info: RawJson | None, era: Era) -> ObjectEdit:
    """The change that makes a result with these members complete."""
    is_cacheable = method in CACHEABLE_METHODS
    if era is Era.MODERN:
        put = _modern_completion(found, is_cacheable=is_cacheable)
    else:
        put = _COMPLETE | _NOT_CACHED if is_cacheable else dict(_COMPLETE)
    if method == TOOLS_CALL and "content" not in found:
        # Modern hosts require content (M-GET-2).
        put["content"] = "[]"
    meta_put = {} if info is None else {SERVER_INFO: info}
    return ObjectEdit(put, (), meta_put, _NO_TASK, era is Era.MODERN)


def _nested_completion(found: Members, *, names_server: bool, info: RawJson | None) -> ObjectEdit:
    """The change of a stored result of a call, whose server may be of either era."""
    change = _completion(found, TOOLS_CALL, info, Era.LEGACY)
    return change._replace(meta_keep=(SERVER_INFO,)) if names_server and info is None else change


@lru_cache(maxsize=256)
def _cached_prefix(sample: RawJson, method: str, info: RawJson | None, era: Era) -> RawJson:
    """The prefix for every result that has the members of `sample`, and others that decide
    nothing.
    """
    found = members(sample)
    return "".join(new for _, _, new in edits_for(found, 0, _completion(found, method, info, era)))


def _modern_completion(found: Members, *, is_cacheable: bool) -> dict[str, RawJson]:
    """The members to put in a modern server's result: only its host may cache it (V-CACHE-1)."""
    put = {} if "resultType" in found else dict(_COMPLETE)
    if is_cacheable:
        put |= _PRIVATE if _is_time(value_of(found, "ttlMs")) else _NOT_CACHED
    elif "cacheScope" in found:
        put |= _PRIVATE
    return put


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# --- pages of `tools/list` --------------------------------------------------------------------------------------------

MAX_CACHED: Final = 64 * 1024
"""Largest page that is cached, in characters: servers send the same page again and again."""


def convert_tools(page: RawJson) -> RawJson:
    """A page of `tools/list` without `execution`, which this era does not have (B-CONV-2);
    cached.
    """
    return _cached_conversion(page) if len(page) <= MAX_CACHED else without_execution(page)


def without_execution(page: RawJson, limit: int | None = None) -> RawJson:
    """An object with a list of `tools`, each without `execution`.

    It stays as it is if a tool repeats a key, or `elements` finds more than `limit`.
    """
    tools = members(page).get("tools")
    if tools is None:
        return page
    try:
        listed = elements(page[tools.start : tools.end], {}, limit)
    except MalformedMessage:
        return page
    edits = [edit for tool in listed for edit in removals(tool.members or {}, ("execution",))]
    return splice(page, [(tools.start + start, tools.start + end, by) for start, end, by in edits])


_cached_conversion = lru_cache(maxsize=64)(without_execution)
