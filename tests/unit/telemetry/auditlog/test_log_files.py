"""The log as a gateway has it: how it is opened and closed, and files that grow, move and vanish."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE, bounded
from taskgate.telemetry.auditlog.chain import ChainHead
from taskgate.telemetry.auditlog.settings import AuditUnavailable, ChainSettings, SinkSettings
from taskgate.telemetry.auditlog.sinks import FileSink
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesDropped
from unit.telemetry.auditlog.logs_on_disk import (
    Heard,
    ScriptedOs,
    ToldLog,
    found_in,
    keep,
    many,
    names,
    opened,
    own_lines,
    settings,
    to_file,
    turns,
)

STARTED = "audit.chain_started"
CHECKPOINT = "audit.checkpoint"


# --- files that grow and move -------------------------------------------------------------------------------------


async def test_a_log_goes_on_in_other_files_as_one_chain(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path, rotate_size=4000, keep=9))) as log:
        for _ in range(6):
            before = log.sequences()["file",]
            for event in many(8):
                log.emit(event)
            await turns(lambda before=before: log.sequences()["file",] >= before + 8)
    aside = sorted(tmp_path.glob("audit.jsonl.0*"))
    assert len(aside) > 1
    assert found_in(*aside, tmp_path / "audit.jsonl") == []
    assert {names(file)[0] for file in aside} == {STARTED}


async def test_a_file_that_cannot_be_put_aside_grows_and_that_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = "an audit file cannot be rotated; it keeps growing"
    (tmp_path / "audit.jsonl.next").mkdir()
    async with opened(settings(to_file(tmp_path, rotate_size=2000))) as log:
        for _ in range(8):
            before = log.sequences()["file",]
            log.emit(*many(1))
            await turns(lambda before=before: log.sequences()["file",] == before + 1)
        assert caplog.messages.count(told) == 1
        (tmp_path / "audit.jsonl.next").rmdir()
        log.emit(*many(1))
    assert len(list(tmp_path.glob("audit.jsonl.0*"))) == 1
    assert found_in(*tmp_path.glob("audit.jsonl.0*"), tmp_path / "audit.jsonl") == []


async def test_a_file_that_was_moved_away_is_opened_anew_on_demand(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        log.emit(*many(1))
        await turns(lambda: log.sequences()["file",] == 2)
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
        log.reopen()
        await turns(lambda: log.sequences()["file",] == 3)
        # Not without being asked.
        (tmp_path / "audit.jsonl").rename(tmp_path / "moving")
        log.emit(*many(1))
        await turns(lambda: log.sequences()["file",] == 4)
        (tmp_path / "moving").rename(tmp_path / "audit.jsonl")
    assert names(tmp_path / "audit.jsonl.1") == [STARTED, "gateway.started"]
    assert names(tmp_path / "audit.jsonl") == [STARTED, "gateway.started", CHECKPOINT]
    assert found_in(tmp_path / "audit.jsonl.1", tmp_path / "audit.jsonl") == []


async def test_a_file_that_is_moved_while_it_is_opened_anew_is_opened_anew_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever moved it asked again before the first time was over."""
    looked, may_go = threading.Event(), threading.Event()

    def look(sink: FileSink, head: ChainHead) -> bool:
        moved_away = reopen(sink, head)
        looked.set()
        assert may_go.wait(PATIENCE)
        return moved_away

    reopen = FileSink.reopen
    monkeypatch.setattr(FileSink, "reopen", look)
    async with opened(settings(to_file(tmp_path))) as log:
        log.reopen()
        await turns(looked.is_set)
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
        log.reopen()
        may_go.set()
        await turns((tmp_path / "audit.jsonl").exists)
    assert found_in(tmp_path / "audit.jsonl.1", tmp_path / "audit.jsonl") == []


async def test_a_bad_path_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
        (tmp_path / "audit.jsonl").mkdir()
        log.reopen()
        await turns(lambda: "the audit log cannot be written; taskgate keeps retrying" in caplog.messages)
        (tmp_path / "audit.jsonl").rmdir()
        await turns(lambda: log.sequences()["file",] == 2)
    assert names(tmp_path / "audit.jsonl") == [STARTED]


