"""Errors as hosts and tasks see them: the one table from an exception to a `Fault`.

A `Fault` has the HTTP status, JSON-RPC code, data and headers of an error of the gateway. `fault`
makes it from an exception when a host must be answered. `call_failed` and `call_ended` make the
event that ends a task without an answer. All texts are taskgate's.

A JSON-RPC error of a server is an outcome and no fault. `with_code` and `as_internal` give it
another code if the host is of the other era. In the data of an error, `dispatched` says whether the
server may have run the call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from typing import Any, Final

from taskgate import errors
from taskgate.domain.events import CallFaulted
from taskgate.domain.machine import cancellation
from taskgate.domain.record import FaultReason, RequestId, TaskRecord
from taskgate.domain.versions import LEGACY, SERVED, Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, insertion, splice
from taskgate.jsontext.spans import MAX_MEMBERS, Member, RawJson, first_keys, members
from taskgate.protocol.jsonrpc import error_text, unread_error_text
from taskgate.protocol.meta import member_edits
from taskgate.protocol.vocabulary import (
    FORBIDDEN,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    OVER_LIMIT,
    PARSE_ERROR,
    SESSION_NOT_FOUND,
    TASK_CANCELLED,
    TASKS_EXTENSION,
    UNAVAILABLE,
    UNSUPPORTED_VERSION,
)

CUT_OFF: Final = "The gateway shut down while the call was running; it may or may not have completed"
"""The message for a call, or its task, that the gateway's shutdown interrupts."""

RETRY_AFTER = timedelta(seconds=2)
"""When to retry if nothing better is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error as a host sees it.

    `status` is the HTTP status if no response was sent yet. `code`, `text` and `data` are the
    JSON-RPC error. `retry_after` is when to try again, None if that is not said. `allow` are the
    HTTP methods for an `Allow` header.
    """

    status: int
    code: int
    text: str
    data: dict[str, Any] | None = None
    retry_after: timedelta | None = None
    allow: tuple[str, ...] = ()

    def message(self, id: RequestId | None) -> str:
        """The JSON-RPC error response; `id` is None if the message has none, or an unreadable one."""
        return error_text(id, self._error)

    @property
    def unread_message(self) -> str:
        """The JSON-RPC error response to a message that was not read."""
        return unread_error_text(self._error)

    @property
    def tool_result(self) -> RawJson:
        """The same as a result of `tools/call` with isError, in words that a model can act on."""
        text = f"The tool was not called: {self._advice}."
        return dump({"content": [{"type": "text", "text": text}], "isError": True})

    @property
    def _error(self) -> RawJson:
        return error_object(self.code, self._advice, self.data)

    @property
    def _advice(self) -> str:
        """The text, with when to try again: most hosts show their user nothing else of an error."""
        if self.retry_after is None:
            return self.text
        return f"{self.text}; try again in {ceil(self.retry_after.total_seconds())} s"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The HTTP header fields that the error adds: `Allow`, `Retry-After` or none."""
        if self.allow:
            return (("Allow", ", ".join(self.allow)),)
        if self.retry_after is None:
            return ()
        return (("Retry-After", str(ceil(self.retry_after.total_seconds()))),)


def error_object(code: int, text: str, data: dict[str, Any] | None = None) -> RawJson:
    """A JSON-RPC error object."""
    return dump({"code": code, "message": text} if data is None else {"code": code, "message": text, "data": data})


def cancelled_error(record: TaskRecord) -> RawJson:
    """The error in place of the outcome of a cancelled task (AMB-1)."""
    return error_object(TASK_CANCELLED, f"Task was cancelled{cancellation(record)}")


TASKS_NEEDED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
"""The capabilities that a modern host must declare for every request about tasks."""


# --- the table --------------------------------------------------------------------------------------------------------


def fault(error: Exception, era: Era = Era.LEGACY) -> Fault:
    """An error as a host of that era sees it. An unexpected one is an internal error without
    details.
    """
    return (_modern_fault(error) if era is Era.MODERN else None) or _fault(error)


def modern_status(code: int) -> int:
    """The HTTP status of a server's error for a modern host, if no response was sent yet."""
    return _FIXED_STATUS.get(code, 200)


