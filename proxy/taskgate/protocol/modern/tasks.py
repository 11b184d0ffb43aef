"""Tasks of the gateway as hosts of 2026-07-28 see them (SEP-2663): results and notifications.

`ModernDownstream` makes its messages of them. In this era a task is completed even if its result is
a tool's error (T-1), and no result has the related-task key (T-7). `info` is the gateway's
serverInfo, which every result has.
"""

from functools import lru_cache
from typing import Any

from taskgate.domain.record import Faulted, InputRequest, RequestId, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import Peer
from taskgate.jsontext.edits import dump
from taskgate.jsontext.large import JsonChunks, LargeJson, MessageText, wrap
from taskgate.jsontext.spans import RawJson, members
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.jsonrpc import milliseconds, notification_text, timestamp
from taskgate.protocol.messages import value_of
from taskgate.protocol.modern.capabilities import DECIDING_PARAMS, missing
from taskgate.protocol.modern.results import convert_error, convert_large_error, nested_large_result, nested_result
from taskgate.protocol.modern.rounds import ALLOWED_QUESTIONS, input_request, input_requests
from taskgate.protocol.vocabulary import NOTE_TASKS, SERVER_INFO, SUBSCRIPTION_ID

INTERVAL_KEY = '"pollIntervalMs":'
"""What stands before the poll interval of a Task."""


def create_result(record: TaskRecord, info: RawJson, interval: int | None = None) -> RawJson:
    """A CreateTaskResult: flat, and without the outcome even if there is one (M-CREATE-2).

    `interval` as in `get_result`.
    """
    return f'{{"resultType":"task",{_task_members(record, interval)},{_meta(SERVER_INFO, info)}}}'


def get_result(
    record: TaskRecord, info: RawJson, *, names_server: bool = True, interval: int | None = None
) -> MessageText:
    """A GetTaskResult (M-GET-1): the task with its result, its error or its open inputs.

    A terminal record must be loaded with its bodies. The nested result is that of the task's call;
    with `names_server` it keeps the serverInfo of its server. `interval` is the poll interval in milliseconds; None
    for that of the record.
    """
    detail, meta = _detail(record, names_server=names_server), _meta(SERVER_INFO, info)
    task = _task_members(record, interval)
    if isinstance(detail, JsonChunks):
        return detail.wrapped(f'{{"resultType":"complete",{task}', f",{meta}}}")
    return f'{{"resultType":"complete",{task}{detail},{meta}}}'


def acknowledgement(info: RawJson) -> RawJson:
    """The result of `tasks/update` and `tasks/cancel`, without the task (M-UPD-1, M-CANCEL-1)."""
    return f'{{"resultType":"complete",{_meta(SERVER_INFO, info)}}}'


def task_notification(
    record: TaskRecord, subscription: RequestId, *, names_server: bool = True, interval: int | None = None
) -> MessageText:
    """The notification with the content of `tasks/get` (M-NOTIF-3, M-NOTIF-4).

    `subscription` is the id of the listen request whose stream it is for. `interval` as in
    `get_result`.
    """
    tail = f",{_meta(SUBSCRIPTION_ID, dump(subscription))}}}"
    detail = _detail(record, names_server=names_server)
    return wrap(f"{notification_text(NOTE_TASKS, '')[:-1]}{{{_task_members(record, interval)}", detail, f"{tail}}}")


def presented_status(record: TaskRecord) -> TaskStatus:
    """The status in this era: without open inputs, nothing is required of the host."""
    if record.status is TaskStatus.INPUT_REQUIRED and not _open_inputs(record):
        return TaskStatus.WORKING
    return record.status


def open_inputs(record: TaskRecord) -> dict[str, InputRequest]:
    """The input requests that a modern host sees and may answer, by key (M-GET-1).

    Not open is an input that a host already answered with the handle of a task of its own.
    """
    return {request.key: request for request in _open_inputs(record)}


def undeclared(record: TaskRecord, host: Peer | None) -> dict[str, Any]:
    """The capabilities that a host lacks for the open inputs of a task (M-MRTR-2); empty if it lacks none."""
    lacking: dict[str, Any] = {}
    for request in _open_inputs(record):
        found = members(request.params or "{}")
        deciding = {name: value_of(found, name) for name in DECIDING_PARAMS if name in found}
        lacking = merge_capabilities(lacking, missing(host, request.method, deciding))
    return lacking


def _open_inputs(record: TaskRecord) -> list[InputRequest]:
    return [request for request in record.inputs if request.deferred_to is None and request.method in ALLOWED_QUESTIONS]


def _task_members(record: TaskRecord, interval: int | None = None) -> str:
    """The members of a Task, without braces."""
    message = "" if record.status_message is None else f',"statusMessage":{dump(record.status_message)}'
    status = presented_status(record) if record.inputs else record.status
    if interval is None:
        interval = milliseconds(record.poll_interval)
    created = timestamp(record.created_at)
    # A new task has one object for both times.
    updated = created if record.updated_at is record.created_at else timestamp(record.updated_at)
    return (
        f'"taskId":"{record.id}","status":"{status._value_}",'
        f'"createdAt":"{created}","lastUpdatedAt":"{updated}",'
        f'"ttlMs":{milliseconds(record.ttl)},"pollIntervalMs":{interval}{message}'
    )


def _detail(record: TaskRecord, *, names_server: bool) -> MessageText:
    """The members that a state adds to a Task, each after a comma; "" for none."""
    match record.outcome:
        case Succeeded(result=LargeJson() as result):
            return wrap(',"result":', nested_large_result(result, names_server=names_server), "")
        case Faulted(error=LargeJson() as error):
            return wrap(',"error":', convert_large_error(error), "")
        case Succeeded(result=str(result)):
            return f',"result":{nested_result(result, names_server=names_server)}'
        case Faulted(error=str(error)):
            return f',"error":{convert_error(error)}'
    assert record.status not in (TaskStatus.COMPLETED, TaskStatus.FAILED), "the record was read without its bodies"
    if not record.inputs:
        return ""
    requests = {request.key: input_request(request.method, request.params) for request in _open_inputs(record)}
    return f',"inputRequests":{input_requests(requests)}' if requests else ""


@lru_cache(maxsize=64)
def _meta(key: str, value: RawJson) -> str:
    return f'"_meta":{{{dump(key)}:{value}}}'
