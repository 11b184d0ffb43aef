"""Every event moves exactly its families, with the right labels."""

from collections.abc import Callable
from dataclasses import replace
from time import time
from typing import Any, Protocol, get_args

import pytest

from helpers.emitting_metrics import EmittingMetrics
from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry import events
from taskgate.telemetry.metrics.settings import MetricsConfig
from unit.telemetry.metrics.event_table import EVENTS, KEYS_AT, TASK, UNFINISHED, UP

Moved = Callable[[], dict[str, float]]
Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]


class SetClock(Protocol):
    """See conftest."""

    seconds: float


def test_the_table_has_every_event() -> None:
    assert {type(event) for event, _ in EVENTS} == set(get_args(events.Event))


@pytest.mark.parametrize(("event", "expected"), EVENTS, ids=lambda each: repr(each)[:60])
def test_an_event_moves_its_families_and_no_other(
    metrics: EmittingMetrics,
    moved: Moved,
    event: events.Event,
    expected: dict[str, float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor does it say that it cannot be counted."""
    metrics.emit(event)
    assert moved() == expected
    assert not caplog.records


@pytest.mark.parametrize(("event", "expected"), EVENTS, ids=lambda each: repr(each)[:60])
def test_the_same_event_again_counts_again(
    metrics: EmittingMetrics, moved: Moved, event: events.Event, expected: dict[str, float]
) -> None:
    metrics.emit(event)
    metrics.emit(event)
    stores = ("taskgate_store_tasks", "taskgate_store_size", "taskgate_store_up", "taskgate_store_fault")
    slots = ("taskgate_concurrency_in_use", "taskgate_concurrency_limit", "taskgate_queue_depth")
    servers = (
        "taskgate_poll_interval",
        "taskgate_upstream_circuit",
        "taskgate_upstream_up",
        "taskgate_upstream_processes",
    )
    configuration = ("taskgate_config_last", "taskgate_config_hash")
    keys = ("taskgate_jwks_keys", "taskgate_jwks_last")
    sets = (*stores, *slots, *servers, *configuration, *keys, "taskgate_tasks_running")
    assert moved() == {name: value * (1 if name.startswith(sets) else 2) for name, value in expected.items()}


def test_turns_are_shown_as_they_are_now(metrics: EmittingMetrics, moved: Moved) -> None:
    for in_use, limit, queued in ((3, 32, 5), (3, 32, 0), (4, 32, 7), (1, 16, 7), (0, 16, 0), (0, 16, 2)):
        metrics.emit(events.ConcurrencyChanged("m", in_use, limit, queued))
        shown = {f"taskgate_concurrency_in_use{{scope=upstream,{UP}}}": in_use,
                 f"taskgate_concurrency_limit{{scope=upstream,{UP}}}": limit,
                 f"taskgate_queue_depth{{{UP}}}": queued}  # fmt: skip
        assert moved() == {name: value for name, value in shown.items() if value}


def test_keys_that_did_not_come_leave_the_time_of_the_last_that_did(
    metrics: EmittingMetrics, moved: Moved, clock: SetClock
) -> None:
    for seconds, result in ((1000, "ok"), (2000, "stale"), (3000, "failed")):
        clock.seconds = seconds
        metrics.emit(events.KeysFetched("corp", result, 1))
        assert moved()[KEYS_AT] == 1000
    metrics.emit(events.KeysFetched("corp", "ok", 1))
    assert moved()[KEYS_AT] == 3000


def test_an_issuer_whose_keys_are_gone_is_shown_with_none(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.emit(events.KeysFetched("corp", "ok", 3))
    metrics.emit(events.KeysFetched("corp", "failed", 0))
    assert "taskgate_jwks_keys{issuer=corp}" not in moved()


def test_the_time_is_the_systems_unless_another_clock_is_given() -> None:
    metrics = EmittingMetrics(MetricsConfig(backend="memory", issuers=["corp"]))
    before = time()
    metrics.emit(events.KeysFetched("corp", "ok", 1))
    page = metrics.render(None)[0].decode()
    [line] = [each for each in page.splitlines() if each.startswith("taskgate_jwks_last_success_timestamp_seconds{")]
    assert before - 1 <= float(line.split()[1]) <= time() + 1


def test_the_store_is_up_or_down_as_its_last_operation_was(metrics: EmittingMetrics, moved: Moved) -> None:
    for ok in (True, False):
        metrics.emit(events.StoreUsed("load", 0.0, ok))
        assert moved().get("taskgate_store_up{backend=sqlite}", 0) == ok


def test_a_store_with_a_fault_is_down_though_some_operations_work(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.emit(events.StoreFaulted(StoreFault.DISK_FULL))
    metrics.emit(events.StoreUsed("load", 0.0, True))
    assert moved()["taskgate_store_fault{backend=sqlite,fault=disk_full}"] == 1
    assert "taskgate_store_up{backend=sqlite}" not in moved()
    metrics.emit(events.StoreFaulted(None))
    metrics.emit(events.StoreUsed("load", 0.0, True))
    assert moved()["taskgate_store_up{backend=sqlite}"] == 1
    assert "taskgate_store_fault{backend=sqlite,fault=disk_full}" not in moved()


def test_a_status_that_the_store_no_longer_holds_is_shown_as_none(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.emit(events.StoreCounted({TaskStatus.WORKING: 3, TaskStatus.FAILED: 1}, None))
    metrics.emit(events.StoreCounted({TaskStatus.FAILED: 2}, None))
    assert moved() == {"taskgate_store_tasks{status=failed}": 2}


def test_unfinished_tasks_are_counted_in_all_whatever_they_wait_for(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.emit(events.StoreCounted({TaskStatus.WORKING: 3, TaskStatus.INPUT_REQUIRED: 4, TaskStatus.FAILED: 9}, 0))
    assert moved()[UNFINISHED] == 7


def test_a_circuit_is_shown_open_until_it_is_closed_again(metrics: EmittingMetrics, moved: Moved) -> None:
    for state, shown in (("open", 1), ("half_open", 1), ("open", 1), ("closed", 0)):
        metrics.emit(events.CircuitChanged("m", state))
        assert moved().get(f"taskgate_upstream_circuit_open{{{UP}}}", 0) == shown


def test_whether_an_upstream_is_up_is_not_shown_before_it_is_known(metrics: EmittingMetrics, samples: Page) -> None:
    for up, shown in ((None, set()), (False, {0.0}), (True, {1.0})):
        metrics.emit(events.HealthChecked("m", True, up))
        assert {value for (name, _), value in samples().items() if name == "taskgate_upstream_up"} == shown


def test_what_was_known_of_a_server_is_not_shown_of_the_one_that_takes_its_place(
    metrics: EmittingMetrics, moved: Moved
) -> None:
    metrics.emit(events.CircuitChanged("m", "open"))
    metrics.emit(events.HealthChecked("m", True, True))
    metrics.emit(events.UpstreamAdded("m"))
    assert moved() == {f"taskgate_upstream_health_checks_total{{result=ok,{UP}}}": 1}


def test_a_configuration_that_was_refused_leaves_the_last_one_shown(
    metrics: EmittingMetrics, moved: Moved, clock: SetClock
) -> None:
    def shown(seconds: int, fingerprint: int) -> dict[str, float]:
        return {
            "taskgate_config_last_reload_successful{}": 1,
            "taskgate_config_last_reload_success_timestamp_seconds{}": seconds,
            "taskgate_config_hash{}": fingerprint,
        }

    def now() -> dict[str, float]:
        return {name: value for name, value in moved().items() if "reloads" not in name}

    clock.seconds = 1000
    metrics.show_configuration(77)
    assert moved() == shown(1000, 77), "to begin is no reload"
    clock.seconds = 2000
    metrics.emit(events.ConfigReloaded("invalid", 78))
    refused = shown(1000, 77)
    del refused["taskgate_config_last_reload_successful{}"]
    assert now() == refused
    for seconds, result in ((3000, "unchanged"), (4000, "needs_restart"), (5000, "success")):
        clock.seconds = seconds
        metrics.emit(events.ConfigReloaded(result, seconds + 1))
        assert now() == shown(seconds, seconds + 1)


def test_limits_are_shown_for_as_long_as_there_are_any(
    metrics: EmittingMetrics, configured: MetricsConfig, moved: Moved
) -> None:
    limited = replace(
        configured, task_limit=1000, queue_limits={"m": 256, "n": 0}, store_limit=4096, audit_queue=10_000
    )
    metrics.adopt(configured)
    metrics.adopt(limited)
    assert moved() == {
        "taskgate_concurrency_limit{scope=global,upstream=}": 1000,
        f"taskgate_queue_limit{{{UP}}}": 256,
        "taskgate_store_size_limit_bytes{backend=sqlite}": 4096,
        "taskgate_audit_queue_limit{sink=file}": 10_000,
    }
    metrics.adopt(configured)
    assert moved() == {}


def test_an_event_that_cannot_be_counted_disturbs_nobody(
    metrics: EmittingMetrics, moved: Moved, caplog: pytest.LogCaptureFixture
) -> None:
    unhashable: Any = []
    metrics.emit(events.HttpRefused(unhashable))
    metrics.emit(unhashable)
    assert moved() == {}
    assert [(record.message, record.fact) for record in caplog.records] == [
        ("an event was not counted in metrics", "HttpRefused")
    ]


def test_whatever_events_hold_the_page_names_nobody(metrics: EmittingMetrics) -> None:
    for event, _ in EVENTS:
        metrics.emit(event)
    page = metrics.render(None)[0].decode()
    assert not [word for word in (TASK.id, "context-of-somebody", "192.0.2.7", "input-1") if word in page]
