"""Tasks that modern servers make of calls: parameters of requests, and what responses show.

`read_created` finds the task in the answer to a call. The caller then polls by `tasks/get`, and
`read_state` reads its state: open questions, or the outcome. A task that has ended becomes the
response to the call that made it, with the same bytes, under the id of that call.
"""

from typing import Any, Final

from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import MalformedMessage, UpstreamFailed
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Member, Members, RawJson, first_keys
from taskgate.protocol import vocabulary as names
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import error_text, result_text
from taskgate.protocol.messages import Response, value_of
from taskgate.protocol.modern.rounds import read_questions
from taskgate.protocol.server_messages import (
    TASK_MEMBERS,
    ServerTask,
    is_server_task_id,
    parse_response,
    read_server_task,
)

_EMPTY_RESULT: Final = frozenset({"resultType", "_meta"})
"""Members that say nothing about the outcome of a call: a result with these alone is malformed."""


def declares_tasks(peer: Peer) -> bool:
    """Whether a peer declared the tasks extension; any object counts."""
    return _has_tasks(peer.capabilities)


def needs_tasks(response: Response) -> bool:
    """Whether a server refused a call because the request did not declare the tasks extension
    (M-NEG-3).
    """
    if response.error is None or response.error_code != names.MISSING_CAPABILITY:
        return False
    data = value_of(response.error.members or {}, "data")
    return isinstance(data, dict) and _has_tasks(data.get("requiredCapabilities"))


def _has_tasks(capabilities: Any) -> bool:
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(names.TASKS_EXTENSION), dict)


def task_params(task: str) -> RawJson:
    """The parameters of `tasks/get` and `tasks/cancel`."""
    return f'{{"taskId":{dump(task)}}}'


def update_params(task: str, answers: RawJson) -> RawJson:
    """The parameters of `tasks/update`; `answers` by the server's keys."""
    return f'{{"taskId":{dump(task)},"inputResponses":{answers}}}'


def read_created(method: str, response: Response) -> ServerTask | None:
    """The task that a response to `tools/call` announces; None for any other response.

    Raises UpstreamFailed (malformed) for a task that cannot be followed.
    """
    found = {} if response.result is None else response.result.members or {}
    if value_of(found, "resultType") != "task" or method != names.TOOLS_CALL:
        return None
    return _read_task(found, is_new=True)


def read_state(call: int, task: str, response: Response) -> ServerTask | None:
    """The task in a response to `tasks/get`; None for an error. `call` is the id of its call.

    `questions` are set if it requires input, `response` if it is completed or failed. Raises
    UpstreamFailed (malformed) for an invalid or another task, and for one that ended without an
    outcome.
    """
    if response.error is not None:
        return None
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members or {}
    now = _read_task(found)
    if now.id != task:
        raise protocol_violation("it returned another task than the one that was requested")
    match now.status:
        case TaskStatus.INPUT_REQUIRED:
            return now._replace(questions=read_questions(response.text, found.get("inputRequests"), call))
        case TaskStatus.COMPLETED:
            return now._replace(response=_outcome(result_text(call, _result(response.text, found.get("result")))))
        case TaskStatus.FAILED:
            return now._replace(response=_outcome(error_text(call, _object(response.text, found.get("error")))))
    return now


def read_notification(params: Members) -> str | None:
    """The id of the task in a `notifications/tasks`; None without a valid one."""
    id_ = value_of(params, "taskId")
    return id_ if is_server_task_id(id_) else None


def _read_task(found: Members, *, is_new: bool = False) -> ServerTask:
    interval = value_of(found, "pollIntervalMs")
    values = {name: value_of(found, name) for name in TASK_MEMBERS}
    return read_server_task(values, interval if isinstance(interval, int) else None, is_new=is_new)


def _result(text: str, member: Member | None) -> RawJson:
    result = _object(text, member)
    if member is not None and _EMPTY_RESULT.issuperset(first_keys(member, len(_EMPTY_RESULT) + 1) or ()):
        raise _no_outcome()
    return result


def _object(text: str, member: Member | None) -> RawJson:
    if member is None or not member.is_object:
        raise _no_outcome()
    return text[member.start : member.end]


def _no_outcome() -> UpstreamFailed:
    return protocol_violation("its task ended without a result or an error")


def _outcome(text: str) -> Response:
    """The response to the call itself, from the result or error of its task."""
    try:
        response = parse_response(text)
    except MalformedMessage:
        raise protocol_violation("the outcome of its task is not valid") from None
    kind = value_of({} if response.result is None else response.result.members or {}, "resultType")
    if kind not in (None, "complete"):
        raise protocol_violation("the result of its task is not a tool result")
    return response
