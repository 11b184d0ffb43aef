"""Tasks that servers of 2025-11-25 make of calls: what they are asked, and what their answers show. Pure.

Only shapes: when a task is looked at is decided elsewhere. What came of one is its
call's own answer, to the byte but for the key that ties it to the task.
"""

from datetime import timedelta
from typing import Any, Final

from taskgate.domain.record import RequestId, TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Members, skip_space
from taskgate.protocol import vocabulary as words
from taskgate.protocol.jsonrpc import parse, request_text, result_text
from taskgate.protocol.legacy.results import NO_TASK
from taskgate.protocol.messages import Notification, Params, Response, value_of
from taskgate.protocol.meta import edits_for
from taskgate.protocol.server_messages import ServerTask, status_text

MAX_ID: Final = 4096
"""Bytes of a task's id, which may say all of it: it is sent again and again, and kept with the record."""

MAX_DEPTH: Final = 256
"""As deep as the message was that the outcome is cut out of."""

LONGEST_TTL: Final = timedelta(milliseconds=2**31 - 1)
"""Released servers set a timer for it, which for anything longer ends at once."""

_TELLING_ID: Final = 8
"""Letters from which on an id does not stand in a text by chance."""

_STATES: Final = frozenset(TaskStatus)
_SAID_OF_A_TASK: Final = ("taskId", "status", "statusMessage", "lastUpdatedAt", "pollInterval")
_UNKNOWN: Final = frozenset({words.INVALID_PARAMS, words.METHOD_NOT_FOUND})
_OF_A_RESULT: Final = frozenset({"content", "structuredContent", "isError"})
_MILLISECOND: Final = timedelta(milliseconds=1)


class NativeTasks:
    """The translator for such servers; see LegacyTaskDialect."""

    def is_supported(self, server: Peer) -> bool:
        said: Any = server.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            said = said.get(name) if isinstance(said, dict) else None
        return server.revision.has_tasks and isinstance(said, dict)

    def with_task(self, params: Params, ttl: timedelta) -> Params:
        head = params.head
        at = head.find("{") + 1
        if at == 0:
            return params
        first = skip_space(head, at)
        more = "" if head[first : first + 1] == "}" else ","
        wish = f'"task":{{"ttl":{max(1, min(ttl, LONGEST_TTL) // _MILLISECOND)}}}{more}'
        return params._replace(head=head[:at] + wish + head[at:])

    def request(self, id: RequestId, method: str, task: str) -> str:
        # No related-task key: servers that find one answer on the stream of the task (L-GET-3).
        return request_text(id, method, dump({"taskId": task}))

    def read_created(self, response: Response) -> ServerTask | None:
        found = {} if response.result is None else response.result.members or {}
        task = value_of(found, "task") if "content" not in found else None
        if not isinstance(task, dict):
            return None
        # What state it is in is asked soon; who is not followed now could not be ended.
        return _task(task if _state(task.get("status")) else {**task, "status": TaskStatus.WORKING})

    def read_state(self, task: str, response: Response) -> ServerTask | None:
        if response.error is not None:
            if response.error_code in _UNKNOWN:
                return None
            raise _untold()
        assert response.result is not None, "a response without an error has a result"
        now = _task(_shown(response.result.members or {}))
        if now.id != task:
            raise _broke("it shows another task than the one it was asked for")
        return now

    def read_outcome(self, task: ServerTask, response: Response) -> Response | None:
        found = None if response.result is None else response.result.members
        if found is not None and not _OF_A_RESULT.isdisjoint(found):
            return _own(response)
        is_about_task = response.error is not None and _is_about(task.id, response)
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
                raise _untold()
            case TaskStatus.COMPLETED if found is not None and found.keys() <= {"_meta", "task"}:
                # Released SDKs answer so for a task that was told to be complete, and given no result.
                raise _broke("its task is complete and shows no result")
            case TaskStatus.COMPLETED:
                return _own(response)
        return None


def told(notification: Notification) -> ServerTask | None:
    """The task that a notification shows; None where it shows none."""
    try:
        return _task(_shown(notification.params))
    except UpstreamFailed:
        return None


def related(meta: Members) -> str | None:
    """The task that a message with this `_meta` belongs to; None where it belongs to none."""
    named = value_of(meta, words.RELATED_TASK)
    id_ = named.get("taskId") if isinstance(named, dict) else None
    return id_ if isinstance(id_, str) else None


def _shown(found: Members) -> dict[str, Any]:
    return {name: value_of(found, name) for name in _SAID_OF_A_TASK}


def _task(said: dict[str, Any]) -> ServerTask:
    id_, status = said.get("taskId"), _state(said.get("status"))
    if not isinstance(id_, str) or not _is_id(id_):
        raise _broke("its task has no id that could be asked for")
    if status is None:
        raise _broke("its task is in no state that there is")
    message, updated = said.get("statusMessage"), said.get("lastUpdatedAt")
    return ServerTask(
        id=id_,
        status=status,
        message=status_text(message) if isinstance(message, str) and message else None,
        updated=updated if isinstance(updated, str) else None,
        interval=_seconds(said.get("pollInterval")),
    )


def _state(status: Any) -> TaskStatus | None:
    return TaskStatus(status) if isinstance(status, str) and status in _STATES else None


def _is_id(value: str) -> bool:
    try:
        return 0 < len(value.encode()) <= MAX_ID
    except UnicodeEncodeError:
        return False


def _seconds(interval: Any) -> float | None:
    """Milliseconds as seconds; fractions are read too, for released servers send what their authors wrote."""
    is_span = isinstance(interval, int | float) and not isinstance(interval, bool) and 0 < interval < 2**53
    return interval / 1000 if is_span else None


def _is_about(task: str, response: Response) -> bool:
    """Whether an error speaks of the task, of which no host knows, rather than of the call."""
    assert response.error is not None, "it is asked of errors"
    return len(task) >= _TELLING_ID and task in response.text[response.error.start : response.error.end]


def _own(response: Response) -> Response:
    """The answer without the related-task key, and without a `_meta` that was there for that alone (T25)."""
    assert response.result is not None, "it is no error"
    found = response.result.members
    if found is None:
        raise _broke("what came of its task is no result")
    edits = edits_for(found, response.result.start, NO_TASK)
    return _read(splice(response.text, edits)) if edits else response


def _tool_error(id: RequestId, message: str | None) -> Response:
    """What stands for the result of a task that failed and kept none: a plain call would have told the tool's error."""
    text = message or "The server's task failed"
    return _read(result_text(id, dump({"content": [{"type": "text", "text": text}], "isError": True})))


def _read(text: str) -> Response:
    response = parse(text.encode(), max_depth=MAX_DEPTH)
    assert isinstance(response, Response), "it was written as one"
    return response


def _untold() -> UpstreamFailed:
    return _failed(UpstreamReason.REFUSED, "The server does not tell what became of the call")


def _failed(reason: UpstreamReason, text: str) -> UpstreamFailed:
    return UpstreamFailed(reason, text, dispatched=True)


def _broke(how: str) -> UpstreamFailed:
    return _failed(UpstreamReason.MALFORMED, f"The server broke the protocol: {how}")
