"""The errors of the gateway, by who caused them: `DownstreamError` for hosts, `UpstreamFailed` for
servers, and the other classes for the gateway itself.

Each has a `reason` of a closed set, which is its metric label. `protocol/faults.py` alone turns
them into HTTP statuses and JSON-RPC errors. A JSON-RPC error of a server is an outcome and not
raised. No text may contain a payload, a path, an address or a token.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self


class GatewayError(Exception):
    """The base class: a refusal or a failure of the gateway."""

    reason: str = "internal"

    def copy(self) -> Self:
        """The same error without the frames that it has passed, to be stored, or raised once more.

        An error that is stored refers to its frames, and they to what stores it.
        """
        copied = type(self).__new__(type(self), *self.args)
        vars(copied).update(vars(self))
        return copied


class DownstreamError(GatewayError):
    """An error that the host caused; the text is for the host."""


class UnparsableMessage(DownstreamError):
    """A body that is not JSON: encoding, byte order mark, syntax, NaN, depth, or a long number."""

    reason = "bad_json"


class MalformedMessage(DownstreamError):
    """JSON that is not one JSON-RPC message; `id` is that of the message if it could be read."""

    reason = "bad_message"

    def __init__(self, text: str, *, id: str | int | None = None) -> None:
        super().__init__(text)
        self.id = id


class InvalidParams(DownstreamError):
    """A required parameter that is missing or of the wrong type."""

    reason = "bad_params"


class IncompleteMeta(DownstreamError):
    """A modern request whose `_meta` lacks a required member, or has it in the wrong type."""

    reason = "bad_meta"


class HeaderMismatch(DownstreamError):
    """A header that must repeat a part of the body but is missing, malformed, or sent twice.

    `contradicts` is whether it differs from the body.
    """

    reason = "header_mismatch"
    contradicts = False


class MissingCapability(DownstreamError):
    """A request that needs a capability which it does not declare: `required`, as hosts declare it."""

    reason = "missing_capability"

    def __init__(self, required: Mapping[str, Any]) -> None:
        super().__init__("The request does not declare a capability that it needs")
        self.required = required


class UnknownMethod(DownstreamError):
    """A method that the session's revision does not have, or whose capability was not advertised."""

    reason = "unknown_method"


class TaskSupportMismatch(DownstreamError):
    """A call as a task for a tool that forbids tasks, or a plain call for one that requires them."""

    reason = "task_support"


class UnsupportedVersion(DownstreamError):
    """A protocol revision that is not served, or is not the session's.

    `requested` if the answer repeats it.
    """

    reason = "bad_version"

    def __init__(self, text: str, *, requested: str = "") -> None:
        super().__init__(text)
        self.requested = requested


class VerbNotServed(DownstreamError):
    """An HTTP method that the host's era does not have; `served` are those that it has."""

    reason = "bad_verb"

    def __init__(self, *served: str) -> None:
        super().__init__("The HTTP method does not exist in this protocol version")
        self.served = served


class SessionRequired(DownstreamError):
    """A legacy message without a session id."""

    reason = "no_session"


class SessionNotFound(DownstreamError):
    """A session that ended, never existed, or belongs to another caller: one answer for all three."""

    reason = "session_not_found"


class StreamNotFound(DownstreamError):
    """An event id of no stream of the session, or of one that is not stored completely any more."""

    reason = "stream_not_found"


class TaskNotFound(DownstreamError):
    """A task id that is unknown, expired, purged, foreign or malformed: one answer for all."""

    reason = "task_not_found"

    def __init__(self, message: str = "Task not found") -> None:
        super().__init__(message)


class TaskAlreadyFinished(DownstreamError):
    """A cancellation of a terminal task (legacy era)."""

    reason = "task_finished"


class AuthReason(StrEnum):
    """The reasons why a token or an API key was refused, for operators."""

    MISSING = "missing"
    SCHEME = "scheme"
    MALFORMED = "malformed"
    TYP = "typ"
    ALG = "alg"
    UNKNOWN_KID = "unknown_kid"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    CLAIM = "claim"
    QUERY_TOKEN = "query_token"  # noqa: S105 - where a token was, not one
    API_KEY = "api_key"


class Unauthenticated(DownstreamError):
    """A request without a token or an API key, or with a refused one; `token_sent` is which.

    `issuer` is the operator's name of the configured issuer that the token names, None for any
    other. `expected` and `found` are values for operators, of a token whose signature is good; ()
    for reasons other than AUDIENCE. `detail` is for the host, and None before the signature is
    verified: then one text tells nothing about keys and issuers. It is text for a header's parameter.
    `what` is what was refused.
    """

    reason = "unauthenticated"

    def __init__(
        self,
        reason: AuthReason,
        *,
        issuer: str | None = None,
        expected: tuple[str, ...] = (),
        found: tuple[str, ...] = (),
        detail: str | None = None,
        what: str = "token",
    ) -> None:
        required, is_sent = "Authentication is required", reason is not AuthReason.MISSING
        fault = f"The {what} is not accepted" if is_sent else required
        super().__init__(required if detail is None else f"{fault}: {detail}")
        self.reason = reason.value
        self.issuer = issuer
        self.expected = expected
        self.found = found
        self.detail = detail
        self.token_sent = is_sent


class Forbidden(DownstreamError):
    """A request that the operator's access rules refuse."""

    reason = "policy"


class InsufficientScope(DownstreamError):
    """A token that lacks scopes.

    `scopes` are all that the operation needs, so that a host asks for them once.
    """

    reason = "insufficient_scope"

    def __init__(self, scopes: frozenset[str]) -> None:
        super().__init__(f"This needs a token with the scopes {' '.join(sorted(scopes))}")
        self.scopes = scopes


