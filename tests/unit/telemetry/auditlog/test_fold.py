"""Events without a known caller: few lines, exact counts, and no young file that makes room for them."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from requirements import covers
from taskgate.admission.rates import address_block
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import DENIED, LOW
from taskgate.telemetry.auditlog.chain_writer import LARGEST_LINE
from taskgate.telemetry.auditlog.events import AuditEvent, LimitHit, origin_of
from taskgate.telemetry.auditlog.fold import KEYS, LINES, MAX_PAUSE, EventFold
from taskgate.telemetry.auditlog.settings import LineOptions, SinkSettings
from taskgate.telemetry.auditlog.sinks import SHARE
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesDropped
from taskgate.telemetry.request_context import RequestContext, in_request
from unit.telemetry.auditlog.audit_cases import CALLER, FIRST_USE, Ended, new_context
from unit.telemetry.auditlog.logs_on_disk import (
    Heard,
    ToldLog,
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

KINDS = ("unauthenticated", "rate", "bad_host", "bad_origin", "unknown_path", "bad_json")


def stranger(refusal: str = "unauthenticated", address: str = "203.0.113.9", **changes: Any) -> RequestContext:
    """A refused request whose caller is not known."""
    return new_context(None, caller=None, mount=None, refusal=refusal, address=address, status=401, **changes)


def refused(refusal: str = "unauthenticated", address: str = "203.0.113.9", **changes: Any) -> AuditEvent:
    """Its audit event."""
    origin = origin_of(stranger(refusal, address, **changes), final=True)
    return AuditEvent("rpc.rejected", DENIED, refusal, LOW, 1_000_000, origin, data={"seconds": 0.1})


def counts(lines: Iterable[AuditEvent]) -> list[int]:
    return [(line.data or {}).get("count", 0) for line in lines]


def tell(log: ToldLog, context: RequestContext, event: Any = None, times: int = 1) -> None:
    """Have something happen in a request."""
    for _ in range(times):
        with in_request(context):
            log.emit(event or Ended(0.1))


def counted(lines: Iterable[dict[str, Any]], event: str = "rpc.rejected") -> int:
    """How many events the lines stand for."""
    return sum(line["data"].get("count", 0) for line in lines if line["event"] == event)


# --- what is a line --------------------------------------------------------------------------------------------------


def test_the_first_of_a_kind_and_address_is_a_line_and_the_others_are_counted() -> None:
    fold = EventFold(address_block)
    assert counts(fold.lines([refused(), refused(), refused("rate"), refused(address="203.0.113.10")], 0)) == [1] * 3
    assert fold.due(0.9) == []
    last = refused(agent="the-last")
    assert fold.lines([refused(), last], 0.95) == []
    [line] = fold.due(1)
    assert (line.data, line.origin) == ({"seconds": 0.1, "count": 3}, last.origin)


def test_pauses_between_lines_grow_and_silence_begins_anew() -> None:
    fold, found = EventFold(address_block), []
    for tenth in range(600):
        now = tenth / 10
        lines = [*fold.due(now), *fold.lines([refused()], now)]
        found += [now for _ in lines]
    assert found == [0, 1, 3, 7, 15, 25, 35, 45, 55]
    assert sum(counts(fold.due(70))) == 50
    assert fold.due(70 + MAX_PAUSE) == []
    assert fold.is_empty
    assert counts(fold.lines([refused()], 100)) == [1]


def test_addresses_of_one_site_are_one() -> None:
    fold = EventFold(address_block)
    assert len(fold.lines([refused(address=f"2001:db8::{number:x}") for number in range(1000)], 0)) == 1


def test_what_names_its_caller_or_a_task_or_has_no_count_is_a_line() -> None:
    fold = EventFold(address_block)
    wanted = [
        refused()._replace(name="auth.rejected", caller=CALLER),
        refused()._replace(name="upstream.down"),
    ]
    assert fold.lines(wanted * 5, 0) == wanted * 5
    assert fold.is_empty


@covers("T52")
@pytest.mark.parametrize("count", [3_000, 30_000])
def test_many_addresses_and_kinds_have_no_more_lines_than_a_minute_has(count: int) -> None:
    fold = EventFold(address_block)
    flood = [refused(KINDS[each % 6], f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}") for each in range(count)]
    lines = fold.lines(flood, 0)
    assert len(lines) == KEYS
    lines += [line for second in range(1, 60) for line in fold.due(second)]
    assert len(lines) <= LINES
    together = fold.due(60)
    assert len(together) == len(KINDS)
    assert {line.origin for line in together} == {None}
    assert sum(counts([*lines, *together, *fold.rest()])) == count
    assert fold.is_empty


def test_counts_that_find_no_line_of_their_own_are_counted_by_kind() -> None:
    fold, sent, written = EventFold(address_block), 0, 0
    for second in range(300):
        flood = [refused(address=f"10.0.0.{each}") for each in range(200)]
        lines = [*fold.due(second), *fold.lines(flood, second)]
        sent, written = sent + len(flood), written + sum(counts(lines))
    assert sent == written + sum(counts(fold.rest()))


def test_what_waits_holds_nothing_large() -> None:
    fold = EventFold(address_block)
    event = refused(path="/" + "x" * 100_000)._replace(limit=LimitHit("rate"))
    fold.lines([event, event], 0)
    [line] = fold.rest()
    assert len(line.origin.path or "") <= 512 if line.origin else False


# --- in a log --------------------------------------------------------------------------------------------------------


@covers("T52")
async def test_a_flood_takes_a_bounded_number_of_bytes_and_each_refusal_is_counted(tmp_path: Path) -> None:
    sizes = []
    for times in (300, 3_000):
        folder = tmp_path / str(times)
        folder.mkdir()
        heard = Heard()
        async with opened(settings(to_file(folder)), heard) as log:
            for each in range(times):
                tell(log, stranger(KINDS[each % 6], id=f"x-{each}"))
                if not each % 100:
                    tell(log, new_context(id=f"known-{each}"))
        lines = own_lines(folder / "audit.jsonl")
        assert counted(lines) == times
        assert [line["event"] for line in lines].count("rpc.call") == times // 100
        recorded = Counter(heard.of(AuditEventRecorded))
        assert recorded[AuditEventRecorded("rpc.rejected", "denied")] == times
        assert found_in(folder / "audit.jsonl") == []
        sizes.append(sum(len(str(line)) for line in lines if line["event"] == "rpc.rejected"))
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (events.TokenChecked("corp", "malformed"), "auth.rejected"),
        (events.RateLimitChecked("ip", "ip", "rejected"), "limit.rate_rejected"),
        (events.RateLimitChecked("ip", "ip", "shadow"), "limit.shadow_rejected"),
        (events.CapRefused("streams", "ip"), "limit.concurrency_rejected"),
        (events.SuspicionRaised("auth_bruteforce", None), "security.auth_bruteforce"),
        (events.SuspicionRaised("header_mismatch", None), "security.header_mismatch"),
        (Ended(0.1), "rpc.request"),
    ],
)
async def test_all_that_an_unknown_caller_causes_is_counted(tmp_path: Path, event: Any, name: str) -> None:
    context = replace(stranger(), refusal=None, verb="GET")
    async with opened(settings(to_file(tmp_path))) as log:
        tell(log, context, event, times=500)
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["data"]["count"] for line in lines if line["event"] == name] == [1, 499]


async def test_a_known_caller_has_a_line_for_each_refusal(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        tell(log, new_context(refusal="rate"), times=20)
        tell(log, stranger(), FIRST_USE, times=3)
    lines = own_lines(tmp_path / "audit.jsonl")
    assert [line["event"] for line in lines[1:-1]] == ["rpc.rejected"] * 20 + ["auth.accepted"] * 3
    assert all("count" not in line["data"] for line in lines)


async def test_counts_are_written_in_time_at_a_reload_and_when_files_are_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    wanted = settings(to_file(tmp_path))
    async with opened(wanted) as log:
        tell(log, stranger(), times=3)
        log.reopen()
        await turns(lambda: names(file).count("rpc.rejected") == 2)
        tell(log, stranger("rate"), times=4)
        await switch(log, settings(to_file(tmp_path), queue=100))
        await turns(lambda: counted(own_lines(file)) == 7)
        tell(log, stranger("bad_host"), times=2)
        log.clock.advance(timedelta(seconds=1))
        await turns(lambda: counted(own_lines(file)) == 9)
    assert found_in(file) == []


@pytest.mark.parametrize("format", ["native", "ocsf", "ecs"])
async def test_each_format_has_the_count(tmp_path: Path, format: Any) -> None:
    wanted = settings(to_file(tmp_path), line_options=LineOptions(format=format))
    async with opened(wanted) as log:
        tell(log, stranger(), times=5)
    lines = own_lines(tmp_path / "audit.jsonl")
    assert counted(lines) == 5
    if format == "ocsf":
        assert '"count":4' in (tmp_path / "audit.jsonl").read_text().splitlines()[2].partition('"unmapped"')[0]


# --- files that are young --------------------------------------------------------------------------------------------


async def flood(log: ToldLog, count: int) -> None:
    """Refusals that each have a line: none is of the kind and address of another, and many minutes pass."""
    for each in range(count):
        tell(log, stranger(address=f"10.0.{each >> 8}.{each & 255}"))
        if each % 50 == 49:
            log.clock.advance(timedelta(minutes=2))
            log.reopen()
            await turns(lambda: not log.depths()["file",])


def small(folder: Path, **changes: Any) -> SinkSettings:
    return to_file(folder, rotate_size=64 * 1024, keep=2, **changes)


def files_of(folder: Path) -> list[Path]:
    """The files of the log, in their order."""
    return [*sorted(folder.glob("audit.jsonl.0*")), folder / "audit.jsonl"]


def text_of(folder: Path) -> str:
    return "".join(file.read_text() for file in files_of(folder))


@covers("T52")
async def test_no_young_file_is_deleted_to_make_room_for_unknown_callers(tmp_path: Path) -> None:
    heard = Heard()
    async with opened(settings(small(tmp_path)), heard) as log:
        tell(log, new_context(agent="first-of-all"))
        await flood(log, 700)
    assert "first-of-all" in text_of(tmp_path)
    lines = [line for file in files_of(tmp_path) for line in own_lines(file)]
    gaps = [line["data"] for line in lines if line["event"] == "audit.gap"]
    assert {gap["cause"] for gap in gaps} == {"audit_keep"}
    assert counted(lines) + sum(gap["lines"] for gap in gaps) == 700
    assert AuditEventRecorded("audit.gap", "failure") in heard.of(AuditEventRecorded)
    assert heard.of(AuditLinesDropped) == []
    assert found_in(*files_of(tmp_path)) == []
    latest = own_lines(tmp_path / "audit.jsonl")
    assert [line["event"] for line in latest].count("rpc.rejected") == 64 * 1024 // SHARE // LARGEST_LINE


async def test_lines_of_known_callers_rotate_all_the_same_and_those_of_others_have_a_share(tmp_path: Path) -> None:
    async with opened(settings(small(tmp_path))) as log:
        tell(log, new_context(agent="first-of-all"))
        await flood(log, 700)
        for _ in range(3):
            for _ in range(100):
                tell(log, new_context(agent="known"))
            await turns(lambda: not log.depths()["file",])
            await flood(log, 50)
    assert "first-of-all" not in text_of(tmp_path)
    latest = own_lines(tmp_path / "audit.jsonl")
    assert [line["event"] for line in latest].count("rpc.rejected") == 64 * 1024 // SHARE // LARGEST_LINE


async def test_an_old_file_makes_room_for_any_line(tmp_path: Path) -> None:
    async with opened(settings(small(tmp_path), keep=timedelta(0))) as log:
        tell(log, new_context(agent="first-of-all"))
        await flood(log, 700)
    assert "first-of-all" not in text_of(tmp_path)
    assert "audit.gap" not in text_of(tmp_path)


async def test_files_that_have_become_old_make_room(tmp_path: Path) -> None:
    async with opened(settings(small(tmp_path))) as log:
        for _ in range(4):
            for event in many(150):
                log.emit(event)
            await turns(lambda: not log.depths()["file",])
        tell(log, stranger(), times=1)
    for file in tmp_path.glob("audit.jsonl.0*"):
        os.utime(file, (0, 0))
    async with opened(settings(small(tmp_path))) as log:
        await flood(log, 200)
    assert "audit.gap" not in text_of(tmp_path)
