"""From where a task is made: what of a host session, or of a line of the modern era, its call needs to run.

And what is known of a call that has left already before it becomes one.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from taskgate.admission.mounts import Mount
from taskgate.domain.versions import Peer
from taskgate.protocol.messages import Response
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.call_listener import CallListener


class CallSite(Protocol):
    """A session with a server, and who it is opened for. `host_session` is the id of the host's own, None without."""

    @property
    def mount(self) -> Mount: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def upstream(self) -> UpstreamSession: ...

    @property
    def host_session(self) -> str | None: ...

    def hold(self) -> None:
        """A task begins to run over it: it stays open until that is over."""
        ...

    def release(self) -> None:
        """That task is over."""
        ...


def asked_of(peer: Peer) -> dict[str, Any]:
    """What a host says that it can be asked."""
    return {name: peer.capabilities[name] for name in _ASKED if name in peer.capabilities}


_ASKED: Final = ("elicitation", "roots", "sampling")


class TaskCreation:
    """A block in which a place is held; `begun` and `over` are called at its ends, for whoever counts such blocks."""

    __slots__ = ("_begun", "_over", "_place")

    def __init__(self, place: CallSite, begun: Callable[[], None], over: Callable[[], None]) -> None:
        self._place = place
        self._begun = begun
        self._over = over

    def __enter__(self) -> None:
        self._begun()
        self._place.hold()

    def __exit__(self, *_: object) -> None:
        self._place.release()
        self._over()


class OngoingCall(Protocol):
    """A call that left for a server on behalf of a host, and may go on without it."""

    def heard_by(self, listener: CallListener) -> None:
        """Let what the server says of it go to `listener` from now on, and first what it asked that nobody answered."""
        ...

    async def response(self) -> Response:
        """The server's response. Raises UpstreamFailed; to cancel it gives the call up."""
        ...

    def close(self) -> None:
        """Give the call up if it still runs. A second close does nothing."""
        ...
