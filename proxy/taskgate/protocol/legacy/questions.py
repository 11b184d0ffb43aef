"""Questions of a server on their way to a host of the legacy era, and what either side tells meanwhile.

Here is also where the related-task key comes and goes (L-INPUT-2, L-INPUT-5, L-PROG-1): hosts see it on whatever
concerns a task of the gateway, servers never do. What must not live here: what a host may be asked.
"""

import re
from typing import Any, Final

from taskgate.domain.record import InputRequest, RequestId, TaskId
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, dump, insertion, removals, splice
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.host_requests import AnswerInput, AnswerQuestion, Ignore, NotifyServer, ReportProgress
from taskgate.protocol.jsonrpc import is_id, notification_text, request_text
from taskgate.protocol.legacy.tasks import with_related_task
from taskgate.protocol.messages import TASK_ID, Notification, Response, meta_of, value_of
from taskgate.protocol.meta import legacy_hop_keys
from taskgate.protocol.server_messages import Answer, Question

# --- what a host says ----------------------------------------------------------------------------------------------


def read_answer(response: Response) -> AnswerInput | AnswerQuestion | Ignore:
    """What a host answers. Nothing is asked under an integer, so such an answer is to nothing.

    Raises MalformedMessage for a result that is no object.
    """
    if not isinstance(response.id, str):
        return Ignore()
    asked = input_of(response.id)
    if asked is None:
        return AnswerQuestion(id=response.id, answer=_answer(response, None))
    task, key = asked
    return AnswerInput(task=task, key=key, answer=_answer(response, task), host_task=_handle(response))


def read_notice(notification: Notification) -> ReportProgress | NotifyServer | Ignore:
    """What a notification of a host is to its server: the few that it may tell, and nothing else."""
    if notification.method == words.NOTE_PROGRESS:
        token = value_of(notification.params, "progressToken")
        if isinstance(token, str) and is_id(token):
            return ReportProgress(id=token, notification=notification)
    elif notification.method in words.HOST_NOTICES and notification.params_text[:1] in ("", "{"):
        return NotifyServer(notification=notification)
    return Ignore()


def _handle(response: Response) -> str | None:
    """The id of the task of the host's own that a response is the handle of (L-HOST-2)."""
    found = (response.result.members or {}) if response.result is not None else {}
    task = value_of(found, "task")
    id_ = task.get("taskId") if isinstance(task, dict) else None
    return id_ if isinstance(id_, str) else None


def wants_task(params: RawJson) -> bool:
    """Whether the parameters of a question ask the host for a task of its own."""
    return isinstance(value_of(members(params), "task") if params else None, dict)


def settled_by(method: str, params: RawJson, answer: Answer) -> str | None:
    """The task of the host's own that needs no more questions after this answer; None where there is none.

    Whatever its result was, and a cancel that was done. Some servers ask no further once they read that it failed.
    """
    if method not in _ENDING:
        return None
    result = value_of(members(answer), "result")
    if method != words.TASKS_RESULT and not (isinstance(result, dict) and result.get("status") in _ENDING[method]):
        return None
    id_ = value_of(members(params), "taskId")
    return id_ if isinstance(id_, str) else None


def _answer(response: Response, task: TaskId | None) -> Answer:
    if response.error is not None:
        return f'{{"error":{response.text[response.error.start : response.error.end]}}}'
    assert response.result is not None, "a response without an error has a result"
    start, found = response.result.start, response.result.members
    if found is None:
        raise MalformedMessage("The result must be an object")
    edits = [(begin - start, end - start, by) for begin, end, by in _mentions(found, task)]
    return f'{{"result":{splice(response.text[start : response.result.end], edits)}}}'


def _mentions(found: Members, task: TaskId | None) -> Edits:
    """The edits that take the related-task key out where it names our own task; a task of the host's own stays."""
    related = value_of(meta_of(found), words.RELATED_TASK)
    ours = task is not None and isinstance(related, dict) and related.get("taskId") == task
    return removals(meta_of(found), (words.RELATED_TASK,)) if ours else []


# --- what a host is told -------------------------------------------------------------------------------------------


def question_text(id: str, question: Question) -> str:
    """A question under our id, which is its progress token too."""
    return request_text(id, question.method, None if question.params is None else question.params.with_token(id))


def input_id(task: TaskId, key: str) -> str:
    """The id that a task's input is asked under."""
    return f"{task}.{key}"


def input_of(id: str) -> tuple[TaskId, str] | None:
    """The task and the key that such an id is of; None for any other text."""
    asked = _INPUT_ID.fullmatch(id)
    return None if asked is None else (asked["task"], asked["key"])


def input_text(task: TaskId, request: InputRequest) -> str:
    """A task's question, with the related-task key in its parameters."""
    return request_text(input_id(task, request.key), request.method, with_related_task(request.params or "{}", task))


def withdrawal_text(id: str, reason: str) -> str:
    """The notification that what was asked under `id` needs no answer any more."""
    params = dump({"requestId": id, "reason": reason})
    asked = input_of(id)
    return notification_text(words.NOTE_CANCELLED, with_related_task(params, asked[0]) if asked else params)


def progress_text(token: RequestId, done: float, message: str, task: TaskId | None) -> str:
    """Progress of our own; an empty `message` is left out."""
    told: dict[str, Any] = {"progressToken": token, "progress": done}
    if message:
        told["message"] = message
    params = dump(told)
    return notification_text(words.NOTE_PROGRESS, params if task is None else with_related_task(params, task))


def notice_text(notification: Notification, token: RequestId | None, task: TaskId | None) -> str:
    """A server's notification: the host's own token, and the related-task key of our task or none (T23)."""
    place = notification.params.get("progressToken")
    edits = [] if token is None or place is None else [(place.start, place.end, dump(token))]
    if task is None:
        meta = meta_of(notification.params)
        edits += removals(meta, legacy_hop_keys(meta))
    text = splice(notification.text, edits) if edits else notification.text
    return text if task is None else _related_text(text, task)


def _related_text(text: str, task: TaskId) -> str:
    """A notification with the related-task key; one whose parameters are no object stays as it is."""
    params = members(text, {"params": {}}).get("params")
    if params is None:
        return splice(text, [insertion(text, "params", with_related_task("{}", task))])
    if params.members is None:
        return text
    return splice(text, [(params.start, params.end, with_related_task(text[params.start : params.end], task))])


_INPUT_ID: Final = re.compile(rf"(?P<task>{TASK_ID})\.(?P<key>input-[1-9][0-9]*)")
_ENDING: Final = {
    words.TASKS_RESULT: (),
    words.TASKS_CANCEL: ("cancelled",),
    words.TASKS_GET: ("cancelled", "failed"),
}
"""The questions about a host's own task that may be the last ones, with the states that make them so."""
