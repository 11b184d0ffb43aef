"""The shapes of tasks in 2026-07-28 (SEP-2663). Only shapes; who may see them is decided elsewhere.

A tool's error is a completed task here (T-1), and nothing names a related task (T-7). `info` is what every result
tells as serverInfo.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from taskgate.domain.record import Faulted, InputRequest, RequestId, Succeeded, TaskRecord, TaskStatus
from taskgate.jsontext.edits import dump
from taskgate.jsontext.large import JsonChunks, LargeJson, MessageText, wrap
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.jsonrpc import notification_text
from taskgate.protocol.modern.mrtr import ASKED, input_request, input_requests
from taskgate.protocol.modern.results import (
    complete_within,
    large_complete_within,
    large_modern_error,
    modern_error,
)
from taskgate.protocol.vocabulary import NOTE_TASKS, SERVER_INFO, SUBSCRIPTION_ID

_MILLISECOND = timedelta(milliseconds=1)


def create_result(record: TaskRecord, info: RawJson) -> RawJson:
    """A CreateTaskResult: flat, and without what came of the task, even where something did (M-CREATE-2)."""
    return f'{{"resultType":"task",{_task(record)},{_meta(SERVER_INFO, info)}}}'


def get_result(record: TaskRecord, info: RawJson, *, names_server: bool = True) -> MessageText:
    """A GetTaskResult, with all that its state has to show (M-GET-1); a terminal record has its bodies.

    `names_server` tells whether its result may say which server it is of.
    """
    shown, meta = _shown(record, names_server=names_server), _meta(SERVER_INFO, info)
    if isinstance(shown, JsonChunks):
        return shown.wrapped(f'{{"resultType":"complete",{_task(record)}', f",{meta}}}")
    return f'{{"resultType":"complete",{_task(record)}{shown},{meta}}}'


def acknowledgement(info: RawJson) -> RawJson:
    """The result of `tasks/update` and of `tasks/cancel`: nothing of the task (M-UPD-1, M-CANCEL-1)."""
    return f'{{"resultType":"complete",{_meta(SERVER_INFO, info)}}}'


def task_notification(record: TaskRecord, subscription: RequestId, *, names_server: bool = True) -> MessageText:
    """The notification of what `tasks/get` would show, on the stream of that listen request (M-NOTIF-3, M-NOTIF-4)."""
    tail = f",{_meta(SUBSCRIPTION_ID, dump(subscription))}}}"
    shown = _shown(record, names_server=names_server)
    return wrap(f"{notification_text(NOTE_TASKS, '')[:-1]}{{{_task(record)}", shown, f"{tail}}}")


def presented_status(record: TaskRecord) -> TaskStatus:
    """The status as this era has it: where every input is being seen to by a task of its host, nothing is required."""
    if record.status is TaskStatus.INPUT_REQUIRED and not _outstanding(record):
        return TaskStatus.WORKING
    return record.status


def outstanding(record: TaskRecord) -> dict[str, InputRequest]:
    """The inputs that a host of this era is shown, and may answer, by their keys (M-GET-1)."""
    return {request.key: request for request in _outstanding(record)}


def _outstanding(record: TaskRecord) -> list[InputRequest]:
    return [request for request in record.inputs if request.deferred_to is None and request.method in ASKED]


def _task(record: TaskRecord) -> str:
    """The members of a Task, without the braces."""
    message = "" if record.status_message is None else f',"statusMessage":{dump(record.status_message)}'
    return (
        f'"taskId":{dump(record.id)},"status":"{presented_status(record).value}",'
        f"{_times(record.created_at, record.updated_at, record.ttl)}"
        f',"pollIntervalMs":{record.poll_interval // _MILLISECOND}{message}'
    )


def _shown(record: TaskRecord, *, names_server: bool) -> MessageText:
    """The members that a state adds to a Task, each after its comma; "" where it adds none."""
    match record.outcome:
        case Succeeded(result=LargeJson() as result):
            return wrap(',"result":', large_complete_within(result, names_server=names_server), "")
        case Faulted(error=LargeJson() as error):
            return wrap(',"error":', large_modern_error(error), "")
        case Succeeded(result=str(result)):
            return f',"result":{complete_within(result, names_server=names_server)}'
        case Faulted(error=str(error)):
            return f',"error":{modern_error(error)}'
    assert record.status not in (TaskStatus.COMPLETED, TaskStatus.FAILED), "the record was read without its bodies"
    if not record.inputs:
        return ""
    asked = {request.key: input_request(request.method, request.params) for request in _outstanding(record)}
    return f',"inputRequests":{input_requests(asked)}' if asked else ""


@lru_cache(maxsize=64)
def _meta(key: str, value: RawJson) -> str:
    return f'"_meta":{{{dump(key)}:{value}}}'


@lru_cache(maxsize=4096)
def _times(created_at: datetime, updated_at: datetime, ttl: timedelta) -> str:
    # The poll interval is left out: it is another one in each answer.
    times = f'"createdAt":"{_timestamp(created_at)}","lastUpdatedAt":"{_timestamp(updated_at)}"'
    return f'{times},"ttlMs":{ttl // _MILLISECOND}'


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