def _fault(error: Exception) -> Fault:
    match error:
        case errors.UpstreamFailed():
            return _unavailable(INTERNAL_ERROR, str(error), _failure_data(error), error.retry_after)
        case errors.TooManyTasks() | errors.TooManyBytes():
            # When another task ends or is deleted is unknown.
            data = {**own_data(error.reason), "limit": error.limit, "scope": error.scope}
            return _unavailable(OVER_LIMIT, str(error), data, RETRY_AFTER)
        case errors.RateLimited() | errors.Penalized() | errors.QueueFull():
            return _over_rate(error)
        case errors.Forbidden() | errors.InsufficientScope():
            # Too few scopes: the one refusal inside JSON-RPC with a status of its own in both eras
            # (A-AUTH-7).
            status = 403 if isinstance(error, errors.InsufficientScope) else 200
            return Fault(status=status, code=FORBIDDEN, text=str(error), data=own_data(error.reason))
        case errors.StoreUnavailable():
            return _unavailable(UNAVAILABLE, "The task store is not available", own_data(error.reason), RETRY_AFTER)
        case errors.Draining() | errors.Overloaded():
            return _unavailable(UNAVAILABLE, str(error), own_data(error.reason), error.retry_after)
        case errors.CutOff():
            data = {**own_data(error.reason), "dispatched": True}
            return Fault(status=200, code=INTERNAL_ERROR, text=CUT_OFF, data=data)
        case errors.KeysUnavailable():
            # Not 401: on that hosts discard their tokens.
            unavailable = _unavailable(UNAVAILABLE, str(error), own_data(error.reason), RETRY_AFTER)
            return replace(unavailable, status=503)
        case errors.UnsupportedVersion():
            data = {"supported": [revision.value for revision in reversed(LEGACY)]}
            return Fault(status=400, code=INVALID_REQUEST, text=str(error), data=data)
        case errors.MissingCapability() | errors.VerbNotServed():
            return _modern_only(error)
        case errors.DownstreamError():
            status, code = _DOWNSTREAM[type(error)]
            return Fault(status=status, code=code, text=str(error))
        case _:
            # How far the call came is unknown, and "may have run" is the only safe answer.
            data = {**own_data("internal"), "dispatched": True}
            return Fault(status=200, code=INTERNAL_ERROR, text="Internal error", data=data)


def _over_rate(error: errors.RateLimited | errors.Penalized | errors.QueueFull) -> Fault:
    data = own_data(error.reason)
    if isinstance(error, errors.RateLimited):
        data["policy"] = error.policy
    return _unavailable(OVER_LIMIT, str(error), data, error.retry_after)


def _modern_fault(error: Exception) -> Fault | None:
    """The faults that differ for a modern host; None for all others."""
    match error:
        case errors.UnknownMethod():
            return Fault(status=404, code=METHOD_NOT_FOUND, text=str(error))
        case errors.UnsupportedVersion():
            data = {"supported": [revision.value for revision in SERVED], "requested": error.requested}
            return Fault(status=400, code=UNSUPPORTED_VERSION, text=str(error), data=data)
        case errors.TaskSupportMismatch():
            # A modern host does not ask for a task: it lacks the capability to be given one
            # (M-NEG-3).
            return _modern_only(errors.MissingCapability(TASKS_NEEDED))
    return None


def _modern_only(error: errors.MissingCapability | errors.VerbNotServed) -> Fault:
    if isinstance(error, errors.VerbNotServed):
        return Fault(status=405, code=INVALID_REQUEST, text=str(error), allow=error.served)
    return Fault(
        status=400, code=MISSING_CAPABILITY, text=str(error), data={"requiredCapabilities": dict(error.required)}
    )


_FIXED_STATUS: Final[Mapping[int, int]] = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


def _failure_data(error: errors.UpstreamFailed) -> dict[str, Any]:
    if error.reason in _OWN_REASONS:
        # A call with an unknown outcome looks the same, whichever side lost it.
        return {**own_data(error.reason), "dispatched": error.dispatched}
    return {"origin": "upstream", "reason": error.reason, "dispatched": error.dispatched, **error.refusal}


_OWN_REASONS: Final = frozenset({UpstreamReason.CALL_LOST.value, UpstreamReason.INTERNAL.value})


def own_data(reason: str) -> dict[str, Any]:
    """The data of an error of the gateway itself."""
    return {"origin": "gateway", "reason": reason}


