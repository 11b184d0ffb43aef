"""What stands around a session with a server and hands on whatever it has nothing to do with.

What must not live here: what any of them is there for.
"""

from collections.abc import Coroutine, Mapping
from typing import Any

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Response
from taskgate.upstream.base import UpstreamSession


class AroundSession:
    """Hands on to `inner` all but its calls and its end; see UpstreamSession."""

    __slots__ = ("_inner",)

    def __init__(self, inner: UpstreamSession) -> None:
        self._inner = inner

    @property
    def era(self) -> Era:
        """See UpstreamSession."""
        return self._inner.era

    def open(self) -> Coroutine[Any, Any, ServerDescription]:
        """See UpstreamSession."""
        return self._inner.open()

    def welcome(self) -> Coroutine[Any, Any, ServerDescription]:
        """See UpstreamSession."""
        return self._inner.welcome()

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """See UpstreamSession."""
        return self._inner.outcome(response)

    def tell(self, notification: Notification) -> None:
        """See UpstreamSession."""
        self._inner.tell(notification)

    def tools(self) -> Coroutine[Any, Any, Mapping[str, ListedTool]]:
        """See UpstreamSession."""
        return self._inner.tools()

    def listed(self, tool: str) -> ListedTool | None:
        """See UpstreamSession."""
        return self._inner.listed(tool)

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        """See UpstreamSession."""
        return self._inner.grants(filters)
