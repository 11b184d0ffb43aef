"""Hosts of 2026-07-28: what their requests ask, and how they are answered. Pure; holds no session, since there is none.

What servers say is made to fit on its way out, as far as it is of the other era. What must not live here: headers, and
what a request says about itself, which is read before it is (`classify`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taskgate.domain.record import InputRequest, RequestId, TaskRecord
from taskgate.domain.versions import Era, Peer
from taskgate.errors import InvalidParams, UnknownMethod
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.spans import RawJson
from taskgate.protocol import vocabulary as words
from taskgate.protocol.dialects import Round
from taskgate.protocol.discovery import ServerDescription, filter_tools, gateway_info
from taskgate.protocol.extensions import Extension, ExtensionPolicy
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
from taskgate.protocol.jsonrpc import result_text
from taskgate.protocol.messages import Notification, Request, Response, meta_of, task_id, tool_name
from taskgate.protocol.modern import mrtr, notices, params, results, rounds, tasks
from taskgate.protocol.modern.capabilities import discover_result
from taskgate.protocol.modern.tools import modern_tools
from taskgate.protocol.server_messages import Answer, Question
from taskgate.protocol.vocabulary import MODERN_RELAYED, ROUND_METHODS

_ROUND = ("inputResponses", "requestState")


def _always(_: str) -> bool:
    return True


class ModernDownstream:
    """The translator for hosts of the modern era. `version` is the gateway's own.

    `names_server` tells of a mount whether its hosts are told which server it is.
    """

    def __init__(self, version: str, names_server: Callable[[str], bool] = _always) -> None:
        self._version = version
        self._names_server = names_server
        self.info = gateway_info(version)

    def decode(
        self, request: Request, said: RequestMeta, *, offers_tasks: bool, extensions: ExtensionPolicy
    ) -> ModernIntent:
        match request.method:
            case words.SERVER_DISCOVER:
                return Discover(id=request.id)
            case words.TOOLS_CALL:
                return _call_tool(request, said, may_be_task=offers_tasks and said.declares_tasks)
            case words.TASKS_GET:
                return _of_era(GetTask(id=request.id, task=task_id(request.params)), said)
            case words.TASKS_CANCEL:
                return _of_era(CancelTask(id=request.id, task=task_id(request.params)), said)
            case words.TASKS_UPDATE:
                return _update(request)
            case words.SUBSCRIPTIONS_LISTEN:
                wants = params.subscription(request.params, extensions)
                return Listen(id=request.id, wants=wants if offers_tasks else replace(wants, tasks=None))
            case method if method in MODERN_RELAYED or extensions.allows_method(method, Era.MODERN):
                return _relay(request, said)
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
        found = discover_result(server, self._version, extensions, offers_tasks=offers_tasks, info=info)
        return result_text(id, found)

    def answer(
        self,
        id: RequestId,
        method: str,
        response: Response,
        era: Era,
        info: RawJson | None = None,
        extension: Extension | None = None,
    ) -> str:
        return results.answer(id, method, response, info, era, extension)

    def tools(
        self,
        id: RequestId,
        response: Response,
        era: Era,
        shows: Callable[[str], bool] | None = None,
        info: RawJson | None = None,
    ) -> str:
        if response.result is None or not results.is_complete(response, words.TOOLS_LIST, era):
            return self.answer(id, words.TOOLS_LIST, response, era, info)
        page = response.text[response.result.start : response.result.end]
        page = modern_tools(page)
        page = page if shows is None else filter_tools(page, shows)
        return result_text(id, results.complete(page, words.TOOLS_LIST, info, era))

    def round_of(self, response: Response) -> Round | None:
        return rounds.round_of(response)

    def missing_capabilities(self, response: Response, host: Peer) -> Mapping[str, Any]:
        return rounds.lacking_for(response, host)

    def passed_round(self, id: RequestId, response: Response, state: str | None, info: RawJson | None = None) -> str:
        return rounds.passed_round(id, response, state, info)

    def input_required(self, id: RequestId, questions: Mapping[str, Question], state: str) -> str:
        asked = {key: mrtr.question_request(question) for key, question in questions.items()}
        return result_text(id, mrtr.input_required(asked, state, self.info))

    def is_valid_answer(self, method: str, answer: Answer) -> bool:
        return mrtr.fits(method, answer)

    def digest(self, request: CallTool | Relay) -> str:
        return rounds.digest(request)

    def with_answers(self, retry: Retry, state: str | None) -> CallTool | Relay:
        return rounds.again(retry, state)

    def notification(self, notification: Notification, token: RequestId | None, id: RequestId | None = None) -> str:
        return notices.on_notification(notification, token, id)

    def progress(self, token: RequestId, done: float, message: str) -> str:
        return notices.progress(token, done, message)

    def wants_log(self, notification: Notification, level: str | None) -> bool:
        return notices.is_loud_enough(notification, level)

    def task_created(self, id: RequestId, record: TaskRecord) -> str:
        return result_text(id, tasks.create_result(record, self.info))

    def task_state(self, id: RequestId, record: TaskRecord) -> MessageText:
        shown = tasks.get_result(record, self.info, names_server=self._names_server(record.owner.mount))
        if isinstance(shown, str):
            return result_text(id, shown)
        return shown.wrapped(result_text(id, "")[:-1], "}")

    def acknowledgement(self, id: RequestId) -> str:
        return result_text(id, tasks.acknowledgement(self.info))

    def open_inputs(self, record: TaskRecord) -> Mapping[str, InputRequest]:
        return tasks.outstanding(record)

    def subscription_granted(self, id: RequestId, granted: Subscription) -> str:
        return notices.acknowledged(id, granted)

    def stream_notification(self, id: RequestId, notification: Notification) -> str:
        return notices.published(notification, id)

    def task_notification(self, id: RequestId, record: TaskRecord) -> MessageText:
        return tasks.task_notification(record, id, names_server=self._names_server(record.owner.mount))

    def subscription_ended(self, id: RequestId) -> str:
        return result_text(id, notices.listen_result(id, self.info))


def _call_tool(request: Request, said: RequestMeta, *, may_be_task: bool) -> CallTool | Retry:
    tool = tool_name(request.params)
    ready = params.passage(request, less=_ROUND)
    kept = None
    if may_be_task:
        # Where there is no token, nothing else is left out.
        kept = ready.head if ready.tail is None else params.kept(request, less=_ROUND)
    call = CallTool(
        id=request.id,
        tool=tool,
        params=ready,
        stored_params=kept,
        progress_token=said.progress_token,
        wants_task=False,
        ttl=None,
        idempotency_key=read_idempotency_key(meta_of(request.params)),
    )
    return _next_round(request, call) or call


def _relay(request: Request, said: RequestMeta) -> Relay | Retry:
    in_rounds = request.method in ROUND_METHODS
    ready = params.passage(request, less=_ROUND if in_rounds else ())
    relay = Relay(id=request.id, method=request.method, params=ready, progress_token=said.progress_token)
    return (_next_round(request, relay) if in_rounds else None) or relay


def _next_round(request: Request, asking: CallTool | Relay) -> Retry | None:
    """The request as the next round of one before it, where it brings answers or a state."""
    if request.params.keys().isdisjoint(_ROUND):
        return None
    brought = request.params.get("inputResponses")
    return Retry(
        request=asking,
        answers=mrtr.answers(request),
        responses=None if brought is None else request.text[brought.start : brought.end],
        state=params.request_state(request.params),
        text=request.text,
    )


def _of_era(intent: GetTask | CancelTask, said: RequestMeta) -> GetTask | CancelTask | LegacyTaskRequest:
    """Without the extension only hosts with tasks of the other era are let come here (AMB-19)."""
    return intent if said.declares_tasks else LegacyTaskRequest(request=intent)


def _update(request: Request) -> UpdateTask:
    if "inputResponses" not in request.params:
        raise InvalidParams("inputResponses must be an object")
    given = mrtr.answers(request)
    return UpdateTask(id=request.id, task=task_id(request.params), answers=given)
