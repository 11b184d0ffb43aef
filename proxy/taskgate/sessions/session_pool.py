"""The pool of upstream sessions of requests without a session: `SessionPool`, with a `SharedSession` for each.

A modern host has no session, but a legacy server needs one. Legacy hosts may also send requests
without a session id (`HostSessions.for_request`). Requests share an upstream session if
they have the same caller, mount, revision and capabilities: a legacy server is told the
capabilities once, in `initialize`. Each request chooses its session anew by what its `_meta`
declares. Nothing of one request applies to the next (V-META-4).

`ModernAdapter` takes a session for each request, and it is busy until the request, and each task
or stream that uses it, has ended. Then it is idle, and a later request may take it. The sweeper
closes sessions that are idle for long; `take` closes some if there are too many.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from taskgate.admission.callers import principal_of
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import MAX_CAPABILITIES, Notification
from taskgate.sessions.binding import client_features
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, ServerQuestion, UnsavedCallListener

MAX_IDLE: Final = 16
"""Idle sessions of one caller at one mount that stay open."""

MAX_OWNERS: Final = 10_000
CHECKED_OWNERS: Final = 8
"""Owners that may have sessions, and how many are checked for idle ones when there is one too many.
An owner is a caller at a mount."""

MOST_KEPT: Final = 256
MAX_CACHED_LENGTH: Final = 4 * 1024
"""Parsed capabilities that are cached, and the most characters of one."""

LONGEST_INFO: Final = 1024
"""Characters of a serverInfo that is repeated in every result. A longer one, with icons inside, is
only in the answer to `server/discover`."""

OnNotification = Callable[[Notification], None]


class SharedSession(UnsavedCallListener):
    """A session with a server, shared by requests of one caller.

    Inside `with session`, and between `acquire` and `release`, it is busy: it is not closed. `seen`
    is when it was last busy, from which idle time counts. `caller` is that of the newest request:
    always the same caller, but with the newest token. `peer` is what its hosts declare.
    """

    host_session: None = None

    def __init__(self, mount: Mount, caller: AuthContext, peer: Peer, clock: Clock) -> None:
        self.mount = mount
        self.owner = caller.owner(mount.name)
        self.peer = peer
        self.may_be_asked = bool(client_features(peer))
        """Whether the host declares that it can be asked something."""
        self.set_caller(caller)
        self.upstream: UpstreamSession = mount.upstream.session(self, self._principal, peer)
        self.info = mount.info
        """The serverInfo of results; None leaves the server's own in place."""
        self._server_info: RawJson | None = None
        self.seen = clock.elapsed()
        self._listeners: list[OnNotification] = []
        self._uses = 0
        self._clock = clock

    def __enter__(self) -> Self:
        self._uses += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._uses -= 1
        self.seen = self._clock.elapsed()

    def set_caller(self, caller: AuthContext) -> None:
        """Set the caller of the newest request, and its principal."""
        self.caller, self.principal = caller, principal_of(caller)

    @property
    def busy(self) -> bool:
        """Whether it is in use by a request, a task, or an event stream."""
        return self._uses > 0

    def acquire(self) -> None:
        """Keep it open until `release`."""
        self._uses += 1

    def release(self) -> None:
        """End one `acquire`."""
        self._uses -= 1
        self.seen = self._clock.elapsed()

    def move(self, mount: Mount) -> None:
        """Set the mount that a reload put in the place of its own, with the same upstream."""
        self.mount = mount
        self.info = mount.info or self._server_info

    def met(self, server: ServerDescription) -> None:
        """Store the name and version of a legacy server, which its results do not have.

        Called by the upstream session after each handshake.
        """
        is_short = server.info is not None and len(server.info) <= LONGEST_INFO
        self._server_info = server.info if is_short and era_of(server.peer.revision) is Era.LEGACY else None
        self.info = self.mount.info or self._server_info

    def subscribe(self, callback: OnNotification) -> None:
        """Call `callback` with notifications that belong to no call, until `unsubscribe`.

        It must not raise or block.
        """
        self._listeners.append(callback)

    def unsubscribe(self, callback: OnNotification) -> None:
        """Stop calling `callback`."""
        self._listeners.remove(callback)

    def on_notification(self, notification: Notification) -> None:
        """Pass on a notification that belongs to no call."""
        for callback in tuple(self._listeners):
            callback(notification)

    def clog(self) -> None:
        """Return None: what belongs to no call is dropped rather than waited for."""

    @property
    def passes_rounds(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        """Refuse a question that belongs to no call: a modern host can be asked only in an answer."""
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: no request could lack the capability."""

    def _principal(self) -> Principal:
        return self.principal


class SessionPool:
    """All shared sessions of this process. `idle` is how long an idle one stays open.

    When a session is created, extensions that its host declares and the gateway does not forward
    are reported with `report_host`.
    """

    def __init__(self, *, clock: Clock, idle: timedelta, report_host: Callable[[Mount, Peer], None]) -> None:
        self._report_host = report_host
        self._clock = clock
        self._idle = idle.total_seconds()
        # The least recently seen owner is first. A plain dict would have to search for its first
        # key.
        self._sessions: OrderedDict[tuple[str, str], dict[_Kind, SharedSession]] = OrderedDict()
        # Sessions whose upstream was replaced by a reload: they close when they are idle.
        self._retired: set[SharedSession] = set()
        # The computed kind, by the `id()` of the Peer, which stays alive in the value. Hosts repeat
        # their capabilities, and the parser returns the same object for the same text.
        self._kinds: dict[int, tuple[Peer, _Kind]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, mount: Mount, caller: AuthContext, peer: Peer) -> SharedSession:
        """Return the session for a request, created if there is none.

        The caller enters its `with` block before any await, else it may be closed. `peer` is what
        the request declares of its host. Raises InvalidParams for capabilities that are too long.
        """
        known = self._kinds.get(id(peer))
        kind = known[1] if known is not None else self._read_kind(peer)
        # As an OwnerKey, which costs more to make.
        owner = (caller.key, mount.name)
        sessions = self._sessions.get(owner)
        if sessions is None:
            sessions = self._sessions[owner] = {}
            self._make_room_for_owners()
        else:
            self._sessions.move_to_end(owner)
        # Put back below, at the end: the least recently used are first.
        session = sessions.pop(kind, None)
        if session is not None and session.mount is not mount:
            session = self._moved(session, mount)
        if session is None:
            # The host's name is left out: hosts that share a session must not be mistaken for each
            # other.
            session = SharedSession(
                mount, caller, Peer(revision=peer.revision, capabilities=peer.capabilities, info={}), self._clock
            )
            self._make_room(sessions)
            self._report_host(mount, peer)
        sessions[kind] = session
        if session.caller is not caller:
            session.set_caller(caller)
        return session

    def sweep(self) -> None:
        """Close sessions that have been idle for too long."""
        limit = self._clock.elapsed() - self._idle
        for owner, sessions in tuple(self._sessions.items()):
            for kind, session in tuple(sessions.items()):
                if not session.busy and session.seen <= limit:
                    self._discard(sessions.pop(kind))
            if not sessions:
                del self._sessions[owner]
        for session in tuple(self._retired):
            if not session.busy:
                self._retired.discard(session)
                self._discard(session)

    async def close(self) -> None:
        """Close every session, even if it is busy."""
        for sessions in self._sessions.values():
            for session in sessions.values():
                self._discard(session)
        for session in self._retired:
            self._discard(session)
        self._sessions.clear()
        self._retired.clear()
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    def _read_kind(self, peer: Peer) -> "_Kind":
        """Compute the kind of a host, and cache it. Raises InvalidParams for capabilities that are
        too long.
        """
        capabilities = _canonical(peer.capabilities)
        if len(capabilities) > MAX_CAPABILITIES:
            raise InvalidParams(f"The capabilities are longer than {MAX_CAPABILITIES} characters")
        kind = _Kind(peer.revision, capabilities)
        if len(kind.capabilities) <= MAX_CACHED_LENGTH:
            if len(self._kinds) >= MOST_KEPT:
                self._kinds.clear()
            self._kinds[id(peer)] = peer, kind
        return kind

    def _moved(self, session: SharedSession, mount: Mount) -> SharedSession | None:
        """Move a session to the mount that a reload put in the place of its own.

        Returns None if the upstream was replaced too. Then the session is of no use, and is closed
        as soon as it is idle.
        """
        if session.mount.upstream is not mount.upstream:
            if session.busy:
                self._retired.add(session)
            else:
                self._discard(session)
            return None
        session.move(mount)
        return session

    def _make_room_for_owners(self) -> None:
        """Close the sessions of the least recently seen owner, if there are too many owners.

        Only a few owners are checked. If all of them are busy, the limit is exceeded for now.
        """
        for owner in tuple(islice(self._sessions, CHECKED_OWNERS if len(self._sessions) > MAX_OWNERS else 0)):
            sessions = self._sessions[owner]
            if any(session.busy for session in sessions.values()):
                self._sessions.move_to_end(owner)
                continue
            for session in self._sessions.pop(owner).values():
                self._discard(session)
            break

    def _make_room(self, sessions: "dict[_Kind, SharedSession]") -> None:
        """Close the least recently used idle sessions of an owner, if there are too many."""
        idle = [kind for kind, session in sessions.items() if not session.busy]
        for kind in idle[: max(0, len(idle) + 1 - MAX_IDLE)]:
            self._discard(sessions.pop(kind))

    def _discard(self, session: SharedSession) -> None:
        """Close a session in the background; `close` waits for it."""
        closing = asyncio.get_running_loop().create_task(session.upstream.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _Kind(NamedTuple):
    """The key of a session among those of one caller at one mount."""

    revision: str
    capabilities: str


def _canonical(capabilities: dict[str, Any]) -> str:
    """Return the same text for equal capabilities, whatever their order and spacing."""
    if not capabilities:
        return "{}"
    return json.dumps(capabilities, sort_keys=True, separators=(",", ":"))
