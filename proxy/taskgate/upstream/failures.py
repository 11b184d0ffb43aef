"""Failures of servers: one constructor for each `UpstreamFailed`, with its text for hosts.

No text contains the address of the server. `dispatched` tells whether the server may have acted.
Used by all of `upstream`. Callers handle some of the subclasses in a way of their own. The
docstring of each class and constructor says what has happened.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response, value_of
from taskgate.system import descriptors


class Unwelcome(UpstreamFailed):
    """The server refused `initialize`, or a later request, in a way that may show its era
    (docs/decisions/0021).

    `error` is the JSON-RPC error of the answer, empty for a bare HTTP status.
    """

    def __init__(
        self,
        text: str,
        error: dict[str, Any],
        *,
        retry_after: timedelta | None = None,
        cause: str | None = None,
        refusal: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            UpstreamReason.REFUSED, text, dispatched=False, retry_after=retry_after, cause=cause, refusal=refusal
        )
        self.error = error


class SessionDoubted(UpstreamFailed):
    """The server refused a request in a session with an HTTP status by which servers say that they no
    longer know the session. It did not act.

    Its reason is that of a lost session for 404, which means that, unless a tool answers so.
    """

    def __init__(self, refused: UpstreamFailed) -> None:
        reason = UpstreamReason.SESSION_LOST if refused.cause == http_cause(404) else UpstreamReason.REFUSED
        super().__init__(
            reason,
            str(refused),
            dispatched=False,
            retry_after=refused.retry_after,
            cause=refused.cause,
            refusal=refused.refusal,
        )


class EraLeft(UpstreamFailed):
    """The server answered as one that has left the era of the session. It did not act."""

    def __init__(self) -> None:
        super().__init__(UpstreamReason.SESSION_LOST, "The server ended the session", dispatched=False)


class Gone(UpstreamFailed):
    """The server no longer knows the call that was to be resumed, so its outcome is unknown.

    `lifecycle` then sends the call again if it may, else the task fails.
    """

    def __init__(self) -> None:
        text = "The server no longer knows the call; it may or may not have completed"
        super().__init__(UpstreamReason.CALL_LOST, text, dispatched=True)


class Ours(UpstreamFailed):
    """A failure that the gateway causes itself; it says nothing about the server."""


class Unserved(UpstreamFailed):
    """An HTTP status of 500 or above: the server, or a proxy before it, cannot serve."""


class Down(UpstreamFailed):
    """The server is down (`is_down`), and the request that fails with this was not sent.

    Made by `unsent` alone. Hosts that connect get the last welcome of the server (`LastWelcomes`).
    """


class NoCredentials(Ours):
    """The gateway has no credentials for the server, so nothing was sent. `word` says why, for operators."""

    def __init__(
        self, reason: UpstreamReason, more: str = "", retry_after: timedelta | None = None, word: str | None = None
    ) -> None:
        text = f"The gateway could not get credentials for the server{more}"
        cause = None if word is None else f"no credentials: {word}"
        super().__init__(reason, text, dispatched=False, retry_after=retry_after, cause=cause)


class StaleToken(UpstreamFailed):
    """No credentials could be made from the caller's token, and the token may be the cause.

    Nothing was sent. The server can be asked again once the caller sends a new token.
    """


class SubjectRefused(StaleToken):
    """The token endpoint refused, and the caller's token (the subject token) may be the cause.

    With a newer token of the caller the request may succeed. It is raised in place of `failure`,
    with the same reason and text.
    """

    def __init__(self, failure: UpstreamFailed) -> None:
        super().__init__(UpstreamReason(failure.reason), str(failure), dispatched=failure.dispatched)


class CallerRefused(NoCredentials):
    """The token endpoint refused a token for this caller; it says nothing about those of others."""


class ClientRefused(NoCredentials):
    """The token endpoint refused the gateway itself: its secret may have been replaced."""


class Severed(UpstreamFailed):
    """The message channel to the server ended with everything on it: no answer can be resumed."""

    def __init__(self, text: str) -> None:
        super().__init__(UpstreamReason.CLOSED, text, dispatched=True)


class Unsurvived(UpstreamFailed):
    """The server ended when it was sent `server/discover`, which it need not know
    (docs/decisions/0021). So it is a legacy server, if its era is not configured."""

    def __init__(self, text: str) -> None:
        super().__init__(UpstreamReason.CLOSED, text, dispatched=True)


def unreachable(cause: str | None = None) -> UpstreamFailed:
    """No connection was made, so nothing was sent."""
    return UpstreamFailed(UpstreamReason.UNREACHABLE, "The server could not be reached", dispatched=False, cause=cause)


def no_descriptor() -> UpstreamFailed:
    """The gateway has no file descriptor for a connection, so nothing was sent; the server had no
    part in it."""
    descriptors.EXHAUSTED_LOG.emit({"limit": descriptors.limit()})
    text = "The gateway has no free file descriptor to connect to the server"
    return UpstreamFailed(UpstreamReason.INTERNAL, text, dispatched=False)


def left_alone(retry_after: timedelta) -> UpstreamFailed:
    """The circuit is open, so nothing was sent."""
    text = "Circuit open: the server failed repeatedly; the request was not sent"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, retry_after=retry_after)


def closed(cause: str | None = None) -> UpstreamFailed:
    """The connection ended before an answer began. KEPT_TOO_LONG: in the moment of the request, as its time was up."""
    text = "The server closed the connection before it answered"
    return UpstreamFailed(UpstreamReason.CLOSED, text, dispatched=True, cause=cause)


def broke_off() -> UpstreamFailed:
    """An answer began and did not end."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server's answer ended before it was complete", dispatched=True)


