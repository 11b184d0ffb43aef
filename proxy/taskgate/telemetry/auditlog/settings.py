"""The settings of the audit log: `AuditSettings`, with one class for lines, sinks and the chain.

`wiring` makes them from the configuration, and reads the key files. `AuditLog` applies them.
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
    """The format of lines, and how much they disclose.

    `identity` says whether lines name callers; `arguments` and `results`, how much they show of
    those. `redact` has the JSONPaths of the values that are removed from arguments in full.
    """

    format: Literal["native", "ocsf", "ecs"] = "native"
    identity: Literal["full", "pseudonymous"] = "full"
    arguments: Literal["none", "keys", "hash", "full"] = "hash"
    results: Literal["none", "size", "hash"] = "size"
    redact: tuple[str, ...] = ("$..password", "$..token", "$..secret", "$..authorization")


_DEFAULT_LINE_OPTIONS: Final = LineOptions()


class AuditUnavailable(Exception):
    """The log cannot be written as configured; the text names the key and the reason."""


class AuditFileInUse(AuditUnavailable):
    """Another process, or another sink, writes the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is in use by another process or another sink")


class ForeignAuditFile(AuditUnavailable):
    """The file at the path of a log was written by another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """One sink: a file, or standard output without a `path`.

    `events` are globs over event names. A file is rotated at `rotate_size` bytes (None: never), and
    `keep` rotated files are kept. `fsync` says when the disk is synced: with each write, once a
    second, or never. Without `was_named`, the path is the default one in the data directory.
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
        """Where lines go: two sinks must not share it."""
        return "" if self.path is None else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """Settings of the chain: when a checkpoint is due, and the key that signs it.

    A checkpoint is due after `checkpoint_events` lines, or `checkpoint_interval` after a line.
    `signing_key` is the PEM text of an Ed25519 key; without it, checkpoints are signed with the key
    of the log.
    """

    enabled: bool = True
    checkpoint_events: int = 1000
    checkpoint_interval: timedelta = timedelta(seconds=60)
    signing_key: bytes | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(enabled={self.enabled})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit log of one gateway; without sinks it is off.

    `events` are globs over the names of recorded events; those of the log itself (`audit.*`) are
    always recorded. No file younger than `keep` is deleted to make room for lines of unknown callers.
    `key` is the key of all digests, `node` the name of this replica. At most
    `queue` events wait for each sink. New requests wait when three quarters are taken, so that
    running requests have the rest.
    """

    sinks: tuple[SinkSettings, ...]
    key: bytes
    node: str
    line_options: LineOptions = _DEFAULT_LINE_OPTIONS
    events: tuple[str, ...] = ALL_EVENTS
    chain: ChainSettings = ChainSettings()
    keep: timedelta = timedelta(hours=24)
    queue: int = 10_000
    on_full: OnFull = "block"
    block_timeout: timedelta = timedelta(seconds=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sinks={[each.name for each in self.sinks]})"
