"""The log as a gateway has it: what goes where, what shares a write, and checkpoints."""

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from taskgate.telemetry import events as kinds
from taskgate.telemetry.auditlog import backpressure
from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.formats.native import NativeRenderer
from taskgate.telemetry.auditlog.settings import ChainSettings, SinkSettings
from taskgate.telemetry.auditlog.sink_queue import MAX_BATCH
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesWritten
from taskgate.telemetry.request_context import in_request
from unit.telemetry.auditlog.audit_cases import Ended, message_text, new_context
from unit.telemetry.auditlog.logs_on_disk import (
    Heard,
    ScriptedOs,
    found_in,
    keep,
    many,
    moved,
    names,
    opened,
    own_lines,
    settings,
    to_file,
    turns,
    verified,
)

STARTED = "audit.chain_started"
CHECKPOINT = "audit.checkpoint"


def stdout(folder: Path) -> int:
    return os.open(folder / "stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def test_what_is_recorded_is_a_line_each_in_order(tmp_path: Path) -> None:
    await keep(settings(to_file(tmp_path)), moved("started", "stopping", "stopped"))
    told = [STARTED, "gateway.started", "gateway.stopping", "gateway.stopped", CHECKPOINT]
    assert names(tmp_path / "audit.jsonl") == told
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_a_chain_goes_on_after_a_restart_and_says_where(tmp_path: Path) -> None:
    wanted = settings(to_file(tmp_path))
    await keep(wanted, many(2))
    last = own_lines(tmp_path / "audit.jsonl")[-1]
    await keep(wanted, many(2))
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["seq"] for line in lines] == list(range(1, 9))
    restarted = lines[4]
    assert (restarted["event"], restarted["data"]["seq"]) == (STARTED, last["seq"])
    assert restarted["data"]["head"] == restarted["prev"]
    assert lines[0]["data"] | {"seq": 0, "head": None, "sink": "file"} == lines[0]["data"]
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_what_comes_together_shares_a_write_and_a_wait_for_the_disk(tmp_path: Path, system: ScriptedOs) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path, fsync="always")), heard) as log:
        before = len(system.writes), system.syncs
        for event in many(900):
            log.emit(event)
        await turns(lambda: log.sequences()["file",] == 901)
        assert len(system.writes) - before[0] == system.syncs - before[1] == 4
    assert [each.sequence for each in heard.of(AuditLinesWritten)] == [257, 513, 769, 901]
    assert found_in(tmp_path / "audit.jsonl") == []


