"""What a host asked for once and has until the session at its server ends: kept, so that it can be asked for again.

What must not live here: when there is a new session, and how the server is asked.
"""

import json
from typing import Any, Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import members
from taskgate.protocol.base import Params
from taskgate.protocol.vocabulary import LOG_LEVELS, LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE

MAX_URIS: Final = 1_000
"""Resources that one session may want to hear of."""

MAX_URI: Final = 4_096
"""Letters of a URI that is kept."""

_LASTING: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE})


class Lasting:
    """What holds in one session, whatever becomes of its server.

    `level` is how much of a log the host wants, None where it did not say. `uris` are the resources that it wants to
    hear of, and how often it said so.
    """

    def __init__(self) -> None:
        self.level: str | None = None
        self.uris: dict[str, int] = {}

    def note(self, method: str, params: Params | None) -> None:
        """Keep what a server of the legacy era agreed to; more than there is room for is not kept."""
        if method not in _LASTING or params is None:
            return
        if method == LOGGING_SET_LEVEL:
            self.level = level_of(params) or self.level
            return
        uri = uri_of(params)
        if uri is None:
            return
        if method == RESOURCES_UNSUBSCRIBE:
            self.uris.pop(uri, None)
        elif len(uri) <= MAX_URI and len(self.uris) < MAX_URIS:
            self.uris[uri] = 1


def level_of(params: Params) -> str | None:
    """The level that the parameters of `logging/setLevel` name; None where that is none."""
    level = _member(params, "level")
    return level if level in LOG_LEVELS else None


def uri_of(params: Params) -> str | None:
    """The resource that parameters name; None for none, and for what could not be written again."""
    uri = _member(params, "uri")
    return uri if isinstance(uri, str) and uri.encode("utf-8", "ignore").decode() == uri else None


def level_params(level: str) -> Params:
    """What `logging/setLevel` is asked with."""
    return Params(dump({"level": level}))


def uri_params(uri: str) -> Params:
    """What `resources/subscribe` is asked with."""
    return Params(dump({"uri": uri}))


def _member(params: Params, name: str) -> Any:
    """A member, read anew, for a long text may have been cut; None where there is none."""
    text = params.with_token(0)
    try:
        found = members(text).get(name)
    except MalformedMessage:
        return None
    return None if found is None else json.loads(text[found.start : found.end])
