"""Errors of servers under another code, where theirs means something else in the era of the host (B-CONV-8), and the
one for a server that answered with neither an error nor a result. Pure.

All else of an error stays to the byte; none repeats a key at its top, since all come out of messages that were read
strictly.
"""

from collections.abc import Mapping

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, insertion, splice
from taskgate.jsontext.spans import MAX_MEMBERS, Member, RawJson, first_keys, members
from taskgate.protocol.amending import object_edits
from taskgate.protocol.faults import fault
from taskgate.protocol.vocabulary import INTERNAL_ERROR


def recoded(error: RawJson, code: int) -> RawJson:
    """The error under another code."""
    return _changed(error, {"code": str(code)})


def as_internal(error: RawJson) -> RawJson:
    """The error as an internal one that names the server's own code as `upstreamCode` in its data."""
    found = members(error)
    code: int = found["code"].value
    return _changed(error, {"code": str(INTERNAL_ERROR), "data": _with_code(error, found.get("data"), code)})


def no_result(id: RequestId) -> str:
    """What a host is answered instead of a result that breaks the protocol."""
    text = "The server broke the protocol: its answer is no result"
    return fault(UpstreamFailed(UpstreamReason.MALFORMED, text, dispatched=True)).message(id)


def _changed(error: RawJson, put: Mapping[str, RawJson]) -> RawJson:
    return splice(error, object_edits(members(error), error.index("{"), put, ()))


def _with_code(error: RawJson, data: Member | None, code: int) -> RawJson:
    """An error's data with the server's own code; data that are no object become a member of one."""
    if data is None:
        return dump({"upstreamCode": code})
    text = error[data.start : data.end]
    if not data.is_object:
        return f'{{"upstreamCode":{code},"upstreamData":{text}}}'
    # Another gateway may have named one, nearer to where the error arose.
    is_named = "upstreamCode" in (first_keys(data, MAX_MEMBERS) or ())
    return text if is_named else splice(text, [insertion(text, "upstreamCode", str(code))])
