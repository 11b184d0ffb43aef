"""What crosses of the answer to `initialize` and to `server/discover`: who the server is, and what no revision defines.

Each era reads and writes the members that it defines itself. All others, and `_meta`, cross to the byte but for what
belongs to one hop. Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Member, Members, RawJson
from taskgate.protocol import vocabulary as words
from taskgate.protocol.amending import ObjectEdit, changed, edits_of
from taskgate.protocol.base import Server

_DEFINED: Final = (
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
    "resultType",
    "ttlMs",
    "cacheScope",
)
"""The members that one era or the other defines: whoever reads and writes them knows what they mean there."""
_NOTHING: Final[Mapping[str, RawJson]] = MappingProxyType({})


def gateway_info(version: str) -> RawJson:
    """What the gateway says of itself, as serverInfo has it."""
    return dump({"name": "taskgate", "version": version})


def info_of(text: RawJson, member: Member | None) -> RawJson | None:
    """A server's serverInfo as it wrote it; None for what lacks a name or a version: hosts refuse to read that."""
    found: Any = None if member is None else member.value
    if member is None or not isinstance(found, dict):
        return None
    is_whole = isinstance(found.get("name"), str) and isinstance(found.get("version"), str)
    return text[member.start : member.end] if is_whole else None


def rest_of(text: RawJson, found: Members) -> RawJson:
    """What no revision defines of the object that `text` is, whose members are `found`."""
    return splice(text, edits_of(found, 0, ObjectEdit(drop=_DEFINED)))


def welcome_of(
    server: Server, put: Mapping[str, RawJson], version: str, meta_put: Mapping[str, RawJson] = _NOTHING
) -> RawJson:
    """What a host is told: `put` are the members of its era. The version of the gateway stands in `_meta`."""
    told: dict[str, Any] = {"version": version}
    if server.is_stale:
        told["stale"] = True
    if server.instructions is not None:
        put = {**put, "instructions": server.instructions}
    return changed(server.rest, ObjectEdit(put=put, meta_put={**meta_put, words.GATEWAY: dump(told)}))
