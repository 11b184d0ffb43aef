"""The log in a file that is large, moved, cut, deleted or on a full disk; and on standard output."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.sinks import OpenedSink, StreamSink
from unit.telemetry.auditlog.kept_files import Lines, Sinks, aside, beside
from unit.telemetry.auditlog.kept_logs import ScriptedOs

# --- large files --------------------------------------------------------------------------------------------------


def test_a_large_file_is_put_aside_under_the_number_of_its_first_line(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks(rotate_size=300)
    sink.open()
    sink.put(lines(3))
    assert sink.is_full
    sink.rotate(lines.head)
    assert not sink.is_full
    sink.put(lines(3))
    assert aside(path) == ["audit.jsonl.000000000001"]
    assert len(beside(path, ".000000000001").read_bytes().splitlines()) == 3
    assert len(path.read_bytes().splitlines()) == 3
    sink.rotate(lines.head)
    assert aside(path) == ["audit.jsonl.000000000001", "audit.jsonl.000000000004"]


def test_the_number_of_a_files_first_line_is_known_after_a_restart(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines(2))
    sink.rotate(lines.head)
    sink.put(lines(2))
    sink.close()
    again = sinks()
    again.open()
    again.rotate(lines.head)
    assert aside(path) == ["audit.jsonl.000000000001", "audit.jsonl.000000000003"]


def test_of_files_that_were_put_aside_the_newest_are_kept(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks(keep=2)
    sink.open()
    for number in range(4):
        sink.put(lines())
        sink.rotate(lines.head)
        newest = beside(path, f".{number + 1:012}")
        os.utime(newest, ns=(number, number))
    sink.put(lines())
    sink.rotate(lines.head)
    assert aside(path) == ["audit.jsonl.000000000004", "audit.jsonl.000000000005"]


def test_no_file_is_written_over(sinks: Sinks, lines: Lines, path: Path) -> None:
    beside(path, ".000000000001").write_bytes(b"somebody's")
    sink = sinks(keep=9)
    sink.open()
    sink.put(lines())
    sink.rotate(lines.head)
    assert aside(path) == ["audit.jsonl.000000000001", "audit.jsonl.000000000001-2"]
    assert beside(path, ".000000000001").read_bytes() == b"somebody's"


def test_what_ended_while_a_file_was_put_aside_is_no_gap(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines(3))
    sink.sync(lines.head)
    sink.rotate(lines.head)
    sink.close()
    again = sinks()
    assert again.open() == OpenedSink(lines.head)
    again.close()
    path.unlink()
    assert sinks().open() == OpenedSink(lines.head)


def test_a_file_that_cannot_be_put_aside_is_written_on(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines())
    beside(path, ".next").mkdir()
    with pytest.raises(OSError, match="directory"):
        sink.rotate(lines.head)
    sink.put(lines())
    assert len(path.read_bytes().splitlines()) == 2


def test_a_size_of_none_puts_nothing_aside_and_another_may_come(sinks: Sinks, lines: Lines) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines(9))
    assert not sink.is_full
    sink.reconfigure(rotate_size=10, keep=1, disk=True)
    assert sink.is_full


# --- files that are moved, cut and deleted ------------------------------------------------------------------------


def test_a_file_that_was_moved_away_is_written_until_it_is_opened_anew(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines())
    path.rename(beside(path, ".1"))
    sink.put(lines())
    assert sink.reopen(lines.head)
    sink.put(lines())
    assert len(beside(path, ".1").read_bytes().splitlines()) == 2
    assert len(path.read_bytes().splitlines()) == 1
    assert not sink.reopen(lines.head)


def test_a_file_that_was_deleted_is_noticed(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines(2))
    path.unlink()
    assert sink.sync(lines.head) == Gap("missing", head=lines.head)
    sink.put(lines())
    assert len(path.read_bytes().splitlines()) == 1
    assert sink.sync(lines.head) is None


def test_a_file_that_was_cut_is_noticed(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines(2))
    os.truncate(path, 10)
    assert sink.sync(lines.head) == Gap("truncated", head=lines.head)
    assert sink.sync(lines.head) is None


# --- disks --------------------------------------------------------------------------------------------------------


def test_what_a_full_disk_took_half_of_is_cut_off_and_put_again(
    sinks: Sinks, lines: Lines, path: Path, system: ScriptedOs
) -> None:
    sink = sinks()
    sink.open()
    sink.put(lines())
    before, payload = path.read_bytes(), lines(2)
    system.room = 20
    with pytest.raises(OSError, match="No space left"):
        sink.put(payload)
    assert path.read_bytes() == before
    system.room = None
    sink.put(payload)
    assert path.read_bytes() == before + payload


def test_what_could_not_be_cut_off_is_cut_off_before_the_next_line(
    sinks: Sinks, lines: Lines, path: Path, system: ScriptedOs
) -> None:
    sink = sinks()
    sink.open()
    payload = lines(2)
    system.room, system.fails_to_cut = 20, True
    for _ in range(2):
        with pytest.raises(OSError, match=r"No space left|Input/output"):
            sink.put(payload)
    assert len(path.read_bytes()) == 20
    system.room, system.fails_to_cut = None, False
    sink.put(payload)
    assert path.read_bytes() == payload


@pytest.mark.parametrize("is_cut", [True, False])
def test_half_a_line_does_not_stay_in_a_file_that_was_moved_away(
    sinks: Sinks, lines: Lines, path: Path, system: ScriptedOs, is_cut: bool
) -> None:
    sink = sinks()
    sink.open()
    system.room, system.fails_to_cut = 20, True
    with pytest.raises(OSError, match="No space left"):
        sink.put(lines())
    path.rename(beside(path, ".1"))
    system.room, system.fails_to_cut = None, not is_cut
    assert sink.reopen(EMPTY_CHAIN)
    assert len(beside(path, ".1").read_bytes()) == (0 if is_cut else 20)
    payload = lines()
    sink.put(payload)
    assert path.read_bytes() == payload


@pytest.mark.parametrize("disk", [True, False])
def test_the_disk_is_waited_for_where_that_is_wanted(
    sinks: Sinks, lines: Lines, path: Path, system: ScriptedOs, disk: bool
) -> None:
    sink = sinks(disk=disk)
    sink.open()
    sink.put(lines())
    sink.sync(lines.head)
    assert system.syncs == disk
    assert str(lines.head.seq).encode() in beside(path, ".head").read_bytes()


# --- standard output ----------------------------------------------------------------------------------------------


def test_a_stream_is_given_what_it_did_not_take_and_nothing_twice() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    sink, payload, found = StreamSink(writing), os.urandom(200_000), b""
    try:
        assert sink.open() == OpenedSink(EMPTY_CHAIN)
        with pytest.raises(BlockingIOError):
            sink.put(payload)
        is_put = False
        while not is_put:
            found += os.read(reading, 2**20)
            with suppress(BlockingIOError):
                sink.put(payload)
                is_put = True
        found += os.read(reading, 2**20)
        assert found == payload
        assert not sink.reopen(EMPTY_CHAIN)
        assert sink.sync(EMPTY_CHAIN) is None
        assert not sink.is_full
        sink.rotate(EMPTY_CHAIN)
        sink.close()
        os.write(writing, b"still open")
    finally:
        os.close(reading)
        os.close(writing)
