"""Capabilities in the modern era: of hosts for servers, and of servers for hosts.

A server is told with each request only what its host can be asked: `declared` is used for both. The
host may be of either era; None is no host, without capabilities. A capability of a wrong type
counts as missing.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgate.domain.versions import SERVED, Era, Peer, Revision, era_of
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson, members
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import ServerDescription, welcome_result
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.server_messages import Question

# --- of hosts ---------------------------------------------------------------------------------------------------------

_PARTS: Final = {"roots": (), "sampling": ("tools", "context"), "elicitation": ("form", "url")}
_BEFORE_ELICITATION: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})
_WITHOUT_PARTS: Final = _BEFORE_ELICITATION | {Revision.R2025_06_18}


def declared(host: Peer | None) -> dict[str, dict[str, Any]]:
    """The core capabilities of a host of either era, as far as its revision has them (B-CONV-5).

    Extensions are added by their policy, and tasks by each request that follows them.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, parts in _PARTS.items():
        value = None if host is None else host.capabilities.get(name)
        if host is None or not isinstance(value, dict):
            continue
        if name == "elicitation" and host.revision in _BEFORE_ELICITATION:
            continue
        known = () if host.revision in _WITHOUT_PARTS else parts
        found[name] = {part: {} for part in known if isinstance(value.get(part), dict)}
    if found.get("elicitation") == {}:
        # Without modes it means forms: revisions before URL mode had no modes.
        found["elicitation"] = {"form": {}}
    return found


def can_ask(host: Peer | None, question: Question) -> bool:
    """Whether the host can be asked that, by what its server was told (M-MRTR-2).

    `question` is one that modern servers may ask, and repeats no key.
    """
    params = members("" if question.params is None else question.params.head)
    return not missing(host, question.method, {name: member.value for name, member in params.items()})


def missing(host: Peer | None, method: object, params: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities that a host lacks to be asked a question of that method.

    Empty if it lacks none, and for a method that is no question. `params` are those of
    `DECIDING_PARAMS` that the question has, or more.
    """
    found = declared(host)
    match method:
        case names.ROOTS_LIST if "roots" not in found:
            return {"roots": {}}
        case names.SAMPLING_CREATE:
            parts: dict[str, Any] = (
                {"tools": {}} if any(params.get(name) is not None for name in ("tools", "toolChoice")) else {}
            )
            is_known = "sampling" in found and parts.keys() <= found["sampling"].keys()
            return {} if is_known else {"sampling": parts}
        case names.ELICITATION_CREATE:
            mode = params.get("mode", "form")
            is_known = isinstance(mode, str) and mode in found.get("elicitation", {})
            return {} if is_known else {"elicitation": {mode: {}} if mode in _MODES else {}}
    return {}


DECIDING_PARAMS: Final = frozenset({"mode", "tools", "toolChoice"})
"""The parameters of a question that `missing` reads."""
_MODES: Final = ["form", "url"]


# --- of servers -------------------------------------------------------------------------------------------------------

_VERSIONS: Final = dump([revision.value for revision in SERVED])
_TASKS: Final = {names.TASKS_EXTENSION: "{}"}
"""Exactly an empty object: hosts take any other value for no support."""


def discover_result(
    server: ServerDescription,
    version: str,
    extensions: ExtensionPolicy,
    *,
    offers_tasks: bool,
    info: RawJson | None = None,
) -> RawJson:
    """A DiscoverResult from a server's description (V-DISC-1, V-META-3, AMB-11).

    It must not be cached (V-CACHE-1): a description can depend on the caller, and change.
    """
    put = {
        "resultType": '"complete"',
        "supportedVersions": _VERSIONS,
        "capabilities": _server_capabilities(server, extensions, offers_tasks),
        "ttlMs": "0",
        "cacheScope": '"private"',
    }
    shown = info or server.info
    return welcome_result(server, put, version, {} if shown is None else {names.SERVER_INFO: shown})


def _server_capabilities(server: ServerDescription, extensions: ExtensionPolicy, offers_tasks: bool) -> RawJson:
    """The server's capabilities that cross the gateway, plus the tasks extension if the server has
    tools.
    """
    own = _TASKS if offers_tasks and "tools" in server.peer.capabilities else {}
    return extensions.server_capabilities(server.capabilities, Era.MODERN, era_of(server.peer.revision), own)
