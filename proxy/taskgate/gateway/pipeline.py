"""The life of a request, from the listener to the answer: `Gateway`.

Read `answer` and `_answer_message` from top to bottom: their steps are numbered, and their order is
part of the security. The listener calls `Gateway.answer` for every exchange. It has checked what
needs no body (`listener/door.py`): host, origin, path, method, media types, declared size. From
here on a refusal is a JSON-RPC error if the request has an id. Step 6 finds the era of a message.
After that its adapter knows the era, and no step here asks for it (`eras`).

What becomes known about a request is written into its `RequestContext`, for logs, metrics and
spans. No decision here depends on it.
"""

import asyncio
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Final

from taskgate.admission.access import AccessControl
from taskgate.admission.callers import Callers
from taskgate.admission.lookup_guard import MAX_TASK_ID
from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.admission.mounts import Mount
from taskgate.admission.rates import QuotaFields, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.security_alerts import SecurityAlerts
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.versions import Era, client_of
from taskgate.errors import (
    DownstreamError,
    Draining,
    GatewayError,
    HeaderMismatch,
    MalformedMessage,
    Overloaded,
    SessionNotFound,
    TaskNotFound,
    TooManyBytes,
    Unauthenticated,
    UnparsableMessage,
)
from taskgate.gateway.batches import answer_all, read_batch
from taskgate.gateway.eras import DecodedMessage, EraAdapter
from taskgate.gateway.legacy import LegacyAdapter
from taskgate.gateway.listeners import event_limit
from taskgate.gateway.modern.adapter import ModernAdapter
from taskgate.gateway.refusals import RejectionRenderer, refusal, refused_for
from taskgate.gateway.task_requests import ABOUT_A_TASK, TaskRequests
from taskgate.jsontext.large import to_string
from taskgate.protocol import vocabulary as words
from taskgate.protocol.classify import check_verb, classify
from taskgate.protocol.faults import RETRY_AFTER
from taskgate.protocol.handoff import LIST, handle_in
from taskgate.protocol.headers import read_headers
from taskgate.protocol.host_requests import GetTask
from taskgate.protocol.jsonrpc import is_batch, parse
from taskgate.protocol.messages import TOOL_ERROR, Message, Notification, Request, Response, is_task_id, value_of
from taskgate.streams.bytes_in_flight import SMALL, BytesInFlight
from taskgate.streams.event_limits import EventLimits
from taskgate.streams.exchange import UNKNOWN, Exchange, HttpMethod, HttpReply, ListenerRefused
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.log_throttle import ThrottledLog
from taskgate.system.offload import LARGE, Turns
from taskgate.telemetry import request_context
from taskgate.telemetry.events import CapRefused, EventSink, HttpRefused, TaskDenied, ToolCalled
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.tracing import Tracing

