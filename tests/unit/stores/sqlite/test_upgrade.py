"""The upgrade of a file: nothing in it is lost, and a copy leads back.

`layout_3.db.gz` and `layout_4.db.gz` are files of the last commits before the layout changed. Their tasks are in every
state: running, queued with large parameters, asking, ended with a small result, a large one, a tool's error and an
error, expired, and another caller's. Two have an idempotency key. One session is open.
"""

import gzip
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.commit_before import package_of
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, in_text, new_lease, new_record
from taskgate.domain.events import CallSucceeded
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import Faulted, FaultReason, Succeeded, TaskStatus
from taskgate.errors import TooManyTasks
from taskgate.stores.references import plain_reference
from taskgate.stores.sqlite.file import LAYOUT, SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore
from unit.stores.sqlite.test_file import OPENER, opened, pragma, refusal

COMMITS = {3: "61e2f3c1", 4: "109abf31"}
"""The last one of each layout."""
NOW = EPOCH + timedelta(minutes=10)
IDS = ["asking", "large", "tool error", "error", "text", "queued", "running"]
LARGE = '{"content":[{"type":"text","text":"' + "x" * 70_000 + '"}]}'


@pytest.fixture(scope="module", params=COMMITS, ids=[f"layout {each}" for each in COMMITS])
def layout(request: pytest.FixtureRequest) -> int:
    """The layout of the file."""
    found: int = request.param
    return found


@pytest.fixture
def options(tmp_path: Path, layout: int) -> SqliteOptions:
    """Of a file that the commit before left."""
    path = tmp_path / "taskgate.db"
    path.write_bytes(gzip.decompress(Path(__file__).with_name(f"layout_{layout}.db.gz").read_bytes()))
    return SqliteOptions(path=path, synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30)


@pytest.fixture
def copy(options: SqliteOptions, layout: int) -> Path:
    return options.path.with_name(f"taskgate.db.layout{layout}")


@pytest.fixture
async def store(options: SqliteOptions) -> AsyncIterator[SqliteStore]:
    """The store in the upgraded file."""
    made = SqliteStore(open_file(options))
    yield made
    await made.close()


def content(path: Path) -> dict[str, object]:
    """All rows of the file, but for what every start changes."""
    with closing(sqlite3.connect(path)) as connection:
        found: dict[str, object] = {"layout": pragma(connection, "user_version")}
        for table in ("tasks", "params", "outcomes", "sessions"):
            rows = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in rows.description]
            wanted = [name for name in names if name not in ("holder", "lease_until")]
            found[table] = [
                {name: row[names.index(name)] for name in wanted if row[names.index(name)] is not None}
                for row in rows.fetchall()
            ]
        return found


# --- what is in it ----------------------------------------------------------------------------------------------------


ENDS = {
    "text": (TaskStatus.COMPLETED, Succeeded(result='{"content":[{"type":"text","text":"done"}]}', tool_error=False)),
    "tool error": (TaskStatus.COMPLETED, Succeeded(result='{"content":[],"isError":true}', tool_error=True)),
    "error": (
        TaskStatus.FAILED,
        Faulted(error='{"code":-32001,"message":"no paper"}', reason=FaultReason.REFUSED),
    ),
    "large": (TaskStatus.COMPLETED, Succeeded(result=LARGE, tool_error=False)),
    "running": (TaskStatus.WORKING, None),
    "queued": (TaskStatus.WORKING, None),
    "asking": (TaskStatus.INPUT_REQUIRED, None),
}


@pytest.mark.parametrize("id", ENDS)
async def test_a_task_has_its_status_parameters_and_outcome(store: SqliteStore, id: str) -> None:
    found = in_text(await store.load(OWNER, id, now=NOW, bodies=True))
    assert found is not None
    assert (found.status, found.outcome) == ENDS[id]
    assert found.dispatched is (id != "queued")
    assert str(found.call.params).startswith('{"name":"build_report","arguments":{')
    assert (len(str(found.call.params)) > 3000) is (id == "queued")


