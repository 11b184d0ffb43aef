"""The audit log of one gateway: `AuditLog`, a reader of events.

It maps each gateway event to audit events and gives them to the `SinkQueue` of every sink whose
filter they pass. Lines are rendered later. The composition root opens, reconfigures (`prepare`,
then `switch`) and closes it.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from functools import partial
from logging import getLogger
from operator import itemgetter
from typing import Final, NamedTuple

from taskgate.clock import Clock
from taskgate.telemetry.auditlog.backpressure import Backpressure, EventBuffer
from taskgate.telemetry.auditlog.catalogue import EVENTS, matching
from taskgate.telemetry.auditlog.chain import CHECKPOINT, SIGNED_EVENTS, Signer, SigningKeyError, signer_of
from taskgate.telemetry.auditlog.chain_writer import ChainWriter
from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.fold import MIN_PAUSE, EventFold, count_of
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.mapping import EventMapping, Mapper
from taskgate.telemetry.auditlog.settings import AuditFileInUse, AuditSettings, AuditUnavailable, SinkSettings
from taskgate.telemetry.auditlog.sink_queue import SinkQueue, SinkQueueOptions, SinkTrouble
from taskgate.telemetry.auditlog.sinks import STDOUT, FileSink, Sink, StreamSink
from taskgate.telemetry.events import AUDIT_FULL, AuditEventRecorded, Event
from taskgate.telemetry.request_context import RequestContext, current
from taskgate.telemetry.ring import EventRing

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that `close` waits for a blocked sink."""
_CONFIG_LOADED: Final = "config.loaded"
_ADVICE_PATH: Final = "give each an audit.sinks[].path of its own"
_ADVICE_DIRECTORY: Final = "give each gateway an audit.sinks[].path or a data directory (TASKGATE_DATA_DIR) of its own"

log = getLogger("taskgate.audit")

_NAME_AND_OUTCOME: Final = itemgetter(0, 1)
"""The parts of an audit event that metrics count."""


class _OpenSink(NamedTuple):
    """One open sink, with its queue."""

    settings: SinkSettings
    sink: Sink
    queue: SinkQueue


class PreparedSinks(NamedTuple):
    """Settings to switch to; their new sinks are open."""

    settings: AuditSettings
    render: Renderer
    signer: Signer | None
    sinks: tuple[_OpenSink, ...]


