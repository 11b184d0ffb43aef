"""The life of a request, from the door to the answer. Read `answer` top to bottom; the order is part of the security.

Before this page the listener has checked what needs no body (`downstream/door.py`): host, origin, path, method, media
types, size as it is declared. From here on a refusal is a JSON-RPC error wherever there is an id to answer to.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from logging import getLogger
from typing import NamedTuple

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.base import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelCall,
    CancelTask,
    DownstreamDialect,
    GetTask,
    Intent,
    ListTasks,
    OpenSession,
    Relay,
)
from taskgate.engine.access import Access
from taskgate.engine.callers import Callers
from taskgate.engine.listen import Listening
from taskgate.engine.lookups import Lookups
from taskgate.engine.messages import Exchange, ListenerRefused, Reply, Verb
from taskgate.engine.mounts import Mount
from taskgate.engine.refusals import refusal
from taskgate.engine.relay import Relaying
from taskgate.engine.sessions import HostSession, HostSessions
from taskgate.engine.task_service import TaskService
from taskgate.errors import (
    Draining,
    GatewayError,
    SessionRequired,
    TaskSupportMismatch,
    UnsupportedVersion,
)
from taskgate.interruption import Interrupted
from taskgate.mcp import vocabulary as words
from taskgate.mcp.jsonrpc import Message, Request, Response, parse
from taskgate.mcp.versions import find_revision
from taskgate.telemetry.audit import Audit, HttpRefused, RpcAnswered, ToolCalled

log = getLogger("taskgate.gateway")


class Spoken(NamedTuple):
    """An answer to a request: the message, and what to count it as (None, a JSON-RPC code, `tool_error`)."""

    message: str
    error: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The parts of the house that a request may pass through."""

    sessions: HostSessions
    access: Access
    lookups: Lookups
    tasks: TaskService
    relaying: Relaying
    listening: Listening


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
        message: Message | None = None
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
            # 3. The body is judged once: JSON, then one JSON-RPC message.
            message = parse(body, max_depth=self._max_depth)
            # 4. The session, its owner checked, and the revision it was opened with.
            self._refuse_when_draining()
            host_session = await self._find_session(exchange, mount, caller, message)
            # 5. What the message asks, in neutral words; its parameters are checked here.
            peer = None if host_session is None else host_session.peer
            intent = self._dialect.decode(message, peer, offers_tasks=mount.offers_tasks)
            if not isinstance(message, Request):
                self._note(host_session, intent)
                return Reply(status=202)
            # 6. Whether the operator's rules let this caller do it; where a task is meant, they look at its tool.
            if not isinstance(intent, _ABOUT_A_TASK):
                tool = intent.tool if isinstance(intent, CallTool) else None
                self._rooms.access.check(caller, mount.name, message.method, tool)
            # 7. Do it.
            with host_session or nullcontext():
                spoken = await self._perform(exchange, mount, caller, host_session, intent)
        except ListenerRefused:
            raise
        except Interrupted:
            # The host gave its request up, or left: nobody waits for an answer.
            return Reply(status=202)
        except Exception as error:
            return self._refuse(error, mount, exchange, message, begun)
        self._count(mount, message, _revision(host_session, intent), begun, spoken.error)
        return Reply(body=spoken.message, headers=spoken.headers)

    # --- the steps, in the order of `answer` ------------------------------------------------------------------------

    def _refuse_when_draining(self) -> None:
        if self._draining is not None:
            raise Draining(self._draining)

    async def _serve_session(self, exchange: Exchange, mount: Mount, caller: AuthContext) -> Reply:
        host_session = await self._session(exchange, mount, caller)
        if exchange.inbound.verb is Verb.GET:
            with host_session:
                return await self._rooms.listening.serve(exchange, host_session, caller)
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
        inbound = exchange.inbound
        if inbound.revision is not None and find_revision(inbound.revision) is None:
            raise UnsupportedVersion("The protocol version is not supported")
        if inbound.host_session is None:
            raise SessionRequired("The message needs a session: send initialize first")
        host_session = await self._rooms.sessions.find(mount, caller, inbound.host_session)
        if inbound.revision is not None and inbound.revision != host_session.peer.revision:
            raise UnsupportedVersion("The protocol version is not the one the session was opened with")
        return host_session

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
                record = await tasks.outcome(exchange, caller, at, task, words.TASKS_RESULT)
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

    def _note(self, host_session: HostSession | None, intent: Intent) -> None:
        """A notification: a cancelled call is stopped, anything else needs nothing done (T51)."""
        if isinstance(intent, CancelCall) and host_session is not None:
            self._rooms.relaying.cancel(host_session, intent.request)

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
            id=intent.id,
            method=words.TOOLS_CALL,
            params=intent.params,
            progress_token=intent.progress_token,
        )
        return Spoken(self._dialect.answer(intent.id, response), _error_of(response))

    async def _relay(self, exchange: Exchange, caller: AuthContext, host_session: HostSession, intent: Relay) -> Spoken:
        response = await self._rooms.relaying.forward(
            exchange,
            caller,
            host_session,
            id=intent.id,
            method=intent.method,
            params=intent.params,
            progress_token=intent.progress_token,
        )
        if intent.method == words.TOOLS_LIST:
            support = host_session.mount.support if host_session.has_tasks else None
            shows = self._rooms.access.shown_to(caller, host_session.mount.name)
            return Spoken(self._dialect.tools(intent.id, response, support, shows), _error_of(response))
        return Spoken(self._dialect.answer(intent.id, response), _error_of(response))

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


def _revision(host_session: HostSession | None, intent: Intent) -> str | None:
    """What the host speaks, whether its message said so or not."""
    if host_session is not None:
        return host_session.peer.revision
    return intent.peer.revision if isinstance(intent, OpenSession) else None


def _error_of(response: Response) -> str | None:
    if response.error is not None:
        return str(response.error.value["code"])
    result = response.result.value if response.result is not None else None
    return "tool_error" if isinstance(result, dict) and result.get("isError") is True else None


_ABOUT_A_TASK = (GetTask, AwaitTask, CancelTask)
