"""Requests and lines while a sink is slow, full or stuck."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from helpers.loop_pace import paced
from helpers.waiting import bounded
from taskgate.telemetry.auditlog import chain_writer, sinks
from taskgate.telemetry.auditlog.chain import ChainHead
from taskgate.telemetry.auditlog.chain_writer import ChainWriter
from taskgate.telemetry.auditlog.events import internal_event
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import ChainSettings, LineOptions, SinkSettings
from taskgate.telemetry.auditlog.sinks import StreamSink
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesDropped, TaskCreated
from taskgate.telemetry.request_context import in_request
from unit.telemetry.auditlog.audit_cases import ANSWERED, NOW, new_context, of_task
from unit.telemetry.auditlog.logs_on_disk import (
    KEY,
    Heard,
    ScriptedOs,
    ToldLog,
    fill,
    found_in,
    many,
    names,
    opened,
    own_lines,
    settings,
    switch,
    to_file,
    turns,
)

STARTED = "audit.chain_started"
CHECKPOINT = "audit.checkpoint"
FAILING = "the audit log cannot be written; taskgate keeps retrying"


# --- full queues --------------------------------------------------------------------------------------------------


async def test_requests_wait_from_three_quarters_on_until_there_is_room(tmp_path: Path, system: ScriptedOs) -> None:
    slow = timedelta(minutes=5)
    async with opened(settings(to_file(tmp_path), queue=100, block_timeout=slow)) as log:
        await fill(log, system, 74)
        assert (log.capacity.is_full, await log.capacity.room()) == (False, True)
        log.emit(*many(1))
        assert log.capacity.is_full
        waiting = [asyncio.create_task(log.capacity.room()) for _ in range(20)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        system.gate.set()
        async with bounded():
            assert await asyncio.gather(*waiting) == [True] * 20
    assert len(names(tmp_path / "audit.jsonl")) == 77


async def test_those_who_wait_are_let_in_as_there_is_room_and_not_all_at_once(
    tmp_path: Path, system: ScriptedOs
) -> None:
    """Each will have something to tell: all of them together would fill the queue again, and lines would be lost."""
    slow = timedelta(minutes=5)
    async with opened(settings(to_file(tmp_path), queue=400, block_timeout=slow)) as log:
        await fill(log, system, 300)
        waiting = [asyncio.create_task(log.capacity.room()) for _ in range(200)]
        await asyncio.sleep(0)
        # One write takes 256, after which 256 places are free, and then one that takes the rest.
        system.gate.set()
        await turns(lambda: not log.depths()["file",])
        assert 64 <= sum(task.done() for task in waiting) <= (256 + 300) // 4
        await switch(log, settings(to_file(tmp_path), queue=400, block_timeout=slow))
        async with bounded():
            assert await asyncio.gather(*waiting) == [True] * 200


async def test_who_leaves_while_waiting_is_not_waited_for(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path), queue=16, block_timeout=timedelta(minutes=5))) as log:
        await fill(log, system, 12)
        leaving, staying = (asyncio.create_task(log.capacity.room()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait((leaving,))
        system.gate.set()
        async with bounded():
            assert await staying


async def test_nobody_waits_for_a_sink_that_has_checkpoints_alone(tmp_path: Path, system: ScriptedOs) -> None:
    """Whoever read standard output may be gone for good."""
    often = ChainSettings(checkpoint_events=1)
    out = SinkSettings(name="other", path=tmp_path / "other", events=(CHECKPOINT,))
    broken = Path(out.path or "")
    heard = Heard()
    async with opened(settings(to_file(tmp_path), out, chain=often, queue=16, on_full="deny"), heard) as log:
        system.fails_for = os.stat(broken).st_ino
        while not heard.of(AuditLinesDropped):
            log.emit(*many(1))
            await turns(lambda: not log.depths()["file",])
        assert {each.sink for each in heard.of(AuditLinesDropped)} == {"other"}
        assert (log.capacity.is_full, await log.capacity.room()) == (False, True)
        system.fails_for = None
    assert found_in(tmp_path / "audit.jsonl") + found_in(broken) == []


async def test_a_request_waits_no_longer_than_the_operator_allows_and_goes_on(
    tmp_path: Path, system: ScriptedOs
) -> None:
    brief = timedelta(milliseconds=5)
    async with opened(settings(to_file(tmp_path), queue=16, block_timeout=brief)) as log:
        await fill(log, system, 12)
        async with bounded():
            assert await log.capacity.room()
        assert log.capacity.is_full
        system.gate.set()


async def test_what_is_under_way_has_a_quarter_and_beyond_it_lines_are_lost_counted_and_owned_up_to(
    tmp_path: Path, system: ScriptedOs, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path), queue=20), heard) as log:
        await fill(log, system, 23)
        assert log.depths() == {("file",): 20}
        assert heard.of(AuditLinesDropped) == [AuditLinesDropped("file", "queue_full", 1)] * 3
        assert caplog.messages.count("audit events are being dropped") == 1
        system.gate.set()
        await turns(lambda: not log.depths()["file",])
        log.emit(*many(1))
    lines = own_lines(tmp_path / "audit.jsonl")
    told = [STARTED, *["gateway.started"] * 20, "audit.gap", "gateway.started", CHECKPOINT]
    assert [line["event"] for line in lines] == told
    assert (lines[21]["data"]["cause"], lines[21]["data"]["lines"]) == ("queue_full", 3)
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_strict_sites_refuse_at_once(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path), queue=16, on_full="deny")) as log:
        assert await log.capacity.room()
        await fill(log, system, 12)
        assert (log.capacity.is_full, await log.capacity.room()) == (True, False)
        system.gate.set()
        await turns(lambda: not log.capacity.is_full)
        assert await log.capacity.room()


async def test_others_let_nobody_wait(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path), queue=16, on_full="drop")) as log:
        await fill(log, system, 30)
        assert not log.capacity.is_full
        system.gate.set()


# --- sinks that fail ----------------------------------------------------------------------------------------------


async def test_what_a_full_disk_does_not_take_is_kept_and_tried_again(
    tmp_path: Path, system: ScriptedOs, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path)), heard) as log:
        system.room = 700
        for event in many(5):
            log.emit(event)
        await turns(lambda: FAILING in caplog.messages)
        log.emit(*many(1))
        # So that it was tried more than once.
        await turns(lambda: not system.room)
        waiting = log.depths()["file",]
        [(sink, trouble)] = log.troubles().items()
        assert (sink, trouble.cause, trouble.waiting) == ("file", "No space left on device", waiting)
        system.room = None
        await turns(lambda: log.sequences()["file",] == 7)
        assert log.troubles() == {}
        assert "the audit log is written again" in caplog.messages
    assert caplog.messages.count(FAILING) == 1
    assert heard.of(AuditLinesDropped) == []
    assert names(tmp_path / "audit.jsonl") == [STARTED, *["gateway.started"] * 6, CHECKPOINT]
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_only_what_finds_no_room_is_lost_to_a_full_disk(
    tmp_path: Path, system: ScriptedOs, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path), queue=16), heard) as log:
        system.room = 0
        log.emit(*many(1))
        await turns(lambda: FAILING in caplog.messages)
        for event in many(20):
            log.emit(event)
        assert heard.of(AuditLinesDropped) == [AuditLinesDropped("file", "write_failed", 1)] * 5
        system.room = None
        await turns(lambda: log.sequences()["file",] == 18)
    assert own_lines(tmp_path / "audit.jsonl")[-2]["data"]["cause"] == "write_failed"
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_a_sink_that_is_stuck_holds_no_other_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    heard = Heard()
    try:
        out = SinkSettings(name="stdout", path=None)
        log = ToldLog(settings(to_file(tmp_path), out), heard, stdout=writing)
        async with bounded():
            await log.open()
        fill_pipe(writing)
        for event in many(5):
            log.emit(event)
        with paced(50):
            await log.close()
        # For its thread, which waits for the reader still.
        os.read(reading, 2**16)
    finally:
        os.close(reading)
        os.close(writing)
    assert names(tmp_path / "audit.jsonl") == [STARTED, *["gateway.started"] * 5, CHECKPOINT]
    assert found_in(tmp_path / "audit.jsonl") == []
    assert [(each.sink, each.reason) for each in heard.of(AuditLinesDropped)] == [("stdout", "closed")]
    assert "the audit log was closed with unwritten lines" in caplog.messages


def fill_pipe(fd: int) -> None:
    """Write until it takes nothing more."""
    os.set_blocking(fd, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(fd, b"x" * size)
    os.set_blocking(fd, True)


async def test_the_end_waits_for_a_disk_that_is_full_for_a_while(tmp_path: Path, system: ScriptedOs) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path)), heard) as log:
        system.room = 0
        for event in many(3):
            log.emit(event)
        with paced(20):
            await log.close()
    assert heard.of(AuditLinesDropped) == [AuditLinesDropped("file", "closed", 3)]
    system.room = None
    # The end does not wait for the thread of a sink that it gives up, and that thread holds the file until it is done.
    await turns(lambda: not any(thread.name == "taskgate-audit-file" for thread in threading.enumerate()))
    async with opened(settings(to_file(tmp_path)), heard):
        pass
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_a_mistake_of_ours_stops_no_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put = sinks.FileSink.put
    mistakes = [KeyError("ours")] * 2

    def fails(sink: sinks.FileSink, payload: bytes) -> None:
        if mistakes:
            raise mistakes.pop()
        put(sink, payload)

    async with opened(settings(to_file(tmp_path))) as log:
        monkeypatch.setattr(sinks.FileSink, "put", fails)
        for event in many(3):
            log.emit(event)
        await turns(lambda: log.sequences()["file",] == 4)
    assert caplog.messages.count(FAILING) == 1
    assert found_in(tmp_path / "audit.jsonl") == []


def test_events_are_let_go_of_before_the_sink_is_waited_for(tmp_path: Path) -> None:
    """An event may hold a large message, and a sink may be stuck."""

    class Stuck(StreamSink):
        def put(self, payload: bytes) -> None:
            assert events == []
            raise OSError

    events = [internal_event("gateway.started", NOW)]
    book = ChainWriter(
        "file", Stuck(), render=Renderer(LineOptions(), key=KEY, node="gw-1"), signer=None, to_disk=False
    )
    with pytest.raises(OSError):
        book.write(events, NOW)


@pytest.mark.parametrize("syncs", [0, 1])
def test_a_sync_tells_of_the_checkpoint_that_it_writes_late(syncs: int) -> None:
    """Also where the disk fails again, once the line is written: it is told by the first sync that is done."""
    writes = 1

    class Fails(StreamSink):
        def put(self, payload: bytes) -> None:
            nonlocal writes
            writes -= 1
            if writes >= 0:
                raise OSError
            super().put(payload)

        def sync(self, head: ChainHead) -> None:
            nonlocal syncs
            syncs -= 1
            if syncs >= 0:
                raise OSError

    with open(os.devnull, "wb") as nowhere:
        render = Renderer(LineOptions(), key=KEY, node="gw-1")
        book = ChainWriter("file", Fails(nowhere.fileno()), render=render, signer=None, to_disk=False)
        with pytest.raises(OSError):
            book.checkpoint(NOW)
        while syncs:
            with pytest.raises(OSError):
                book.sync(NOW)
        assert book.sync(NOW).internal == (CHECKPOINT,)
        assert book.sync(NOW).internal == ()


def test_the_thread_stands_aside_after_every_millisecond_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop waits for as long as the thread makes lines."""
    passed = count()
    naps: list[float] = []
    monkeypatch.setattr(chain_writer, "perf_counter", lambda: next(passed) * 0.4e-3)
    monkeypatch.setattr(chain_writer, "sleep", naps.append)
    with open(os.devnull, "wb") as nowhere:
        sink = StreamSink(nowhere.fileno())
        book = ChainWriter(
            "file", sink, render=Renderer(LineOptions(), key=KEY, node="gw-1"), signer=None, to_disk=False
        )
        book.write([internal_event("gateway.started", NOW)] * 12, NOW)
    assert len(naps) == 4
    assert set(naps) == {50e-6}


