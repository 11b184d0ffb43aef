"""The requests of the modern era (revision 2026-07-28): `ModernRequests`.

`Gateway` calls `answer` after it has found the era of a request. The dialect decodes the request to
an intent; rate limits and access rules apply; then `Calls`, `TaskRequests` or `Subscriptions`
executes the intent. A request has no session and leaves nothing behind but what it created. The
upstream session is chosen by what the request's `_meta` declares (`session_pool`). `legacy` is the
counterpart for the legacy era.
"""

import json
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

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
from taskgate.protocol.dialects import ModernDownstreamDialect
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
    ModernIntent,
    Relay,
    RequestMeta,
    Retry,
    UpdateTask,
)
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import MODERN_METHODS, TOOLS_LIST
from taskgate.streams.exchange import TOOL_ERROR, Exchange, HandledRequest, HttpReply, RpcReply, error_of
from taskgate.system.offload import offload

_ABOUT_TASKS: Final = (GetTask, UpdateTask, CancelTask, LegacyTaskRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernRequests:
    """The handler of requests of the modern era."""

    dialect: ModernDownstreamDialect
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
        self, exchange: Exchange, mount: Mount, caller: AuthContext, request: Request, said: RequestMeta
    ) -> HandledRequest:
        """Answer one request. `said` is what its `_meta` declares.

        Raises GatewayError, and Interrupted when the host disconnected.
        """
        # 1. The intent of the request; its parameters are checked here.
        intent = self.dialect.decode(request, said, offers_tasks=mount.offers_tasks, extensions=mount.extensions)
        asking = intent.request if isinstance(intent, Retry) else intent
        tool = asking.tool if isinstance(asking, CallTool) else None
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
        if isinstance(intent, _ABOUT_TASKS):
            spoken = await self._about_a_task(exchange, caller, mount.name, intent)
            return _answered(spoken, said, quota)
        line = self.lines.take(mount, caller, said.peer)
        # A shutdown that waits for tasks also waits for a call that may become one.
        with line if not _may_become_task(asking) else self.runner.expecting(line):
            if tool is not None:
                # 5. The headers that mirror arguments; only the server's catalogue names them.
                listed = line.upstream.listed(tool) or await self._look_up(exchange, line, said, tool)
                if listed is not None and listed.header_paths:
                    self._check_params(exchange, mount, request, tool, listed)
            # 6. Execute the intent.
            if isinstance(intent, Listen):
                return HandledRequest(await self._listen(exchange, caller, line, intent), said.peer.revision)
            return _answered(await self._perform(exchange, caller, line, said, intent), said, quota)

    def _about_a_task(
        self,
        exchange: Exchange,
        caller: AuthContext,
        at: str,
        intent: GetTask | UpdateTask | CancelTask | LegacyTaskRequest,
    ) -> Coroutine[Any, Any, RpcReply]:
        match intent:
            case GetTask():
                return self.tasks.get(exchange, caller, at, intent)
            case UpdateTask():
                return self.tasks.update(exchange, caller, at, intent)
            case CancelTask():
                return self.tasks.cancel(exchange, caller, at, intent)
            case LegacyTaskRequest():
                return self.tasks.of_legacy(exchange, caller, at, intent)

    def _perform(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: ModernIntent
    ) -> Coroutine[Any, Any, RpcReply]:
        match intent:
            case CallTool():
                return self.calls.call(exchange, caller, line, said, intent)
            case Retry():
                return self.calls.retry(exchange, caller, line, said, intent)
            case Relay(method=method) if method == TOOLS_LIST:
                return self._list_tools(exchange, caller, line, said, intent)
            case Relay(method=method) if method not in MODERN_METHODS:
                return self._relay_extension(exchange, caller, line, said, intent)
            case Relay():
                return self.calls.relay(exchange, caller, line, said, intent)
            case Discover():
                return self._discover(exchange, line, said, intent)
        raise AssertionError(f"unexpected intent of a request: {type(intent).__name__}")

    def _check_params(self, exchange: Exchange, mount: Mount, request: Request, tool: str, listed: ListedTool) -> None:
        try:
            check_params(exchange.head.mirrored_headers(), request, listed.header_paths)
        except GatewayError:
            self._turned_away(mount, tool, is_listed=True)
            raise

    def _turned_away(self, mount: Mount, tool: str | None, *, is_listed: bool = False) -> None:
        """Count a refused call. Before a session was chosen, it is unknown whether the tool is
        listed.
        """
        if tool is not None:
            self.calls.turned_away(mount.name, tool if is_listed else None)

    async def _listen(self, exchange: Exchange, caller: AuthContext, line: SharedSession, intent: Listen) -> HttpReply:
        if intent.wants.tasks:
            await self.gate.check_lookups(caller, exchange, line.mount.name)
        with self.streams.acquire_stream(caller):
            return await self.subscriptions.serve(exchange, caller, line, intent)

    async def _discover(self, exchange: Exchange, line: SharedSession, said: RequestMeta, intent: Discover) -> RpcReply:
        server = await self.calls.meet(exchange, said, line.upstream.welcome())
        mount = line.mount
        self.denied.at_discovery(mount, said.peer, server.peer)
        told = self.dialect.discovery(
            intent.id, server, offers_tasks=mount.offers_tasks, extensions=mount.extensions, info=mount.info
        )
        return RpcReply(told)

    async def _list_tools(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> RpcReply:
        response = await self.calls.forward(exchange, caller, line, said, intent)
        shows = self.access.tool_filter(caller, line.mount.name)
        amend = partial(self.dialect.tools, intent.id, response, line.upstream.era, shows, line.info)
        return RpcReply(await offload(len(response.text), amend), error_of(response))

    async def _relay_extension(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> RpcReply:
        """Forward a request of an extension. Raises UnknownMethod if it is not forwarded."""
        mount, method = line.mount, intent.method
        await self.calls.meet(exchange, said, line.upstream.open())
        extension = self.extensions.extension_of(mount, method, Era.MODERN, line.upstream.era)
        work = self.calls.forward(exchange, caller, line, said, intent)
        response = await self.extensions.hold(caller, mount, method, extension, work)
        if response is None:
            return RpcReply(self.dialect.subscription_ended(intent.id))
        answer = partial(self.dialect.answer, intent.id, method, response, line.upstream.era, line.info, extension)
        return RpcReply(await offload(len(response.text), answer), error_of(response))

    async def _look_up(
        self, exchange: Exchange, line: SharedSession, said: RequestMeta, tool: str
    ) -> ListedTool | None:
        """Find a tool in the server's catalogue, which may have to be read.

        Returns None if the tool is not listed or the catalogue is unavailable. Such a server may
        still run the tool, and an intermediary that reads headers does not authorize calls here.
        """
        try:
            return (await self.calls.meet(exchange, said, line.upstream.tools())).get(tool)
        except UpstreamFailed:
            return None


def _may_become_task(asking: ModernIntent) -> bool:
    return isinstance(asking, CallTool) and asking.stored_params is not None


def _answered(spoken: RpcReply, said: RequestMeta, quota: QuotaFields) -> HandledRequest:
    """Add the status and the quota headers to an answer.

    An error of a server gets the HTTP status of the era, if there is no stream yet.
    """
    status = 200
    if spoken.error not in (None, TOOL_ERROR):
        # By the error code of the answer, which may differ from the server's.
        assert isinstance(spoken.message, str), "the error of a request is never a stored one"
        status = modern_status(json.loads(spoken.message)["error"]["code"])
    reply = HttpReply(status, spoken.message, spoken.headers + quota)
    return HandledRequest(reply, said.peer.revision, spoken.error)
