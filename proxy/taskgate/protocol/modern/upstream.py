"""The dialect for modern servers: `ModernUpstream`.

`upstream/modern` writes requests with it, and reads the messages of servers. A modern server sends
no requests. It asks by a response, a round, and gets the request again with the answers.

It may make a task of a call: `read_created` finds the task in the answer. `upstream/modern` then polls
by `tasks/get`, and `read_state` reads its state: open questions, or the outcome. A task that has ended
becomes the response to its call, with the same bytes, under the id of that call.

The module stays whole because the messages of a call and those of its task have the same readers.
"""

from builtins import id as identity
from collections.abc import Mapping
from typing import Any, Final

from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import MODERN, Era, Peer, era_of
from taskgate.errors import MalformedMessage, UpstreamFailed
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Member, Members, RawJson, first_keys, members
from taskgate.protocol import vocabulary as names
from taskgate.protocol.discovery import (
    MAX_WELCOME,
    CataloguePage,
    ListedTool,
    ServerDescription,
    ToolPage,
    filter_tools,
    hints_of,
    is_tool,
    server_info,
    undefined_members,
)
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import protocol_violation, request_refused
from taskgate.protocol.headers import read_header_paths
from taskgate.protocol.jsonrpc import error_text, notification_text, parse, read_text_result, result_text
from taskgate.protocol.messages import (
    Notification,
    Params,
    Request,
    Response,
    meta_of,
    short_info,
    value_of,
)
from taskgate.protocol.meta import HOP_KEYS, ObjectEdit, edit_object
from taskgate.protocol.modern import capabilities, requests, rounds
from taskgate.protocol.modern.rounds import read_questions
from taskgate.protocol.server_messages import (
    MAX_SERVER_DEPTH,
    TASK_MEMBERS,
    CallProgress,
    CallResponse,
    EncodedRequest,
    ModernServerMessage,
    RequestDraft,
    ServerRound,
    ServerSubscription,
    ServerTask,
    SessionNotification,
    SubscriptionGrant,
    TaskNotification,
    call_outcome,
    is_server_task_id,
    parse_message,
    parse_response,
    read_server_task,
    read_unaddressed_error,
    sent_id,
)

_LONGEST_TTL: Final = 365 * 24 * 3600 * 1000
"""Milliseconds: a list that may be cached for longer counts as one of this time."""
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


_MAX_CACHED: Final = 256
"""Number of hosts whose encoded capabilities are cached; one more empties the cache."""
_NOTICES: Final = names.RELAYED_NOTICES - {names.NOTE_ELICITATION_COMPLETE}
"""Notifications of a modern server's core that go to hosts."""


