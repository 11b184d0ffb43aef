"""The GET streams of one session that other processes have: what they carry for this one, and this one for them.

Who has one is known from what processes say of it; nobody is asked. What must not live here: the streams of this
process, and what is said on any. What holds: a question is carried by one stream, here or elsewhere (H-LEG-8).
"""

from collections.abc import Reversible
from typing import Protocol

from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import Asks, Listens, Published


class Stream(Protocol):
    """A GET stream of this process."""

    @property
    def closed(self) -> bool: ...

    def put_now(self, message: str) -> bool: ...


class RemoteStreamHandle:
    """The GET streams of a session at one other process, as one."""

    __slots__ = ("_bus", "_session", "holder")

    def __init__(self, session: str, holder: str, bus: ClusterBus) -> None:
        self._session = session
        self.holder = holder
        self._bus = bus

    def put(self, message: str) -> bool:
        """Say something on it; it is not known whether anybody hears that."""
        self._bus.say(Published(self._session, message), to=self.holder)
        return True

    def ask(self, message: str) -> None:
        """Have a question carried on it, until it is said that the stream is over."""
        self._bus.say(Asks(self._session, message), to=self.holder)


class RemoteStreams:
    """Those of all others. `ours` are the streams of this process, in the order in which they were opened.

    Without a `bus` there are no others.
    """

    def __init__(self, session: str, bus: ClusterBus | None, ours: Reversible[Stream]) -> None:
        self._session = session
        self._bus = bus
        self._ours = ours
        self._theirs: dict[str, RemoteStreamHandle] = {}
        self._is_told = False
        # Who is told when a stream of ours ends that carries a question of theirs.
        self._asking: dict[Stream, set[str]] = {}

    @property
    def newest(self) -> RemoteStreamHandle | None:
        """What belongs on a GET stream goes there, if there is none here."""
        return next(reversed(self._theirs.values()), None)

    def publish(self, message: str) -> bool:
        """Say something on one of theirs; whether there is any."""
        newest = self.newest
        return newest is not None and newest.put(message)

    def carry(self, message: str) -> RemoteStreamHandle | None:
        """Ask something on one of theirs; None where there is none."""
        newest = self.newest
        if newest is not None:
            newest.ask(message)
        return newest

    # --- what others say of theirs

    def heard(self, holder: str, *, is_open: bool) -> RemoteStreamHandle | None:
        """Another process has a stream, or none any more; the one that is over, if it was known."""
        gone = self._theirs.pop(holder, None)
        if is_open and self._bus is not None:
            # The newest, though it may have been there before.
            self._theirs[holder] = RemoteStreamHandle(self._session, holder, self._bus)
        return gone

    # --- what we say of ours

    def moved(self, ended: Stream | None = None) -> None:
        """A stream of ours came, or `ended`."""
        if self._bus is None:
            return
        for asking in self._asking.pop(ended, ()) if ended is not None else ():
            self._tell(asking, is_open=False)
            if self._has_any:
                self._tell(asking, is_open=True)
        if self._has_any is not self._is_told:
            self._is_told = self._has_any
            self._tell(None, is_open=self._is_told)

    def tell(self, holder: str) -> None:
        """The session is alive at another process, which does not know yet."""
        if self._has_any:
            self._tell(holder, is_open=True)

    def ask(self, message: str, asking: str) -> None:
        """Carry a question of another process, or say at once that it is to be asked elsewhere."""
        carrier = next((each for each in reversed(self._ours) if each.put_now(message)), None)
        if carrier is None:
            self._tell(asking, is_open=False)
        else:
            self._asking.setdefault(carrier, set()).add(asking)

    @property
    def _has_any(self) -> bool:
        return any(not each.closed for each in self._ours)

    def _tell(self, to: str | None, *, is_open: bool) -> None:
        if self._bus is not None:
            self._bus.say(Listens(self._session, is_open), to=to)
