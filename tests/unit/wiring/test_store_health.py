"""The health of a store: a fault is told once, stays until a check finds it over, and is checked when it is calm."""

from datetime import timedelta
from typing import NoReturn

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import OWNER
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.memory import MemoryStore
from taskgate.telemetry.events import StoreFaulted, StoreUsed
from taskgate.wiring.measured_stores import CALM, QUIET, MeasuredStore, StoreHealth
from unit.lifecycle.recorded_events import RecordedEvents

FULL = StoreUnavailable("no", fault=StoreFault.DISK_FULL)
BROKEN = StoreUnavailable("no", fault=StoreFault.IO_ERROR)


class UnreadableStore(MemoryStore):
    """A store whose heads cannot be read."""

    def recall(self, *_: object, **__: object) -> NoReturn:
        raise BROKEN


class Scene:
    """A health, whom it tells, and its time."""

    def __init__(self) -> None:
        self.emitted, self.clock = RecordedEvents(), ManualClock()
        self.health = StoreHealth(event_sink=self.emitted, clock=self.clock)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_a_fault_that_goes_on_is_told_once_and_its_end_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        scene.health.failed(FULL)
        scene.clock.advance(timedelta(seconds=QUIET))
    scene.health.recovered()
    scene.health.recovered()
    assert scene.emitted.all == [StoreFaulted(StoreFault.DISK_FULL), StoreFaulted(None)]
    assert lines(caplog) == ["ERROR", "WARNING"]


def test_another_fault_is_another_line(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.health.failed(FULL)
    scene.health.failed(BROKEN)
    assert scene.health.fault is StoreFault.IO_ERROR
    assert lines(caplog) == ["ERROR", "ERROR"]


def test_one_that_comes_back_at_once_is_not_logged_again_for_a_while(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        scene.health.failed(FULL)
        scene.health.failed(BROKEN)
    assert lines(caplog) == ["ERROR", "ERROR"]
    scene.clock.advance(timedelta(seconds=QUIET))
    scene.health.failed(FULL)
    assert len(lines(caplog)) == 3


def test_it_is_checked_once_nothing_failed_for_a_while(scene: Scene) -> None:
    assert not scene.health.wants_check
    scene.health.failed(FULL)
    assert not scene.health.wants_check
    scene.clock.advance(timedelta(seconds=CALM))
    assert scene.health.wants_check
    scene.health.failed(FULL)
    assert not scene.health.wants_check


def test_a_refusal_without_a_fault_changes_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.health.failed(StoreUnavailable("a record that cannot be read"))
    assert (scene.health.fault, scene.emitted.all, lines(caplog)) == (None, [], [])


async def test_a_store_that_never_failed_is_looked_at_and_not_written_to(scene: Scene) -> None:
    inner = FailingStore(MemoryStore())
    store = MeasuredStore(inner, event_sink=scene.emitted, clock=scene.clock)  # type: ignore[arg-type]
    inner.failing, inner.fault = {"check"}, StoreFault.FILE_GONE
    await store.check()
    assert (store.fault, scene.emitted.all) == (None, [])
    inner.failing = {"verify"}
    with pytest.raises(StoreUnavailable):
        await store.check()
    assert store.fault is StoreFault.FILE_GONE
    assert scene.emitted.all == [StoreUsed("check", 0.0, False), StoreFaulted(StoreFault.FILE_GONE)]


async def test_a_head_that_cannot_be_read_in_one_step_is_a_failed_load(scene: Scene) -> None:
    store = MeasuredStore(UnreadableStore(), event_sink=scene.emitted, clock=scene.clock)
    with pytest.raises(StoreUnavailable):
        store.recall(OWNER, "any", now=EPOCH)
    assert scene.emitted.all == [StoreUsed("load", 0.0, False), StoreFaulted(StoreFault.IO_ERROR)]
