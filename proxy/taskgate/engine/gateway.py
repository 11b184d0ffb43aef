"""The life of a request, from the door to the answer. Read `answer` top to bottom; the order is part of the security.

Before this page the listener has checked what needs no body (`downstream/door.py`): host, origin, path, method, media
types, size as it is declared. From here on a refusal is a JSON-RPC error wherever there is an id to answer to.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from logging import getLogger

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.base import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelTask,
    DownstreamDialect,
    GetTask,
    Intent,
    ListTasks,
    OpenSession,
    Relay,
)
from taskgate.engine.batches import answer_all
from taskgate.engine.entry import session_of
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.callers import Callers
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.guard.refusals import refusal
from taskgate.engine.messages import Exchange, ListenerRefused, Reply, Verb
from taskgate.engine.mounts import Mount
from taskgate.engine.notes import Notes
from taskgate.engine.relay import Asked, Relaying
from taskgate.engine.resuming import Resuming
from taskgate.engine.sessions import HostSession, HostSessions
from taskgate.engine.spoken import Spoken, error_of, revision_of
from taskgate.engine.task_service import TaskService
from taskgate.engine.telling.following import Following
from taskgate.errors import (
    Draining,
    GatewayError,
    MalformedMessage,
    TaskSupportMismatch,
)
from taskgate.interruption import Interrupted
from taskgate.mcp import vocabulary as words
from taskgate.mcp.batches import is_array, split
from taskgate.mcp.jsonrpc import Message, Request, Response, parse
from taskgate.mcp.versions import Revision
from taskgate.telemetry.audit import Audit, HttpRefused, RpcAnswered, ToolCalled

log = getLogger("taskgate.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The parts of the house that a request may pass through."""

    sessions: HostSessions
    access: Access
    lookups: Lookups
    tasks: TaskService
    following: Following
    notes: Notes
    relaying: Relaying
    resuming: Resuming


