"""The dialect for hosts of 2026-07-28: `ModernDownstream`.

`decode` reads a host's request as an intent. The other methods write the messages that hosts get;
responses of legacy servers are converted. `classify` comes first: it reads what a request declares,
and compares its headers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from taskgate.domain.record import Faulted, RequestId, Succeeded, TaskRecord
from taskgate.domain.versions import Era, Revision
from taskgate.errors import InvalidParams, UnknownMethod
from taskgate.jsontext.edits import dump
from taskgate.jsontext.large import LargeJson, MessageText, wrap
from taskgate.jsontext.spans import RawJson
from taskgate.protocol import faults
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import ServerDescription, filter_tools, gateway_info
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.handoff import text_result
from taskgate.protocol.host_requests import (
    CallTool,
    CancelTask,
    Discover,
    GetTask,
    LegacyTaskRequest,
    Listen,
    ModernIntent,
    Relay,
    RequestMeta,
    Retry,
    Subscription,
    UpdateTask,
    read_idempotency_key,
)
from taskgate.protocol.jsonrpc import UsualProgress, error_text, notification_text, result_text
from taskgate.protocol.messages import Notification, Request, Response, meta_of, task_id, tool_name
from taskgate.protocol.meta import ObjectEdit, edit_object
from taskgate.protocol.modern import requests, results, rounds, tasks
from taskgate.protocol.modern.capabilities import discover_result
from taskgate.protocol.polled_tasks import PolledTasks
from taskgate.protocol.server_messages import Question

_RETRY_MEMBERS = ("inputResponses", "requestState")


def _always(_: str) -> bool:
    """The default of `names_server`."""
    return True


class ModernDownstream:
    """Messages from and to modern hosts; `version` is the gateway's.

    `names_server` returns for the name of a mount whether results of tasks there keep the server's
    serverInfo. `era` is the era of the server whose response is encoded. `info` is the serverInfo for
    the host; None leaves the server's own. A round is a response that asks questions; the host sends
    its request again, as a retry with the answers.
    """

    acknowledges_cancel = True
    """Whether a host gets no error for the cancellation of a task that has ended."""
    state_has_result = True
    """Whether `task_state` has the result of an ended task, so that it needs the record's bodies."""

    answer = staticmethod(results.convert_response)
    complete = staticmethod(results.complete_response)
    digest = staticmethod(rounds.digest)
    is_valid_answer = staticmethod(rounds.is_valid_answer)
    missing_capabilities = staticmethod(rounds.missing_capabilities)
    open_inputs = staticmethod(tasks.open_inputs)
    undeclared = staticmethod(tasks.undeclared)
    passed_round = staticmethod(rounds.passed_round)
    round_of = staticmethod(rounds.round_of)
    with_answers = staticmethod(rounds.with_answers)

    def __init__(self, version: str, names_server: Callable[[str], bool] = _always) -> None:
        self._version = version
        self._names_server = names_server
        self.info = gateway_info(version)
        self._polled = PolledTasks()

    def decode(
        self,
        request: Request,
        meta: RequestMeta,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        hands_off: bool = False,
    ) -> ModernIntent:
        """The intent of a request; `meta` is from `classify`, which has checked the request first.

        Raises InvalidParams, TaskNotFound (an id of a wrong form), UnknownMethod or
        MalformedMessage (invalid Unicode, or a duplicate key).
        """
        match request.method:
            case names.SERVER_DISCOVER:
                return Discover(id=request.id)
            case names.TOOLS_CALL:
                return _call_tool(request, meta, may_be_task=hands_off or (offers_tasks and meta.declares_tasks))
            case names.TASKS_GET:
                get = GetTask(request.id, task_id(request.params))
                # Without the extension, only legacy tasks are served (AMB-19).
                return get if meta.declares_tasks else LegacyTaskRequest(request=get)
            case names.TASKS_CANCEL:
                cancel = CancelTask(id=request.id, task=task_id(request.params))
                return cancel if meta.declares_tasks else LegacyTaskRequest(request=cancel)
            case names.TASKS_UPDATE:
                return _update_task(request)
            case names.SUBSCRIPTIONS_LISTEN:
                wants = requests.read_subscription(request.params, extensions)
                return Listen(id=request.id, wants=wants if offers_tasks else replace(wants, tasks=None))
            case method if method in names.MODERN_RELAYED or extensions.allows_method(method, Era.MODERN):
                return _relay(request, meta)
        raise UnknownMethod("The method does not exist in this protocol version")

    def discovery(
        self,
        id: RequestId,
        server: ServerDescription,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `server/discover`."""
        result = discover_result(server, self._version, extensions, offers_tasks=offers_tasks, info=info)
        return result_text(id, result)

    def tools(
        self,
        id: RequestId,
        response: Response,
        era: Era,
        shows: Callable[[str], bool] | None = None,
        info: RawJson | None = None,
        own: Callable[[RawJson], RawJson] | None = None,
    ) -> MessageText:
        """A page of `tools/list` under the host's id, without tools that `shows` rejects; None
        shows all. `own` adds the tools of the gateway.
        """
        if response.result is None or not results.is_complete(response, names.TOOLS_LIST, era):
            return self.answer(id, names.TOOLS_LIST, response, era, info)
        page = response.text[response.result.start : response.result.end]
        page = results.convert_tools(page)
        page = page if shows is None else filter_tools(page, shows)
        page = page if own is None else own(page)
        return result_text(id, results.complete_result(page, names.TOOLS_LIST, info, era))

    def input_required(self, id: RequestId, questions: Mapping[str, Question], state: str) -> str:
        """A round of the gateway for a held call: one that waits for the retry of its host.

        The host answers by the keys of `questions`, and sends `state` back.
        """
        encoded = {key: rounds.encode_question(question) for key, question in questions.items()}
        return result_text(id, rounds.input_required(encoded, state, self.info))

    def notification(self, notification: Notification, token: RequestId | None, id: RequestId | None = None) -> str:
        """A server's notification on the stream of a request, with the host's progress token.

        A notification that names its stream, as in some extensions, gets `id`, the host's request
        id.
        """
        params, text = notification.params, notification.params_text
        is_progress = notification.method == names.NOTE_PROGRESS
        if is_progress and "_meta" not in params and "progressToken" in params and token is not None:
            _, _, start, end, _ = params["progressToken"]
            at = notification.params_at
            return notification_text(notification.method, f"{text[: start - at]}{dump(token)}{text[end - at :]}")
        put = {} if token is None or not is_progress else {"progressToken": dump(token)}
        names_stream = id is not None and names.SUBSCRIPTION_ID in meta_of(notification.params)
        meta_put = {names.SUBSCRIPTION_ID: dump(id)} if names_stream else {}
        return _edit_notification(notification, ObjectEdit(put=put, meta_put=meta_put))

    @staticmethod
    def relayed_progress(progress: UsualProgress, token: bytes) -> bytes:
        """A server's progress with the host's token, which is JSON, as `notification` writes it."""
        return _PROGRESS % progress.params_with_token(token)

    def progress(self, token: RequestId, done: float, message: str) -> str:
        """Progress from the gateway itself."""
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if message:
            params["message"] = message
        return notification_text(names.NOTE_PROGRESS, dump(params))

    def wants_log(self, notification: Notification, level: str | None) -> bool:
        """Whether a request with this log level wants that log message (M-LOG-1)."""
        found = notification.params.get("level")
        if level is None or found is None or found.value not in names.LOG_LEVELS:
            return False
        return names.LOG_LEVELS.index(found.value) >= names.LOG_LEVELS.index(level)

    def task_created(
        self, id: RequestId, record: TaskRecord, response: str | None = None, interval: int | None = None
    ) -> str:
        """The handle of a new task; `interval` as in `task_state`.

        This era has no place for a `response` to the model.
        """
        return result_text(id, tasks.create_result(record, self.info, interval))

    def task_state(self, id: RequestId, record: TaskRecord, interval: int | None = None) -> MessageText:
        """The answer to `tasks/get`; a terminal record must be loaded with its bodies.

        `interval` is the poll interval in milliseconds; None for that of the record.
        """
        if record.outcome is None and interval is not None:
            polled = self._polled.get(record.id)
            if polled is None or polled[0]() is not record:
                text = tasks.get_result(record, self.info, interval=0)
                assert isinstance(text, str), "only a result is long"
                polled = self._polled.add(record, text, tasks.INTERVAL_KEY)
            _, before, behind = polled
            return result_text(id, f"{before}{interval}{behind}")
        # Only a result has the name of its server.
        names_server = record.outcome is not None and self._names_server(record.owner.mount)
        result = tasks.get_result(record, self.info, names_server=names_server, interval=interval)
        if isinstance(result, str):
            return result_text(id, result)
        return result.wrapped(result_text(id, "")[:-1], "}")

    def text_result(self, id: RequestId, text: str) -> str:
        """The result of a tool that is a text of the gateway for a model."""
        return result_text(id, results.complete_result(text_result(text), names.TOOLS_CALL, self.info))

    def call_outcome(self, id: RequestId, record: TaskRecord, info: RawJson | None, host: Revision) -> MessageText:
        """The response to a call that has become a task and ended, for a host that knows no task.

        The record must be loaded with its bodies. `info` is the serverInfo for the host; None leaves
        that of the result. The era has one revision, which `host` is.
        """
        match record.outcome:
            case Succeeded(result=LargeJson() as result):
                return wrap(result_text(id, "")[:-1], results.nested_large_result(result, info=info), "}")
            case Succeeded(result=str(result)):
                return result_text(id, results.nested_result(result, info=info))
            case Faulted(error=LargeJson() as error):
                return wrap(error_text(id, "")[:-1], results.convert_large_error(error), "}")
            case Faulted(error=str(error)):
                return error_text(id, results.convert_error(error))
        return error_text(id, faults.cancelled_error(record))

    def task_round(self, id: RequestId, record: TaskRecord, state: str) -> str:
        """The answer that passes the open inputs of a task to a host, which sends its request and `state` again."""
        asked = {key: rounds.input_request(each.method, each.params) for key, each in tasks.open_inputs(record).items()}
        return result_text(id, rounds.input_required(asked, state, self.info))

    def acknowledgement(self, id: RequestId) -> str:
        """The answer to `tasks/update`, whatever its effect."""
        return result_text(id, tasks.acknowledgement(self.info))

    def task_cancelled(self, id: RequestId, record: TaskRecord | None) -> str:
        """The answer to `tasks/cancel`, whatever its effect; None for a task that had ended."""
        return self.acknowledgement(id)

    # Every message of a listen stream has the id of its request, of the same JSON type (M-NOTIF-3).

    def subscription_granted(self, id: RequestId, granted: Subscription) -> str:
        """The first message: the granted part of the subscription (M-NOTIF-2)."""
        notifications: dict[str, Any] = {
            name: True
            for name, wanted in (
                ("toolsListChanged", granted.tools),
                ("promptsListChanged", granted.prompts),
                ("resourcesListChanged", granted.resources),
            )
            if wanted
        }
        if granted.resource_uris is not None:
            notifications["resourceSubscriptions"] = list(granted.resource_uris)
        if granted.tasks is not None:
            notifications["taskIds"] = list(granted.tasks)
        notifications.update(dict.fromkeys(granted.filters, True))
        params = dump({"notifications": notifications, "_meta": {names.SUBSCRIPTION_ID: id}})
        return notification_text(names.NOTE_SUBSCRIBED, params)

    def stream_notification(self, id: RequestId, notification: Notification) -> str:
        """A server's notification, on the stream of the listen request `id`."""
        return _edit_notification(notification, ObjectEdit(meta_put={names.SUBSCRIPTION_ID: dump(id)}))

    def task_notification(self, id: RequestId, record: TaskRecord, interval: int | None = None) -> MessageText:
        """The content of `tasks/get` as a notification (M-NOTIF-4); `interval` as in `task_state`.

        A terminal record must be loaded with its bodies.
        """
        names_server = self._names_server(record.owner.mount)
        return tasks.task_notification(record, id, names_server=names_server, interval=interval)

    def subscription_ended(self, id: RequestId) -> str:
        """The result that ends the stream (M-NOTIF-6)."""
        meta = f"{{{dump(names.SUBSCRIPTION_ID)}:{dump(id)},{dump(names.SERVER_INFO)}:{self.info}}}"
        return result_text(id, f'{{"resultType":"complete","_meta":{meta}}}')


def _edit_notification(notification: Notification, change: ObjectEdit) -> str:
    """The notification with changed parameters; parameters that are no object count as empty."""
    text = notification.params_text
    return notification_text(notification.method, edit_object(text if text.startswith("{") else "{}", change))


def _call_tool(request: Request, meta: RequestMeta, *, may_be_task: bool) -> CallTool | Retry:
    """The intent of `tools/call`: a Retry if it has answers or a state."""
    tool, key = tool_name(request), meta_of(request.params).get(names.IDEMPOTENCY_KEY)
    params = requests.prepare_params(request, without=_RETRY_MEMBERS)
    stored = None
    if may_be_task:
        # Without a token, both texts are equal.
        stored = params.head if params.tail is None else requests.stored_params(request, without=_RETRY_MEMBERS)
    call = CallTool(
        id=request.id,
        tool=tool,
        params=params,
        stored_params=stored,
        progress_token=meta.progress_token,
        wants_task=False,
        ttl=None,
        idempotency_key=None if key is None else read_idempotency_key(key),
    )
    return call if request.params.keys().isdisjoint(_RETRY_MEMBERS) else _retry(request, call)


def _relay(request: Request, meta: RequestMeta) -> Relay | Retry:
    """The intent of any other request for a server; a Retry only for `ROUND_METHODS`."""
    has_rounds = request.method in names.ROUND_METHODS
    params = requests.prepare_params(request, without=_RETRY_MEMBERS if has_rounds else ())
    relay = Relay(id=request.id, method=request.method, params=params, progress_token=meta.progress_token)
    return _retry(request, relay) if has_rounds and not request.params.keys().isdisjoint(_RETRY_MEMBERS) else relay


def _retry(request: Request, plain: CallTool | Relay) -> Retry:
    """The request as the retry of an earlier one; `plain` is the same request without answers and
    state.
    """
    responses = request.params.get("inputResponses")
    return Retry(
        request=plain,
        answers=rounds.read_answers(request),
        responses=None if responses is None else request.text[responses.start : responses.end],
        state=requests.read_request_state(request.params),
        text=request.text,
    )


def _update_task(request: Request) -> UpdateTask:
    if "inputResponses" not in request.params:
        raise InvalidParams("inputResponses must be an object")
    answers = rounds.read_answers(request)
    return UpdateTask(id=request.id, task=task_id(request.params), answers=answers)


_PROGRESS: Final = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}'
