"""What the gateway declares in this era: its answer to `server/discover`. Pure."""

from typing import Final

from taskgate.dialects.amending import object_edits
from taskgate.dialects.base import Server
from taskgate.mcp import vocabulary as words
from taskgate.mcp.jsonrpc import RawJson, dump, members, splice
from taskgate.mcp.versions import SERVED

_VERSIONS: Final = dump([revision.value for revision in SERVED])
_EXTENSIONS: Final = dump({words.TASKS_EXTENSION: {}})
"""Exactly an empty object: hosts take any other for no support."""


def discover_result(server: Server, info: RawJson, *, offers_tasks: bool) -> RawJson:
    """A DiscoverResult out of what a server said of itself (V-DISC-1, V-META-3, AMB-11).

    Nobody may keep it (V-CACHE-1): what a server says may depend on who asks, and change.
    """
    told = "" if server.instructions is None else f',"instructions":{server.instructions}'
    return (
        f'{{"resultType":"complete","supportedVersions":{_VERSIONS},'
        f'"capabilities":{_advertised(server.capabilities, offers_tasks)},"ttlMs":0,'
        f'"cacheScope":"private"{told},"_meta":{{{dump(words.SERVER_INFO)}:{info}}}}}'
    )


def _advertised(declared: RawJson, offers_tasks: bool) -> RawJson:
    """A server's capabilities, less what does not cross the gateway, plus the extension where there are tools."""
    found = members(declared)
    put = {"extensions": _EXTENSIONS} if offers_tasks and "tools" in found else {}
    return splice(declared, object_edits(found, declared.index("{"), put, ("tasks", "extensions")))
