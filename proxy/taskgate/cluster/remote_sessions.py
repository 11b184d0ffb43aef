"""The state of one host session at other replicas: its GET streams and its settings.

Replicas announce their state over the bus when it changes, and to a replica that has just loaded the
session; none is asked for it. A `HostSession` has one object of each class:

- `RemoteStreams`: the GET streams that other replicas have. A question is on one stream at a time,
  here or there (H-LEG-8).
- `SessionSettings`: the log level and the subscriptions, which apply wherever the host connects.
"""

from collections.abc import Reversible
from typing import Final, Protocol

from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import GetStreamMessage, GetStreamQuestion, GetStreamState, SessionSetting
from taskgate.protocol.messages import Params
from taskgate.protocol.vocabulary import LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.upstream.context import MAX_URI, MAX_URIS, level_of, level_params, uri_of, uri_params

SETTING_METHODS: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE})
"""The methods whose effect applies to the whole session."""


class LocalStream(Protocol):
    """A GET stream of this process."""

    @property
    def is_closed(self) -> bool: ...

    def send_now(self, message: str) -> bool: ...


class RemoteStreamHandle:
    """The GET streams of a session at one other replica, as one."""

    __slots__ = ("_bus", "_session", "holder")

    def __init__(self, session: str, holder: str, bus: ClusterBus) -> None:
        self._session = session
        self.holder = holder
        self._bus = bus

    def send(self, message: str) -> bool:
        """Send a message on it; delivery is not confirmed."""
        self._bus.send(GetStreamMessage(self._session, message), to=self.holder)
        return True

    def ask(self, message: str) -> None:
        """Send a question on it; the replica reports when that stream ends."""
        self._bus.send(GetStreamQuestion(self._session, message), to=self.holder)


class RemoteStreams:
    """The GET streams of a session at all other replicas; there are none without a `bus`.

    `local` are the streams of this process in the order of opening. `_remote` has one handle for
    each replica with a stream, the newest last. `_asking` has, for each local stream, the replicas
    whose questions it carries. `_is_announced` is whether the others know of a stream here.
    """

    def __init__(self, session: str, bus: ClusterBus | None, local: Reversible[LocalStream]) -> None:
        self._session = session
        self._bus = bus
        self._local = local
        self._remote: dict[str, RemoteStreamHandle] = {}
        self._is_announced = False
        self._asking: dict[LocalStream, set[str]] = {}

    @property
    def newest(self) -> RemoteStreamHandle | None:
        """The newest one, which gets messages if there is no stream here."""
        return next(reversed(self._remote.values()), None)

    def publish(self, message: str) -> bool:
        """Send a message on one of them; returns whether there is any."""
        newest = self.newest
        return newest is not None and newest.send(message)

    def ask(self, message: str) -> RemoteStreamHandle | None:
        """Send a question on one of them; None if there is none."""
        newest = self.newest
        if newest is not None:
            newest.ask(message)
        return newest

    def on_remote_change(self, holder: str, *, is_open: bool) -> RemoteStreamHandle | None:
        """Handle the stream state of another replica; returns its earlier handle, which has ended."""
        gone = self._remote.pop(holder, None)
        if is_open and self._bus is not None:
            # It becomes the newest, even if it was known before.
            self._remote[holder] = RemoteStreamHandle(self._session, holder, self._bus)
        return gone

    # --- the streams of this process ----------------------------------------------------------------------------------

    def on_local_change(self, ended: LocalStream | None = None) -> None:
        """Handle that a stream was opened here, or that `ended` has ended.

        Replicas whose questions `ended` carried are told, so that they ask again.
        """
        if self._bus is None:
            return
        for asking in self._asking.pop(ended, ()) if ended is not None else ():
            # First the end, which makes that replica ask again; then that there is another stream.
            self._send_state(asking, is_open=False)
            if self._has_local:
                self._send_state(asking, is_open=True)
        if self._has_local is not self._is_announced:
            self._is_announced = self._has_local
            self._send_state(None, is_open=self._is_announced)

    def announce(self, holder: str) -> None:
        """Announce the state to a replica that has just loaded the session."""
        if self._has_local:
            self._send_state(holder, is_open=True)

    def ask_locally(self, message: str, asking: str) -> None:
        """Send the question of another replica on a stream here; without one, tell it at once to
        ask elsewhere.
        """
        carrier = next((each for each in reversed(self._local) if each.send_now(message)), None)
        if carrier is None:
            self._send_state(asking, is_open=False)
        else:
            self._asking.setdefault(carrier, set()).add(asking)

    @property
    def _has_local(self) -> bool:
        return any(not each.is_closed for each in self._local)

    def _send_state(self, to: str | None, *, is_open: bool) -> None:
        if self._bus is not None:
            self._bus.send(GetStreamState(self._session, is_open), to=to)


class SessionSettings:
    """The settings of one session at this replica; nothing is recorded without a `bus`.

    Every replica sets the log level at its own server session, because it applies to calls. Only
    one replica is subscribed to a resource, so that the host gets each update once. It hands the
    subscriptions over when it gives up the session.
    """

    def __init__(self, session: str, bus: ClusterBus | None) -> None:
        self._session = session
        self._bus = bus
        self._level: str | None = None
        self._uris: dict[str, None] = {}

    def record(self, method: str, params: Params | None) -> None:
        """Record one of SETTING_METHODS that the host requested here and the server accepted."""
        if self._bus is None or params is None:
            return
        level, uri = level_of(params), uri_of(params)
        if method == LOGGING_SET_LEVEL and level is not None:
            self._level = level
            self._send(method, level)
        elif method == RESOURCES_SUBSCRIBE and uri is not None:
            self._subscribe(uri)
        elif method == RESOURCES_UNSUBSCRIBE and uri is not None:
            self._uris.pop(uri, None)
            if len(uri) <= MAX_URI:
                self._send(method, uri)

    def on_remote_change(self, setting: SessionSetting) -> Params | None:
        """Handle a setting that the host requested elsewhere: the parameters to send to the server
        here, if any.
        """
        if setting.method == LOGGING_SET_LEVEL:
            self._level = setting.value
            return level_params(setting.value)
        if setting.method == RESOURCES_SUBSCRIBE:
            return uri_params(setting.value) if self._subscribe(setting.value) else None
        if setting.value not in self._uris:
            return None
        del self._uris[setting.value]
        return uri_params(setting.value)

    def announce(self, holder: str) -> None:
        """Announce the log level to a replica that has just loaded the session."""
        if self._level is not None:
            self._send(LOGGING_SET_LEVEL, self._level, holder)

    def hand_over(self, holder: str) -> None:
        """Hand the subscriptions to a replica with a stream of the session, because this one gives
        it up.
        """
        for uri in self._uris:
            self._send(RESOURCES_SUBSCRIBE, uri, holder)

    def _subscribe(self, uri: str) -> bool:
        if uri in self._uris or len(uri) > MAX_URI or len(self._uris) >= MAX_URIS:
            return False
        self._uris[uri] = None
        return True

    def _send(self, method: str, value: str, to: str | None = None) -> None:
        if self._bus is not None:
            self._bus.send(SessionSetting(self._session, method, value), to=to)
