"""The events for a changed task record: `report` and `report_unanswered`.

Every module that has stored a change calls `report` once, with the record before and after. It
emits events for metrics and logs: the new status, and the fate of each question. A change that was
not stored is not reported. Events for the creation and the end of a task are emitted where those
happen.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from taskgate.domain.events import InputAnswered, InputRequested, InputResolution, InputWithdrawn, TaskEvent
from taskgate.domain.record import InputRequest, TaskRecord
from taskgate.protocol import vocabulary as words
from taskgate.protocol.server_messages import is_declined
from taskgate.telemetry.events import EventSink, InputRequestOpened, InputSettled, InputWaited, TaskTransitioned

_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {words.ELICITATION_CREATE: "elicitation", words.SAMPLING_CREATE: "sampling", words.ROOTS_LIST: "roots"}
)
"""Other methods concern tasks of the host's own; they are not questions for a person."""


def report(event_sink: EventSink, before: TaskRecord, event: TaskEvent, after: TaskRecord) -> None:
    """Emit the events for a stored change."""
    if after.status is not before.status:
        event_sink.emit(TaskTransitioned(after, before.status))
        if before.waiting_since is not None:
            event_sink.emit(InputWaited(after, max(after.updated_at, before.waiting_since) - before.waiting_since))
    if after.inputs is not before.inputs:
        _report_inputs(event_sink, before, event, after)


def report_unanswered(event_sink: EventSink, record: TaskRecord) -> None:
    """Emit the events for a task that expired with open questions."""
    if record.waiting_since is not None:
        event_sink.emit(InputWaited(record, record.expires_at - record.waiting_since))
    for asked in record.inputs:
        _settled(event_sink, record, asked, InputResolution.EXPIRED)


def _report_inputs(event_sink: EventSink, before: TaskRecord, event: TaskEvent, after: TaskRecord) -> None:
    if isinstance(event, InputRequested):
        kind = _KINDS.get(event.request.method)
        if kind is not None:
            event_sink.emit(InputRequestOpened(after, event.request.key, kind))
        return
    left = {asked.key for asked in after.inputs}
    for asked in before.inputs:
        if asked.key not in left:
            _settled(event_sink, after, asked, _how(event, asked))


def _how(event: TaskEvent, asked: InputRequest) -> InputResolution:
    match event:
        case InputAnswered(response=answer):
            return InputResolution.DECLINED if is_declined(asked.method, answer) else InputResolution.ANSWERED
        case InputWithdrawn(resolution=settled):
            return settled
    # The task ended, or its call is sent again: the server no longer waits.
    return InputResolution.SUPERSEDED


def _settled(event_sink: EventSink, record: TaskRecord, asked: InputRequest, settled: InputResolution) -> None:
    kind = _KINDS.get(asked.method)
    if kind is not None:
        event_sink.emit(InputSettled(record, asked.key, kind, settled.value))
