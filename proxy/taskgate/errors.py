"""What can go wrong, by whose doing: the host's, the server's, ours.

Knows no HTTP and no JSON-RPC: `protocol/faults.py` alone turns these into either. Each has a `reason` of a closed set,
its metric label. A server's JSON-RPC error is an outcome. No text may hold a payload, a path, an address or a token.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any


class GatewayError(Exception):
    """Anything the gateway refuses or fails to do."""

    reason: str = "internal"


class DownstreamError(GatewayError):
    """The host's doing. The text is for the host."""


class UnparsableMessage(DownstreamError):
    """The body is not JSON: bad UTF-8, a byte order mark, syntax, NaN, too deep, or a number too long to read."""

    reason = "bad_json"


class MalformedMessage(DownstreamError):
    """JSON, but not one JSON-RPC message. `id` is the message's own where it could be read."""

    reason = "bad_message"

    def __init__(self, text: str, *, id: str | int | None = None) -> None:
        super().__init__(text)
        self.id = id


class InvalidParams(DownstreamError):
    """A parameter the gateway needs is missing or of the wrong type."""

    reason = "bad_params"


class IncompleteMeta(DownstreamError):
    """A request of the modern era lacks what every one has to say in its `_meta`, or says it in the wrong type."""

    reason = "bad_meta"


class HeaderMismatch(DownstreamError):
    """A header that repeats a part of the body is missing, malformed, sent twice, or `contradicts` the body."""

    reason = "header_mismatch"
    contradicts = False


class MissingCapability(DownstreamError):
    """The request does not declare what serving it needs; `required` is that, as a host declares capabilities."""

    reason = "missing_capability"

    def __init__(self, required: Mapping[str, Any]) -> None:
        super().__init__("The request does not declare a capability that it needs")
        self.required = required


class UnknownMethod(DownstreamError):
    """No such method in the session's revision, or a capability that was not advertised."""

    reason = "unknown_method"


class TaskSupportMismatch(DownstreamError):
    """A task was asked of a tool that cannot be one, or not asked of a tool that must be one."""

    reason = "task_support"


class UnsupportedVersion(DownstreamError):
    """The protocol revision the host names is not served, or is not the session's; `requested` where that is told."""

    reason = "bad_version"

    def __init__(self, text: str, *, requested: str = "") -> None:
        super().__init__(text)
        self.requested = requested


class VerbNotServed(DownstreamError):
    """The host's era has no such HTTP method. `served` are those that it has."""

    reason = "bad_verb"

    def __init__(self, *served: str) -> None:
        super().__init__("The HTTP method does not exist in this protocol version")
        self.served = served


class SessionRequired(DownstreamError):
    """A message of the legacy era came without a session id."""

    reason = "no_session"


class SessionNotFound(DownstreamError):
    """The session ended, never was, or belongs to somebody else: one answer for all three."""

    reason = "session_not_found"


class StreamNotFound(DownstreamError):
    """An event id that belongs to no stream of the session, or to one that is not there wholly any more."""

    reason = "stream_not_found"


class TaskNotFound(DownstreamError):
    """Unknown, expired, purged, foreign, malformed: one answer for all of them."""

    reason = "task_not_found"

    def __init__(self) -> None:
        super().__init__("Task not found")


class TaskAlreadyFinished(DownstreamError):
    """A terminal task cannot be cancelled (legacy era)."""

    reason = "task_finished"


class AuthReason(StrEnum):
    """Why a token was not accepted. For operators alone: every host gets the same answer."""

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


class Unauthenticated(DownstreamError):
    """No token, or one that is not accepted, for an AuthReason; `token_sent` tells the two apart for the host.

    `issuer` is the operator's name of the configured issuer whose token it claims to be, None for any other.
    """

    reason = "unauthenticated"

    def __init__(self, reason: AuthReason, *, issuer: str | None = None) -> None:
        super().__init__("Authentication is required")
        self.reason = reason.value
        self.issuer = issuer
        self.token_sent = reason is not AuthReason.MISSING


