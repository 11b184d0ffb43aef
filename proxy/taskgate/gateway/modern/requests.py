"""The requests of the modern era (revision 2026-07-28): `ModernRequests`.

`Gateway` calls `answer` after it has found the era of a request. The dialect decodes the request to
an intent; rate limits and access rules apply; then `Calls`, `TaskRequests` or `Subscriptions`
executes the intent. A modern host has no session with the gateway. The upstream session of a
request is chosen by what its `_meta` declares (`session_pool`). `gateway/legacy` is the counterpart
for the legacy era.
"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Final

from taskgate.admission.access import AccessControl
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.admission.quota import QuotaFields
from taskgate.admission.rates import RateLimiter
from taskgate.auth.context import AuthContext
from taskgate.domain.versions import Era
from taskgate.errors import GatewayError, UpstreamFailed
from taskgate.gateway.denied_extensions import DeniedExtensions
from taskgate.gateway.extension_requests import ExtensionRequests
from taskgate.gateway.modern.calls import Calls
from taskgate.gateway.modern.session_pool import SessionPool, SharedSession
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.gateway.modern.task_requests import TaskRequests
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.faults import modern_status
from taskgate.protocol.headers import check_params
from taskgate.protocol.host_requests import (
    CallTool,
    CancelTask,
    Discover,
    GetTask,
    LegacyTaskRequest,
    Listen,
    Relay,
    RequestMeta,
    Retry,
    UpdateTask,
)
from taskgate.protocol.messages import Request
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import MODERN_METHODS, TOOLS_LIST
from taskgate.streams.exchange import TOOL_ERROR, Exchange, HandledRequest, HttpReply, RpcReply, error_of
from taskgate.system.offload import offload

_ABOUT_TASKS: Final = (GetTask, UpdateTask, CancelTask, LegacyTaskRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernRequests:
    """The handler of requests of the modern era.

    `gate` has the rate limits, `access` the operator's rules, `lines` the upstream sessions, and
    `streams` the limit of open event streams.
    """

    dialect: ModernDownstream
    gate: RateLimiter
    streams: OpenStreams
    access: AccessControl
    lines: SessionPool
    calls: Calls
    runner: Runner
    tasks: TaskRequests
    subscriptions: Subscriptions
    extensions: ExtensionRequests
    denied: DeniedExtensions

    async def answer(
        self, exchange: Exchange, mount: Mount, caller: AuthContext, request: Request, meta: RequestMeta
    ) -> HandledRequest:
        """Answer one request. `meta` is what its `_meta` declares.

        Raises GatewayError, and ScopeCancelled when the host disconnected.
        """
        # 1. The intent of the request; its parameters are checked here.
        intent = self.dialect.decode(request, meta, offers_tasks=mount.offers_tasks, extensions=mount.extensions)
        request_intent = intent.request if isinstance(intent, Retry) else intent
        tool = request_intent.tool if isinstance(request_intent, CallTool) else None
        try:
            # 2. The caller's rate limit.
            quota = await self.gate.on_request(caller, exchange, mount.name, request.method, tool)
            # 3. The operator's access rules. For a request about a task, they apply to the task's
            # tool, when the task is found.
            if not isinstance(intent, _ABOUT_TASKS):
                self.access.check(caller, mount.name, request.method, tool)
        except GatewayError:
            self._turned_away(mount, tool)
            raise
        # 4. A request about a task.
        match intent:
            case GetTask():
                return _answered(await self.tasks.get(exchange, caller, mount.name, intent), meta, quota)
            case UpdateTask():
                return _answered(await self.tasks.update(exchange, caller, mount.name, intent), meta, quota)
            case CancelTask():
                return _answered(await self.tasks.cancel(exchange, caller, mount.name, intent), meta, quota)
            case LegacyTaskRequest():
                return _answered(await self.tasks.of_legacy(exchange, caller, mount.name, intent), meta, quota)
        session = self.lines.take(mount, caller, meta.peer)
        # A shutdown that waits for tasks also waits for a call that may become one.
        may_become_task = isinstance(request_intent, CallTool) and request_intent.stored_params is not None
        with self.runner.expecting(session) if may_become_task else session:
            if tool is not None:
                # 5. The headers that mirror arguments; only the server's catalogue names them.
                listed = session.upstream.listed(tool) or await self._look_up(exchange, session, meta, tool)
                if listed is not None and listed.header_paths:
                    self._check_params(meta, mount, request, tool, listed)
            # 6. Execute the intent.
            match intent:
                case CallTool():
                    rpc_reply = await self.calls.call(exchange, caller, session, meta, intent)
                case Retry():
                    rpc_reply = await self.calls.retry(exchange, caller, session, meta, intent)
                case Relay(method=method) if method == TOOLS_LIST:
                    rpc_reply = await self._list_tools(exchange, caller, session, meta, intent)
                case Relay(method=method) if method not in MODERN_METHODS:
                    rpc_reply = await self._relay_extension(exchange, caller, session, meta, intent)
                case Relay():
                    rpc_reply = await self.calls.relay(exchange, caller, session, meta, intent)
                case Discover():
                    rpc_reply = await self._discover(exchange, session, meta, intent)
                case Listen():
                    return HandledRequest(await self._listen(exchange, caller, session, intent), meta.peer.revision)
                case _:
                    raise AssertionError(f"unexpected intent of a request: {type(intent).__name__}")
            return _answered(rpc_reply, meta, quota)

    def _check_params(self, meta: RequestMeta, mount: Mount, request: Request, tool: str, listed: ListedTool) -> None:
        try:
            check_params(meta.header_params, request, listed.header_paths)
        except GatewayError:
            self._turned_away(mount, tool, is_listed=True)
            raise

    def _turned_away(self, mount: Mount, tool: str | None, *, is_listed: bool = False) -> None:
        """Count a `tools/call` that was refused here; other requests are not counted.

        `is_listed` is False while it is unknown whether the server lists the tool.
        """
        if tool is not None:
            self.calls.count_refused(mount.name, tool if is_listed else None)

    async def _listen(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, intent: Listen
    ) -> HttpReply:
        """Serve `subscriptions/listen` until its stream ends."""
        if intent.wants.tasks:
            # One request may name many tasks, so a caller with too many failed look-ups is refused.
            await self.gate.check_lookups(caller, exchange, session.mount.name)
        with self.streams.acquire_stream(caller):
            return await self.subscriptions.serve(exchange, caller, session, intent)

    async def _discover(
        self, exchange: Exchange, session: SharedSession, meta: RequestMeta, intent: Discover
    ) -> RpcReply:
        server = await self.calls.wait_for_session(exchange, meta, session.upstream.welcome())
        mount = session.mount
        self.denied.at_discovery(mount, meta.peer, server.peer)
        text = self.dialect.discovery(
            intent.id, server, offers_tasks=mount.offers_tasks, extensions=mount.extensions, info=mount.info
        )
        return RpcReply(text)

    async def _list_tools(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: Relay
    ) -> RpcReply:
        response = await self.calls.forward(exchange, caller, session, meta, intent)
        shows = self.access.tool_filter(caller, session.mount.name)
        amend = partial(self.dialect.tools, intent.id, response, session.upstream.era, shows, session.info)
        return RpcReply(await offload(len(response.text), amend), error_of(response))

    async def _relay_extension(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: Relay
    ) -> RpcReply:
        """Forward a request of an extension. Raises UnknownMethod if it is not forwarded."""
        mount, method = session.mount, intent.method
        # Whether an extension is forwarded depends on the server's era, known once it is connected.
        await self.calls.wait_for_session(exchange, meta, session.upstream.open())
        extension = self.extensions.extension_of(mount, method, Era.MODERN, session.upstream.era)
        work = self.calls.forward(exchange, caller, session, meta, intent)
        response = await self.extensions.hold(caller, mount, method, extension, work)
        if response is None:
            return RpcReply(self.dialect.subscription_ended(intent.id))
        answer = partial(
            self.dialect.answer, intent.id, method, response, session.upstream.era, session.info, extension
        )
        return RpcReply(await offload(len(response.text), answer), error_of(response))

    async def _look_up(
        self, exchange: Exchange, session: SharedSession, meta: RequestMeta, tool: str
    ) -> ListedTool | None:
        """Find a tool in the server's catalogue, which may have to be read.

        Returns None if the tool is not listed or the catalogue is unavailable. Such a server may
        still run the tool, and an intermediary that reads headers does not authorize calls here.
        """
        try:
            return (await self.calls.wait_for_session(exchange, meta, session.upstream.tools())).get(tool)
        except UpstreamFailed:
            return None


def _answered(rpc_reply: RpcReply, meta: RequestMeta, quota: QuotaFields) -> HandledRequest:
    """Return an answer with its HTTP status and the quota headers.

    The status of an error has no effect if the answer is an event stream by now.
    """
    status = 200
    if rpc_reply.error not in (None, TOOL_ERROR):
        # By the error code of the answer, which may differ from the server's.
        assert isinstance(rpc_reply.message, str), "the error of a request is never a stored one"
        status = modern_status(json.loads(rpc_reply.message)["error"]["code"])
    reply = HttpReply(status, rpc_reply.message, rpc_reply.headers + quota)
    return HandledRequest(reply, meta.peer.revision, rpc_reply.error)
