"""Failures of an SSE stream, with their texts for hosts. No text contains the server's address.

`channel` and `provider` raise them, next to those of `upstream.failures`.
"""

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.failures import Ours


def elsewhere() -> UpstreamFailed:
    """The endpoint is of another origin, to which nothing is sent (U-SSE-2)."""
    text = "The server's message endpoint is on another origin, which is not allowed"
    return UpstreamFailed(UpstreamReason.REDIRECT, text, dispatched=False)


def no_stream() -> UpstreamFailed:
    """The answer is no event stream."""
    text = "The server broke the protocol: it did not answer with an event stream"
    return UpstreamFailed(UpstreamReason.MALFORMED, text, dispatched=False)


def no_endpoint() -> UpstreamFailed:
    """The stream is open, but the server did not send its endpoint."""
    text = "The server did not send its message endpoint in time"
    return UpstreamFailed(UpstreamReason.TIMEOUT, text, dispatched=False)


def ended_at_once() -> UpstreamFailed:
    """The stream ended before the endpoint was sent."""
    text = "The server's event stream ended before it sent its message endpoint"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False)


def ended(*, dispatched: bool) -> UpstreamFailed:
    """The stream ended, and its session with it (U-SSE-3)."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server's event stream ended", dispatched=dispatched)


def given_up(*, dispatched: bool) -> UpstreamFailed:
    """The gateway closed the stream."""
    text = "The connection to the server was closed"
    return Ours(UpstreamReason.CLOSED, text, dispatched=dispatched)
