"""Tasks that servers of 2025-11-25 make of calls: `LegacyServerTasks`.

The outcome of a task is the response to its call. It stays to the byte except for the key that
relates it to the task.
"""

from datetime import timedelta
from typing import Any, Final

from taskgate.domain.record import RequestId, TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Members, skip_space
from taskgate.protocol import vocabulary as names
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import parse, request_text, result_text
from taskgate.protocol.legacy.results import WITHOUT_TASK
from taskgate.protocol.messages import Notification, Params, Response, value_of
from taskgate.protocol.meta import edits_for
from taskgate.protocol.server_messages import ServerTask, status_text

MAX_ID: Final = 4096
"""Longest task id in bytes: it is sent with each poll, and stored with the record."""

MAX_DEPTH: Final = 256
"""Nesting depth of an outcome; it is part of a message with the same limit."""

MAX_TTL: Final = timedelta(milliseconds=2**31 - 1)
"""Longest TTL: released servers set a timer for it, which ends at once for anything longer."""

_DISTINCT_ID: Final = 8
"""Characters of an id from which on it does not occur in a text by chance."""

_STATES: Final = frozenset(TaskStatus)
_TASK_MEMBERS: Final = ("taskId", "status", "statusMessage", "lastUpdatedAt", "pollInterval")
_UNKNOWN: Final = frozenset({names.INVALID_PARAMS, names.METHOD_NOT_FOUND})
_RESULT_MEMBERS: Final = frozenset({"content", "structuredContent", "isError"})
_MILLISECOND: Final = timedelta(milliseconds=1)


class LegacyServerTasks:
    """The implementation of LegacyTaskDialect."""

    def is_supported(self, server: Peer) -> bool:
        found: Any = server.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            found = found.get(name) if isinstance(found, dict) else None
        return server.revision.has_tasks and isinstance(found, dict)

    def with_task(self, params: Params, ttl: timedelta) -> Params:
        head = params.head
        at = head.find("{") + 1
        if at == 0:
            return params
        first = skip_space(head, at)
        comma = "" if head[first : first + 1] == "}" else ","
        member = f'"task":{{"ttl":{max(1, min(ttl, MAX_TTL) // _MILLISECOND)}}}{comma}'
        return params._replace(head=head[:at] + member + head[at:])

    def request(self, id: RequestId, method: str, task: str) -> str:
        # Without the related-task key: servers that find one answer on the stream of the task
        # (L-GET-3).
        return request_text(id, method, dump({"taskId": task}))

    def read_created(self, response: Response) -> ServerTask | None:
        found = {} if response.result is None else response.result.members or {}
        task = value_of(found, "task") if "content" not in found else None
        if not isinstance(task, dict):
            return None
        # An unknown state is no failure yet: the next poll shows it, and only a known task can be
        # cancelled.
        return _read_task(task if _state(task.get("status")) else {**task, "status": TaskStatus.WORKING})

    def read_state(self, task: str, response: Response) -> ServerTask | None:
        if response.error is not None:
            if response.error_code in _UNKNOWN:
                return None
            raise _unknown_outcome()
        assert response.result is not None, "a response without an error has a result"
        now = _read_task(_task_values(response.result.members or {}))
        if now.id != task:
            raise protocol_violation("it returned another task than the one that was requested")
        return now

    def read_outcome(self, task: ServerTask, response: Response) -> Response | None:
        found = None if response.result is None else response.result.members
        if found is not None and not _RESULT_MEMBERS.isdisjoint(found):
            return _without_task(response)
        is_about_task = response.error is not None and _names_task(task.id, response)
        match task.status:
            case TaskStatus.CANCELLED:
                raise _failed(UpstreamReason.CLOSED, "The server cancelled the call")
            case TaskStatus.FAILED if response.error is None or is_about_task:
                return _tool_error(response.id, task.message)
            case TaskStatus.FAILED:
                return response
            case TaskStatus.COMPLETED if response.error is not None:
                if response.error_code in _UNKNOWN:
                    raise _failed(UpstreamReason.CALL_LOST, "The server completed the call and did not keep its result")
                raise _unknown_outcome()
            case TaskStatus.COMPLETED if found is not None and found.keys() <= {"_meta", "task"}:
                # Released SDKs answer like this for a task that was completed without a result.
                raise protocol_violation("its task is completed and has no result")
            case TaskStatus.COMPLETED:
                return _without_task(response)
        return None


def read_status(notification: Notification) -> ServerTask | None:
    """The task in a status notification; None if it has no readable one."""
    try:
        return _read_task(_task_values(notification.params))
    except UpstreamFailed:
        return None


def related_task(meta: Members) -> str | None:
    """The id of the task that a message with this `_meta` belongs to; None if it belongs to
    none.
    """
    related = value_of(meta, names.RELATED_TASK)
    id_ = related.get("taskId") if isinstance(related, dict) else None
    return id_ if isinstance(id_, str) else None


def _task_values(found: Members) -> dict[str, Any]:
    return {name: value_of(found, name) for name in _TASK_MEMBERS}


def _read_task(task: dict[str, Any]) -> ServerTask:
    id_, status = task.get("taskId"), _state(task.get("status"))
    if not isinstance(id_, str) or not _is_id(id_):
        raise protocol_violation("its task has no valid taskId")
    if status is None:
        raise protocol_violation("its task has an unknown status")
    message, updated = task.get("statusMessage"), task.get("lastUpdatedAt")
    return ServerTask(
        id=id_,
        status=status,
        message=status_text(message) if isinstance(message, str) and message else None,
        updated=updated if isinstance(updated, str) else None,
        interval=_seconds(task.get("pollInterval")),
    )


def _state(status: Any) -> TaskStatus | None:
    return TaskStatus(status) if isinstance(status, str) and status in _STATES else None


def _is_id(value: str) -> bool:
    try:
        return 0 < len(value.encode()) <= MAX_ID
    except UnicodeEncodeError:
        return False


def _seconds(interval: Any) -> float | None:
    """Milliseconds as seconds. Fractions count, too: released servers send what their authors
    wrote.
    """
    is_span = isinstance(interval, int | float) and not isinstance(interval, bool) and 0 < interval < 2**53
    return interval / 1000 if is_span else None


def _names_task(task: str, response: Response) -> bool:
    """Whether an error is about the task, which hosts do not know, rather than about the call."""
    assert response.error is not None, "only errors are passed here"
    return len(task) >= _DISTINCT_ID and task in response.text[response.error.start : response.error.end]


def _without_task(response: Response) -> Response:
    """The response without the related-task key, and without a `_meta` that had only that (T22)."""
    assert response.result is not None, "only results are passed here"
    found = response.result.members
    if found is None:
        raise protocol_violation("the result of its task is not an object")
    edits = edits_for(found, response.result.start, WITHOUT_TASK)
    return _parse_own(splice(response.text, edits)) if edits else response


def _tool_error(id: RequestId, message: str | None) -> Response:
    """The response for a failed task without a result: a plain call would have returned a tool
    error.
    """
    text = message or "The server's task failed"
    return _parse_own(result_text(id, dump({"content": [{"type": "text", "text": text}], "isError": True})))


def _parse_own(text: str) -> Response:
    response = parse(text.encode(), max_depth=MAX_DEPTH)
    assert isinstance(response, Response), "the text is a response"
    return response


def _unknown_outcome() -> UpstreamFailed:
    return _failed(UpstreamReason.REFUSED, "The server does not return the outcome of the call")


def _failed(reason: UpstreamReason, text: str) -> UpstreamFailed:
    return UpstreamFailed(reason, text, dispatched=True)
