"""The audit log: a listener that makes events of facts and sends each to the sinks that are to have it.

Where a fact is recorded an event is made and appended to a list; its line is made later. What must not live here: what
an event says (`table`, `rendering`), how a sink is served (`lane`), and the configuration.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.clock import Clock
from taskgate.telemetry import request_context
from taskgate.telemetry.auditlog.backpressure import Backpressure, EventBuffer
from taskgate.telemetry.auditlog.catalogue import EVENTS, matching
from taskgate.telemetry.auditlog.chain import CHECKPOINT, SIGNED_EVENTS
from taskgate.telemetry.auditlog.chain_writer import ChainWriter
from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.mapping import EventMapping, Mapper
from taskgate.telemetry.auditlog.settings import AuditFileInUse, AuditSettings, AuditUnavailable, SinkSettings
from taskgate.telemetry.auditlog.signing import Signer, SigningKeyError, signer_of
from taskgate.telemetry.auditlog.sink_queue import SinkQueue, SinkQueueOptions
from taskgate.telemetry.auditlog.sinks import STDOUT, FileSink, Sink, StreamSink
from taskgate.telemetry.events import NO_ROOM, AuditNoted, Event, EventSink, Trail

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that a sink which is stuck is waited for when the log is closed."""
_CONFIG_LOADED: Final = "config.loaded"
_ADVICE_PATH: Final = "give each an audit.sinks[].path of its own"
_ADVICE_DIRECTORY: Final = "give each gateway an audit.sinks[].path or a data directory (TASKGATE_DATA_DIR) of its own"

log = getLogger("taskgate.audit")

_noted_event: Final = cache(AuditNoted)
"""There are a few dozen of these facts, and every request has one."""


class _OpenSink(NamedTuple):
    """One sink that is open, and the way to it."""

    settings: SinkSettings
    sink: Sink
    lane: SinkQueue


class PreparedSinks(NamedTuple):
    """Other settings, with the sinks that are new in them open."""

    settings: AuditSettings
    render: Renderer
    signer: Signer | None
    ways: tuple[_OpenSink, ...]


