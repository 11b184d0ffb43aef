"""Extensions at the gateway: `ExtensionRequests` bounds their requests, and `DeniedExtensions`
reports those that are not forwarded.

An extension is a capability with its own methods. The operator lists those that the gateway
forwards, and the `ExtensionPolicy` of a mount (`protocol.extensions`) decides which are denied.
Some methods last as long as the host listens (`Extension.streams`): they count as open streams, and
end with the caller's token.
"""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import nullcontext
from itertools import islice
from logging import getLogger
from typing import Any, Final

from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import UnknownMethod
from taskgate.protocol.extensions import Extension
from taskgate.protocol.messages import Response
from taskgate.telemetry.events import EventSink, ExtensionDenied

MOST_OF_ONE: Final = 32
"""Identifiers of one declaration that are counted."""
MOST_LOGGED: Final = 64
"""Identifiers of one mount and side that are logged."""
LONGEST: Final = 256
"""Characters of an identifier that are shown."""

HOST, SERVER = "host", "server"

log = getLogger("taskgate.extensions")


class ExtensionRequests:
    """The check of an extension's method, and the bounds of requests that last.

    `Calls` first calls `extension_of`, which refuses what is not forwarded to this server. Then it
    awaits the server's response through `hold`.
    """

    def __init__(self, *, streams: OpenStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock

    def extension_of(self, mount: Mount, method: str, host: Era, server: Era) -> Extension:
        """Return the extension that defines the method.

        Raises UnknownMethod if it is not forwarded between hosts and servers of these eras.
        """
        found = mount.extensions.by_method.get(method)
        if found is None or not found.crosses(host, server):
            raise UnknownMethod("The extension method is not available on this server")
        return found

    async def hold(
        self,
        caller: AuthContext,
        mount: Mount,
        method: str,
        extension: Extension,
        work: Coroutine[Any, Any, Response],
    ) -> Response | None:
        """Await `work`, which forwards the request, and return the server's response.

        A method that lasts (`Extension.streams`) is bounded. It raises TooManyTasks if the caller
        has too many open streams, and yields None if the caller's token expires first (X-EXT-32,
        X-EXT-43). Raises what `work` raises; in any case `work` is closed.
        """
        lasts = method in extension.streams
        bound = asyncio.timeout(self._left(caller) if lasts else None)
        try:
            with self._streams.acquire_extension_stream(caller, mount.name) if lasts else nullcontext():
                async with bound:
                    return await work
        except TimeoutError:
            # Another time limit, within `work`.
            if not bound.expired():
                raise
            return None
        finally:
            work.close()

    def _left(self, caller: AuthContext) -> float | None:
        """Return the seconds until the caller's token expires; None if it does not."""
        if caller.expires_at is None:
            return None
        return max(0.0, (caller.expires_at - self._clock.wall()).total_seconds())


class DeniedExtensions:
    """The counter of extensions that a host or a server declares and the gateway does not forward
    (X-EXT-53).

    It counts each declaration, and logs an identifier the first time that it is declared at a
    mount. Hosts and servers choose the identifiers, so three things are bounded: their length, how
    many of one declaration count, and how many are logged. The legacy era calls `in_session` when a
    session opens. The modern era calls `of_host` when it creates a shared session, and
    `at_discovery` for `server/discover`.
    """

    def __init__(self, event_sink: EventSink) -> None:
        self._event_sink = event_sink
        # By mount and identifier: the side that declared it first.
        self._logged: dict[str, dict[str, str]] = {}

    def in_session(self, mount: Mount, host: Peer, server: Peer) -> None:
        """Report what host and server declared when a legacy session opened."""
        eras = era_of(host.revision), era_of(server.revision)
        self._report(mount, SERVER, mount.extensions.denials(server.capabilities, *eras))
        self._report(mount, HOST, mount.extensions.denials(host.capabilities, *eras))

    def of_host(self, mount: Mount, host: Peer) -> None:
        """Report what the host of a new shared session declares.

        The server's era may still be unknown, so only what no server would get is reported.
        """
        self._report(mount, HOST, _to_no_server(mount, host))

    def at_discovery(self, mount: Mount, host: Peer, server: Peer) -> None:
        """Report what both sides declared when a host sent `server/discover`, except what `of_host`
        has reported.
        """
        policy, eras = mount.extensions, (era_of(host.revision), era_of(server.revision))
        self._report(mount, SERVER, policy.denials(server.capabilities, *eras))
        reported = _to_no_server(mount, host)
        self._report(mount, HOST, [name for name in policy.denials(host.capabilities, *eras) if name not in reported])

    def _report(self, mount: Mount, side: str, denied: Collection[str]) -> None:
        for identifier in islice(denied, MOST_OF_ONE):
            shown = identifier[:LONGEST]
            self._event_sink.emit(ExtensionDenied(mount.name, shown))
            logged = self._logged.setdefault(mount.name, {})
            if shown not in logged and sum(each == side for each in logged.values()) < MOST_LOGGED:
                logged[shown] = side
                log.info(
                    "a declared extension is not forwarded",
                    extra={"upstream": mount.name, "extension": shown, "side": side},
                )


def _to_no_server(mount: Mount, host: Peer) -> list[str]:
    """Return the identifiers that a host declares in vain, whatever the server's era.

    What is denied to a server of the host's own era is denied to every server.
    """
    era = era_of(host.revision)
    return mount.extensions.denials(host.capabilities, era, era)
