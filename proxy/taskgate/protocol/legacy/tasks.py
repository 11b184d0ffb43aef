"""The shapes of tasks in 2025-11-25 (SEP-1686). Only shapes; who may see them is decided elsewhere."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from taskgate.domain.listing import ListedTask, TaskState
from taskgate.domain.record import RequestId, TaskId, TaskRecord, TaskStatus
from taskgate.jsontext.edits import Edits, dump, insertion, may_have_key, splice
from taskgate.jsontext.large import LargeJson, MessageText, wrap
from taskgate.jsontext.spans import Member, Members, RawJson, members, skip_space
from taskgate.protocol.jsonrpc import result_text
from taskgate.protocol.legacy.results import TextAt, fitting_outcome, may_not_fit
from taskgate.protocol.meta import edits_for
from taskgate.protocol.vocabulary import IMMEDIATE_RESPONSE, RELATED_TASK

MILLISECOND = timedelta(milliseconds=1)


def task_object(record: TaskRecord) -> RawJson:
    """A Task: what `tasks/get`, `tasks/cancel` and the status notification hold, and CreateTaskResult nests."""
    return dump(_fields(record))


def create_result(record: TaskRecord, response: str | None = None) -> RawJson:
    """A CreateTaskResult; the related-task key is there although examples leave it out (AMB-3).

    `response` is what a host may give its model as the tool's result for now (L-CREATE-4); None leaves it out.
    """
    meta: dict[str, Any] = {RELATED_TASK: {"taskId": record.id}}
    if response is not None:
        meta[IMMEDIATE_RESPONSE] = response
    return dump({"task": _fields(record), "_meta": meta})


def list_result(tasks: Sequence[ListedTask], cursor: str | None) -> RawJson:
    """A ListTasksResult; `nextCursor` is there whenever there is more (L-LIST-1)."""
    following = "" if cursor is None else f',"nextCursor":{dump(cursor)}'
    return f'{{"tasks":[{",".join(map(_listed, tasks))}]{following}}}'


def presented_status(record: TaskRecord | ListedTask | TaskState) -> TaskStatus:
    """The status as this era has it: a tool's error is a failed task (L-STAT-3)."""
    return TaskStatus.FAILED if record.tool_error else record.status


def related_result(id: RequestId, result: RawJson | LargeJson, task: TaskId) -> MessageText:
    """The response with such a result as this era has it, which names its task; one without `_meta` is not read."""
    related = dump({"taskId": task})
    if isinstance(result, LargeJson):
        edits = _related_edits(result.members, 0, lambda at: result.body[at.start : at.end].decode(), related)
        return wrap(result_text(id, "")[:-1], result.spliced(edits), "}")
    if not may_have_key(result, "_meta") and not may_not_fit(result) and result[:1] == "{":
        edits = [insertion(result, "_meta", f"{{{dump(RELATED_TASK)}:{related}}}")]
    else:
        found, start = members(result, {"_meta": {}}), skip_space(result, 0)
        edits = _related_edits(found, start, lambda at: result[at.start : at.end], related)
    return result_text(id, splice(result, edits))


def _related_edits(found: Members, start: int, text_at: TextAt, related: RawJson) -> Edits:
    """The edits of a result that make it one of this era, and of that task."""
    return edits_for(found, start, fitting_outcome(found, text_at)._replace(meta_put={RELATED_TASK: related}))


def with_related_task(result: RawJson, task: TaskId) -> RawJson:
    """A result with the related-task key in its `_meta`, replacing what a server may have put there (T23)."""
    related = dump({"taskId": task})
    found = members(result, {"_meta": {}})
    meta = found.get("_meta")
    if meta is None:
        return splice(result, [insertion(result, "_meta", f"{{{dump(RELATED_TASK)}:{related}}}")])
    if meta.members is None:
        return splice(result, [(meta.start, meta.end, f"{{{dump(RELATED_TASK)}:{related}}}")])
    return splice(result, [_related_edit(result, meta, related)])


def _related_edit(result: RawJson, meta: Member, related: RawJson) -> tuple[int, int, str]:
    old = (meta.members or {}).get(RELATED_TASK)
    if old is not None:
        return old.start, old.end, related
    start, end, text = insertion(result[meta.start : meta.end], RELATED_TASK, related)
    return meta.start + start, meta.start + end, text


def _fields(record: TaskRecord | ListedTask) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "taskId": record.id,
        "status": presented_status(record).value,
        "createdAt": _timestamp(record.created_at),
        "lastUpdatedAt": _timestamp(record.updated_at),
        "ttl": record.ttl // MILLISECOND,
        "pollInterval": record.poll_interval // MILLISECOND,
    }
    if record.status_message is not None:
        fields["statusMessage"] = record.status_message
    return fields


@lru_cache(maxsize=4096)
def _listed(task: ListedTask) -> RawJson:
    """What `task_object` writes, put together at once: a page has many of them."""
    message = "" if task.status_message is None else f',"statusMessage":{dump(task.status_message)}'
    return (
        f'{{"taskId":{dump(task.id)},"status":"{presented_status(task).value}",'
        f'"createdAt":"{_written(task.created_at)}","lastUpdatedAt":"{_written(task.updated_at)}",'
        f'"ttl":{task.ttl // MILLISECOND},"pollInterval":{task.poll_interval // MILLISECOND}{message}}}'
    )


def _written(moment: datetime) -> str:
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


_timestamp = lru_cache(maxsize=4096)(_written)
