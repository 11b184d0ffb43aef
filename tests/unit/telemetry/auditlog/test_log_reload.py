"""Other settings for a log that is open: what goes on, what begins, and what is finished first."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.waiting import bounded
from taskgate.telemetry.auditlog.chain import KeyRing
from taskgate.telemetry.auditlog.settings import AuditUnavailable, ChainSettings, LineOptions, SinkSettings
from taskgate.telemetry.events import ConfigReloaded, HealthChecked
from unit.telemetry.auditlog.logs_on_disk import (
    KEY,
    ScriptedOs,
    fill,
    found_in,
    many,
    moved,
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


# --- other settings -----------------------------------------------------------------------------------------------


async def test_a_sink_that_stays_goes_on_in_another_way(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path), chain=ChainSettings(enabled=False))) as log:
        log.emit(*moved("started"))
        await turns(lambda: not log.depths()["file",])
        await switch(log, settings(to_file(tmp_path, name="renamed"), line_options=LineOptions(format="ocsf")))
        await turns(lambda: log.depths() == {("renamed",): 0})
        log.emit(*moved("stopped"))
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert [line["event"] for line in own_lines(tmp_path / "audit.jsonl")] == [
        STARTED, "gateway.started", "gateway.stopped", CHECKPOINT
    ]  # fmt: skip
    assert [b"class_uid" in line for line in lines] == [False, False, True, True]
    assert own_lines(tmp_path / "audit.jsonl")[-1]["data"]["sink"] == "renamed"
    assert found_in(tmp_path / "audit.jsonl", ring=KeyRing()) == []


async def test_a_sink_that_is_new_begins_and_one_that_is_gone_has_everything_first(
    tmp_path: Path, system: ScriptedOs
) -> None:
    one, other = (SinkSettings(name=name, path=tmp_path / name) for name in ("one", "other"))
    async with opened(settings(one)) as log:
        await fill(log, system, 5)
        system.gate.set()
        await switch(log, settings(other))
        log.emit(*moved("stopped"))
        assert set(log.depths()) == {("other",)}
        # Who is let go of may be wanted again.
        await switch(log, settings(one))
    # Besides there are checkpoints, of itself and of the other one where that was let go of later.
    told = [[name for name in names(each.path) if name != CHECKPOINT] for each in (one, other) if each.path]
    assert told == [[STARTED, *["gateway.started"] * 5, STARTED], [STARTED, "gateway.stopped"]]
    assert names(tmp_path / "one")[6] == CHECKPOINT
    assert found_in(tmp_path / "one") + found_in(tmp_path / "other") == []


async def test_settings_that_cannot_be_had_change_nothing(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        new = SinkSettings(name="new", path=tmp_path / "new")
        lost = SinkSettings(name="lost", path=tmp_path / "no" / "file")
        with pytest.raises(AuditUnavailable, match="lost"):
            await log.prepare(settings(to_file(tmp_path), new, lost))
        assert set(log.depths()) == {("file",)}
        prepared = await log.prepare(settings(to_file(tmp_path), new))
        async with bounded():
            await log.discard(prepared)
        await switch(log, settings(to_file(tmp_path), new))
        log.emit(*many(1))
    assert names(tmp_path / "new").count("gateway.started") == 1
    assert names(tmp_path / "audit.jsonl").count("gateway.started") == 1


async def test_a_log_may_be_turned_off_and_on(tmp_path: Path) -> None:
    async with opened(settings(to_file(tmp_path))) as log:
        log.emit(*moved("started"))
        await switch(log, settings())
        log.emit(*moved("stopping"))
        await switch(log, settings(to_file(tmp_path)))
        log.emit(*moved("stopped"))
    told = [name for name in names(tmp_path / "audit.jsonl") if name.startswith("gateway")]
    assert told == ["gateway.started", "gateway.stopped"]
    assert found_in(tmp_path / "audit.jsonl") == []


@pytest.mark.parametrize("how", ["off", "elsewhere", "blind", "deaf"])
async def test_a_sink_is_told_of_the_change_after_which_it_is_told_of_none(tmp_path: Path, how: str) -> None:
    """Once; what happens later is not for it."""
    one, other = to_file(tmp_path), SinkSettings(name="other", path=tmp_path / "other")
    after = {
        "off": settings(),
        "elsewhere": settings(other),
        "blind": settings(one, events=("task.*",)),
        "deaf": settings(replace(one, events=("task.*",))),
    }[how]
    async with opened(settings(one)) as log:
        log.switch(await log.prepare(after))
        log.emit(ConfigReloaded("success", 7))
        await asyncio.sleep(0)
        log.emit(ConfigReloaded("success", 8))
    changes = [
        own["data"]["fingerprint"] for own in own_lines(tmp_path / "audit.jsonl") if own["event"] == "config.loaded"
    ]
    assert changes == ["000000000007"]
    if how == "elsewhere":
        assert names(tmp_path / "other").count("config.loaded") == 2


async def test_what_was_told_of_a_server_is_not_told_again_in_other_words(tmp_path: Path) -> None:
    is_up = HealthChecked("reports", ok=True, up=True)
    async with opened(settings(to_file(tmp_path))) as log:
        log.emit(is_up)
        await switch(log, settings(to_file(tmp_path), line_options=LineOptions(format="ecs")))
        log.emit(is_up)
    assert names(tmp_path / "audit.jsonl").count("upstream.up") == 1


async def test_another_key_signs_from_then_on(tmp_path: Path) -> None:
    other = b"o" * 32
    async with opened(settings(to_file(tmp_path))) as log:
        await switch(log, settings(to_file(tmp_path), key=other))
        log.emit(*many(1))
    assert found_in(tmp_path / "audit.jsonl", ring=KeyRing(keys=(KEY, other))) == []
    assert [each.endswith("which is not among the given keys") for each in found_in(tmp_path / "audit.jsonl")] == [True]


async def test_a_longer_queue_counts_at_once(tmp_path: Path, system: ScriptedOs) -> None:
    async with opened(settings(to_file(tmp_path), queue=16, block_timeout=timedelta(minutes=5))) as log:
        await fill(log, system, 12)
        assert log.capacity.is_full
        waiting = asyncio.create_task(log.capacity.room())
        await asyncio.sleep(0)
        await switch(log, settings(to_file(tmp_path), queue=100))
        async with bounded():
            assert await waiting
        system.gate.set()
