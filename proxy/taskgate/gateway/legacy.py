"""The requests of the legacy era (revisions 2024-11-05 to 2025-11-25): `InSessionMessages`.

`Gateway` calls it after it has found the era of a message. In this era a host opens a session with
`initialize`; every later message names it in `Mcp-Session-Id`. The dialect decodes a message to an
intent (`CallTool`, `GetTask`, …). A handler here executes the intent, and the dialect encodes the
answer. A `tools/call` becomes a task if the host asks for one, and is a plain call otherwise. The
folder `modern` is the counterpart for the modern era.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from taskgate.admission.access import AccessControl
from taskgate.admission.coalescing import CoalesceKey
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.lookups import Lookups
from taskgate.admission.mounts import Mount
from taskgate.admission.quota import QuotaFields
from taskgate.admission.rates import RateLimiter
from taskgate.auth.context import AuthContext
from taskgate.domain.policy import PromotionMode
from taskgate.domain.versions import Era, Revision, find_revision
from taskgate.errors import GatewayError, SessionRequired, TaskSupportMismatch, UnsupportedVersion
from taskgate.gateway.denied_extensions import DeniedExtensions
from taskgate.gateway.extension_requests import ExtensionRequests
from taskgate.gateway.notes import ClientNotifications
from taskgate.gateway.relay import LegacyCall, PlainCallProxy
from taskgate.gateway.resuming import Resuming
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol import vocabulary as words
from taskgate.protocol.host_requests import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelTask,
    GetTask,
    LegacyIntent,
    ListTasks,
    OpenSession,
    Relay,
)
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.results import EraCrossing
from taskgate.protocol.messages import Message, Request, Response
from taskgate.sessions.binding import client_features
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions
from taskgate.streams.exchange import Admission, Exchange, HandledRequest, HttpMethod, HttpReply, RpcReply, error_of
from taskgate.streams.log_entries import StreamOrigin
from taskgate.system.offload import LARGE, in_thread, offload
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled
from taskgate.telemetry.request_context import RequestContext, client_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyServices:
    """The services that handlers of the legacy era use.

    `gate` has the rate limits, `access` the operator's rules, and `streams` the limit of open
    streams. `lookups` and `tasks` are for requests about tasks, `following` waits for results.
    `relaying` sends plain requests, `notes` takes messages without an answer, `resuming` serves GET.
    """

    sessions: HostSessions
    gate: RateLimiter
    streams: OpenStreams
    access: AccessControl
    lookups: Lookups
    tasks: TaskService
    following: ResultWaiter
    notes: ClientNotifications
    relaying: PlainCallProxy
    extensions: ExtensionRequests
    denied: DeniedExtensions
    resuming: Resuming


class InSessionMessages:
    """The handler of messages of the legacy era. `Gateway` calls `answer` for a message, `serve`
    for a GET or DELETE request.
    """

    def __init__(self, *, services: LegacyServices, dialect: LegacyDownstream, event_sink: EventSink) -> None:
        self._services = services
        self._dialect = dialect
        self._event_sink = event_sink

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
            await self._services.gate.on_request(caller, exchange, mount.name, _NO_METHOD)
            with host_session, self._services.streams.acquire_stream(caller):
                return await self._services.resuming.serve(exchange, host_session, caller)
        await self._services.sessions.end(host_session)
        return HttpReply(status=200)

    async def answer(
        self, exchange: Exchange, context: RequestContext, mount: Mount, caller: AuthContext, message: Message
    ) -> HandledRequest:
        """Answer one message; a notification or a response gets status 202.

        Raises GatewayError, and ScopeCancelled when the host cancelled the request.
        """
        # 1. The session, its owner checked, and the revision that it was opened with.
        host_session, peer = None, None
        if not (isinstance(message, Request) and message.method == words.INITIALIZE):
            host_session = await self._session(exchange.head, context, mount, caller)
            peer = host_session.peer
        # 2. The intent of the message; its parameters are checked here.
        intent = self._dialect.decode(message, peer, offers_tasks=mount.offers_tasks, extensions=mount.extensions)
        # Whatever stream answers the request will have event ids, if the revision of the session has
        # resumption. Another replica can continue the stream of a wait for a task, so the task is
        # named. Of another request the id is enough.
        if host_session is not None and host_session.resumable is not None and isinstance(message, Request):
            exchange.opener = partial(
                host_session.resumable.open,
                origin=StreamOrigin(message.id, intent.task if isinstance(intent, AwaitTask) else None),
            )
        tool = intent.tool if isinstance(intent, CallTool) else None
        if isinstance(intent, OpenSession):
            peer = intent.peer
            context.revision, context.client = peer.revision, client_of(peer.info)
        quota: QuotaFields = ()
        try:
            # 3. The caller's rate limit. Answers to questions that the host was asked are exempt.
            if not isinstance(message, Response):
                quota = await self._services.gate.on_request(caller, exchange, mount.name, message.method, tool)
            # 4. The operator's access rules. For a request about a task, they apply to the task's
            # tool, when the task is found.
            if isinstance(message, Request) and not isinstance(intent, _ABOUT_A_TASK):
                self._services.access.check(caller, mount.name, message.method, tool)
        except GatewayError:
            if host_session is not None and tool is not None:
                self._count_refused(host_session, tool)
            raise
        # 5. Execute the intent.
        if isinstance(intent, OpenSession):
            rpc_reply = await self._open_session(mount, caller, intent)
        else:
            assert host_session is not None, "only initialize may come without a session"
            if not isinstance(message, Request):
                await self._services.notes.take(caller, host_session, intent)
                return HandledRequest(HttpReply(status=202))
            with host_session:
                match intent:
                    case CallTool():
                        rpc_reply = await self._call_tool(exchange, caller, host_session, intent)
                    case Relay(method=method) if method not in words.RELAYED_METHODS:
                        rpc_reply = await self._relay_extension(exchange, caller, host_session, intent)
                    case Relay():
                        rpc_reply = await self._relay(exchange, caller, host_session, intent)
                    case _:
                        rpc_reply = await self._answer_here(exchange, caller, host_session, intent)
        assert peer is not None, "a request has a session, or opens one"
        reply = HttpReply(body=rpc_reply.message, headers=rpc_reply.headers + quota)
        return HandledRequest(reply, peer.revision, rpc_reply.error)

    async def _session(
        self, head: Admission, context: RequestContext, mount: Mount, caller: AuthContext
    ) -> HostSession:
        """Return the session that the request's head names, and note its host in `context`.

        A revision that differs from the session's has no effect (docs/decisions/0017). Raises
        SessionRequired if the head names no session, and SessionNotFound unless it is the caller's
        at this mount.
        """
        if head.host_session is None:
            raise SessionRequired("The message needs a session: send initialize first")
        host_session = await self._services.sessions.find(mount, caller, head.host_session)
        context.revision, context.client = host_session.peer.revision, host_session.client
        return host_session

    # --- the requests -------------------------------------------------------------------------------------------------

    async def _open_session(self, mount: Mount, caller: AuthContext, intent: OpenSession) -> RpcReply:
        """Answer `initialize` with a new session, whose id is in a header of the reply."""
        host_session, server = await self._services.sessions.open(mount, caller, intent)
        self._services.denied.in_session(mount, intent.peer, server.peer)
        message = self._dialect.welcome(
            intent, server, offers_tasks=mount.offers_tasks, extensions=mount.extensions, info=mount.info
        )
        return RpcReply(message, headers=((words.SESSION_HEADER, host_session.id),))

    async def _answer_here(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: LegacyIntent
    ) -> RpcReply:
        """Answer a ping or a request about tasks, for which no server is asked."""
        at = host_session.mount.name
        match intent:
            case AnswerPing(id=id_):
                return RpcReply(self._dialect.pong(id_))
            case GetTask(id=id_, task=task):
                record = await self._services.lookups.find(exchange, caller, at, task, words.TASKS_GET)
                return RpcReply(self._dialect.task_state(id_, record))
            case AwaitTask(id=id_, task=task):
                waits = self._services.following
                record = await waits.outcome(exchange, caller, host_session, task, words.TASKS_RESULT)
                return RpcReply(self._dialect.task_outcome(id_, record))
            case CancelTask(id=id_, task=task):
                record = await self._services.tasks.cancel(exchange, caller, at, task, words.TASKS_CANCEL)
                return RpcReply(self._dialect.task_state(id_, record))
            case ListTasks(id=id_, where=where, order=order, cursor=cursor):
                listed, following = await self._services.lookups.page(caller, at, cursor, where, order)
                return RpcReply(self._dialect.task_page(id_, listed, following))
        raise AssertionError(f"unexpected intent of a request: {type(intent).__name__}")

    async def _call_tool(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: CallTool
    ) -> RpcReply:
        """Answer a `tools/call` with the handle of a task if the host asks for one, else with its
        result.
        """
        tasks = self._services.tasks
        if intent.wants_task:
            try:
                record = await tasks.create(caller, host_session, intent)
            except GatewayError:
                self._count_refused(host_session, intent.tool)
                raise
            self._event_sink.emit(ToolCalled(host_session.mount.name, intent.tool, "task"))
            decision = tasks.decided(host_session, intent.tool) or await tasks.decide(host_session, intent.tool)
            return RpcReply(self._dialect.task_created(intent.id, record, decision.immediate_response))
        decision = tasks.decided(host_session, intent.tool) or await tasks.decide(host_session, intent.tool)
        if decision.mode is PromotionMode.REQUIRED and host_session.has_tasks:
            # Before a refusal the server's catalogue is asked, which may say otherwise.
            decision = await tasks.decide(host_session, intent.tool)
            if decision.mode is PromotionMode.REQUIRED:
                self._count_refused(host_session, intent.tool)
                raise TaskSupportMismatch("This tool runs only as a task")
        earlier = None
        if intent.idempotency_key is not None:
            earlier = await tasks.earlier(caller, host_session, intent)
        if earlier is not None:
            # The host did not ask for a task, so it waits for the result of the earlier call.
            record = await self._services.following.outcome(
                exchange, caller, host_session, earlier.id, words.TOOLS_CALL
            )
            return RpcReply(self._dialect.task_outcome(intent.id, record))
        # In shadow mode the operator's rules are counted and not applied. The session then offers no
        # tasks, so its revision tells whether the host could have had one.
        if decision.would_promote and host_session.peer.revision.has_tasks:
            self._event_sink.emit(ShadowPromotion(host_session.mount.name))
        coalesce_key = None
        if intent.idempotency_key is not None or decision.join_retries is not None:
            coalesce_key = CoalesceKey(
                host_session.owner, intent, decision.join_retries, features=client_features(host_session.peer)
            )
        response = await self._services.relaying.send(
            LegacyCall(
                exchange=exchange,
                caller=caller,
                session=host_session,
                id=intent.id,
                method=words.TOOLS_CALL,
                params=intent.params,
                tool=intent.tool,
                progress_token=intent.progress_token,
                coalesce_key=coalesce_key,
            )
        )
        is_legacy = host_session.upstream.era is Era.LEGACY
        foreign = None if is_legacy else EraCrossing(words.TOOLS_CALL, host_session.peer.revision)
        answer = partial(self._dialect.answer, intent.id, response, foreign)
        return RpcReply(answer() if len(response.text) <= LARGE else await in_thread(answer), error_of(response))

    def _count_refused(self, host_session: HostSession, tool: str) -> None:
        is_listed = host_session.upstream.listed(tool) is not None
        self._event_sink.emit(ToolCalled(host_session.mount.name, tool if is_listed else None, "rejected"))

    async def _relay(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: Relay
    ) -> RpcReply:
        """Forward a request of the core protocol, and answer with the server's response.

        A page of `tools/list` is changed: it gets the task support of each tool, and lacks tools
        that the caller may not see.
        """
        response = await self._services.relaying.send(_relayed(exchange, caller, host_session, intent))
        is_legacy = host_session.upstream.era is Era.LEGACY
        foreign = None if is_legacy else EraCrossing(intent.method, host_session.peer.revision)
        if intent.method == words.TOOLS_LIST:
            support = host_session.mount.support if host_session.has_tasks else None
            shows = self._services.access.tool_filter(caller, host_session.mount.name)
            amend = partial(self._dialect.tools, intent.id, response, support, shows, foreign)
            return RpcReply(await offload(len(response.text), amend), error_of(response))
        return RpcReply(
            await offload(len(response.text), partial(self._dialect.answer, intent.id, response, foreign)),
            error_of(response),
        )

    async def _relay_extension(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: Relay
    ) -> RpcReply:
        """Forward a request of an extension. Raises UnknownMethod if it is not forwarded."""
        # Whether an extension is forwarded depends on the server's era, known once it is connected.
        mount, method = host_session.mount, intent.method
        await host_session.upstream.open()
        era = host_session.upstream.era
        extension = self._services.extensions.extension_of(mount, method, Era.LEGACY, era)
        call = _relayed(exchange, caller, host_session, intent)
        call.lasts = method in extension.streams
        work = self._services.relaying.send(call)
        response = await self._services.extensions.hold(caller, mount, method, extension, work)
        if response is None:
            # The token of the caller expired. An empty result ends the request.
            return RpcReply(self._dialect.pong(intent.id))
        foreign = None if era is Era.LEGACY else EraCrossing(method, host_session.peer.revision, extension)
        answer = partial(self._dialect.answer, intent.id, response, foreign)
        return RpcReply(await offload(len(response.text), answer), error_of(response))


def _check_revision(head: Admission) -> None:
    """Raise UnsupportedVersion for a revision that is none of the legacy era.

    For what `classify` does not judge: a request without a message, and the head of a batch.
    """
    if head.revision is not None and find_revision(head.revision) is None:
        raise UnsupportedVersion("The protocol version is not supported")


def _relayed(exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: Relay) -> LegacyCall:
    return LegacyCall(
        exchange=exchange,
        caller=caller,
        session=host_session,
        id=intent.id,
        method=intent.method,
        params=intent.params,
        progress_token=intent.progress_token,
    )


_NO_METHOD: Final = ""
"""The method of a GET request, for rate limits: it counts with the methods that have no limit of
their own."""
_ABOUT_A_TASK = (GetTask, AwaitTask, CancelTask)
