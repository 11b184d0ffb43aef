"""The opening of the file: private, durable as configured, for one process, without loss."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.records import new_record
from requirements import covers
from taskgate.errors import StoreUnavailable
from taskgate.stores.codec import pack_head
from taskgate.stores.sqlite.file import LAYOUT, OpenFile, SqliteOptions, open_file

OPENER = """
import sys
from datetime import timedelta
from pathlib import Path
from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.file import SqliteOptions, open_file
try:
    opened = open_file(SqliteOptions(
        path=Path(sys.argv[1]), synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30))
except StoreUnavailable as refusal:
    print(refusal, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def options(tmp_path: Path) -> SqliteOptions:
    return SqliteOptions(
        path=tmp_path / "taskgate.db", synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30
    )


@contextmanager
def opened(options: SqliteOptions) -> Iterator[OpenFile]:
    file = open_file(options)
    try:
        yield file
    finally:
        for connection in (file.near, file.far, file.writer):
            connection.close()
        file.unlock()


def refusal(options: SqliteOptions) -> str:
    with pytest.raises(StoreUnavailable) as refused:
        open_file(options)
    text = str(refused.value)
    assert str(options.path.parent) not in text
    assert options.path.name not in text
    return text


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@covers("T25")
def test_every_file_is_private(options: SqliteOptions) -> None:
    path = options.path.parent / "new" / "deep" / "taskgate.db"
    before = os.umask(0)
    try:
        with opened(replace(options, path=path)) as file:
            file.writer.execute("UPDATE tasks SET revision = 1")
            modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes.keys() == {f"taskgate.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock")}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_the_file_is_as_durable_as_asked(options: SqliteOptions, synchronous: Any, level: int) -> None:
    with opened(replace(options, synchronous=synchronous)) as file:
        assert pragma(file.writer, "synchronous") == level
        assert pragma(file.writer, "journal_mode") == "wal"


def test_the_file_has_a_largest_size(options: SqliteOptions) -> None:
    with opened(replace(options, max_size=1 << 20)) as file:
        assert pragma(file.writer, "max_page_count") * pragma(file.writer, "page_size") == 1 << 20


def test_the_readers_only_read(options: SqliteOptions) -> None:
    with opened(options) as file:
        for reader in (file.near, file.far):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.execute("DELETE FROM tasks")


