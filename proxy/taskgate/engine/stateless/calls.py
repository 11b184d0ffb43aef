"""Requests of the stateless era that servers answer: waited for, turned into tasks, or held until their host is back.

A call that may take long becomes a task where its host knows tasks and the operator wants it (decisions 3, 5); where
its server asks the host something, that is an input of the task, or else the call is held and its host sent for the
answers (decisions 18). What must not live here: how a request is waited for (`attending`), where a call waits for its
host (`holds`), and how rounds of questions and answers are written and read (`rounds`).
"""

from collections.abc import Awaitable, Coroutine
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple, TypeVar

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.dialects.intents import CallTool, Relay
from taskgate.dialects.stateless import Retry, Stateless, StatelessDialect
from taskgate.engine.background import Background
from taskgate.engine.guard.callers import speaker
from taskgate.engine.inputs import Bounds
from taskgate.engine.messages import Exchange
from taskgate.engine.spoken import Spoken, error_of
from taskgate.engine.stateless.attending import Attending
from taskgate.engine.stateless.errands import IN_ROUNDS, Errand
from taskgate.engine.stateless.flights import Flight
from taskgate.engine.stateless.holds import Held, Holds
from taskgate.engine.stateless.lines import Line, asked_of
from taskgate.engine.stateless.rounds import Rounds
from taskgate.engine.task_service import TaskService
from taskgate.errors import GatewayError, InvalidParams, TaskSupportMismatch
from taskgate.mcp.jsonrpc import Response
from taskgate.mcp.versions import Era
from taskgate.tasks.policy import Mode, Policy
from taskgate.tasks.record import TaskRecord
from taskgate.tasks.states import HeldCall, StateKeys
from taskgate.telemetry.audit import Audit, ToolCalled

QUIET: Final = 0.05
"""Seconds without a question after which a server is taken to have asked all that it asks at once: messages that were
sent together arrive together but for a network's jitter, and nobody who is asked something notices so little."""

Met = TypeVar("Met")

log = getLogger("taskgate.stateless")


class Waits(NamedTuple):
    """How long a host may take to bring answers, a call to become a task, and a silence to become a stream."""

    bounds: Bounds
    grace: timedelta
    patience: timedelta


