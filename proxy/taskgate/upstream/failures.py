"""What is said of a server that failed. One text for each way, and none of them says where the server is."""

from datetime import timedelta
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.envelope import Response
from taskgate.protocol.reading import value_of
from taskgate.system import descriptors


class Unwelcome(UpstreamFailed):
    """The server refused `initialize`, or what was said after it, in a way that may tell of its era (decisions 18a).

    `error` is the JSON-RPC error that it answered with, empty where that was an HTTP status alone.
    """

    def __init__(self, text: str, error: dict[str, Any]) -> None:
        super().__init__(UpstreamReason.REFUSED, text, dispatched=False)
        self.error = error


class Gone(UpstreamFailed):
    """The server does not know any more of a call that it was asked for: what became of it nobody can tell."""

    def __init__(self) -> None:
        text = "The server no longer knows the call; it may or may not have completed"
        super().__init__(UpstreamReason.CALL_LOST, text, dispatched=True)


class Ours(UpstreamFailed):
    """What the gateway itself did, or lacked: it says nothing of the server."""


class Unserved(UpstreamFailed):
    """An HTTP status of 500 or above: whoever answers cannot serve, or is not the server."""


class Down(UpstreamFailed):
    """The server is down, as far as can be told: see `is_down`. What this is reported for has not left."""


class NoCredentials(Ours):
    """There is nothing to show to the server, so nothing was sent to it."""

    def __init__(self, reason: UpstreamReason, more: str = "") -> None:
        super().__init__(reason, f"The gateway could not get credentials for the server{more}", dispatched=False)


class StaleToken(UpstreamFailed):
    """The server can be asked nothing for a caller whose token is no good any more, until they come with another."""


class Severed(UpstreamFailed):
    """The way to the server is no more, with everything on it: nothing can be taken up again where it was."""

    def __init__(self, text: str) -> None:
        super().__init__(UpstreamReason.CLOSED, text, dispatched=True)


class Unsurvived(UpstreamFailed):
    """The server ended of a question that it need not know (decisions 18a)."""

    def __init__(self, text: str) -> None:
        super().__init__(UpstreamReason.CLOSED, text, dispatched=True)


def unreachable() -> UpstreamFailed:
    """No connection came about, so nothing was sent."""
    return UpstreamFailed(UpstreamReason.UNREACHABLE, "The server could not be reached", dispatched=False)


def no_descriptor() -> UpstreamFailed:
    """The gateway has no file descriptor for it, so nothing was sent: the server had no part in that."""
    descriptors.LACK.emit({"limit": descriptors.limit()})
    text = "The gateway has no free file descriptor to connect to the server"
    return UpstreamFailed(UpstreamReason.INTERNAL, text, dispatched=False)


def left_alone(retry_after: timedelta) -> UpstreamFailed:
    """The server failed too often, so nothing was sent to it."""
    text = "Circuit open: the server failed repeatedly; the request was not sent"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, retry_after=retry_after)


def closed() -> UpstreamFailed:
    """The connection ended before an answer began."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server closed the connection before it answered", dispatched=True)


def broke_off() -> UpstreamFailed:
    """An answer began and did not end."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server's answer ended before it was complete", dispatched=True)


def let_go(*, dispatched: bool) -> UpstreamFailed:
    """We ended the session ourselves."""
    return Ours(UpstreamReason.CLOSED, "The session with the server was closed", dispatched=dispatched)


def no_rounds() -> UpstreamFailed:
    """It was in the middle of a call, and has since become one that cannot be told how that goes on."""
    return UpstreamFailed(
        UpstreamReason.REFUSED, "The server no longer supports calls in several rounds", dispatched=True
    )


