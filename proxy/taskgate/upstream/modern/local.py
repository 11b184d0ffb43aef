"""Legacy requests that modern servers lack, answered by the gateway: `LocalWords`.

They are `ping`, `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`.
`ModernSession.call` calls it. Subscriptions are served by `listening`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.vocabulary import (
    INVALID_PARAMS,
    LOGGING_SET_LEVEL,
    METHOD_NOT_FOUND,
    PING,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
)
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.lasting import Lasting, level_of, uri_of
from taskgate.upstream.modern.listening import SubscriptionListener

_SUBSCRIPTIONS: Final = (RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE)
SERVED_HERE: Final = frozenset({PING, LOGGING_SET_LEVEL, *_SUBSCRIPTIONS})
"""Methods that are answered here."""


class LocalWords:
    """The answers to requests of `SERVED_HERE` for one session; `open_` returns what the server
    declares."""

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        open_: Callable[[], Awaitable[ServerDescription]],
        listening: SubscriptionListener,
        lasting: Lasting,
    ) -> None:
        self._upstream_context = upstream_context
        self._open = open_
        self._listening = listening
        self._lasting = lasting

    async def answer(self, method: str, params: Params | None) -> Response:
        """Return the answer to a request of `SERVED_HERE`. Raises UpstreamFailed."""
        if method == PING:
            return self._done()
        if method == LOGGING_SET_LEVEL and await self._declares("logging"):
            return self._set_level(None if params is None else level_of(params))
        if method in _SUBSCRIPTIONS and await self._declares("resources", "subscribe"):
            return await self._subscribe(method, None if params is None else uri_of(params))
        return self._refusal(METHOD_NOT_FOUND, "Method not found")

    async def _declares(self, name: str, part: str | None = None) -> bool:
        """Whether the server declares a capability, and a part of it if given."""
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
        return self._upstream_context.dialect.empty_result(next(self._upstream_context.ids))

    def _refusal(self, code: int, text: str) -> Response:
        return self._upstream_context.dialect.error(next(self._upstream_context.ids), code, text)
