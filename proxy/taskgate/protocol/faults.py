"""The one table from an error to what a host of either era sees of it: HTTP status, JSON-RPC code, data, headers.

Texts are ours throughout; an error of a server is no fault but an outcome.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from typing import Any, Final

from taskgate import errors
from taskgate.domain.events import CallFaulted
from taskgate.domain.record import FaultReason, RequestId
from taskgate.domain.versions import LEGACY, SERVED, Era
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.jsonrpc import error_text
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
    TASK_CANCELLED,
    TASKS_EXTENSION,
    UNAVAILABLE,
    UNSUPPORTED_VERSION,
)

CUT_OFF: Final = "The gateway shut down while the call was running; it may or may not have completed"
"""What is said of a call, or of the task that it is, where the gateway ends before it does."""

RETRY_AFTER = timedelta(seconds=2)
"""When to try again where nothing tells better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error as a host sees it."""

    status: int
    code: int
    text: str
    data: dict[str, Any] | None = None
    retry_after: timedelta | None = None
    allow: tuple[str, ...] = ()

    def message(self, id: RequestId | None) -> str:
        """The JSON-RPC error response."""
        return error_text(id, error_object(self.code, self.text, self.data))

    @property
    def tool_result(self) -> RawJson:
        """The same as a result of `tools/call` with isError, in words that a model can act on."""
        text = f"The tool was not called: {self.text}."
        if self.retry_after is not None:
            seconds = ceil(self.retry_after.total_seconds())
            text += f" Try again in {seconds} second{'' if seconds == 1 else 's'}."
        return dump({"content": [{"type": "text", "text": text}], "isError": True})

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The HTTP fields that belong to it."""
        if self.allow:
            return (("Allow", ", ".join(self.allow)),)
        if self.retry_after is None:
            return ()
        return (("Retry-After", str(ceil(self.retry_after.total_seconds()))),)


def error_object(code: int, text: str, data: dict[str, Any] | None = None) -> RawJson:
    """A JSON-RPC error object."""
    return dump({"code": code, "message": text} if data is None else {"code": code, "message": text, "data": data})


TASKS_NEEDED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
"""The capabilities that a host of the modern era has to declare for whatever is about tasks."""


def fault(error: Exception, era: Era = Era.LEGACY) -> Fault:
    """What a host of that era sees of an error; what is unforeseen is an internal error without a word about itself."""
    return (_modern_face(error) if era is Era.MODERN else None) or _face(error)


def modern_status(code: int) -> int:
    """The HTTP status under which a host of the modern era, if it heard nothing yet, is told a server's error."""
    return _FIXED_STATUS.get(code, 200)


def _face(error: Exception) -> Fault:
    match error:
        case errors.UpstreamFailed():
            return _unavailable(INTERNAL_ERROR, str(error), _failure_data(error), error.retry_after)
        case errors.TooManyTasks() | errors.TooManyBytes():
            # Nobody knows when something ends or is let go.
            data = {**_ours(error.reason), "limit": error.limit, "scope": error.scope}
            return _unavailable(OVER_LIMIT, str(error), data, RETRY_AFTER)
        case errors.RateLimited() | errors.Penalized() | errors.QueueFull():
            return _over_rate(error)
        case errors.Forbidden() | errors.InsufficientScope():
            # Too few scopes: the one refusal inside JSON-RPC that has a status of its own in either era (A-AUTH-7).
            status = 403 if isinstance(error, errors.InsufficientScope) else 200
            return Fault(status=status, code=FORBIDDEN, text=str(error), data=_ours(error.reason))
        case errors.StoreUnavailable():
            return _unavailable(UNAVAILABLE, "The task store is not available", _ours(error.reason), RETRY_AFTER)
        case errors.Draining() | errors.Overloaded():
            return _unavailable(UNAVAILABLE, str(error), _ours(error.reason), error.retry_after)
        case errors.CutOff():
            data = {**_ours(error.reason), "dispatched": True}
            return Fault(status=200, code=INTERNAL_ERROR, text=CUT_OFF, data=data)
        case errors.KeysUnavailable():
            # Never 401, for which hosts throw their tokens away.
            seen = _unavailable(UNAVAILABLE, str(error), _ours(error.reason), RETRY_AFTER)
            return replace(seen, status=503)
        case errors.UnsupportedVersion():
            data = {"supported": [revision.value for revision in reversed(LEGACY)]}
            return Fault(status=400, code=INVALID_REQUEST, text=str(error), data=data)
        case errors.MissingCapability() | errors.VerbNotServed():
            return _never_legacy(error)
        case errors.DownstreamError():
            status, code = _DOWNSTREAM[type(error)]
            return Fault(status=status, code=code, text=str(error))
        case _:
            # Nobody knows how far it came, and only "may have run" is safe to believe.
            data = {**_ours("internal"), "dispatched": True}
            return Fault(status=200, code=INTERNAL_ERROR, text="Internal error", data=data)


