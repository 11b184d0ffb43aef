"""Servers of the legacy era: what they are told, and what their messages mean. Pure; holds no session.

What they ask of a host is read in `upstream_questions`, what a host declared in `capabilities`, what they want to be
done before they answer in `url_elicitation`, what tasks of their own are said to be in `native_tasks`.
"""

from typing import Any, Final

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import RequestId
from taskgate.domain.versions import NEWEST_LEGACY, Era, Peer, Revision, era_of, find_revision
from taskgate.errors import MalformedMessage, UnparsableMessage, UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson, members
from taskgate.protocol import server_messages
from taskgate.protocol import vocabulary as words
from taskgate.protocol.discovery import (
    MAX_WELCOME,
    ListedTool,
    ServerDescription,
    ToolPage,
    hints_of,
    server_info,
    undefined_members,
)
from taskgate.protocol.extensions import ExtensionPolicy, dump_capabilities
from taskgate.protocol.headers import read_header_paths
from taskgate.protocol.jsonrpc import is_id, notification_text, parse, request_text
from taskgate.protocol.legacy import capabilities, native_tasks, upstream_questions, url_elicitation
from taskgate.protocol.messages import Notification, Params, Request, Response, short_info, value_of
from taskgate.protocol.server_messages import (
    Answer,
    CallProgress,
    CallResponse,
    LegacyServerMessage,
    Question,
    SessionNotification,
    TaskStatusNotification,
    WithdrawnQuestion,
)

MAX_DEPTH: Final = 256
"""How deep a server's message may nest: far above any real one, far below what would hurt to read."""