def let_go(*, dispatched: bool) -> UpstreamFailed:
    """The gateway closed the session, or gives the call up for another reason of its own."""
    return Ours(UpstreamReason.CLOSED, "The session with the server was closed", dispatched=dispatched)


def no_rounds() -> UpstreamFailed:
    """A call between two rounds cannot continue: its server has become a legacy one, which has no
    rounds."""
    return UpstreamFailed(
        UpstreamReason.REFUSED, "The server no longer supports calls in several rounds", dispatched=True
    )


def called_off() -> UpstreamFailed:
    """The server cancelled its task for the call, without a request of the gateway."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server cancelled its task for the call", dispatched=True)


def lost_sight(failure: UpstreamFailed | None) -> UpstreamFailed:
    """Polls of the server's task for the call have failed for too long.

    `failure` is that of the last poll, None if the server answered it with an error.
    """
    reason = UpstreamReason.REFUSED if failure is None else UpstreamReason(failure.reason)
    why = "it answered with an error" if failure is None else str(failure)
    cause = None if failure is None else failure.cause
    text = f"The server no longer reports on its task for the call: {why}"
    refusal = None if failure is None else failure.refusal
    return UpstreamFailed(reason, text, dispatched=True, cause=cause, refusal=refusal)


def silent() -> UpstreamFailed:
    """The head of the answer did not arrive in time, or the body was silent for too long."""
    return UpstreamFailed(UpstreamReason.TIMEOUT, "The server was silent for too long", dispatched=True)


def too_late(*, dispatched: bool) -> UpstreamFailed:
    """The time for the whole call is over."""
    return UpstreamFailed(UpstreamReason.TIMEOUT, "The server did not answer in time", dispatched=dispatched)


def too_large() -> UpstreamFailed:
    """A message is larger than the limit."""
    return UpstreamFailed(UpstreamReason.TOO_LARGE, "The server's answer is too large", dispatched=True)


def large_head(limit: int) -> UpstreamFailed:
    """The head of the answer has more than `limit` bytes."""
    text = f"The head of the server's answer is larger than its max_header allows ({limit} bytes)"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def too_talkative() -> UpstreamFailed:
    """The server sends more besides its answer than the gateway reads: on its event stream, or in
    the framing of HTTP."""
    text = "The server sent too much data besides its answer"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def large_catalogue() -> UpstreamFailed:
    """The list of tools exceeds `limits.catalogue`."""
    text = "The server's list of tools is larger than limits.catalogue allows"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def too_large_for_somebody() -> UpstreamFailed:
    """An answer is too large and its request is unknown: one of the waiting requests will not be
    answered."""
    text = "The server sent an answer that is too large, and its request is unknown"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def unread() -> UpstreamFailed:
    """The server reports a parse error without an id, so the message that it could not read is
    unknown."""
    text = "The server could not read a message, and did not say which"
    return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=True)


def begun(failure: UpstreamFailed) -> UpstreamFailed:
    """Return the failure of a request that the server refused after it had sent something of it."""
    return _copy(failure, dispatched=True)


def session_lost() -> UpstreamFailed:
    """The server no longer knows the session, so it did not process the message."""
    return UpstreamFailed(UpstreamReason.SESSION_LOST, "The server ended the session", dispatched=False)


def settled(failure: UpstreamFailed, *, is_lost: bool) -> UpstreamFailed:
    """Return the failure of a call that is not sent again.

    If it doubted the session, that is a lost session if it `is_lost`, else what the server answered.
    """
    if not isinstance(failure, SessionDoubted):
        return failure
    if is_lost:
        return session_lost()
    return _copy(failure, reason=UpstreamReason.REFUSED, dispatched=False)


def refused(
    status: int, *, body: Any = None, has_credentials: bool = True, retry_after: timedelta | None = None
) -> UpstreamFailed:
    """An HTTP status that is no success and no redirect. Below 500 the server did not act.

    `body` is what hosts get of the answer's body. `has_credentials`: some are configured for the server.
    `retry_after` is the pause that the server asks for.
    """
    text = f"The server refused the request with HTTP status {status}"
    if status == _UNAUTHORIZED:
        text = _WRONG_CREDENTIALS if has_credentials else _NO_CREDENTIALS
    elif status == _FORBIDDEN:
        text = f"The server forbids the request (HTTP status {status})"
    refusal: dict[str, Any] = {"httpStatus": status}
    # An answer to the gateway's credentials is not for hosts.
    if body and status != _UNAUTHORIZED:
        refusal["body"] = body
    kind = Unserved if status >= 500 else UpstreamFailed
    return kind(
        UpstreamReason.REFUSED,
        text,
        dispatched=status >= 500,
        retry_after=retry_after,
        cause=http_cause(status),
        refusal=refusal,
    )


def http_cause(status: int) -> str:
    """Return the cause of a failure that is an HTTP status."""
    return f"HTTP {status}"


def no_credentials(
    reason: UpstreamReason, more: str = "", *, retry_after: timedelta | None = None, word: str | None = None
) -> UpstreamFailed:
    """The gateway has no credentials for the server, so nothing was sent. `more` ends the text."""
    return NoCredentials(reason, more, retry_after, word)


def no_token() -> UpstreamFailed:
    """Credentials depend on the caller's token, and the caller has no valid one."""
    return NoCredentials(UpstreamReason.REFUSED, ": the caller has no valid token")