class ModernUpstream:
    """Messages to and from modern servers. A malformed message raises UpstreamFailed.

    `version` is the gateway's, for clientInfo; `extensions` says which extensions cross. `host` is
    the host behind a request, None if there is no host to ask. A modern server has no requests of
    its own: its response is a round of questions, and the request is sent again with the answers.
    """

    can_ask = staticmethod(capabilities.can_ask)
    default_answer = staticmethod(rounds.default_answer)
    input_responses = staticmethod(rounds.input_responses)
    needs_tasks = staticmethod(needs_tasks)
    outcome = staticmethod(call_outcome)
    read_created_task = staticmethod(read_created)
    read_task = staticmethod(read_state)

    def __init__(self, version: str, extensions: ExtensionPolicy) -> None:
        self._info = dump({"name": "taskgate", "version": version})
        self._extensions = extensions
        # By the identity of the host, which the value keeps alive: nearly every request is for a
        # known one.
        self._encoded: dict[tuple[int, bool], tuple[Peer | None, RawJson]] = {}

    def discover(self, id: int, host: Peer | None) -> EncodedRequest:
        """`server/discover`."""
        return self.request(id, RequestDraft(method=names.SERVER_DISCOVER), host)

    def read_discovery(self, response: Response) -> ServerDescription | None:
        """The server's description, from the response to `server/discover`.

        None if the server supports no known modern revision, and for an error that a legacy
        server could send too. Raises UpstreamFailed (refused) for an error that only this era has.
        """
        if response.error is not None:
            if response.error_code in names.MODERN_ERRORS and response.error_code != names.UNSUPPORTED_VERSION:
                raise request_refused("The server refused server/discover")
            # Not necessarily an error of this era (V-ERA-7).
            return None
        if len(response.text) > MAX_WELCOME:
            raise protocol_violation("its result of server/discover is too long")
        text, found = _complete_result(response, "its result of server/discover")
        versions = value_of(found, "supportedVersions")
        if not isinstance(versions, list):
            raise protocol_violation("it names no protocol versions that it supports")
        known = [revision for revision in MODERN if revision.value in versions]
        if not known:
            return None
        declared = found.get("capabilities")
        if declared is None or not isinstance(declared.value, dict):
            raise protocol_violation("it declared no capabilities")
        member = meta_of(found).get(names.SERVER_INFO)
        info = None if member is None else member.value
        return ServerDescription(
            peer=Peer(
                revision=known[-1],
                capabilities=declared.value,
                info=short_info(info) if isinstance(info, dict) else {},
            ),
            capabilities=text[declared.start : declared.end],
            instructions=_string_text(text, found, "instructions"),
            info=server_info(text, member),
            rest=undefined_members(text, found),
        )

    def request(self, id: int, draft: RequestDraft, host: Peer | None) -> EncodedRequest:
        """A request under that id, which is its progress token too if progress is wanted."""
        found = self._encoded.get((identity(host), draft.follows_tasks))
        declared = self._encode_capabilities(host, draft) if found is None else found[1]
        return requests.encode_request(id, draft, declared, self._info)

    def listen(self, id: int, wants: ServerSubscription, host: Peer | None) -> EncodedRequest:
        """`subscriptions/listen`: the request for a stream of these notifications."""
        params = Params(requests.subscription_params(wants))
        draft = RequestDraft(method=names.SUBSCRIPTIONS_LISTEN, params=params, follows_tasks=bool(wants.tasks))
        return self.request(id, draft, host)

    def list_tools(self, id: int, cursor: RawJson | None, host: Peer | None) -> EncodedRequest:
        """The request for a page of `tools/list`."""
        params = None if cursor is None else Params(f'{{"cursor":{cursor}}}')
        return self.request(id, RequestDraft(method=names.TOOLS_LIST, params=params), host)

    def read_tools(self, response: Response) -> CataloguePage:
        """A page of `tools/list`; UpstreamFailed if the server refused."""
        if response.error is not None:
            raise request_refused("The server refused to list its tools")
        text, found = _complete_result(response, "its list of tools")
        listed = found["tools"].whole if "tools" in found else None
        if not isinstance(listed, list):
            raise protocol_violation("its list of tools is not valid")
        tools: dict[str, ListedTool] = {}
        unsound: list[str] = []
        for tool in filter(is_tool, listed):
            header_paths = _header_paths(tool)
            if header_paths is None:
                unsound.append(tool["name"])
            else:
                tools[tool["name"]] = ListedTool(header_paths=header_paths, hints=hints_of(tool))
        return CataloguePage(
            page=ToolPage(tools=tools, cursor=_string_text(text, found, "nextCursor"), ttl=_ttl(found)),
            refused=tuple(unsound),
        )

    def without_unsound_tools(self, response: Response) -> Response:
        """An answer to `tools/list` without the tools whose header annotations are unsound."""
        result = response.result
        listed = (result.members or {}).get("tools") if result is not None else None
        if result is None or listed is None or not listed.is_array:
            return response
        unsound = {tool["name"] for tool in listed.whole if is_tool(tool) and _header_paths(tool) is None}
        if not unsound:
            return response
        page = filter_tools(response.text[result.start : result.end], lambda name: name not in unsound)
        return parse_response(splice(response.text, [(result.start, result.end, page)]))

    def decode(self, message: bytes, host: Peer | None) -> ModernServerMessage:
        """A message of the server; None for a notification that is ignored.

        A notification loses the keys of `_meta` that do not cross. A request raises UpstreamFailed
        (malformed): no server of this era may send one, and no answer could be sent (H-MOD-8).
        """
        parsed = read_text_result(message) or parse_message(message)
        match parsed:
            case Response():
                return CallResponse(parsed)
            case Request():
                raise protocol_violation("it sent a request of its own, which this revision does not allow")
            case Notification(method=names.NOTE_PROGRESS):
                token = parsed.params.get("progressToken")
                value = None if token is None else sent_id(token.value)
                if type(value) is not int:
                    # A token of the gateway is an integer; a boolean is none.
                    return None
                return CallProgress(value, _without_hop_keys(parsed) if "_meta" in parsed.params else parsed)
            case Notification(method=names.NOTE_SUBSCRIBED):
                uris, tasks = _granted(parsed, "resourceSubscriptions"), _granted(parsed, "taskIds")
                flags = names.LIST_CHANGES | self._extensions.all_filters
                return SubscriptionGrant(uris, tasks, _granted_filters(parsed, flags))
            case Notification(method=names.NOTE_TASKS):
                task = read_notification(parsed.params)
                return None if task is None else TaskNotification(task)
            case Notification(method=method) if method in _NOTICES:
                return SessionNotification(_without_hop_keys(parsed))
            case Notification(method=method) if host is not None and self._allows_extension(method, host):
                names_stream = era_of(host.revision) is Era.MODERN
                return SessionNotification(_without_hop_keys(parsed, names_stream=names_stream))
        return None

    read_unaddressed_error = staticmethod(read_unaddressed_error)

    def round_of(self, method: str, id: int, response: Response) -> ServerRound | None:
        """The round in a response to request `id`, as `rounds.read_round`: nearly always there is
        none."""
        found = None if response.result is None else response.result.members
        kind = None if found is None else found.get("resultType")
        if kind is not None and kind.value == "complete":
            return None
        return rounds.read_round(method, id, response, self._extensions.by_method)

    def server_declares_tasks(self, server: ServerDescription) -> bool:
        """Whether the server may make tasks of calls, for requests that follow tasks."""
        return declares_tasks(server.peer)

    def host_declares_tasks(self, host: Peer | None) -> bool:
        """Whether the host declared the tasks extension."""
        return host is not None and declares_tasks(host)

    def get_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        """The request for the state of a server's task."""
        return self._task_request(id, names.TASKS_GET, task_params(task), host)

    def update_task(self, id: int, task: str, answers: RawJson, host: Peer | None) -> EncodedRequest:
        """The request with answers for a server's task, from `input_responses`."""
        return self._task_request(id, names.TASKS_UPDATE, update_params(task, answers), host)

    def cancel_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        """The request that cancels a server's task."""
        return self._task_request(id, names.TASKS_CANCEL, task_params(task), host)

    def unanswered_error(self, id: int) -> Response:
        """The gateway's error response to the call `id`, whose questions cannot be answered."""
        data = {"origin": "gateway", "reason": "unanswered", "dispatched": True}
        error = {"code": names.INTERNAL_ERROR, "message": "The server requested input and got no answer", "data": data}
        return parse_response(error_text(id, dump(error)))

    def error(self, id: int, code: int, text: str) -> Response:
        """An error response that the gateway makes itself."""
        return parse_response(error_text(id, dump({"code": code, "message": text})))

    def empty_result(self, id: int) -> Response:
        """An empty result that the gateway makes itself."""
        return parse_response(result_text(id, "{}"))

    def _encode_capabilities(self, host: Peer | None, draft: RequestDraft) -> RawJson:
        """The capabilities of a host, with the tasks extension if the gateway follows tasks
        (M-NEG-1). They are stored for its later requests.
        """
        core: Mapping[str, Any] = {}
        others: Mapping[str, Any] = {}
        if host is not None:
            core = capabilities.declared(host)
            others = self._extensions.host_capabilities(host.capabilities, era_of(host.revision), Era.MODERN)
        encoded = requests.encode_capabilities(core, others, follows_tasks=draft.follows_tasks)
        if len(self._encoded) >= _MAX_CACHED:
            self._encoded.clear()
        self._encoded[identity(host), draft.follows_tasks] = host, encoded
        return encoded

    def _allows_extension(self, notification: str, host: Peer) -> bool:
        return self._extensions.allows_notification(notification, era_of(host.revision), Era.MODERN)

    def _task_request(self, id: int, method: str, params: RawJson, host: Peer | None) -> EncodedRequest:
        return self.request(id, RequestDraft(method=method, params=Params(params), follows_tasks=True), host)


