"""What is said of a server whose event stream is none to speak over. None of these says where the server is."""

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.failures import Ours


def elsewhere() -> UpstreamFailed:
    """Its endpoint is of another origin, which is never asked (U-SSE-2)."""
    text = "The server's message endpoint is on another origin, which is not allowed"
    return UpstreamFailed(UpstreamReason.REDIRECT, text, dispatched=False)


def no_stream() -> UpstreamFailed:
    """What it answers with is no event stream."""
    text = "The server broke the protocol: it did not answer with an event stream"
    return UpstreamFailed(UpstreamReason.MALFORMED, text, dispatched=False)


def no_endpoint() -> UpstreamFailed:
    """The stream stands, and nothing on it tells where messages are to be sent."""
    text = "The server did not send its message endpoint in time"
    return UpstreamFailed(UpstreamReason.TIMEOUT, text, dispatched=False)


def ended_at_once() -> UpstreamFailed:
    """The stream ended before it told."""
    text = "The server's event stream ended before it sent its message endpoint"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False)


def ended(*, dispatched: bool) -> UpstreamFailed:
    """The stream ended, and the session with it (U-SSE-3)."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server's event stream ended", dispatched=dispatched)


def given_up(*, dispatched: bool) -> UpstreamFailed:
    """We ended it ourselves."""
    text = "The connection to the server was closed"
    return Ours(UpstreamReason.CLOSED, text, dispatched=dispatched)
