"""What servers of the modern era answer, as hosts of this era have it (B-CONV-1, B-CONV-3, B-CONV-8, B-CONV-9).

Splices into the text, so that the rest of a server's payload stays to the byte. Pure. What must not live here: the
catalogue of tools (`tools`), and what servers of this era answer, which stays as it is.
"""

from collections.abc import Callable
from typing import Final

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Revision
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.large import LargeJson, MessageText
from taskgate.jsontext.spans import Member, Members, RawJson, members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.dialects import EraCrossing
from taskgate.protocol.extensions import Extension
from taskgate.protocol.faults import as_internal, no_result, with_code
from taskgate.protocol.jsonrpc import error_text, with_id
from taskgate.protocol.legacy.content import fitting_content, fitting_messages, knows_all_content
from taskgate.protocol.messages import Response, meta_of, value_of
from taskgate.protocol.meta import ObjectEdit, edits_for

OTHER_ERA: Final = ("resultType", "ttlMs", "cacheScope")
"""Members of a result that this era does not have."""
NO_TASK: Final = ObjectEdit(meta_drop=(words.RELATED_TASK, words.SUBSCRIPTION_ID), keeps_hop=True)
"""What becomes of a result of a server of this era that names a task of its own."""
TextAt = Callable[[Member], RawJson]
"""The text of a member."""
_NEWEST_CODES: Final = frozenset({words.HEADER_MISMATCH, words.MISSING_CAPABILITY, words.UNSUPPORTED_VERSION})


def answer(id: RequestId, response: Response, foreign: EraCrossing) -> str:
    """A server's response under the host's id; what is no complete result breaks the protocol (V-META-7)."""
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        converted = fitting_error(error, foreign.method, foreign.extension)
        return with_id(response, id) if converted == error else error_text(id, converted)
    if response.result is None or response.result.members is None or not is_complete(response, foreign.extension):
        return no_result(id)
    change = _fitting(response.text, response.result.members, foreign)
    edits = edits_for(response.result.members, response.result.start, change)
    return splice(response.text, [(*response.id_span, dump(id)), *edits])


def is_complete(response: Response, extension: Extension | None = None) -> bool:
    """Whether a server answered, rather than with an error or with what breaks the protocol."""
    found = None if response.result is None else response.result.members
    if found is None or "resultType" not in found:
        return found is not None
    kind = found["resultType"].value
    return kind == "complete" or (extension is not None and extension.allows_result(kind))


def fitting_outcome(found: Members, text_at: TextAt) -> ObjectEdit:
    """What becomes of the result of a call that a task was made of, by its members, whatever the era of its server.

    Only 2025-11-25 has tasks, so that is its host's revision.
    """
    if "resultType" not in found and words.SERVER_INFO not in meta_of(found):
        return ObjectEdit(keeps_hop=True)
    return _fitting_call(text_at, found, Revision.R2025_11_25)


def may_not_fit(result: RawJson) -> bool:
    """Whether the result can be of another era: told for certain where it is not, without reading it."""
    return '"resultType"' in result or words.SERVER_INFO in result


def fitting_error(error: RawJson, method: str, extension: Extension | None = None) -> RawJson:
    """An error of a server under a code that means here what was meant; codes of an extension stay (X-EXT-31)."""
    found = members(error)
    code = found["code"].value
    if extension is not None and code in extension.codes:
        return error
    if code in _NEWEST_CODES:
        return as_internal(error)
    if method == "resources/read" and code == words.INVALID_PARAMS and _is_not_found(error):
        return with_code(error, words.RESOURCE_NOT_FOUND)
    return error


def large_fitting_error(error: LargeJson) -> MessageText:
    """The same of a large error of a call; one that changes is read as a whole."""
    fits = error.members["code"].value not in _NEWEST_CODES
    return error.spliced(()) if fits else as_internal(error.text())


def _fitting(text: str, found: Members, foreign: EraCrossing) -> ObjectEdit:
    """What is to become of a result with these members."""
    match foreign.method:
        case words.TOOLS_CALL:
            return _fitting_call(lambda member: _text_of(text, member), found, foreign.host)
        case "prompts/get" if "messages" in found:
            messages = _text_of(text, found["messages"])
            return ObjectEdit(put={"messages": fitting_messages(messages, foreign.host)}, drop=OTHER_ERA)
    return ObjectEdit(drop=OTHER_ERA)


def _fitting_call(text_at: TextAt, found: Members, host: Revision) -> ObjectEdit:
    structured, content = found.get("structuredContent"), found.get("content")
    is_unfit = structured is not None and not structured.is_object
    if content is not None and not is_unfit and knows_all_content(host):
        return ObjectEdit(drop=OTHER_ERA)
    unfit = text_at(structured) if structured is not None and is_unfit else None
    put = {"content": fitting_content("[]" if content is None else text_at(content), host, unfit)}
    return ObjectEdit(put=put, drop=(*OTHER_ERA, "structuredContent") if is_unfit else OTHER_ERA)


def _text_of(text: str, member: Member) -> RawJson:
    return text[member.start : member.end]


def _is_not_found(error: RawJson) -> bool:
    """Whether what is wrong is that there is no such resource: it is named in the data, or the message says so."""
    found = members(error)
    data, message = value_of(found, "data"), value_of(found, "message")
    return (isinstance(data, dict) and isinstance(data.get("uri"), str)) or "not found" in str(message).lower()
