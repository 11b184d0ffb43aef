"""The dialect for legacy servers: `LegacyUpstream`.

`upstream/legacy` writes requests with it, and reads the messages of servers. `questions` has the
questions that servers ask.

`LegacyServerTasks` is about tasks that servers of 2025-11-25 make of calls. A call asks for a task by
its `task` member, and the server answers with the handle of a task. `upstream/legacy` polls that task
by `tasks/get` until it ends, and gets the outcome by `tasks/result`. The outcome becomes the response
to the call: the server's text without the keys of `_meta` that name the task. For a failed task
without a result, the gateway writes a tool error.

The module stays whole because the messages of a call and those of its task have the same readers.
"""

from datetime import timedelta
from typing import Any, Final

from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import RequestId, TaskStatus
from taskgate.domain.versions import NEWEST_LEGACY, Era, Peer, Revision, era_of, find_revision
from taskgate.errors import MalformedMessage, UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.jsontext.spans import Members, RawJson, may_have_key, members, skip_space
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import (
    MAX_WELCOME,
    ListedTool,
    ServerDescription,
    ToolPage,
    hints_of,
    is_tool,
    server_info,
    undefined_members,
)
from taskgate.protocol.extensions import ExtensionPolicy, dump_capabilities
from taskgate.protocol.faults import protocol_violation, request_refused
from taskgate.protocol.headers import read_header_paths
from taskgate.protocol.jsonrpc import is_id, notification_text, read_text_result, request_text, result_text
from taskgate.protocol.legacy import capabilities, questions
from taskgate.protocol.legacy.results import WITHOUT_TASK
from taskgate.protocol.legacy.tasks import MILLISECOND
from taskgate.protocol.messages import Notification, Params, Request, Response, short_info, value_of
from taskgate.protocol.meta import edits_for
from taskgate.protocol.server_messages import (
    TASK_MEMBERS,
    CallProgress,
    CallResponse,
    LegacyServerMessage,
    ServerTask,
    SessionNotification,
    TaskStatusNotification,
    WithdrawnQuestion,
    call_outcome,
    parse_message,
    parse_response,
    read_server_task,
    read_unaddressed_error,
    sent_id,
)

MAX_TTL: Final = timedelta(milliseconds=2**31 - 1)
"""Longest TTL: released servers set a timer for it, which ends at once for anything longer."""

_DISTINCT_ID: Final = 8
"""Shortest task id, in characters, whose occurrence in an error counts as naming the task: a
shorter one may be there by chance.
"""

_UNKNOWN: Final = frozenset({names.INVALID_PARAMS, names.METHOD_NOT_FOUND})
"""Error codes by which a server says that it does not know the task."""
_RESULT_MEMBERS: Final = frozenset({"content", "structuredContent", "isError"})
"""Members of a tool result; one is enough to know it as such."""