def called_off() -> UpstreamFailed:
    """The server cancelled the task that it had made of the call, and nobody here wanted it to."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server cancelled its task for the call", dispatched=True)


def lost_sight(failure: UpstreamFailed | None) -> UpstreamFailed:
    """The server made a task of the call, and has not shown it for too long: None where it answered with an error."""
    reason = UpstreamReason.REFUSED if failure is None else UpstreamReason(failure.reason)
    why = "it answered with an error" if failure is None else str(failure)
    return UpstreamFailed(reason, f"The server no longer reports on its task for the call: {why}", dispatched=True)


def silent() -> UpstreamFailed:
    """No head in time, or too long a silence within a body."""
    return UpstreamFailed(UpstreamReason.TIMEOUT, "The server was silent for too long", dispatched=True)


def too_late(*, dispatched: bool) -> UpstreamFailed:
    """The time for the whole call is over."""
    return UpstreamFailed(UpstreamReason.TIMEOUT, "The server did not answer in time", dispatched=dispatched)


def too_large() -> UpstreamFailed:
    """A message is larger than any that is kept."""
    return UpstreamFailed(UpstreamReason.TOO_LARGE, "The server's answer is too large", dispatched=True)


def too_talkative() -> UpstreamFailed:
    """More comes beside the answer than is read: on its event stream, or before it and between its pieces."""
    text = "The server sent too much data besides its answer"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def large_catalogue() -> UpstreamFailed:
    """There are more tools, or more is said of them, than is read."""
    text = "The server's list of tools is larger than limits.catalogue allows"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def too_large_for_somebody() -> UpstreamFailed:
    """The same, and nobody can tell whose answer it is: theirs will not come, and that of the others may not either."""
    text = "The server sent an answer that is too large, and its request is unknown"
    return UpstreamFailed(UpstreamReason.TOO_LARGE, text, dispatched=True)


def malformed(how: str) -> UpstreamFailed:
    """The server broke the protocol."""
    return UpstreamFailed(UpstreamReason.MALFORMED, f"The server broke the protocol: {how}", dispatched=True)


def unread() -> UpstreamFailed:
    """The server says that it could not read something, of which nobody can be sure what it was."""
    text = "The server could not read a message, and did not say which"
    return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=True)


def session_lost() -> UpstreamFailed:
    """The server knows our session no more, so it did not look at the message."""
    return UpstreamFailed(UpstreamReason.SESSION_LOST, "The server ended the session", dispatched=False)


def refused(status: int) -> UpstreamFailed:
    """An HTTP status that is no success and no redirect. One below 500 says that the server did not act."""
    text = f"The server refused the request with HTTP status {status}"
    if status in _UNAUTHORIZED:
        text = "The server refused the gateway's credentials"
    if status >= 500:
        return Unserved(UpstreamReason.REFUSED, text, dispatched=True)
    return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)


def no_credentials(reason: UpstreamReason) -> UpstreamFailed:
    """There is nothing to show to the server, so nothing was sent to it."""
    return NoCredentials(reason)


def no_token() -> UpstreamFailed:
    """Credentials are had for a caller's token, and there is none that still holds."""
    return NoCredentials(UpstreamReason.REFUSED, ": the caller has no valid token")


def redirected(status: int) -> UpstreamFailed:
    """A redirect that is not followed. Only 307 and 308 say that the request is still to be made."""
    text = "The server sent a redirect that the gateway does not follow"
    return UpstreamFailed(UpstreamReason.REDIRECT, text, dispatched=status not in KEEPING_REDIRECTS)


def unwelcome(status: int) -> UpstreamFailed:
    """An HTTP status that a request was refused with, without a word of JSON-RPC."""
    refusal = refused(status)
    return Unwelcome(str(refusal), {}) if status in _UNKNOWING else refusal


def said_in(response: Response) -> dict[str, Any]:
    """What of an error may tell of an era, or is told to an operator."""
    members = (response.error.members or {}) if response.error is not None else {}
    return {name: value_of(members, name) for name in ("code", "message", "data")}


def no_session(error: dict[str, Any]) -> Unwelcome:
    """A JSON-RPC error that `initialize` was refused with."""
    return Unwelcome("The server refused to open a session", error)


def tells_nothing(status: int) -> bool:
    """Whether an HTTP status is about the moment or the caller, and so tells nothing of what a server speaks."""
    return status >= 500 or status in _OF_THE_CALLER


def is_down(failure: UpstreamFailed) -> bool:
    """Whether a failure means that the server is down: not reached, left alone, silent, closed, or HTTP 500 and above.

    An answer of the server is none, whatever it refuses, and neither is what the gateway itself did.
    """
    if isinstance(failure, Ours):
        return False
    return isinstance(failure, Down | Unserved) or failure.reason in _OF_SERVERS_DOWN


def unsent(failure: UpstreamFailed) -> UpstreamFailed:
    """The same failure, of something that went before the message it is reported for; Down where that is what it is."""
    reason = UpstreamReason(failure.reason)
    if is_down(failure):
        return Down(reason, str(failure), dispatched=False, retry_after=failure.retry_after)
    if not failure.dispatched:
        return failure
    return (Ours if isinstance(failure, Ours) else UpstreamFailed)(reason, str(failure), dispatched=False)


def sent(failure: UpstreamFailed) -> UpstreamFailed:
    """The same failure, of something that came after the message it is reported for."""
    if failure.dispatched:
        return failure
    return UpstreamFailed(UpstreamReason(failure.reason), str(failure), dispatched=True)


KEEPING_REDIRECTS: Final = frozenset({307, 308})
"""The redirects that keep method and body."""
_OF_SERVERS_DOWN: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_UNAUTHORIZED: Final = frozenset({401, 403})
_OF_THE_CALLER: Final = _UNAUTHORIZED | {429}
_UNKNOWING: Final = frozenset({400, 404, 405})
