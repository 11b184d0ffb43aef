"""The configuration of the audit log: the section `audit`.

What lives here: its keys with types, defaults and bounds. What must not: rules between keys (audit_coherence), and what
floors below make of them (`taskgate.wiring.auditing`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from taskgate.config.addresses import FilePath
from taskgate.config.fields import (
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    ONCE_EACH,
    SECOND,
    SOME,
    Count,
    Flag,
    Glob,
    Name,
    Section,
    Text,
)
from taskgate.config.units import DurationIn, SizeIn
from taskgate.telemetry.auditlog.catalogue import matching
from taskgate.telemetry.auditlog.formats.redaction import parse_paths


def _of_events(written: str) -> str:
    # Whoever filters by what never happens keeps less than they believe.
    if not matching((written,)):
        raise ValueError("must match an event of the log, such as task.* or auth.rejected")
    return written


def _json_path(written: str) -> str:
    try:
        parse_paths((written,))
    except ValueError:
        raise ValueError("must be a JSONPath, such as $..password") from None
    return written


_Events = Annotated[tuple[Annotated[Glob, AfterValidator(_of_events)], ...], *SOME]
_EVERYTHING = ("*",)


class ChainSection(Section):
    """How lines are tied together, so that none can be changed or taken away unnoticed."""

    enabled: Flag = True
    """Whether they are; lines have numbers anyway."""
    checkpoint_events: Count = 1000
    """After so many lines there is a signed checkpoint, in the sink and in those others whose events let it."""
    checkpoint_interval: Annotated[timedelta, DurationIn(least=SECOND, most=24 * HOUR)] = MINUTE
    """So long after a line there is one at the latest."""
    sign_key_file: FilePath | None = None
    """The file with the Ed25519 key, in PEM, that signs them; null means the key of hmac_key_file."""


class RotateSection(Section):
    """When a file is put aside, under its name and the number of its first line."""

    size: Annotated[int, SizeIn(least=64 * KIB, most=2**10 * GIB)] = 100 * MIB
    """With so much in it, or a little more."""
    keep: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 30
    """So many files that were put aside are kept; the oldest one beyond that is deleted."""


class AuditSinkSection(Section):
    """Where lines go."""

    name: Name
    """What the sink is called in metrics and logs; each has its own."""
    type: Literal["file", "stdout"]
    """file: a file, of which there may be several; stdout: standard output."""
    path: FilePath | None = None
    """The file, in a directory that is there; null means audit.jsonl in the data directory."""
    events: _Events = _EVERYTHING
    """Globs over names of events, one of which must match; what the log says of its own chain it has anyway."""
    rotate: RotateSection | None = None
    """When a file is put aside, {} where nothing is written; null means never: somebody else moves it, and says so."""
    fsync: Literal["always", "interval", "never"] | None = None
    """When the disk is waited for, interval where nothing is written; for a file alone.

    always: with each write; interval: once a second; never: when the system likes.
    """


class AuditSection(Section):
    """What is kept of who did what, one line for each thing that happened."""

    enabled: Flag = True
    """Whether anything is."""
    format: Literal["native", "ocsf", "ecs"] = "native"
    """The words of lines: our own, those of the Open Cybersecurity Schema Framework, or Elastic's Common Schema."""
    events: _Events = _EVERYTHING
    """Globs over names of events, one of which must match; audit.* is for the sinks alone to leave out."""
    identity: Literal["full", "pseudonymous"] = "full"
    """full: callers with what their tokens say of them; pseudonymous: with a reference alone."""
    arguments: Literal["none", "keys", "hash", "full"] = "hash"
    """What is told of the arguments of calls. Each tells what the one before it does.

    none: nothing; keys: their size and first names; hash: a keyed digest too; full: what redact leaves of them too.
    """
    results: Literal["none", "size", "hash"] = "size"
    """What is told of results: nothing, their size, or a keyed digest too."""
    redact: Annotated[tuple[Annotated[Text, AfterValidator(_json_path)], ...], *ONCE_EACH] = (
        "$..password",
        "$..token",
        "$..secret",
        "$..authorization",
    )
    """JSONPaths of what is taken out of arguments that are told in full; names are found in any case."""
    hmac_key_file: FilePath | None = None
    """The key of digests and of checkpoints; null means one that is made in the data directory."""
    chain: ChainSection = ChainSection()
    sinks: Annotated[tuple[AuditSinkSection, ...], *SOME] = (
        AuditSinkSection(name="file", type="file", rotate=RotateSection(), fsync="interval"),
        AuditSinkSection(name="stdout", type="stdout", events=("audit.checkpoint",)),
    )
    """Each has a chain of its own."""
    queue: Annotated[int, Field(strict=True, ge=16, le=10_000_000)] = 10_000
    """So many lines may wait for a sink."""
    on_full: Literal["block", "drop", "deny"] = "block"
    """What happens while a sink has three quarters of that waiting; the rest is for what is under way.

    block: requests wait for up to block_timeout, then go on, and lines without room are lost and counted; drop: that at
    once; deny: requests are refused.
    """
    block_timeout: Annotated[timedelta, DurationIn(most=MINUTE)] = SECOND
    """How long a request waits at most."""
