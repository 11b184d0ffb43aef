"""Section `audit`: the audit log. `taskgate.wiring.observability` builds its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from taskgate.config.addresses import FilePath
from taskgate.config.fields import (
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    NOT_EMPTY,
    SECOND,
    UNIQUE,
    Count,
    DurationIn,
    Flag,
    Glob,
    Name,
    Section,
    SizeIn,
    Text,
)
from taskgate.config.problems import Conflict, Location, list_at, mapping_at
from taskgate.telemetry.auditlog.catalogue import matching

_SINKS: Final = ("audit", "sinks")
_CHAIN: Final = ("audit", "chain")
_PAYLOADS: Final = ("admin", "payloads")
_REQUESTS: Final = "admin.request"
"""The event of an operator who reads payloads."""
_FILE_DEFAULTS: Final[Mapping[str, Any]] = {"rotate": {}, "fsync": "interval"}
"""Defaults of a sink that is a file; of standard output they are null."""


def _check_events(glob: str) -> str:
    # A filter by an event that does not exist would log less than its author believes.
    if not matching((glob,)):
        raise ValueError("must match an event of the log, such as task.* or auth.rejected")
    return glob


def _check_json_path(path: str) -> str:
    # It loads a library that nothing else needs.
    from taskgate.telemetry.auditlog.formats.field_redaction import parse_paths  # noqa: PLC0415

    try:
        parse_paths((path,))
    except ValueError:
        raise ValueError("must be a JSONPath, such as $..password") from None
    return path


_Events = Annotated[tuple[Annotated[Glob, AfterValidator(_check_events)], ...], *NOT_EMPTY]
_ALL_EVENTS = ("*",)


class ChainSection(Section):
    """The chain that ties lines together, so that none can be changed or taken away unnoticed."""

    enabled: Flag = True
    """Whether lines are chained; they are numbered either way."""
    checkpoint_events: Count = 1000
    """The number of lines after which a signed checkpoint follows, in the sink and in those others
    whose events include it.
    """
    checkpoint_interval: Annotated[timedelta, DurationIn(least=SECOND, most=24 * HOUR)] = MINUTE
    """The longest time between a line and the next checkpoint."""
    sign_key_file: FilePath | None = None
    """The file with the Ed25519 key, in PEM, that signs them; null means the key of hmac_key_file.
    """


class RotateSection(Section):
    """Rotation of a file: it gets a new name, of its own and the number of its first line."""

    size: Annotated[int, SizeIn(least=64 * KIB, most=2**10 * GIB)] = 100 * MIB
    """The size from which a file is rotated."""
    keep: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 30
    """The number of rotated files that are kept; the oldest beyond it is deleted."""


class AuditSinkSection(Section):
    """A sink: where lines go."""

    name: Name
    """The unique name of the sink in metrics and logs."""
    type: Literal["file", "stdout"]
    """file: a file, of which there may be several; stdout: standard output."""
    path: FilePath | None = None
    """The file, in a directory that is there; null means audit.jsonl in the data directory."""
    events: _Events = _ALL_EVENTS
    """Globs over names of events, one of which must match. Events about the chain of the sink itself
    are always written.
    """
    rotate: RotateSection | None = None
    """When a file is rotated; the default is {}. null means never: another program moves the file,
    and signals it.
    """
    fsync: Literal["always", "interval", "never"] | None = None
    """When writes wait for the disk; the default is interval. For a file alone.

    always: with each write; interval: once a second; never: when the system likes.
    """


class AuditSection(Section):
    """The audit log: who did what, one line for each thing that happened."""

    enabled: Flag = True
    """Whether there is an audit log."""
    format: Literal["native", "ocsf", "ecs"] = "native"
    """The schema of lines: taskgate's own, the Open Cybersecurity Schema Framework, or Elastic
    Common Schema.
    """
    events: _Events = _ALL_EVENTS
    """Globs over names of events, one of which must match. Events of the log itself (audit.*) always
    do, and only a sink leaves them out.
    """
    keep: Annotated[timedelta, DurationIn(most=10_000 * 24 * HOUR)] = 24 * HOUR
    """Rotation deletes no file younger than this to make room for refusals of unknown callers. Those
    that find no room are left out and counted. 0s sets no age.
    """
    identity: Literal["full", "pseudonymous"] = "full"
    """full: callers with what their tokens say of them; pseudonymous: with a reference alone."""
    arguments: Literal["none", "keys", "hash", "full"] = "hash"
    """What is logged of the arguments of calls. Each value adds to the one before it.

    none: nothing; keys: their size and the first of their names; hash: a keyed digest too; full:
    what redact leaves of them too.
    """
    results: Literal["none", "size", "hash"] = "size"
    """What is logged of results: nothing, their size, or a keyed digest too."""
    redact: Annotated[tuple[Annotated[Text, AfterValidator(_check_json_path)], ...], *UNIQUE] = (
        "$..password",
        "$..token",
        "$..secret",
        "$..authorization",
    )
    """JSONPaths of what is removed from arguments that are logged in full; names match in any case.
    """
    hmac_key_file: FilePath | None = None
    """The file with the key of digests and checkpoints; null means one that is created in the data
    directory.
    """
    chain: ChainSection = ChainSection()
    sinks: Annotated[tuple[AuditSinkSection, ...], *NOT_EMPTY] = (
        AuditSinkSection(name="file", type="file", rotate=RotateSection(), fsync="interval"),
        AuditSinkSection(name="stdout", type="stdout", events=("audit.checkpoint",)),
    )
    """The sinks. Each has a chain of its own."""
    queue: Annotated[int, Field(strict=True, ge=16, le=10_000_000)] = 10_000
    """The most lines that wait for a sink."""
    on_full: Literal["block", "drop", "deny"] = "block"
    """What happens while a sink has three quarters of its queue full; the rest is for requests in
    flight.

    block: requests wait for up to block_timeout, then continue, and lines without room are dropped
    and counted; drop: lines are dropped at once; deny: requests are refused.
    """
    block_timeout: Annotated[timedelta, DurationIn(most=MINUTE)] = SECOND
    """How long a request waits at most."""


def with_sink_defaults(raw: object) -> object:
    """Fill in `rotate: {}` and `fsync: interval` of sinks that are files, unless they are given."""
    sinks = list_at(raw, *_SINKS)
    if not isinstance(raw, Mapping) or not any(_is_file(sink) for sink in sinks):
        return raw
    filled = [{**_FILE_DEFAULTS, **mapping_at(sink)} if _is_file(sink) else sink for sink in sinks]
    return {**raw, "audit": {**mapping_at(raw, "audit"), "sinks": filled}}


def audit_conflicts(raw: object) -> Iterator[Conflict]:
    """Find conflicts between keys of a sink, between sinks, between keys of `audit.chain`, and with
    `admin.payloads`.
    """
    yield from _payload_conflicts(raw)
    names: set[str] = set()
    targets: set[object] = set()
    for index, sink in enumerate(map(mapping_at, list_at(raw, *_SINKS))):
        here = (*_SINKS, index)
        name = sink.get("name")
        if isinstance(name, str) and name in names:
            yield (*here, "name"), "must not be the name of another sink"
        names.add(str(name))
        yield from _type_conflicts(sink, here)
        yield from _target_conflicts(sink, here, targets)
    chain = mapping_at(raw, *_CHAIN)
    if chain.get("enabled") is False and chain.get("sign_key_file") is not None:
        yield (*_CHAIN, "sign_key_file"), "must be null with audit.chain.enabled false, which signs nothing"


def _payload_conflicts(raw: object) -> Iterator[Conflict]:
    """Find an audit log that would have no line of an operator who reads payloads."""
    audit = mapping_at(raw, "audit")
    if mapping_at(raw, "admin").get("payloads") is not True:
        return
    if audit.get("enabled") is False:
        yield _PAYLOADS, "must not be true with audit.enabled false: each look is a line of the audit log"
        return
    sinks = list(map(mapping_at, list_at(raw, "audit", "sinks")))
    if not _has_requests(audit) or (sinks and not any(map(_has_requests, sinks))):
        yield _PAYLOADS, f"must not be true unless audit.events and a sink of audit.sinks have {_REQUESTS}"


def _has_requests(section: Mapping[str, object]) -> bool:
    """Return whether the `events` of a section have the requests of operators."""
    globs = section.get("events")
    return not isinstance(globs, list) or _REQUESTS in matching(each for each in globs if isinstance(each, str))


def _type_conflicts(sink: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    kind = sink.get("type")
    if kind == "stdout":
        for key in ("path", *_FILE_DEFAULTS):
            if sink.get(key) is not None:
                yield (*here, key), "must be null with type stdout, which is no file"
    elif kind == "file" and sink.get("fsync", "") is None:
        yield (*here, "fsync"), "must not be null with type file"


def _target_conflicts(sink: Mapping[str, object], here: Location, targets: set[object]) -> Iterator[Conflict]:
    kind, path = sink.get("type"), sink.get("path")
    if kind not in ("file", "stdout") or not (path is None or isinstance(path, str)):
        return
    if (kind, path) in targets:
        key = "type" if kind == "stdout" else "path"
        yield (*here, key), "must not be that of another sink: their lines would be mixed"
    targets.add((kind, path))


def _is_file(sink: object) -> bool:
    return mapping_at(sink).get("type") == "file"