def test_a_link_leads_to_the_file_and_its_lock(options: SqliteOptions, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(options.path)
    with opened(options):
        assert "in use" in refusal(replace(options, path=link))


@pytest.mark.program
def test_a_hard_link_is_the_same_file(options: SqliteOptions, tmp_path: Path) -> None:
    """In this process and in another one, whichever name came first; and what is in it stays whole."""
    with opened(options) as file:
        link = replace(options, path=tmp_path / "elsewhere" / "link.db")
        link.path.parent.mkdir()
        link.path.hardlink_to(options.path)
        assert "in use" in refusal(link)
        with another_process(link) as process:
            held = f"The store's file is in use by another process, pid {os.getpid()}"
            assert said_by(process) == held
        file.writer.execute("INSERT INTO params VALUES (1, 'x')")
    with opened(link) as file:
        assert "in use" in refusal(options)
        assert file.near.execute("SELECT task FROM params").fetchall() == [(1,)]


@pytest.mark.program
def test_a_file_that_is_mounted_under_another_name_is_the_same_file(options: SqliteOptions, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.touch()
    with opened(options):
        if subprocess.run(["mount", "--bind", options.path, other], capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        try:
            assert "in use" in refusal(replace(options, path=other))
        finally:
            subprocess.run(["umount", "--lazy", other], check=True)


# --- one process at a time -------------------------------------------------------------------------------------------


@contextmanager
def another_process(options: SqliteOptions) -> Iterator["subprocess.Popen[str]"]:
    """A process that opens the file, says how that went, and holds it until the end of the block."""
    command = [sys.executable, "-c", OPENER, str(options.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.program
def test_a_file_that_another_process_holds_is_refused_until_that_is_killed(options: SqliteOptions) -> None:
    with another_process(options) as process:
        assert said_by(process) == "open"
        assert refusal(options) == f"The store's file is in use by another process, pid {process.pid}"
    with opened(options) as file:
        assert pragma(file.writer, "user_version") == LAYOUT


@pytest.mark.program
def test_another_process_is_refused_and_harms_nobody(options: SqliteOptions) -> None:
    with opened(options) as file:
        with another_process(options) as process:
            held = f"The store's file is in use by another process, pid {os.getpid()}"
            assert said_by(process) == held
        file.writer.execute("INSERT INTO params VALUES (1, 'x')")
        assert file.near.execute("SELECT task FROM params").fetchall() == [(1,)]


def test_a_process_that_we_start_does_not_inherit_the_lock(options: SqliteOptions) -> None:
    with opened(options) as file:
        assert not any(os.get_inheritable(lock) for lock in file.locks)


# --- what is refused -------------------------------------------------------------------------------------------------


def ours(path: Path) -> None:
    """A file of ours with some pages, folded into one."""
    made = SqliteOptions(path=path, synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30)
    with opened(made) as file:
        file.writer.executemany("INSERT INTO params VALUES (?, ?)", [(n, b"x" * 5000) for n in range(40)])
    assert not path.with_name(f"{path.name}-wal").exists()


def noise(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def torn(path: Path) -> None:
    ours(path)
    os.truncate(path, path.stat().st_size // 2)


def scribbled(path: Path) -> None:
    ours(path)
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 9] = b"\xa5" * 4096 * 8
    path.write_bytes(content)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tasks (id)")


def newer(path: Path) -> None:
    ours(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {LAYOUT + 1}")
        connection.execute("PRAGMA journal_mode = DELETE")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (noise, "damaged or not a SQLite file"),
        (torn, "damaged"),
        (scribbled, "damaged"),
        (foreign, "belongs to another program"),
        (newer, "newer version"),
        (folder, "cannot be opened"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_file_that_is_not_sound_and_ours_is_refused_and_left_as_it_is(
    options: SqliteOptions, make: Callable[[Path], None], reason: str
) -> None:
    make(options.path)
    before = options.path.read_bytes() if options.path.is_file() else None
    for _ in range(2):
        # The second time tells that the first let go of the lock.
        assert reason in refusal(options)
    assert (options.path.read_bytes() if options.path.is_file() else None) == before


def test_a_folder_that_cannot_be_made_is_refused(options: SqliteOptions, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be opened" in refusal(replace(options, path=tmp_path / "file" / "taskgate.db"))


def test_an_empty_file_is_laid_out(options: SqliteOptions) -> None:
    options.path.touch()
    with opened(options) as file:
        assert pragma(file.writer, "user_version") == LAYOUT


# What a file of an earlier layout lacks, or has in another way.
FOURTH_LAYOUT = """
    DROP INDEX tasks_created; DROP INDEX tasks_ended; DROP INDEX tasks_unfinished; DROP INDEX tasks_expiring;
    DROP INDEX tasks_lapsing; DROP INDEX tasks_repeated;
    ALTER TABLE tasks DROP COLUMN transitions;
    ALTER TABLE tasks RENAME TO later;
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner BLOB NOT NULL, context BLOB NOT NULL, tenant BLOB,
        tool BLOB, upstream BLOB, repeat BLOB, created INTEGER NOT NULL, updated INTEGER NOT NULL,
        expires INTEGER NOT NULL, unfinished INTEGER NOT NULL, status TEXT NOT NULL, tool_error INTEGER NOT NULL,
        revision INTEGER NOT NULL, holder TEXT, lease_until INTEGER NOT NULL, body_size INTEGER NOT NULL,
        head BLOB NOT NULL, params BLOB, kind TEXT, outcome BLOB
    );
    INSERT INTO tasks
    SELECT seq, id, owner, context, tenant, tool, upstream, repeat, created, updated, expires, unfinished, status,
           tool_error, revision, holder, lease_until, body_size, head, params, kind, outcome FROM later;
    DROP TABLE later;
    CREATE INDEX tasks_lapsing ON tasks (lease_until, created, expires) WHERE unfinished = 1;
    CREATE INDEX tasks_repeated ON tasks (repeat) WHERE repeat IS NOT NULL;
    CREATE INDEX tasks_created ON tasks (owner, created, id);
    CREATE INDEX tasks_ended ON tasks (owner, updated, id) WHERE unfinished = 0;
    CREATE INDEX tasks_unfinished ON tasks (owner, updated, id) WHERE unfinished = 1;
    CREATE INDEX tasks_expiring ON tasks (expires);
    PRAGMA user_version = 4;
"""
THIRD_LAYOUT = (
    FOURTH_LAYOUT
    + """
    INSERT INTO params SELECT seq, params FROM tasks WHERE params IS NOT NULL;
    INSERT INTO outcomes SELECT seq, kind, outcome FROM tasks WHERE kind IS NOT NULL;
    ALTER TABLE tasks DROP COLUMN params; ALTER TABLE tasks DROP COLUMN kind; ALTER TABLE tasks DROP COLUMN outcome;
    DROP INDEX tasks_created; DROP INDEX tasks_ended; DROP INDEX tasks_unfinished; DROP INDEX tasks_expiring;
    CREATE INDEX tasks_created ON tasks (owner, status, tool_error, created, id, updated);
    CREATE INDEX tasks_updated ON tasks (owner, status, tool_error, updated, id, created);
    CREATE INDEX tasks_expiring ON tasks (expires, status);
    PRAGMA user_version = 3;
"""
)
SECOND_LAYOUT = (
    THIRD_LAYOUT
    + """
    DROP INDEX tasks_repeated;
    ALTER TABLE tasks DROP COLUMN tenant; ALTER TABLE tasks DROP COLUMN tool;
    ALTER TABLE tasks DROP COLUMN upstream; ALTER TABLE tasks DROP COLUMN repeat;
    PRAGMA user_version = 2;
"""
)
FIRST_LAYOUT = (
    SECOND_LAYOUT
    + """
    DROP INDEX tasks_created; DROP INDEX tasks_updated;
    CREATE INDEX tasks_created ON tasks (owner, created); CREATE INDEX tasks_updated ON tasks (owner, updated);
    PRAGMA user_version = 1;
"""
)
EARLIER = {"first": FIRST_LAYOUT, "second": SECOND_LAYOUT, "third": THIRD_LAYOUT, "fourth": FOURTH_LAYOUT}


def indexes(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'").fetchall())


def columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(tasks)").fetchall()}


@pytest.mark.parametrize("layout", EARLIER.values(), ids=EARLIER)
def test_a_file_of_an_earlier_layout_gets_what_this_one_has_and_keeps_what_is_in_it(
    options: SqliteOptions, layout: str
) -> None:
    ours(options.path)
    with opened(options) as file:
        expected = indexes(file.far), columns(file.far)
    with closing(sqlite3.connect(options.path)) as connection:
        connection.executescript(layout)
        assert (indexes(connection), columns(connection)) != expected
        assert columns(connection) < expected[1]
    with opened(options) as file:
        assert pragma(file.writer, "user_version") == LAYOUT
        assert (indexes(file.far), columns(file.far)) == expected
        assert file.near.execute("SELECT count(*) FROM params").fetchone() == (40,)


@pytest.mark.thorough
@pytest.mark.parametrize("layout", EARLIER.values(), ids=EARLIER)
def test_a_file_of_an_earlier_layout_that_is_as_large_as_it_may_be_is_upgraded_all_the_same(
    options: SqliteOptions, layout: str
) -> None:
    """For a while it has its tasks twice. Later the limit holds again."""
    ours(options.path)
    nothing = ", ".join(["NULL"] * 4)
    late = ", ".join(["NULL"] * 6)
    values = f"NULL, ?, ?, x'', x'', {nothing}, 0, 0, 0, 0, 'working', 0, 0, NULL, 0, 0, ?, {late}"
    row = f"INSERT INTO tasks VALUES ({values})"
    head = pack_head(new_record())
    with opened(options) as file:
        file.writer.executemany(row, [(f"{place:0200}", place, head) for place in range(2000)])
        file.writer.execute("UPDATE tasks SET unfinished = 1")
    with closing(sqlite3.connect(options.path)) as connection:
        connection.executescript(layout)
        connection.execute("VACUUM")
    with opened(replace(options, max_size=options.path.stat().st_size)) as file:
        assert pragma(file.writer, "user_version") == LAYOUT
        assert file.near.execute("SELECT count(*) FROM tasks").fetchone() == (2000,)
        assert pragma(file.writer, "max_page_count") == pragma(file.writer, "page_count")


def test_a_file_that_was_closed_opens_again_as_it_was(options: SqliteOptions) -> None:
    ours(options.path)
    with opened(options) as file:
        assert file.near.execute("SELECT count(*) FROM params").fetchone() == (40,)