class AuditLog:
    """Keeps lines of what happens, from `open` to `close`. Without sinks it keeps none, and costs nothing."""

    def __init__(self, settings: AuditSettings, *, metrics: EventSink, clock: Clock, stdout: int = STDOUT) -> None:
        """`metrics` is told of the log itself; `stdout` is the descriptor of standard output."""
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._stdout = stdout
        self._table = EventMapping(settings.line_options)
        self._ways: tuple[_OpenSink, ...] = ()
        self._routes: Mapping[str, tuple[SinkQueue, ...]] = {}
        self._tellers: Mapping[type, Mapper] = {}
        self._room = Backpressure()
        self._parting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin. Raises AuditUnavailable; nothing is left open then."""
        self.switch(await self.prepare(self._settings))

    def emit(self, fact: Event) -> None:
        """See EventSink. What the log is to have of it waits now; facts that no sink is to have are passed over."""
        teller = self._tellers.get(type(fact))
        if teller is None:
            return
        try:
            for event in teller(fact, request_context.current(), self._clock.now()):
                lanes = self._routes.get(event.name)
                if lanes and event.reason == NO_ROOM:
                    # Whoever was refused to keep what is left for others does not take it, either.
                    lanes = tuple(lane for lane in lanes if not lane.buffer.is_crowded)
                if lanes:
                    self._metrics.emit(_noted_event(event.name, event.outcome))
                    for lane in lanes:
                        lane.accept(event)
        except Exception:
            log.exception("a fact was not told in the audit log", extra={"fact": type(fact).__name__})

    @property
    def is_full(self) -> bool:
        """See Trail: some sink has so much waiting that only what is under way already finds room."""
        return self._room.is_full

    async def room(self) -> bool:
        """See Trail. False where the operator has requests refused rather than let in without a line."""
        return await self._room.wait()

    def depths(self) -> dict[tuple[str], int]:
        """How many events wait for each sink, by its name. May be asked on another thread."""
        return {(way.lane.name,): len(way.lane.buffer) for way in self._ways}

    def sequences(self) -> dict[tuple[str], int]:
        """The number of the last line of each sink that is a file, by its name. May be asked on another thread.

        A chain that begins anew with each process has no number worth remembering.
        """
        found = {(way.lane.name,): way.lane.sequence for way in self._ways if way.settings.path is not None}
        return {name: sequence for name, sequence in found.items() if sequence is not None}

    def reopen(self) -> None:
        """Have every sink go where its name leads now: its file may have been moved away. Never raises."""
        for way in self._ways:
            way.lane.reopen()

    # --- other settings ------------------------------------------------------------------------------------------

    async def prepare(self, settings: AuditSettings) -> PreparedSinks:
        """What `switch` takes: sinks that are not open yet are opened. Raises AuditUnavailable; then nothing is."""
        if self._parting:
            # A file that is let go of may be wanted again.
            await asyncio.wait(self._parting)
        render = Renderer(settings.line_options, key=settings.key, node=settings.node)
        prepared = PreparedSinks(settings, render, _signer(settings), ())
        try:
            for sink in settings.sinks:
                way = self._way_to(sink.target)
                if way is None:
                    way = self._new(sink, prepared)
                    await _open(way)
                prepared = prepared._replace(ways=(*prepared.ways, way))
        except BaseException:
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: PreparedSinks) -> None:
        """Let go of what was opened for settings that are not to be."""
        await _close_queues([way.lane for way in prepared.ways if way not in self._ways])

    def switch(self, prepared: PreparedSinks) -> None:
        """Have those settings from now on. What waits for a sink that is gone is still written.

        A sink that is told of changes no more has this one yet, if it is told of before anything else can happen.
        """
        settings, before, knew = prepared.settings, self._ways, self._routes.get(_CONFIG_LOADED, ())
        ways = [each._replace(settings=sink) for each, sink in zip(prepared.ways, settings.sinks, strict=True)]
        for way in ways:
            if any(way.lane is each.lane for each in before):
                way.lane.reconfigure(way.settings.name, _queue_options(settings), partial(_reconfigure, way, prepared))
        gone = [each.lane for each in before if all(each.lane is not way.lane for way in ways)]
        if settings.line_options != self._settings.line_options:
            self._table = EventMapping(settings.line_options, before=self._table)
        self._settings, self._ways = settings, tuple(ways)
        self._direct()
        self._room.configure(_limiting_buffers(self._routes), settings.on_full, settings.block_timeout)
        if any(lane not in self._routes.get(_CONFIG_LOADED, ()) for lane in knew):
            # Nobody is to turn a log off and on again, or blind it for a while, without a trace in it.
            lanes = dict.fromkeys((*self._routes.get(_CONFIG_LOADED, ()), *knew))
            self._routes, self._tellers = {**self._routes, _CONFIG_LOADED: tuple(lanes)}, self._table.mappers
            asyncio.get_running_loop().call_soon(self._direct)
        if gone:
            parting = asyncio.create_task(_close_queues(gone))
            self._parting.add(parting)
            parting.add_done_callback(self._parting.discard)

    async def close(self) -> None:
        """Have everything written, vouched for and on the disk. A sink that is stuck is waited for a while, no longer.

        What is recorded later is lost, and counted.
        """
        await _close_queues([way.lane for way in self._ways if way.lane.buffer.is_open])
        if self._parting:
            await asyncio.wait(self._parting)

    def _direct(self) -> None:
        self._routes = _routes(self._settings, self._ways)
        self._tellers = self._table.mappers if self._ways else {}

    def _way_to(self, place: str) -> _OpenSink | None:
        return next((way for way in self._ways if way.settings.target == place), None)

    def _new(self, settings: SinkSettings, prepared: PreparedSinks) -> _OpenSink:
        sink: Sink
        if settings.path is None:
            if self._stdout == STDOUT and sys.__stdout__ is None:
                # Its number may be that of anything by now.
                raise AuditUnavailable(f"audit.sinks ({settings.name}): there is no standard output")
            sink = StreamSink(self._stdout)
        else:
            sink = FileSink(
                settings.path, rotate_size=settings.rotate_size, keep=settings.keep, disk=settings.fsync != "never"
            )
        to_disk = settings.fsync == "always"
        book = ChainWriter(settings.name, sink, render=prepared.render, signer=prepared.signer, to_disk=to_disk)
        lane = SinkQueue(
            settings.name, book, _queue_options(prepared.settings), metrics=self._metrics, clock=self._clock
        )
        lane.on_checkpoint, lane.on_room = self._vouched, self._room.on_room
        return _OpenSink(settings, sink, lane)

    def _vouched(self, lane: SinkQueue, event: AuditEvent) -> None:
        for other in self._routes.get(CHECKPOINT, ()):
            if other is not lane:
                other.accept(event)


def _signer(settings: AuditSettings) -> Signer | None:
    if not settings.chain.enabled:
        return None
    try:
        return signer_of(settings.key, settings.chain.signing_key)
    except SigningKeyError as refused:
        raise AuditUnavailable(f"audit.chain.sign_key_file: {refused}") from None


def _queue_options(settings: AuditSettings) -> SinkQueueOptions:
    chain = settings.chain
    if not chain.enabled:
        return SinkQueueOptions(size=settings.queue, checkpoint_events=None, checkpoint_seconds=None)
    within = chain.checkpoint_interval.total_seconds()
    return SinkQueueOptions(size=settings.queue, checkpoint_events=chain.checkpoint_events, checkpoint_seconds=within)


def _reconfigure(way: _OpenSink, prepared: PreparedSinks, book: ChainWriter) -> None:
    settings, sink = way.settings, way.sink
    book.reconfigure(settings.name, render=prepared.render, signer=prepared.signer, to_disk=settings.fsync == "always")
    if isinstance(sink, FileSink):
        sink.reconfigure(rotate_size=settings.rotate_size, keep=settings.keep, disk=settings.fsync != "never")


def _routes(settings: AuditSettings, ways: Iterable[_OpenSink]) -> dict[str, tuple[SinkQueue, ...]]:
    """Which sinks get what. What the log says of itself is not for the operator's filter over everything."""
    told = matching(settings.events) | SIGNED_EVENTS
    wanted = [(way.lane, matching(way.settings.events)) for way in ways]
    return {name: tuple(lane for lane, names in wanted if name in names) for name in EVENTS if name in told}


