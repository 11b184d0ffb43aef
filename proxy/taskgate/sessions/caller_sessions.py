"""The sessions of one caller or person in memory: `CallerSessions`, which finds the one that is idle for longest."""

from taskgate.sessions.host_session import HostSession


class CallerSessions:
    """The sessions of one caller, or of one person with all clients, in this process.

    `count` includes those that are being opened. `idlest` sorts the sessions once, and then takes one
    after the other. It sorts again when all that were idle at that time are gone or were used.
    """

    __slots__ = ("_by_idleness", "_sessions", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sessions: dict[str, HostSession] = {}
        # When each was last used, and its id; the one that is idle for longest is last. Whatever is
        # not in here was used later.
        self._by_idleness: list[tuple[float, str]] = []

    def add(self, host_session: HostSession) -> None:
        """Add a session that was opened or loaded; it counts already."""
        self._sessions[host_session.id] = host_session

    def remove(self, id: str) -> None:
        """Remove a session, if it is here; it counts until the owner changes `count`."""
        self._sessions.pop(id, None)

    def idlest(self) -> HostSession | None:
        """The session that is idle for longest; None if all are in use."""
        return self._next_idle() or self._next_idle_sorted()

    def _next_idle_sorted(self) -> HostSession | None:
        idle = [(each.last_used, id_) for id_, each in self._sessions.items() if not each.is_busy]
        # Of those with the same time, the one that was opened first comes first.
        idle.sort(key=lambda pair: pair[0])
        idle.reverse()
        self._by_idleness = idle
        return self._next_idle()

    def _next_idle(self) -> HostSession | None:
        while self._by_idleness:
            last_used, id_ = self._by_idleness[-1]
            host_session = self._sessions.get(id_)
            if host_session is not None and not host_session.is_busy and host_session.last_used == last_used:
                return host_session
            self._by_idleness.pop()
        return None
