"""What the host of a session asked for once, and has for as long as the session lasts: at every process it comes to.

A log level holds for calls, so each process asks its own session at the server for it. Of a resource the host is to
hear once, so one process alone is subscribed, and hands that over when it lets go of the session. What must not live
here: how a server is asked, and asked again (`upstream.lasting`).
"""

from typing import Final

from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import Wanted
from taskgate.protocol.params import Params
from taskgate.protocol.vocabulary import LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.upstream.lasting import MAX_URI, MAX_URIS, level_of, level_params, uri_of, uri_params

LASTING: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE})


class Wants:
    """Those of one session at this process; nothing is kept without a `bus`."""

    def __init__(self, session: str, bus: ClusterBus | None) -> None:
        self._session = session
        self._bus = bus
        self._level: str | None = None
        self._uris: dict[str, None] = {}

    def note(self, method: str, params: Params | None) -> None:
        """The server agreed to one of LASTING that the host asked here for."""
        if self._bus is None or params is None:
            return
        level, uri = level_of(params), uri_of(params)
        if method == LOGGING_SET_LEVEL and level is not None:
            self._level = level
            self._say(method, level)
        elif method == RESOURCES_SUBSCRIBE and uri is not None:
            self._subscribe(uri)
        elif method == RESOURCES_UNSUBSCRIBE and uri is not None:
            self._uris.pop(uri, None)
            if len(uri) <= MAX_URI:
                self._say(method, uri)

    def heard(self, word: Wanted) -> Params | None:
        """What the host asked for elsewhere: the parameters that the server here is to be asked with too, if it is."""
        if word.method == LOGGING_SET_LEVEL:
            self._level = word.what
            return level_params(word.what)
        if word.method == RESOURCES_SUBSCRIBE:
            return uri_params(word.what) if self._subscribe(word.what) else None
        if word.what not in self._uris:
            return None
        del self._uris[word.what]
        return uri_params(word.what)

    def tell(self, holder: str) -> None:
        """The session is alive at another process, which does not know yet."""
        if self._level is not None:
            self._say(LOGGING_SET_LEVEL, self._level, holder)

    def hand_over(self, holder: str) -> None:
        """This process lets go of the session, and another has a stream of it."""
        for uri in self._uris:
            self._say(RESOURCES_SUBSCRIBE, uri, holder)

    def _subscribe(self, uri: str) -> bool:
        if uri in self._uris or len(uri) > MAX_URI or len(self._uris) >= MAX_URIS:
            return False
        self._uris[uri] = None
        return True

    def _say(self, method: str, what: str, to: str | None = None) -> None:
        if self._bus is not None:
            self._bus.say(Wanted(self._session, method, what), to=to)