def _limiting_buffers(routes: Mapping[str, tuple[SinkQueue, ...]]) -> list[EventBuffer]:
    """What requests may have to wait for: not sinks that have nothing but what the log says of itself."""
    lanes = dict.fromkeys(lane for name, each in routes.items() if name not in SIGNED_EVENTS for lane in each)
    return [lane.buffer for lane in lanes]


async def _open(way: _OpenSink) -> None:
    try:
        await way.lane.open()
    except AuditUnavailable as refused:
        why = str(refused)
        if isinstance(refused, AuditFileInUse):
            why = f"{refused}: {_ADVICE_PATH if way.settings.was_named else _ADVICE_DIRECTORY}"
        raise AuditUnavailable(f"audit.sinks ({way.settings.name}): {why}") from None


async def _close_queues(lanes: list[SinkQueue]) -> None:
    """Let go of them, whatever they do: first each has its own written, then what the others vouched for."""
    for step in (SinkQueue.flush, SinkQueue.close):
        steps = {asyncio.create_task(step(lane)): lane for lane in lanes}
        if steps:
            await asyncio.wait(steps, timeout=CLOSE_TIMEOUT)
        lanes = [lane for task, lane in steps.items() if _has_ended(task, lane)]
        stuck = [task for task in steps if not task.done()]
        if stuck:
            await asyncio.wait(stuck)


def _has_ended(step: "asyncio.Task[None]", lane: SinkQueue) -> bool:
    """Whether it ended; else the lane is let go of as it is."""
    if not step.done():
        step.cancel()
    elif (error := step.exception()) is None:
        return True
    else:
        log.error("a sink of the audit log failed while it was closed", extra={"sink": lane.name}, exc_info=error)
    lane.abort()
    return False


_: type[Trail] = AuditLog
