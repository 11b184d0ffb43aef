"""Failed look-ups: operators are told why, some time after the answer, in the context of the request."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.lookup_guard import REPORT_DELAY, LookupGuard, Miss
from taskgate.admission.rates import QuotaSubjects, RateLimiter
from taskgate.admission.security_alerts import SecurityLog
from taskgate.auth.context import AuthContext
from taskgate.domain.record import OwnerKey
from taskgate.domain.versions import client_of
from taskgate.errors import StoreUnavailable
from taskgate.protocol.jsonrpc import parse
from taskgate.stores.rates import MemoryRateStore
from taskgate.telemetry.events import Event, SuspicionRaised, TaskDenied
from taskgate.telemetry.request_context import RequestContext, current, in_request
from unit.admission.live_rules import live
from unit.lifecycle.asked import Asked

ALICE = AuthContext(key="alice", previous_key="alice-before")
FOREIGN = SuspicionRaised("cross_context_access", "reports")


class Told:
    """An event sink that remembers events, with the request context of each."""

    def __init__(self) -> None:
        self.all: list[tuple[Event, RequestContext | None]] = []

    def emit(self, event: Event) -> None:
        self.all.append((event, current()))

    @property
    def emitted(self) -> list[Event]:
        return [event for event, _ in self.all]


class Desk:
    """A guard of tasks whose owners a test knows; `asked` are those whose owner was read."""

    def __init__(self, clock: ManualClock, **owners: OwnerKey) -> None:
        self.told, self.owners, self.asked = Told(), owners, list[str]()
        rules = live()
        rates = RateLimiter(
            live=rules, subjects=QuotaSubjects(rules), store=MemoryRateStore(), event_sink=self.told, clock=clock
        )
        self.guard = LookupGuard(
            penalties=None,
            rates=rates,
            security_log=SecurityLog(clock),
            event_sink=self.told,
            clock=clock,
            max_pending=3,
        )

    async def owner_of(self, task: str) -> OwnerKey | None:
        self.asked.append(task)
        assert current() is None, "what is looked up for many is looked up for nobody"
        if task == "broken":
            raise StoreUnavailable("planted")
        return self.owners.get(task)

    async def miss(self, task: str, method: str = "tasks/get") -> None:
        await self.guard.on_miss(Asked(), ALICE, Miss("reports", method, task, self.owner_of))


@pytest.fixture
def desk(clock: ManualClock) -> Desk:
    return Desk(
        clock,
        bobs=OwnerKey("bob", "reports"),
        bobs_elsewhere=OwnerKey("bob", "orders"),
        own=OwnerKey("alice", "reports"),
        own_before=OwnerKey("alice-before", "reports"),
        own_elsewhere=OwnerKey("alice", "orders"),
    )


@pytest.mark.parametrize(
    ("task", "reason", "owner"),
    [
        ("unknown", "not_found", None),
        ("broken", "not_found", None),
        ("bobs", "context_mismatch", "bob"),
        ("bobs_elsewhere", "context_mismatch", "bob"),
        ("own", "expired", "alice"),
        ("own_before", "expired", "alice-before"),
        ("own_elsewhere", "not_found", "alice"),
    ],
)
async def test_why_a_task_was_not_found_is_told_with_whose_it_is(
    desk: Desk, task: str, reason: str, owner: str | None
) -> None:
    await desk.miss(task, "tasks/cancel")
    await desk.guard.report_pending()
    suspected = [FOREIGN] if reason == "context_mismatch" else []
    assert desk.told.emitted == [TaskDenied("reports", "tasks/cancel", reason, task, owner), *suspected]


async def test_nothing_is_looked_up_before_the_host_is_answered(desk: Desk) -> None:
    with in_request(request_context("one-1")):
        await desk.miss("bobs")
        await desk.miss("own")
    await asyncio.sleep(REPORT_DELAY / 2)
    assert (desk.asked, desk.told.all) == ([], [])
    await asyncio.sleep(REPORT_DELAY)
    assert len(desk.told.all) == 3
    assert desk.asked == ["bobs", "own"]
    # And again, after the first look.
    await desk.miss("unknown")
    await asyncio.sleep(2 * REPORT_DELAY)
    assert len(desk.told.all) == 4
    assert desk.asked == ["bobs", "own", "unknown"]


async def test_who_asks_for_what_is_somebody_elses_is_suspected_once_a_minute(desk: Desk, clock: ManualClock) -> None:
    for _ in range(2):
        await desk.miss("bobs")
        await desk.miss("bobs_elsewhere")
        await desk.guard.report_pending()
    assert desk.told.emitted.count(FOREIGN) == 1
    clock.advance(timedelta(minutes=1))
    await desk.miss("bobs")
    await desk.guard.report_pending()
    assert desk.told.emitted.count(FOREIGN) == 2


async def test_more_than_may_wait_are_told_of_at_once_and_not_looked_up(desk: Desk) -> None:
    for _ in range(4):
        await desk.miss("bobs")
    assert desk.told.emitted == [TaskDenied("reports", "tasks/get", "not_found", "bobs", None)]
    await desk.guard.report_pending()
    assert desk.asked == ["bobs"] * 3
    await desk.miss("bobs")
    await desk.guard.close()
    assert desk.asked == ["bobs"] * 4


async def test_what_waits_is_told_of_at_the_end(desk: Desk) -> None:
    await desk.miss("bobs")
    await desk.guard.close()
    await desk.guard.close()
    assert desk.told.emitted == [TaskDenied("reports", "tasks/get", "context_mismatch", "bobs", "bob"), FOREIGN]


async def test_each_is_told_in_the_visit_that_it_was_part_of(desk: Desk) -> None:
    first, second = request_context("one-1"), request_context("one-2")
    with in_request(first):
        await desk.miss("bobs")
    with in_request(second):
        await desk.miss("unknown")
    await desk.miss("own")
    await desk.guard.report_pending()
    of = [seen and seen.id for _, seen in desk.told.all]
    # The suspicion is of whoever gave rise to it.
    assert of == ["one-1", "one-1", "one-2", None]
    assert current() is None


async def test_nothing_large_of_what_a_host_sent_is_kept_until_then(desk: Desk) -> None:
    large = "x" * 100_000
    seen = request_context("one-1", f'{{"taskId":"bobs","more":"{large}"}}')
    seen.client, seen.agent = client_of({"name": large, "version": "1", "more": large, "title": 7}), large
    with in_request(seen):
        await desk.miss(large)
    await desk.guard.report_pending()
    ((denied, kept),) = desk.told.all
    assert isinstance(denied, TaskDenied)
    assert denied.task == "x" * 32
    assert kept is not None
    message: Any = kept.message
    assert (message.id, message.method, message.params, message.text) == (7, "tasks/get", {}, "")
    assert kept.client == ("x" * 512, "1")
    assert kept.agent == "x" * 256
    assert (kept.caller, kept.mount, kept.address) == (ALICE, "reports", "192.0.2.7")


async def test_what_came_without_a_message_or_a_name_has_none(desk: Desk) -> None:
    seen = RequestContext("one-1", "192.0.2.7", "GET", "/reports/mcp")
    with in_request(seen):
        await desk.miss("unknown")
    await desk.guard.report_pending()
    ((_, kept),) = desk.told.all
    assert kept is not None
    assert (kept.id, kept.message, kept.client, kept.agent) == ("one-1", None, None, None)


def request_context(id: str, params: str = '{"taskId":"bobs"}') -> RequestContext:
    """A visit of Alice, who asks for a task."""
    seen = RequestContext(id, "192.0.2.7", "POST", "/reports/mcp", "host/1")
    seen.caller, seen.mount = ALICE, "reports"
    body = f'{{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{params}}}'
    seen.message = parse(body.encode(), max_depth=16)
    return seen
