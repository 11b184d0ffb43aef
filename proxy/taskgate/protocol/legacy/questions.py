"""Questions of servers to hosts, and their answers, progress and withdrawals, in legacy form.

A question is a request of a server to its host, such as `elicitation/create`. `read_question` reads
it. `encode_question` sends it to the host under an id of the gateway. A question for a task of the
gateway is an input request: `encode_input_request` sends it, under an id with task and key.
`read_answer` reads the host's answer, which `encode_answer` sends to the server.

The related-task key in `_meta` names the task of a message. Toward a host it names the gateway's
task (L-INPUT-2, L-INPUT-5, L-PROG-1), and a server's own is removed. Servers never learn of the
gateway's task. `capabilities` decides what a host may be asked.
"""

import json
import re
from typing import Any, Final

from taskgate.domain.record import InputRequest, RequestId, TaskId
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, dump, insertion, removals, splice
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol import vocabulary as names
from taskgate.protocol.host_requests import AnswerInput, AnswerQuestion, Ignore, NotifyServer, ReportProgress
from taskgate.protocol.jsonrpc import error_text, is_id, notification_text, request_text, result_text
from taskgate.protocol.legacy import capabilities
from taskgate.protocol.legacy.tasks import with_related_task
from taskgate.protocol.messages import (
    TASK_ID,
    Notification,
    Params,
    Request,
    Response,
    meta_of,
    spliced_params,
    value_of,
)
from taskgate.protocol.meta import legacy_hop_keys, related_task
from taskgate.protocol.server_messages import Answer, ImmediateReply, Question, ReceivedQuestion

# --- from hosts -------------------------------------------------------------------------------------------------------


def read_answer(response: Response) -> AnswerInput | AnswerQuestion | Ignore:
    """The answer in a host's response, by the form of its id.

    The id of an input request gives AnswerInput, any other string AnswerQuestion. An integer gives
    Ignore, because the gateway sends no question under one. Whether the question exists is not
    checked here. Raises MalformedMessage for a result that is no object.
    """
    if not isinstance(response.id, str):
        return Ignore()
    parts = input_of(response.id)
    if parts is None:
        return AnswerQuestion(id=response.id, answer=_answer(response, None))
    task, key = parts
    return AnswerInput(task=task, key=key, answer=_answer(response, task), host_task=_host_task(response))


def read_notification(notification: Notification) -> ReportProgress | NotifyServer | Ignore:
    """A notification of a host as an intent.

    Progress under a string token is ReportProgress: that token is the id of a question. One of
    `HOST_NOTICES` is NotifyServer. All others are Ignore, also those whose parameters have a wrong
    form.
    """
    if notification.method == names.NOTE_PROGRESS:
        token = value_of(notification.params, "progressToken")
        if isinstance(token, str) and is_id(token):
            return ReportProgress(id=token, notification=notification)
    elif notification.method in names.HOST_NOTICES and notification.params_text[:1] in ("", "{"):
        return NotifyServer(notification=notification)
    return Ignore()


def wants_task(params: RawJson) -> bool:
    """Whether the question with these parameters asks the host to run it as a task of its own.

    Only then may the host answer with the handle of a task.
    """
    return isinstance(value_of(members(params), "task") if params else None, dict)


def settled_task(method: str, params: RawJson, answer: Answer) -> str | None:
    """The id of the host's own task that is settled by this answer; None if it settles none.

    A server follows a task of the host by questions about it: `tasks/get`, `tasks/result` and
    `tasks/cancel`. `method` and `params` are of such a question, `answer` is the host's. A settled
    task needs no more of them. Every answer to `tasks/result` settles
    it, an error too. The others settle it by a status in `_SETTLING`.
    """
    if method not in _SETTLING:
        return None
    result = value_of(members(answer), "result")
    if method != names.TASKS_RESULT and not (isinstance(result, dict) and result.get("status") in _SETTLING[method]):
        return None
    id_ = value_of(members(params), "taskId")
    return id_ if isinstance(id_, str) else None


def _host_task(response: Response) -> str | None:
    """The id of the host's own task, if a response is the handle of one (L-HOST-2); else None."""
    found = (response.result.members or {}) if response.result is not None else {}
    task = value_of(found, "task")
    id_ = task.get("taskId") if isinstance(task, dict) else None
    return id_ if isinstance(id_, str) else None


def _answer(response: Response, task: TaskId | None) -> Answer:
    """The answer in a response, for the server; `task` is the gateway's task of an input request.

    Raises MalformedMessage for a result that is no object.
    """
    if response.error is not None:
        return f'{{"error":{response.text[response.error.start : response.error.end]}}}'
    assert response.result is not None, "a response without an error has a result"
    start, found = response.result.start, response.result.members
    if found is None:
        raise MalformedMessage("The result must be an object")
    edits = [(begin - start, end - start, by) for begin, end, by in _related_removals(found, task)]
    return f'{{"result":{splice(response.text[start : response.result.end], edits)}}}'


