"""The log in a file: what is found of it when it is opened, and how its chain goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, digest_of
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.auditlog.sinks import FileSink, OpenedSink
from unit.telemetry.auditlog.kept_files import Lines, Sinks, beside, write_and_close


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
