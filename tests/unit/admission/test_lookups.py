"""Finding a task for a caller: under every key of its own, within the rules."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from taskgate.admission.polls import BURST
from taskgate.domain.rates import RateEvent, RateLimit, RatePolicies, RatePolicy, RateScope
from taskgate.domain.record import TaskRecord
from taskgate.errors import InsufficientScope, Penalized, RateLimited, TaskNotFound
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.telemetry.events import AccessRefused, SuspicionRaised, TaskDenied, TaskPolled
from unit.admission.lookup_desk import ADMIN_ONLY, ALICE, BOB, ROTATED, Desk
from unit.lifecycle.asked import Asked


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Store]:
    options = SqliteOptions(
        path=tmp_path / "taskgate.db", synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=2**30
    )
    opened = await open_store(request.param, options if request.param == "sqlite" else None)
    yield opened
    await opened.close()


def foreign(task: TaskRecord) -> TaskDenied:
    """What is told of somebody who asked for a task of Alice's."""
    return TaskDenied("reports", "tasks/get", "context_mismatch", task.id, "alice")


# --- one task ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_found_by_its_owner_at_its_mount_and_by_nobody_else(store: Store) -> None:
    desk = Desk(store)
    (task,) = await desk.add("alice")
    assert await desk.find(ALICE, task.id) == task.id
    for caller, mount in ((BOB, "reports"), (ALICE, "books")):
        with pytest.raises(TaskNotFound):
            await desk.find(caller, task.id, mount)
    denials = [event for event in await desk.told() if isinstance(event, TaskDenied)]
    assert denials == [foreign(task), TaskDenied("books", "tasks/get", "not_found", task.id, "alice")]


async def test_what_was_bound_to_the_key_before_is_still_found(store: Store) -> None:
    desk = Desk(store)
    old, new = *await desk.add("alice"), *await desk.add("alice-new")
    assert [await desk.find(ROTATED, task.id) for task in (old, new)] == [old.id, new.id]
    assert desk.emitted.all == []


async def test_the_rules_look_at_the_tool_that_the_task_runs(store: Store) -> None:
    desk = Desk(store, ADMIN_ONLY)
    (task,) = await desk.add("alice", tool="delete_all")
    with pytest.raises(InsufficientScope) as refusal:
        await desk.find(ALICE, task.id)
    assert refusal.value.scopes == {"admin"}
    assert desk.emitted.all == [AccessRefused("reports", "tasks/get", shadow=False, rule="r", tool="delete_all")]


async def test_a_strangers_task_is_unknown_before_any_rule_is_asked(store: Store) -> None:
    desk = Desk(store, ADMIN_ONLY)
    (task,) = await desk.add("alice", tool="delete_all")
    with pytest.raises(TaskNotFound):
        await desk.find(BOB, task.id)
    assert await desk.told() == [foreign(task), SuspicionRaised("cross_context_access", "reports")]


async def test_a_caller_that_tries_too_many_ids_finds_its_own_tasks_and_is_refused_all_others_for_a_while(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(store, threshold=1)
    (task,) = await desk.add("alice")
    for unknown in ("a", "b"):
        with pytest.raises(TaskNotFound):
            await desk.find(ALICE, unknown)
    assert desk.emitted.all == [SuspicionRaised("enumeration_suspected", "reports")]
    (line,) = [vars(record) for record in caplog.records if record.name == "taskgate.security"]
    assert (line["upstream"], line["address"]) == ("reports", "192.0.2.7")
    with pytest.raises(Penalized) as penalty:
        await desk.find(ALICE, "c")
    assert penalty.value.retry_after == timedelta(minutes=5)
    assert await desk.find(ALICE, task.id) == task.id
    assert await desk.pages(ALICE) == [[task.id]]
    with pytest.raises(TaskNotFound):
        await desk.find(BOB, "c")
    desk.clock.advance(timedelta(minutes=5))
    with pytest.raises(TaskNotFound):
        await desk.find(ALICE, "c")


async def test_where_callers_cannot_be_told_apart_nobody_is_kept_out(store: Store) -> None:
    desk = Desk(store)
    for number in range(100):
        with pytest.raises(TaskNotFound):
            await desk.find(ALICE, f"unknown-{number}")
    denials = [TaskDenied("reports", "tasks/get", "not_found", f"unknown-{number}", None) for number in range(100)]
    assert await desk.told() == denials


# --- polls ------------------------------------------------------------------------------------------------------------


async def test_to_get_a_task_is_a_poll_that_is_advised_and_may_be_refused(store: Store) -> None:
    desk = Desk(store)
    (task,) = await desk.add("alice")
    assert await desk.poll(ALICE, task.id) == 2000
    assert desk.polled.all == [TaskPolled("reports", "changed")]
    for _ in range(BURST - 1):
        await desk.poll(ALICE, task.id)
    for _ in range(3):
        with pytest.raises(RateLimited):
            await desk.poll(ALICE, task.id)
    # It is no look-up that failed; and who keeps on is told of once.
    assert await desk.told() == [SuspicionRaised("excessive_polling", "reports")]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/result", "tasks/update"])
async def test_to_find_a_task_is_no_poll(store: Store, method: str) -> None:
    desk = Desk(store)
    (task,) = await desk.add("alice")
    for _ in range(2 * BURST):
        found = await desk.lookups.find(Asked(), ALICE, "reports", task.id, method)
        assert found.poll_interval == task.poll_interval
    assert desk.polled.all == []


async def test_a_list_advises_for_each_task_of_it(store: Store) -> None:
    desk = Desk(store)
    await desk.add("alice", 3)
    tasks, _ = await desk.page(ALICE)
    assert [task.poll_interval for task in tasks] == [timedelta(seconds=2)] * 3


# --- misses -----------------------------------------------------------------------------------------------------------


async def test_a_look_up_that_fails_is_taken_from_the_rate_for_such(store: Store) -> None:
    policy = RatePolicy(
        name="lookups",
        scope=RateScope.CONTEXT,
        limit=RateLimit(every=60.0, burst=2),
        methods=None,
        upstream=None,
        tool=None,
        event=RateEvent.LOOKUP_FAILURE,
    )
    desk = Desk(store, rates=RatePolicies((policy,)))
    await desk.limiter.on_request(ALICE, Asked(), "reports", "tasks/get")
    for unknown in ("a", "b"):
        with pytest.raises(TaskNotFound):
            await desk.find(ALICE, unknown)
    with pytest.raises(RateLimited):
        await desk.limiter.on_request(ALICE, Asked(), "reports", "tasks/get")
    await desk.limiter.on_request(BOB, Asked(), "reports", "tasks/get")
    # One request may name many.
    with pytest.raises(RateLimited):
        await desk.find(ALICE, "c")
    with pytest.raises(TaskNotFound):
        await desk.find(BOB, "c")
