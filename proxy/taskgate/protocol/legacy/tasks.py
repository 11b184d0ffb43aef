"""Tasks of the gateway as hosts of 2025-11-25 see them (SEP-1686): task objects, results, lists.

`LegacyDownstream` makes its answers and notifications of them. The related-task key in `_meta`
names the task of a message.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from taskgate.domain.listing import ListedTask, TaskState
from taskgate.domain.record import RequestId, TaskId, TaskRecord, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.jsontext.edits import Edits, dump, insertion, splice
from taskgate.jsontext.large import LargeJson, MessageText, wrap
from taskgate.jsontext.spans import Member, Members, RawJson, may_have_key, members, skip_space
from taskgate.protocol.jsonrpc import milliseconds, result_text, timestamp, timestamp_of
from taskgate.protocol.legacy.results import TextAt, may_be_modern, outcome_edit
from taskgate.protocol.meta import edits_for
from taskgate.protocol.vocabulary import IMMEDIATE_RESPONSE, RELATED_TASK

MILLISECOND = timedelta(milliseconds=1)
INTERVAL_KEY = '"pollInterval":'
"""What stands before the poll interval of a Task."""


def task_object(record: TaskRecord | ListedTask, interval: int | None = None) -> RawJson:
    """A Task: the result of `tasks/get` and `tasks/cancel`, the params of the status notification,
    and an entry of a list.

    `interval` is the poll interval in milliseconds; None for that of the record.
    """
    message = "" if record.status_message is None else f',"statusMessage":{dump(record.status_message)}'
    if interval is None:
        interval = milliseconds(record.poll_interval)
    if isinstance(record, ListedTask):
        created, updated = timestamp_of(record.created), timestamp_of(record.updated)
    else:
        created = timestamp(record.created_at)
        # A new task has one object for both times.
        updated = created if record.updated_at is record.created_at else timestamp(record.updated_at)
    return (
        f'{{"taskId":"{record.id}","status":"{presented_status(record)._value_}",'
        f'"createdAt":"{created}","lastUpdatedAt":"{updated}",'
        f'"ttl":{milliseconds(record.ttl)},"pollInterval":{interval}{message}}}'
    )


def create_result(record: TaskRecord, response: str | None = None, interval: int | None = None) -> RawJson:
    """A CreateTaskResult, with the related-task key that examples leave out (AMB-3).

    `response` is a text that a host may give its model meanwhile (L-CREATE-4); None for none.
    `interval` as in `task_object`.
    """
    hint = "" if response is None else f',"{IMMEDIATE_RESPONSE}":{dump(response)}'
    related = f'"{RELATED_TASK}":{{"taskId":"{record.id}"}}'
    return f'{{"task":{task_object(record, interval)},"_meta":{{{related}{hint}}}}}'


def list_result(tasks: Sequence[ListedTask], cursor: str | None) -> RawJson:
    """A ListTasksResult; `nextCursor` is there exactly if there is another page (L-LIST-1)."""
    following = "" if cursor is None else f',"nextCursor":{dump(cursor)}'
    return f'{{"tasks":[{",".join(map(_listed_object, tasks))}]{following}}}'


def presented_status(record: TaskRecord | ListedTask | TaskState) -> TaskStatus:
    """The status in this era: a task with a tool's error is a failed task (L-STAT-3)."""
    return TaskStatus.FAILED if record.tool_error else record.status


def related_result(id: RequestId, result: RawJson | LargeJson, task: TaskId) -> MessageText:
    """The response to `tasks/result` with the stored result of the task's call.

    It has the related-task key. A result of a modern server is converted to this era. A result of a
    legacy server without `_meta` is not walked, as it may be large.
    """
    related = dump({"taskId": task})
    if isinstance(result, LargeJson):
        edits = _related_edits(result.members, 0, lambda at: result.body[at.start : at.end].decode(), related)
        return wrap(result_text(id, "")[:-1], result.spliced(edits), "}")
    if not may_have_key(result, "_meta") and not may_be_modern(result) and result[:1] == "{":
        edits = [insertion(result, "_meta", f"{{{dump(RELATED_TASK)}:{related}}}")]
    else:
        found, start = members(result, {"_meta": {}}), skip_space(result, 0)
        edits = _related_edits(found, start, lambda at: result[at.start : at.end], related)
    return result_text(id, splice(result, edits))


def plain_result(id: RequestId, result: RawJson | LargeJson, host: Revision) -> MessageText:
    """The response to a call with its stored result, for a host of that revision.

    One of a modern server is converted; all other results stay as they are.
    """
    if isinstance(result, LargeJson):
        large = result
        change = outcome_edit(large.members, lambda at: large.body[at.start : at.end].decode(), host)
        return wrap(result_text(id, "")[:-1], large.spliced(edits_for(large.members, 0, change)), "}")
    if not may_be_modern(result):
        return result_text(id, result)
    text, found = result, members(result, {"_meta": {}})
    change = outcome_edit(found, lambda at: text[at.start : at.end], host)
    return result_text(id, splice(text, edits_for(found, skip_space(text, 0), change)))


def _related_edits(found: Members, start: int, text_at: TextAt, related: RawJson) -> Edits:
    """The edits that convert a result and put the related-task key, with the value `related`."""
    return edits_for(found, start, outcome_edit(found, text_at)._replace(meta_put={RELATED_TASK: related}))


def with_related_task(text: RawJson, task: TaskId) -> RawJson:
    """An object with the related-task key in its `_meta`, in place of one that a server put there
    (T23).
    """
    related = dump({"taskId": task})
    found = members(text, {"_meta": {}})
    meta = found.get("_meta")
    if meta is None:
        return splice(text, [insertion(text, "_meta", f"{{{dump(RELATED_TASK)}:{related}}}")])
    if meta.members is None:
        return splice(text, [(meta.start, meta.end, f"{{{dump(RELATED_TASK)}:{related}}}")])
    return splice(text, [_related_edit(text, meta, related)])


def _related_edit(text: RawJson, meta: Member, related: RawJson) -> tuple[int, int, str]:
    old = (meta.members or {}).get(RELATED_TASK)
    if old is not None:
        return old.start, old.end, related
    start, end, new = insertion(text[meta.start : meta.end], RELATED_TASK, related)
    return meta.start + start, meta.start + end, new


_listed_object = lru_cache(maxsize=4096)(task_object)
"""A page has many tasks, and most are on the page that is asked for next."""
