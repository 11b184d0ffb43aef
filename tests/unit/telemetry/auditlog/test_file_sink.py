"""The log in a file: opened again, grown, moved, cut, deleted, or on a full disk; and on standard output."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, digest_of
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.settings import AuditUnavailable, ForeignAuditFile
from taskgate.telemetry.auditlog.sinks import FileSink, OpenedSink, StreamSink
from unit.telemetry.auditlog.logs_on_disk import Lines, ScriptedOs, Sinks, aside, beside, write_and_close


def test_a_new_file_has_no_past_and_is_for_its_owner_and_group_alone(sinks: Sinks, path: Path) -> None:
    assert sinks().open() == OpenedSink(EMPTY_CHAIN)
    assert path.stat().st_mode & 0o137 == 0
    assert beside(path, ".head").stat().st_mode & 0o177 == 0


def test_a_chain_goes_on_where_it_ended(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(3), lines.head)
    again = sinks()
    assert again.open() == OpenedSink(lines.head)
    before = path.read_bytes()
    again.put(lines())
    assert path.read_bytes().startswith(before)


def test_a_very_long_last_line_is_found_as_well(sinks: Sinks, lines: Lines) -> None:
    text = lines() + lines.chain.add({"v": 1, "event": "rpc.call", "data": {"a": "x" * 200_000}})
    write_and_close(sinks(), text, lines.head)
    assert sinks().open() == OpenedSink(lines.head)


def test_lines_that_came_after_the_head_was_kept_are_no_gap(sinks: Sinks, lines: Lines) -> None:
    """A process that is killed keeps no head: the file itself is ahead."""
    sink = sinks()
    sink.open()
    sink.put(lines(2))
    sink.sync(lines.head)
    sink.put(lines(2))
    sink.close()
    assert sinks().open() == OpenedSink(lines.head)


def test_half_a_line_is_cut_off_and_kept_beside(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(2), lines.head)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"half')
    assert sinks().open() == OpenedSink(lines.head, (Gap("torn", bytes=6),))
    assert path.read_bytes() == whole
    assert beside(path, ".torn").read_bytes() == b'{"half\n'


def test_a_file_of_half_a_line_begins_anew(sinks: Sinks, path: Path) -> None:
    path.write_bytes(b'{"half')
    assert sinks().open() == OpenedSink(EMPTY_CHAIN, (Gap("torn", bytes=6),))
    assert path.read_bytes() == b""


def test_a_file_that_lost_lines_is_told_and_numbers_never_go_back(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(5), lines.head)
    kept = path.read_bytes().splitlines(keepends=True)[:3]
    path.write_bytes(b"".join(kept))
    gap = Gap("truncated", lines=2, head=lines.head)
    assert sinks().open() == OpenedSink(ChainHead(5, digest_of(kept[-1][:-1])), (gap,))


def test_a_last_line_that_is_another_is_told(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(5), lines.head)
    text = path.read_bytes().replace(b'"data":{}', b'"data":[]')
    path.write_bytes(text)
    digest = digest_of(text.splitlines()[-1])
    assert sinks().open() == OpenedSink(ChainHead(5, digest), (Gap("replaced", head=lines.head),))


def test_a_file_that_is_gone_is_told_and_the_chain_goes_on(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(5), lines.head)
    path.unlink()
    assert sinks().open() == OpenedSink(lines.head, (Gap("missing", head=lines.head),))


def test_what_is_no_log_is_put_aside_whole(sinks: Sinks, lines: Lines, path: Path) -> None:
    write_and_close(sinks(), lines(2), lines.head)
    path.write_bytes(path.read_bytes() + b"somebody else's\n")
    found = sinks().open()
    assert found == OpenedSink(lines.head, (Gap("unreadable"), Gap("missing", head=lines.head)))
    assert beside(path, ".unreadable").read_bytes().endswith(b"somebody else's\n")
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "text",
    [b"notes\n", b"notes", b"a: 1\nb: 2", b"{\n}\n", b'{"a": 1}', b'{"a": 1}\n', b"\x00" * 9, b"SQLite format 3\x00"],
)
def test_a_file_of_another_program_is_refused_and_untouched(sinks: Sinks, path: Path, text: bytes) -> None:
    path.write_bytes(text)
    with pytest.raises(AuditUnavailable, match="is no audit log of taskgate"):
        sinks().open()
    assert path.read_bytes() == text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damaged", [b"\x00" * 4096, b"half of a line\n", b"half of a line\n{}\n"])
def test_a_log_that_was_damaged_is_known_by_the_head_beside(
    sinks: Sinks, lines: Lines, path: Path, damaged: bytes
) -> None:
    write_and_close(sinks(), lines(2), lines.head)
    path.write_bytes(damaged)
    found = sinks().open()
    assert found.head == lines.head
    assert Gap("missing", head=lines.head) in found.gaps
    kept = [each.read_bytes() for each in path.parent.iterdir() if each.suffix in (".torn", ".unreadable")]
    assert [damaged.rstrip(b"\n") in each for each in kept] == [True]


def test_a_file_of_another_program_beside_is_refused_and_untouched(sinks: Sinks, path: Path) -> None:
    beside(path, ".head").write_bytes(b"x" * 200)
    with pytest.raises(AuditUnavailable, match="is no file of an audit log"):
        sinks().open()
    assert beside(path, ".head").read_bytes() == b"x" * 200
    assert not path.exists()


def test_a_log_whose_first_line_lost_its_end_is_own(sinks: Sinks, lines: Lines, path: Path) -> None:
    path.write_bytes(lines()[:-1])
    assert sinks().open().gaps == (Gap("torn", bytes=path.with_name(path.name + ".torn").stat().st_size - 1),)


def test_a_file_of_another_program_is_not_used_when_a_log_is_opened_anew(
    sinks: Sinks, lines: Lines, path: Path
) -> None:
    sink = sinks()
    sink.open()
    path.rename(beside(path, ".old"))
    path.write_bytes(b"notes\n")
    with pytest.raises(ForeignAuditFile, match="is no audit log"):
        sink.reopen(lines.head)
    sink.put(lines())
    assert path.read_bytes() == b"notes\n"
    assert beside(path, ".old").read_bytes() != b""


@pytest.mark.parametrize(
    "kept",
    [b"", b"no json", b"7", b"{}", b'{"seq":"1","digest":"a"}', b'{"seq":0,"digest":"%s"}' % (b"a" * 64),
     b'{"seq":1,"digest":7}', b'{"seq":1,"digest":"no"}'],
)  # fmt: skip
def test_a_head_that_cannot_be_read_is_none(sinks: Sinks, lines: Lines, path: Path, kept: bytes) -> None:
    write_and_close(sinks(), lines(2), lines.head)
    beside(path, ".head").write_bytes(kept)
    assert sinks().open() == OpenedSink(lines.head)


def test_no_head_is_kept_before_there_is_a_line(sinks: Sinks, path: Path) -> None:
    sink = sinks()
    sink.open()
    assert sink.sync(EMPTY_CHAIN) is None
    assert beside(path, ".head").read_bytes() == b""


def test_two_do_not_write_one_file(sinks: Sinks) -> None:
    sinks().open()
    with pytest.raises(AuditUnavailable, match="another process"):
        sinks().open()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_nor_do_they_under_two_names(sinks: Sinks, path: Path, link: Callable[[Path, Path], None]) -> None:
    sinks().open()
    other = path.with_name("other.jsonl")
    link(path, other)
    with pytest.raises(AuditUnavailable, match=r"other\.jsonl is in use by another process"):
        FileSink(other, rotate_size=None, keep=1, disk=True).open()


def test_a_file_that_was_put_aside_is_anybodys(sinks: Sinks, lines: Lines, path: Path) -> None:
    sink = sinks(rotate_size=1)
    sink.open()
    sink.put(lines())
    sink.rotate(lines.head)
    other = FileSink(beside(path, ".000000000001"), rotate_size=None, keep=1, disk=True)
    other.open()
    other.close()


def test_a_sink_that_is_closed_may_be_opened_by_another(sinks: Sinks) -> None:
    first = sinks()
    first.open()
    first.close()
    first.close()
    sinks().open()


def test_what_is_no_file_is_refused(sinks: Sinks, path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(AuditUnavailable, match="regular file"):
        sinks().open()
    path.unlink()
    sinks().open()


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileSink(tmp_path / "logs" / "audit.jsonl", rotate_size=None, keep=1, disk=True).open()


# --- files that grow, move and vanish --------------------------------------------------------------------------------


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
    sink.reconfigure(rotate_size=10, keep=1, disk=True, least_age=timedelta())
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
