"""The report of extensions that a host or a server declares and the gateway does not forward
(X-EXT-53): `DeniedExtensions`.

Operators see them in the log and in a metric. Hosts and servers choose the identifiers, so three
things are bounded: their length, how many of one declaration count, and how many are logged. The
`ExtensionPolicy` of a mount (`protocol.extensions`) decides which are denied.

The legacy era calls `in_session` when a session opens. The modern era calls `of_host` when it
creates a shared session, and `at_discovery` for `server/discover`.
"""

from collections.abc import Collection
from itertools import islice
from logging import getLogger
from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.domain.versions import Peer, era_of
from taskgate.telemetry.events import EventSink, ExtensionDenied

MOST_OF_ONE: Final = 32
"""Identifiers of one declaration that are counted."""
MOST_LOGGED: Final = 64
"""Identifiers of one mount and side that are logged."""
LONGEST: Final = 256
"""Characters of an identifier that are shown."""

HOST, SERVER = "host", "server"

log = getLogger("taskgate.extensions")


class DeniedExtensions:
    """The counter of denied extensions. It counts each declaration, and logs an identifier the
    first time that it is declared at a mount.
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
