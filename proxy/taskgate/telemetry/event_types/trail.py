"""Events about the gateway itself and its audit log; see `telemetry.events`, which everybody else takes them from.

Those about the audit log are for metrics alone: a log that told of its own lines would never end.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class GatewayMoved:
    """The gateway is started, stopping or stopped; `fingerprint` is that of its configuration."""

    phase: str
    version: str
    fingerprint: int


@dataclass(frozen=True, slots=True)
class ConfigReloaded:
    """A configuration was read again; `result` is success, invalid, unchanged or needs_restart.

    `fingerprint` is a number of 48 bits that is the same for the same effective configuration. `problems` is why it was
    not taken over, `waits` which keys need a restart.
    """

    result: str
    fingerprint: int
    problems: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


class AuditNoted(NamedTuple):
    """An event of the audit log happened, of that name and outcome."""

    event: str
    outcome: str


@dataclass(frozen=True, slots=True)
class AuditWritten:
    """A sink took lines, together, in so many seconds; `sequence` is the number of its last, `queued` what waits."""

    sink: str
    seconds: float
    sequence: int
    queued: int


@dataclass(frozen=True, slots=True)
class AuditDropped:
    """Lines that a sink never got; `reason` is queue_full, write_failed or closed."""

    sink: str
    reason: str
    lines: int
