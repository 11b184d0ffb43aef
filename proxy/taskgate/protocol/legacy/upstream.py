"""The dialect for legacy servers: `LegacyUpstream`.

`upstream/legacy` writes requests with it, and reads the messages of servers. `questions` has the
questions that servers ask, `server_tasks` the tasks that they make of calls.
"""

from typing import Any, Final

from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import RequestId
from taskgate.domain.versions import NEWEST_LEGACY, Era, Peer, Revision, era_of, find_revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson, members
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
from taskgate.protocol.jsonrpc import is_id, notification_text, read_text_result, request_text
from taskgate.protocol.legacy import capabilities, questions, server_tasks
from taskgate.protocol.messages import Notification, Params, Request, Response, short_info, value_of
from taskgate.protocol.server_messages import (
    CallProgress,
    CallResponse,
    LegacyServerMessage,
    SessionNotification,
    TaskStatusNotification,
    WithdrawnQuestion,
    call_outcome,
    parse_message,
)


class LegacyUpstream:
    """Messages to and from legacy servers. A malformed message raises UpstreamFailed.

    `version` is the gateway's, for clientInfo; `extensions` says which extensions cross. `host` is
    the host of a session, None if there is none. `tasks` has what is about tasks that servers make
    of calls. `url_questions` and `is_accepted` are about URLs that a server wants visited before it
    serves a request.
    """

    tasks: Final = server_tasks.LegacyServerTasks()

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

    def call(self, id: RequestId, method: str, params: Params | None) -> str:
        """A request whose id is its progress token too."""
        if params is None or params.tail is None:
            return request_text(id, method, None if params is None else params.head)
        return request_text(id, method, params.with_token(id))

    def with_token_slot(self, params: RawJson) -> Params:
        """The parameters of a call, split where a progress token belongs; `call` puts it there.

        Parameters that are no object or repeat a key stay whole, and the call gets no progress.
        """
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
            return CallProgress(token.value, parsed) if token is not None and type(token.value) is int else None
        match parsed:
            case Request():
                return questions.read_question(parsed, host)
            case Notification(method=names.NOTE_CANCELLED):
                id_ = value_of(parsed.params, "requestId")
                return WithdrawnQuestion(id_) if is_id(id_) else None
            case Notification(method=names.NOTE_TASK_STATUS):
                task = server_tasks.read_status(parsed)
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