async def test_a_task_of_another_caller_stays_theirs(store: SqliteStore) -> None:
    assert await store.load(OWNER, "foreign", now=NOW) is None
    owner = await store.owner_of("foreign")
    assert owner is not None
    assert await store.load(owner, "foreign", now=NOW) is not None


@pytest.mark.parametrize("by", OrderBy)
async def test_the_tasks_are_listed_in_either_order_and_by_state(store: SqliteStore, by: OrderBy) -> None:
    async def listed(where: TaskFilter) -> list[str]:
        order = TaskOrder(by=by)
        page = await store.page(OWNER, where=where, order=order, after=None, limit=100, now=NOW)
        assert page.next is None
        return [task.id for task in page.tasks]

    assert await listed(TaskFilter()) == IDS
    assert await listed(TaskFilter(states=frozenset({TaskState(TaskStatus.WORKING)}))) == ["queued", "running"]
    assert await listed(TaskFilter(states=frozenset({TaskState(TaskStatus.COMPLETED, True)}))) == ["tool error"]


async def test_unfinished_tasks_are_taken_over_those_to_be_sent_with_their_parameters(store: SqliteStore) -> None:
    taken = await store.lapsed(holder="next", until=NOW + timedelta(days=1), now=NOW, limit=9)
    assert [task.id for task in taken] == ["running", "foreign", "queued", "asking"]
    assert [task.call.params is not None for task in taken] == [False, True, True, False]


async def test_a_task_ends_and_is_removed_like_any_other(store: SqliteStore, options: SqliteOptions) -> None:
    running = await store.load(OWNER, "running", now=NOW)
    assert running is not None
    ended = after(running, CallSucceeded(result="{}", tool_error=False))
    assert await store.swap(ended, expected=running.revision)
    found = await store.load(OWNER, "running", now=NOW, bodies=True)
    assert found is not None
    assert found.outcome == Succeeded(result="{}", tool_error=False)
    for count in (1, 8):
        now = NOW if count == 1 else NOW + timedelta(days=2)
        assert len(await store.purge(now=now, limit=100)) == count
    await store.close()
    left = content(options.path)
    assert [left[table] for table in ("tasks", "params", "outcomes")] == [[], [], []]


async def test_keys_caps_counts_and_sessions_are_as_before(store: SqliteStore) -> None:
    assert await store.repeated(OWNER, "key-of-running", now=NOW) == "running"
    assert await store.repeated(OWNER, "key-of-text", now=NOW) == "text"
    for scope, most in ((CapScope.CONTEXT, 3), (CapScope.GLOBAL, 4)):
        with pytest.raises(TooManyTasks):
            await store.insert(new_record(created_at=NOW), caps=(Cap(scope=scope, limit=most),))
    counts = (await store.census()).tasks
    assert [counts[status] for status in TaskStatus] == [4, 1, 3, 1, 0]
    assert await store.find(OWNER, "session", now=NOW) is not None


async def test_a_task_has_a_reference_and_the_transitions_that_are_known(store: SqliteStore) -> None:
    for id, (status, _) in ENDS.items():
        assert await store.referred(plain_reference(id)) == id
        task = await store.load(OWNER, id, now=NOW)
        assert task is not None
        first, *rest = await store.transitions(id)
        assert first == (TaskStatus.WORKING, task.created_at)
        assert rest == ([] if status is TaskStatus.WORKING else [(status, task.updated_at)])


async def test_a_scan_finds_the_tasks_of_all_callers(store: SqliteStore) -> None:
    async def found(*, unfinished: bool) -> set[str]:
        part = await store.scan(unfinished=unfinished, wants=lambda _: True, after=None, limit=100, now=NOW)
        return {head.id for head in part.heads}

    assert await found(unfinished=True) == {"asking", "queued", "running", "foreign"}
    assert await found(unfinished=False) == {*ENDS, "foreign"}


