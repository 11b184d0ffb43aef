"""Lines: the sessions with servers over which requests of the modern era go, and which no host knows of.

A line is shared by the requests of one caller at one mount that declare the same capabilities, since those are what a
server of the legacy era was told of its host. Nothing that is said on one request outlasts it here (V-META-4): a
line is chosen anew, by what each request says.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from taskgate.admission.callers import principal
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import InvalidParams
from taskgate.gateway.denied_extensions import DeniedExtensions
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.reading import MAX_CAPABILITIES
from taskgate.sessions.call_sites import asked_of
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener
from taskgate.upstream.principal import Principal

MAX_IDLE: Final = 16
"""Lines of one caller at one mount that are kept though nothing goes over them."""

MOST_OWNERS: Final = 10_000
LOOKED_AT: Final = 8
"""Callers at mounts of whom lines are kept, and how many are looked at for idle ones when there is one too many."""

MOST_KEPT: Final = 256
LONGEST_KEPT: Final = 4 * 1024
"""How many readings of capabilities are remembered, and the letters of the longest."""

LONGEST_INFO: Final = 1024
"""Letters of a serverInfo that is told with every result: one that holds its icons is told in the welcome alone."""

Hear = Callable[[Notification], None]


class SharedSession(UnsavedCallListener):
    """One session with a server, and for whom it is.

    Inside `with line`, and while it is held, it is in use: it is not let go, and idleness counts from the end of that.
    `caller` is who last sent a request over it: always the same one, with the newest token of theirs.
    """

    host_session: None = None

    def __init__(self, mount: Mount, caller: AuthContext, peer: Peer, clock: Clock) -> None:
        self.mount = mount
        self.owner = caller.owner(mount.name)
        self.peer = peer
        self.may_be_asked = bool(asked_of(peer))
        """Whether its host says that a server may ask it something."""
        self.caller = caller
        self.upstream: UpstreamSession = mount.upstream.session(self, self._speaks, peer)
        self.info = mount.info
        """What results tell as serverInfo; None tells what the server itself does."""
        self._server_info: RawJson | None = None
        self.seen = clock.elapsed()
        self._listeners: list[Hear] = []
        self._uses = 0
        self._clock = clock

    def __enter__(self) -> Self:
        self._uses += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._uses -= 1
        self.seen = self._clock.elapsed()

    @property
    def busy(self) -> bool:
        """Whether anything goes over it: a request, a task, a stream that listens."""
        return self._uses > 0

    def hold(self) -> None:
        """Keep it open until `release`."""
        self._uses += 1

    def release(self) -> None:
        """What it was held for is over."""
        self._uses -= 1
        self.seen = self._clock.elapsed()

    def move(self, mount: Mount) -> None:
        """Be a line of that mount from now on, whose server is the same."""
        self.mount = mount
        self.info = mount.info or self._server_info

    def met(self, server: Server) -> None:
        """What the results of a server tell that it is, where they cannot say so themselves.

        See SessionCallListener.
        """
        is_short = server.info is not None and len(server.info) <= LONGEST_INFO
        self._server_info = server.info if is_short and era_of(server.peer.revision) is Era.LEGACY else None
        self.info = self.mount.info or self._server_info

    def listen(self, hear: Hear) -> None:
        """Let `hear` know what the server says of no call, until `unlisten`. It must not raise, nor wait."""
        self._listeners.append(hear)

    def unlisten(self, hear: Hear) -> None:
        """Let it know no more."""
        self._listeners.remove(hear)

    def on_notification(self, notification: Notification) -> None:
        """What the server says of no call is for whoever listens; see CallListener."""
        for hear in tuple(self._listeners):
            hear(notification)

    def clog(self) -> None:
        """See CallListener: what belongs to no call is dropped rather than waited for."""

    @property
    def passes_rounds(self) -> bool:
        """See CallListener."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """Nobody can be asked but in the answer to a request, and this is about none; see CallListener."""
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener: there is no request that could lack it."""

    def _speaks(self) -> Principal:
        return principal(self.caller)