class LegacyServerTasks:
    """Requests and responses about tasks of servers. It has no state; task ids are the server's own.

    A malformed response raises UpstreamFailed.
    """

    def is_supported(self, server: Peer) -> bool:
        """Whether the server makes tasks of calls on request (L-TOOL-6)."""
        found: Any = server.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            found = found.get(name) if isinstance(found, dict) else None
        return server.revision.has_tasks and isinstance(found, dict)

    def with_task(self, params: Params, ttl: timedelta) -> Params:
        """The parameters of a call with a `task` member, which asks for a task of that ttl.

        The ttl is cut to what servers support. Parameters that are no object stay as they are.
        """
        # The head is the text before the progress token, or all of it: the object begins there.
        head = params.head
        at = head.find("{") + 1
        if at == 0:
            return params
        first = skip_space(head, at)
        comma = "" if head[first : first + 1] == "}" else ","
        member = f'"task":{{"ttl":{max(1, min(ttl, MAX_TTL) // MILLISECOND)}}}{comma}'
        return Params(head[:at] + member + head[at:], params.tail)

    def params(self, task: str) -> Params:
        """The parameters of a `tasks/*` request about that task."""
        # The related-task key is not sent: servers that find it send the answer on the stream of
        # the task. Only `taskId` selects the task (L-GET-3).
        return Params(dump({"taskId": task}))

    def read_created(self, response: Response) -> ServerTask | None:
        """The task that a response announces; None for any other response, which is the call's
        own.
        """
        found = {} if response.result is None else response.result.members or {}
        task = value_of(found, "task") if "content" not in found else None
        if not isinstance(task, dict):
            return None
        return read_server_task(task, task.get("pollInterval"), is_new=True)

    def read_state(self, task: str, response: Response) -> ServerTask | None:
        """The task in a response to `tasks/get`; None if the server does not know it.

        Raises UpstreamFailed (refused) for any other error, which says nothing about the task.
        """
        if response.error is not None:
            if response.error_code in _UNKNOWN:
                return None
            raise _unknown_outcome()
        assert response.result is not None, "a response without an error has a result"
        now = _read_task(response.result.members or {})
        if now.id != task:
            raise protocol_violation("it returned another task than the one that was requested")
        return now

    def read_outcome(self, task: ServerTask, response: Response) -> Response | None:
        """The response to the call itself, from the response to `tasks/result`.

        `task` is the state at the last poll. A tool result counts whatever that state is; anything
        else is the outcome only if the task has ended. None if it has not, as far as known: the
        caller polls, and calls this again.

        Raises UpstreamFailed: `closed` if the server cancelled the task, `malformed` for a task
        without a result, `call_lost` if it completed and its result is gone. For `refused` nothing
        is known about the outcome, and the caller may ask again.
        """
        found = None if response.result is None else response.result.members
        if found is not None and not _RESULT_MEMBERS.isdisjoint(found):
            # A tool result is the outcome whatever the status: that is of the last poll, and older.
            return _without_task(response)
        is_about_task = response.error is not None and _names_task(task.id, response)
        match task.status:
            case TaskStatus.CANCELLED:
                raise _failed(UpstreamReason.CLOSED, "The server cancelled the call")
            # A failed task whose answer has neither a tool result nor an error of the call.
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
    """The task in `notifications/tasks/status` of a server; None if its id or status is invalid."""
    try:
        return _read_task(notification.params)
    except UpstreamFailed:
        return None


def _read_task(found: Members) -> ServerTask:
    # A fraction of a millisecond is accepted: released servers send it.
    return read_server_task({name: value_of(found, name) for name in TASK_MEMBERS}, value_of(found, "pollInterval"))


def _names_task(task: str, response: Response) -> bool:
    """Whether the text of an error has the id of the task.

    Such an error is about the task, which hosts do not know. Any other is the error of the call.
    """
    assert response.error is not None, "only errors are passed here"
    return len(task) >= _DISTINCT_ID and task in response.text[response.error.start : response.error.end]


def _without_task(response: Response) -> Response:
    """The response without the keys of `_meta` that name a task or a stream, and without taskgate's
    own (T22).

    A `_meta` that has no other key goes too. Raises UpstreamFailed (malformed) if the result is no
    object.
    """
    assert response.result is not None, "only results are passed here"
    found = response.result.members
    if found is None:
        raise protocol_violation("the result of its task is not an object")
    edits = edits_for(found, response.result.start, WITHOUT_TASK)
    return parse_response(splice(response.text, edits)) if edits else response


def _tool_error(id: RequestId, message: str | None) -> Response:
    """A result with `isError` for a failed task without a result, as a call without a task would
    have.

    `message` is the task's status message, None without one.
    """
    text = message or "The server's task failed"
    return parse_response(result_text(id, dump({"content": [{"type": "text", "text": text}], "isError": True})))


def _unknown_outcome() -> UpstreamFailed:
    """The failure for an error that says neither how the task ended nor that it is unknown."""
    return _failed(UpstreamReason.REFUSED, "The server does not return the outcome of the call")


def _failed(reason: UpstreamReason, text: str) -> UpstreamFailed:
    return UpstreamFailed(reason, text, dispatched=True)