def redirected(status: int) -> UpstreamFailed:
    """A redirect that is not followed. Only 307 and 308 say that the request was not processed."""
    text = "The server sent a redirect that the gateway does not follow"
    return UpstreamFailed(UpstreamReason.REDIRECT, text, dispatched=status not in KEEPING_REDIRECTS)


def unwelcome(
    status: int, *, body: Any = None, has_credentials: bool = True, retry_after: timedelta | None = None
) -> UpstreamFailed:
    """An HTTP status of a refused request, without a JSON-RPC body; see `refused`."""
    refusal = refused(status, body=body, has_credentials=has_credentials, retry_after=retry_after)
    if status not in UNKNOWING:
        return refusal
    return Unwelcome(str(refusal), {}, retry_after=retry_after, cause=refusal.cause, refusal=refusal.refusal)


def refusal_of_session(response: Response) -> str | None:
    """Return code and text of an error that may say that the server does not know the session; None of another."""
    text = value_of((response.error.members or {}) if response.error is not None else {}, "message")
    return f"{response.error_code} {text}" if isinstance(text, str) and _OF_SESSIONS(text) is not None else None


def said_in(response: Response) -> dict[str, Any]:
    """Return code, message and data of the error in a response; None for those that it has not.

    They may show the server's era, and are logged for operators.
    """
    members = (response.error.members or {}) if response.error is not None else {}
    return {name: value_of(members, name) for name in ("code", "message", "data")}