class Calls:
    """Carries them."""

    def __init__(
        self,
        *,
        dialect: StatelessDialect,
        tasks: TaskService,
        policy: Policy,
        states: StateKeys,
        waits: Waits,
        audit: Audit,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._tasks = tasks
        self._policy = policy
        self._dialect = dialect
        self._most = waits.bounds.outstanding
        self._grace = waits.grace.total_seconds()
        self._audit = audit
        self._attending = Attending(dialect=dialect, patience=waits.patience)
        self._holds = Holds(bounds=waits.bounds, clock=clock, entropy=entropy)
        self._rounds = Rounds(dialect=dialect, states=states, holds=self._holds, wait=waits.bounds.wait, clock=clock)
        self._flying = Background()

    def call(
        self, exchange: Exchange, caller: AuthContext, line: Line, said: Stateless, intent: CallTool
    ) -> Coroutine[Any, Any, Spoken]:
        """The answer to a `tools/call`: its result, the handle of a task, or what the host is asked first.

        Raises TaskSupportMismatch for a tool that runs only as a task and a host without them, UpstreamFailed, what
        TaskService.create does where a task is made at once, Interrupted when the host left, and CutOff when the
        gateway ends.
        """
        errand = self._errand(exchange, caller, line, said, intent)
        return self._made_or_carried(errand) if errand.may_become_task else self._carry(errand)

    async def relay(
        self, exchange: Exchange, caller: AuthContext, line: Line, said: Stateless, intent: Relay
    ) -> Spoken:
        """The answer to any other request: its server's, or what the host is asked first. Raises as `call`."""
        if intent.method in IN_ROUNDS:
            return await self._carry(self._errand(exchange, caller, line, said, intent))
        response = await self.forward(exchange, caller, line, said, intent)
        answer = self._dialect.answer(intent.id, intent.method, response, line.upstream.era)
        return Spoken(answer, error_of(response))

    async def forward(
        self, exchange: Exchange, caller: AuthContext, line: Line, said: Stateless, intent: Relay
    ) -> Response:
        """The server's response to a request of which the host is asked nothing. Raises as `call`."""
        errand = self._errand(exchange, caller, line, said, intent)
        with self._attending.telling(exchange, said) as telling:
            return await self._attending.wait(exchange, errand.send(telling))

    async def retry(
        self, exchange: Exchange, caller: AuthContext, line: Line, said: Stateless, intent: Retry
    ) -> Spoken:
        """The answer to a request that was sent again with what its host was asked for.

        Raises InvalidParams for a state that is not this request's, or was used, or is over, and for an answer that
        fits no question; otherwise as `call`.
        """
        state = self._rounds.opened(caller, line, intent)
        if isinstance(state, HeldCall):
            held = self._holds.find(caller.owners(line.mount.name), state.id, state.round)
            return await self._resume(held, exchange, caller, said, intent)
        # A server of the initialize era knows no rounds: what it never asked for is left out (M-MRTR-5).
        await self.meet(exchange, said, line.upstream.open())
        errand = self._errand(exchange, caller, line, said, intent.request)
        if line.upstream.era is Era.STATELESS:
            errand = errand._replace(sends=self._dialect.again(intent, None if state is None else state.state))
        # Answers alone make no call one that was let in before.
        made = await self._made(errand) if state is None else None
        return made or await self._carry(errand)

    async def meet(self, exchange: Exchange, said: Stateless, work: Awaitable[Met]) -> Met:
        """What comes of `work`, for which a server is met before a request goes to it. Raises as `call`.

        The host waits for it as for an answer, but hears no progress yet: that begins with the request, and only grows.
        """
        with self._attending.telling(exchange, said._replace(progress_token=None)):
            return await self._attending.wait(exchange, work)

    def sweep(self) -> None:
        """Give up the held calls whose host did not come back in time."""
        self._holds.sweep()

    def stop(self) -> None:
        """Give up what is still carried: hosts that wait are told so, and servers that wait for one."""
        self._attending.stop()
        self._holds.stop()

    async def close(self) -> None:
        """No call is carried any more, nor runs as a task: wait until the servers know."""
        self._attending.close()
        await self._flying.close()

    # --- what becomes of a request ----------------------------------------------------------------------------------

    def _errand(
        self, exchange: Exchange, caller: AuthContext, line: Line, said: Stateless, request: CallTool | Relay
    ) -> Errand:
        """A request that is let in. Raises TaskSupportMismatch."""
        may = False
        if isinstance(request, CallTool):
            mount, mode = line.mount.name, self._policy.mode(line.mount.name, request.tool)
            if mode is Mode.REQUIRED and not said.declares_tasks:
                self._audit.record(ToolCalled(mount, None, "rejected"))
                raise TaskSupportMismatch("The tool runs only as a task")
            may = mode is not Mode.SYNC and said.declares_tasks and request.kept is not None
            if not may:
                self._count(line, request, "direct")
        return Errand(
            exchange=exchange,
            caller=caller,
            line=line,
            said=said,
            request=request,
            sends=request,
            may_become_task=may,
        )

    async def _made_or_carried(self, errand: Errand) -> Spoken:
        return await self._made(errand) or await self._carry(errand)

    async def _made(self, errand: Errand) -> Spoken | None:
        """The handle of a task that is made before the call leaves; None where that is not wanted, or cannot be."""
        request, mount = errand.request, errand.line.mount.name
        if not errand.may_become_task or not isinstance(request, CallTool):
            return None
        if self._policy.mode(mount, request.tool) is Mode.AUTO:
            return None
        try:
            # While the server is met, the host may still leave without a task.
            await self.meet(errand.exchange, errand.said, errand.line.upstream.tools())
            record = await self._tasks.create(errand.caller, errand.line, request)
            self._abandon_with(errand, record)
        except (TaskSupportMismatch, InvalidParams):
            # The host did not ask for a task, so nothing is refused: the server says what it says.
            return None
        except GatewayError:
            self._audit.record(ToolCalled(mount, None, "rejected"))
            raise
        self._count(errand.line, request, "task")
        return Spoken(self._dialect.task_created(request.id, record))

    async def _carry(self, errand: Errand) -> Spoken:
        if not errand.may_outlive:
            with self._attending.telling(errand.exchange, errand.said, passes_rounds=True) as telling:
                response = await self._attending.wait(errand.exchange, errand.send(telling))
            return self._rounds.answered(errand, response, telling.missing)
        flight = Flight(most=self._most)
        flight.leave(errand.line, self._flying, errand.send)
        return await self._follow(errand, flight, None)

    async def _resume(
        self, held: Held, exchange: Exchange, caller: AuthContext, said: Stateless, intent: Retry
    ) -> Spoken:
        """Go on with a held call; where what the host brings cannot be taken, it stays held for a better try."""
        flight = held.flight
        if asked_of(said.peer) != asked_of(held.line.peer):
            raise InvalidParams("The request does not declare the capabilities that it was first sent with")
        for key, answer in intent.answers.items():
            question = flight.questions.get(key)
            if question is not None and not self._dialect.fits(question.question.method, answer):
                raise InvalidParams("An answer does not fit what was asked")
        errand = self._errand(exchange, caller, held.line, said, intent.request)
        self._holds.take(held)
        for key, answer in intent.answers.items():
            flight.answer(key, answer, speaker(caller))
        return await self._follow(errand, flight, held)

    async def _follow(self, errand: Errand, flight: Flight, held: Held | None) -> Spoken:
        """Wait with the host for a call until there is something to tell it; should it leave, the call ends."""
        try:
            with self._attending.telling(errand.exchange, errand.said) as telling:
                flight.tell(telling)
                spoken = await self._outcome(errand, flight, held)
        except BaseException:
            flight.close()
            if held is not None:
                self._holds.end(held)
            raise
        return spoken

    async def _outcome(self, errand: Errand, flight: Flight, held: Held | None) -> Spoken:
        record = await self._promoted(errand, flight)
        while record is None:
            await self._attending.wait(errand.exchange, flight.stirs(None))
            if not flight.is_over:
                await self._attending.wait(errand.exchange, flight.rests(QUIET))
            if flight.is_over:
                break
            if flight.questions:
                return self._rounds.ask(errand, flight, held)
        if held is not None:
            self._holds.end(held)
        if record is not None:
            return Spoken(self._dialect.task_created(errand.request.id, record))
        return self._rounds.answered(errand, await flight.response(), flight.missing)

    async def _promoted(self, errand: Errand, flight: Flight) -> TaskRecord | None:
        """The task that the call is from now on; None where it cannot become one, or has no need to."""
        request = errand.request
        if not errand.may_become_task or not isinstance(request, CallTool):
            return None
        record = None
        try:
            await self._attending.wait(errand.exchange, flight.stirs(self._grace))
            if not flight.is_over:
                record = await self._promote(errand, request, flight)
        finally:
            self._count(errand.line, request, "direct" if record is None else "task")
        return record

    async def _promote(self, errand: Errand, request: CallTool, flight: Flight) -> TaskRecord | None:
        # What the server asks from here on is a matter of the task (M-MRTR-8).
        flight.passes_rounds = False
        try:
            record = await self._tasks.promote(errand.caller, errand.line, request, flight)
        except GatewayError as refusal:
            # The host did not ask for a task, so it just goes on to wait (R-RES-6).
            log.debug("a call does not become a task", extra={"reason": refusal.reason})
            flight.passes_rounds = True
            return None
        self._abandon_with(errand, record)
        return record

    def _abandon_with(self, errand: Errand, record: TaskRecord) -> None:
        """Let a task be cancelled if its host leaves, or has left, without knowing of it: that cancels the request."""
        errand.exchange.when_gone(partial(self._tasks.abandon, record.owner, record.id))

    def _count(self, line: Line, request: CallTool, disposition: str) -> None:
        listed = None if line.upstream.listed(request.tool) is None else request.tool
        self._audit.record(ToolCalled(line.mount.name, listed, disposition))
