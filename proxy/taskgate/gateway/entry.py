"""Which session a request belongs to, by its head and its caller; and what is told of requests on their way in.

What must not live here: what a session is (`sessions`), and messages that need none (`gateway`).
"""

from collections.abc import Coroutine
from typing import Any

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.versions import Peer, find_revision
from taskgate.errors import SessionRequired, UnsupportedVersion
from taskgate.sessions.registry import HostSession, HostSessions
from taskgate.streams.exchange import UNKNOWN, InboundHead
from taskgate.telemetry import request_context
from taskgate.telemetry.request_context import Client, RequestContext


def session_of(
    inbound: InboundHead, sessions: HostSessions, mount: Mount, caller: AuthContext
) -> Coroutine[Any, Any, HostSession]:
    """The session that the head names, its owner checked. Raises UnsupportedVersion, SessionRequired, SessionNotFound.

    A revision need not be named, and one that is served changes nothing if it is another than the session's
    (docs/decisions/0017).
    """
    if inbound.revision is not None and find_revision(inbound.revision) is None:
        raise UnsupportedVersion("The protocol version is not supported")
    if inbound.host_session is None:
        raise SessionRequired("The message needs a session: send initialize first")
    return sessions.find(mount, caller, inbound.host_session)


def present() -> RequestContext:
    """The visit of the request that is served now; for one that came through no listener, one that nobody reads."""
    return request_context.current() or RequestContext("", UNKNOWN, "", "")


def note_peer(peer: Peer, client: Client) -> None:
    """Let it say what its host speaks, and what it said of itself."""
    seen = request_context.current()
    if seen is not None:
        seen.revision, seen.client = peer.revision, client
