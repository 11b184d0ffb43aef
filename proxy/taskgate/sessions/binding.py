"""The binding of a call to a server session: `CallSite` before it is sent, `OngoingCall` after it.

A legacy host session is a call site, and so is a pooled server session of the modern era. The
lifecycle runs tasks on both in the same way. It acquires the call site for each task while the task
runs, and for each block in which a task is created (`runner.Expected`). A call that was sent before it
became a task is an `OngoingCall`: the gateway made it, and `Runner.adopt` takes it over.
"""

from typing import Any, Final, Protocol

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.record import OwnerKey
from taskgate.domain.versions import Peer
from taskgate.protocol.messages import Response
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import CallListener, Principal

_FEATURES: Final = ("elicitation", "roots", "sampling")


class CallSite(Protocol):
    """A server session that calls are sent on, and the host that it was opened for.

    `host_session` is the id of the host's session; None in the modern era, which has no sessions.
    """

    @property
    def mount(self) -> Mount: ...

    @property
    def owner(self) -> OwnerKey: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def upstream(self) -> UpstreamSession: ...

    @property
    def caller(self) -> AuthContext:
        """The caller of the newest request: always the same caller, with the newest token."""
        ...

    @property
    def principal(self) -> Principal:
        """The principal of that caller."""
        ...

    @property
    def host_session(self) -> str | None: ...

    def acquire(self) -> None:
        """Count a task that starts on the server session, which stays open for it."""
        ...

    def release(self) -> None:
        """Count the end of that task; after the last one, the server session may close."""
        ...


def client_features(peer: Peer) -> dict[str, Any]:
    """The capabilities of a host that let a server ask it something in a call."""
    return {name: peer.capabilities[name] for name in _FEATURES if name in peer.capabilities}


class OngoingCall(Protocol):
    """A call that was sent for a host, and that can become a task while it runs."""

    def attach_listener(self, listener: CallListener) -> None:
        """Pass messages of the server about the call to `listener` from now on, open questions first.

        Called once, when the call has become a task.
        """
        ...

    async def response(self) -> Response:
        """The server's response. Raises UpstreamFailed. Cancelling this cancels the call."""
        ...

    def close(self) -> None:
        """Cancel the call if it still runs. A second call does nothing."""
        ...
