"""What the audit log is told: where lines go, what they say, how they are chained, and what happens when none can go.

What must not live here: reading the files that keys are in.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

Fsync = Literal["always", "interval", "never"]
OnFull = Literal["block", "drop", "deny"]

ALL_EVENTS: Final = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """How much lines tell, and in which words.

    `identity` is whether callers are named; `arguments` and `results` how much is told of those. `redact` are JSONPaths
    of what is taken out where arguments are told in full.
    """

    format: Literal["native", "ocsf", "ecs"] = "native"
    identity: Literal["full", "pseudonymous"] = "full"
    arguments: Literal["none", "keys", "hash", "full"] = "hash"
    results: Literal["none", "size", "hash"] = "size"
    redact: tuple[str, ...] = ("$..password", "$..token", "$..secret", "$..authorization")


_DEFAULT_LINE_OPTIONS: Final = LineOptions()


class AuditUnavailable(Exception):
    """The log cannot be kept as it is wanted; the text is for the operator: a key of the configuration, and why."""


class AuditFileInUse(AuditUnavailable):
    """Somebody else writes that file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is written by another process, or another sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where lines go: to a file, or without a `path` to standard output.

    `events` are globs over the names of those that it gets. A file that has `rotate_size` bytes is put aside (None:
    never), and `keep` such files are kept. `fsync` is when the disk is waited for: with each write, once a second, or
    never. Unless it `was_named`, the path is the one that a data directory has for it.
    """

    name: str
    path: Path | None
    events: tuple[str, ...] = ALL_EVENTS
    rotate_size: int | None = 100 * 2**20
    keep: int = 30
    fsync: Fsync = "interval"
    was_named: bool = True

    @property
    def target(self) -> str:
        """What two sinks cannot have in common."""
        return "" if self.path is None else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """How what is written is tied together.

    A checkpoint is due after `checkpoint_events` lines, and `checkpoint_interval` after a line. `signing_key` is the
    PEM text of an Ed25519 key; without one checkpoints are signed with the log's own key.
    """

    enabled: bool = True
    checkpoint_events: int = 1000
    checkpoint_interval: timedelta = timedelta(seconds=60)
    signing_key: bytes | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(enabled={self.enabled})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit log of one gateway. Without sinks there is none.

    `events` are globs over the names of what is told at all; the log's own (`audit.*`) are told anyway. `key` is what
    digests are keyed with, `node` the name of this gateway among several. A sink has at most `queue` events waiting;
    requests wait at the door from three quarters of that on, so that those under way have the rest.
    """

    sinks: tuple[SinkSettings, ...]
    key: bytes
    node: str
    line_options: LineOptions = _DEFAULT_LINE_OPTIONS
    events: tuple[str, ...] = ALL_EVENTS
    chain: ChainSettings = ChainSettings()
    queue: int = 10_000
    on_full: OnFull = "block"
    block_timeout: timedelta = timedelta(seconds=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sinks={[each.name for each in self.sinks]})"