def _over_rate(error: errors.RateLimited | errors.Penalized | errors.QueueFull) -> Fault:
    data = _ours(error.reason)
    if isinstance(error, errors.RateLimited):
        data["policy"] = error.policy
    return _unavailable(OVER_LIMIT, str(error), data, error.retry_after)


def _modern_face(error: Exception) -> Fault | None:
    """What the modern era is told in another way; None for all the rest."""
    match error:
        case errors.UnknownMethod():
            return Fault(status=404, code=METHOD_NOT_FOUND, text=str(error))
        case errors.UnsupportedVersion():
            data = {"supported": [revision.value for revision in SERVED], "requested": error.requested}
            return Fault(status=400, code=UNSUPPORTED_VERSION, text=str(error), data=data)
        case errors.TaskSupportMismatch():
            # No host of this era asks for a task: it lacks what it takes to be given one (M-NEG-3).
            return _never_legacy(errors.MissingCapability(TASKS_NEEDED))
    return None


def _never_legacy(error: errors.MissingCapability | errors.VerbNotServed) -> Fault:
    if isinstance(error, errors.VerbNotServed):
        return Fault(status=405, code=INVALID_REQUEST, text=str(error), allow=error.served)
    return Fault(
        status=400, code=MISSING_CAPABILITY, text=str(error), data={"requiredCapabilities": dict(error.required)}
    )


def call_failed(error: errors.UpstreamFailed, *, ran: bool = False) -> CallFaulted:
    """How a task ends whose server could not be called, or gave no answer; `ran` is that it may have run before."""
    dispatched, text = ran or error.dispatched, str(error)
    data = {**_failure_data(error), "dispatched": dispatched}
    seen = _unavailable(INTERNAL_ERROR, text, data, error.retry_after)
    return CallFaulted(
        error=error_object(INTERNAL_ERROR, text, seen.data),
        reason=FaultReason(error.reason),
        message=text,
        unsent=not dispatched,
    )


def call_ended(
    reason: FaultReason, text: str, *, dispatched: bool, retry_after: timedelta | None = None
) -> CallFaulted:
    """How a task ends that the gateway itself gives up. One that waited for its turn for too long is over a limit."""
    code = OVER_LIMIT if reason is FaultReason.QUEUE else INTERNAL_ERROR
    seen = _unavailable(code, text, {**_ours(reason.value), "dispatched": dispatched}, retry_after)
    return CallFaulted(error=error_object(code, text, seen.data), reason=reason, message=text, unsent=not dispatched)


_FIXED_STATUS: Final[Mapping[int, int]] = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}

CANCELLED = error_object(TASK_CANCELLED, "Task was cancelled")
"""What stands for the outcome of a cancelled task (AMB-1)."""


def _failure_data(error: errors.UpstreamFailed) -> dict[str, Any]:
    if error.reason in _OURS:
        # One face for a call of which nobody knows what became, whoever lost it.
        return {**_ours(error.reason), "dispatched": error.dispatched}
    return {"origin": "upstream", "reason": error.reason, "dispatched": error.dispatched}


_OURS: Final = frozenset({errors.UpstreamReason.CALL_LOST.value, errors.UpstreamReason.INTERNAL.value})


def _ours(reason: str) -> dict[str, Any]:
    return {"origin": "gateway", "reason": reason}


def _unavailable(code: int, text: str, data: dict[str, Any], retry_after: timedelta | None) -> Fault:
    if retry_after is not None:
        # Whole ones, and not too few: who waits for that long is let in.
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
    errors.SessionNotFound: (404, INVALID_REQUEST),
    errors.StreamNotFound: (400, INVALID_REQUEST),
    errors.TaskNotFound: (200, INVALID_PARAMS),
    errors.TaskAlreadyFinished: (200, INVALID_PARAMS),
    errors.Unauthenticated: (401, INVALID_REQUEST),
}
