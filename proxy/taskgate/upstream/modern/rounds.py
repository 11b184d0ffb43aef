"""A modern call through its rounds: `RoundRunner` sends it, gathers answers, and sends it again.

    request                  -> input required: questions, state
    request, answers, state  -> input required, or a task, or the result

The server keeps nothing between rounds: the state goes back to it as it wrote it. Each round has a
new request id (M-MRTR-3). `OpenRound` asks the questions, and `ModernFollowedTasks` follows a task.
`ModernExchanges` does the HTTP, and bounds the time.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import RequestDraft, ServerRound
from taskgate.protocol.vocabulary import HEADER_MISMATCH, TOOLS_CALL
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.calls import Leave, NextRound, RunningCall
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.modern.discovery import Discovery, ModernCatalogue
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.questions import OpenRound
from taskgate.upstream.modern.server_tasks import ModernFollowedTasks

MAX_ROUNDS: Final = 64
"""Rounds of one call: more than any tool needs, and an end for one without end."""

MAX_EMPTY: Final = 12
"""Rounds in a row without questions: by such a round the server asks for more time."""

PAUSE_FIRST: Final = 0.05
PAUSE_MOST: Final = 5.0
"""PAUSE_FIRST to PAUSE_MOST: seconds before a request is sent again after a round without
questions; doubles."""

MOST_NOTED: Final = 1024
"""Tools that are remembered to need the tasks extension. For others each call is refused once and
sent again."""


class RoundRunner:
    """The sender of the requests of one session. `discovery` has the server's identity, and `catalogue` its
    tools.

    A request declares the tasks extension if its draft has `follows_tasks`: the call may then
    become a task. Some tools run as tasks only, and the server refuses their calls without it. Such
    a call is sent again with it if the server has tasks. So hosts that know no tasks can use such
    tools.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        exchanges: ModernExchanges,
        server_tasks: ModernFollowedTasks,
        host: Peer | None,
        discovery: Discovery,
        catalogue: ModernCatalogue,
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._server_tasks = server_tasks
        self._host = host
        self._discovery = discovery
        self._catalogue = catalogue
        self._only_as_tasks: set[str] = set()

    async def ask(self, call: RunningCall, draft: RequestDraft, tool: str | None) -> Response:
        """Send a request, in rounds if the server asks something, and return its last answer.

        It waits for discovery if the server is unknown. A `tools/call` waits for the tool list if
        that is unknown, because it tells the headers that are required. `tool` is None for a
        request that is no call, or whose tool the caller did not give. A call with `resumes` begins
        with the next round of another process. Raises UpstreamFailed.
        """
        if self._discovery.server.value is None:
            await self._discovery.get()
        first_byte = None
        if draft.method != TOOLS_CALL:
            tool, first_byte = None, self._upstream_context.settings.first_byte
        elif draft.follows_tasks and not self._discovery.serves_tasks:
            # The extension is declared only to servers that have it.
            draft = draft._replace(follows_tasks=False)
        if tool is not None:
            listed = (self._catalogue.tools.value or await self._catalogue.read_for_call()).get(tool)
            if listed is not None and listed.header_paths:
                draft = draft._replace(header_paths=listed.header_paths)
        if call.resumes is not None:
            resumed = await self._resumed_round(draft, call.resumes)
            if resumed is None:
                return self._upstream_context.dialect.unanswered_error(call.id)
            draft = resumed
        if tool in self._only_as_tasks:
            draft = draft._replace(follows_tasks=True)
        response = await self._send(call, draft, first_byte)
        if tool is not None and response.error is not None:
            draft, response = await self._after_refusal(call, draft, tool, response)
        dialect = self._upstream_context.dialect
        if not draft.follows_tasks and dialect.round_of(draft.method, call.id, response) is None:
            return response
        return await self._run_rounds(call, draft, response, first_byte)

    async def _run_rounds(
        self, call: RunningCall, draft: RequestDraft, response: Response, first_byte: timedelta | None
    ) -> Response:
        """Return the last answer to a request: `response` may be a task, or ask something."""
        empty = 0
        for turn in count():
            task = (
                self._upstream_context.dialect.read_created_task(draft.method, response)
                if draft.follows_tasks
                else None
            )
            if task is not None:
                return await self._server_tasks.follow(call, task)
            asks = self._upstream_context.dialect.round_of(draft.method, call.id, response)
            # With `passes_rounds` the host gets the round as it is, and answers it itself.
            if asks is None or (call.listener is not None and call.listener.passes_rounds):
                return response
            if turn == MAX_ROUNDS:
                break
            empty = 0 if asks.questions else empty + 1
            again = await self._next_round(call, draft, asks, empty)
            if again is None:
                return self._upstream_context.dialect.unanswered_error(call.id)
            draft = again
            try:
                response = await self._send_again(call, draft, first_byte)
            except UpstreamFailed as failure:
                # The server may have acted on earlier rounds.
                raise failures.sent(failure) from None
        raise protocol_violation("it requests input without end")

    async def _after_refusal(
        self, call: RunningCall, draft: RequestDraft, tool: str, response: Response
    ) -> tuple[RequestDraft, Response]:
        """Send a call again in another form, if `response` refuses its form: the server has not acted
        then.

        Returns the request of the last attempt, and the answer to it.
        """
        runs_only_as_task = self._upstream_context.dialect.needs_tasks(response) and self._discovery.serves_tasks
        if not draft.follows_tasks and runs_only_as_task:
            if len(self._only_as_tasks) < MOST_NOTED:
                self._only_as_tasks.add(tool)
            draft = draft._replace(follows_tasks=True)
            response = await self._send_again(call, draft, None)
        if response.error_code == HEADER_MISMATCH:
            # The headers that it requires may have changed (H-MOD-7).
            self._catalogue.forget()
            listed = (await self._catalogue.read_for_call()).get(tool)
            header_paths = {} if listed is None else listed.header_paths
            if header_paths != draft.header_paths:
                draft = draft._replace(header_paths=header_paths)
                response = await self._send_again(call, draft, None)
        return draft, response

    async def _next_round(
        self, call: RunningCall, draft: RequestDraft, asks: ServerRound, empty: int
    ) -> RequestDraft | None:
        """Gather the answers to a round, and return the request of the next one; None if an answer
        cannot be expressed.

        `empty` is the number of rounds in a row without questions; such a round is only waited out.
        """
        if not asks.questions:
            if empty > MAX_EMPTY:
                raise protocol_violation("it requests input without end")
            await asyncio.sleep(min(PAUSE_FIRST * 2 ** (empty - 1), PAUSE_MOST))
            return draft._replace(answers=None, state=asks.state)
        open_round = OpenRound(self._upstream_context.dialect, call, asks)
        answers = await open_round.gather(self._host)
        # The same caller with a newer token, which is valid for longer than that of the call.
        call.principal = open_round.principal or call.principal
        if answers is None:
            return None
        if open_round.leave is not None:
            await _expect_ours(open_round.leave)
        return draft._replace(answers=answers, state=asks.state)

    async def _resumed_round(self, draft: RequestDraft, resumes: NextRound) -> RequestDraft | None:
        """Return the request of a round whose answers another process gathered; None if an answer
        cannot be expressed."""
        dialect = self._upstream_context.dialect
        given = {
            key: (question, dialect.default_answer(question) if answer is None else answer)
            for key, (question, answer) in resumes.answers.items()
        }
        answers = dialect.input_responses(given)
        if answers is None:
            return None
        await _expect_ours(resumes.leave)
        return draft._replace(answers=answers, state=resumes.state)

    async def _send_again(self, call: RunningCall, draft: RequestDraft, first_byte: timedelta | None) -> Response:
        """Send a request of the same call, under a new id."""
        call.id = next(self._upstream_context.ids)
        return await self._send(call, draft, first_byte)

    def _send(
        self, call: RunningCall, draft: RequestDraft, first_byte: timedelta | None
    ) -> Coroutine[Any, Any, Response]:
        """Send one request and return its answer. If it may become a task, `ModernFollowedTasks` sees to
        late answers."""
        if draft.params is not None and len(draft.params.head) > LARGE:
            request = self._send_large(call, draft, first_byte)
        else:
            written = self._upstream_context.dialect.request(call.id, draft, self._host)
            request = self._exchanges.ask(call, written, first_byte)
        return self._server_tasks.asked(call, request) if draft.follows_tasks else request

    async def _send_large(self, call: RunningCall, draft: RequestDraft, first_byte: timedelta | None) -> Response:
        written = await in_thread(partial(self._upstream_context.dialect.request, call.id, draft, self._host))
        return await self._exchanges.ask(call, written, first_byte)


async def _expect_ours(leave: Leave) -> None:
    """Remove the call's checkpoint by `leave`, right before the next round is sent.

    From then on no other process can take the call over and send the same round again. Raises
    UpstreamFailed if the call has ended, or another process has taken it over.
    """
    if not await leave():
        raise failures.let_go(dispatched=True)
