"""Lines of usual requests are made on the event loop, a few at a time; others on the sink's thread, in their order."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskgate.telemetry import request_context as request_contexts
from taskgate.telemetry.auditlog import chain_writer
from taskgate.telemetry.auditlog.chain_writer import MAX_LIGHT, ChainWriter
from taskgate.telemetry.auditlog.events import AuditEvent, internal_event
from taskgate.telemetry.auditlog.formats.line_templates import LineTemplates
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.auditlog.sink_queue import LOOP_BATCH, MAX_BATCH
from taskgate.telemetry.auditlog.sinks import StreamSink
from unit.telemetry.auditlog.audit_cases import ANSWERED, KEY, NOW, events_of, new_context
from unit.telemetry.auditlog.logs_on_disk import (
    ScriptedOs,
    ToldLog,
    found_in,
    moved,
    names,
    opened,
    settings,
    switch,
    to_file,
    turns,
)


def usual() -> AuditEvent:
    [event] = events_of(ANSWERED, new_context())
    return event


def unusual() -> AuditEvent:
    return internal_event("gateway.started", NOW)


def answer(log: ToldLog, count: int) -> None:
    """Have so many usual requests told."""
    for _ in range(count):
        with request_contexts.in_request(new_context()):
            log.emit(ANSWERED)


@contextmanager
def new_book(sink: type[StreamSink] = StreamSink) -> Iterator[ChainWriter]:
    with open(os.devnull, "wb") as nowhere:
        render = Renderer(LineOptions(), key=KEY, node="gw-1")
        yield ChainWriter("file", sink(nowhere.fileno()), render=render, signer=None, to_disk=False)


def test_lines_are_made_at_once_up_to_the_first_that_takes_longer() -> None:
    events = [usual(), usual(), unusual(), usual()]
    with new_book() as book:
        assert not book.add_templated(events, 10)
        assert [event.name for event in events] == ["gateway.started", "rpc.call"]
        assert book.write(events, NOW).head.seq == 4


def test_long_arguments_are_hashed_by_the_thread() -> None:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"%b"}}}'
    events: list[AuditEvent] = []
    for size in (10, 2000, MAX_LIGHT, 10):
        events += events_of(ANSWERED, new_context(call % (b"x" * size)))
    with new_book() as book:
        assert not book.add_templated(events, 10)
        assert [event.weight > MAX_LIGHT for event in events] == [True, False]
        assert book.write(events, NOW).head.seq == 4


def test_no_more_lines_are_made_at_once_than_wanted() -> None:
    events = [usual()] * 5
    with new_book() as book:
        assert book.add_templated(events, 2)
        assert book.add_templated(events, 2)
        assert not book.add_templated(events, 2)
        assert events == []


def test_nothing_is_made_at_once_for_a_file_that_is_to_be_put_aside_first() -> None:
    class Full(StreamSink):
        is_full = True

    events = [usual()]
    with new_book(Full) as book:
        assert not book.add_templated(events, 2)
    assert len(events) == 1


def test_what_cannot_be_told_in_full_is_left_to_whoever_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> bytes:
        raise ValueError

    monkeypatch.setattr(LineTemplates, "line", breaks)
    events = [usual()]
    with new_book() as book:
        assert not book.add_templated(events, 2)
    assert len(events) == 1


@pytest.mark.parametrize(("count", "at_once"), [(3 * LOOP_BATCH, LOOP_BATCH), (24 * LOOP_BATCH, MAX_BATCH)])
async def test_the_thread_makes_no_usual_line_and_the_event_loop_few_at_a_time_and_more_when_many_wait(
    count: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []
    turn = 0
    line = LineTemplates.line

    def noted(moulds: LineTemplates, event: AuditEvent, seq: int, prev: bytes) -> bytes | None:
        made.append((threading.get_ident(), turn))
        return line(moulds, event, seq, prev)

    monkeypatch.setattr(LineTemplates, "line", noted)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with opened(settings(to_file(tmp_path))) as log:
        made.clear()
        counting = asyncio.create_task(count_turns())
        answer(log, count)
        await turns(lambda: log.sequences()["file",] == count + 1)
        counting.cancel()
    of_turns = [each for thread, each in made if thread == threading.get_ident()]
    assert len(of_turns) == count
    assert max(of_turns.count(each) for each in set(of_turns)) == at_once
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_events_of_both_kinds_stay_in_their_order(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        for event in moved("started", "stopping", "stopped"):
            answer(log, 2)
            log.emit(event)
        answer(log, 1)
        await turns(lambda: log.sequences()["file",] == 11)
    calls = ["rpc.call"] * 2
    told = [*calls, "gateway.started", *calls, "gateway.stopping", *calls, "gateway.stopped", "rpc.call"]
    assert names(tmp_path / "audit.jsonl")[1:11] == told
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_what_the_operator_changes_waits_until_the_thread_is_done(tmp_path: Path, system: ScriptedOs) -> None:
    """Lines that were made in one way are not signed in another."""
    wanted = settings(to_file(tmp_path))
    async with opened(wanted) as log:
        adjusted: list[bool] = []
        system.gate.clear()
        answer(log, 1)
        await turns(lambda: system.is_held_up)
        adjust = chain_writer.ChainWriter.reconfigure

        def noted(book: ChainWriter, name: str, **how: Any) -> None:
            adjusted.append(system.gate.is_set())
            adjust(book, name, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chain_writer.ChainWriter, "reconfigure", noted)
            await switch(log, settings(to_file(tmp_path, fsync="always")))
            answer(log, LOOP_BATCH)
            await asyncio.sleep(0)
            assert adjusted == []
            system.gate.set()
            await turns(lambda: adjusted)
        assert adjusted == [True]
    assert found_in(tmp_path / "audit.jsonl") == []
