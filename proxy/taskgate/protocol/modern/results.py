"""What servers of either era answer, as this era has it: complete results, and errors by codes it knows.

Splices into the text, so that a server's payload stays to the byte (B-CONV-1, B-CONV-8, B-CONV-9). Pure. Results and
errors come out of messages that were read strictly: none repeats a key at its top.
"""

import re
from functools import lru_cache
from typing import Any, Final

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Era
from taskgate.jsontext.edits import dump, insertion, may_have_key, splice
from taskgate.jsontext.large import LargeJson, MessageText
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.extensions import Extension
from taskgate.protocol.faults import as_internal, no_result, with_code
from taskgate.protocol.jsonrpc import error_text, with_id
from taskgate.protocol.messages import Response, meta_of, value_of
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
_NEVER_KEPT: Final = {"ttlMs": "0", "cacheScope": '"private"'}
_PRIVATE: Final = {"cacheScope": '"private"'}
_NO_TASK: Final = (RELATED_TASK,)
_MAY_CHANGE: Final = ("_meta", "ttlMs", "cacheScope", "task")
_WOULD_CHANGE: Final = ("resultType", "_meta", "cacheScope")
_BEGINS_WITH_CONTENT: Final = re.compile(r'\{[ \t\n\r]*"content"[ \t\n\r]*:').match
_SAMPLES: Final = {
    (False, False): '{"isError":false}',
    (False, True): '{"content":[]}',
    (True, False): '{"resultType":"complete"}',
    (True, True): '{"resultType":"complete","content":[]}',
}
"""Results by whether they name their type and whether they have content."""


def complete(result: RawJson, method: str, info: RawJson | None, era: Era = Era.LEGACY) -> RawJson:
    """The result of that method of a server of that era as a complete one of this era.

    `info` is told as its serverInfo; None leaves what a server of this era says, and tells none of one of the other.
    """
    found = members(result, {"_meta": {}})
    return splice(result, edits_for(found, result.index("{"), _completion(found, method, info, era)))


def complete_within(result: RawJson, *, names_server: bool = True) -> RawJson:
    """The result of a call, whatever the era of its server, as a complete one inside another result.

    It tells which server it is of as far as that did, if it `names_server` at all. It may be large: one that begins
    with its content, and has nothing that would change, is not read.
    """
    begins_with_content = _BEGINS_WITH_CONTENT(result) is not None
    if begins_with_content and not any(may_have_key(result, key) for key in _WOULD_CHANGE):
        _, _, typed = insertion(result, "resultType", _COMPLETE["resultType"])
        return result.replace("{", f"{{{typed}", 1)
    found = members(result, {"_meta": {}})
    return splice(result, edits_for(found, result.index("{"), _completion_within(found, names_server=names_server)))


def large_complete_within(result: LargeJson, *, names_server: bool = True) -> MessageText:
    """The same of a large result of a call."""
    found = result.members
    return result.spliced(edits_for(found, 0, _completion_within(found, names_server=names_server)))


def is_complete(response: Response, method: str, era: Era) -> bool:
    """Whether a server of that era answered the method, rather than with an error or with what breaks the protocol."""
    return _complete_members(response, method, era) is not None


def answer(
    id: RequestId, method: str, response: Response, info: RawJson | None, era: Era, extension: Extension | None = None
) -> str:
    """A server's response to that method under the host's id; what is no result of it breaks the protocol.

    `extension` is that of the method, None for one of the core.
    """
    if extension is not None:
        return _of_extension(id, method, response, info, era, extension)
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = modern_error(error, era)
        return with_id(response, id) if converted == error else error_text(id, converted)
    found = _complete_members(response, method, era)
    if response.result is None or found is None:
        return no_result(id)
    text, (start, end), at = response.text, response.id_span, response.result.start + 1
    new = _added_usually(found, method, info, era) if end < at else None
    if new is not None:
        return f"{text[:start]}{dump(id)}{text[end:at]}{new}{text[at:]}"
    edits = edits_for(found, at - 1, _completion(found, method, info, era))
    return splice(text, [(start, end, dump(id)), *edits])