class Forbidden(DownstreamError):
    """The operator's rules do not let this caller do it."""

    reason = "policy"


class InsufficientScope(DownstreamError):
    """The caller's token lacks scopes. `scopes` are all that the operation needs, so that a host need ask only once."""

    reason = "insufficient_scope"

    def __init__(self, scopes: frozenset[str]) -> None:
        super().__init__("The token's scopes do not allow this")
        self.scopes = scopes


class Penalized(DownstreamError):
    """The caller looked for too many tasks that it does not have, and is not listened to for a while."""

    reason = "penalty"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("Too many failed look-ups of tasks")
        self.retry_after = retry_after


class TooManyTasks(DownstreamError):
    """A cap on unfinished tasks, or on what else `of` says, refused one more; `scope` is what it counts over."""

    reason = "concurrency"

    def __init__(self, limit: int, of: str = "unfinished tasks", *, scope: str = "context") -> None:
        super().__init__(f"Too many {of} (limit {limit})")
        self.limit = limit
        self.scope = scope


class TooManyBytes(DownstreamError):
    """What `of` says takes all the room that there is, and nothing was stored or called; `scope` as in TooManyTasks."""

    reason = "bytes"

    def __init__(self, limit: int, of: str = "Stored task results", *, scope: str = "context") -> None:
        super().__init__(f"{of} exceed the limit of {limit} bytes")
        self.limit = limit
        self.scope = scope


class RateLimited(DownstreamError):
    """A rate refused the request. `policy` is the operator's name of it; after `retry_after` one would pass."""

    reason = "rate"

    def __init__(self, retry_after: timedelta, policy: str) -> None:
        super().__init__("Rate limit exceeded")
        self.retry_after = retry_after
        self.policy = policy


class QueueFull(DownstreamError):
    """The server has as many calls as it may, and no more may wait for it, or this one waited for too long."""

    reason = "queue"

    def __init__(self, text: str, *, retry_after: timedelta) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class UpstreamReason(StrEnum):
    """What went wrong between the gateway and a server."""

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
    """The gateway lacked something, and the server had no part in it."""


class UpstreamFailed(GatewayError):
    """The server's doing, which may have acted on the message if `dispatched`. The text never says where it is."""

    def __init__(
        self, reason: UpstreamReason, text: str, *, dispatched: bool, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason.value
        self.dispatched = dispatched
        self.retry_after = retry_after


class InternalError(GatewayError):
    """Our own doing."""


class StoreFault(StrEnum):
    """What keeps a store from working, where that is known. For operators alone."""

    DISK_FULL = "disk_full"
    SIZE_LIMIT = "size_limit"
    READ_ONLY = "read_only"
    IO_ERROR = "io_error"
    DAMAGED = "damaged"
    LOCKED = "locked"
    FILE_GONE = "file_gone"


class StoreUnavailable(InternalError):
    """The store did not do what it was asked; nothing is known to be written. `fault` is the cause, where known."""

    reason = "store"

    def __init__(self, text: str, *, fault: StoreFault | None = None) -> None:
        super().__init__(text)
        self.fault = fault


class KeysUnavailable(InternalError):
    """A token cannot be judged because its issuer's keys cannot be had: no reason to throw the token away."""

    reason = "jwks_unavailable"

    def __init__(self, issuer: str) -> None:
        super().__init__("The keys of the token's issuer are not available")
        self.issuer = issuer


class CutOff(InternalError):
    """The gateway shut down while a call was running; it may or may not have completed."""

    reason = "shutdown"


class Draining(InternalError):
    """The gateway is shutting down and takes no new work."""

    reason = "draining"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("The gateway is shutting down")
        self.retry_after = retry_after


class Overloaded(InternalError):
    """The process is short of memory and does not take this on; nothing was called."""

    reason = "overload"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("The gateway is short of memory")
        self.retry_after = retry_after


class IllegalTransition(GatewayError):
    """An event that the task's state does not allow: an ordinary outcome inside the engine, never seen outside."""

    reason = "illegal_transition"
