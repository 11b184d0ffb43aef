"""Tasks that servers of this era make of calls: what they are asked, and what their answers show. Pure.

Only shapes; when a task is looked at, and who answers for it, is decided elsewhere. What
came of a task is cut out as the call's own response, to the byte.
"""

from typing import Any, Final

from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import MalformedMessage, UpstreamFailed
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Member, Members, RawJson, first_keys
from taskgate.protocol import vocabulary as words
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import error_text, parse, result_text
from taskgate.protocol.messages import Response, value_of
from taskgate.protocol.modern.server_rounds import questions_of
from taskgate.protocol.server_messages import ServerTask, status_text

MAX_ID: Final = 4096
"""Bytes of a task's id, which may say all of it: it goes out in a header again and again."""

MAX_DEPTH: Final = 256
"""As deep as the message was that the outcome is cut out of."""

_STATES: Final = frozenset(TaskStatus)
_SAYING_NOTHING: Final = frozenset({"resultType", "_meta"})
"""Members of a result that are not what came of a call."""


def declares_tasks(peer: Peer) -> bool:
    """Whether a peer declared the extension; what else it says of tasks means nothing yet."""
    return _names_tasks(peer.capabilities)


def needs_tasks(response: Response) -> bool:
    """Whether a response refuses a call because the extension was not declared with it (M-NEG-3)."""
    if response.error is None or response.error_code != words.MISSING_CAPABILITY:
        return False
    data = value_of(response.error.members or {}, "data")
    return isinstance(data, dict) and _names_tasks(data.get("requiredCapabilities"))


def _names_tasks(capabilities: Any) -> bool:
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(words.TASKS_EXTENSION), dict)


def reference(task: str) -> RawJson:
    """The parameters of a request that is about that task and says no more."""
    return f'{{"taskId":{dump(task)}}}'


def update(task: str, answers: RawJson) -> RawJson:
    """The parameters of `tasks/update`; `answers` by the server's keys."""
    return f'{{"taskId":{dump(task)},"inputResponses":{answers}}}'


def created(method: str, response: Response) -> ServerTask | None:
    """The task that a response says was made of a `tools/call`, of which nothing came yet; None for any other answer.

    UpstreamFailed, reason malformed, for one that cannot be followed.
    """
    found = {} if response.result is None else response.result.members or {}
    if value_of(found, "resultType") != "task" or method != words.TOOLS_CALL:
        return None
    # What state it is in is asked soon; who is not followed now could not be ended.
    return _task(found, _state(found) or TaskStatus.WORKING)


def shown(id: int, task: str, response: Response) -> ServerTask | None:
    """What a response to `tasks/get` shows of that task; None for an error. `id` is of the call it was made of.

    UpstreamFailed, reason malformed, for what is no task, or another.
    """
    if response.error is not None:
        return None
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members or {}
    now = _task(found, _state(found))
    if now.id != task:
        raise protocol_violation("it shows another task than the one it was asked for")
    match now.status:
        case TaskStatus.INPUT_REQUIRED:
            return now._replace(questions=questions_of(response.text, found.get("inputRequests"), id))
        case TaskStatus.COMPLETED:
            return now._replace(response=_own(result_text(id, _result(response.text, found.get("result")))))
        case TaskStatus.FAILED:
            return now._replace(response=_own(error_text(id, _object(response.text, found.get("error")))))
    return now


def told(params: Members) -> str | None:
    """The task that a notification is about; None where it names none."""
    id_ = value_of(params, "taskId")
    return id_ if _is_id(id_) else None


def _state(found: Members) -> TaskStatus | None:
    status = value_of(found, "status")
    return TaskStatus(status) if isinstance(status, str) and status in _STATES else None


def _task(found: Members, status: TaskStatus | None) -> ServerTask:
    id_ = value_of(found, "taskId")
    if not _is_id(id_):
        raise protocol_violation("its task has no id that could be asked for")
    if status is None:
        raise protocol_violation("its task is in no state that there is")
    message, updated = value_of(found, "statusMessage"), value_of(found, "lastUpdatedAt")
    return ServerTask(
        id=id_,
        status=status,
        message=status_text(message) if isinstance(message, str) and message else None,
        updated=updated if isinstance(updated, str) else None,
        interval=_seconds(value_of(found, "pollIntervalMs")),
    )


def _is_id(value: Any) -> bool:
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= MAX_ID
    except UnicodeEncodeError:
        return False


def _seconds(interval: Any) -> float | None:
    is_span = isinstance(interval, int) and not isinstance(interval, bool) and 0 < interval < 2**53
    return interval / 1000 if is_span else None


def _result(text: str, member: Member | None) -> RawJson:
    shown = _object(text, member)
    if member is not None and _SAYING_NOTHING.issuperset(first_keys(member, len(_SAYING_NOTHING) + 1) or ()):
        raise _shows_nothing()
    return shown


def _object(text: str, member: Member | None) -> RawJson:
    if member is None or not member.is_object:
        raise _shows_nothing()
    return text[member.start : member.end]


def _shows_nothing() -> UpstreamFailed:
    return protocol_violation("its task is over and does not show what came of it")


def _own(text: str) -> Response:
    """What the call itself would have been answered with."""
    try:
        response = parse(text.encode(), max_depth=MAX_DEPTH)
    except MalformedMessage:
        raise protocol_violation("what came of its task is no answer to a call") from None
    assert isinstance(response, Response), "it was written as one"
    kind = value_of({} if response.result is None else response.result.members or {}, "resultType")
    if kind not in (None, "complete"):
        raise protocol_violation("what came of its task is no answer to a call")
    return response
