"""The writer of one sink's chain of lines: `ChainWriter`.

It renders events, chains each line to the one before, and passes the lines to the sink. All methods
run on the thread of the sink, except `add_templated`. Lines that the sink did not take stay pending
and are written first the next time.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from logging import getLogger
from operator import attrgetter
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

from taskgate.telemetry.auditlog.catalogue import FAILURE, HIGH
from taskgate.telemetry.auditlog.chain import CHAIN_STARTED, CHECKPOINT, GAP, SIGNED_EVENTS, Chain, ChainHead, Signer
from taskgate.telemetry.auditlog.events import AuditEvent, internal_event
from taskgate.telemetry.auditlog.fold import count_of
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.sinks import Sink

_WORK_SECONDS: Final = 1e-3
"""About how long, in seconds, the thread renders lines without a pause: the event loop may wait
that long for it."""
_YIELD_SECONDS: Final = 50e-6
"""How long the thread then sleeps, in seconds. Taking the interpreter back from a busy event loop
costs as much as several lines, so pauses are few."""
_REPORT_EVERY: Final = timedelta(minutes=1)
LARGEST_LINE: Final = 2048
"""Bytes that a line of an unknown caller is taken to have; most have half of it."""
MAX_LIGHT: Final = 16 * 1024
"""Bytes of arguments or results of an event that the event loop renders, at most."""

log = getLogger("taskgate.audit")


class ChainPosition(NamedTuple):
    """The position of a sink: the end of its chain, and the duration of the last write in seconds.

    `since_checkpoint` counts the lines after the last checkpoint, `internal` names the lines about
    the log itself.
    """

    head: ChainHead
    seconds: float
    since_checkpoint: int
    internal: tuple[str, ...]


def gap_event(sink: str, now: datetime, gap: Gap) -> AuditEvent:
    """The `audit.gap` event for lines that are missing."""
    seq, digest = gap.head or (None, None)
    data = {"sink": sink, "cause": gap.cause, "lines": gap.lines, "bytes": gap.bytes, "seq": seq, "head": digest}
    return internal_event(GAP, now, outcome=FAILURE, severity=HIGH, data=data)


class ChainWriter:
    """The writer of one sink's lines, from `open` to `close`; never opened a second time.

    Pending lines are rendered and chained, but not yet taken by the sink. After an OSError they stay
    pending, and the next `write`, `checkpoint`, `sync` or `reopen` writes them first. `write([])`
    writes nothing else. These methods return the position that is reached.

    - `_internal`: the names of lines about the log itself, since the last returned position
    - `_needs_sync`: whether `write` must still sync the disk before it returns
    - `_left_out`: the events of unknown callers without a line that no `audit.gap` counts yet;
      `_left_out_since`: when the first of them came
    """

    def __init__(self, name: str, sink: Sink, *, render: Renderer, signer: Signer | None, to_disk: bool) -> None:
        """Without a `signer`, lines are numbered but not chained.

        With `to_disk`, each write waits for the disk.
        """
        self._name = name
        self._sink = sink
        self._render = render
        self._signer = signer
        self._to_disk = to_disk
        self._chain = Chain(ChainHead(0, ""), signer)
        self._pending = bytearray()
        self._since_checkpoint = 0
        self._internal: list[str] = []
        self._rotation_failed = False
        self._needs_sync = False
        self._left_out = 0
        self._left_out_since: datetime | None = None

    def reconfigure(self, name: str, *, render: Renderer, signer: Signer | None, to_disk: bool) -> None:
        """Use other settings from the next line on."""
        self._name, self._render, self._signer, self._to_disk = name, render, signer, to_disk
        self._chain.set_signer(signer)

    def open(self, now: datetime) -> ChainPosition:
        """Open the sink and continue its chain with `audit.chain_started`.

        Raises OSError or AuditUnavailable. Then the caller drops this writer, whose pending lines
        have numbers that a new chain would repeat.
        """
        found = self._sink.open()
        self._chain.move_to(found.head)
        try:
            self._start_chain(now)
            for gap in found.gaps:
                log.warning("lines of the audit log are missing", extra={"sink": self._name, "cause": gap.cause})
                self._add_internal(gap_event(self._name, now, gap))
            return self.write([], now)
        except BaseException:
            self._sink.close()
            raise

    def write(self, events: list[AuditEvent], now: datetime) -> ChainPosition:
        """Write pending lines and these events; empties the list. Raises OSError.

        The events are released before the write waits for the sink: an event may hold a large
        message.
        """
        is_reserved = self._sink.is_reserved(now)
        if self._sink.is_full and not self._pending and any(not is_reserved or not count_of(each) for each in events):
            self._rotate(now)
            is_reserved = self._sink.is_reserved(now)
        self._add_all(events, now, is_reserved=is_reserved)
        events.clear()
        if self._left_out_since is not None and now - self._left_out_since >= _REPORT_EVERY:
            self._report_left_out(now)
        began = perf_counter()
        self._write_pending(now)
        internal, self._internal = tuple(self._internal), []
        return ChainPosition(self._chain.head, perf_counter() - began, self._since_checkpoint, internal)

    def add_templated(self, events: list[AuditEvent], most: int) -> bool:
        """Render the first events from templates, at most `most`; removes them from the list.

        Stops at the first event that has no template, or has long arguments: the thread hashes them.
        Returns whether there may be more to render. Runs on the event loop while the thread is idle.
        A line takes a few microseconds; a thread that renders beside a busy loop costs both more than
        that.
        """
        if self._sink.is_full:
            return False
        made: list[bytes] = []
        first = events[:most]
        if max(map(_WEIGHT, first), default=0) > MAX_LIGHT:
            first = list(takewhile(_is_light, first))
        with suppress(Exception):
            # The thread renders a failing event again, and reports the failure.
            self._chain.add_lines(first, self._render.template_line, made)
        self._append(made)
        del events[: len(made)]
        return len(made) == most

    def report(self, now: datetime) -> ChainPosition:
        """Write how many events of unknown callers were left out, if any. Raises OSError."""
        if self._left_out:
            self._report_left_out(now)
        return self.write([], now)

    def checkpoint(self, now: datetime) -> tuple[ChainPosition, AuditEvent]:
        """Write a checkpoint; returns a second one, for other sinks, that covers the first too.

        Raises OSError.
        """
        self._add_internal(self._checkpoint(now))
        self._since_checkpoint = 0
        return self.write([], now), self._checkpoint(now)

    def sync(self, now: datetime) -> ChainPosition:
        """Write what is pending and wait for the disk. Raises OSError."""
        # Not by `write`: only the position that is returned may take the names in `_internal`.
        self._write_pending(now)
        self._sync_sink(now)
        return self.write([], now)

    def reopen(self, now: datetime) -> ChainPosition:
        """Reopen the sink by its name, for example after log rotation by another program.

        Raises OSError.
        """
        if self._sink.reopen(self._chain.head):
            # Pending lines come first in the new file: they are chained to the old one.
            self._start_chain(now)
        return self.write([], now)

    def close(self) -> None:
        """Close the sink. Never raises."""
        self._sink.close()

    def _write_pending(self, now: datetime) -> None:
        while self._pending or self._needs_sync:
            if self._pending:
                self._sink.put(bytes(self._pending))
                self._pending.clear()
                self._needs_sync = self._to_disk
            if self._needs_sync:
                # A gap that is found adds lines.
                self._sync_sink(now)
                self._needs_sync = False

    def _start_chain(self, now: datetime) -> None:
        seq, digest = self._chain.head
        data = {"sink": self._name, "seq": seq, "head": digest if seq else None}
        self._add_internal(internal_event(CHAIN_STARTED, now, data=data))

    def _rotate(self, now: datetime) -> None:
        try:
            self._sink.rotate(self._chain.head)
        except OSError as error:
            if not self._rotation_failed:
                log.warning(
                    "an audit file cannot be rotated; it keeps growing",
                    extra={"sink": self._name, "errno": error.errno},
                )
            self._rotation_failed = True
        else:
            self._rotation_failed = False
            self._start_chain(now)

    def _sync_sink(self, now: datetime) -> None:
        gap = self._sink.sync(self._chain.head)
        if gap is None:
            return
        log.warning("lines of the audit log are missing", extra={"sink": self._name, "cause": gap.cause})
        self._start_chain(now)
        self._add_internal(gap_event(self._name, now, gap))

    def _checkpoint(self, now: datetime) -> AuditEvent:
        seq, digest = self._chain.head
        return internal_event(CHECKPOINT, now, data={"sink": self._name, "seq": seq, "head": digest})

    def _add_internal(self, event: AuditEvent) -> None:
        self._internal.append(event.name)
        self._add(event)

    def _report_left_out(self, now: datetime) -> None:
        log.warning(
            "refusals of unknown callers are left out of the audit log: "
            "its files are full and younger than audit.keep; raise rotate.size or rotate.keep",
            extra={"sink": self._name, "left_out": self._left_out},
        )
        self._add_internal(gap_event(self._name, now, Gap("audit_keep", lines=self._left_out)))
        self._left_out, self._left_out_since = 0, None

    def _add_all(self, events: list[AuditEvent], now: datetime, *, is_reserved: bool) -> None:
        until = perf_counter() + _WORK_SECONDS
        for event in events:
            if perf_counter() > until:
                sleep(_YIELD_SECONDS)
                until = perf_counter() + _WORK_SECONDS
            count = count_of(event) if is_reserved else 0
            if count and not self._sink.take_share(LARGEST_LINE):
                self._left_out += count
                self._left_out_since = self._left_out_since or now
            else:
                self._add(event)

    def _add(self, event: AuditEvent) -> None:
        made: list[bytes] = []
        try:
            self._chain.add_lines((event,), self._render.template_line, made)
            if made:
                self._append(made)
                return
            line = self._chain.add(self._render(event))
        except Exception as error:
            # The line says that the event happened, and why its data is missing.
            log.error(
                "an audit event cannot be rendered; its line has no data", extra={"told": event.name}, exc_info=error
            )
            data: Mapping[str, Any] = {"unrendered": type(error).__name__}
            bare = AuditEvent(event.name, event.outcome, None, event.severity, event.time, data=data)
            line = self._chain.add(self._render(bare))
        self._pending += line
        if event.name not in SIGNED_EVENTS:
            self._since_checkpoint += 1

    def _append(self, lines: list[bytes]) -> None:
        """Add lines of templates, which end without a line break. None is of a signed event."""
        if lines:
            self._pending += b"\n".join((*lines, b""))
            self._since_checkpoint += len(lines)


def _is_light(event: AuditEvent) -> bool:
    return event.weight <= MAX_LIGHT


_WEIGHT: Final = attrgetter("weight")
