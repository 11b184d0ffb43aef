"""A modern call through its rounds: `RoundRunner` sends it, gathers answers, and sends it again.

    request                  -> input required: questions, state
    request, answers, state  -> input required, or a task, or the result

Each round has a new request id (M-MRTR-3). `OpenRound` asks the questions, `ServerTasks` follows a
task, `ModernExchanges` does the HTTP, and `ModernSession` bounds the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import RequestDraft, ServerRound
from taskgate.protocol.vocabulary import HEADER_MISMATCH, TOOLS_CALL
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.native import ServerTasks
from taskgate.upstream.modern.questions import OpenRound
from taskgate.upstream.resume_points import Leave, NextRound

MAX_ROUNDS: Final = 64
"""Rounds of one call: more than any tool needs, and an end for one without end."""

MAX_EMPTY: Final = 12
"""Rounds in a row without questions: the server only asks for more time."""

PAUSE_FIRST: Final = 0.05
PAUSE_MOST: Final = 5.0
"""PAUSE_FIRST to PAUSE_MOST: seconds before such a round is sent again; doubles."""

MOST_NOTED: Final = 1024
"""Tools that are known to run as tasks only; others are found out with each call."""

Mirrored = Mapping[str, tuple[str, ...]]


class RoundRunner:
    """Calls to one server for one host. `mirrored_anew` reads again what headers of a tool's calls
    repeat.

    The tasks extension is declared with a call that may become a task
    (`RequestDraft.follows_tasks`). It is also declared with calls of a tool that the server refused
    without it, if `serves_tasks`: so hosts without tasks can use such tools.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        exchanges: ModernExchanges,
        natives: ServerTasks,
        host: Peer | None,
        mirrored_anew: Callable[[str], Awaitable[Mirrored]],
        serves_tasks: Callable[[], bool],
    ) -> None:
        self._upstream_context = upstream_context
        self._exchanges = exchanges
        self._natives = natives
        self._host = host
        self._mirrored_anew = mirrored_anew
        self._serves_tasks = serves_tasks
        self._only_as_tasks: set[str] = set()

    async def ask(self, call: Call, saying: RequestDraft, tool: str | None, first_byte: timedelta | None) -> Response:
        """Return the server's last answer. Raises UpstreamFailed. Each round has an id of its own
        (M-MRTR-3)."""
        if call.resumes is not None:
            resumed = await self._resumed(saying, call.resumes)
            if resumed is None:
                return self._upstream_context.dialect.unanswered_error(call.id)
            saying = resumed
        saying, response = await self._begun(call, saying, tool, first_byte)
        empty = 0
        for turn in count():
            task = (
                self._upstream_context.dialect.read_created_task(saying.method, response)
                if saying.follows_tasks
                else None
            )
            if task is not None:
                return await self._natives.follow(call, task)
            asked = self._upstream_context.dialect.round_of(saying.method, call.id, response)
            if asked is None or (call.listener is not None and call.listener.passes_rounds):
                return response
            if turn == MAX_ROUNDS:
                break
            empty = 0 if asked.questions else empty + 1
            again = await self._answered(call, saying, asked, empty)
            if again is None:
                return self._upstream_context.dialect.unanswered_error(call.id)
            saying = again
            try:
                response = await self._send_again(call, saying, first_byte)
            except UpstreamFailed as failure:
                # The server may have acted on earlier rounds.
                raise failures.sent(failure) from None
        raise failures.malformed("it requests input without end")

    async def _begun(
        self, call: Call, saying: RequestDraft, tool: str | None, first_byte: timedelta | None
    ) -> tuple[RequestDraft, Response]:
        """Return the first answer that is no refusal of the request's form, and the request that
        got it."""
        if tool in self._only_as_tasks:
            saying = saying._replace(follows_tasks=True)
        response = await self._send(call, saying, first_byte)
        if tool is not None and not saying.follows_tasks and self._runs_only_as_task(response):
            if len(self._only_as_tasks) < MOST_NOTED:
                self._only_as_tasks.add(tool)
            saying = saying._replace(follows_tasks=True)
            response = await self._send_again(call, saying, first_byte)
        if tool is not None and saying.method == TOOLS_CALL and _is_mismatch(response):
            # The server refused before it acted; the headers that it requires may have changed
            # (H-MOD-7).
            mirrored = await self._mirrored_anew(tool)
            if mirrored != saying.header_paths:
                saying = saying._replace(header_paths=mirrored)
                response = await self._send_again(call, saying, first_byte)
        return saying, response

    def _runs_only_as_task(self, response: Response) -> bool:
        return (
            response.error is not None and self._upstream_context.dialect.needs_tasks(response) and self._serves_tasks()
        )

    async def _answered(self, call: Call, saying: RequestDraft, asked: ServerRound, empty: int) -> RequestDraft | None:
        """Return the request with the answers of a round; None if an answer cannot be expressed."""
        if not asked.questions:
            if empty > MAX_EMPTY:
                raise failures.malformed("it requests input without end")
            await asyncio.sleep(min(PAUSE_FIRST * 2 ** (empty - 1), PAUSE_MOST))
            return saying._replace(answers=None, state=asked.state)
        open_round = OpenRound(self._upstream_context.dialect, call, asked)
        answers = await open_round.gather(self._host)
        # The newest token of the caller is as valid as the call's, and lasts longer.
        call.principal = open_round.principal or call.principal
        if answers is None:
            return None
        if open_round.leave is not None:
            await _left(open_round.leave)
        return saying._replace(answers=answers, state=asked.state)

    async def _resumed(self, saying: RequestDraft, resumes: NextRound) -> RequestDraft | None:
        """Return the request with the answers of a round that another process gathered; None as in
        `_answered`."""
        dialect = self._upstream_context.dialect
        given = {
            key: (asked, dialect.default_answer(asked) if answer is None else answer)
            for key, (asked, answer) in resumes.answers.items()
        }
        answers = dialect.input_responses(given)
        if answers is None:
            return None
        await _left(resumes.leave)
        return saying._replace(answers=answers, state=resumes.state)

    async def _send_again(self, call: Call, saying: RequestDraft, first_byte: timedelta | None) -> Response:
        call.id = next(self._upstream_context.ids)
        return await self._send(call, saying, first_byte)

    def _send(self, call: Call, saying: RequestDraft, first_byte: timedelta | None) -> Coroutine[Any, Any, Response]:
        if saying.params is not None and len(saying.params.head) > LARGE:
            asked = self._send_large(call, saying, first_byte)
        else:
            written = self._upstream_context.dialect.request(call.id, saying, self._host)
            asked = self._exchanges.ask(call, written, first_byte)
        return self._natives.asked(call, asked) if saying.follows_tasks else asked

    async def _send_large(self, call: Call, saying: RequestDraft, first_byte: timedelta | None) -> Response:
        written = await in_thread(partial(self._upstream_context.dialect.request, call.id, saying, self._host))
        return await self._exchanges.ask(call, written, first_byte)


async def _left(leave: Leave) -> None:
    """Raise if the call was given up, or another process has it now."""
    if not await leave():
        raise failures.let_go(dispatched=True)


def _is_mismatch(response: Response) -> bool:
    return response.error_code == HEADER_MISMATCH
