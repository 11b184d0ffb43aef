"""Which session a request belongs to, by its head and its caller.

What must not live here: what a session is (`sessions`), and messages that need none (`gateway`).
"""

from collections.abc import Coroutine
from typing import Any

from taskgate.auth.context import AuthContext
from taskgate.engine.messages import Inbound
from taskgate.engine.mounts import Mount
from taskgate.engine.sessions import HostSession, HostSessions
from taskgate.errors import SessionRequired, UnsupportedVersion
from taskgate.mcp.versions import find_revision


def session_of(
    inbound: Inbound, sessions: HostSessions, mount: Mount, caller: AuthContext
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
