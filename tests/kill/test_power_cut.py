"""What a power cut leaves, by its own means: without it, the kills under load would show less than they say."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from example.processes import Child, running

from helpers.power_cut import TracedDisk
from helpers.waiting import bounded

SEEDS = range(12)
FILES = """
import os, signal
folder = {folder!r}
def write(name, data, flags=0):
    file = os.open(f"{{folder}}/{{name}}", os.O_RDWR | os.O_CREAT | flags)
    os.write(file, data)
    return file
def sync_names():
    names = os.open(folder, os.O_RDONLY)
    os.fsync(names)
    os.close(names)
"""
INSERTS = """
import sqlite3
db = sqlite3.connect({folder!r} + "/t.db", isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = {synchronous}")
db.execute("PRAGMA wal_autocheckpoint = 20")
db.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b)")
while True:
    row = db.execute("INSERT INTO t (b) VALUES (zeroblob(600))").lastrowid
    with open({folder!r} + ".rows", "a") as rows:
        print(row, file=rows)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the program."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


async def died(disk: TracedDisk, program: str, *, after: int = 0) -> Child:
    """Have a program run until it dies, of a kill when it has written so many rows."""
    rows = disk.folder.with_name(f"{disk.folder.name}.rows")
    rows.unlink(missing_ok=True)
    command = [*disk.command(), sys.executable, "-c", program]
    async with running(command, log=disk.folder.with_name("log")) as child, bounded():
        while after and (not rows.exists() or rows.read_text().count("\n") < after):
            await asyncio.sleep(0.005)
        if after:
            child.process.kill()
        await child.process.wait()
    return child


async def left_by(folder: Path, program: str, seed: int) -> dict[str, bytes]:
    """The files after a power cut at the end of a program that starts with `old` there."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "old").write_bytes(b"old!")
    disk = TracedDisk(folder, folder.with_name("calls"))
    child = await died(disk, FILES.format(folder=str(folder)) + program + "\nos.kill(os.getpid(), signal.SIGKILL)")
    await disk.cut(child.process.pid, Random(seed))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_what_is_synced_stays_and_what_is_not_may_go(folder: Path) -> None:
    program = """
file = write("new", b"one")
os.fsync(file)
sync_names()
os.write(file, b"two")
os.pwrite(write("old", b"new!"), b"?", 3)
"""
    found = [await left_by(folder, program, seed) for seed in SEEDS]
    assert {files["new"] for files in found} >= {b"one", b"onetwo"}
    assert {files["old"] for files in found} >= {b"old!", b"new?"}
    assert all(files["new"].startswith(b"one") for files in found)


async def test_a_name_may_go_until_its_folder_is_synced(folder: Path) -> None:
    program = """
os.fsync(write("new", b"one"))
os.rename(f"{folder}/new", f"{folder}/renamed")
"""
    found = [await left_by(folder, program, seed) for seed in SEEDS]
    assert {frozenset(files) for files in found} >= {frozenset({"old"}), frozenset({"old", "renamed"})}
    assert {files["renamed"] for files in found if "renamed" in files} == {b"one"}
    found = [await left_by(folder, program + "sync_names()", seed) for seed in SEEDS]
    assert {frozenset(files) for files in found} == {frozenset({"old", "renamed"})}


async def test_of_a_large_write_some_sectors_may_stay(folder: Path) -> None:
    found = [await left_by(folder, 'write("old", b"x" * 4096)', seed) for seed in SEEDS]
    torn = {files["old"][:4096:512] for files in found} - {b"xxxxxxxx", b"o"}
    assert torn, "none was torn"


async def test_a_change_that_no_call_shows_is_noticed(folder: Path) -> None:
    disk = TracedDisk(folder, folder.with_name("calls"))
    child = await died(disk, FILES.format(folder=str(folder)) + 'write("new", b"one")')
    (folder / "new").write_bytes(b"two")
    with pytest.raises(AssertionError, match="new"):
        await disk.cut(child.process.pid, Random(1))


@pytest.mark.parametrize(("synchronous", "loses"), [("FULL", False), ("NORMAL", True)])
async def test_sqlite_keeps_what_it_committed_if_it_syncs_each_commit(
    folder: Path, synchronous: str, loses: bool
) -> None:
    disk, lost = TracedDisk(folder, folder.with_name("calls")), 0
    for seed in SEEDS:
        program = INSERTS.format(folder=str(folder), synchronous=synchronous)
        child = await died(disk, program, after=30)
        committed = int(folder.with_name("files.rows").read_text().split()[-1])
        await disk.cut(child.process.pid, Random(seed))
        with closing(sqlite3.connect(folder / "t.db")) as db:
            last = db.execute("SELECT max(a) FROM t").fetchone()[0] or 0
            assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
        lost += last < committed
    assert bool(lost) is loses, f"{lost} of {len(SEEDS)} cuts lost something"
