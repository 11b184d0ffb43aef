"""The work for a page of tasks does not grow with the tasks that are stored."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import after, keep, new_record
from taskgate.clock import SystemEntropy
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.operators.access import Operator, OperatorAccess, Role
from taskgate.operators.cursors import ListCursors
from taskgate.operators.routes import ApiCall, read_query
from taskgate.operators.tasks import TaskListQuery, TaskPage, TaskRoutes
from taskgate.stores.base import Scan, Store
from taskgate.stores.open import open_store
from taskgate.stores.references import plain_reference
from taskgate.telemetry.events import UnlimitedAuditCapacity

STORED, UNFINISHED = 3000, 40
DONE = CallSucceeded(result="{}", tool_error=False)
OPERATOR = Operator("ops", Role.OPERATOR)


class CountedScans:
    """A store that counts the tasks that a scan looks at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looked = 0

    async def scan(self, *, wants: Any, **rest: Any) -> Scan:
        """As the store does it."""

        def counted(record: TaskRecord) -> bool:
            self.looked += 1
            return bool(wants(record))

        return await self._store.scan(wants=counted, **rest)


@pytest.fixture
async def store() -> AsyncIterator[CountedScans]:
    """A store with many tasks, most of which have ended."""
    store = await open_store("memory", None, plain_reference)
    records = [new_record(id=f"task-{number:05}") for number in range(STORED)]
    await keep(store, *records)
    for record in records[UNFINISHED:]:
        assert await store.swap(after(record, DONE), expected=record.revision)
    yield CountedScans(store)
    await store.close()


async def page(store: CountedScans, **query: str) -> TaskPage:
    routes = TaskRoutes(
        store=cast("Any", store),
        transitions=cast("Any", None),
        runner=cast("Any", None),
        reference_of=plain_reference,
        cursors=ListCursors(lambda: (b"k" * 32, None), SystemEntropy()),
        clock=ManualClock(),
        access=OperatorAccess(lambda: 0.0),
        audit_capacity=UnlimitedAuditCapacity(),
    )
    [route] = [each for each in routes.routes() if (each.method, each.path) == ("GET", "/tasks")]
    call = ApiCall(operator=OPERATOR, parameters={}, query=read_query(TaskListQuery, list(query.items())), body=None)
    found = await route.handler(call)
    assert isinstance(found, TaskPage)
    return found


async def test_a_page_of_all_tasks_looks_at_those_that_it_shows(store: CountedScans) -> None:
    first = await page(store, limit="25")
    assert (len(first.items), store.looked) == (25, 25)
    second = await page(store, limit="25", cursor=first.next or "")
    assert (len(second.items), store.looked) == (25, 50)
    assert not {item.reference for item in first.items} & {item.reference for item in second.items}


async def test_a_page_of_unfinished_tasks_looks_at_no_other(store: CountedScans) -> None:
    first = await page(store, limit="25", status="working,input_required", sort="-created")
    assert (len(first.items), store.looked) == (25, UNFINISHED)
    assert first.is_complete


async def test_an_age_counts_from_the_creation(store: CountedScans) -> None:
    assert (await page(store, older_than="1")).items == ()
    assert len((await page(store, younger_than=str(timedelta(hours=1).total_seconds()))).items) == 50