# --- refusals for want of room ---------------------------------------------------------------------------------------


REJECTED = "rpc.rejected"


def refuse(log: ToldLog, count: int, reason: str = "audit") -> None:
    """So many requests are refused, for that reason."""
    for _ in range(count):
        with in_request(new_context(None, refusal=reason, status=503)):
            log.emit(ANSWERED)


def told(heard: Heard) -> Iterator[str]:
    return (each.event for each in heard.of(AuditEventRecorded))


async def test_refusals_for_want_of_room_leave_the_last_quarter_to_what_is_under_way(
    tmp_path: Path, system: ScriptedOs
) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path), queue=20, on_full="deny"), heard) as log:
        await fill(log, system, 15)
        assert not await log.capacity.room()
        refuse(log, 100)
        assert log.depths() == {("file",): 15}
        log.emit(*many(1))
        refuse(log, 100)
        for event in many(4):
            log.emit(event)
        assert log.depths() == {("file",): 20}
        assert heard.of(AuditLinesDropped) == []
        assert REJECTED not in told(heard)
        system.gate.set()
        await turns(lambda: not log.capacity.is_full)
    assert names(tmp_path / "audit.jsonl").count("gateway.started") == 20
    assert REJECTED not in names(tmp_path / "audit.jsonl")
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_refusals_of_a_batch_that_would_take_the_last_quarter_have_no_line(
    tmp_path: Path, system: ScriptedOs
) -> None:
    async with opened(settings(to_file(tmp_path), queue=20, on_full="deny")) as log:
        system.gate.clear()
        for _ in range(7):
            # Two lines each: the task, and that its TTL was shortened.
            log.emit(TaskCreated(of_task(), "clamped_max"))
        refuse(log, 3)
        assert log.depths() == {("file",): 14}
        system.gate.set()


async def test_where_there_is_room_again_a_refusal_has_its_line(tmp_path: Path) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path), on_full="deny"), heard) as log:
        refuse(log, 1)
    [line] = [line for line in own_lines(tmp_path / "audit.jsonl") if line["event"] == REJECTED]
    assert (line["reason"], line["http"]["status"]) == ("audit", 503)
    assert REJECTED in told(heard)


async def test_a_sink_that_has_room_is_told_what_another_has_none_for(tmp_path: Path, system: ScriptedOs) -> None:
    refusals = SinkSettings(name="refusals", path=tmp_path / "refusals.jsonl", events=(REJECTED,))
    async with opened(settings(to_file(tmp_path), refusals, queue=20, on_full="deny")) as log:
        await fill(log, system, 15)
        refuse(log, 3)
        assert log.depths() == {("file",): 15, ("refusals",): 3}
        system.gate.set()


async def test_other_refusals_are_of_requests_that_were_let_in_and_have_the_reserve(
    tmp_path: Path, system: ScriptedOs
) -> None:
    async with opened(settings(to_file(tmp_path), queue=20, on_full="deny")) as log:
        await fill(log, system, 15)
        refuse(log, 2, "rate")
        assert log.depths() == {("file",): 17}
        system.gate.set()
