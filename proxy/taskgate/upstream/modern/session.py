"""Session with a modern server as the gateway uses it: `ModernSession`, an `UpstreamSession`.

The first request asks the server who it is (`server/discover`); later ones use the stored answer
until it is forgotten. While the tool list is unknown (`Catalogue`), a call first reads it, since
headers may have to repeat some arguments. Then `rounds` sends the request, again after each round of
questions, within its time limits (`exchanges`). A server refuses a request of the wrong form before
it acts, so that one is sent again (H-MOD-7); no other is. Notifications outside of requests come by
`subscriptions`. `LocalMethods` answers requests that modern servers lack. The server itself has no
session: `close` only ends what runs in the gateway.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Era, Peer
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.server_messages import EncodedRequest, RequestDraft
from taskgate.protocol.vocabulary import (
    INVALID_PARAMS,
    LIST_METHODS,
    LOGGING_SET_LEVEL,
    METHOD_NOT_FOUND,
    NOTE_TOOLS_CHANGED,
    PING,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
    TOOLS_CALL,
    TOOLS_LIST,
)
from taskgate.system.offload import offload
from taskgate.upstream.calls import CallListener, Resumed, RunningCall, UpstreamCall
from taskgate.upstream.context import Lasting, ModernUpstreamContext, level_of, uri_of
from taskgate.upstream.descriptions import Welcome
from taskgate.upstream.modern.discovery import Discovery, ModernCatalogue
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.rounds import RoundRunner
from taskgate.upstream.modern.server_tasks import ModernFollowedTasks
from taskgate.upstream.modern.subscriptions import SubscriptionListener

_SUBSCRIPTIONS: Final = (RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE)
SERVED_HERE: Final = frozenset({PING, LOGGING_SET_LEVEL, *_SUBSCRIPTIONS})
"""Methods that are answered here."""


class LocalMethods:
    """The answers to requests of `SERVED_HERE` for one session; `open_` returns what the server
    declares."""

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        open_: Callable[[], Awaitable[ServerDescription]],
        listening: SubscriptionListener,
        lasting: Lasting,
    ) -> None:
        self._upstream_context = upstream_context
        self._open = open_
        self._listening = listening
        self._lasting = lasting

    async def answer(self, method: str, params: Params | None) -> Response:
        """Return the answer to a request of `SERVED_HERE`. Raises UpstreamFailed."""
        if method == PING:
            return self._done()
        if method == LOGGING_SET_LEVEL and await self._declares("logging"):
            return self._set_level(None if params is None else level_of(params))
        if method in _SUBSCRIPTIONS and await self._declares("resources", "subscribe"):
            return await self._subscribe(method, None if params is None else uri_of(params))
        return self._refusal(METHOD_NOT_FOUND, "Method not found")

    async def _declares(self, name: str, part: str | None = None) -> bool:
        """Whether the server declares a capability, and a part of it if given."""
        declared: Any = (await self._open()).peer.capabilities.get(name)
        return isinstance(declared, dict) and (part is None or declared.get(part) is True)

    def _set_level(self, level: str | None) -> Response:
        if level is None:
            return self._refusal(INVALID_PARAMS, "The level must be a valid log level")
        self._lasting.level = level
        return self._done()

    async def _subscribe(self, method: str, uri: str | None) -> Response:
        if uri is None:
            return self._refusal(INVALID_PARAMS, "The uri must be a string")
        if method == RESOURCES_UNSUBSCRIBE:
            self._listening.unsubscribe(uri)
            return self._done()
        if not await self._listening.subscribe(uri, self._upstream_context.settings.first_byte.total_seconds()):
            return self._refusal(INVALID_PARAMS, "The server does not send updates of this resource")
        return self._done()

    def _done(self) -> Response:
        return self._upstream_context.dialect.empty_result(next(self._upstream_context.ids))

    def _refusal(self, code: int, text: str) -> Response:
        return self._upstream_context.dialect.error(next(self._upstream_context.ids), code, text)


class ModernSession:
    """One session with one server, for one host session or one task.

    The server is told the capabilities that `host` declared, none if it is None. `listener` gets
    the notifications that belong to no request. `lasting` has the log level and the subscriptions
    that the host has set. `welcome` stores the server's description for hosts that connect later.

    An answer may show that the server has left the modern era. `Discovery` then reports this by
    `era_lost` of `upstream_context`:

    - `expect_era` judges each error: "revision not supported" is a failure, and proves it.
    - `see` asks `server/discover` again at once, after a refusal by a bare HTTP status.
    - `doubt` has the next request ask again, after an error that a legacy server could give, too.
    """

    era: Final = Era.MODERN

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        *,
        listener: CallListener,
        host: Peer | None,
        clock: Clock,
        lasting: Lasting,
        welcome: Welcome,
    ) -> None:
        self._upstream_context = upstream_context
        self.outcome = upstream_context.dialect.outcome
        self._welcome = welcome
        self._listener = listener
        self._exchanges = ModernExchanges(upstream_context, host, clock)
        self._catalogue = ModernCatalogue(upstream_context, host, open_=self.open, ask=self._ask_for_page, clock=clock)
        self.listed, self.tools = self._catalogue.tools.listed, self._catalogue.tools.with_tool
        self._listening = SubscriptionListener(
            upstream_context,
            host,
            hear=self._take_notification,
            resumed=self._catalogue.forget,
            lasting=lasting,
            clock=clock,
        )
        # `met` runs after each valid answer to `server/discover`; `lost` when the server says that
        # it does not support this revision.
        self._discovery = Discovery(
            upstream_context,
            host,
            exchanges=self._exchanges,
            met=self._begin,
            lost=self._catalogue.forget,
            clock=clock,
        )
        # Follows and cancels the tasks that the server makes of calls.
        self._server_tasks = ModernFollowedTasks(upstream_context, self._exchanges, host, clock)
        self._rounds = RoundRunner(
            upstream_context, self._exchanges, self._server_tasks, host, self._discovery, self._catalogue
        )
        # Every request of `call` waits in it, except a resumed one.
        self._bounded = partial(
            self._exchanges.bounded,
            judge=self._discovery.expect_era,
            doubt=self._discovery.doubt,
            unwelcome=self._discovery.see,
        )
        self._host_knows_tasks = upstream_context.dialect.host_declares_tasks(host)
        self._lasting = lasting
        self._local = LocalMethods(upstream_context, self.open, self._listening, lasting)

    def open(self) -> Coroutine[Any, Any, ServerDescription]:
        return self._discovery.get()

    async def welcome(self) -> ServerDescription:
        return await self._welcome.describe(self.open())

    def call(self, call: UpstreamCall, listener: CallListener) -> Coroutine[Any, Any, Response]:
        upstream_context, method = self._upstream_context, call.method
        if method in SERVED_HERE:
            return self._local.answer(method, call.params)
        patience = upstream_context.patience
        bounds = patience.of(call.tool, method) if patience.has_rules else patience.usual
        if call.within is not None:
            bounds = bounds.within(call.within)
        pending = RunningCall(next(upstream_context.ids), listener, bounds, principal=call.principal)
        pending.runs_nothing = method in LIST_METHODS
        if call.resumes is not None:
            if isinstance(call.resumes, Resumed):
                # The call became a task of the server, which is only polled. Neither discovery nor
                # the tool list comes first: the server may still be restarting, as this process
                # was. Failed polls are repeated, but a failed discovery would fail the call.
                resumed = self._server_tasks.resume(pending, call.resumes)
                return self._exchanges.bounded(pending, method, resumed, self._discovery.expect_era)
            # The call starts with the round that another process prepared.
            pending.resumes = call.resumes
        draft = RequestDraft(
            method=method,
            params=call.params,
            wants_progress=call.as_task,
            log_level=call.log_level or self._lasting.level,
            host_headers=call.repeated,
            # For hosts without tasks the call becomes one only if the tool requires it
            # (`RoundRunner`).
            follows_tasks=call.as_task or (method == TOOLS_CALL and self._host_knows_tasks),
        )
        asking = self._bounded(pending, method, self._rounds.ask(pending, draft, call.tool))
        if method != TOOLS_LIST:
            return asking
        return self._sound_tools(self._catalogue.tools.relayed(call.params, asking))

    def tell(self, notification: Notification) -> None:
        """Ignored: a modern server gets no notifications of the host; it asks when it wants to know
        (H-MOD-12)."""

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        await self.open()
        return await self._listening.add(changes, self._upstream_context.settings.first_byte.total_seconds())

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        return filters & self._listening.granted

    async def close(self) -> None:
        """End the waits of all requests, then everything that runs for them. The server has no
        session, so it is not told."""
        self._exchanges.let_go()
        await self._discovery.close()
        await self._server_tasks.close()
        await self._catalogue.tools.close()
        await self._listening.close()

    async def _sound_tools(self, asking: Awaitable[Response]) -> Response:
        """Await the answer to a `tools/list` of a host, and return it without tools that are not
        sound."""
        response = await asking
        return await offload(
            len(response.text), partial(self._upstream_context.dialect.without_unsound_tools, response)
        )

    def _ask_for_page(self, call: RunningCall, written: EncodedRequest) -> Coroutine[Any, Any, Response]:
        """Send one `tools/list` of the gateway's own, for `Catalogue`, which has waited for
        discovery."""
        sending = self._exchanges.ask(call, written, self._upstream_context.settings.first_byte)
        return self._exchanges.bounded(
            call, TOOLS_LIST, sending, self._discovery.expect_era, unwelcome=self._discovery.see
        )

    async def _begin(self, server: ServerDescription) -> None:
        """Take the answer to a `server/discover`: store it for hosts, and subscribe to the list
        changes that it declares.

        `Discovery` awaits this before any request that needed the answer is sent.
        """
        self._welcome.met(server)
        await self._listening.begin(server)

    def _take_notification(self, notification: Notification) -> None:
        """Receive a notification that came on a subscription stream, outside of any request.

        A changed tool list is forgotten before the listener hears of it.
        """
        if notification.method == NOTE_TOOLS_CHANGED:
            self._catalogue.forget()
        self._listener.on_notification(notification)