def _complete_result(response: Response, label: str) -> tuple[RawJson, Members]:
    """The text and members of a result; `label` begins the messages of UpstreamFailed
    (malformed).
    """
    assert response.result is not None, "a response without an error has a result"
    text = response.text[response.result.start : response.result.end]
    try:
        # Both are edited for hosts, which needs unique keys.
        found = members(text, {"capabilities": {"extensions": {}, "experimental": {}}, "_meta": {}})
    except MalformedMessage:
        raise protocol_violation(f"{label} repeats a key, or has too many keys") from None
    kind = found.get("resultType")
    if kind is not None and kind.value != "complete":
        raise protocol_violation(f"{label} is not complete")
    return text, found


def _string_text(text: RawJson, found: Members, name: str) -> RawJson | None:
    member = found.get(name)
    return None if member is None or not isinstance(member.value, str) else text[member.start : member.end]


def _ttl(found: Members) -> float:
    """How long a result may be cached, in seconds; 0 if the server does not say."""
    ttl = value_of(found, "ttlMs")
    return min(ttl, _LONGEST_TTL) / 1000 if isinstance(ttl, int | float) and ttl > 0 else 0.0


def _header_paths(tool: dict[str, Any]) -> Mapping[str, tuple[str, ...]] | None:
    """The paths of the arguments that headers repeat; None for unsound annotations (H-MOD-5)."""
    try:
        return read_header_paths(tool.get("inputSchema"))
    except ValueError:
        return None


