"""State shared by all sessions with one server: `UpstreamContext` and `ModernUpstreamContext`.

`http` creates one for each upstream. A session has its own `transport` if the server needs its
principal (`sending`), and a modern one its own `era_lost`. All other fields are shared.
`Patience` has the timeouts of each tool; sessions of both eras ask it for each request.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from taskgate.clock import Entropy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport
from taskgate.upstream.calls import CallBounds, briefly
from taskgate.upstream.reception import Reception
from taskgate.upstream.settings import ToolTimeouts, UpstreamObserver, UpstreamSettings


class Patience:
    """The timeouts of calls to one server."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.usual = _bounds(settings)
        """The timeouts of a request that no rule changes."""
        self.has_rules = bool(settings.tools or settings.extensions.streams)
        """Whether a tool or a method may have other timeouts, so that `of` must be asked."""
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
        return self.usual if method not in self._streams else _ENDLESS


def _bounds(settings: UpstreamSettings | ToolTimeouts) -> CallBounds:
    return CallBounds(settings.call.total_seconds(), settings.ceiling.total_seconds(), settings.idle)


_ENDLESS: Final = briefly(timedelta(days=3650))
"""Longer than any process lives, and short enough for every clock."""


@dataclass(slots=True)
class Running:
    """Number of requests that wait for an answer of one server now."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamContext:
    """Shared state of all legacy sessions with one server.

    `ids` gives the request ids, which are progress tokens too and unique among all sessions.
    `alarms` are the timers of calls, `patience` has their timeouts, and `running` counts the calls.
    `reception` logs how the server answers `initialize`. `transport` is one session's own if the
    server needs its principal (`sending`). `outlives`: the server and its state of a call survive
    the end of this process, so another process can resume the call.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: LegacyUpstream
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: TimerWheel
    patience: Patience
    running: Running = field(default_factory=Running)
    reception: Reception = field(default_factory=Reception)
    outlives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernUpstreamContext:
    """Shared state of all modern sessions with one server.

    `ids` gives the request ids and progress tokens, which are unique among all sessions. `alarms`
    runs the timers of calls, which `patience` gives; `running` counts the calls. `era_lost` is
    called when the server answers as if it had left this era: the session is then replaced by one
    of the other era. That may be wrong, and the call must neither raise nor wait. `outlives`: the
    server and its tasks survive the end of this process, so that another process can resume calls.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: ModernUpstream
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: TimerWheel
    patience: Patience
    running: Running = field(default_factory=Running)
    era_lost: Callable[[], None]
    outlives: bool = True


def first_id(entropy: Entropy) -> int:
    """Return the random id that a process begins with: no host can guess ids and progress tokens
    (T17).

    It has 52 random bits. JavaScript servers read integers exactly only below 2**53, and a process
    never counts that far.
    """
    return int.from_bytes(entropy.token(7)) % _FIRST_IDS + 1


_FIRST_IDS: Final = 2**52