async def test_what_comes_while_a_write_runs_goes_together_next(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        system.gate.clear()
        log.emit(*many(1))
        await turns(lambda: log.depths()["file",] == 1)
        for event in many(50):
            await asyncio.sleep(0)
            log.emit(event)
        assert log.depths() == {("file",): 51}
        count = len(system.writes)
        system.gate.set()
        await turns(lambda: not log.depths()["file",])
        assert len(system.writes) - count <= 2
    assert found_in(tmp_path / "audit.jsonl") == []


@pytest.mark.parametrize(("fsync", "fewest", "most"), [("always", 2, 9), ("interval", 1, 2), ("never", 0, 0)])
async def test_the_disk_is_waited_for_as_the_operator_wants(
    tmp_path: Path, system: ScriptedOs, fsync: Any, fewest: int, most: int
) -> None:
    await keep(settings(to_file(tmp_path, fsync=fsync)), many(3))
    assert fewest <= system.syncs <= most


async def test_the_disk_is_waited_for_after_a_second_where_that_is_enough(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        log.emit(*many(1))
        await turns(lambda: log.sequences()["file",] == 2)
        assert not system.syncs
        await turns(lambda: system.syncs)


async def test_each_sink_has_what_it_is_to_have_and_its_own_chain(tmp_path: Path) -> None:
    heard = Heard()
    sinks = [
        SinkSettings(name="all", path=tmp_path / "all"),
        SinkSettings(name="ends", path=tmp_path / "ends", events=("gateway.stop*",)),
        SinkSettings(name="none", path=tmp_path / "none", events=("task.*",)),
    ]
    await keep(settings(*sinks, events=("gateway.*", "task.*")), moved("started", "stopped"), heard=heard)
    assert names(tmp_path / "all") == [STARTED, "gateway.started", "gateway.stopped", CHECKPOINT, CHECKPOINT]
    assert names(tmp_path / "ends") == [STARTED, "gateway.stopped", CHECKPOINT]
    assert names(tmp_path / "none") == [STARTED]
    for name in ("all", "ends", "none"):
        assert found_in(tmp_path / name) == []
    told = AuditEventRecorded("gateway.started", "success"), AuditEventRecorded("gateway.stopped", "success")
    assert [event for event in heard.of(AuditEventRecorded) if event.event.startswith("gateway")] == list(told)


async def test_a_sink_that_cannot_take_a_batch_keeps_no_other_from_it_and_the_failure_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extend = backpressure.EventBuffer.extend

    def extend_or_fail(buffer: backpressure.EventBuffer, events: list[AuditEvent]) -> None:
        if any(event.name == "gateway.stopped" for event in events):
            extend(buffer, events)
        else:
            raise ValueError("broken")

    monkeypatch.setattr(backpressure.EventBuffer, "extend", extend_or_fail)
    sinks = [
        SinkSettings(name="some", path=tmp_path / "some", events=("gateway.started",)),
        SinkSettings(name="all", path=tmp_path / "all"),
    ]
    await keep(settings(*sinks), moved("started", "stopped"))
    assert "gateway.started" not in names(tmp_path / "some")
    assert names(tmp_path / "all")[1:3] == ["gateway.started", "gateway.stopped"]
    assert "events were not recorded in the audit log" in caplog.messages


async def test_what_no_sink_is_to_have_is_not_counted(tmp_path: Path) -> None:
    heard = Heard()
    await keep(settings(to_file(tmp_path), events=("task.*",)), many(3), heard=heard)
    assert {event.event for event in heard.of(AuditEventRecorded)} == {STARTED}
    assert names(tmp_path / "audit.jsonl") == [STARTED]


async def test_an_event_that_is_for_metrics_alone_is_passed_over(tmp_path: Path) -> None:
    await keep(settings(to_file(tmp_path)), [kinds.StoreUsed("load", 0.1, True)])
    assert names(tmp_path / "audit.jsonl") == [STARTED]


async def test_without_sinks_nothing_is_kept(tmp_path: Path) -> None:
    heard = Heard()
    async with opened(settings(), heard) as log:
        log.emit(*many(1))
        assert (log.capacity.is_full, await log.capacity.room()) == (False, True)
        log.reopen()
    assert heard.emitted == []


async def test_what_is_recorded_has_whose_request_it_is(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        with in_request(new_context()):
            log.emit(Ended(0.1))
    line = orjson.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[1])
    assert (line["event"], line["actor"]["sub"]) == ("rpc.call", "user-17")


# --- checkpoints --------------------------------------------------------------------------------------------------


async def test_there_is_a_checkpoint_after_so_many_lines(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path), chain=ChainSettings(checkpoint_events=3))) as log:
        for _ in range(2):
            before = log.sequences()["file",]
            for event in many(3):
                log.emit(event)
            await turns(lambda before=before: log.sequences()["file",] == before + 4)
    told = names(tmp_path / "audit.jsonl")
    assert told == [STARTED, *(["gateway.started"] * 3 + [CHECKPOINT]) * 2]


async def test_there_are_checkpoints_while_more_events_wait_than_a_batch_has(tmp_path: Path) -> None:
    chain = ChainSettings(checkpoint_events=100)
    async with opened(settings(to_file(tmp_path), chain=chain)) as log:
        for event in many(2000):
            log.emit(event)
        await turns(lambda: log.depths()["file",] == 0)
    told = names(tmp_path / "audit.jsonl")
    between = [at for at, name in enumerate(told) if name == CHECKPOINT]
    # One is due after the batch in which the hundredth line was, so before the second next one.
    assert max(later - at for at, later in zip([0, *between], between, strict=False)) <= 2 * MAX_BATCH + 2


