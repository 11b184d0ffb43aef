"""Requests about tasks as the engine sees them: the store behind them, and who hears of an answer."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from helpers.failing_store import HoldingStore
from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_input, new_peer, new_record
from taskgate.auth.authorization import AccessRule
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.events import CallFaulted, CallSucceeded, Dispatched, InputRequested
from taskgate.domain.record import FaultReason, OwnerKey, TaskRecord
from taskgate.domain.versions import Revision
from taskgate.gateway.eras import DecodedMessage
from taskgate.gateway.task_requests import TaskRequests
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.host_requests import CancelTask, GetTask, LegacyTaskRequest, ModernIntent, UpdateTask
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.exchange import HttpReply
from unit.lifecycle.asked import Asked
from unit.lifecycle.guarding import Guard
from unit.lifecycle.recorded_events import RecordedEvents

AT = OWNER.mount
MODERN = new_peer(revision=Revision.R2026_07_28)
DONE = CallSucceeded(result='{"content":[{"type":"text","text":"done"}]}', tool_error=False, message=None)
FAULT = CallFaulted(error='{"code":-32000,"message":"no"}', reason=FaultReason.JSONRPC_ERROR, message="no")
ACCEPT = '{"result":{"action":"accept","content":{"go":true}}}'
DECLINE = '{"result":{"action":"decline"}}'


@dataclass
class AnswerDesk:
    """A runner, as far as requests need one: hears who is about to answer, and what the task holds by then."""

    holder: str = "here"
    heard: list[tuple[tuple[OwnerKey, ...], str, AuthContext]] = field(default_factory=list)
    look: Callable[[], None] = lambda: None

    async def stop_run(self, task: str) -> None:
        """No call runs here."""

    def answers(self, owners: Any, task: str, caller: AuthContext) -> None:
        self.heard.append((tuple(owners), task, caller))
        self.look()


class CountingStore(HoldingStore):
    """A store that counts its loads, by whether they were of bodies."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.loads: Counter[bool] = Counter()

    def __getattr__(self, name: str) -> Any:
        operation = super().__getattr__(name)
        if name != "load":
            return operation

        async def load(*args: Any, bodies: bool = False, **kwargs: Any) -> Any:
            self.loads[bodies] += 1
            return await operation(*args, bodies=bodies, **kwargs)

        return load


class World:
    """Task requests over a store."""

    def __init__(self, store: CountingStore, *rules: AccessRule, threshold: int | None = None) -> None:
        self.store, self.clock, self.emitted, self.desk = store, ManualClock(), RecordedEvents(), AnswerDesk()
        self.dialect: LegacyDownstream | ModernDownstream = ModernDownstream("1")
        """That of the host."""
        self.changes = Transitions(store=store, event_sink=self.emitted, clock=self.clock)
        self.retrievals = Retrievals(transitions=self.changes, event_sink=self.emitted, clock=self.clock)
        runner: Any = self.desk
        nothing: Any = None  # no task is made here
        self.guard = Guard(store, self.clock, self.emitted, *rules, threshold=threshold)
        lookups = self.guard.lookups
        tasks = TaskService(
            store=store,
            transitions=self.changes,
            lookups=lookups,
            runner=runner,
            retrievals=self.retrievals,
            live=nothing,
            quota_subjects=nothing,
            joining=nothing,
            hosts=nothing,
            event_sink=self.emitted,
            clock=self.clock,
            entropy=nothing,
        )
        self.requests = TaskRequests(
            legacy=LegacyDownstream("1"),
            modern=ModernDownstream("1"),
            tasks=tasks,
            lookups=lookups,
            results=nothing,
            transitions=self.changes,
            retrievals=self.retrievals,
            runner=runner,
            handles=nothing,
        )

    async def keep(self, record: TaskRecord) -> TaskRecord:
        await keep(self.store, record)
        self.clock.set_wall(max(self.clock.now(), record.updated_at))
        return record

    async def asking(self, *events: Any, count: int = 1, **changes: Any) -> TaskRecord:
        """A task that waits with questions, after these events."""
        questions = [
            InputRequested(request=new_input(f"input-{number}", params='{"message":"Go on?","requestedSchema":{}}'))
            for number in range(1, count + 1)
        ]
        return await self.keep(after(new_record(**changes), Dispatched(), *questions, *events))

    async def now(self, record: TaskRecord) -> TaskRecord:
        found = await self.store.load(record.owner, record.id, now=self.clock.now())
        assert isinstance(found, TaskRecord)
        return found

    async def answer(self, intent: ModernIntent, caller: AuthContext, mount: str) -> dict[str, Any]:
        """The result of a request."""
        return shown(await self.requests.answer(self._decoded(intent, caller, mount)))

    async def get(self, task: str, caller: AuthContext = ANONYMOUS, mount: str = AT) -> dict[str, Any]:
        reply = self.requests.poll(self._decoded(GetTask(7, task), caller, mount), self.clock.elapsed())
        return shown(reply if isinstance(reply, HttpReply) else await reply)

    async def update(
        self, task: str, caller: AuthContext = ANONYMOUS, mount: str = AT, **answers: str
    ) -> dict[str, Any]:
        """Answers, by keys with underscores for dashes."""
        given = {key.replace("_", "-"): answer for key, answer in answers.items()}
        return await self.answer(UpdateTask(id=7, task=task, answers=given), caller, mount)

    async def cancel(self, task: str, caller: AuthContext = ANONYMOUS, mount: str = AT) -> dict[str, Any]:
        return await self.answer(CancelTask(id=7, task=task), caller, mount)

    async def of_legacy(self, request: GetTask | CancelTask, caller: AuthContext = ANONYMOUS) -> dict[str, Any]:
        return await self.answer(LegacyTaskRequest(request=request), caller, AT)

    def _decoded(self, intent: ModernIntent, caller: AuthContext, mount: str) -> DecodedMessage:
        return DecodedMessage(
            adapter=SimpleNamespace(dialect=self.dialect),  # type: ignore[arg-type]
            exchange=Asked(),
            mount=SimpleNamespace(name=mount),  # type: ignore[arg-type]
            caller=caller,
            message=None,  # type: ignore[arg-type]
            intent=intent,
        )


def shown(spoken: HttpReply) -> dict[str, Any]:
    """The result that is told."""
    message = json.loads(spoken.body or "")
    assert message["id"] == 7
    assert spoken.error is None
    result: dict[str, Any] = message["result"]
    return result


def is_acknowledgement(result: dict[str, Any]) -> bool:
    """Whether nothing of the task is in it: M-UPD-1, M-CANCEL-1."""
    return result["resultType"] == "complete" and result.keys() == {"resultType", "_meta"}
