"""One sink's book: makes lines of events, ties them to those before, and has the sink take them.

Everything here runs on the sink's own thread, but for `add_usual`. What was made into lines and not taken by the sink
stays, and is put first the next time. What must not live here: the event loop, and what is due when.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from logging import getLogger
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

from taskgate.telemetry.auditlog.catalogue import FAILURE, HIGH
from taskgate.telemetry.auditlog.chain import CHAIN_STARTED, CHECKPOINT, GAP, SIGNED_EVENTS, Chain, ChainHead
from taskgate.telemetry.auditlog.events import AuditEvent, internal_event
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.signing import Signer
from taskgate.telemetry.auditlog.sinks import Sink

_WORK_SECONDS: Final = 1e-3
"""So many seconds the thread makes lines without a pause, about: that long the event loop may have to wait for it."""
_YIELD_SECONDS: Final = 50e-6
"""And so many it stands aside then. To get the interpreter back beside a busy event loop costs as much as some lines,
so that there are to be few pauses."""

log = getLogger("taskgate.audit")


class ChainPosition(NamedTuple):
    """What a sink has taken: where its chain ends, in how many seconds the last of it went, and what is unvouched for.

    `uncovered` counts the lines since the last checkpoint, `noted` names the lines of the log's own.
    """

    head: ChainHead
    seconds: float
    uncovered: int
    noted: tuple[str, ...]


def gap_event(sink: str, now: datetime, gap: Gap) -> AuditEvent:
    """The event that tells of what is gone."""
    seq, digest = gap.head or (None, None)
    said = {"sink": sink, "cause": gap.cause, "lines": gap.lines, "bytes": gap.bytes, "seq": seq, "head": digest}
    return internal_event(GAP, now, outcome=FAILURE, severity=HIGH, data=said)


class ChainWriter:
    """The lines of one sink. A method that raises OSError may be called again; `keep([])` does the rest of it."""

    def __init__(self, name: str, sink: Sink, *, render: Renderer, signer: Signer | None, to_disk: bool) -> None:
        """Without a `signer` lines are not chained. With `to_disk`, each write waits for the disk."""
        self._name = name
        self._sink = sink
        self._render = render
        self._signer = signer
        self._to_disk = to_disk
        self._chain = Chain(ChainHead(0, ""), signer)
        self._pending = bytearray()
        self._uncovered = 0
        self._noted: list[str] = []
        self._cannot_rotate = False
        self._owes_disk = False

    def reconfigure(self, name: str, *, render: Renderer, signer: Signer | None, to_disk: bool) -> None:
        """Be called that, and make lines in that way, from the next one on."""
        self._name, self._render, self._signer, self._to_disk = name, render, signer, to_disk
        self._chain.set_signer(signer)

    def open(self, now: datetime) -> ChainPosition:
        """Go on where the sink's chain ended, and say so. Raises OSError or AuditUnavailable."""
        found = self._sink.open()
        self._chain.move_to(found.head)
        try:
            self._begin(now)
            for gap in found.gaps:
                log.warning("lines of the audit log are missing", extra={"sink": self._name, "cause": gap.cause})
                self._note(gap_event(self._name, now, gap))
            return self.write([], now)
        except BaseException:
            self._sink.close()
            raise

    def write(self, events: list[AuditEvent], now: datetime) -> ChainPosition:
        """Have those events written, and whatever was not before; the list is empty then. Raises OSError.

        They are let go before the sink is waited for: an event may hold a large message.
        """
        if events and self._sink.is_full and not self._pending:
            self._rotate(now)
        self._add_all(events)
        events.clear()
        began = perf_counter()
        while self._pending or self._owes_disk:
            if self._pending:
                self._sink.put(bytes(self._pending))
                self._pending.clear()
                self._owes_disk = self._to_disk
            if self._owes_disk:
                self._look(now)
                self._owes_disk = False
        noted, self._noted = tuple(self._noted), []
        return ChainPosition(self._chain.head, perf_counter() - began, self._uncovered, noted)

    def add_templated(self, events: list[AuditEvent], most: int) -> bool:
        """Make lines of the first events for as long as they are usual, and take those from the list; at most so many.

        Whether there may be more of that kind. For the event loop, while the thread does nothing: that takes some
        microseconds a line, and a thread that makes them beside a busy loop costs both more than it takes over.
        """
        if self._sink.is_full:
            return False
        chain, line_of, made = self._chain, self._render.template_line, []
        with suppress(Exception):
            # What cannot be told the thread meets again, and tells of it.
            for event in islice(events, most):
                usual = line_of(event, *chain.next_link)
                if usual is None:
                    break
                chain.append_line(usual)
                made.append(usual)
        self._put(made)
        del events[: len(made)]
        return len(made) == most

    def checkpoint(self, now: datetime) -> tuple[ChainPosition, AuditEvent]:
        """Write a checkpoint, and return the one for other sinks, which vouches for that line too. Raises OSError."""
        self._note(self._checkpoint(now))
        self._uncovered = 0
        return self.write([], now), self._checkpoint(now)

    def sync(self, now: datetime) -> ChainPosition:
        """Make what was written outlast the machine. Raises OSError."""
        self.write([], now)
        self._look(now)
        return self.write([], now)

    def reopen(self, now: datetime) -> ChainPosition:
        """Go where the sink's name leads now. Raises OSError."""
        if self._sink.reopen(self._chain.head):
            # What the old place did not take stands first in the new one: it is tied to what is there.
            self._begin(now)
        return self.write([], now)

    def close(self) -> None:
        """Let go of the sink. Never raises."""
        self._sink.close()

    def _begin(self, now: datetime) -> None:
        seq, digest = self._chain.head
        said = {"sink": self._name, "seq": seq, "head": digest if seq else None}
        self._note(internal_event(CHAIN_STARTED, now, data=said))

    def _rotate(self, now: datetime) -> None:
        try:
            self._sink.rotate(self._chain.head)
        except OSError as error:
            if not self._cannot_rotate:
                log.warning(
                    "an audit file cannot be put aside; it grows on", extra={"sink": self._name, "errno": error.errno}
                )
            self._cannot_rotate = True
        else:
            self._cannot_rotate = False
            self._begin(now)

    def _look(self, now: datetime) -> None:
        gap = self._sink.sync(self._chain.head)
        if gap is None:
            return
        log.warning("lines of the audit log are missing", extra={"sink": self._name, "cause": gap.cause})
        self._begin(now)
        self._note(gap_event(self._name, now, gap))

    def _checkpoint(self, now: datetime) -> AuditEvent:
        seq, digest = self._chain.head
        return internal_event(CHECKPOINT, now, data={"sink": self._name, "seq": seq, "head": digest})

    def _note(self, event: AuditEvent) -> None:
        self._noted.append(event.name)
        self._add(event)

    def _add_all(self, events: list[AuditEvent]) -> None:
        until = perf_counter() + _WORK_SECONDS
        for event in events:
            if perf_counter() > until:
                sleep(_YIELD_SECONDS)
                until = perf_counter() + _WORK_SECONDS
            self._add(event)

    def _add(self, event: AuditEvent) -> None:
        try:
            usual = self._render.template_line(event, *self._chain.next_link)
            if usual is not None:
                self._chain.append_line(usual)
                self._put([usual])
                return
            line = self._chain.add(self._render(event))
        except Exception as error:
            # Whatever it holds, that it happened is told.
            log.error("an event of the audit log cannot be told in full", extra={"told": event.name}, exc_info=error)
            said: Mapping[str, Any] = {"unrendered": type(error).__name__}
            bare = internal_event(event.name, event.time, outcome=event.outcome, severity=event.severity, data=said)
            line = self._chain.add(self._render(bare))
        self._pending += line
        if event.name not in SIGNED_EVENTS:
            self._uncovered += 1

    def _put(self, usual: list[bytes]) -> None:
        if usual:
            self._pending += b"\n".join((*usual, b""))
            self._uncovered += len(usual)
