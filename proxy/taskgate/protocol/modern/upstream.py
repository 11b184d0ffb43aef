"""Servers of this era: what they are told, and what their messages mean. Pure; holds no session.

Requests are written in `outgoing`, rounds of questions read in `server_rounds`, what servers say about themselves in
`welcome`.
"""

from collections.abc import Mapping
from typing import Final

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import RawJson, decode, read_object
from taskgate.protocol import server_messages
from taskgate.protocol import vocabulary as words
from taskgate.protocol.discovery import CataloguePage, ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import error_text, notification_text, parse, result_text
from taskgate.protocol.messages import Message, Notification, Params, Request, Response, meta_of, value_of
from taskgate.protocol.meta import HOP_KEYS, ObjectEdit, edit_object
from taskgate.protocol.modern import declared, outgoing, server_rounds, server_tasks, welcome
from taskgate.protocol.server_messages import (
    Answer,
    CallProgress,
    CallResponse,
    EncodedRequest,
    ModernServerMessage,
    Question,
    RequestDraft,
    ServerRound,
    ServerSubscription,
    ServerTask,
    SessionNotification,
    SubscriptionGrant,
    TaskNotification,
)

MAX_DEPTH: Final = 256
"""How deep a server's message may nest: far above any real one, far below what would hurt to read."""

_MOST_TOLD: Final = 256
"""Hosts of whom it is remembered what is told."""
_REFUSAL: Final = frozenset({"jsonrpc", "id", "error"})
_NOTICES: Final = words.RELAYED_NOTICES - {words.NOTE_ELICITATION_COMPLETE}


class ModernUpstream:
    """The translator for servers of the modern era; see ModernUpstreamDialect.

    `version` is the gateway's own, told as client info; `extensions` is what crosses.
    """

    def __init__(self, version: str, extensions: ExtensionPolicy) -> None:
        self._info = dump({"name": "taskgate", "version": version})
        self._extensions = extensions
        # By the objects themselves, which stay while they are here: nearly every request is for one that was told of.
        self._told: dict[tuple[int, bool], tuple[Peer, RawJson]] = {}

    def discover(self, id: int, host: Peer | None) -> EncodedRequest:
        return self.request(id, RequestDraft(method=words.SERVER_DISCOVER), host)

    def read_discovery(self, response: Response) -> ServerDescription | None:
        return welcome.read_discovery(response)

    def request(self, id: int, draft: RequestDraft, host: Peer | None) -> EncodedRequest:
        return outgoing.request(id, draft, self._capabilities(host, draft), self._info)

    def listen(self, id: int, wants: ServerSubscription, host: Peer | None) -> EncodedRequest:
        params = Params(outgoing.listening(wants))
        saying = RequestDraft(method=words.SUBSCRIPTIONS_LISTEN, params=params, follows_tasks=bool(wants.tasks))
        return self.request(id, saying, host)

    def list_tools(self, id: int, cursor: RawJson | None, host: Peer | None) -> EncodedRequest:
        params = None if cursor is None else Params(f'{{"cursor":{cursor}}}')
        return self.request(id, RequestDraft(method=words.TOOLS_LIST, params=params), host)

    def read_tools(self, response: Response) -> CataloguePage:
        return welcome.read_tools(response)

    def without_unsound_tools(self, response: Response) -> Response:
        page = welcome.sound_page(response)
        if page is None or response.result is None:
            return response
        return _own(splice(response.text, [(response.result.start, response.result.end, page)]))

    def decode(self, message: bytes, host: Peer | None) -> ModernServerMessage:
        heard = _read(message)
        match heard:
            case Response():
                return CallResponse(heard)
            case Request():
                raise protocol_violation("it asks outside of an answer")
            case Notification(method=words.NOTE_PROGRESS):
                token = value_of(heard.params, "progressToken")
                known = isinstance(token, int) and not isinstance(token, bool)
                return CallProgress(token, _plain(heard)) if known else None
            case Notification(method=words.NOTE_SUBSCRIBED):
                uris, tasks = _granted(heard, "resourceSubscriptions"), _granted(heard, "taskIds")
                return SubscriptionGrant(uris, tasks, _granted_of(heard, self._extensions.all_filters))
            case Notification(method=words.NOTE_TASKS):
                task = server_tasks.told(heard.params)
                return None if task is None else TaskNotification(task)
            case Notification(method=method) if method in _NOTICES:
                return SessionNotification(_plain(heard))
            case Notification(method=method) if host is not None and self._carries(method, host):
                return SessionNotification(_plain(heard, names_stream=era_of(host.revision) is Era.MODERN))
        return None

    def read_unaddressed_error(self, id: int, message: bytes) -> Response | None:
        try:
            text = decode(message, MAX_DEPTH)
            found = read_object(text, {})
        except (UnparsableMessage, MalformedMessage):
            return None
        error = found.get("error")
        if error is None or not found.keys() <= _REFUSAL or value_of(found, "id") is not None:
            return None
        refused = _read(error_text(id, text[error.start : error.end]).encode())
        assert isinstance(refused, Response), "it was written as one"
        return refused

    def round_of(self, method: str, id: int, response: Response) -> ServerRound | None:
        return server_rounds.round_of(method, id, response, self._extensions.extension_of(method))

    def server_declares_tasks(self, server: ServerDescription) -> bool:
        return server_tasks.declares_tasks(server.peer)

    def host_declares_tasks(self, host: Peer | None) -> bool:
        return host is not None and server_tasks.declares_tasks(host)

    def needs_tasks(self, response: Response) -> bool:
        return server_tasks.needs_tasks(response)

    def read_created_task(self, method: str, response: Response) -> ServerTask | None:
        return server_tasks.created(method, response)

    def get_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        return self._of_task(id, words.TASKS_GET, server_tasks.reference(task), host)

    def read_task(self, call: int, task: str, response: Response) -> ServerTask | None:
        return server_tasks.shown(call, task, response)

    def update_task(self, id: int, task: str, answers: RawJson, host: Peer | None) -> EncodedRequest:
        return self._of_task(id, words.TASKS_UPDATE, server_tasks.update(task, answers), host)

    def cancel_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        return self._of_task(id, words.TASKS_CANCEL, server_tasks.reference(task), host)

    def can_ask(self, host: Peer | None, question: Question) -> bool:
        return declared.takes(host, question)

    def input_responses(self, given: Mapping[str, tuple[Question, Answer]]) -> RawJson | None:
        return server_rounds.answers(given)

    def default_answer(self, question: Question) -> Answer:
        return server_rounds.no_answer(question)

    def unanswered_error(self, id: int) -> Response:
        data = {"origin": "gateway", "reason": "unanswered", "dispatched": True}
        error = {"code": words.INTERNAL_ERROR, "message": "The server asked what it got no answer to", "data": data}
        return _own(error_text(id, dump(error)))

    def error(self, id: int, code: int, text: str) -> Response:
        return _own(error_text(id, dump({"code": code, "message": text})))

    def empty_result(self, id: int) -> Response:
        return _own(result_text(id, "{}"))

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        return server_messages.call_outcome(response)

    def _capabilities(self, host: Peer | None, saying: RequestDraft) -> RawJson:
        """What the server is told of a host; the tasks extension where a task is followed to its end (M-NEG-1)."""
        if host is None:
            return outgoing.capabilities({}, {}, follows_tasks=saying.follows_tasks)
        known = self._told.get((id(host), saying.follows_tasks))
        if known is not None:
            return known[1]
        carried = self._extensions.host_capabilities(host.capabilities, era_of(host.revision), Era.MODERN)
        told = outgoing.capabilities(declared.declared(host), carried, follows_tasks=saying.follows_tasks)
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[id(host), saying.follows_tasks] = host, told
        return told

    def _carries(self, notification: str, host: Peer) -> bool:
        return self._extensions.allows_notification(notification, era_of(host.revision), Era.MODERN)

    def _of_task(self, id: int, method: str, params: RawJson, host: Peer | None) -> EncodedRequest:
        return self.request(id, RequestDraft(method=method, params=Params(params), follows_tasks=True), host)


