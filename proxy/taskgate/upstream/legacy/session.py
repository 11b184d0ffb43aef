"""Session with a legacy server as the gateway uses it: `LegacySession`, an `UpstreamSession`.

It opens a connection (`SessionConnection`) on first use, and another one after the server ended
that. The call that notices the end goes on in the new one, once, if it certainly did not run. Either
nothing of it was sent, or the server refused it as one of an unknown session. A call that another
process resumes stays at the server when the session is closed.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.policy import TaskSupport
from taskgate.domain.versions import Era, Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.classify import era_of_refusal
from taskgate.protocol.discovery import ListedTool, ServerDescription, ToolList
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import LIST_CHANGED, declares_changes
from taskgate.protocol.vocabulary import LIST_METHODS, TASKS_RESULT, TOOLS_CALL, TOOLS_LIST
from taskgate.system.offload import LARGE, in_thread
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.calls import CallBounds, CallListener, NextRound, Resumed, RunningCall, UpstreamCall
from taskgate.upstream.context import LASTING, Lasting, UpstreamContext
from taskgate.upstream.descriptions import Catalogue, Welcome, read_catalogue
from taskgate.upstream.failures import EraLeft
from taskgate.upstream.legacy.connection import (
    REFUSING,
    ConnectionOpener,
    SessionConnection,
    SessionLoss,
    is_strange,
)
from taskgate.upstream.legacy.conversation import Audience, Conversation
from taskgate.upstream.legacy.resumption import AdoptedSessions, CallResumption
from taskgate.upstream.legacy.server_tasks import MAY_BE, MUST_BE, LegacyFollowedTasks, Reach
from taskgate.upstream.legacy.url_elicitation import UrlElicitations

_TAKING_LONG: Final = frozenset({TOOLS_CALL, TASKS_RESULT})
"""Methods whose answer may take long, so that the wait for a response head is not bounded."""


class LegacySession:
    """One session with one server, for one host session or task.

    `listener` gets what belongs to no call; `host` is the host that can be asked, if any. The
    settings in `lasting` are sent again in each new connection. `unwelcome` is called whenever an
    answer shows that the server may have left the legacy era. `adopted_sessions` is shared by all sessions
    with the server.
    """

    era: Final = Era.LEGACY

    def __init__(
        self,
        upstream_context: UpstreamContext,
        *,
        listener: CallListener,
        host: Peer | None,
        clock: Clock,
        lasting: Lasting,
        unwelcome: Callable[[], None],
        welcome: Welcome,
        adopted_sessions: AdoptedSessions | None = None,
    ) -> None:
        self._upstream_context = upstream_context
        self.outcome = upstream_context.dialect.outcome
        self._listener = listener
        self._host = host
        self._clock = clock
        self._catalogue = Catalogue(
            self._read_catalogue,
            clock,
            age=upstream_context.settings.catalogue_age,
            read=upstream_context.dialect.read_tools,
            bounds=upstream_context.settings.catalogue,
        )
        self.tools = self._catalogue.with_tool
        self._url_elicitations = UrlElicitations(upstream_context.dialect, host)
        self._lasting = lasting
        self._unwelcome = unwelcome
        self._welcome = welcome
        audience = Audience(listener=listener, host=host, catalogue_changed=self._catalogue.forget)
        opener = ConnectionOpener(
            upstream_context,
            audience,
            clock=clock,
            lasting=lasting,
            met=welcome.met,
            unwelcome=unwelcome,
            lost=self._lose_conversation,
        )
        self._opener = opener
        self._connection = SingleFlight(self._begin)
        # What the host is told once there is another connection: the server may have changed meanwhile.
        self._untold: tuple[Notification, ...] = ()
        reach = Reach(self._ask, lambda: self._connection.value, self._made_ready, self.listed, self.tools)
        self._server_tasks = LegacyFollowedTasks(upstream_context, reach)
        self._resumption = CallResumption(
            upstream_context, adopted_sessions or AdoptedSessions(), connection=self._connection, adopt=opener.adopt
        )
        self._dropping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self) -> ServerDescription:
        return (await self._open()).conversation.server

    async def welcome(self) -> ServerDescription:
        return await self._welcome.describe(self.open())

    def call(self, call: UpstreamCall, listener: CallListener) -> Coroutine[Any, Any, Response]:
        params, patience = call.params, self._upstream_context.patience
        call.bounds = patience.of(call.tool, call.method) if patience.has_rules else patience.usual
        if not call.as_task:
            # Only tools that require it are called as tasks of the server, for a task all that may be.
            return self._relay(call, listener, MUST_BE)
        if isinstance(call.resumes, NextRound):
            # The call was begun while the server was a modern one.
            raise failures.no_rounds()
        if call.within is not None:
            call.bounds = call.bounds.within(call.within)
        assert params is not None, "the call of a task names its tool"
        if call.resumes is not None or len(params.head) > LARGE:
            return self._call_of_task(call, listener, params.head)
        call.params = self._upstream_context.dialect.with_token_slot(params.head)
        return self._relay(call, listener, MAY_BE)

    def _relay(
        self, call: UpstreamCall, listener: CallListener, kinds: Collection[TaskSupport]
    ) -> Coroutine[Any, Any, Response]:
        """Send a request of a host or a task, and return the response. Its parameters have a place
        for a progress token."""
        connection = self._connection.value
        if call.tool is not None and call.params is not None and (connection is None or connection.makes_tasks):
            return self._relay_apart(call, listener, partial(self._server_tasks.ask, kinds=kinds))
        if call.method in LASTING:
            return self._relay_apart(call, listener, self._ask)
        asking = self._ask(call, listener, is_relayed=True)
        return self._catalogue.relayed(call.params, asking) if call.method == TOOLS_LIST else asking

    async def _relay_apart(
        self,
        call: UpstreamCall,
        listener: CallListener,
        ask: Callable[[UpstreamCall, CallListener], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Send by `ask` a call that may become a task of the server, or a setting that is to last."""
        began = asyncio.get_running_loop().time()
        response = await ask(call, listener)
        if response.error is not None:
            response = await self._url_elicitations.after(call, listener, response, ask, began)
        if response.error is None and call.method in LASTING:
            self._lasting.note(call.method, call.params)
        return response

    async def _call_of_task(self, call: UpstreamCall, listener: CallListener, text: RawJson) -> Response:
        """Make the call of a task that has large parameters `text`, or go on with that of another
        process."""
        track = self._upstream_context.dialect.with_token_slot
        call.params = track(text) if len(text) <= LARGE else await in_thread(partial(track, text))
        if call.resumes is None:
            return await self._relay(call, listener, MAY_BE)
        assert isinstance(call.resumes, Resumed), "a legacy server has no rounds"
        return await self._server_tasks.go_on(call, listener, call.resumes, self._resumption)

    def tell(self, notification: Notification) -> None:
        """Drops also notifications that need a capability which the host did not declare."""
        connection, dialect = self._connection.value, self._upstream_context.dialect
        if connection is not None and dialect.allows_notification(notification, self._host):
            connection.conversation.say(dialect.notification(notification), droppable=True)

    def listed(self, tool: str) -> ListedTool | None:
        # As the catalogue does, but each call comes by here, and enters no further module for it.
        known = self._catalogue.before if self._catalogue.value is None else self._catalogue.value
        if known is not None and self._clock.elapsed() >= self._catalogue.old_at:
            return self._catalogue.listed(tool)
        return None if known is None else known.get(tool)

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        """Return nothing: a legacy server cannot be asked for what it does not declare."""
        return frozenset()

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        """A legacy server has no filters: all that it declares is granted."""
        return filters

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._url_elicitations.end()
        await self._server_tasks.close()
        await self._catalogue.close()
        connection = self._connection.value
        await self._connection.close()
        # An adopted connection may have other users.
        if connection is not None and not await self._resumption.gave_back(connection):
            await connection.end()
        if self._dropping:
            await asyncio.wait(tuple(self._dropping))

    async def _begin(self) -> SessionConnection:
        """Open a connection. If an earlier one was lost, the host hears that lists may have changed."""
        connection = await self._opener.begin()
        untold, self._untold = self._untold, ()
        for notification in untold:
            self._listener.on_notification(notification)
        return connection

    async def _open(self) -> SessionConnection:
        """Return the current connection; open one if there is none. Raises UpstreamFailed."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self._connection.value or await self._connection.get()
        except UpstreamFailed as failure:
            # The call that needed the handshake was not sent.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    async def _ask(
        self,
        call: UpstreamCall,
        listener: CallListener | None = None,
        *,
        spent: float = 0.0,
        numbered: Callable[[int], None] | None = None,
        is_again: bool = False,
        is_relayed: bool = False,
    ) -> Response:
        """Send a request and return the response; open a connection if there is none.

        If the server has ended the session, the connection is dropped. If the request did not run,
        it is sent in another one, but only once. `spent` are the seconds of its time that
        have passed before. `numbered` is called with its id, right before it is sent. `is_relayed`:
        an error may name URLs to visit first, which the host is asked to do.
        """
        upstream_context, clock, bounds = self._upstream_context, self._clock, call.bounds
        assert bounds is not None, "a request has its timeouts before it is sent"
        began, connection = clock.elapsed(), self._connection.value
        # The last condition: there were cancellations, and the session may have died of one.
        if (
            connection is None
            or self._closed
            or call.log_level is not None
            or connection.conversation.cancels != connection.outlived
        ):
            connection, opening = await self._made_ready(call, bounds)
            spent += opening
        first_byte = None if call.method in _TAKING_LONG else upstream_context.settings.first_byte
        pending = RunningCall(next(upstream_context.ids), listener, bounds, principal=call.principal, spent=spent)
        pending.is_lasting = call.method == TOOLS_CALL
        pending.runs_nothing = call.method in LIST_METHODS
        pending.has_token = call.params is not None and call.params.tail is not None
        error: str | None = "cancelled"
        try:
            if numbered is not None:
                numbered(pending.id)
            text = upstream_context.dialect.call(pending.id, call.method, call.params)
            response = await connection.conversation.ask(pending, text, first_byte=first_byte)
            error = None if response.error is None else str(response.error_code)
            if response.error is not None:
                await self._expect_session(connection, pending, response, is_again=is_again)
        except UpstreamFailed as failure:
            error = failure.reason
            end = await self._end_by(failure, connection, pending, is_again=is_again)
            if pending.was_heard and not failure.dispatched:
                raise failures.begun(failure) from None
            # A request of which nothing was sent did not run either.
            if is_again or end is SessionLoss.NONE or (pending.sent and end is SessionLoss.ENDED):
                raise failures.settled(failure, is_lost=is_again and end is not SessionLoss.NONE) from None
            response = None
        finally:
            upstream_context.observer.answered(call.method, clock.elapsed() - began, error, listener is None)
        if response is None:
            # The server had ended the session before, and the request did not run.
            spent += asyncio.get_running_loop().time() - pending.began_at
            return await self._ask(call, listener, spent=spent, numbered=numbered, is_again=True, is_relayed=is_relayed)
        if response.error is not None:
            pending.report_refusal(call.method, upstream_context.observer.failed)
            if is_strange(pending, response):
                await self._check_era(connection)
            if is_relayed and listener is not None:
                response = await self._url_elicitations.after(
                    call, listener, response, self._ask, pending.began_at - spent
                )
        return response

    async def _check_era(self, connection: SessionConnection) -> None:
        """Ping a server that may have left the legacy era, which is harmless; report it if it does
        not understand."""
        if not self._closed and not await connection.is_understood():
            self._unwelcome()

    async def _end_by(
        self, failure: UpstreamFailed, connection: SessionConnection, pending: RunningCall, *, is_again: bool
    ) -> SessionLoss:
        """Return what the failure of a call says about the session, and drop the connection if that has ended."""
        if self._closed:
            return SessionLoss.NONE
        is_doubted = isinstance(failure, failures.SessionDoubted)
        may_be_known = is_doubted and failure.reason != UpstreamReason.SESSION_LOST.value
        end = await connection.judge(failure)
        if is_again and may_be_known and end is not SessionLoss.NONE:
            # The session is new, so the server most likely knows it, and refuses all that the caller asks.
            connection.refusals[failure.cause] = asyncio.get_running_loop().time() + REFUSING
            return SessionLoss.NONE
        if end is not SessionLoss.NONE:
            self._lose(connection, doubted_by=pending if may_be_known else None)
        elif isinstance(failure, failures.Unwelcome):
            await self._check_era(connection)
        return SessionLoss.ENDED if type(failure) is EraLeft else end

    async def _expect_session(
        self, connection: SessionConnection, pending: RunningCall, response: Response, *, is_again: bool
    ) -> None:
        """Raise UpstreamFailed for an error by which the server did not act.

        It is EraLeft for an error that only another era has. It is session_lost for one about sessions, if
        nothing was heard of the call before, and a ping in the session gets the same error.
        """
        if era_of_refusal(failures.said_in(response)) is not None:
            self._unwelcome()
            raise EraLeft
        if is_again or connection.conversation.session is None or pending.was_heard:
            return
        said = failures.refusal_of_session(response)
        if said is not None and said == (await connection.ping()).said:
            raise failures.session_lost()

    async def _made_ready(self, call: UpstreamCall, bounds: CallBounds) -> tuple[SessionConnection, float]:
        """Return a connection that can take the request, and the seconds that this took.

        It is open, has survived all cancellations, and logs as the request wants. Raises
        UpstreamFailed.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(bounds.first):
                connection = await self._open()
                if not await connection.outlives_cancels():
                    self._lose(connection)
                    connection = await self._open()
                if call.log_level is not None:
                    await connection.log_from(call.log_level, call.principal)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return connection, loop.time() - began

    async def _read_catalogue(self) -> ToolList:
        connection = self._connection.value
        upstream_context = self._upstream_context
        bounds, cut = upstream_context.settings.catalogue, upstream_context.observer.list_cut
        read = partial(read_catalogue, self._ask_for_page, upstream_context.dialect.read_tools, bounds, cut)
        try:
            return await read()
        except UpstreamFailed:
            if self._closed or connection is None or connection is self._connection.value:
                raise
        # The server ended the session meanwhile; reading the list again is harmless.
        return await read()

    def _ask_for_page(self, cursor: RawJson | None) -> Coroutine[Any, Any, Response]:
        params = self._upstream_context.dialect.page_of_tools(cursor)
        return self._ask(UpstreamCall(TOOLS_LIST, params, bounds=self._upstream_context.patience.of()))

    def _lose_conversation(self, conversation: Conversation) -> None:
        """Drop a conversation whose end the GET stream showed. So the next call need not fail."""
        connection = self._connection.value
        if connection is not None and connection.conversation is conversation:
            self._lose(connection)

    def _lose(self, connection: SessionConnection, *, doubted_by: RunningCall | None = None) -> None:
        """Drop a connection that the server ended; the next call opens another. Only the first
        report counts. `doubted_by`: the call that was refused. The server may know the session after
        all, so it is ended there too, unless other calls run in it."""
        if self._connection.value is not connection:
            return
        self._connection.forget()
        declared = connection.conversation.server.peer.capabilities
        self._untold = tuple(each for name, each in LIST_CHANGED.items() if declares_changes(declared, name))
        self._resumption.lost()
        self._catalogue.forget()
        self._upstream_context.observer.session_lost()
        is_ended_there = doubted_by is not None and not connection.conversation.has_calls_beside(doubted_by)
        dropping = asyncio.get_running_loop().create_task(connection.end() if is_ended_there else connection.drop())
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)
