"""Extensions that one side declares and that do not cross, for operators: in the log and in a metric (X-EXT-53).

What must not live here: what crosses an upstream (`protocol.extensions`). What holds: a peer chooses the identifiers.
So there is a bound to their length, to how many of one declaration are counted, and to how many are remembered.
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
"""Identifiers of one mount that each side has lines of in the log."""
LONGEST: Final = 256
"""Letters of an identifier that are shown; see config.extension_models."""

HOST, SERVER = "host", "server"

log = getLogger("taskgate.extensions")


class DeniedExtensions:
    """Counts them at each declaration, and logs the first declaration of each identifier at a mount."""

    def __init__(self, event_sink: EventSink) -> None:
        self._event_sink = event_sink
        # The side that declared it first, by mount and identifier.
        self._logged: dict[str, dict[str, str]] = {}

    def in_session(self, mount: Mount, host: Peer, server: Peer) -> None:
        """A session opened, in which both sides declared theirs."""
        eras = era_of(host.revision), era_of(server.revision)
        self._report(mount, SERVER, mount.extensions.denials(server.capabilities, *eras))
        self._report(mount, HOST, mount.extensions.denials(host.capabilities, *eras))

    def of_host(self, mount: Mount, host: Peer) -> None:
        """A host declared its own in a request; the era of the server need not be known yet."""
        self._report(mount, HOST, _to_no_server(mount, host))

    def at_discovery(self, mount: Mount, host: Peer, server: Peer) -> None:
        """A host asked for what the server declares. What `of_host` told of its own is not told again."""
        policy, eras = mount.extensions, (era_of(host.revision), era_of(server.revision))
        self._report(mount, SERVER, policy.denials(server.capabilities, *eras))
        anyway = _to_no_server(mount, host)
        self._report(mount, HOST, [name for name in policy.denials(host.capabilities, *eras) if name not in anyway])

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
    """What a host declares in vain whatever the era of the server: all that crosses at all crosses within an era."""
    era = era_of(host.revision)
    return mount.extensions.denials(host.capabilities, era, era)
