"""The changes of task records: `Transitions`, the one place that writes a task's state and reports it.

A change is an event (`domain.events`) that happens to a record. Several processes may change a
record at the same time. So `apply` makes the changed record (`domain.machine`), and swaps it in if
the revision in the store is unchanged. Each stored change is reported once: the new status, the fate
of each question, the end. The other methods load the record first:

- `make` asks a function for the event, and starts again if the record has changed meanwhile;
- `insist` does the same, and retries while the store is unavailable;
- `settle` writes the final state of a task, however long the store takes to accept it. The first one
  in the record counts; every later one is dropped, and reported as LateAnswerDropped.

There are two objects. The one for hosts' requests changes any record. The one for running calls has
a `hold` if replicas share the store, and changes only records whose lease this process has.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Protocol

from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.security_alerts import SecurityAlerts
from taskgate.clock import Clock
from taskgate.domain.events import (
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    InputAnswered,
    InputRequested,
    InputResolution,
    InputWithdrawn,
    TaskEvent,
)
from taskgate.domain.machine import NO_TIME, advance
from taskgate.domain.record import (
    Faulted,
    FaultReason,
    InputRequest,
    OwnerKey,
    Succeeded,
    TaskId,
    TaskRecord,
    TaskStatus,
)
from taskgate.errors import IllegalTransition, StoreUnavailable
from taskgate.protocol import vocabulary as words
from taskgate.protocol.faults import call_ended
from taskgate.protocol.server_messages import is_declined
from taskgate.stores.base import TaskStore
from taskgate.telemetry.events import (
    Event,
    EventSink,
    InputRequestOpened,
    InputSettled,
    InputWaited,
    LateAnswerDropped,
    TaskExpired,
    TaskFaulted,
    TaskFinished,
    TaskPurged,
    TaskTransitioned,
)

RETRY_FIRST: Final = 0.1
RETRY_MOST: Final = 5.0
"""Seconds between attempts while the store fails, from the first to the longest pause."""
MAX_WAITING: Final = 64 * 1024 * 1024
"""Characters of all results that wait for the store."""
NOT_KEPT: Final = "The call ended, but its result could not be stored: the task store was not available"

_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {words.ELICITATION_CREATE: "elicitation", words.SAMPLING_CREATE: "sampling", words.ROOTS_LIST: "roots"}
)
"""Other methods concern tasks of the host's own; they are not questions for a person."""

Choose = Callable[[TaskRecord], TaskEvent | None]
"""Returns the event that shall happen to the record; None for no change.

It is called again with the newer record each time that a swap fails."""


class Hold(Protocol):
    """The leases of this process in a store that replicas share. `Leasing` implements it.

    The gateway has no `Hold` if it is the only process of its store.
    """

    def holds(self, record: TaskRecord) -> bool:
        """Return whether this process has the lease of an unfinished record.

        False if the record names it as the holder, but a heartbeat found that it has lost the task.
        """
        ...

    def on_stored(self, record: TaskRecord) -> None:
        """Update the copy from which the record is restored if the store loses it.

        Called with each record that was stored. It may be a head, unless it has just ended with a
        result.
        """
        ...

    def may_have_lapsed(self, since: float) -> bool:
        """Return whether a whole lease has passed since then, so that another process may have it."""
        ...

    async def restored(self, task: TaskId, found: TaskRecord | None) -> bool:
        """Restore a task of this process that the store, which has `found`, has lost.

        Called after each load. Returns True if it was restored, so that the caller must load it
        again. Raises StoreUnavailable.
        """
        ...

    def lose(self, task: TaskId) -> None:
        """Cancel the run of a task that another process has or had, and report that once."""
        ...


class OwnWrites(Protocol):
    """The run of a task: `revision` is that of its own last write."""

    revision: int