class LegacyUpstream:
    """The translator for servers of the legacy era. `version` is the gateway's own, told as client info.

    `extensions` is what crosses.
    """

    tasks: Final = native_tasks.NativeTasks()

    def __init__(self, version: str, extensions: ExtensionPolicy) -> None:
        self._version = version
        self._extensions = extensions

    def handshake(self, id: RequestId, host: Peer | None, offered: Revision = NEWEST_LEGACY) -> str:
        info = {"name": "taskgate", "version": self._version}
        declared = capabilities.declared(host)
        if host is not None:
            declared |= self._extensions.host_capabilities(host.capabilities, era_of(host.revision), Era.LEGACY)
        said = f'"protocolVersion":"{offered.value}","capabilities":{dump_capabilities(declared)}'
        return request_text(id, words.INITIALIZE, f'{{{said},"clientInfo":{dump(info)}}}')

    def read_welcome(self, response: Response) -> ServerDescription:
        if response.result is None:
            raise _failed(UpstreamReason.REFUSED, "The server refused to open a session")
        text = response.text[response.result.start : response.result.end]
        if len(text) > MAX_WELCOME:
            raise _broke("its welcome is too long")
        try:
            result = members(text, {"capabilities": {"extensions": {}, "experimental": {}}, "_meta": {}})
        except MalformedMessage:
            # Both are amended for hosts, which a repeated key would not let happen.
            raise _broke("its welcome repeats a key, or has too many") from None
        revision = find_revision(value_of(result, "protocolVersion"))
        if revision is None:
            raise _broke("it speaks no known revision")
        capabilities, info = result.get("capabilities"), value_of(result, "serverInfo")
        if capabilities is None or not isinstance(capabilities.value, dict):
            raise _broke("it declared no capabilities")
        instructions = result.get("instructions")
        told = instructions is not None and isinstance(instructions.value, str)
        return ServerDescription(
            peer=Peer(
                revision=revision,
                capabilities=capabilities.value,
                info=short_info(info) if isinstance(info, dict) else {},
            ),
            capabilities=text[capabilities.start : capabilities.end],
            instructions=text[instructions.start : instructions.end] if instructions and told else None,
            info=server_info(text, result.get("serverInfo")),
            rest=undefined_members(text, result),
        )

    def initialized(self) -> str:
        return notification_text(words.NOTE_INITIALIZED)

    def call(self, id: RequestId, method: str, params: Params | None) -> str:
        return request_text(id, method, None if params is None else params.with_token(id))

    def with_token_slot(self, params: RawJson) -> Params:
        try:
            found = members(params, {"_meta": {}})
        except MalformedMessage:
            # Better untracked than refused for what its server may well read.
            return Params(params)
        meta = found.get("_meta")
        if meta is None:
            return _opened(params, params.find("{") + 1, '"_meta":{"progressToken":', "}", more=bool(found))
        if meta.members is None:
            return Params(params)
        token = meta.members.get("progressToken")
        if token is not None:
            return Params(params[: token.start], params[token.end :])
        return _opened(params, meta.start + 1, '"progressToken":', "", more=bool(meta.members))

    def list_tools(self, id: RequestId, cursor: RawJson | None) -> str:
        return request_text(id, words.TOOLS_LIST, "{}" if cursor is None else f'{{"cursor":{cursor}}}')

    def read_tools(self, response: Response) -> ToolPage:
        if response.result is None:
            raise _failed(UpstreamReason.REFUSED, "The server refused to list its tools")
        text = response.text[response.result.start : response.result.end]
        result = members(text)
        tools = result["tools"].whole if "tools" in result else None
        if not isinstance(tools, list):
            raise _broke("its list of tools is no list")
        cursor = result.get("nextCursor")
        more = cursor is not None and isinstance(cursor.value, str)
        return ToolPage(
            tools={tool["name"]: _listed(tool) for tool in tools if _is_tool(tool)},
            cursor=text[cursor.start : cursor.end] if cursor and more else None,
        )

    def cancel(self, id: RequestId, reason: str) -> str:
        return notification_text(words.NOTE_CANCELLED, dump({"requestId": id, "reason": reason}))

    def decode(self, message: bytes, host: Peer | None) -> LegacyServerMessage:
        try:
            heard = parse(message, max_depth=MAX_DEPTH)
        except (UnparsableMessage, MalformedMessage):
            raise _broke("a message of it is no JSON-RPC message") from None
        match heard:
            case Response():
                return CallResponse(heard)
            case Request():
                return upstream_questions.read_question(heard, host)
            case Notification(method=words.NOTE_PROGRESS):
                token = value_of(heard.params, "progressToken")
                known = isinstance(token, int) and not isinstance(token, bool)
                return CallProgress(token, heard) if known else None
            case Notification(method=words.NOTE_CANCELLED):
                id_ = value_of(heard.params, "requestId")
                return WithdrawnQuestion(id_) if is_id(id_) else None
            case Notification(method=words.NOTE_TASK_STATUS):
                task = native_tasks.told(heard)
                return None if task is None else TaskStatusNotification(task)
            case Notification(method=method) if method in words.RELAYED_NOTICES:
                return SessionNotification(heard)
            case Notification(method=method) if host is not None and self._carries(method, host):
                return SessionNotification(heard)
        return None

    def _carries(self, notification: str, host: Peer) -> bool:
        return self._extensions.allows_notification(notification, era_of(host.revision), Era.LEGACY)

    def answer(self, id: RequestId, answer: Answer) -> str:
        return upstream_questions.answer_text(id, answer)

    def default_answer(self, method: str) -> Answer:
        return upstream_questions.no_answer(method)

    def url_questions(self, response: Response, host: Peer | None) -> tuple[Question, ...]:
        return url_elicitation.request_contexts(response, host)

    def is_accepted(self, answer: Answer) -> bool:
        return url_elicitation.agrees(answer)

    def allows_notification(self, notification: Notification, host: Peer | None) -> bool:
        return capabilities.may_tell(host, notification.method)

    def notification(self, notification: Notification, token: RequestId | None = None) -> str:
        return upstream_questions.passed_on(notification, token)

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        return server_messages.call_outcome(response)


def _opened(params: RawJson, at: int, key: str, end: str, *, more: bool) -> Params:
    """The text with a new first member at `at`, open where its value belongs; as it is where it is no object."""
    if at == 0:
        return Params(params)
    return Params(params[:at] + key, end + ("," if more else "") + params[at:])


def _listed(tool: dict[str, Any]) -> ListedTool:
    try:
        mirrored = read_header_paths(tool.get("inputSchema"))
    except ValueError:
        # Servers of this era need not know of headers; what looks like one of theirs is none.
        mirrored = {}
    return ListedTool(_native_support(tool), mirrored, hints_of(tool))


def _native_support(tool: dict[str, Any]) -> TaskSupport | None:
    execution = tool.get("execution")
    word = execution.get("taskSupport") if isinstance(execution, dict) else None
    return TaskSupport(word) if isinstance(word, str) and word in _SUPPORT_WORDS else None


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def _failed(reason: UpstreamReason, text: str) -> UpstreamFailed:
    return UpstreamFailed(reason, text, dispatched=False)


def _broke(how: str) -> UpstreamFailed:
    return UpstreamFailed(UpstreamReason.MALFORMED, f"The server broke the protocol: {how}", dispatched=True)


_SUPPORT_WORDS = frozenset(TaskSupport)