class SessionPool:
    """All lines of this process. `idle` is how long one is kept over which nothing goes.

    What the host of a new one declares and does not cross is told to `denied`.
    """

    def __init__(self, *, clock: Clock, idle: timedelta, denied: DeniedExtensions) -> None:
        self._denied = denied
        self._clock = clock
        self._idle = idle.total_seconds()
        # The owner who was not there for the longest in front. A plain dict would have to search for its front.
        self._live: OrderedDict[OwnerKey, dict[_Kind, SharedSession]] = OrderedDict()
        # To servers that are spoken to in another way by now: they end with what goes over them.
        self._retired: set[SharedSession] = set()
        # By the objects themselves, which stay while they are here: what hosts say again and again is read as the same.
        self._kinds: dict[int, tuple[Peer, _Kind]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, mount: Mount, caller: AuthContext, peer: Peer) -> SharedSession:
        """The line for a request that says this of its host; to be used in a `with` right away.

        Raises InvalidParams for capabilities out of all proportion.
        """
        kind = self._kind(peer)
        owner = caller.owner(mount.name)
        its = self._live.get(owner)
        if its is None:
            its = self._live[owner] = {}
            self._make_room_for_owners()
        else:
            self._live.move_to_end(owner)
        # Last in the order from here on: those in front are the ones that were not asked for the longest.
        line = its.pop(kind, None)
        if line is not None and line.mount is not mount:
            line = self._moved(line, mount)
        if line is None:
            # Who the host says it is is no capability: hosts that share a line must not be taken for each other.
            line = SharedSession(
                mount, caller, Peer(revision=peer.revision, capabilities=peer.capabilities, info={}), self._clock
            )
            self._make_room(its)
            self._denied.of_host(mount, peer)
        its[kind] = line
        line.caller = caller
        return line

    def sweep(self) -> None:
        """Let go of what has been idle for too long."""
        limit = self._clock.elapsed() - self._idle
        for owner, its in tuple(self._live.items()):
            for kind, line in tuple(its.items()):
                if not line.busy and line.seen <= limit:
                    self._discard(its.pop(kind))
            if not its:
                del self._live[owner]
        for line in tuple(self._retired):
            if not line.busy:
                self._retired.discard(line)
                self._discard(line)

    async def close(self) -> None:
        """Close every line, whatever goes over it."""
        for its in self._live.values():
            for line in its.values():
                self._discard(line)
        for line in self._retired:
            self._discard(line)
        self._live.clear()
        self._retired.clear()
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    def _kind(self, peer: Peer) -> "_Kind":
        known = self._kinds.get(id(peer))
        if known is not None:
            return known[1]
        kind = _kind(peer)
        if len(kind.capabilities) <= LONGEST_KEPT:
            if len(self._kinds) >= MOST_KEPT:
                self._kinds.clear()
            self._kinds[id(peer)] = peer, kind
        return kind

    def _moved(self, line: SharedSession, mount: Mount) -> SharedSession | None:
        """The line of a mount that was made anew; None where its server is spoken to in another way."""
        if line.mount.upstream is not mount.upstream:
            if line.busy:
                self._retired.add(line)
            else:
                self._discard(line)
            return None
        line.move(mount)
        return line

    def _make_room_for_owners(self) -> None:
        """Let go of the lines of the owner who was not there for the longest, where too many have some.

        Only a few are looked at, so where those are all busy, there are more for now.
        """
        for owner in tuple(islice(self._live, LOOKED_AT if len(self._live) > MOST_OWNERS else 0)):
            its = self._live[owner]
            if any(line.busy for line in its.values()):
                self._live.move_to_end(owner)
                continue
            for line in self._live.pop(owner).values():
                self._discard(line)
            break

    def _make_room(self, its: "dict[_Kind, SharedSession]") -> None:
        """Let go of the idle line that was not asked for the longest, where there are too many."""
        idle = [kind for kind, line in its.items() if not line.busy]
        for kind in idle[: max(0, len(idle) + 1 - MAX_IDLE)]:
            self._discard(its.pop(kind))

    def _discard(self, line: SharedSession) -> None:
        """Close a line in the background; `close` waits for it."""
        closing = asyncio.get_running_loop().create_task(line.upstream.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _Kind(NamedTuple):
    """What tells the lines of one caller at one mount apart."""

    revision: str
    capabilities: str


def _kind(peer: Peer) -> _Kind:
    capabilities = _canonical(peer.capabilities)
    if len(capabilities) > MAX_CAPABILITIES:
        raise InvalidParams(f"The capabilities are longer than {MAX_CAPABILITIES} characters")
    return _Kind(peer.revision, capabilities)


def _canonical(capabilities: dict[str, Any]) -> str:
    """The same text for the same capabilities, in whatever order and spacing they were written."""
    if not capabilities:
        return "{}"
    return json.dumps(capabilities, sort_keys=True, separators=(",", ":"))
