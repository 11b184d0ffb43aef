"""What the gateway declares in this era: its answer to `server/discover`. Pure."""

from typing import Final

from taskgate.domain.versions import SERVED, Era, era_of
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson
from taskgate.protocol import vocabulary as words
from taskgate.protocol.discovery import ServerDescription, welcome_result
from taskgate.protocol.extensions import ExtensionPolicy

_VERSIONS: Final = dump([revision.value for revision in SERVED])
_OWN: Final = {words.TASKS_EXTENSION: "{}"}
"""Exactly an empty object: hosts take any other for no support."""


def discover_result(
    server: ServerDescription,
    version: str,
    extensions: ExtensionPolicy,
    *,
    offers_tasks: bool,
    info: RawJson | None = None,
) -> RawJson:
    """A DiscoverResult out of what a server said of itself (V-DISC-1, V-META-3, AMB-11); see ModernDownstreamDialect.

    Nobody may keep it (V-CACHE-1): what a server says may depend on who asks, and change.
    """
    put = {
        "resultType": '"complete"',
        "supportedVersions": _VERSIONS,
        "capabilities": _advertised(server, extensions, offers_tasks),
        "ttlMs": "0",
        "cacheScope": '"private"',
    }
    told = info or server.info
    return welcome_result(server, put, version, {} if told is None else {words.SERVER_INFO: told})


def _advertised(server: ServerDescription, extensions: ExtensionPolicy, offers_tasks: bool) -> RawJson:
    """A server's capabilities, less what does not cross the gateway, plus the extension where there are tools."""
    own = _OWN if offers_tasks and "tools" in server.peer.capabilities else {}
    return extensions.server_capabilities(server.capabilities, Era.MODERN, era_of(server.peer.revision), own)
