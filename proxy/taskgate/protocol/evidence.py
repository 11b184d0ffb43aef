"""What a server's answers tell of its era, where nothing is agreed on yet (V-ERA-5, V-ERA-7). Pure.

Only what names a revision of the modern era, or an error that exists in it alone, tells of it: no HTTP status, and
no other error, whatever it says (T-17).
"""

import json
from typing import Any, Final

from taskgate.domain.versions import Era, find_modern_revision
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import decode
from taskgate.protocol.vocabulary import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION

MAX_DEPTH: Final = 64


def era_of_refusal(error: dict[str, Any]) -> Era | None:
    """What a JSON-RPC error that `initialize` was answered with tells; None for nothing (V-ERA-7)."""
    return Era.MODERN if _names_it(error) else None


def era_of_discovery(message: bytes) -> Era | None:
    """What a message tells that came as an answer to `server/discover`; None where it is no response.

    An error need not name the request: servers that refuse a request unread do not know its id.
    """
    try:
        said = json.loads(decode(message, MAX_DEPTH))
    except (UnparsableMessage, MalformedMessage, ValueError):
        return Era.LEGACY
    if not isinstance(said, dict) or ("result" not in said and "error" not in said):
        return None
    result, error = said.get("result"), said.get("error")
    if isinstance(result, dict) and _knows_one(result.get("supportedVersions")):
        return Era.MODERN
    if isinstance(error, dict) and (error.get("code") in _OF_ANY_REVISION or _names_it(error)):
        return Era.MODERN
    return Era.LEGACY


def _names_it(error: dict[str, Any]) -> bool:
    """Whether the error says that another revision is spoken, and the gateway speaks that one too."""
    told = error.get("data")
    return error.get("code") == UNSUPPORTED_VERSION and isinstance(told, dict) and _knows_one(told.get("supported"))


def _knows_one(versions: Any) -> bool:
    return isinstance(versions, list) and any(find_modern_revision(version) is not None for version in versions)


_OF_ANY_REVISION: Final = (HEADER_MISMATCH, MISSING_CAPABILITY)
