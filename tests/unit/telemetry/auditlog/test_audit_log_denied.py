"""What becomes of the lines of requests that are refused because there is no room for lines."""

from collections.abc import Iterator
from pathlib import Path

from taskgate.telemetry.auditlog.log import AuditLog
from taskgate.telemetry.auditlog.settings import SinkSettings
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesDropped
from taskgate.telemetry.request_context import in_request
from unit.telemetry.auditlog.kept_logs import (
    Heard,
    ScriptedOs,
    fill,
    found_in,
    many,
    names,
    opened,
    own_lines,
    settings,
    to_file,
    turns,
)
from unit.telemetry.auditlog.told_events import ANSWERED, new_visit

REJECTED = "rpc.rejected"


def refuse(log: AuditLog, count: int, reason: str = "audit") -> None:
    """So many requests are refused, for that reason."""
    for _ in range(count):
        with in_request(new_visit(None, refusal=reason, status=503)):
            log.emit(ANSWERED)


def told(heard: Heard) -> Iterator[str]:
    return (each.event for each in heard.of(AuditEventRecorded))


async def test_refusals_for_want_of_room_leave_the_last_quarter_to_what_is_under_way(
    tmp_path: Path, system: ScriptedOs
) -> None:
    heard = Heard()
    async with opened(settings(to_file(tmp_path), queue=20, on_full="deny"), heard) as log:
        await fill(log, system, 15)
        assert not await log.room()
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
        await turns(lambda: not log.is_full)
    assert names(tmp_path / "audit.jsonl").count("gateway.started") == 20
    assert REJECTED not in names(tmp_path / "audit.jsonl")
    assert found_in(tmp_path / "audit.jsonl") == []


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
