"""The dialect for legacy hosts: `LegacyDownstream`.

`decode` reads a host's message as an intent. The other methods write the messages that hosts get.
The revisions of the era differ in one fact: only 2025-11-25 has tasks. A host of any other
revision, or at a mount without tasks, is served as if tasks did not exist.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from taskgate.domain.listing import ListedTask
from taskgate.domain.policy import SupportOf
from taskgate.domain.record import Faulted, InputRequest, RequestId, Succeeded, TaskRecord
from taskgate.domain.versions import NEWEST_LEGACY, Era, Peer, Revision, era_of, find_revision
from taskgate.errors import InvalidParams, SessionRequired, UnknownMethod
from taskgate.jsontext.edits import Edits, dump, insertion, removals, splice
from taskgate.jsontext.large import LargeJson, MessageText, wrap
from taskgate.jsontext.spans import Members, RawJson
from taskgate.protocol import faults
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import ServerDescription, filter_tools, gateway_info, welcome_result
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.handoff import text_result
from taskgate.protocol.host_requests import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelCall,
    CancelTask,
    GetTask,
    Ignore,
    LegacyIntent,
    ListTasks,
    OpenSession,
    Relay,
    read_idempotency_key,
)
from taskgate.protocol.jsonrpc import UsualProgress, error_text, is_id, notification_text, result_text, with_id
from taskgate.protocol.legacy import capabilities, questions, results
from taskgate.protocol.legacy.listing import FILTER_CAPABILITY, read_cursor, read_listing
from taskgate.protocol.legacy.results import WITHOUT_TASK, EraCrossing, convert_tools, with_task_support
from taskgate.protocol.legacy.tasks import (
    INTERVAL_KEY,
    MILLISECOND,
    create_result,
    list_result,
    plain_result,
    related_result,
    task_object,
)
from taskgate.protocol.messages import (
    Message,
    Notification,
    Params,
    Request,
    Response,
    amended,
    check_capabilities,
    meta_of,
    required_string,
    short_info,
    spliced_params,
    task_id,
    tool_name,
    value_of,
)
from taskgate.protocol.meta import OWN_PREFIX, edit_object, edits_for, legacy_hop_keys
from taskgate.protocol.polled_tasks import PolledTasks

TASK_CAPABILITY = '{"cancel":{},"requests":{"tools":{"call":{}}}}'
LISTING_CAPABILITY = f'{{"cancel":{{}},"list":{{"filter":{FILTER_CAPABILITY}}},"requests":{{"tools":{{"call":{{}}}}}}}}'
"""The `tasks` capability for hosts; with `list` only if callers can be told apart (L-CAP-2)."""


MAX_TTL: Final = timedelta(days=36_500)
"""Longest TTL; anything longer is cut to it, so that no date overflows."""
_MAX_TTL_MILLISECONDS: Final = MAX_TTL // MILLISECOND


@dataclass(slots=True)
class TaskOptions:
    """The `task` member of a call: the host wants a task with that TTL, None for any."""

    ttl: timedelta | None


class LegacyDownstream:
    """Messages from and to legacy hosts; `version` is the gateway's, for the welcome.

    With `lists`, callers can be told apart, so each may list its own tasks. `crossing` is None for a
    response of a legacy server; a modern server's response is converted. `peer` is the host of a
    session.
    """

    acknowledges_cancel = False
    """Whether a host gets no error for the cancellation of a task that has ended."""
    state_has_result = False
    """Whether `task_state` has the result of an ended task, so that it needs the record's bodies."""

    can_ask = staticmethod(capabilities.can_ask)
    input_id = staticmethod(questions.input_id)
    input_of = staticmethod(questions.input_of)
    notification = staticmethod(questions.encode_notification)
    relayed_progress = staticmethod(UsualProgress.with_token)
    progress = staticmethod(questions.encode_progress)
    question = staticmethod(questions.encode_question)
    settled_task = staticmethod(questions.settled_task)
    wants_task = staticmethod(questions.wants_task)
    withdrawal = staticmethod(questions.encode_withdrawal)

    def __init__(self, version: str, *, lists: bool = False) -> None:
        self._lists = lists
        self._tasks = LISTING_CAPABILITY if lists else TASK_CAPABILITY
        self._version = version
        self._polled = PolledTasks()

    def decode(
        self,
        message: Message,
        peer: Peer | None,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        hands_off: bool = False,
    ) -> LegacyIntent:
        """The intent of a message; `peer` is the host of its session, None without a session.

        `offers_tasks` says whether calls at this mount can become tasks, `hands_off` whether they can
        without the host's wish. Raises SessionRequired for
        anything but `initialize` if `peer` is None. Raises InvalidParams, UnknownMethod,
        TaskNotFound (an id of a wrong form) or MalformedMessage (a lone surrogate in a tool's
        name).
        """
        if isinstance(message, Request) and message.method == names.INITIALIZE:
            return _open_session(message)
        if peer is None:
            raise SessionRequired("The message needs a session: send initialize first")
        if not isinstance(message, Request):
            return _read_other(message)
        # Tasks exist for a host at a mount that offers them, in a revision that has them.
        has_tasks = offers_tasks and peer.revision.has_tasks
        if message.params_text and message.params_text[0] != "{":
            raise InvalidParams("params must be an object")
        match message.method:
            case names.TOOLS_CALL:
                return _call_tool(message, has_tasks=has_tasks, hands_off=hands_off)
            case names.PING:
                return AnswerPing(id=message.id)
            case names.TASKS_GET if has_tasks:
                return GetTask(message.id, task_id(message.params))
            case names.TASKS_RESULT if has_tasks:
                return AwaitTask(id=message.id, task=task_id(message.params))
            case names.TASKS_CANCEL if has_tasks:
                return CancelTask(id=message.id, task=task_id(message.params))
            case names.TASKS_LIST if has_tasks and self._lists:
                where, order = read_listing(message.params)
                return ListTasks(id=message.id, where=where, order=order, cursor=read_cursor(message.params))
            case method if method in names.RELAYED_METHODS or extensions.allows_method(method, Era.LEGACY):
                params, token = prepare_params(message) or (None, None)
                return Relay(message.id, method, params, token)
        raise UnknownMethod("Method not found")

    def welcome(
        self,
        intent: OpenSession,
        server: ServerDescription,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `initialize`; `info` replaces the server's serverInfo, None leaves it."""
        has_tasks = offers_tasks and intent.peer.revision.has_tasks
        put = {
            "protocolVersion": dump(intent.peer.revision.value),
            "capabilities": _capabilities(server, self._tasks if has_tasks else None, extensions),
            # Required in this era, even if the server does not name itself.
            "serverInfo": info or server.info or gateway_info(self._version),
        }
        return result_text(intent.id, welcome_result(server, put, self._version))

    def pong(self, id: RequestId) -> str:
        """The answer to `ping`."""
        return result_text(id, "{}")

    def answer(self, id: RequestId, response: Response, crossing: EraCrossing | None = None) -> MessageText:
        """A server's response under the host's id.

        `crossing` is None for a response of a legacy server. With it, the response is of a modern
        server, and is converted.
        """
        if crossing is not None:
            return results.convert_response(id, response, crossing)
        found = None if response.result is None else response.result.members
        if response.result is None or not found or "_meta" not in found or not _has_hop_keys(found):
            return with_id(response, id)
        edits = edits_for(found, response.result.start, WITHOUT_TASK)
        return amended(response, [(*response.id_span, dump(id)), *edits])

    def tools(
        self,
        id: RequestId,
        response: Response,
        support: SupportOf | None,
        shows: Callable[[str], bool] | None = None,
        crossing: EraCrossing | None = None,
        own: Callable[[RawJson], RawJson] | None = None,
    ) -> MessageText:
        """A page of `tools/list` under the host's id, with the task support of each tool.

        Without `support`, for a session without tasks, no tool mentions them. Tools that `shows`
        rejects are left out; None shows all. `own` adds the tools of the gateway.
        """
        if response.result is None or (crossing is not None and not results.is_complete(response)):
            return self.answer(id, response, crossing)
        page = response.text[response.result.start : response.result.end]
        if crossing is not None:
            page = convert_tools(page)
        elif response.result.members is not None and _has_hop_keys(response.result.members):
            page = edit_object(page, WITHOUT_TASK)
        if shows is not None:
            page = filter_tools(page, shows)
        page = with_task_support(page, support)
        return result_text(id, page if own is None else own(page))

    def input_request(self, record: TaskRecord, request: InputRequest) -> str:
        """An input request of a task, under its `input_id`."""
        return questions.encode_input_request(record.id, request)

    def task_created(self, id: RequestId, record: TaskRecord, response: str | None, interval: int | None = None) -> str:
        """The handle of a new task; `response` is a text for the model meanwhile, None for none.

        `interval` as in `task_object`.
        """
        return result_text(id, create_result(record, response, interval))

    def task_state(self, id: RequestId, record: TaskRecord, interval: int) -> str:
        """The answer to `tasks/get`; `interval` is the poll interval in milliseconds."""
        polled = self._polled.get(record.id)
        if polled is None or polled[0]() is not record:
            polled = self._polled.add(record, task_object(record, 0), INTERVAL_KEY)
        _, before, behind = polled
        return result_text(id, f"{before}{interval}{behind}")

    def task_cancelled(self, id: RequestId, record: TaskRecord | None) -> str:
        """The answer to a successful `tasks/cancel`, with the cancelled record."""
        assert record is not None, "a task that had ended is an error in this era"
        return result_text(id, task_object(record))

    def task_page(self, id: RequestId, tasks: Sequence[ListedTask], cursor: str | None) -> str:
        """The answer to `tasks/list`; `cursor` is of the next page, None on the last."""
        return result_text(id, list_result(tasks, cursor))

    def task_outcome(self, id: RequestId, record: TaskRecord) -> MessageText:
        """The answer to `tasks/result`: the response that the call would have had without a task.

        The record must be terminal, and be loaded with its bodies. An outcome from a modern server
        is converted to this era. A cancelled task has the error of `faults.cancelled_error`.
        """
        match record.outcome:
            case Succeeded(result=result):
                return related_result(id, result, record.id)
            case Faulted(error=LargeJson() as error):
                return wrap(error_text(id, "")[:-1], results.convert_large_error(error), "}")
            case Faulted(error=str(error)):
                return error_text(id, results.convert_error(error, names.TOOLS_CALL))
        return error_text(id, faults.cancelled_error(record))

    def text_result(self, id: RequestId, text: str) -> str:
        """The result of a tool that is a text of the gateway for a model."""
        return result_text(id, text_result(text))

    def call_outcome(self, id: RequestId, record: TaskRecord, info: RawJson | None, host: Revision) -> MessageText:
        """The response to a call that has become a task and ended, for a host that knows no task.

        As `task_outcome`, without the related-task key; `info` is of the other era. `host` is the host's revision.
        """
        match record.outcome:
            case Succeeded(result=result):
                return plain_result(id, result, host)
        return self.task_outcome(id, record)

    def task_status(self, record: TaskRecord, interval: int | None = None) -> str:
        """The notification of a task's state; `interval` as in `task_object`."""
        return notification_text(names.NOTE_TASK_STATUS, task_object(record, interval))


def _open_session(request: Request) -> OpenSession:
    """The intent of `initialize`. An unknown revision is answered with the newest legacy one."""
    offered = required_string(request.params, "protocolVersion", "protocolVersion")
    check_capabilities(request.params.get("capabilities"))
    capabilities, info = _object(request, "capabilities"), short_info(_object(request, "clientInfo"))
    peer = Peer(revision=find_revision(offered) or NEWEST_LEGACY, capabilities=capabilities, info=info)
    return OpenSession(id=request.id, peer=peer)


def _object(request: Request, name: str) -> dict[str, Any]:
    """An object of the handshake; empty if it is missing: a released host leaves it out."""
    member = request.params.get(name)
    if member is None or (value := member.value) is None:
        return {}
    if not member.is_object:
        raise InvalidParams(f"{name} must be an object")
    # An object with too many parts is not read.
    return value if isinstance(value, dict) else {}


def _read_other(message: Notification | Response) -> LegacyIntent:
    """The intent of a notification or of a response."""
    if isinstance(message, Response):
        return questions.read_answer(message)
    if message.method == names.NOTE_CANCELLED:
        id_ = value_of(message.params, "requestId")
        return CancelCall(request=id_) if is_id(id_) else Ignore()
    return questions.read_notification(message)


def _call_tool(request: Request, *, has_tasks: bool, hands_off: bool) -> CallTool:
    name = tool_name(request)
    options = read_task_options(request.params) if has_tasks and "task" in request.params else None
    prepared = prepare_params(request)
    assert prepared is not None, "a call without parameters has no tool name"
    params, token = prepared
    stored = key = None
    if options is not None or hands_off:
        # Without a token, both texts are equal.
        stored = params.head if params.tail is None else stored_params(request)
    if "_meta" in request.params:
        key = meta_of(request.params).get(names.IDEMPOTENCY_KEY)
    return CallTool(
        id=request.id,
        tool=name,
        params=params,
        stored_params=stored,
        progress_token=token,
        wants_task=options is not None,
        ttl=options.ttl if options else None,
        idempotency_key=None if key is None else read_idempotency_key(key),
    )


def _capabilities(server: ServerDescription, tasks: RawJson | None, extensions: ExtensionPolicy) -> RawJson:
    """The server's capabilities that cross the gateway, plus `tasks` if the server has tools."""
    found = extensions.server_capabilities(server.capabilities, Era.LEGACY, era_of(server.peer.revision), {})
    if tasks is not None and "tools" in server.peer.capabilities:
        found = splice(found, [insertion(found, "tasks", tasks)])
    return found


def _has_hop_keys(found: Members) -> bool:
    """Whether the `_meta` of a legacy server's result has keys that legacy hosts do not get."""
    meta = found.get("_meta")
    return meta is not None and meta.members is not None and bool(legacy_hop_keys(meta.members))


# --- parameters for the server ----------------------------------------------------------------------------------------
#
# What is for the gateway alone is removed from the text: `task`, the related-task key, and
# taskgate's own keys of `_meta`. The progress token is cut out, for the gateway puts its own there.
# Every other byte stays.


def read_task_options(params: Members) -> TaskOptions | None:
    """The `task` member; None if the host wants no task."""
    member = params.get("task")
    if member is None:
        return None
    if member.members is None:
        raise InvalidParams("task must be an object")
    ttl = value_of(member.members, "ttl")
    if ttl is None:
        return TaskOptions(None)
    if not isinstance(ttl, int) or isinstance(ttl, bool) or ttl < 0:
        raise InvalidParams("task.ttl must be a whole number of milliseconds, zero or more")
    return TaskOptions(MAX_TTL if ttl > _MAX_TTL_MILLISECONDS else _lifetime(ttl))


@lru_cache(maxsize=256)
def _lifetime(milliseconds: int) -> timedelta:
    """A lifetime that a host asks for; many calls ask for few."""
    return timedelta(milliseconds=milliseconds)


def prepare_params(request: Request) -> tuple[Params, RequestId | None] | None:
    """The parameters of a request for a server, split at the progress token, and that token, None
    without one; None for a request without parameters.

    Raises InvalidParams for an invalid token, and for a `_meta` that is no object.
    """
    if not request.params_text:
        return None
    meta = request.params.get("_meta")
    if meta is None and "task" not in request.params:
        return spliced_params(request, [], None) if request.body is not None else Params(request.params_text), None
    if meta is not None and meta.members is None:
        raise InvalidParams("_meta must be an object")
    token = None if meta is None or meta.members is None else meta.members.get("progressToken")
    if token is not None and not is_id(token.value):
        raise InvalidParams("The progress token must be a string or an integer")
    params = spliced_params(request, _own_removals(request.params, _NOT_SENT), token)
    return params, None if token is None else token.value


def stored_params(request: Request) -> RawJson:
    """The parameters for a record, without a progress token. Call `prepare_params` first: it checks
    them.
    """
    return spliced_params(request, _own_removals(request.params, _NOT_STORED), None).head


def _own_removals(params: Members, removed: tuple[str, ...]) -> Edits:
    """The edits that remove `task`, the named members of `_meta`, and taskgate's own keys.

    Positions are those of the whole message.
    """
    edits = removals(params, ("task",)) if "task" in params else []
    meta, gone = meta_of(params), set(removed)
    for name in meta:
        if name.startswith(OWN_PREFIX):
            gone.add(name)
    return edits + removals(meta, gone) if not meta.keys().isdisjoint(gone) else edits


_NOT_SENT: Final = (names.RELATED_TASK,)
_NOT_STORED: Final = (*_NOT_SENT, "progressToken")