def _related_removals(found: Members, task: TaskId | None) -> Edits:
    """The edits that remove the related-task key from a host's result if it names `task`.

    A key that names the host's own task stays, because the server follows that task.
    """
    related = value_of(meta_of(found), names.RELATED_TASK)
    is_own = task is not None and isinstance(related, dict) and related.get("taskId") == task
    return removals(meta_of(found), (names.RELATED_TASK,)) if is_own else []


# --- to hosts ---------------------------------------------------------------------------------------------------------


def encode_question(id: str, question: Question) -> str:
    """The request that asks a host, under the gateway's `id`.

    If the server sent a progress token, `id` replaces it, so that the host's progress names the
    question.
    """
    return request_text(id, question.method, None if question.params is None else question.params.with_token(id))


def input_id(task: TaskId, key: str) -> str:
    """The id under which a host is sent an input request of a task."""
    return f"{task}.{key}"


def input_of(id: str) -> tuple[TaskId, str] | None:
    """The task and key in an id from `input_id`; None for any other text."""
    parts = _INPUT_ID.fullmatch(id)
    return None if parts is None else (parts["task"], parts["key"])


def encode_input_request(task: TaskId, request: InputRequest) -> str:
    """An input request of a task, with the related-task key in its parameters."""
    return request_text(input_id(task, request.key), request.method, with_related_task(request.params or "{}", task))


def encode_withdrawal(id: str, reason: str) -> str:
    """The notification for a host that the question `id` needs no answer any more.

    If that is an input request, it has the related-task key.
    """
    params = dump({"requestId": id, "reason": reason})
    parts = input_of(id)
    return notification_text(names.NOTE_CANCELLED, with_related_task(params, parts[0]) if parts else params)


def encode_progress(token: RequestId, done: float, message: str, task: TaskId | None = None) -> str:
    """A progress notification of the gateway itself for a host.

    An empty `message` is left out. `task` is the gateway's task that it names, None for none.
    """
    progress: dict[str, Any] = {"progressToken": token, "progress": done}
    if message:
        progress["message"] = message
    params = dump(progress)
    return notification_text(names.NOTE_PROGRESS, params if task is None else with_related_task(params, task))


def encode_notification(notification: Notification, token: RequestId | None, task: TaskId | None = None) -> str:
    """A server's notification for a host.

    `token` replaces its progress token; None leaves it. Its related-task key becomes that of
    `task`, or is removed if `task` is None (T23). Without `task`, it also loses the other keys that
    do not cross.
    """
    params = notification.params
    place = params.get("progressToken")
    edits = [] if token is None or place is None else [(place.start, place.end, dump(token))]
    if task is None and "_meta" in params:
        meta = meta_of(params)
        edits += removals(meta, legacy_hop_keys(meta))
    text = splice(notification.text, edits) if edits else notification.text
    return text if task is None else _with_related_params(text, task)


def _with_related_params(text: str, task: TaskId) -> str:
    """A notification with the related-task key. Parameters that are no object stay as they are."""
    params = members(text, {"params": {}}).get("params")
    if params is None:
        return splice(text, [insertion(text, "params", with_related_task("{}", task))])
    if params.members is None:
        return text
    return splice(text, [(params.start, params.end, with_related_task(text[params.start : params.end], task))])


_INPUT_ID: Final = re.compile(rf"(?P<task>{TASK_ID})\.(?P<key>input-[1-9][0-9]*)")
_SETTLING: Final = {
    names.TASKS_RESULT: (),
    names.TASKS_CANCEL: ("cancelled",),
    names.TASKS_GET: ("cancelled", "failed"),
}
"""The questions about a host's own task whose answer can settle it, with the statuses that do.

Every answer to `tasks/result` does. `completed` does not, because the server gets the result next.
`failed` does, because some servers do not get the result then.
"""


# --- from servers -----------------------------------------------------------------------------------------------------


def read_question(request: Request, host: Peer | None) -> ReceivedQuestion | ImmediateReply:
    """The question for the host, or the reply that the server gets at once.

    The reply is for `ping`, for a question that the host does not support, and for malformed
    parameters. Only an unsupported question has `required`, if a capability would help. In a
    question, the keys of `_meta` that do not cross are removed, the server's related-task key among
    them. So is `task` if the host makes no tasks of such questions (L-HOST-6).
    """
    if request.method == names.PING:
        return ImmediateReply(result_text(request.id, "{}"))
    code, required = capabilities.refusal(host, request.method, request.params), None
    if code is not None:
        required = capabilities.missing(host, request.method, request.params)
    elif not _is_sound(request):
        code = names.INVALID_PARAMS
    if code is not None:
        return ImmediateReply(error_text(request.id, _error(code, _MESSAGES[code])), required)
    keeps_task = capabilities.makes_tasks_of(host, request.method)
    meta = meta_of(request.params)
    token = meta.get("progressToken")
    question = Question(request.method, _question_params(request, keeps_task=keeps_task))
    return ReceivedQuestion(request.id, question, None if token is None else token.value, related_task(meta))


