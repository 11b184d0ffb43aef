"""What operators are told of the questions of a server to the host of a task, from the first word to the last."""

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from helpers.records import OWNER, after, keep, new_call, new_peer, new_record
from helpers.waiting import eventually
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.record import OwnerKey
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.inputs import TaskInputs
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.host_requests import AnswerInput
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.open import open_store
from taskgate.telemetry.events import InputRequestOpened, InputSettled, SuspicionRaised, TaskRetrieved
from unit.lifecycle.asked import Asked as Exchange
from unit.lifecycle.guarding import Guard
from unit.lifecycle.recorded_events import RecordedEvents
from unit.lifecycle.test_inputs import ANSWER, Asked, SecretiveStore, World, idle

UNASKED = SuspicionRaised("input_key_unknown", "reports")


class Desk(World):
    """A task that runs, its questions, and its host of the legacy era."""

    def __init__(self, store: SecretiveStore) -> None:
        super().__init__(store, after(new_record(), Dispatched()))
        self.emitted, dialect = RecordedEvents(), LegacyDownstream("1")
        self.changes = Transitions(store=store, event_sink=self.emitted, clock=self.clock)  # type: ignore[arg-type]
        self.retrievals = Retrievals(transitions=self.changes, event_sink=self.emitted, clock=self.clock)
        guard, nothing = Guard(store, self.clock, RecordedEvents()), None
        self.offers = InputDelivery(
            holder="p",
            store=store,  # type: ignore[arg-type]
            transitions=self.changes,
            access=guard.access,
            dialect=dialect,
            clock=self.clock,
        )
        self.following = ResultWaiter(
            store=store,  # type: ignore[arg-type]
            retrievals=self.retrievals,
            lookups=guard.lookups,
            streams=nothing,  # type: ignore[arg-type]
            offers=self.offers,
            dialect=dialect,
            clock=self.clock,
            document_wait=lambda *_: nullcontext(),
        )

    async def asks(self, inputs: TaskInputs) -> Asked:
        """A question that is in the record."""
        asked = Asked()
        inputs.ask(asked)
        await idle(inputs)
        return asked

    async def answers(self, key: str, answer: str = ANSWER, *, task: str | None = None, **more: Any) -> None:
        """Its host answers."""
        given = AnswerInput(task=task or self.record.id, key=key, answer=answer, **more)
        record = await self.offers.answerable(ANONYMOUS, OWNER.mount, given.task)
        if record is not None:
            await self.offers.answer(record, given)

    @property
    def told(self) -> list[tuple[str, str]]:
        """What became of the questions: asked, or the outcome."""
        kinds = (InputRequestOpened, InputSettled)
        emitted: list[Any] = [event for event in self.emitted.all if isinstance(event, kinds)]
        assert {event.kind for event in emitted} <= {"elicitation"}
        return [(event.key, "asked" if isinstance(event, InputRequestOpened) else event.outcome) for event in emitted]

    @property
    def suspicions(self) -> list[Any]:
        return [event for event in self.emitted.all if isinstance(event, SuspicionRaised)]


@pytest.fixture
async def desk() -> Desk:
    desk = Desk(SecretiveStore(await open_store("memory", None)))
    await keep(desk.store, desk.record)  # type: ignore[arg-type]
    return desk


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(ANSWER, "answered"), ('{"result":{"action":"cancel"}}', "declined"), ('{"error":{"code":-1}}', "declined")],
)
async def test_a_question_is_asked_and_answered(desk: Desk, answer: str, outcome: str) -> None:
    inputs = desk.inputs()
    await desk.asks(inputs)
    await desk.answers("input-1", answer)
    assert desk.told == [("input-1", "asked"), ("input-1", outcome)]
    inputs.close()


async def test_a_question_that_nobody_answers_in_time_expires(desk: Desk) -> None:
    inputs = desk.inputs(wait=20)
    await desk.asks(inputs)
    await asyncio.sleep(20)
    await idle(inputs)
    assert desk.told == [("input-1", "asked"), ("input-1", "expired")]


async def test_a_question_that_its_server_takes_back_needs_no_answer(desk: Desk) -> None:
    inputs = desk.inputs()
    asked = await desk.asks(inputs)
    for forget in asked.forgets:
        forget()
    await idle(inputs)
    assert desk.told == [("input-1", "asked"), ("input-1", "superseded")]


async def test_a_question_that_its_host_keeps_a_task_for_is_answered_when_that_is(desk: Desk) -> None:
    """The handle of the host's own task is not the answer yet (L-HOST-5)."""
    inputs, kept = desk.inputs(), Asked()
    kept.question = kept.question._replace(params=type(kept.question.params)('{"task":{},"message":"Go on?"}'))  # type: ignore[misc, call-arg]
    inputs.ask(kept)
    await idle(inputs)
    await desk.answers("input-1", '{"result":{"task":{"taskId":"theirs"}}}', host_task="theirs")
    inputs.forward_answers(await desk.now(), None)
    await idle(inputs)
    assert desk.told == [("input-1", "asked")]
    fetch = Asked()
    fetch.question = fetch.question._replace(
        method="tasks/result",
        params=type(kept.question.params)('{"taskId":"theirs"}'),  # type: ignore[misc, call-arg]
    )
    inputs.ask(fetch)
    await idle(inputs)
    await desk.answers("input-2", ANSWER)
    inputs.forward_answers(await desk.now(), None)
    await idle(inputs)
    assert desk.told == [("input-1", "asked"), ("input-1", "answered")]


async def test_an_answer_to_what_was_never_asked_is_suspicious(desk: Desk) -> None:
    inputs = desk.inputs()
    await desk.asks(inputs)
    await desk.answers("input-2")
    assert (desk.suspicions, desk.told) == ([UNASKED], [("input-1", "asked")])
    inputs.close()


async def test_a_second_answer_and_one_to_a_task_of_somebody_else_are_not(desk: Desk) -> None:
    """Of somebody else's task nothing is known here: looking for one is counted elsewhere."""
    inputs, other = desk.inputs(), new_record(owner=OwnerKey("somebody", OWNER.mount))
    await keep(desk.store, other)  # type: ignore[arg-type]
    await desk.asks(inputs)
    for _ in range(2):
        await desk.answers("input-1")
    await desk.answers("input-1", task=other.id)
    assert desk.suspicions == []
    inputs.close()


async def test_an_outcome_that_was_waited_for_is_told_to_be_retrieved(desk: Desk) -> None:
    record = after(new_record(call=new_call(peer=new_peer())), CallSucceeded(result="{}", tool_error=False))
    await keep(desk.store, record)  # type: ignore[arg-type]
    desk.clock.set_wall(record.updated_at + timedelta(seconds=6))
    host_session: Any = type("HostSession", (), {"mount": type("Mount", (), {"name": OWNER.mount})})
    whole = await desk.following.outcome(Exchange(), ANONYMOUS, host_session, record.id, "tasks/result")
    assert desk.emitted.all == [TaskRetrieved(whole, timedelta(seconds=6))]
    await eventually(lambda: not desk.retrievals.background.running)
    kept = await desk.store.load(OWNER, record.id, now=desk.clock.now())
    assert kept.retrieved