class Penalized(DownstreamError):
    """A pause for a caller that looked up too many tasks that it does not have."""

    reason = "penalty"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("Too many failed look-ups of tasks")
        self.retry_after = retry_after


_WHOSE: Final = {
    "context": "this caller",
    "subject": "this user, from all clients",
    "tenant": "the tenant",
    "tool": "the tool, from all callers",
    "upstream": "the server, from all callers",
    "global": "all callers",
}
"""Whose limit it is, by scope."""
_OWN: Final = ("context", "subject")
"""The scopes of a limit that the caller itself has used up: only there its use is told."""


class TooManyTasks(DownstreamError):
    """A cap that is reached, on unfinished tasks or on what `of` names.

    `scope` is what the cap counts over, and `used` the count, if known. `advice` says how it gets less.
    """

    reason = "concurrency"

    def __init__(
        self,
        limit: int,
        of: str = "unfinished tasks",
        *,
        scope: str = "context",
        used: int | None = None,
        advice: str = "wait until one ends, or cancel one",
    ) -> None:
        count = f"limit {limit}" if used is None or scope not in _OWN else f"{used} of {limit}"
        super().__init__(f"Too many {of} of {_WHOSE[scope]} ({count}): {advice}")
        self.limit = limit
        self.scope = scope


class TooManyBytes(DownstreamError):
    """A byte cap that is reached, on what `of` names: nothing was stored or called.

    `scope` as in TooManyTasks.
    """

    reason = "bytes"

    def __init__(
        self,
        limit: int,
        of: str = "Stored task results",
        *,
        scope: str = "context",
        advice: str = "wait until some expire",
    ) -> None:
        super().__init__(f"{of} of {_WHOSE[scope]} exceed the limit of {limit} bytes: {advice}")
        self.limit = limit
        self.scope = scope


class RateLimited(DownstreamError):
    """A request above a rate limit.

    `policy` is its configured name, and after `retry_after` one is allowed.
    """

    reason = "rate"

    def __init__(self, retry_after: timedelta, policy: str) -> None:
        super().__init__(f"Rate limit {policy} exceeded")
        self.retry_after = retry_after
        self.policy = policy


class QueueFull(DownstreamError):
    """A call above the concurrency limit of its server, with a full queue or too long a wait."""

    reason = "queue"

    def __init__(self, text: str, *, retry_after: timedelta) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class UpstreamReason(StrEnum):
    """The reasons why a request to a server failed."""

    UNREACHABLE = "unreachable"
    CLOSED = "closed"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    REDIRECT = "redirect"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    SESSION_LOST = "session_lost"
    CALL_LOST = "call_lost"
    INTERNAL = "internal"
    """The gateway ran out of something; the server is not the cause."""


REFUSALS: Final = frozenset(
    {UpstreamReason.REFUSED.value, UpstreamReason.REDIRECT.value, UpstreamReason.MALFORMED.value}
)
"""Reasons of failures by which a server that answers refuses."""


class UpstreamFailed(GatewayError):
    """A failed request to a server, which may have acted on it if `dispatched`.

    The text has no address. `cause` is for operators alone: a few words such as ECONNREFUSED or
    `HTTP 502`, without text of the server. Without one it is the reason. `refusal` is for hosts: the
    HTTP status and body of a refusal, as members of the error's data.
    """

    refusal: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        reason: UpstreamReason,
        text: str,
        *,
        dispatched: bool,
        retry_after: timedelta | None = None,
        cause: str | None = None,
        refusal: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason.value
        self.cause = cause or reason.value
        self.dispatched = dispatched
        self.retry_after = retry_after
        if refusal:
            self.refusal = dict(refusal)


class InternalError(GatewayError):
    """An error of the gateway itself."""


class StoreFault(StrEnum):
    """The known causes of a store's failure, for operators only."""

    DISK_FULL = "disk_full"
    SIZE_LIMIT = "size_limit"
    READ_ONLY = "read_only"
    IO_ERROR = "io_error"
    DAMAGED = "damaged"
    LOCKED = "locked"
    FILE_GONE = "file_gone"


class StoreUnavailable(InternalError):
    """A failed operation of the store, which may or may not have written.

    `fault` is the cause if it is known. `unreadable` is whether one record is damaged, or was written
    by another version, while the store works.
    """

    reason = "store"

    def __init__(self, text: str, *, fault: StoreFault | None = None, unreadable: bool = False) -> None:
        super().__init__(text)
        self.fault = fault
        self.unreadable = unreadable


class KeysUnavailable(InternalError):
    """A token that cannot be verified now, because its issuer's keys are unavailable.

    The host may retry with it.
    """

    reason = "jwks_unavailable"

    def __init__(self, issuer: str) -> None:
        super().__init__("The keys of the token's issuer are not available")
        self.issuer = issuer


class CutOff(InternalError):
    """A call that was running when the gateway shut down; it may or may not have completed."""

    reason = "shutdown"


class Draining(InternalError):
    """A request for new work while the gateway shuts down."""

    reason = "draining"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("The gateway is shutting down")
        self.retry_after = retry_after


class Overloaded(InternalError):
    """A request that was refused because memory is short; nothing was called."""

    reason = "overload"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("The gateway is short of memory")
        self.retry_after = retry_after


class IllegalTransition(GatewayError):
    """An event that the state of the task does not allow.

    The lifecycle handles it, and hosts do not see it.
    """

    reason = "illegal_transition"
