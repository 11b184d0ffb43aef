"""A check of a configuration in the moment of a start: the start waits for it, and is not refused."""

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, current_thread, main_thread

import pytest

from taskgate.config import load
from taskgate.explain.findings import Findings
from taskgate.explain.report import check_configuration
from taskgate.stores.sqlite.file import SqliteOptions, open_file
from taskgate.telemetry.auditlog.sinks import FileSink

CONFIGURATION = """\
version: 1
auth: {mode: none}
server: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
upstreams: {reports: {path: /reports/mcp, url: "http://127.0.0.1:9/mcp"}}
store: {sqlite: {path: taskgate.db}}
audit: {sinks: [{name: file, type: file, path: audit.jsonl}]}
"""
SECONDS = 10


def open_store(path: Path) -> Callable[[], None]:
    """Open the store as a start does."""
    busy = timedelta(seconds=1)
    return open_file(SqliteOptions(path=path, synchronous="FULL", busy_timeout=busy, max_size=1 << 30)).close


def open_log(path: Path) -> Callable[[], None]:
    """Open the audit log as a start does."""
    sink = FileSink(path, rotate_size=None, keep=1, disk=False)
    sink.open()
    return sink.close


OPENERS = {"taskgate.db": open_store, "audit.jsonl": open_log}


def checked(folder: Path) -> Findings:
    """The findings of a check of the configuration in a folder."""
    file = folder / "taskgate.yaml"
    file.write_text(CONFIGURATION)
    environ = {"TASKGATE_DATA_DIR": str(folder / "data")}
    return check_configuration(load(file, {}), environ, is_running=False, now=datetime.now(UTC))


@pytest.mark.parametrize("name", OPENERS)
def test_a_start_waits_for_a_check_that_looks_at_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    path, really = tmp_path / name, fcntl.flock
    OPENERS[name](path)()
    is_held, is_tried = Event(), Event()

    def flock(descriptor: int, operation: int) -> None:
        is_start = current_thread() is main_thread()
        try:
            really(descriptor, operation)
        except BlockingIOError:
            if is_start:
                is_tried.set()
            raise
        if not is_start and not is_held.is_set() and os.path.samestat(os.fstat(descriptor), path.stat()):
            is_held.set()
            assert is_tried.wait(SECONDS)

    monkeypatch.setattr(fcntl, "flock", flock)
    with ThreadPoolExecutor(1) as thread:
        check = thread.submit(checked, tmp_path)
        assert is_held.wait(SECONDS)
        close = OPENERS[name](path)
        found = check.result(SECONDS)
    close()
    assert is_tried.is_set()
    assert found.errors == []


def test_two_checks_do_not_take_each_other_for_a_gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, opener in OPENERS.items():
        opener(tmp_path / name)()
    really, others = fcntl.flock, list[Findings]()

    def flock(descriptor: int, operation: int) -> None:
        really(descriptor, operation)
        if not others and not operation & fcntl.LOCK_UN:
            monkeypatch.setattr(fcntl, "flock", really)
            others.append(checked(tmp_path))
            monkeypatch.setattr(fcntl, "flock", flock)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert [checked(tmp_path).errors, *(each.errors for each in others)] == [[], []]


@pytest.mark.parametrize("name", OPENERS)
def test_a_check_finds_the_file_that_a_gateway_holds(tmp_path: Path, name: str) -> None:
    close = OPENERS[name](tmp_path / name)
    try:
        [error] = checked(tmp_path).errors
    finally:
        close()
    assert "in use by another process" in error.message