def _granted(notification: Notification, kind: str) -> frozenset[str]:
    """The granted entries of the list `kind`, from `notifications/subscriptions/acknowledged`."""
    granted = value_of(notification.params, "notifications")
    entries = granted.get(kind) if isinstance(granted, dict) else None
    return frozenset(each for each in entries if isinstance(each, str)) if isinstance(entries, list) else frozenset()


def _granted_filters(notification: Notification, filters: frozenset[str]) -> frozenset[str]:
    """Those of `filters` that are granted, from `notifications/subscriptions/acknowledged`."""
    granted = value_of(notification.params, "notifications")
    return frozenset(name for name in filters if isinstance(granted, dict) and granted.get(name) is True)


def _without_hop_keys(notification: Notification, *, names_stream: bool = False) -> Notification:
    """The notification without keys of this hop (B-CONV-9).

    With `names_stream` the name of its stream stays, to be replaced for the host.
    """
    meta = meta_of(notification.params)
    if HOP_KEYS.isdisjoint(meta):
        return notification
    stream = meta.get(names.SUBSCRIPTION_ID) if names_stream else None
    put = {} if stream is None else {names.SUBSCRIPTION_ID: notification.text[stream.start : stream.end]}
    text = notification_text(notification.method, edit_object(notification.params_text, ObjectEdit(meta_put=put)))
    parsed = parse(text.encode(), max_depth=MAX_SERVER_DEPTH)
    assert isinstance(parsed, Notification), "the text is a notification"
    return parsed
