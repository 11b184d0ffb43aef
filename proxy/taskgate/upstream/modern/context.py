"""Shared state of all modern sessions with one server: `ModernUpstreamContext`.

`http` creates one for each session from the legacy `UpstreamContext`. The session has its own
`era_lost`, and its own `transport` if the server needs its principal (`sending`). All other fields
are shared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport
from taskgate.upstream.calls import Patience, Running
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings


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
