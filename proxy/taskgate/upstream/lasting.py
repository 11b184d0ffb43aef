"""Session state that a host sets once: `Lasting`, its log level and resource subscriptions.

It lasts as long as the host session, through all sessions at the server. A legacy session notes it
from the host's requests, and sends it again in each new connection (`legacy.connection`). A modern
session keeps it itself: for the log level of its requests, and for its subscription stream.
"""

import json
from typing import Any, Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import members
from taskgate.protocol.messages import Params
from taskgate.protocol.vocabulary import LOG_LEVELS, LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE

MAX_URIS: Final = 1_000
"""Resources that one session may subscribe to."""

MAX_URI: Final = 4_096
"""Characters of a URI that is stored."""

LASTING: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE})
"""Methods of requests that set some of it."""


class Lasting:
    """Log level and subscriptions of one session.

    `level` is the log level that the host wants, None if it set none. `uris` has the number of
    subscriptions of each resource: always 1 in the legacy era.
    """

    def __init__(self) -> None:
        self.level: str | None = None
        self.uris: dict[str, int] = {}

    def note(self, method: str, params: Params | None) -> None:
        """Store what a request of a method in LASTING sets, after the legacy server agreed.

        Other requests set nothing. Subscriptions beyond the limits are not stored.
        """
        if params is None:
            return
        if method == LOGGING_SET_LEVEL:
            self.level = level_of(params) or self.level
            return
        uri = uri_of(params)
        if uri is None:
            return
        if method == RESOURCES_UNSUBSCRIBE:
            self.uris.pop(uri, None)
        elif method == RESOURCES_SUBSCRIBE and len(uri) <= MAX_URI and len(self.uris) < MAX_URIS:
            self.uris[uri] = 1


def level_of(params: Params) -> str | None:
    """Return the level in the parameters of `logging/setLevel`; None if it is no valid level."""
    level = _member(params, "level")
    return level if level in LOG_LEVELS else None


def uri_of(params: Params) -> str | None:
    """Return the resource URI in parameters; None without one, or if it cannot be encoded again."""
    uri = _member(params, "uri")
    return uri if isinstance(uri, str) and uri.encode("utf-8", "ignore").decode() == uri else None


def level_params(level: str) -> Params:
    """Return the parameters of `logging/setLevel`."""
    return Params(dump({"level": level}))


def uri_params(uri: str) -> Params:
    """Return the parameters of `resources/subscribe`."""
    return Params(dump({"uri": uri}))


def _member(params: Params, name: str) -> Any:
    """Return a member, None if missing. Decoded again from the text, since a long text may have
    been cut."""
    text = params.with_token(0)
    try:
        found = members(text).get(name)
    except MalformedMessage:
        return None
    return None if found is None else json.loads(text[found.start : found.end])
