"""What all sessions of this era with one server share. Values only."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from taskgate.protocol.modern_server import ModernServerDialect
from taskgate.system.alarms import Alarms
from taskgate.upstream.base import Transport
from taskgate.upstream.calls import Running
from taskgate.upstream.patience import Patience
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernUpstreamContext:
    """What every session with one server shares. Ids are unique among all of them, as tokens of progress must be.

    `alarms` bound the calls, for as long as `patience` says; `running` counts them. `era_lost` is told whenever the
    server answers as if it did not speak this era any more: it may be wrong, and must neither raise nor wait.
    `outlives` is whether the server is still there, with the tasks that it made, when this process is gone.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: ModernServerDialect
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: Alarms
    patience: Patience
    running: Running = field(default_factory=Running)
    era_lost: Callable[[], None]
    outlives: bool = True