def no_session(error: dict[str, Any]) -> Unwelcome:
    """The server refused `initialize` with this JSON-RPC error."""
    return Unwelcome("The server refused to open a session", error, cause="refuses `initialize`")


def tells_nothing(status: int) -> bool:
    """Whether an HTTP status depends on the moment or the caller, and so says nothing about the
    era."""
    return status >= 500 or status in _OF_THE_CALLER


def is_down(failure: UpstreamFailed) -> bool:
    """Whether a failure means that the server is down.

    That is so if it was not reached, was silent, closed the connection, or answered with HTTP 500
    and above. It is so too if the circuit is open. Any other answer shows that it is up. A failure
    of the gateway itself shows nothing.
    """
    if isinstance(failure, Ours):
        return False
    return isinstance(failure, Down | Unserved) or failure.reason in _OF_SERVERS_DOWN


def is_for_now(status: int, retry_after: timedelta | None) -> bool:
    """Whether a server refuses a request for now, whatever the body, and says for how long."""
    return retry_after is not None and http_cause(status) == _FOR_NOW


def may_be_awaited(failure: UpstreamFailed) -> bool:
    """Whether a request certainly did not run and may succeed later: the server was not reached, was
    down before it, or refused it for now. The same of the endpoint that gives tokens for it."""
    if failure.dispatched or isinstance(failure, StaleToken):
        return False
    if isinstance(failure, Ours) and not isinstance(failure, NoCredentials):
        return False
    return (
        isinstance(failure, Down)
        or failure.reason == UpstreamReason.UNREACHABLE.value
        or failure.cause == _FOR_NOW
        or (isinstance(failure, NoCredentials) and failure.reason == UpstreamReason.TIMEOUT.value)
    )


def unsent(failure: UpstreamFailed) -> UpstreamFailed:
    """Return the failure for a request that was not sent because something before it failed so.

    That may be a handshake. The failure is Down if it means that the server is down, and never
    `dispatched`.
    """
    if is_down(failure):
        return _copy(failure, Down, dispatched=False)
    if not failure.dispatched:
        return failure
    return _copy(failure, Ours if isinstance(failure, Ours) else UpstreamFailed, dispatched=False)


def _copy(
    failure: UpstreamFailed,
    kind: type[UpstreamFailed] = UpstreamFailed,
    *,
    reason: UpstreamReason | None = None,
    dispatched: bool,
) -> UpstreamFailed:
    """Return a failure of that kind with the text and details of another, and its reason unless one is given."""
    return kind(
        reason or UpstreamReason(failure.reason),
        str(failure),
        dispatched=dispatched,
        retry_after=failure.retry_after,
        cause=failure.cause,
        refusal=failure.refusal,
    )


def sent(failure: UpstreamFailed) -> UpstreamFailed:
    """Return the failure for a call that was sent earlier, and whose answer is lost by it.

    It is `dispatched`, even if the request that failed was not sent.
    """
    return failure if failure.dispatched else begun(failure)


KEPT_TOO_LONG: Final = "a kept connection"
"""The cause of a failure that tells nothing of the server's health."""
_FOR_NOW: Final = http_cause(429)
_OF_SESSIONS: Final = re.compile(r"session|initiali[sz]", re.IGNORECASE).search
"""Words in an error about a session. Its ping then tells whether it is lost."""
SESSION_REFUSALS: Final = frozenset({400, 401, 403, 404, 410, 422})
"""Statuses by which released servers refuse a session that they do not know. 404 is that of the specification."""
CHANNEL_REFUSALS: Final = SESSION_REFUSALS - {401, 403}
"""Those by which an HTTP+SSE server refuses a POST in a session that it does not know. Statuses of credentials do not
count: the address for POSTs names the session."""
KEEPING_REDIRECTS: Final = frozenset({307, 308})
"""Redirects that keep method and body."""
_OF_SERVERS_DOWN: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_OF_THE_CALLER: Final = frozenset({_UNAUTHORIZED, _FORBIDDEN, 429})
_WRONG_CREDENTIALS: Final = "The server refused the gateway's credentials"
_NO_CREDENTIALS: Final = "The server requires credentials, and none are configured: set upstreams.*.credentials"
UNKNOWING: Final = frozenset({400, 404, 405})
"""Statuses by which a server may refuse what its era does not know."""