def _is_sound(request: Request) -> bool:
    """Whether parameters and `_meta` are objects, with a valid progress token if any."""
    if request.params_text and not request.params_text.startswith("{"):
        return False
    meta = request.params.get("_meta")
    if meta is None:
        return True
    token = (meta.members or {}).get("progressToken")
    return meta.members is not None and (token is None or is_id(token.value))


def _question_params(request: Request, *, keeps_task: bool) -> Params | None:
    """The parameters for the host, split at the server's progress token; None without any."""
    if not request.params_text:
        return None
    meta = meta_of(request.params)
    edits = removals(meta, legacy_hop_keys(meta)) + ([] if keeps_task else removals(request.params, ("task",)))
    token = meta.get("progressToken")
    return spliced_params(request, edits, token)


# --- to servers -------------------------------------------------------------------------------------------------------


def encode_answer(id: RequestId, answer: Answer) -> str:
    """The response to the server's question `id`: its result or error is that of `answer`, to the
    byte.
    """
    found = members(answer)
    if "result" in found:
        return result_text(id, answer[found["result"].start : found["result"].end])
    return error_text(id, answer[found["error"].start : found["error"].end])


def default_answer(method: str) -> Answer:
    """The answer that a server gets to a question without a host's answer (L-INPUT-8)."""
    if method == names.ELICITATION_CREATE:
        return '{"result":{"action":"cancel"}}'
    code = names.REFUSED_BY_USER if method == names.SAMPLING_CREATE else names.INTERNAL_ERROR
    return f'{{"error":{_error(code, "Nobody answered")}}}'


def encode_host_notification(notification: Notification, token: RequestId | None = None) -> str:
    """A host's notification for its server, without the keys of `_meta` that do not cross.

    `token` replaces the progress token; None leaves it.
    """
    meta = meta_of(notification.params)
    edits = removals(meta, legacy_hop_keys(meta))
    place = notification.params.get("progressToken")
    if token is not None and place is not None:
        edits = [*edits, (place.start, place.end, dump(token))]
    return splice(notification.text, edits)


def _error(code: int, message: str) -> str:
    return dump({"code": code, "message": message})


_MESSAGES: Final = {names.METHOD_NOT_FOUND: "Method not found", names.INVALID_PARAMS: "Invalid params"}


# --- URLs that a server wants visited ---------------------------------------------------------------------------------
#
# A server can refuse a request until a person visited a URL (-32042). The modern era has no such
# error: its host is asked to open the URL, and the request is sent again.

MAX_ERROR: Final = 64 * 1024
"""Largest error that is searched for URLs, in characters; a larger one passes to the host."""


def url_questions(response: Response, host: Peer | None) -> tuple[Question, ...]:
    """A question for each URL in a server's error -32042; empty if the response goes to the host
    unchanged.

    It does for any other response, for no host, and for a legacy host, whose era has that error. It
    does for a host that cannot be asked to open URLs. It also does if the error is larger than
    `MAX_ERROR`, or has an entry that is no valid elicitation by URL.
    """
    if response.error is None or response.error_code != names.URL_ELICITATION_REQUIRED:
        return ()
    if host is None or era_of(host.revision) is not Era.MODERN:
        return ()
    error = response.text[response.error.start : response.error.end]
    if len(error) > MAX_ERROR:
        return ()
    # Parsed again: `error.members` leaves long values unread.
    data = json.loads(error).get("data")
    listed = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not all(_is_url_elicitation(each) for each in listed):
        return ()
    params = [dump({name: each[name] for name in _URL_MEMBERS}) for each in listed]
    if any(capabilities.refusal(host, names.ELICITATION_CREATE, members(text)) is not None for text in params):
        return ()
    return tuple(Question(names.ELICITATION_CREATE, Params(text)) for text in params)


def is_accepted(answer: Answer) -> bool:
    """Whether the answer to an elicitation has the action `accept`; false for an error."""
    found = members(answer).get("result")
    return found is not None and isinstance(found.value, dict) and found.value.get("action") == "accept"


def _is_url_elicitation(each: Any) -> bool:
    if not isinstance(each, dict) or each.get("mode") != "url":
        return False
    return all(isinstance(each.get(name), str) and _LONE_SURROGATE.search(each[name]) is None for name in _URL_MEMBERS)


_LONE_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")
_URL_MEMBERS: Final = ("mode", "elicitationId", "url", "message")
