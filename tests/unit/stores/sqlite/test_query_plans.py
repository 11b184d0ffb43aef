"""Query plans: every statement searches an index, and a page is read in its order."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER
from taskgate.domain.listing import STATES, OrderBy, Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskStatus
from taskgate.stores.codec import number_function
from taskgate.stores.references import plain_reference
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.reader import page_query

SECOND = timedelta(seconds=1)
number_of = number_function(plain_reference)
ENDED = frozenset(state for state in STATES if state.status in (TaskStatus.COMPLETED, TaskStatus.FAILED))
FILTERS = {
    "none": TaskFilter(),
    "a state": TaskFilter(states=frozenset({TaskState(TaskStatus.FAILED)})),
    "a state of running tasks": TaskFilter(states=frozenset({TaskState(TaskStatus.WORKING)})),
    "several states": TaskFilter(states=ENDED),
    "created within": TaskFilter(created_after=EPOCH, created_before=EPOCH + SECOND),
    "created after": TaskFilter(created_after=EPOCH),
    "created before": TaskFilter(created_before=EPOCH),
    "updated within": TaskFilter(updated_after=EPOCH, updated_before=EPOCH + SECOND),
    "updated after": TaskFilter(updated_after=EPOCH),
    "updated before": TaskFilter(updated_before=EPOCH),
    "states and all bounds": TaskFilter(
        states=ENDED,
        created_after=EPOCH,
        created_before=EPOCH + SECOND,
        updated_after=EPOCH,
        updated_before=EPOCH + SECOND,
    ),
}
ORDERS = [TaskOrder(by=by, descending=descending) for by, descending in product(OrderBy, (True, False))]
PLACES = {"the beginning": None, "a place": Position(EPOCH, "id")}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenFile]:
    folder: Path = tmp_path_factory.mktemp("pages")
    options = SqliteOptions(
        path=folder / "taskgate.db", synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=1 << 26
    )
    opened = open_file(options)
    yield opened
    opened.close()


MERGED = ("CO-ROUTINE listed", "MERGE (UNION ALL)", "LEFT", "RIGHT")


def indexes_of(where: TaskFilter, order: TaskOrder) -> list[str]:
    """The indexes of the tasks that may be in a list."""
    if order.by is OrderBy.CREATED:
        return ["tasks_created"]
    states = STATES if where.states is None else where.states
    unfinished, ended = (any(state.status.is_terminal is is_ended for state in states) for is_ended in (False, True))
    return ["tasks_unfinished"] * unfinished + ["tasks_ended"] * ended


def plan(file: OpenFile, where: TaskFilter, order: TaskOrder, place: Position | None = None) -> list[str]:
    query = page_query(OWNER, where, order, place, 101, EPOCH, number_of)
    return [row[3] for row in file.far.execute(f"EXPLAIN QUERY PLAN {query.statement}", query.values).fetchall()]


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_a_page_is_found_in_the_order_of_one_index_and_nothing_is_sorted(
    file: OpenFile, where: TaskFilter, order: TaskOrder, place: Position | None
) -> None:
    steps = plan(file, where, order, place)
    *searches, rows, row = (step for step in steps if step not in MERGED)
    assert [step.replace("COVERING ", "").partition(" (owner=?")[0] for step in searches] == [
        f"SEARCH tasks USING INDEX {index}" for index in indexes_of(where, order)
    ]
    assert (rows, row) == ("SCAN listed", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)")


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_to_find_where_a_page_may_end_no_row_is_looked_up(file: OpenFile, order: TaskOrder) -> None:
    query = page_query(OWNER, FILTERS["states and all bounds"], order, None, 101, EPOCH, number_of)
    steps = file.far.execute(f"EXPLAIN {query.last}", query.values).fetchall()
    ((table,),) = file.far.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tasks'").fetchall()
    cursors = {step[2] for step in steps if step[1] == "OpenRead" and step[3] == table}
    assert not [step for step in steps if step[1] == "Column" and step[2] in cursors]


CREATED, UPDATED = (TaskOrder(by=by) for by in OrderBy)
LED: dict[str, tuple[TaskFilter, TaskOrder, Position | None, str]] = {
    "both bounds": (FILTERS["created within"], CREATED, None, " AND created>? AND created<?"),
    "a bound of the update before": (FILTERS["updated before"], CREATED, None, " AND created<?"),
    "a bound of the creation after": (FILTERS["created after"], UPDATED, None, " AND updated>?"),
    "a place": (TaskFilter(), UPDATED, PLACES["a place"], " AND (updated,id)<(?,?)"),
    "a place up": (TaskFilter(), TaskOrder(descending=False), PLACES["a place"], " AND (updated,id)>(?,?)"),
    "a place that is nearer": (
        FILTERS["created within"],
        CREATED,
        PLACES["a place"],
        " AND created>? AND (created,id)<(?,?)",
    ),
    "a place that is farther": (FILTERS["updated before"], UPDATED, Position(EPOCH + SECOND, "id"), " AND updated<?"),
}


@pytest.mark.parametrize(("where", "order", "place", "bounds"), LED.values(), ids=LED)
def test_the_nearest_bounds_of_its_time_lead_the_search(
    file: OpenFile, where: TaskFilter, order: TaskOrder, place: Position | None, bounds: str
) -> None:
    (step, *_) = [step for step in plan(file, where, order, place) if step.startswith("SEARCH")]
    assert step.replace(" ", "").endswith(f"owner=?{bounds})".replace(" ", ""))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_ids_are_looked_up_one_by_one_and_what_is_sorted_is_what_they_find(file: OpenFile, order: TaskOrder) -> None:
    steps = plan(file, TaskFilter(ids=frozenset({"a", "b"}), created_after=EPOCH), order, PLACES["a place"])
    searches = [step for step in steps if step.startswith("SEARCH tasks")]
    assert searches == ["SEARCH tasks USING INDEX sqlite_autoindex_tasks_1 (reference=?)"]
    assert not [step for step in steps if step.startswith("SCAN tasks")]


def test_a_filter_that_lets_nothing_through_reads_nothing(file: OpenFile) -> None:
    none: frozenset[Any] = frozenset()
    assert plan(file, TaskFilter(states=none), TaskOrder()) == ["SCAN CONSTANT ROW"]


# --- all other statements ---------------------------------------------------------------------------------------------


PAGE = page_query(OWNER, TaskFilter(), TaskOrder(), Position(EPOCH, "id"), 5, EPOCH, number_of)
STATEMENTS = {
    "unfinished": (sql.UNFINISHED, ()),
    "unmoved": (sql.UPDATE_UNCHANGED, (1, b"", 7, "id", 0, "working", 0, 0, "p", 0)),
    "swapped": (sql.FIND_SWAPPED, (7, "id", 0)),
    "head": (sql.LOAD_HEAD, (7, "id", b"", 0)),
    "whole": (sql.LOAD_WHOLE, (0, 0, 7, "id", b"", 0)),
    "revision": (sql.REVISION, (7, "id")),
    "owner": (sql.FIND_HEAD, (7, "id")),
    "referred": (sql.REFERRED, (7,)),
    "transition": (sql.ADD_TRANSITION, ("w", -5, 1)),
    "scan": (sql.SCAN, (0, 1)),
    "expired": (sql.EXPIRED, (0, 1)),
    "lapsed": (sql.LAPSED, {"now": 0, "created": 0, "seq": 0, "limit": 1}),
    "taken": (sql.TAKEN, (1,)),
    "params": (sql.LOAD_PARAMS, (1,)),
    "renew": (sql.RENEW, (0, "p", b"[]")),
    "page": (PAGE.statement, PAGE.values),
    "end of a page": (PAGE.last, PAGE.values),
    "session": (sql.FIND_SESSION, ("id", b"", 0)),
    "touch": (sql.TOUCH_SESSIONS, (0, b"[]")),
    "purge sessions": (sql.PURGE_SESSIONS, (0,)),
}


@pytest.mark.parametrize(("statement", "values"), STATEMENTS.values(), ids=STATEMENTS)
def test_no_statement_looks_through_a_whole_table(file: OpenFile, statement: str, values: Any) -> None:
    plan = [row[3] for row in file.writer.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()]
    assert any(step.startswith("SEARCH") for step in plan)
    assert not [step for step in plan if step.startswith(("SCAN tasks", "SCAN sessions", "SCAN params"))]


def test_a_scan_of_unfinished_tasks_reads_their_index_and_looks_up_the_rows_of_its_part(file: OpenFile) -> None:
    plan = [row[3] for row in file.far.execute(f"EXPLAIN QUERY PLAN {sql.SCAN_UNFINISHED}", (0, 1)).fetchall()]
    assert "SCAN tasks USING INDEX tasks_lapsing" in plan
    assert plan[-1] == "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"


def test_the_counts_at_the_start_sort_nothing_for_which_a_large_file_would_need_room(file: OpenFile) -> None:
    for statement in (sql.UNFINISHED, sql.KEPT):
        plan = [row[3] for row in file.writer.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()]
        assert not [step for step in plan if "TEMP B-TREE" in step]