async def test_there_is_a_checkpoint_after_some_time_and_only_where_something_happened(tmp_path: Path) -> None:
    soon = ChainSettings(checkpoint_interval=timedelta(milliseconds=20))
    other = SinkSettings(name="other", path=tmp_path / "other")
    async with opened(settings(to_file(tmp_path), other, chain=soon)) as log:
        for event in moved("started", "stopped"):
            log.emit(event)
            # Of each sink: the line, its own checkpoint, that of the other.
            before = log.sequences()["file",]
            await turns(lambda before=before: set(log.sequences().values()) == {before + 3})
    for name in ("audit.jsonl", "other"):
        assert names(tmp_path / name).count(CHECKPOINT) == 4
        assert found_in(tmp_path / name) == []


async def test_checkpoints_go_to_other_sinks_and_vouch_for_every_line(tmp_path: Path) -> None:
    fd = stdout(tmp_path)
    try:
        out = SinkSettings(name="stdout", path=None, events=(CHECKPOINT,))
        await keep(settings(to_file(tmp_path), out), many(5), stdout=fd)
    finally:
        os.close(fd)
    assert names(tmp_path / "stdout") == [STARTED, CHECKPOINT]
    said = own_lines(tmp_path / "stdout")[1]["data"]
    assert (said["sink"], said["seq"]) == ("file", 7)
    found = verified(tmp_path / "audit.jsonl", elsewhere=[tmp_path / "stdout"])
    assert (found.findings, found.doubts) == ((), ())
    assert found_in(tmp_path / "stdout") == []


async def test_the_number_of_the_last_line_is_told_of_files_alone(tmp_path: Path) -> None:
    """The chain of standard output begins anew with each process: a number that fell would look like a loss."""
    fd = stdout(tmp_path)
    try:
        out = SinkSettings(name="stdout", path=None)
        async with opened(settings(to_file(tmp_path), out), stdout=fd) as log:
            await turns(log.sequences)
            assert (set(log.sequences()), set(log.depths())) == ({("file",)}, {("file",), ("stdout",)})
    finally:
        os.close(fd)


async def test_without_a_chain_lines_are_numbered_alone(tmp_path: Path) -> None:
    await keep(settings(to_file(tmp_path), chain=ChainSettings(enabled=False)), many(2))
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert {line["prev"] for line in lines} == {None}


# --- what an event may hold ---------------------------------------------------------------------------------------


async def test_an_event_that_cannot_be_told_in_full_is_told_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = NativeRenderer.document

    def breaks(native: NativeRenderer, event: AuditEvent) -> dict[str, Any]:
        if event.name == "gateway.stopping" and "unrendered" not in (event.data or {}):
            raise KeyError("halfway")
        return whole(native, event)

    monkeypatch.setattr(NativeRenderer, "document", breaks)
    await keep(settings(to_file(tmp_path)), moved("started", "stopping", "stopped"))
    line = own_lines(tmp_path / "audit.jsonl")[2]
    assert (line["event"], line["data"]) == ("gateway.stopping", {"unrendered": "KeyError"})
    assert found_in(tmp_path / "audit.jsonl") == []
    assert "an audit event cannot be rendered; its line has no data" in caplog.messages


async def test_arguments_weigh_what_they_may_and_the_rest_goes_without(tmp_path: Path) -> None:
    call = message_text("tools/call", name="build_report", arguments={"city": "x" * (backpressure.MAX_WEIGHT // 7)})
    answered = Ended(0.1)
    async with opened(settings(to_file(tmp_path))) as log:
        for _ in range(2):
            # What is taken makes room again.
            for _ in range(8):
                with in_request(new_context(call)):
                    log.emit(answered)
            await turns(lambda: not log.depths()["file",])
    lines = [orjson.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    left_out = ["omitted" in line["args"] for line in lines if line["event"] == "rpc.call"]
    assert left_out[:8] == left_out[8:]
    assert (left_out[0], left_out[7]) == (False, True)


async def test_an_event_that_cannot_be_told_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        log.emit(kinds.CircuitChanged("reports", object()))  # type: ignore[arg-type]
        log.emit(kinds.GatewayPhaseChanged("started", "1", "no number"))  # type: ignore[arg-type]
        log.emit(*many(1))
    assert names(tmp_path / "audit.jsonl")[-2:] == ["gateway.started", CHECKPOINT]
    assert [record.levelno for record in caplog.records if "fact" in vars(record)] == [logging.ERROR]