# --- the copy ---------------------------------------------------------------------------------------------------------


def test_a_private_copy_of_the_file_as_it_was_is_left_beside_it(
    options: SqliteOptions, copy: Path, layout: int
) -> None:
    before, mask = content(options.path), os.umask(0)
    try:
        with opened(options) as file:
            assert pragma(file.writer, "user_version") == LAYOUT
    finally:
        os.umask(mask)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert content(copy) == before
    assert before["layout"] == layout
    assert sorted(part.name for part in copy.parent.iterdir()) == ["taskgate.db", copy.name, "taskgate.db.lock"]


def left_by_a_killed_process(path: Path, id: str) -> None:
    """Write the id of the session into the log alone, as a process does that is killed soon."""
    draft = path.with_name("draft.db")
    shutil.copy2(path, draft)
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE sessions SET id = ?", (id,))
        connection.commit()
        shutil.copy2(f"{draft}-wal", f"{path}-wal")
    assert Path(f"{path}-wal").stat().st_size > 0


def session_in(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        ((id,),) = connection.execute("SELECT id FROM sessions").fetchall()
        return str(id)


def test_the_copy_has_what_a_killed_process_left_in_the_log_alone(options: SqliteOptions, copy: Path) -> None:
    left_by_a_killed_process(options.path, "in the log")
    with opened(options):
        pass
    assert session_in(copy) == "in the log"


@pytest.mark.parametrize("is_there", [False, True], ids=["none", "one"])
def test_the_copy_has_what_another_program_that_reads_the_file_keeps_in_the_log(
    options: SqliteOptions, copy: Path, is_there: bool
) -> None:
    """Without the log, the file is as a copy may be that is there."""
    with closing(sqlite3.connect(options.path)) as reader, closing(sqlite3.connect(options.path)) as writer:
        reader.execute("BEGIN")
        assert reader.execute("SELECT id FROM sessions").fetchall() == [("session",)]
        writer.execute("UPDATE sessions SET id = 'in the log'")
        writer.commit()
        if is_there:
            shutil.copy2(options.path, copy)
        with opened(options):
            pass
    assert session_in(copy) == "in the log"


def test_the_log_names_the_copy(options: SqliteOptions, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "taskgate.stores")
    with opened(options):
        pass
    assert [vars(record)["copy"] for record in caplog.records if "upgraded" in record.getMessage()] == [str(copy)]
    assert copy.exists()


def test_a_new_file_and_one_of_this_layout_leave_no_copy(options: SqliteOptions) -> None:
    options.path.unlink()
    for _ in range(2):
        with opened(options):
            pass
    assert not list(options.path.parent.glob("*.layout*"))


def test_a_disk_without_room_for_the_copy_is_told_of_and_nothing_is_changed(
    options: SqliteOptions, copy: Path, layout: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(f_bavail=options.path.stat().st_size // 1000, f_frsize=1000)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    assert refusal(options) == (
        "The store's file needs 1 MiB of free disk space for its upgrade, a third of it for a copy; it was not changed"
    )
    assert content(options.path)["layout"] == layout
    assert not copy.exists()
    monkeypatch.undo()
    with opened(options):
        assert copy.exists()


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_copy_of_an_earlier_upgrade_is_replaced_if_the_file_was_used_since(
    options: SqliteOptions, copy: Path, is_killed: bool
) -> None:
    """The operator went back to the version before, and upgrades again."""
    with opened(options):
        pass
    shutil.copy2(copy, options.path)
    if is_killed:
        left_by_a_killed_process(options.path, "later")
    else:
        with closing(sqlite3.connect(options.path)) as connection, connection:
            connection.execute("UPDATE sessions SET id = 'later'")
    with opened(options):
        pass
    assert session_in(copy) == "later"


DIES = """
import os, shutil, sys
from datetime import timedelta
from pathlib import Path
from taskgate.stores.sqlite.file import SqliteOptions, open_file

def upgrade(folder, instant):
    # Dies before the call to the system, or to SQLite, that has that number.
    calls = 0
    def count(frame, event, argument):
        nonlocal calls
        if event == "c_call" and (argument.__module__ in ("posix", "fcntl") or "sqlite3" in repr(argument.__self__)):
            calls += 1
            if calls == instant:
                os._exit(9)
    options = SqliteOptions(
        path=folder / "taskgate.db", synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30)
    sys.setprofile(count)
    open_file(options)
    sys.setprofile(None)
    os._exit(0)

source, status, instant = Path(sys.argv[1]), 9, 0
while status:
    instant += 1
    folder = source.with_name(f"died-{instant}")
    folder.mkdir()
    shutil.copy2(source, folder)
    if not (child := os.fork()):
        upgrade(folder, instant)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
print(instant)
"""


@pytest.mark.program
@pytest.mark.thorough
def test_a_process_that_dies_at_any_instant_of_the_upgrade_leaves_what_the_next_one_completes(
    options: SqliteOptions, copy: Path
) -> None:
    before = content(options.path)
    shutil.copy2(options.path, options.path.with_name("model.db"))
    with opened(replace(options, path=options.path.with_name("model.db"))):
        pass
    upgraded = content(options.path.with_name("model.db"))
    done = subprocess.run(
        [sys.executable, "-c", DIES, options.path], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    copies, made_once = set(), False
    for instant in range(1, int(done.stdout)):
        folder = options.path.with_name(f"died-{instant}")
        left = replace(options, path=folder / "taskgate.db")
        made = folder / copy.name
        first = made.stat().st_ino if made.exists() else None
        # What cannot be read is never under the name of the copy.
        assert first is None or content(made) == before
        is_upgraded = content(left.path)["layout"] == LAYOUT
        copies.add((first is not None, is_upgraded))
        with opened(left):
            pass
        assert content(left.path) == upgraded
        assert content(made) == before
        if first is not None:
            assert made.stat().st_ino == first
            made_once = True
        assert not made.with_name(f"{made.name}.part").exists()
    assert made_once
    assert copies == {(False, False), (True, False), (True, True)}


class WithoutTemporaryFiles(sqlite3.Connection):
    """A connection that fails as SQLite does where no folder for temporary files can be written."""

    def executescript(self, script: str) -> sqlite3.Cursor:
        if pragma(self, "temp_store") == 0:
            super().executescript("BEGIN IMMEDIATE; DROP INDEX tasks_created;")
            raise sqlite3.OperationalError("disk I/O error")
        return super().executescript(script)


def test_a_file_is_upgraded_where_no_temporary_file_can_be_made_to_sort_its_indexes(
    options: SqliteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a container may be read-only."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=WithoutTemporaryFiles))
    with opened(options) as file:
        assert pragma(file.writer, "user_version") == LAYOUT


# --- the way back -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def version_before(layout: int, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return package_of(COMMITS[layout], tmp_path_factory.mktemp("before"))


def said_by_the_version_before(version_before: Mapping[str, str], path: Path) -> str:
    command = [sys.executable, "-c", OPENER, str(path)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | version_before,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.program
async def test_the_version_before_refuses_an_upgraded_file_and_goes_on_with_the_copy(
    options: SqliteOptions, copy: Path, version_before: Mapping[str, str]
) -> None:
    before = content(options.path)
    store = SqliteStore(open_file(options))
    await store.insert(new_record(created_at=NOW, lease=new_lease()), caps=())
    await store.close()
    newer = "The store's file was written by a newer version of the gateway"
    assert said_by_the_version_before(version_before, options.path) == newer
    assert content(options.path)["layout"] == LAYOUT

    # As docs/operate/upgrade.md says it.
    for part in ("taskgate.db", "taskgate.db-wal", "taskgate.db-shm"):
        options.path.with_name(part).unlink(missing_ok=True)
    copy.rename(options.path)
    assert said_by_the_version_before(version_before, options.path) == "open"
    assert content(options.path) == before