class AuditLog:
    """The writer of audit lines, from `open` to `close`. Without sinks it writes none, and costs nothing.

    A reload calls `prepare`, then either `switch` or `discard` with the result. Sinks with an
    unchanged target stay open over it.

    - `_mapped`: the audit events of the present batch of `event_sink`; `_unknown`: those of requests
      without a known caller, which `_fold` makes few lines of; `_timer`: wakes it for its counts
    - `_routes`: the queues that get an audit event, by the name of the event
    - `_filters`: the names of gateway events that each queue gets; `_names`: those of all queues
    - `_closing`: the asyncio tasks that close removed sinks
    """

    def __init__(
        self,
        settings: AuditSettings,
        *,
        event_sink: EventRing,
        clock: Clock,
        block_of: Callable[[str], str],
        stdout: int = STDOUT,
    ) -> None:
        """The log reads the events of `event_sink`, and emits to it those about itself.

        So that requests wait in time for room, no more events wait there than find room here.

        `block_of` returns what counts as one address of unknown callers. `stdout` is the descriptor of
        standard output.
        """
        self._settings = settings
        self._event_sink = event_sink
        self._clock = clock
        self._stdout = stdout
        self._mapping = EventMapping(settings.line_options)
        self._sinks: tuple[_OpenSink, ...] = ()
        self._mapped: list[AuditEvent] = []
        self._unknown: list[AuditEvent] = []
        self._fold = EventFold(block_of)
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True
        self._routes: Mapping[str, tuple[SinkQueue, ...]] = {}
        self._filters: Mapping[SinkQueue, frozenset[str]] = {}
        self._names: frozenset[str] = frozenset()
        self.capacity = Backpressure()
        """The room for requests, which the listener asks for."""
        self._closing: set[asyncio.Task[None]] = set()
        event_sink.room, event_sink.on_batch = self.capacity.free, self._queue_mapped

    async def open(self) -> None:
        """Open all sinks. Raises AuditUnavailable; then nothing stays open."""
        self.switch(await self.prepare(self._settings))

    def note_failure(self, event: Event) -> None:
        log.exception("an event was not recorded in the audit log", extra={"fact": type(event).__name__})

    def depths(self) -> dict[tuple[str], int]:
        """How many events wait for each sink, by its name. Safe on other threads."""
        return {(sink.queue.name,): len(sink.queue.buffer) for sink in self._sinks}

    def troubles(self) -> dict[str, SinkTrouble]:
        """The sinks whose lines cannot be written, by name."""
        found = {sink.queue.name: sink.queue.trouble for sink in self._sinks}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def sequences(self) -> dict[tuple[str], int]:
        """The number of the last line of each file sink, by its name. Safe on other threads.

        The chain of standard output restarts with each process, so its numbers say nothing.
        """
        found = {(sink.queue.name,): sink.queue.sequence for sink in self._sinks if sink.settings.path is not None}
        return {name: sequence for name, sequence in found.items() if sequence is not None}

    def reopen(self) -> None:
        """Reopen every sink by its name: its file may have been moved. Never raises."""
        self._queue_counts()
        for sink in self._sinks:
            sink.queue.reopen()

    def _recorder(self, map_event: Mapper) -> Callable[[Event], None]:
        """A handler that maps the events of a type; `_queue_mapped` takes what they are mapped to."""
        mapped, unknown, ring = self._mapped, self._unknown, self._event_sink

        def record(event: Event) -> None:
            # Each line of the log needs it: a datetime would take several times as long.
            now = round((ring.folded_at + ring.elapsed) * 1e6)
            request = current()
            of = event if type(event) is RequestContext else request
            events = mapped if of is None or of.caller is not None else unknown
            events.extend(map_event(event, request, now))

        return record

    def _queue_mapped(self) -> None:
        """Queue the audit events of a batch for every sink whose filter they pass.

        Does not wait: a queue without room drops its copy and counts it.
        """
        if self._unknown:
            self._count_unknown()
        if not self._mapped:
            return
        filters, names = self._filters, self._names
        # By number: name, outcome and reason.
        recorded = [event for event in self._mapped if event[0] in names]
        self._mapped.clear()
        crowded = {queue for queue in filters if queue.buffer.is_crowded_with(len(recorded))}
        if crowded:
            # A request that was refused for lack of room must not use the rest of the room.
            recorded = [
                event for event in recorded if event[2] != AUDIT_FULL or not crowded.issuperset(self._routes[event[0]])
            ]
        for (name, outcome), times in Counter(map(_NAME_AND_OUTCOME, recorded)).items():
            self._event_sink.emit_many(AuditEventRecorded(name, outcome), times)
        for queue, wanted in filters.items():
            events = recorded if wanted == names else [event for event in recorded if event[0] in wanted]
            if queue in crowded:
                events = [event for event in events if event[2] != AUDIT_FULL]
            try:
                queue.buffer.extend(events)
            except Exception:
                log.exception("events were not recorded in the audit log", extra={"sink": queue.name})

    # --- events without a known caller ---------------------------------------------------------------------------

    def _count_unknown(self) -> None:
        """Make few lines of the events of unknown callers."""
        events = [event for event in self._unknown if event[0] in self._names]
        self._unknown.clear()
        self._add_lines(self._fold.lines(events, self._event_sink.elapsed))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._is_open and not self._fold.is_empty:
            self._timer = asyncio.get_running_loop().call_later(MIN_PAUSE, self._on_time, context=Context())

    def _add_lines(self, lines: list[AuditEvent]) -> None:
        """Add lines to those that are queued next; metrics count each of their events."""
        self._mapped += lines
        for line in lines:
            if (count := count_of(line)) > 1:
                self._event_sink.emit_many(AuditEventRecorded(line.name, line.outcome), count - 1)

    def _on_time(self) -> None:
        """Queue the lines of counts that are due, and come again while there are any."""
        self._timer = None
        self._event_sink.fold()
        self._add_lines(self._fold.due(self._clock.elapsed()))
        self._queue_mapped()
        self._set_timer()

    def _queue_counts(self) -> None:
        """Queue the lines of all counts now."""
        self._event_sink.fold()
        self._add_lines(self._fold.rest())
        self._queue_mapped()

    # --- reconfiguration and shutdown ----------------------------------------------------------------------------

    async def prepare(self, settings: AuditSettings) -> PreparedSinks:
        """Open the sinks that are new in the settings; nothing is written to them before `switch`
        but the start of their chains.

        Raises AuditUnavailable; then none of the new ones stays open.
        """
        if self._closing:
            # A file that is being closed may be configured again.
            await asyncio.wait(self._closing)
        render = Renderer(settings.line_options, key=settings.key, node=settings.node)
        prepared = PreparedSinks(settings, render, _signer(settings), ())
        try:
            for wanted in settings.sinks:
                sink = self._sink_at(wanted.target)
                if sink is None:
                    sink = self._new_sink(wanted, prepared)
                    await _open(sink)
                prepared = prepared._replace(sinks=(*prepared.sinks, sink))
        except BaseException:
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: PreparedSinks) -> None:
        """Close the sinks that `prepare` opened; called instead of `switch`."""
        await _close_queues([sink.queue for sink in prepared.sinks if sink not in self._sinks])

    def switch(self, prepared: PreparedSinks) -> None:
        """Apply prepared settings. Events that wait for a removed sink are still written.

        A sink that loses `config.loaded` by this change receives it once more. The caller must emit
        it before the event loop runs anything else.
        """
        self._queue_counts()
        settings, before, had_changes = prepared.settings, self._sinks, self._routes.get(_CONFIG_LOADED, ())
        sinks = [each._replace(settings=sink) for each, sink in zip(prepared.sinks, settings.sinks, strict=True)]
        for sink in sinks:
            if any(sink.queue is each.queue for each in before):
                sink.queue.reconfigure(
                    sink.settings.name, _queue_options(settings), partial(_reconfigure, sink, prepared)
                )
        gone = [each.queue for each in before if all(each.queue is not sink.queue for sink in sinks)]
        if settings.line_options != self._settings.line_options:
            self._mapping = EventMapping(settings.line_options, before=self._mapping)
        self._settings, self._sinks = settings, tuple(sinks)
        routes = _routes(settings, sinks)
        self.capacity.configure(_limiting_buffers(routes), settings.on_full, settings.block_timeout)
        self._update_routes()
        if any(queue not in self._routes.get(_CONFIG_LOADED, ()) for queue in had_changes):
            # Turning a log off, or filtering it for a while, must leave a trace in it.
            queues = dict.fromkeys((*self._routes.get(_CONFIG_LOADED, ()), *had_changes))
            self._set_routes({**self._routes, _CONFIG_LOADED: tuple(queues)})
            self._subscribe(self._mapping.mappers)
            asyncio.get_running_loop().call_soon(self._update_routes)
        if gone:
            closing = asyncio.create_task(_close_queues(gone))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Write all waiting events and a checkpoint, sync, and close. May be called again.

        Each of the two steps of `_close_queues` gives a blocked sink `CLOSE_TIMEOUT` seconds. Later
        events are dropped and counted.
        """
        self._queue_counts()
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await _close_queues([sink.queue for sink in self._sinks if sink.queue.buffer.is_open])
        if self._closing:
            await asyncio.wait(self._closing)

    def _update_routes(self) -> None:
        # What has happened so far goes by the routes of that time.
        self._event_sink.fold()
        self._set_routes(_routes(self._settings, self._sinks))
        self._subscribe(self._mapping.mappers if self._sinks else {})

    def _set_routes(self, routes: Mapping[str, tuple[SinkQueue, ...]]) -> None:
        self._routes = routes
        # The events of the log itself come by other ways.
        own = [(queue, name) for name, queues in routes.items() if name not in SIGNED_EVENTS for queue in queues]
        self._filters = {queue: frozenset(name for other, name in own if other is queue) for queue, _ in own}
        self._names = frozenset(name for _, name in own)

    def _subscribe(self, mappers: Mapping[type, Mapper]) -> None:
        self._event_sink.record(mappers)
        self._event_sink.subscribe(self, {kind: self._recorder(mapper) for kind, mapper in mappers.items()})

    def _sink_at(self, target: str) -> _OpenSink | None:
        return next((sink for sink in self._sinks if sink.settings.target == target), None)

    def _new_sink(self, settings: SinkSettings, prepared: PreparedSinks) -> _OpenSink:
        sink: Sink
        if settings.path is None:
            if self._stdout == STDOUT and sys.__stdout__ is None:
                # Another file may have its descriptor by now.
                raise AuditUnavailable(f"audit.sinks ({settings.name}): there is no standard output")
            sink = StreamSink(self._stdout)
        else:
            sink = FileSink(
                settings.path,
                rotate_size=settings.rotate_size,
                keep=settings.keep,
                least_age=prepared.settings.keep,
                disk=settings.fsync != "never",
            )
        to_disk = settings.fsync == "always"
        writer = ChainWriter(settings.name, sink, render=prepared.render, signer=prepared.signer, to_disk=to_disk)
        queue = SinkQueue(
            settings.name, writer, _queue_options(prepared.settings), event_sink=self._event_sink, clock=self._clock
        )
        queue.on_checkpoint, queue.on_room = self._share_checkpoint, self.capacity.on_room
        return _OpenSink(settings, sink, queue)

    def _share_checkpoint(self, queue: SinkQueue, event: AuditEvent) -> None:
        for other in self._routes.get(CHECKPOINT, ()):
            if other is not queue:
                other.buffer.add(event)


def _signer(settings: AuditSettings) -> Signer | None:
    if not settings.chain.enabled:
        return None
    try:
        return signer_of(settings.key, settings.chain.signing_key)
    except SigningKeyError as error:
        raise AuditUnavailable(f"audit.chain.sign_key_file: {error}") from None


def _queue_options(settings: AuditSettings) -> SinkQueueOptions:
    chain = settings.chain
    if not chain.enabled:
        return SinkQueueOptions(size=settings.queue, checkpoint_events=None, checkpoint_seconds=None)
    within = chain.checkpoint_interval.total_seconds()
    return SinkQueueOptions(size=settings.queue, checkpoint_events=chain.checkpoint_events, checkpoint_seconds=within)


def _reconfigure(open_sink: _OpenSink, prepared: PreparedSinks, writer: ChainWriter) -> None:
    settings, sink = open_sink.settings, open_sink.sink
    writer.reconfigure(
        settings.name, render=prepared.render, signer=prepared.signer, to_disk=settings.fsync == "always"
    )
    if isinstance(sink, FileSink):
        sink.reconfigure(
            rotate_size=settings.rotate_size,
            keep=settings.keep,
            least_age=prepared.settings.keep,
            disk=settings.fsync != "never",
        )


def _routes(settings: AuditSettings, sinks: Iterable[_OpenSink]) -> dict[str, tuple[SinkQueue, ...]]:
    """The sinks of each event. `audit.events` does not filter the events of the log itself."""
    recorded = matching(settings.events) | SIGNED_EVENTS
    wanted = [(sink.queue, matching(sink.settings.events)) for sink in sinks]
    return {name: tuple(queue for queue, names in wanted if name in names) for name in EVENTS if name in recorded}


def _limiting_buffers(routes: Mapping[str, tuple[SinkQueue, ...]]) -> list[EventBuffer]:
    """The buffers that requests wait for: not those of sinks with only events of the log itself."""
    queues = dict.fromkeys(queue for name, each in routes.items() if name not in SIGNED_EVENTS for queue in each)
    return [queue.buffer for queue in queues]


async def _open(sink: _OpenSink) -> None:
    try:
        await sink.queue.open()
    except AuditUnavailable as error:
        why = str(error)
        if isinstance(error, AuditFileInUse):
            why = f"{error}: {_ADVICE_PATH if sink.settings.was_named else _ADVICE_DIRECTORY}"
        raise AuditUnavailable(f"audit.sinks ({sink.settings.name}): {why}") from None


async def _close_queues(queues: list[SinkQueue]) -> None:
    """Close queues: each writes its own events first, then the checkpoints of the others."""
    for step in (SinkQueue.flush, SinkQueue.close):
        steps = {asyncio.create_task(step(queue)): queue for queue in queues}
        if steps:
            await asyncio.wait(steps, timeout=CLOSE_TIMEOUT)
        queues = [queue for task, queue in steps.items() if _has_ended(task, queue)]
        stuck = [task for task in steps if not task.done()]
        if stuck:
            await asyncio.wait(stuck)


def _has_ended(step: "asyncio.Task[None]", queue: SinkQueue) -> bool:
    """Whether a step ended well; otherwise the queue is aborted."""
    if not step.done():
        step.cancel()
    elif (error := step.exception()) is None:
        return True
    else:
        log.error("an audit sink failed while closing", extra={"sink": queue.name}, exc_info=error)
    queue.abort()
    return False
