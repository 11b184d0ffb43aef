"""The legacy era (revisions 2024-11-05 to 2025-11-25): `LegacyAdapter`, and `LegacyListener` for its
calls.

In this era a host opens a session with `initialize`; every later message names it in
`Mcp-Session-Id`. A host can be asked on an event stream, and cancels a request with a notification.
GET and DELETE requests have no message: `serve` answers them. What both eras have is handled
elsewhere: calls by `Calls`, tasks by `TaskRequests`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from taskgate.admission.access import AccessControl
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.admission.rates import UNNAMED, RateLimiter
from taskgate.auth.context import AuthContext
from taskgate.cluster.remote_sessions import SETTING_METHODS
from taskgate.domain.record import RequestId, TaskRecord
from taskgate.domain.versions import NEWEST_LEGACY, Era, Revision, client_of, find_revision
from taskgate.errors import SessionRequired, UnsupportedVersion
from taskgate.gateway.calls import Calls
from taskgate.gateway.eras import Call, DecodedMessage
from taskgate.gateway.extensions import DeniedExtensions
from taskgate.gateway.get_streams import GetRequests
from taskgate.gateway.listeners import HostListener, InflightCall
from taskgate.gateway.session_messages import ClientNotifications
from taskgate.gateway.task_requests import TaskRequests, note_handle, own_tools
from taskgate.jsontext.large import to_string
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.protocol import vocabulary as words
from taskgate.protocol.classify import Route
from taskgate.protocol.host_requests import (
    AnswerPing,
    AwaitTask,
    CallTool,
    GetTask,
    HandleRequest,
    InboxRequest,
    OpenSession,
    Relay,
)
from taskgate.protocol.jsonrpc import UsualProgress
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.results import EraCrossing
from taskgate.protocol.messages import TOOL_ERROR, Message, Notification, Request, Response, error_of
from taskgate.protocol.server_messages import progress_done
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.questions import QuestionStream
from taskgate.sessions.registry import HostSessions
from taskgate.streams.exchange import Admission, Exchange, HttpMethod, HttpReply
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import COPIED, LARGE, in_thread, offload
from taskgate.telemetry.request_context import RequestContext
from taskgate.upstream.calls import ServerQuestion


class LegacyAdapter:
    """The `EraAdapter` of the legacy era. `Gateway` calls `serve` for a GET or DELETE request.

    `gate` has the rate limits, `access` the operator's rules, and `streams` the limit of open
    streams. `results` waits for results of tasks, `notifications` takes messages without an answer,
    `get_requests` serves GET.
    """

    era = Era.LEGACY

    def __init__(
        self,
        *,
        sessions: HostSessions,
        gate: RateLimiter,
        streams: OpenStreams,
        access: AccessControl,
        calls: Calls,
        task_requests: TaskRequests,
        results: ResultWaiter,
        notifications: ClientNotifications,
        denied: DeniedExtensions,
        get_requests: GetRequests,
        dialect: LegacyDownstream,
    ) -> None:
        self._sessions = sessions
        self._gate = gate
        self._streams = streams
        self._access = access
        self._calls = calls
        self._task_requests = task_requests
        self._results = results
        self._notifications = notifications
        self._denied = denied
        self._get_requests = get_requests
        self.dialect = dialect

    async def takes_batches(
        self, exchange: Exchange, context: RequestContext, mount: Mount, caller: AuthContext
    ) -> bool:
        """Return whether the body may be a batch: only in a session of revision 2025-03-26."""
        if exchange.head.host_session is None:
            return False
        _check_revision(exchange.head)
        host_session = await self._session(exchange.head, context, mount, caller)
        return host_session.peer.revision is Revision.R2025_03_26

    async def serve(self, exchange: Exchange, context: RequestContext, mount: Mount, caller: AuthContext) -> HttpReply:
        """Serve a request without a message. Raises GatewayError.

        GET opens or resumes a stream, and returns when that ends. DELETE ends the session.
        """
        _check_revision(exchange.head)
        host_session = await self._session(exchange.head, context, mount, caller)
        if exchange.head.method is HttpMethod.GET:
            _, queued = await self._gate.on_request(caller, exchange, mount.name, _NO_METHOD)
            if queued is not None:
                try:
                    await queued.wait(exchange, host_session, None)
                except ScopeCancelled:
                    return HttpReply(status=202)
            with host_session, self._streams.acquire_stream(caller):
                return await self._get_requests.serve(exchange, host_session, caller)
        await self._sessions.end(host_session)
        return HttpReply(status=200)

    def decode(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        message: Message,
        route: Route,
        host_session: HostSession | None = None,
    ) -> DecodedMessage | Awaitable[DecodedMessage]:
        # The session comes first: it has the revision by which the message is read.
        peer = None
        if not (isinstance(message, Request) and message.method == words.INITIALIZE):
            if host_session is None:
                id_ = exchange.head.host_session
                host_session = None if id_ is None else self._sessions.recall(mount, caller, id_)
                if host_session is None:
                    return self._decode_late(exchange, context, mount, caller, message, route)
            peer = host_session.peer
            context.revision, context.client = peer.revision, host_session.client
        intent = self.dialect.decode(
            message, peer, offers_tasks=mount.offers_tasks, extensions=mount.extensions, hands_off=mount.hands_off
        )
        # Whatever stream answers the request will have event ids, if the revision of the session has
        # resumption. Another replica can continue the stream of a wait for a task, so the task is
        # named. Of another request the id is enough. No stream answers a poll.
        if (
            not isinstance(intent, GetTask)
            and host_session is not None
            and host_session.resumable is not None
            and isinstance(message, Request)
        ):
            task = intent.task if isinstance(intent, AwaitTask) else None
            exchange.opener = partial(host_session.resumable.open_for, message.id, task)
        if isinstance(intent, OpenSession):
            peer = intent.peer
            context.revision, context.client = peer.revision, client_of(peer.info)
        assert peer is not None, "a message has a session, or opens one"
        tool = intent.tool if isinstance(intent, CallTool) else None
        decoded = DecodedMessage(self, exchange, mount, caller, message, intent, peer.revision, tool, host_session)
        if tool in mount.own_names:
            note_handle(decoded, context)
        if (
            type(message) is Response
            and host_session is not None
            and not self._notifications.is_awaited(caller, host_session, intent)
        ):
            decoded.limited_as = UNNAMED
        return decoded

    async def _decode_late(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        message: Message,
        route: Route,
    ) -> DecodedMessage:
        """Decode a message whose session is not in memory."""
        host_session = None
        if exchange.head.host_session is None:
            _check_revision(exchange.head)
            # A host that sends no session id often names no revision either, and may use tasks.
            revision = find_revision(exchange.head.revision) or NEWEST_LEGACY
            host_session = self._sessions.for_request(mount, caller, revision)
        if host_session is None:
            host_session = await self._session(exchange.head, context, mount, caller)
        elif isinstance(message, Request) and message.method in SETTING_METHODS:
            raise SessionRequired(f"{message.method} needs a session: send Mcp-Session-Id")
        decoded = self.decode(exchange, context, mount, caller, message, route, host_session)
        assert isinstance(decoded, DecodedMessage), "the session is known"
        return decoded

    async def handle(self, request: DecodedMessage) -> HttpReply:
        intent, host_session = request.intent, request.session
        if isinstance(intent, OpenSession):
            return await self._open_session(request.mount, request.caller, intent)
        assert host_session is not None, "only initialize may come without a session"
        if not isinstance(request.message, Request):
            await self._notifications.take(request, host_session)
            return HttpReply(status=202)
        with host_session:
            if isinstance(intent, CallTool) and intent.wants_task:
                host_session.knows_tasks = True
                return await self._calls.create_task(request.caller, host_session, intent)
            if isinstance(intent, _CALLS):
                reply = await self._calls.answer(self._call(request, host_session, intent))
                # A setting of the session at its server is remembered, for other replicas.
                if request.message.method in SETTING_METHODS and reply.error in (None, TOOL_ERROR):
                    host_session.settings.record(request.message.method, intent.params)
                return reply
            if isinstance(intent, AnswerPing):
                return HttpReply(body=self.dialect.pong(intent.id))
            if isinstance(intent, HandleRequest):
                with self._calls.cancellable(host_session.calls, intent.call.id):
                    return await self._task_requests.answer(request)
            if not isinstance(intent, InboxRequest):
                host_session.knows_tasks = True
            return await self._task_requests.answer(request)

    def listed_tool(self, request: DecodedMessage) -> str | None:
        host_session, tool = request.session, request.tool
        if host_session is None or tool is None or host_session.upstream.listed(tool) is None:
            return None
        return tool

    async def _session(
        self, head: Admission, context: RequestContext, mount: Mount, caller: AuthContext
    ) -> HostSession:
        """Return the session that the request's head names, and note its host in `context`.

        A revision that differs from the session's has no effect (docs/decisions/0017). Raises
        SessionRequired if the head names no session, and SessionNotFound unless it is the caller's
        at this mount.
        """
        if head.host_session is None:
            raise SessionRequired(_SESSION_REQUIRED)
        host_session = await self._sessions.find(mount, caller, head.host_session)
        context.revision, context.client = host_session.peer.revision, host_session.client
        return host_session

    async def _open_session(self, mount: Mount, caller: AuthContext, intent: OpenSession) -> HttpReply:
        """Answer `initialize` with a new session, whose id is in a header of the reply."""
        host_session, server = await self._sessions.open(mount, caller, intent)
        self._denied.in_session(mount, intent.peer, server.peer)
        message = self.dialect.welcome(
            intent, server, offers_tasks=mount.offers_tasks, extensions=mount.extensions, info=mount.info
        )
        return HttpReply(body=message, headers=((words.SESSION_HEADER, host_session.id),))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, request: DecodedMessage, host_session: HostSession, intent: CallTool | Relay) -> Call:
        """Return the call of a request."""
        exchange, keepalives, peer = request.exchange, self._calls.keepalives, host_session.peer
        listener = LegacyListener(exchange, intent.progress_token, keepalives, self.dialect, host_session)
        listener.peer, listener.other_streams = peer, host_session.streams
        method = intent.method if isinstance(intent, Relay) else words.TOOLS_CALL
        call = Call(
            self, exchange, request.caller, host_session, intent, intent.id, method, intent.params, peer, listener
        )
        call.ends_with_host, call.cancellable, call.mount = False, host_session.calls, request.mount
        if not host_session.knows_tasks:
            call.lacks_tasks, call.handoff = True, request.mount.handoff if request.mount.hands_off else None
        if isinstance(intent, Relay):
            call.is_of_extension = method not in words.RELAYED_METHODS
            if call.is_of_extension:
                listener.peer = None
            return call
        call.tool = intent.tool
        # In shadow mode the session offers no tasks, so its revision tells whether the host could
        # have had one.
        call.knows_tasks = peer.revision.has_tasks
        # The host could have asked for a task. A host that cannot gets the answer.
        call.refuses_task_only = host_session.has_tasks
        return call

    async def answer(self, call: Call, response: Response, missing: Mapping[str, Any]) -> HttpReply:
        """Return the server's response under the host's id, converted if the server is a modern one.

        A page of `tools/list` is changed: it gets the task support of each tool, and lacks tools
        that the caller may not see.
        """
        session, crossing = call.session, None
        if session.upstream.era is not self.era:
            crossing = EraCrossing(call.method, session.peer.revision, call.extension)
        size = len(response.text)
        if call.method == words.TOOLS_LIST:
            has_tasks = session.mount.offers_tasks and session.peer.revision.has_tasks
            support = self._access.live.current.policy.support_of(session.mount.name) if has_tasks else None
            shows = self._access.tool_filter(call.caller, session.mount.name)
            own = own_tools(call)
            text = await offload(size, partial(self.dialect.tools, call.id, response, support, shows, crossing, own))
        elif size <= LARGE or (crossing is None and size <= COPIED):
            text = self.dialect.answer(call.id, response, crossing)
        else:
            text = await in_thread(partial(self.dialect.answer, call.id, response, crossing))
        return HttpReply(200, text, (), error_of(response))

    async def answer_repeated(self, call: Call, task: TaskRecord) -> HttpReply:
        """Wait for the result of the earlier call: the host did not ask for a task."""
        host_session = call.session
        assert isinstance(host_session, HostSession), "a legacy call goes over a host session"
        record = await self._results.outcome(call.exchange, call.caller, host_session, task.id, words.TOOLS_CALL)
        return HttpReply(body=self.dialect.task_outcome(call.id, record))

    async def hold(self, call: Call, inflight: InflightCall) -> HttpReply:
        raise AssertionError("a legacy host is asked on its stream, so no call is held")

    def is_round(self, call: Call, response: Response) -> bool:
        """Return False: a legacy host gets no rounds."""
        return False

    def answer_ended(self, id: RequestId) -> str:
        """Return an empty result, which ends the request."""
        return self.dialect.pong(id)


@dataclass(slots=True, eq=False)
class LegacyListener(HostListener):
    """The listener of one call of a legacy host. Messages of the server go to the host on the call's
    own stream, or on the session's GET stream if that is not possible.

    Progress must grow for the host. A keep-alive invents a number. After that, a number of the
    server that is not higher is not sent; its text is sent with a number of the gateway.

    `_watches_host` is whether the callback for the end of the call's stream is registered.
    """

    dialect: LegacyDownstream
    host_session: HostSession
    _watches_host: bool = field(default=False, init=False)

    def on_notification(self, notification: Notification) -> None:
        token = self.token
        if token is None and notification.method == words.NOTE_PROGRESS:
            # Asked for by the gateway, for a task that the call may become.
            return
        self._has_sent = True
        message: str | bytes | None
        if type(notification) is UsualProgress and token is not None and not self._has_invented:
            # Nearly all progress. Its number is read when a keep-alive needs it.
            self._unread = notification
            message = self.dialect.relayed_progress(notification, self._written_token or self.write_token())
        elif token is None or notification.method != words.NOTE_PROGRESS or self._may_be_sent(notification):
            message = self.dialect.notification(notification, token)
        else:
            message = self.reword(notification)
            if message is None:
                return
        if not (self.exchange.head.accepts_stream and (self._feed or self.feed()).send(message)):
            self.host_session.publish_anywhere(to_string(message))

    def asked(self, question: ServerQuestion) -> None:
        questions, exchange = self.host_session.questions, self.exchange
        questions.ask(question, self, self.host_session)
        if exchange.head.accepts_stream and not self._watches_host:
            self._watches_host = True
            feed = self.feed()
            feed.on_connection_lost(lambda: questions.on_stream_ended(feed))

    def withdraw_questions(self) -> Sequence[ServerQuestion]:
        return self.host_session.questions.withdraw(self)

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: in the legacy era the server gets the refusal, and the host no error."""

    def send_question(self, message: str) -> QuestionStream | None:
        """Send a question on the call's own stream; return the stream, or None if that is not
        possible.
        """
        if not self.exchange.head.accepts_stream:
            return None
        feed = self.feed()
        return feed if feed.send_now(message) else None

    def _may_be_sent(self, notification: Notification) -> bool:
        """Return whether the server's progress may be sent as it is; if so, remember its number.

        Until a keep-alive has invented a number, it always may.
        """
        self._read_number()
        done = progress_done(notification)
        if self._has_invented and (done is None or (self._last_progress is not None and done <= self._last_progress)):
            return False
        if done is not None:
            self._last_progress = done
        return True


def _check_revision(head: Admission) -> None:
    """Raise UnsupportedVersion for a revision that is none of the legacy era.

    For what `classify` does not judge: a request without a message, and the head of a batch.
    """
    if head.revision is not None and find_revision(head.revision) is None:
        raise UnsupportedVersion("The protocol version is not supported")


_SESSION_REQUIRED: Final = (
    "The request needs a session: send initialize first, then Mcp-Session-Id with each request. "
    "With server.sessions: optional the gateway also serves calls, lists and tasks without it"
)
_NO_METHOD: Final = ""
"""The method of a GET request, for rate limits: it counts with the methods that have no limit of
their own."""
_CALLS: Final = (CallTool, Relay)
"""The requests that a server answers. A union of types would be made anew at each check."""