class Gateway:
    """Answers every exchange that the public listener lets through."""

    def __init__(
        self,
        *,
        mounts: Mapping[str, Mount],
        dialect: DownstreamDialect,
        rooms: Rooms,
        callers: Callers,
        max_depth: int,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self._mounts = mounts
        self._dialect = dialect
        self._rooms = rooms
        self._callers = callers
        self._max_depth = max_depth
        self._audit = audit
        self._clock = clock
        self._draining: timedelta | None = None

    def drain(self, patience: timedelta) -> None:
        """Refuse whatever still comes; `patience` is when to try again, elsewhere."""
        self._draining = patience

    async def answer(self, exchange: Exchange) -> Reply:
        """The reply to one exchange; raises nothing but cancellation, and what the listener says of a body."""
        begun = self._clock.elapsed()
        mount = self._mounts[exchange.inbound.path]
        try:
            # 1. Who asks. Nothing is looked at for somebody who does not say, nor is a body waited for.
            caller = await self._callers.identify(exchange, mount)
            body = await exchange.body()
            begun = self._clock.elapsed()
            # 2. A stream or a goodbye has no message.
            if exchange.inbound.verb is not Verb.POST:
                self._refuse_when_draining()
                return await self._serve_session(exchange, mount, caller)
            # 3. The body is judged once: JSON, then one JSON-RPC message, or what an older revision has as well.
            if is_array(body) and await self._takes_batches(exchange, mount, caller):
                each = partial(self._answer_one_of_many, exchange, mount, caller, begun)
                return await answer_all(exchange, split(body, max_depth=self._max_depth), each)
            message = parse(body, max_depth=self._max_depth)
        except ListenerRefused:
            raise
        except Exception as error:
            return self._refuse(error, mount, exchange, None, begun)
        return await self._answer_message(exchange, mount, caller, message, begun)

    async def _answer_message(
        self, exchange: Exchange, mount: Mount, caller: AuthContext, message: Message, begun: float
    ) -> Reply:
        try:
            # 4. The session, its owner checked, and the revision it was opened with.
            if not isinstance(message, Response):
                # An answer is what tasks that still run may wait for.
                self._refuse_when_draining()
            host_session = await self._find_session(exchange, mount, caller, message)
            # 5. What the message asks, in neutral words; its parameters are checked here.
            peer = None if host_session is None else host_session.peer
            if host_session is not None and host_session.trails is not None:
                exchange.keep(host_session.trails)
            intent = self._dialect.decode(message, peer, offers_tasks=mount.offers_tasks)
            if not isinstance(message, Request):
                assert host_session is not None, "only a request opens a session"
                await self._rooms.notes.take(caller, host_session, intent)
                return Reply(status=202)
            # 6. Whether the operator's rules let this caller do it; where a task is meant, they look at its tool.
            if not isinstance(intent, _ABOUT_A_TASK):
                tool = intent.tool if isinstance(intent, CallTool) else None
                self._rooms.access.check(caller, mount.name, message.method, tool)
            # 7. Do it.
            with host_session or nullcontext():
                spoken = await self._perform(exchange, mount, caller, host_session, intent)
        except Interrupted:
            # The host gave its request up, or left: nobody waits for an answer.
            return Reply(status=202)
        except Exception as error:
            return self._refuse(error, mount, exchange, message, begun)
        self._count(mount, message, revision_of(peer, intent), begun, spoken.error)
        return Reply(body=spoken.message, headers=spoken.headers)

    async def _answer_one_of_many(
        self, exchange: Exchange, mount: Mount, caller: AuthContext, begun: float, element: bytes
    ) -> str | None:
        """What one element of a batch is answered; None for what nobody waits for an answer to."""
        try:
            message = parse(element, max_depth=self._max_depth)
            if isinstance(message, Request) and message.method == words.INITIALIZE:
                raise MalformedMessage("No session is opened in a batch", id=message.id)
        except GatewayError as error:
            return refusal(error, mount, None)[0].body
        reply = await self._answer_message(exchange, mount, caller, message, begun)
        return reply.body if isinstance(message, Request) else None

    # --- the steps, in the order of `answer` ------------------------------------------------------------------------

    async def _takes_batches(self, exchange: Exchange, mount: Mount, caller: AuthContext) -> bool:
        if exchange.inbound.host_session is None:
            return False
        host_session = await self._session(exchange, mount, caller)
        return host_session.peer.revision is Revision.R2025_03_26

    def _refuse_when_draining(self) -> None:
        if self._draining is not None:
            raise Draining(self._draining)

    async def _serve_session(self, exchange: Exchange, mount: Mount, caller: AuthContext) -> Reply:
        host_session = await self._session(exchange, mount, caller)
        if exchange.inbound.verb is Verb.GET:
            with host_session:
                return await self._rooms.resuming.serve(exchange, host_session, caller)
        await self._rooms.sessions.end(host_session)
        return Reply(status=200)

    async def _find_session(
        self, exchange: Exchange, mount: Mount, caller: AuthContext, message: Message
    ) -> HostSession | None:
        """The session a message belongs to; None for the one message that opens one."""
        if isinstance(message, Request) and message.method == words.INITIALIZE:
            return None
        return await self._session(exchange, mount, caller)

    async def _session(self, exchange: Exchange, mount: Mount, caller: AuthContext) -> HostSession:
        return await session_of(exchange.inbound, self._rooms.sessions, mount, caller)

    async def _perform(
        self,
        exchange: Exchange,
        mount: Mount,
        caller: AuthContext,
        host_session: HostSession | None,
        intent: Intent,
    ) -> Spoken:
        if isinstance(intent, OpenSession):
            return await self._open_session(mount, caller, intent)
        assert host_session is not None, "the dialect lets nothing else through without a session"
        tasks, at = self._rooms.tasks, mount.name
        match intent:
            case AnswerPing(id=id_):
                return Spoken(self._dialect.pong(id_))
            case CallTool():
                return await self._call_tool(exchange, caller, host_session, intent)
            case GetTask(id=id_, task=task):
                record = await tasks.get(exchange, caller, at, task, words.TASKS_GET)
                return Spoken(self._dialect.task_state(id_, record))
            case AwaitTask(id=id_, task=task):
                waits = self._rooms.following
                record = await waits.outcome(exchange, caller, host_session, task, words.TASKS_RESULT)
                return Spoken(self._dialect.task_outcome(id_, record))
            case CancelTask(id=id_, task=task):
                record = await tasks.cancel(exchange, caller, at, task, words.TASKS_CANCEL)
                return Spoken(self._dialect.task_state(id_, record))
            case ListTasks(id=id_, where=where, order=order, cursor=cursor):
                listed, following = await self._rooms.lookups.page(caller, at, cursor, where, order)
                return Spoken(self._dialect.task_page(id_, listed, following))
            case Relay():
                return await self._relay(exchange, caller, host_session, intent)
        raise AssertionError(f"{type(intent).__name__} is no intent of a request")

    # --- what can be asked ------------------------------------------------------------------------------------------

    async def _open_session(self, mount: Mount, caller: AuthContext, intent: OpenSession) -> Spoken:
        host_session, server = await self._rooms.sessions.open(mount, caller, intent)
        message = self._dialect.welcome(intent, server, offers_tasks=mount.offers_tasks)
        return Spoken(message, headers=((words.SESSION_HEADER, host_session.id),))

    async def _call_tool(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: CallTool
    ) -> Spoken:
        mount = host_session.mount.name
        if intent.wants_task:
            try:
                record = await self._rooms.tasks.create(caller, host_session, intent)
            except GatewayError:
                self._audit.record(ToolCalled(mount, None, "rejected"))
                raise
            self._audit.record(ToolCalled(mount, intent.tool, "task"))
            told = self._rooms.tasks.immediate_response(host_session, intent.tool)
            return Spoken(self._dialect.task_created(intent.id, record, told))
        if host_session.has_tasks and self._rooms.tasks.insists(host_session, intent.tool):
            self._audit.record(ToolCalled(mount, None, "rejected"))
            raise TaskSupportMismatch("The tool runs only as a task")
        listed = intent.tool if host_session.upstream.lists(intent.tool) else None
        self._audit.record(ToolCalled(mount, listed, "direct"))
        response = await self._rooms.relaying.forward(
            exchange,
            caller,
            host_session,
            Asked(intent.id, words.TOOLS_CALL, intent.params, intent.progress_token, intent.tool),
        )
        return Spoken(self._dialect.answer(intent.id, response), error_of(response))

    async def _relay(self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: Relay) -> Spoken:
        asked = Asked(intent.id, intent.method, intent.params, intent.progress_token)
        response = await self._rooms.relaying.forward(exchange, caller, host_session, asked)
        if intent.method == words.TOOLS_LIST:
            support = host_session.mount.support if host_session.has_tasks else None
            shows = self._rooms.access.shown_to(caller, host_session.mount.name)
            return Spoken(self._dialect.tools(intent.id, response, support, shows), error_of(response))
        return Spoken(self._dialect.answer(intent.id, response), error_of(response))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _refuse(
        self, error: Exception, mount: Mount, exchange: Exchange, message: Message | None, begun: float
    ) -> Reply:
        if not isinstance(error, GatewayError):
            log.error("A request failed in a way that was not foreseen", exc_info=error)
        reply, code = refusal(error, mount, message)
        if reply.status != 200 and not exchange.streams:
            self._audit.record(HttpRefused(type(error).reason if isinstance(error, GatewayError) else "internal"))
        if isinstance(message, Request):
            self._count(mount, message, exchange.inbound.revision, begun, str(code))
        return reply

    def _count(self, mount: Mount, message: Request, revision: str | None, begun: float, error: str | None) -> None:
        seconds = self._clock.elapsed() - begun
        self._audit.record(RpcAnswered(mount.name, message.method, revision, seconds, error))


_ABOUT_A_TASK = (GetTask, AwaitTask, CancelTask)