def _of_extension(
    id: RequestId, method: str, response: Response, info: RawJson | None, era: Era, extension: Extension
) -> str:
    """The same for a method of a carried extension, whose result has whatever that extension says (X-EXT-21, 31)."""
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = error if _code_of(error) in extension.codes else modern_error(error, era)
        return with_id(response, id) if converted == error else error_text(id, converted)
    found = response.result.members if response.result is not None else None
    if response.result is None or found is None:
        return no_result(id)
    kind = found.get("resultType")
    if era is Era.MODERN and kind is not None and not extension.allows_result(kind.value):
        return no_result(id)
    put = _own_words(found, is_cacheable=method in extension.cacheable)
    if kind is not None and not extension.allows_result(kind.value):
        # A word of a session's server that happens to have that name.
        put |= _COMPLETE
    meta_put = {} if info is None else {SERVER_INFO: info}
    if SUBSCRIPTION_ID in meta_of(found):
        # The result of a stream names it, as what was told on it does.
        meta_put[SUBSCRIPTION_ID] = dump(id)
    change = ObjectEdit(put, (), meta_put, _NO_TASK, era is Era.MODERN)
    edits = edits_for(found, response.result.start, change)
    return splice(response.text, [(*response.id_span, dump(id)), *edits])


def _code_of(error: RawJson) -> Any:
    return members(error)["code"].value


def modern_error(error: RawJson, era: Era = Era.LEGACY) -> RawJson:
    """An error of a server of that era under a code that means here what was meant (B-CONV-8).

    A code that would speak of the host's message to the gateway, or that means nothing yet, is an internal error that
    names it as `upstreamCode` in its data. A server of this era knows what the host declares, so what it misses there
    is for the host to hear.
    """
    code = _code_of(error)
    if code == RESOURCE_NOT_FOUND:
        return with_code(error, INVALID_PARAMS)
    if code not in RESERVED_CODES or (era is Era.MODERN and code == MISSING_CAPABILITY):
        return error
    return as_internal(error)


def large_modern_error(error: LargeJson) -> MessageText:
    """The same of a large error; one that changes is read as a whole."""
    code = error.members["code"].value
    is_of_this_era = code != RESOURCE_NOT_FOUND and code not in RESERVED_CODES
    return error.spliced(()) if is_of_this_era else modern_error(error.text())


def _complete_members(response: Response, method: str, era: Era) -> Members | None:
    found = response.result.members if response.result is not None else None
    if found is None:
        return None
    if era is Era.MODERN:
        # A round is no answer yet, a task was not asked for, and what else there may be means nothing (V-META-7).
        return found if "resultType" not in found or found["resultType"].value == "complete" else None
    # A task of the server's own was not asked for: no `task` went out with the call.
    return None if method == TOOLS_CALL and "task" in found and "content" not in found else found


def _completion(found: Members, method: str, info: RawJson | None, era: Era) -> ObjectEdit:
    is_cacheable = method in CACHEABLE_METHODS
    put = _own_words(found, is_cacheable=is_cacheable) if era is Era.MODERN else _our_words(is_cacheable=is_cacheable)
    if method == TOOLS_CALL and "content" not in found:
        # Hosts of this era read no result without it (M-GET-2).
        put["content"] = "[]"
    meta_put = {} if info is None else {SERVER_INFO: info}
    return ObjectEdit(put, (), meta_put, _NO_TASK, era is Era.MODERN)


def _completion_within(found: Members, *, names_server: bool) -> ObjectEdit:
    change = _completion(found, TOOLS_CALL, None, Era.LEGACY)
    return change._replace(meta_keep=(SERVER_INFO,)) if names_server else change


def _added_usually(found: Members, method: str, info: RawJson | None, era: Era) -> RawJson | None:
    """What is put in front of the members of a result of which none changes, as nearly always; None for any other."""
    is_typed = "resultType" in found
    if not found or (is_typed and era is Era.LEGACY) or not found.keys().isdisjoint(_MAY_CHANGE):
        return None
    return _put_in_front(_SAMPLES[is_typed, "content" in found], method, info, era)


@lru_cache(maxsize=256)
def _put_in_front(sample: RawJson, method: str, info: RawJson | None, era: Era) -> RawJson:
    """The same for every result that has what the sample has, and other members that mean nothing here."""
    found = members(sample)
    return "".join(new for _, _, new in edits_for(found, 0, _completion(found, method, info, era)))


def _our_words(*, is_cacheable: bool) -> dict[str, RawJson]:
    """What this era adds to a result of the other."""
    return _COMPLETE | _NEVER_KEPT if is_cacheable else dict(_COMPLETE)


def _own_words(found: Members, *, is_cacheable: bool) -> dict[str, RawJson]:
    """What changes in a result of this era: nobody but the host it is for may keep it (V-CACHE-1)."""
    put = {} if "resultType" in found else dict(_COMPLETE)
    if is_cacheable:
        put |= _PRIVATE if _is_time(value_of(found, "ttlMs")) else _NEVER_KEPT
    elif "cacheScope" in found:
        put |= _PRIVATE
    return put


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
