"""Requests of the legacy era that no server of this era knows, served in its place.

What must not live here: the stream that serves subscriptions (`listening`).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from taskgate.protocol.base import Params, Server
from taskgate.protocol.envelope import Response
from taskgate.protocol.vocabulary import (
    INVALID_PARAMS,
    LOGGING_SET_LEVEL,
    METHOD_NOT_FOUND,
    PING,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
)
from taskgate.upstream.lasting import Lasting, level_of, uri_of
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.listening import SubscriptionListener

_SUBSCRIPTIONS: Final = (RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE)
SERVED_HERE: Final = frozenset({PING, LOGGING_SET_LEVEL, *_SUBSCRIPTIONS})
"""What the server itself does not answer."""


class LocalWords:
    """Serves one session."""

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        open_: Callable[[], Awaitable[Server]],
        listening: SubscriptionListener,
        lasting: Lasting,
    ) -> None:
        self._upstream_context = upstream_context
        self._open = open_
        self._listening = listening
        self._lasting = lasting

    @property
    def log_level(self) -> str | None:
        """What goes with every request from the moment that a host has set it."""
        return self._lasting.level

    async def answer(self, method: str, params: Params | None) -> Response:
        """The answer to a request that is not forwarded. Raises UpstreamFailed."""
        if method == PING:
            return self._done()
        if method == LOGGING_SET_LEVEL and await self._declares("logging"):
            return self._set_level(None if params is None else level_of(params))
        if method in _SUBSCRIPTIONS and await self._declares("resources", "subscribe"):
            return await self._subscribe(method, None if params is None else uri_of(params))
        return self._refusal(METHOD_NOT_FOUND, "Method not found")

    async def _declares(self, name: str, part: str | None = None) -> bool:
        declared: Any = (await self._open()).peer.capabilities.get(name)
        return isinstance(declared, dict) and (part is None or declared.get(part) is True)

    def _set_level(self, level: str | None) -> Response:
        if level is None:
            return self._refusal(INVALID_PARAMS, "The level must be a valid log level")
        self._lasting.level = level
        return self._done()

    async def _subscribe(self, method: str, uri: str | None) -> Response:
        if uri is None:
            return self._refusal(INVALID_PARAMS, "The uri must be a string")
        if method == RESOURCES_UNSUBSCRIBE:
            self._listening.unsubscribe(uri)
            return self._done()
        if not await self._listening.subscribe(uri, self._upstream_context.settings.first_byte.total_seconds()):
            return self._refusal(INVALID_PARAMS, "The server does not send updates of this resource")
        return self._done()

    def _done(self) -> Response:
        return self._upstream_context.dialect.done(next(self._upstream_context.ids))

    def _refusal(self, code: int, text: str) -> Response:
        return self._upstream_context.dialect.refusal(next(self._upstream_context.ids), code, text)
