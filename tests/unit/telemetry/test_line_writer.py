"""Lines go out whole and in their order, and to add one never waits for their reader."""

import fcntl
import json
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from taskgate.telemetry import logs
from taskgate.telemetry.line_writer import MOST_WAITING, LineWriter

_PIPE = 1024 * 1024
"""More bytes than a pipe holds."""
_own = logging.getLogger("taskgate.test")


@dataclass
class Pipe:
    """A pipe that is read only by `read`; `dropped` is what its writer reports."""

    reads: int
    writes: int
    dropped: list[int] = field(default_factory=list)

    def read(self, until: Callable[[bytes], bool]) -> bytes:
        """What comes until it is enough. Fails if nothing comes for a while."""
        got = b""
        while not until(got):
            ready, _, _ = select.select([self.reads], [], [], 10)
            assert ready, f"nothing comes behind {got[-100:]!r}"
            got += os.read(self.reads, 65536)
        return got

    def close_reader(self) -> None:
        if self.reads >= 0:
            os.close(self.reads)
            self.reads = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    yield made
    for each in (made.reads, made.writes):
        if each >= 0:
            os.close(each)


@pytest.fixture
def writer(pipe: Pipe) -> Iterator[LineWriter]:
    def report(count: int) -> None:
        pipe.dropped.append(count)
        made.add(b"dropped %d\n" % count)

    made = LineWriter(pipe.writes, report)
    yield made
    # A thread that still writes to the pipe ends with its reader.
    pipe.close_reader()
    made.close()


def test_lines_are_written_in_their_order(pipe: Pipe, writer: LineWriter) -> None:
    lines = [b"%d\n" % number for number in range(5000)]
    for line in lines:
        writer.add(line)
    assert writer.flush()
    assert pipe.read(lambda got: got.endswith(lines[-1])) == b"".join(lines)


@pytest.mark.parametrize("size", [100, select.PIPE_BUF, select.PIPE_BUF + 1, 200_000])
def test_no_line_is_cut_or_missing_where_the_reader_is_slow(pipe: Pipe, writer: LineWriter, size: int) -> None:
    lines = [b"%d" % number + b"x" * size + b"\n" for number in range(5)]
    for line in lines:
        writer.add(line)
    assert pipe.read(lambda got: got.count(b"\n") == len(lines)) == b"".join(lines)


def test_lines_that_nobody_reads_are_dropped_whole_and_counted(pipe: Pipe, writer: LineWriter) -> None:
    line, sent = b"x" * 999, 2 * MOST_WAITING // 1000
    for number in range(sent):
        writer.add(b"%06d" % number + line + b"\n")
    got = pipe.read(lambda got: got.endswith(b"\n") and b"dropped" in got).splitlines()
    *written, last = got
    assert written == [b"%06d" % number + line for number in range(len(written))]
    assert MOST_WAITING - 2000 < len(written) * 1006 < MOST_WAITING + _PIPE
    assert last == b"dropped %d" % (sent - len(written))
    writer.add(b"next\n")
    assert pipe.read(lambda got: got.endswith(b"\n")) == b"next\n"


def test_a_line_that_is_larger_than_what_may_wait_is_dropped(pipe: Pipe, writer: LineWriter) -> None:
    writer.add(b"x" * MOST_WAITING + b"\n")
    assert pipe.read(lambda got: got.endswith(b"\n")) == b"dropped 1\n"


def test_to_wait_for_lines_that_nobody_reads_has_an_end(writer: LineWriter) -> None:
    writer.add(b"x" * (MOST_WAITING - 1) + b"\n")
    assert not writer.flush(0.01)
    writer.close(0.01)


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: Pipe, writer: LineWriter) -> None:
    fcntl.fcntl(pipe.writes, fcntl.F_SETFL, fcntl.fcntl(pipe.writes, fcntl.F_GETFL) | os.O_NONBLOCK)
    line = b"x" * 9999 + b"\n"
    for _ in range(100):
        writer.add(line)
    assert pipe.read(lambda got: len(got) == 100 * len(line)) == 100 * line


def test_lines_whose_reader_is_gone_are_lost(pipe: Pipe, writer: LineWriter) -> None:
    pipe.close_reader()
    writer.add(b"lost\n")
    assert writer.flush()
    assert pipe.dropped == []


@pytest.fixture
def logged(pipe: Pipe) -> Iterator[Pipe]:
    """A pipe that has the log, as JSON from `info` up."""
    with os.fdopen(pipe.writes, "w") as stream:
        logs.configure("info", "json", stream)
        yield pipe
        pipe.close_reader()
        logs.unconfigure()
    pipe.writes = -1


def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_counts_what_is_missing(logged: Pipe) -> None:
    for number in range(6000):
        _own.info("happened", extra={"number": number, "more": "x" * 1000})
    got = logged.read(lambda got: got.endswith(b"\n") and b"dropped" in got)
    *lines, last = map(json.loads, got.splitlines())
    assert [line["number"] for line in lines] == list(range(len(lines)))
    assert (last["level"], last["event"], last["lines"]) == (
        "warning", "log lines were dropped, because standard error was not read", 6000 - len(lines),
    )  # fmt: skip


def test_a_reload_waits_for_no_reader_and_keeps_the_order(logged: Pipe) -> None:
    handlers, threads = logging.getLogger().handlers[:], threading.active_count()
    for number in range(500):
        _own.info("happened", extra={"number": number, "more": "x" * 1000})
    with suppress(AttributeError):
        logs.configure("error", "json", handlers[0].stream)  # type: ignore[attr-defined]
    _own.error("happened", extra={"number": 500})
    assert (logging.getLogger().handlers, threading.active_count()) == (handlers, threads)
    lines = logged.read(lambda got: got.count(b"\n") >= 501).splitlines()
    assert [json.loads(line)["number"] for line in lines] == list(range(501))


_PROGRAM = """
import logging, sys
from taskgate.telemetry import logs
logs.configure("info", "json", sys.stderr)
for number in range(int(sys.argv[1])):
    logging.getLogger("taskgate.test").info("happened", extra={"more": "x" * 1000})
print("done", flush=True)
"""


@pytest.mark.program
def test_a_program_ends_also_if_nobody_reads_its_log() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "6000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"done\n"
        assert program.wait(30) == 0
        assert program.stderr is not None
        assert program.stderr.read().endswith(b"}\n")


@pytest.mark.program
def test_a_program_that_ends_loses_no_line_that_is_read() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, "3000"], capture_output=True, timeout=60, check=True)
    assert ended.stderr.count(b"\n") == 3000