def _unavailable(code: int, text: str, data: dict[str, Any], retry_after: timedelta | None) -> Fault:
    if retry_after is not None:
        # Rounded up: a host that waits that long must be let in.
        data["retryAfterMs"] = -(-retry_after // timedelta(milliseconds=1))
    return Fault(status=200, code=code, text=text, data=data, retry_after=retry_after)


_DOWNSTREAM: dict[type[errors.DownstreamError], tuple[int, int]] = {
    errors.UnparsableMessage: (400, PARSE_ERROR),
    errors.MalformedMessage: (400, INVALID_REQUEST),
    errors.IncompleteMeta: (400, INVALID_PARAMS),
    errors.HeaderMismatch: (400, HEADER_MISMATCH),
    errors.InvalidParams: (200, INVALID_PARAMS),
    errors.UnknownMethod: (200, METHOD_NOT_FOUND),
    errors.TaskSupportMismatch: (200, METHOD_NOT_FOUND),
    errors.SessionRequired: (400, INVALID_REQUEST),
    # The code by which hosts of the TypeScript SDK know that they must open another session.
    errors.SessionNotFound: (404, SESSION_NOT_FOUND),
    errors.StreamNotFound: (400, INVALID_REQUEST),
    errors.TaskNotFound: (200, INVALID_PARAMS),
    errors.TaskAlreadyFinished: (200, INVALID_PARAMS),
    errors.Unauthenticated: (401, INVALID_REQUEST),
}


# --- tasks that end without an answer ---------------------------------------------------------------------------------


def call_failed(error: UpstreamFailed, *, ran: bool = False) -> CallFaulted:
    """The end of a task whose call failed or got no answer; `ran` if an earlier attempt may have
    run.
    """
    dispatched, text = ran or error.dispatched, str(error)
    data = {**_failure_data(error), "dispatched": dispatched}
    failed = _unavailable(INTERNAL_ERROR, text, data, error.retry_after)
    return CallFaulted(
        error=error_object(INTERNAL_ERROR, text, failed.data),
        reason=FaultReason(error.reason),
        message=text,
        unsent=not dispatched,
    )


def call_ended(
    reason: FaultReason, text: str, *, dispatched: bool, retry_after: timedelta | None = None
) -> CallFaulted:
    """The end of a task that the gateway itself ends. A task that queued for too long is over a
    limit.
    """
    code = OVER_LIMIT if reason is FaultReason.QUEUE else INTERNAL_ERROR
    ended = _unavailable(code, text, {**own_data(reason.value), "dispatched": dispatched}, retry_after)
    return CallFaulted(error=error_object(code, text, ended.data), reason=reason, message=text, unsent=not dispatched)


# --- failures of servers ----------------------------------------------------------------------------------------------


def protocol_violation(how: str, cause: str | None = None) -> UpstreamFailed:
    """The failure of a server that broke the protocol; it may have acted on the request."""
    text = f"The server broke the protocol: {how}"
    return UpstreamFailed(UpstreamReason.MALFORMED, text, dispatched=True, cause=cause)


class NoMessage(UpstreamFailed):
    """A failure by input of a server that is no JSON-RPC message; it may have acted on the request."""


def no_message() -> NoMessage:
    """The failure for it, where the request can have no other answer."""
    text = "The server broke the protocol: a message of it is not JSON-RPC"
    return NoMessage(UpstreamReason.MALFORMED, text, dispatched=True)


def request_refused(text: str) -> UpstreamFailed:
    """The failure of a server that refused a request of the gateway itself."""
    return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)


def no_result(id: RequestId) -> str:
    """The response to a host in place of a result that breaks the protocol."""
    return fault(protocol_violation("its result is not an object")).message(id)


# --- errors of servers under another code -----------------------------------------------------------------------------
#
# A code can mean something else in the era of the host (B-CONV-8). All else of the error stays to
# the byte. No error repeats a key at its top, because all come from messages that were read
# strictly.


def with_code(error: RawJson, code: int) -> RawJson:
    """The error with another code."""
    return _changed(error, {"code": str(code)})


def as_internal(error: RawJson) -> RawJson:
    """The error as an internal one, with the server's code as `upstreamCode` in its data."""
    found = members(error)
    code: int = found["code"].value
    return _changed(error, {"code": str(INTERNAL_ERROR), "data": _data_with_code(error, found.get("data"), code)})


def _changed(error: RawJson, put: Mapping[str, RawJson]) -> RawJson:
    return splice(error, member_edits(members(error), error.index("{"), put, ()))


def _data_with_code(error: RawJson, data: Member | None, code: int) -> RawJson:
    """An error's data with the server's code. Data that is no object becomes a member of one."""
    if data is None:
        return dump({"upstreamCode": code})
    text = error[data.start : data.end]
    if not data.is_object:
        return f'{{"upstreamCode":{code},"upstreamData":{text}}}'
    # Another gateway may have added one, closer to the origin of the error.
    has_code = "upstreamCode" in (first_keys(data, MAX_MEMBERS) or ())
    return text if has_code else splice(text, [insertion(text, "upstreamCode", str(code))])