@pytest.mark.parametrize("fsync", ["always", "interval"])
async def test_a_file_that_was_deleted_is_made_again_and_the_gap_told(tmp_path: Path, fsync: Any) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path, fsync=fsync)), heard) as log:
        (tmp_path / "audit.jsonl").unlink()
        log.emit(*many(1))
        await turns(lambda: log.sequences()["file",] == 4)
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["event"] for line in lines] == [STARTED, "audit.gap", CHECKPOINT]
    assert (lines[1]["data"]["cause"], lines[1]["data"]["seq"]) == ("missing", 2)
    assert AuditEventRecorded("audit.gap", "failure") in heard.emitted
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_what_a_killed_process_left_half_written_is_told(tmp_path: Path) -> None:
    wanted = settings(to_file(tmp_path))
    await keep(wanted, many(1))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"actor":nu')
    await keep(wanted, [])
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["event"] for line in lines[3:]] == [STARTED, "audit.gap"]
    assert (lines[4]["data"]["cause"], lines[4]["data"]["bytes"]) == ("torn", 11)
    assert found_in(tmp_path / "audit.jsonl") == []


# --- opening ------------------------------------------------------------------------------------------------------


async def test_a_log_that_cannot_be_kept_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    sinks = to_file(tmp_path), SinkSettings(name="lost", path=tmp_path / "no" / "audit.jsonl")
    log = ToldLog(settings(*sinks))
    async with bounded():
        with pytest.raises(AuditUnavailable, match=r"audit\.sinks \(lost\): cannot be written: No such file"):
            await log.open()
    await keep(settings(to_file(tmp_path)), many(1))


@pytest.mark.parametrize(
    ("was_named", "advice"),
    [
        (True, "give each an audit.sinks[].path of its own"),
        (False, "give each gateway an audit.sinks[].path or a data directory (TASKGATE_DATA_DIR) of its own"),
    ],
)
async def test_a_file_that_another_writes_is_refused_by_its_name_with_what_to_do(
    tmp_path: Path, was_named: bool, advice: str
) -> None:
    async with opened(settings(to_file(tmp_path))):
        again = ToldLog(settings(to_file(tmp_path, was_named=was_named)))
        with pytest.raises(AuditUnavailable) as refused:
            await again.open()
    taken = f"{tmp_path / 'audit.jsonl'} is in use by another process or another sink"
    assert str(refused.value) == f"audit.sinks (file): {taken}: {advice}"


async def test_a_signing_key_that_is_none_is_refused(tmp_path: Path) -> None:
    chain = ChainSettings(signing_key=b"no key")
    log = ToldLog(settings(to_file(tmp_path), chain=chain))
    with pytest.raises(AuditUnavailable, match=r"audit\.chain\.sign_key_file"):
        await log.open()


async def test_where_there_is_no_standard_output_nothing_is_written_to_what_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    out = SinkSettings(name="stdout", path=None)
    log = ToldLog(settings(to_file(tmp_path), out))
    async with bounded():
        with pytest.raises(AuditUnavailable, match="there is no standard output"):
            await log.open()


async def test_what_is_recorded_after_the_end_is_lost_and_counted(tmp_path: Path) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path)), heard) as log:
        log.emit(*many(1))
    log.emit(*many(1))
    assert heard.of(AuditLinesDropped) == [AuditLinesDropped("file", "closed", 1)]
    async with bounded():
        await log.close()


async def test_a_log_says_how_much_waits_and_how_far_it_is(tmp_path: Path, system: ScriptedOs) -> None:
    log = ToldLog(settings(to_file(tmp_path)))
    assert (log.depths(), log.sequences()) == ({}, {})
    async with opened(settings(to_file(tmp_path))) as log:
        assert (log.depths(), log.sequences()) == ({("file",): 0}, {("file",): 1})
        system.gate.clear()
        log.emit(*many(1))
        assert (log.depths(), log.sequences()) == ({("file",): 1}, {("file",): 1})
        system.gate.set()
