"""Helpers for the first steps of a request: its session (`session_of`) and its `RequestContext`
(`present`, `note_peer`).

`session_of` is for the legacy era, whose requests name a session in the `Mcp-Session-Id` header. A
`RequestContext` collects what logs and metrics say of a request. The listener creates it;
`Gateway` and the handler of the legacy era fill it in by the two other helpers.
"""

from collections.abc import Coroutine
from typing import Any

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.versions import Peer, find_revision
from taskgate.errors import SessionRequired, UnsupportedVersion
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions
from taskgate.streams.exchange import UNKNOWN, InboundHead
from taskgate.telemetry import request_context
from taskgate.telemetry.request_context import Client, RequestContext


def session_of(
    inbound: InboundHead, sessions: HostSessions, mount: Mount, caller: AuthContext
) -> Coroutine[Any, Any, HostSession]:
    """Return an awaitable of the session that the request's head names.

    The call raises UnsupportedVersion if the head names a revision that is none of the legacy era,
    and SessionRequired if it names no session. A legacy revision that differs from the session's
    has no effect (docs/decisions/0017). The await raises SessionNotFound unless the session is the
    caller's at this mount.
    """
    if inbound.revision is not None and find_revision(inbound.revision) is None:
        raise UnsupportedVersion("The protocol version is not supported")
    if inbound.host_session is None:
        raise SessionRequired("The message needs a session: send initialize first")
    return sessions.find(mount, caller, inbound.host_session)


def present() -> RequestContext:
    """Return the context of the current request, which callers may change.

    A request that came through no listener, as in tests, has none. Then this returns an empty
    context, which no report reads.
    """
    return request_context.current() or RequestContext("", UNKNOWN, "", "")


def note_peer(peer: Peer, client: Client) -> None:
    """Record in the context of the current request the host's revision, and how the host describes
    itself (`client`). Does nothing without a context."""
    seen = request_context.current()
    if seen is not None:
        seen.revision, seen.client = peer.revision, client