class LegacyUpstream:
    """Messages to and from legacy servers. A malformed message raises UpstreamFailed.

    `version` is the gateway's, for clientInfo; `extensions` says which extensions cross. `host` is
    the host of a session, None if there is none. `tasks` has what is about tasks that servers make
    of calls. `url_questions` and `is_accepted` are about URLs that a server wants visited before it
    serves a request.
    """

    tasks: Final = LegacyServerTasks()

    answer = staticmethod(questions.encode_answer)
    default_answer = staticmethod(questions.default_answer)
    is_accepted = staticmethod(questions.is_accepted)
    notification = staticmethod(questions.encode_host_notification)
    outcome = staticmethod(call_outcome)
    url_questions = staticmethod(questions.url_questions)

    def __init__(self, version: str, extensions: ExtensionPolicy) -> None:
        self._version = version
        self._extensions = extensions

    def handshake(self, id: RequestId, host: Peer | None, offered: Revision = NEWEST_LEGACY) -> str:
        """`initialize` with that revision, and with the capabilities of `host` that cross the
        gateway.
        """
        info = {"name": "taskgate", "version": self._version}
        declared = capabilities.declared(host)
        if host is not None:
            declared |= self._extensions.host_capabilities(host.capabilities, era_of(host.revision), Era.LEGACY)
        members_ = f'"protocolVersion":"{offered.value}","capabilities":{dump_capabilities(declared)}'
        return request_text(id, names.INITIALIZE, f'{{{members_},"clientInfo":{dump(info)}}}')

    def read_welcome(self, response: Response) -> ServerDescription:
        """The server's answer to `initialize`; UpstreamFailed if it refused or speaks no known
        revision.
        """
        if response.result is None:
            raise request_refused("The server refused to open a session")
        text = response.text[response.result.start : response.result.end]
        if len(text) > MAX_WELCOME:
            raise protocol_violation("its result of initialize is too long")
        try:
            result = members(text, {"capabilities": {"extensions": {}, "experimental": {}}, "_meta": {}})
        except MalformedMessage:
            # Both are edited for hosts, which needs unique keys.
            raise protocol_violation("its result of initialize repeats a key, or has too many keys") from None
        revision = find_revision(value_of(result, "protocolVersion"))
        if revision is None:
            raise protocol_violation("it chose an unknown protocol revision")
        declared, info = result.get("capabilities"), value_of(result, "serverInfo")
        if declared is None or not isinstance(declared.value, dict):
            raise protocol_violation("it declared no capabilities")
        instructions = result.get("instructions")
        has_instructions = instructions is not None and isinstance(instructions.value, str)
        return ServerDescription(
            peer=Peer(
                revision=revision,
                capabilities=declared.value,
                info=short_info(info) if isinstance(info, dict) else {},
            ),
            capabilities=text[declared.start : declared.end],
            instructions=text[instructions.start : instructions.end] if instructions and has_instructions else None,
            info=server_info(text, result.get("serverInfo")),
            rest=undefined_members(text, result),
        )

    def initialized(self) -> str:
        """The notification that ends the handshake."""
        return notification_text(names.NOTE_INITIALIZED)

    def call(self, id: RequestId, method: str, params: Params | None) -> MessageText:
        """A request whose id is its progress token too."""
        if params is not None and params.views:
            token = b"" if params.tail is None else str(id).encode()
            head = request_text(id, method, "")[:-1].encode()
            return JsonChunks([head, params.views[0], token, *params.views[1:], b"}"])
        if params is None or params.tail is None:
            return request_text(id, method, None if params is None else params.head)
        return request_text(id, method, params.with_token(id))

    def with_token_slot(self, params: RawJson) -> Params:
        """The parameters of a call, split where a progress token belongs; `call` puts it there.

        Parameters that are no object, or have a `_meta` and repeat a key, stay whole, and the call
        gets no progress.
        """
        if params.startswith('{"') and not may_have_key(params, "_meta"):
            # The usual case needs no look at the members: there is one, and none is `_meta`.
            return Params('{"_meta":{"progressToken":', f"}},{params[1:]}")
        try:
            found = members(params, {"_meta": {}})
        except MalformedMessage:
            # A call without progress is better than a refused one: its server may be able to read
            # it.
            return Params(params)
        meta = found.get("_meta")
        if meta is None:
            return _with_slot(params, params.find("{") + 1, '"_meta":{"progressToken":', "}", has_more=bool(found))
        if meta.members is None:
            return Params(params)
        token = meta.members.get("progressToken")
        if token is not None:
            return Params(params[: token.start], params[token.end :])
        return _with_slot(params, meta.start + 1, '"progressToken":', "", has_more=bool(meta.members))

    def page_of_tools(self, cursor: RawJson | None) -> Params:
        """The parameters of a request for a page of `tools/list`."""
        return Params("{}" if cursor is None else f'{{"cursor":{cursor}}}')

    def read_tools(self, response: Response) -> ToolPage:
        """The tools and next cursor of a page of `tools/list`; UpstreamFailed if the server
        refused.
        """
        if response.result is None:
            raise request_refused("The server refused to list its tools")
        text = response.text[response.result.start : response.result.end]
        result = members(text)
        tools = result["tools"].whole if "tools" in result else None
        if not isinstance(tools, list):
            raise protocol_violation("its list of tools is not valid")
        cursor = result.get("nextCursor")
        has_more = cursor is not None and isinstance(cursor.value, str)
        return ToolPage(
            tools={tool["name"]: _listed_tool(tool) for tool in tools if is_tool(tool)},
            cursor=text[cursor.start : cursor.end] if cursor and has_more else None,
        )

    def cancel(self, id: RequestId, reason: str) -> str:
        """The notification that the gateway no longer waits for a call."""
        return notification_text(names.NOTE_CANCELLED, dump({"requestId": id, "reason": reason}))

    def decode(self, message: bytes, host: Peer | None) -> LegacyServerMessage:
        """A message of the server; None for a notification that is ignored.

        A `ping`, and a question that `host` cannot be asked, give an ImmediateReply, which the
        caller sends to the server (L-INPUT-6). Raises UpstreamFailed (malformed) for no JSON-RPC.
        """
        parsed = read_text_result(message) or parse_message(message)
        if type(parsed) is Response:
            return CallResponse(parsed)
        if type(parsed) is Notification and parsed.method == names.NOTE_PROGRESS:
            token = parsed.params.get("progressToken")
            # A token of the gateway is an integer; a boolean is none.
            value = None if token is None else sent_id(token.value)
            return CallProgress(value, parsed) if type(value) is int else None
        match parsed:
            case Request():
                return questions.read_question(parsed, host)
            case Notification(method=names.NOTE_CANCELLED):
                id_ = value_of(parsed.params, "requestId")
                return WithdrawnQuestion(id_) if is_id(id_) else None
            case Notification(method=names.NOTE_TASK_STATUS):
                task = read_status(parsed)
                return None if task is None else TaskStatusNotification(task)
            case Notification(method=method) if method in names.RELAYED_NOTICES:
                return SessionNotification(parsed)
            case Notification(method=method) if host is not None and self._allows_extension(method, host):
                return SessionNotification(parsed)
        return None

    def response_to(self, id: int, message: bytes) -> Response | None:
        """The response to the request `id` that a message is; None if it is another message."""
        parsed = read_text_result(message) or parse_message(message)
        return parsed if type(parsed) is Response and parsed.id == id else None

    read_unaddressed_error = staticmethod(read_unaddressed_error)

    def _allows_extension(self, notification: str, host: Peer) -> bool:
        return self._extensions.allows_notification(notification, era_of(host.revision), Era.LEGACY)

    def allows_notification(self, notification: Notification, host: Peer | None) -> bool:
        """Whether a notification of `host` is for its server, by the host's capabilities."""
        return capabilities.allows_notification(host, notification.method)


def _with_slot(params: RawJson, at: int, key: str, end: str, *, has_more: bool) -> Params:
    """The text with a new first member at `at`, split at its value; unchanged if it is no
    object.
    """
    if at == 0:
        return Params(params)
    return Params(params[:at] + key, end + ("," if has_more else "") + params[at:])


def _listed_tool(tool: dict[str, Any]) -> ListedTool:
    try:
        header_paths = read_header_paths(tool.get("inputSchema"))
    except ValueError:
        # Legacy servers need not know of headers: this only looks like an annotation.
        header_paths = {}
    return ListedTool(_own_support(tool), header_paths, hints_of(tool))


def _own_support(tool: dict[str, Any]) -> TaskSupport | None:
    """The task support that the server gives the tool; None if it names none that is known."""
    execution = tool.get("execution")
    word = execution.get("taskSupport") if isinstance(execution, dict) else None
    return TaskSupport(word) if isinstance(word, str) and word in _SUPPORT_WORDS else None


_SUPPORT_WORDS = frozenset(TaskSupport)
"""The values of `execution.taskSupport`."""