class Transitions:
    """The writer of task records. `live` says how long a task is kept from its end on, at least.

    `_waiting_size` are the characters of results that wait for the store.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        event_sink: EventSink,
        clock: Clock,
        hold: Hold | None = None,
        live: RuntimeConfig | None = None,
    ) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._live = live
        self._suspicions = SecurityAlerts(event_sink, clock)
        self._waiting_size = 0

    async def apply(
        self,
        record: TaskRecord,
        event: TaskEvent,
        now: datetime,
        *,
        run: OwnWrites | None = None,
        announce: Event | None = None,
    ) -> TaskRecord | None:
        """Let an event happen to a record that was read, and return the changed record.

        Returns None if the record in the store has changed. Raises IllegalTransition if its state
        does not allow the event, and StoreUnavailable: the change may have happened then. `run` is
        the run that makes the change. `announce` is emitted before the reports of the change.
        """
        live = self._live
        changed = advance(record, event, now, NO_TIME if live is None else live.current.policy.ttl_keep)
        if run is not None:
            # Before the write, because the change notification may arrive first.
            run.revision = changed.revision
        if not await self._store.swap(changed, expected=record.revision):
            return None
        if self._hold is not None:
            self._hold.on_stored(changed)
        if announce is not None:
            self._event_sink.emit(announce)
        report(self._event_sink, record, event, changed)
        return changed

    async def make(
        self, owner: OwnerKey, task: TaskId, choose: Choose, *, run: OwnWrites | None = None
    ) -> TaskRecord | None:
        """Apply the event that `choose` returns, and return the changed record.

        Returns None if nothing was changed. Then there is no record or no event, the record's state
        does not allow it, or another process has the task. Raises StoreUnavailable: the change may
        have happened then.
        """
        while True:
            now = self._clock.now()
            record = await self._store.load(owner, task, now=now)
            if self._hold is not None:
                if await self._hold.restored(task, record):
                    continue
                if record is not None and not self._hold.holds(record):
                    return None
            event = None if record is None else choose(record)
            if record is None or event is None:
                return None
            try:
                changed = await self.apply(record, event, now, run=run)
            except IllegalTransition:
                return None
            if changed is not None:
                return changed

    async def insist(self, owner: OwnerKey, task: TaskId, choose: Choose) -> TaskRecord | None:
        """Do the same as `make`, and retry while the store is unavailable.

        `choose` must accept that an earlier attempt has succeeded.
        """
        pause = RETRY_FIRST
        while True:
            try:
                return await self.make(owner, task, choose)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    async def settle(self, owner: OwnerKey, task: TaskId, event: TaskEvent, *, run: OwnWrites | None = None) -> bool:
        """Write the final state of a task, however long the store takes; `run` is its run, if it
        runs here.

        Returns True if it was written, or the task has expired. Returns False if the task had ended
        before, or belongs to another process: from here such a task can only be cancelled. It had
        also ended before if an attempt was stored although the store reported a failure.

        If the results that wait for the store are too large together, a failure is written in place
        of this one.
        """
        size, pause = -1, RETRY_FIRST
        try:
            while True:
                is_available = True
                try:
                    now = self._clock.now()
                    record = self._store.recall(owner, task, now=now)
                    if record is None:
                        record = await self._store.load(owner, task, now=now)
                    if self._hold is None or not await self._hold.restored(task, record):
                        if record is None:
                            # Expired: the sweeper reports it when it removes the record.
                            return True
                        if self._hold is not None and not _may_end(self._hold, record, event):
                            raise IllegalTransition("another process has the task")
                        if await self.apply(record, event, now, run=run) is not None:
                            return True
                    # Else the record was changed meanwhile, or was just restored: load it anew.
                except IllegalTransition:
                    self._event_sink.emit(LateAnswerDropped(owner.mount))
                    return False
                except StoreUnavailable:
                    is_available = False
                if size < 0:
                    # The first attempt. It is repeated at once, and from now on the result waits.
                    size = len(event.result) if isinstance(event, CallSucceeded) else 0
                    if self._waiting_size + size > MAX_WAITING:
                        event, size = call_ended(FaultReason.INTERNAL, NOT_KEPT, dispatched=True), 0
                    self._waiting_size += size
                elif not is_available:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, RETRY_MOST)
        finally:
            self._waiting_size -= max(size, 0)

    def unasked(self, owner: OwnerKey) -> None:
        """Report an answer to a question that was never asked, as a security event."""
        self._suspicions.raise_once("input_key_unknown", owner.context, owner.mount)


def report(event_sink: EventSink, before: TaskRecord, event: TaskEvent, after: TaskRecord) -> None:
    """Report a stored change: the new status, the fate of each question, the end."""
    if after.status is not before.status:
        event_sink.emit(TaskTransitioned(after, before.status))
        if before.waiting_since is not None:
            event_sink.emit(InputWaited(after, max(after.updated_at, before.waiting_since) - before.waiting_since))
    if after.inputs is not before.inputs:
        _report_inputs(event_sink, before, event, after)
    if after.status is not before.status and after.status.is_terminal:
        size = len(after.outcome.result) if isinstance(after.outcome, Succeeded) else None
        event_sink.emit(TaskFinished(after, after.status, _reason(event), after.updated_at - after.created_at, size))
        if isinstance(after.outcome, Faulted) and after.outcome.reason is not FaultReason.JSONRPC_ERROR:
            event_sink.emit(TaskFaulted(after, after.outcome.reason.value))


def report_purged(event_sink: EventSink, record: TaskRecord) -> None:
    """Report a purged task; one that had not ended was too old, and counts as failed."""
    if not record.status.is_terminal:
        if record.waiting_since is not None:
            event_sink.emit(InputWaited(record, record.expires_at - record.waiting_since))
        for asked in record.inputs:
            _report_settled(event_sink, record, asked, InputResolution.EXPIRED)
        event_sink.emit(TaskExpired(record, record.status.value if record.dispatched else "queued"))
        age = record.expires_at - record.created_at
        event_sink.emit(TaskFinished(record, TaskStatus.FAILED, "expired", age, None))
        event_sink.emit(TaskFaulted(record, FaultReason.EXPIRED.value))
    event_sink.emit(TaskPurged(record))


def _may_end(hold: Hold, record: TaskRecord, event: TaskEvent) -> bool:
    """Whether this process may try to end the task. An ended one is refused later, by `advance`."""
    return record.status.is_terminal or isinstance(event, CancelRequested) or hold.holds(record)


def _reason(event: TaskEvent) -> str:
    """The reason of the end, for its report."""
    match event:
        case CallSucceeded(tool_error=True):
            return "tool_error"
        case CallFaulted(reason=fault):
            return fault.value
        case CancelRequested(by=canceller):
            return canceller
    return "ok"


def _report_inputs(event_sink: EventSink, before: TaskRecord, event: TaskEvent, after: TaskRecord) -> None:
    if isinstance(event, InputRequested):
        kind = _KINDS.get(event.request.method)
        if kind is not None:
            event_sink.emit(InputRequestOpened(after, event.request.key, kind))
        return
    left = {asked.key for asked in after.inputs}
    for asked in before.inputs:
        if asked.key not in left:
            _report_settled(event_sink, after, asked, _resolution(event, asked))


def _resolution(event: TaskEvent, asked: InputRequest) -> InputResolution:
    match event:
        case InputAnswered(response=answer):
            return InputResolution.DECLINED if is_declined(asked.method, answer) else InputResolution.ANSWERED
        case InputWithdrawn(resolution=settled):
            return settled
    # The task ended, or its call is sent again: the server no longer waits.
    return InputResolution.SUPERSEDED


def _report_settled(event_sink: EventSink, record: TaskRecord, asked: InputRequest, settled: InputResolution) -> None:
    kind = _KINDS.get(asked.method)
    if kind is not None:
        event_sink.emit(InputSettled(record, asked.key, kind, settled.value))