def _read(message: bytes) -> Message:
    try:
        return parse(message, max_depth=MAX_DEPTH)
    except (UnparsableMessage, MalformedMessage):
        raise protocol_violation("a message of it is no JSON-RPC message") from None


def _own(text: str) -> Response:
    response = parse(text.encode(), max_depth=MAX_DEPTH)
    assert isinstance(response, Response), "what the gateway writes as a response is one"
    return response


def _granted(notification: Notification, kind: str) -> frozenset[str]:
    """What a stream tells of, by its first message."""
    granted = value_of(notification.params, "notifications")
    names = granted.get(kind) if isinstance(granted, dict) else None
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _granted_of(notification: Notification, filters: frozenset[str]) -> frozenset[str]:
    """The members of extensions that a stream grants, by its first message."""
    granted = value_of(notification.params, "notifications")
    return frozenset(name for name in filters if isinstance(granted, dict) and granted.get(name) is True)


def _plain(notification: Notification, *, names_stream: bool = False) -> Notification:
    """The notification without what the protocol says of this hop alone (B-CONV-9).

    With `names_stream` it goes on to name its stream: whoever passes it on names another one.
    """
    meta = meta_of(notification.params)
    if HOP_KEYS.isdisjoint(meta):
        return notification
    stream = meta.get(words.SUBSCRIPTION_ID) if names_stream else None
    put = {} if stream is None else {words.SUBSCRIPTION_ID: notification.text[stream.start : stream.end]}
    text = notification_text(notification.method, edit_object(notification.params_text, ObjectEdit(meta_put=put)))
    told = parse(text.encode(), max_depth=MAX_DEPTH)
    assert isinstance(told, Notification), "it was one before"
    return told
