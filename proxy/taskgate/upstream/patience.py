"""Timeouts of calls: `Patience` gives the `CallBounds` of each tool of a server. Pure.

Built from the settings; sessions of both eras ask it for each request.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.upstream.settings import ToolTimeouts, UpstreamSettings


@dataclass(frozen=True, slots=True)
class CallBounds:
    """Timeouts of a call. `call`: seconds without progress. `ceiling`: seconds in all.

    `idle` is the silence that is allowed on its stream; None: any. `first` are the seconds after
    which a call without any progress ends.
    """

    call: float
    ceiling: float
    idle: timedelta | None = None
    first: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", min(self.call, self.ceiling))

    def within(self, span: timedelta) -> "CallBounds":
        """Return the same timeouts, cut to `span`."""
        seconds = span.total_seconds()
        return CallBounds(min(self.call, seconds), min(self.ceiling, seconds), self.idle)


def briefly(span: timedelta) -> CallBounds:
    """Return the timeouts of a request of the gateway itself: it ends after `span`."""
    return CallBounds(span.total_seconds(), span.total_seconds())


class Patience:
    """The timeouts of calls to one server."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._usual = _bounds(settings)
        self._streams = settings.extensions.streams
        self._tools = tuple((rule.tool, _bounds(rule)) for rule in settings.tools)

    def of(self, tool: str | None = None, method: str = TOOLS_CALL) -> CallBounds:
        """Return the timeouts of a call to `tool`, by the first rule that matches; without a tool,
        of any request.

        A request of a method that lasts as long as its host listens has no timeout (X-EXT-32).
        """
        if tool is not None:
            for glob, bounds in self._tools:
                if fnmatchcase(tool, glob):
                    return bounds
        return self._usual if method not in self._streams else _ENDLESS


def _bounds(settings: UpstreamSettings | ToolTimeouts) -> CallBounds:
    return CallBounds(settings.call.total_seconds(), settings.ceiling.total_seconds(), settings.idle)


_ENDLESS: Final = briefly(timedelta(days=3650))
"""Longer than any process lives, and short enough for every clock."""
