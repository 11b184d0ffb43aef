"""Helpers for the first steps of a request: its session (`session_of`) and its `RequestContext`
(`present`, `note_peer`).

`Gateway` and the handlers of both eras use them. `session_of` is for the legacy era, whose requests
name a session in the `Mcp-Session-Id` header.
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
    """Return the session that the request's head names, if it is the caller's at this mount.

    A request need not name a revision. A supported one that differs from the session's has no
    effect (docs/decisions/0017). Raises UnsupportedVersion, SessionRequired, SessionNotFound.
    """
    if inbound.revision is not None and find_revision(inbound.revision) is None:
        raise UnsupportedVersion("The protocol version is not supported")
    if inbound.host_session is None:
        raise SessionRequired("The message needs a session: send initialize first")
    return sessions.find(mount, caller, inbound.host_session)


def present() -> RequestContext:
    """Return the context of the current request.

    A request that came through no listener, as in tests, gets a context that no report reads.
    """
    return request_context.current() or RequestContext("", UNKNOWN, "", "")


def note_peer(peer: Peer, client: Client) -> None:
    """Record in the request's context the host's revision and its own description."""
    seen = request_context.current()
    if seen is not None:
        seen.revision, seen.client = peer.revision, client
