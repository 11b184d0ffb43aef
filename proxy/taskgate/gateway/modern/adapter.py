"""The modern era (revision 2026-07-28): `ModernAdapter`, and `ModernListener` for its calls.

A modern host has no session with the gateway: each request carries its own context in `_meta`. The
upstream session of a request is chosen by what that declares (`session_pool`). A host that
disconnects has cancelled its request. Only this era has `server/discover`, `subscriptions/listen`
(`subscriptions`), and retries with input responses (`retries`). What both eras have is handled
elsewhere: calls by `Calls`, tasks by `TaskRequests`.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from taskgate.admission.access import AccessControl
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.admission.rates import RateLimiter
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.record import RequestId, TaskRecord
from taskgate.domain.versions import Era
from taskgate.errors import GatewayError, MissingCapability, TaskSupportMismatch, UpstreamFailed
from taskgate.gateway.calls import Calls
from taskgate.gateway.eras import Call, DecodedMessage
from taskgate.gateway.extensions import DeniedExtensions
from taskgate.gateway.listeners import HostListener, InflightCall
from taskgate.gateway.modern.retries import HostRetries
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.gateway.task_requests import ABOUT_TASKS, TaskRequests, note_handle, own_tools
from taskgate.jsontext.large import MessageText, to_string
from taskgate.lifecycle.runner import Expected, Runner
from taskgate.protocol.classify import Route
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.faults import modern_status, no_result
from taskgate.protocol.headers import check_params
from taskgate.protocol.host_requests import CallTool, Discover, Ignore, Listen, Relay, RequestMeta, Retry
from taskgate.protocol.jsonrpc import UsualProgress
from taskgate.protocol.messages import TOOL_ERROR, Message, Notification, Request, Response, error_of
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import progress_done
from taskgate.protocol.vocabulary import (
    MODERN_METHODS,
    NOTE_MESSAGE,
    NOTE_PROGRESS,
    RELAYED_NOTICES,
    ROUND_METHODS,
    TOOLS_CALL,
    TOOLS_LIST,
)
from taskgate.sessions.session_pool import SessionPool, SharedSession
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.offload import LARGE, in_thread
from taskgate.telemetry.events import EventSink, ToolCalled
from taskgate.telemetry.request_context import RequestContext

_OF_CORE: Final = RELAYED_NOTICES | {NOTE_PROGRESS}


class ModernAdapter:
    """The `EraAdapter` of the modern era.

    `gate` has the rate limits, `access` the operator's rules, `pool` the upstream sessions, and
    `streams` the limit of open event streams.
    """

    era = Era.MODERN

    def __init__(
        self,
        *,
        gate: RateLimiter,
        streams: OpenStreams,
        access: AccessControl,
        pool: SessionPool,
        calls: Calls,
        retries: HostRetries,
        runner: Runner,
        task_requests: TaskRequests,
        subscriptions: Subscriptions,
        denied: DeniedExtensions,
        event_sink: EventSink,
        dialect: ModernDownstream,
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._streams = streams
        self._access = access
        self._pool = pool
        self._calls = calls
        self._retries = retries
        self._runner = runner
        self._task_requests = task_requests
        self._subscriptions = subscriptions
        self._denied = denied
        self._event_sink = event_sink
        self._clock = clock
        self.dialect = dialect

    def correspond(self, bus: ClusterBus, entropy: Entropy) -> None:
        """Connect to the other replicas over `bus`; called once at start, if there are some."""
        self._retries.correspond(bus, entropy, self.new_call)

    def decode(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        message: Message,
        route: Route,
    ) -> DecodedMessage:
        if not isinstance(message, Request):
            # The era has no notifications of hosts: they are accepted without effect (H-MOD-12).
            return DecodedMessage(self, exchange, mount, caller, message, Ignore())
        assert isinstance(route, RequestMeta), "a request is routed by what it declares"
        context.revision, context.client = route.peer.revision, route.client
        intent = self.dialect.decode(
            message,
            route,
            offers_tasks=mount.offers_tasks,
            extensions=mount.extensions,
            hands_off=mount.hands_off and not route.declares_tasks,
        )
        asked = intent.request if isinstance(intent, Retry) else intent
        tool = asked.tool if isinstance(asked, CallTool) else None
        decoded = DecodedMessage(self, exchange, mount, caller, message, intent, route.peer.revision, tool, None, route)
        if tool in mount.own_names:
            note_handle(decoded, context)
        return decoded

    async def handle(self, request: DecodedMessage) -> HttpReply:
        intent, meta, exchange, caller = request.intent, request.meta, request.exchange, request.caller
        if isinstance(intent, ABOUT_TASKS):
            return await self._task_requests.answer(request)
        if meta is None:
            return HttpReply(status=202)
        session, begun = self._pool.take(request.mount, caller, meta.peer), 0.0
        asked = intent.request if isinstance(intent, Retry) else intent
        with session:
            if request.tool is not None:
                # The headers that mirror arguments; only the server's catalogue names them.
                listed = session.upstream.listed(request.tool)
                if listed is None:
                    begun = self._clock.elapsed()
                    with self._expecting(session, asked):
                        listed = await self._look_up(exchange, session, meta, request.tool)
                if listed is not None and listed.header_paths:
                    self._check_params(request, meta, request.tool, listed)
            match intent:
                case CallTool() | Relay():
                    call = self.new_call(exchange, caller, session, meta, intent)
                    call.begun = begun
                    reply = await self._calls.answer(call)
                case Retry():
                    call = self.new_call(exchange, caller, session, meta, intent.request)
                    with self._expecting(session, asked):
                        reply = await self._retries.answer(call, meta, intent)
                case Discover():
                    return await self._discover(exchange, session, meta, intent)
                case Listen():
                    return await self._listen(exchange, caller, session, intent)
                case _:
                    raise AssertionError(f"unexpected intent of a request: {type(intent).__name__}")
        if reply.error is not None and reply.error != TOOL_ERROR:
            # By the error code of the answer, which may differ from the server's. The status has no
            # effect if the answer is an event stream by now.
            assert reply.body is not None, "an error has a text"
            reply.status = modern_status(json.loads(to_string(reply.body))["error"]["code"])
        return reply

    def _expecting(self, session: SharedSession, asked: object) -> AbstractContextManager[object]:
        """Return the block of a request that waits before it is known whether it becomes a task.

        A shutdown that waits for tasks also waits for a call that may become one.
        """
        may_become_task = isinstance(asked, CallTool) and asked.stored_params is not None
        return Expected(self._runner, session) if may_become_task else nullcontext()

    def listed_tool(self, request: DecodedMessage) -> str | None:
        """Return None: before a session is chosen, it is unknown what its server lists."""
        return None

    def _check_params(self, request: DecodedMessage, meta: RequestMeta, tool: str, listed: ListedTool) -> None:
        """Compare the headers that mirror arguments; a call that is refused for one is counted."""
        assert isinstance(request.message, Request), "a call is a request"
        try:
            check_params(meta.header_params, request.message, listed.header_paths)
        except GatewayError:
            self._event_sink.emit(ToolCalled(request.mount.name, tool, "rejected"))
            raise

    async def _look_up(
        self, exchange: Exchange, session: SharedSession, meta: RequestMeta, tool: str
    ) -> ListedTool | None:
        """Find a tool in the server's catalogue, which may have to be read.

        Returns None if the tool is not listed or the catalogue is unavailable. Such a server may
        still run the tool, and an intermediary that reads headers does not authorize calls here.
        """
        try:
            tools = session.upstream.tools(tool)
            return (await self._calls.waiter.wait_for_session(self._listener(exchange, meta), tools)).get(tool)
        except UpstreamFailed:
            return None

    # --- requests that only this era has ------------------------------------------------------------------------------

    async def _listen(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, intent: Listen
    ) -> HttpReply:
        """Serve `subscriptions/listen` until its stream ends."""
        if intent.wants.tasks:
            # One request may name many tasks, so a caller with too many failed look-ups is refused.
            await self._gate.check_lookups(caller, exchange, session.mount.name)
        with self._streams.acquire_stream(caller):
            return await self._subscriptions.serve(exchange, caller, session, intent)

    async def _discover(
        self, exchange: Exchange, session: SharedSession, meta: RequestMeta, intent: Discover
    ) -> HttpReply:
        welcome = session.upstream.welcome()
        server = await self._calls.waiter.wait_for_session(self._listener(exchange, meta), welcome)
        mount = session.mount
        self._denied.at_discovery(mount, meta.peer, server.peer)
        text = self.dialect.discovery(
            intent.id, server, offers_tasks=mount.offers_tasks, extensions=mount.extensions, info=mount.info
        )
        return HttpReply(body=text)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _listener(self, exchange: Exchange, meta: RequestMeta) -> HostListener:
        """Return the listener of a request that waits for a session before it is a call."""
        listener = ModernListener(exchange, meta.progress_token, self._calls.keepalives, self.dialect, meta.log_level)
        listener.peer = meta.peer
        return listener

    def new_call(
        self,
        exchange: Exchange,
        caller: AuthContext,
        session: SharedSession,
        meta: RequestMeta,
        request: CallTool | Relay,
    ) -> Call:
        """Return the call of a request, or of the request that a retry repeats."""
        method = TOOLS_CALL if isinstance(request, CallTool) else request.method
        has_rounds = method in ROUND_METHODS
        # A notification that names its stream, as in some extensions, names it by the request.
        id_ = None if has_rounds else request.id
        listener = ModernListener(
            exchange, meta.progress_token, self._calls.keepalives, self.dialect, meta.log_level, id_
        )
        listener.passes_rounds, listener.peer = has_rounds, meta.peer
        call = Call(self, exchange, caller, session, request, request.id, method, request.params, meta.peer, listener)
        call.log_level, call.repeated = meta.log_level, meta.header_params
        call.may_be_held, call.mount = has_rounds and session.may_be_asked, session.mount
        if isinstance(request, CallTool):
            call.tool = request.tool
        else:
            call.is_of_extension = method not in MODERN_METHODS
            if call.is_of_extension:
                listener.peer = None
        if meta.declares_tasks:
            call.takes_task = call.knows_tasks = True
        else:
            call.refuses_task_only = call.lacks_tasks = True
            call.handoff = session.mount.handoff if session.mount.hands_off else None
        return call

    async def answer(self, call: Call, response: Response, missing: Mapping[str, Any]) -> HttpReply:
        """Return the answer for the host to a response of its server; a round passes through.

        Raises MissingCapability for a capability that the host does not declare. The call failed
        after the server asked for it (V-META-5), or a round of the server needs it.
        """
        session = call.session
        assert isinstance(session, SharedSession), "a modern call goes over a shared session"
        era, info = session.upstream.era, session.info
        if missing and call.listener.passes_rounds and error_of(response) is not None:
            raise MissingCapability(missing)
        encode: Callable[[], MessageText | None]
        if call.method == TOOLS_LIST:
            shows = self._access.tool_filter(call.caller, session.mount.name)
            own = own_tools(call)
            encode = partial(self.dialect.tools, call.id, response, era, shows, info, own)
        else:
            encode = partial(self.dialect.complete, call.id, call.method, response, era, info, call.extension)
        text = encode() if len(response.text) <= LARGE else await in_thread(encode)
        if text is None:
            asked = self.dialect.round_of(response) if self.is_round(call, response) else None
            if asked is not None:
                return await self._retries.pass_round(call, response, asked, info)
            text = no_result(call.id)
        return HttpReply(200, text, (), error_of(response))

    async def answer_repeated(self, call: Call, task: TaskRecord) -> HttpReply:
        """Refuse the call: its host can get no task."""
        self._calls.count(call, "rejected")
        raise TaskSupportMismatch("The call with this idempotency key runs as a task")

    async def hold(self, call: Call, inflight: InflightCall) -> HttpReply:
        return await self._retries.hold(call, inflight)

    def is_round(self, call: Call, response: Response) -> bool:
        return (
            call.listener.passes_rounds
            and call.session.upstream.era is Era.MODERN
            and self.dialect.round_of(response) is not None
        )

    def answer_ended(self, id: RequestId) -> str:
        return self.dialect.subscription_ended(id)


@dataclass(slots=True, eq=False)
class ModernListener(HostListener):
    """The listener of one request of a modern host. The server's notifications go to the host on the
    request's own event stream, or are dropped if the host accepts none.

    Progress is sent with the host's token, if it gave one, and its number grows with every message
    (M-PROG-1). A log message is sent if `level`, the request's log level, allows it (M-LOG-1). Notifications
    of extensions are forwarded (X-EXT-23); if they name a stream, that is `id`, the request's id.
    Everything else is dropped. Questions that come here are refused, because this era has none on a
    stream. The listener of a call that can be held is an `InflightCall`, which collects questions
    and passes only notifications on to here.
    """

    dialect: ModernDownstream
    level: str | None
    id: RequestId | None = None

    def on_notification(self, notification: Notification) -> None:
        if not self.exchange.head.accepts_stream:
            return
        message: str | bytes
        if self._is_wanted(notification):
            if type(notification) is UsualProgress:
                message = self.dialect.relayed_progress(notification, self._written_token or self.write_token())
            else:
                message = self.dialect.notification(notification, self.token)
        elif (reworded := self.reword(notification)) is not None:
            message = reworded
        elif notification.method not in _OF_CORE:
            message = self.dialect.notification(notification, None, self.id)
        else:
            return
        self._has_sent = True
        self.feed().send(message)

    def asks_for_nothing(self) -> bool:
        return self.token is None and self.level is None

    def _is_wanted(self, notification: Notification) -> bool:
        """Return whether the host gets a progress or log notification as it is."""
        if notification.method == NOTE_PROGRESS:
            return self.token is not None and self._grows(notification)
        return notification.method == NOTE_MESSAGE and self.dialect.wants_log(notification, self.level)

    def _grows(self, notification: Notification) -> bool:
        """Return whether the number of a progress notification grows; if so, remember it."""
        done = progress_done(notification)
        if done is None or (self._last_progress is not None and done <= self._last_progress):
            return False
        self._last_progress = done
        return True