log = getLogger("taskgate.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRules:
    """The settings of the gateway, and the process-wide limits.

    `max_depth` and `max_members` bound the JSON of a message. `strict_names` requires that every
    request about a task names it in a header too (AMB-8). `live` are the operator's rules, `access`
    enforces those about access.
    `in_flight` counts the bytes of large messages, `pressure` measures the memory of the process.
    `event_limits` are the largest events that hosts take.
    """

    max_depth: int
    max_members: int
    strict_names: bool
    live: RuntimeConfig
    access: AccessControl
    in_flight: BytesInFlight
    pressure: MemoryPressure
    event_limits: EventLimits


class Gateway:
    """The handler of every exchange that the public listener accepts.

    `callers` authenticates, and `gate` has the rate limits. `legacy` and `modern` are the adapters
    of the eras, and `task_requests` answers polls.
    """

    def __init__(
        self,
        *,
        mounts: Mapping[str, Mount],
        callers: Callers,
        gate: RateLimiter,
        rules: GatewayRules,
        legacy: LegacyAdapter,
        modern: ModernAdapter,
        task_requests: TaskRequests,
        event_sink: EventSink,
        clock: Clock,
    ) -> None:
        self._mounts = mounts
        self._callers = callers
        self._gate = gate
        self._access = rules.access
        self._rules = rules
        self._legacy = legacy
        self._modern = modern
        self._task_requests = task_requests
        self._rejections = RejectionRenderer(rules.live, modern.dialect)
        self._event_sink = event_sink
        self._clock = clock
        self._in_flight = rules.in_flight
        self._pressure = rules.pressure
        self._tracing: Tracing | None = None
        self._alerts = SecurityAlerts(event_sink, clock)
        self._draining: timedelta | None = None
        self._large_events = ThrottledLog(
            log, "the answer is a larger event than its host takes (server.event_limits), and may be lost"
        )
        self._turns = Turns()
        self._being_parsed: dict[str | None, set[asyncio.Future[None]]] = {}
        """By session id: the ends of the large messages that another thread parses now."""

    def trace(self, tracing: Tracing) -> None:
        """Create spans for requests from now on; called once, if tracing is configured."""
        self._tracing = tracing

    def drain(self, patience: timedelta) -> None:
        """From now on refuse requests that start something, and serve those about what exists.

        Called when a gateway without replicas begins to shut down. `patience` is the retry delay
        that refused hosts are told.
        """
        self._draining = patience
        self._gate.queue.drain()

    async def answer(self, exchange: Exchange) -> HttpReply:
        """Answer one exchange. Raises only CancelledError, and ListenerRefused from reading the
        body.
        """
        head, begun = exchange.head, self._clock.elapsed()
        mount = self._mounts[head.path]
        # A request that came through no listener has no context; no report reads this one then.
        context = request_context.current() or RequestContext("", UNKNOWN, "", "")
        context.mount, context.revision = mount.name, head.revision
        # The refusal of a body over the limit of bytes in flight. It becomes the reply only when the
        # message is parsed, so that the error can name the id.
        refused = None
        try:
            try:
                # 1. Rate limits by address: of requests, and of tokens that were rejected.
                if not self._gate.admits_connection(exchange, mount.name, begun):
                    is_known = partial(self._callers.is_known, exchange, mount)
                    await self._gate.on_connection(exchange, mount.name, is_known)
                # 2. The caller. Without credentials nothing is looked up, and the body is not read. The
                # connection remembers it with the head; then the token only must still be a good one. A
                # large body takes from the rate of its bytes before it is read.
                caller = head.caller
                if caller is None or (head.token is not None and not head.token.recall()):
                    caller = await self._identify(exchange, mount)
                context.caller = caller
                received = exchange.body(self._in_flight, caller, self._admit_large)
                body = received if isinstance(received, bytes) else await received
                # The time in which a host sends its body does not count as the gateway's.
                begun = self._clock.elapsed()
                if len(body) > SMALL:
                    refused = self._count_large_body(exchange, caller, body)
                # 3. GET and DELETE have no message; only the legacy era has them.
                if head.method is not _POST:
                    check_verb(head.revision)
                    return await self._legacy.serve(exchange, context, mount, caller)
                # 4. The body, parsed once: JSON, then one JSON-RPC message, or a batch of an older
                # revision.
                if (
                    body[:1] != b"{"
                    and is_batch(body)
                    and await self._legacy.takes_batches(exchange, context, mount, caller)
                ):
                    return await self._answer_batch(exchange, context, mount, caller, body, begun, refused)
                if len(body) > LARGE:
                    message = await self._parse_in_thread(head.host_session, caller, body)
                else:
                    message = parse(body, max_depth=self._rules.max_depth, max_members=self._rules.max_members)
                    if self._being_parsed and isinstance(message, Notification):
                        await self._wait_for_earlier(head.host_session)
            except ListenerRefused:
                raise
            except Exception as error:
                return await self._refuse_unread(error, mount, exchange, context, begun)
            # From here on only the text of the message is needed.
            del body, received
            context.message = message
            if refused is not None:
                return self._refuse(refused, mount, exchange, context, message, begun)
            return await self._answer_message(exchange, context, mount, caller, message, begun)
        finally:
            if self._gate.passed_in_cache:
                await self._gate.flush(exchange, mount.name)

    async def _answer_message(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        message: Message,
        begun: float,
    ) -> HttpReply:
        """Take the steps 5 to 12 for one message. Errors become replies here, and requests are
        counted.
        """
        request, wanted = message if isinstance(message, Request) else None, None
        if self._tracing is not None and request is not None:
            context.span = self._tracing.start_server_span(
                request, mount=mount.name, revision=exchange.head.revision, fields=exchange.fields
            )
        # Until its era is known, an invalid message is refused by the rules of the modern era.
        adapter: EraAdapter = self._modern
        try:
            # 5. Nothing new while the gateway drains or memory is short. When `tasks/get` is
            # refused, hosts treat the task as failed; so requests about existing tasks are served.
            if request is not None and (self._draining is not None or self._pressure.level):
                self._check_load(mount, request)
            # 6. The era of the message.
            route = classify(
                message,
                exchange.head.revision,
                partial(read_headers, exchange.fields),
                offers_tasks=mount.offers_tasks,
                extensions=mount.extensions,
                strict_names=self._rules.strict_names,
            )
            adapter = self._modern if route is not None else self._legacy
            # 7. Decode: what the host wants; its parameters are checked here.
            decoded = adapter.decode(exchange, context, mount, caller, message, route)
            wanted = decoded if isinstance(decoded, DecodedMessage) else await decoded
            try:
                # 8. The caller's rate limit, at which it may wait for its turn. Answers to questions that
                # are open are exempt.
                quota: QuotaFields = (
                    await self._limit_response(caller, exchange, mount, wanted)
                    if isinstance(message, Response)
                    else ()
                    if self._gate.admits(
                        caller, exchange, mount.name, wanted.limited_as or message.method, wanted.tool, begun
                    )
                    else await self._check_rates(wanted, message)
                )
                # 9. The operator's access rules. For a request about a task, they apply to the
                # task's tool, when the task is found.
                if (
                    request is not None
                    and not self._access.live.current.access.allows_all
                    and not isinstance(wanted.intent, ABOUT_A_TASK)
                ):
                    self._access.check(caller, mount.name, wanted.limited_as or request.method, wanted.tool)
            except GatewayError:
                if wanted.tool is not None:
                    self._event_sink.emit(ToolCalled(mount.name, adapter.listed_tool(wanted), "rejected"))
                raise
            # 10. Handle: a call of a server (`calls`), a request about tasks (`task_requests`), or
            # what only this era has. A poll of a head waits for nothing, unless replicas share the store.
            answered = (
                self._task_requests.poll(wanted, begun)
                if isinstance(wanted.intent, GetTask)
                else adapter.handle(wanted)
            )
            reply = answered if isinstance(answered, HttpReply) else await answered
            # 11. The quota headers of an answer.
            if quota and reply.body is not None:
                reply.headers += quota
        except ScopeCancelled:
            # The host cancelled its request or left: an answer has no reader.
            self._report_cancelled(context, message, begun)
            return HttpReply(status=202)
        except CancelledError:
            # The connection was closed, or the gateway ends.
            if request is not None:
                self._report_cancelled(context, message, begun)
            raise
        except Exception as error:
            self._report_suspicious(error, mount, caller, message)
            return self._refuse(
                # What could not be decoded has not come to its rate.
                error if wanted is not None else await self._counted(error, caller, exchange, mount),
                mount,
                exchange,
                context,
                message,
                begun,
                adapter.era,
            )
        else:
            # 12. Report.
            if request is not None:
                self._report_answered(context, wanted, request.method, reply, begun)
            return reply
        finally:
            if context.span is not None:
                context.span.end(context.error)

    async def _limit_response(
        self, caller: AuthContext, exchange: Exchange, mount: Mount, wanted: DecodedMessage
    ) -> QuotaFields:
        """Check the rate of a response to nothing that is open, which may wait for its turn.

        Raises RateLimited, and ScopeCancelled if its host leaves.
        """
        if wanted.limited_as is not None:
            _, queued = await self._gate.on_request(caller, exchange, mount.name, wanted.limited_as)
            if queued is not None:
                await queued.wait(exchange, wanted.session, None)
        return ()

    async def _identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """Return the caller, which the head has from now on.

        Raises Unauthenticated, or RateLimited after too many invalid tokens.
        """
        try:
            caller = await self._callers.identify(exchange, mount)
        except Unauthenticated as refused:
            # A request without a token is how hosts discover the authorization server (A-AUTH-1).
            if refused.token_sent:
                await self._gate.on_auth_failure(exchange, mount.name)
            raise
        head = exchange.head
        # The check was of an earlier caller, if any.
        head.caller, head.request_check = caller, None
        return caller

    async def _check_rates(self, wanted: DecodedMessage, message: Request | Notification) -> QuotaFields:
        """Check the rates of a message that is not admitted at once; it may wait for its turn.

        Raises RateLimited, ScopeCancelled if its host leaves or cancels it, and after a wait
        SessionNotFound and what `_check_load` raises.
        """
        quota, queued = await self._gate.on_request(
            wanted.caller, wanted.exchange, wanted.mount.name, wanted.limited_as or message.method, wanted.tool
        )
        if queued is not None:
            request, session = message if isinstance(message, Request) else None, wanted.session
            await queued.wait(wanted.exchange, session, None if request is None else request.id)
            if session is not None and session.is_ended:
                raise SessionNotFound("Session not found")
            if request is not None and (self._draining is not None or self._pressure.level):
                self._check_load(wanted.mount, request)
        return quota

    def _check_load(self, mount: Mount, request: Request) -> None:
        """Refuse what starts something while the gateway drains, or costs memory while that is short.

        Raises Draining or Overloaded.
        """
        method = request.method
        if method == words.TOOLS_CALL and mount.handoff is not None:
            tool = value_of(request.params, "name")
            # A call of the gateway's own tools is a request about calls that exist.
            if tool == LIST.name and tool in mount.reserved:
                method = words.TASKS_LIST
            elif mount.handoff.has(tool) and is_task_id(handle_in(request.params)):
                return
        if self._draining is not None and _starts_something(request, method):
            raise Draining(self._draining)
        if self._pressure.level and self._pressure.refuses(method):
            raise Overloaded(RETRY_AFTER)

    # --- bodies that are large, or have several messages --------------------------------------------------------------

    async def _admit_large(self, exchange: Exchange, caller: AuthContext, size: int) -> None:
        """Check the rate of a large body by its bytes, at which it may wait for its turn.

        Raises RateLimited, and ScopeCancelled if its host leaves.
        """
        # A reload may have removed the mount while its body arrives.
        mount = self._mounts.get(exchange.head.path)
        await self._gate.on_large_body(caller, exchange, "" if mount is None else mount.name, size)

    async def _parse_in_thread(self, session: str | None, caller: AuthContext, body: bytes) -> Message:
        """Parse a large message on another thread, and register it in `_being_parsed` meanwhile."""
        work = partial(parse, body, max_depth=self._rules.max_depth, max_members=self._rules.max_members)
        if session is None:
            return await self._turns.run(caller.subject, work)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        now = self._being_parsed.setdefault(session, set())
        now.add(over)
        try:
            return await self._turns.run(caller.subject, work)
        finally:
            over.set_result(None)
            now.discard(over)
            if not now:
                self._being_parsed.pop(session, None)

    async def _wait_for_earlier(self, session: str | None) -> None:
        """Wait for the messages of the session that are still being parsed.

        The notification that came now may cancel one of them.
        """
        for over in tuple(self._being_parsed.get(session, ())):
            await asyncio.wait((over,))

    async def _answer_batch(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        body: bytes,
        begun: float,
        refused: TooManyBytes | None,
    ) -> HttpReply:
        """Answer each message of a batch as if it came alone. Raises `refused`, and what `split_batch`
        raises.
        """
        if refused is not None:
            raise refused.copy()
        bounds = self._rules
        parts = await read_batch(
            body, self._turns, caller.subject, max_depth=bounds.max_depth, max_members=bounds.max_members
        )
        del body
        context.parts = len(parts)
        return await answer_all(
            exchange, parts, partial(self._answer_one_of_many, exchange, context, mount, caller, begun)
        )

    async def _answer_one_of_many(
        self,
        exchange: Exchange,
        batch: RequestContext,
        mount: Mount,
        caller: AuthContext,
        begun: float,
        part: Message | GatewayError,
    ) -> str | None:
        """Answer one element of a batch; None if it needs no answer."""
        context = batch.for_message(None)
        with in_request(context):
            try:
                if isinstance(part, GatewayError):
                    # Beyond the rate it has the same answer: there may be no id for another one.
                    await self._counted(part, caller, exchange, mount)
                    raise part.copy()
                message = context.message = part
                if isinstance(message, Request) and message.method == words.INITIALIZE:
                    refused = MalformedMessage("initialize is not allowed in a batch", id=message.id)
                    raise await self._counted(refused, caller, exchange, mount)
                reply = await self._answer_message(exchange, context, mount, caller, message, begun)
            except GatewayError as error:
                reply, code = refusal(error, mount, context.message)
                context.refusal, context.error = refused_for(error), str(code)
                return None if reply.body is None else to_string(reply.body)
            finally:
                self._event_sink.emit(context)
        return to_string(reply.body) if isinstance(message, Request) and reply.body is not None else None

    def _count_large_body(self, exchange: Exchange, caller: AuthContext, body: bytes) -> TooManyBytes | None:
        """Count a large body until its answer has been sent.

        Returns an error, and counts nothing, if the limit of bytes in flight is exceeded.
        """
        refused = self._in_flight.refusal(caller, len(body))
        if refused is None:
            exchange.count_answer(len(body))
        else:
            self._event_sink.emit(CapRefused("bytes", refused.scope))
        return refused

    # --- refusals and reports -----------------------------------------------------------------------------------------

    async def _refuse_unread(
        self, error: Exception, mount: Mount, exchange: Exchange, context: RequestContext, begun: float
    ) -> HttpReply:
        """Return the reply to an exchange whose message was not read.

        A body that is no message counts for its caller, as a message that no rate names.
        """
        caller = exchange.head.caller
        if caller is not None and isinstance(error, UnparsableMessage | MalformedMessage):
            error = await self._counted(error, caller, exchange, mount)
        return self._refuse(error, mount, exchange, context, None, begun)

    async def _counted(self, error: Exception, caller: AuthContext, exchange: Exchange, mount: Mount) -> Exception:
        """Count a message that is refused before its rate was asked. Return its error, or that of the rate.

        A failure of the gateway itself does not count, nor what it refuses while it drains or is short of memory.
        """
        try:
            if isinstance(error, DownstreamError):
                await self._gate.on_unread(caller, exchange, mount.name)
        except GatewayError as over:
            return over.copy()
        return error

    def _refuse(
        self,
        error: Exception,
        mount: Mount,
        exchange: Exchange,
        context: RequestContext,
        message: Message | None,
        begun: float,
        era: Era = Era.LEGACY,
    ) -> HttpReply:
        """Return the reply to an exchange that ended in an error, and report it.

        `message` is None if none was read.
        """
        if not isinstance(error, GatewayError):
            log.error("Unexpected error in a request", exc_info=error)
        reply, code = refusal(error, mount, message, era)
        context.refusal, context.error = refused_for(error), str(code)
        if code == words.OVER_LIMIT and isinstance(message, Request):
            self._rejections.render(reply, error, message, era)
        if isinstance(error, Unauthenticated) and exchange.has_begun:
            # The answer ends without a message, so that the host reconnects, gets 401, and obtains
            # a new token.
            reply = HttpReply()
        if reply.status != 200 and not exchange.has_begun:
            self._event_sink.emit(HttpRefused(type(error).reason if isinstance(error, GatewayError) else "internal"))
        if isinstance(message, Request):
            context.method, context.rpc_revision = message.method, exchange.head.revision
            context.rpc_seconds = self._clock.elapsed() - begun
        return reply

    def _report_suspicious(self, error: Exception, mount: Mount, caller: AuthContext, message: Message) -> None:
        """Report a security event for an error that shows an attack or a probe."""
        if isinstance(error, HeaderMismatch) and error.contradicts:
            self._alerts.raise_once("header_mismatch", caller.key, mount.name)
        elif isinstance(error, TaskNotFound) and isinstance(message, Request):
            is_call = message.method == words.TOOLS_CALL
            asked = handle_in(message.params) if is_call else value_of(message.params, "taskId")
            if not is_task_id(asked):
                # No lookup was made: the text cannot be an id of a task.
                task = asked[:MAX_TASK_ID] if isinstance(asked, str) else ""
                self._event_sink.emit(TaskDenied(mount.name, message.method, "malformed_id", task, None))

    def _report_answered(
        self, context: RequestContext, wanted: DecodedMessage, method: str, reply: HttpReply, begun: float
    ) -> None:
        """Write into the context of an answered request what the answer shows."""
        error, size = reply.error, 0 if reply.body is None else len(reply.body)
        if size > SMALL:
            wanted.exchange.count_answer(size)
            if wanted.exchange.is_streaming:
                self._report_large_event(wanted, size)
        if size and method == words.TOOLS_CALL and (error is None or error == TOOL_ERROR):
            context.result_bytes = size
        context.error, context.method, context.rpc_revision = error, method, wanted.revision
        # How quickly polls are answered shows how well the gateway and its store do.
        context.rpc_seconds = self._clock.elapsed() - begun - wanted.waited

    def _report_large_event(self, wanted: DecodedMessage, size: int) -> None:
        """Log an answer that goes as an event and is larger than those that its host takes."""
        if (peer := wanted.peer) is None:
            return
        most = event_limit(self._rules.event_limits, wanted.exchange, peer)
        if most is not None and size > most:
            client = client_of(peer.info)
            self._large_events.emit({"client": client.name, "version": client.version, "bytes": size, "limit": most})

    def _report_cancelled(self, context: RequestContext, message: Message, begun: float) -> None:
        """Report a message whose host no longer waits for an answer."""
        context.error = _CANCELLED
        if isinstance(message, Request):
            context.method, context.rpc_revision = message.method, context.revision
            context.rpc_seconds = self._clock.elapsed() - begun


def _starts_something(request: Request, method: str) -> bool:
    """Return whether a request starts something that outlasts it, such as a call or a stream.

    `method` is what it counts as. A retry with input responses is no start: it continues a call.
    """
    if method not in _BEGINNINGS:
        return False
    return all(value_of(request.params, name) is None for name in ("inputResponses", "requestState"))


_BEGINNINGS: Final = frozenset(
    {words.TOOLS_CALL, words.INITIALIZE, words.SUBSCRIPTIONS_LISTEN, words.RESOURCES_SUBSCRIBE}
)
_CANCELLED: Final = "cancelled"
"""The error label of a request that its host cancelled."""
# To read a member from its class costs as much as a call in Python 3.11.
_POST: Final = HttpMethod.POST
